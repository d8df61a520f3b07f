//! An IPPool from a watch, in the ledger and in its own status.

use harvester_lb_api::IPPool;
use harvester_lb_core::cached::Pool;
use harvester_lb_core::pool_spec::pool_spec;
use harvester_lb_core::pool_status;
use harvester_lb_ipam::{Micros, PoolName, import, manual_release};

use crate::common::{Bystander, HELD, NOW, address, key, object, request};

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let Some(decoded) = object::<IPPool>(data) else {
        return false;
    };
    let pool = Pool::from_watch(decoded);
    let mut bystander = Bystander::default();
    let name = PoolName::from("fuzzed");
    bystander.leader.set_pool(&key(&name), &pool);
    let projection = pool_status::project(&bystander.leader.ledger, &name, 1_000).unwrap();
    assert!(0 <= projection.available && projection.available <= projection.total);
    let conditions = pool_status::conditions(
        &bystander.leader.ledger,
        &name,
        &pool,
        &projection,
        "2026-06-01T00:00:00Z",
    );
    let spec = pool_spec(&name, &pool, NOW);
    let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    let serves = spec.ranges.is_ok() && spec.withheld.is_none();
    assert_eq!(ready.status == "True", serves);
    for wish in pool
        .meta
        .annotations
        .iter()
        .flatten()
        .map(|(_, value)| value)
    {
        manual_release::verdict(&bystander.leader.ledger, &name, wish, |_| false, NOW);
    }
    if let Some(maps) = pool.foreign_maps.clone() {
        let maps = import::PoolMaps {
            name: name.clone(),
            created: Micros(0),
            allocated: maps.allocated.into_iter().collect(),
            history: maps.history.into_iter().collect(),
        };
        let plan = import::plan(&bystander.leader.ledger, &[maps], &[], NOW);
        assert!(plan.claims.is_empty());
        for record in plan.released {
            assert_ne!(record.addr, HELD);
            bystander.leader.ledger.claim(
                record.addr,
                record.owner,
                harvester_lb_ipam::Evidence::Trusted(record.pool),
            );
        }
    }
    for n in 0..4u64 {
        let request = request(&format!("guest{n}"), "u", Some(&name));
        let decision = bystander.allocate(&request, 10 + n);
        if let Some(address) = address(&decision) {
            // Neither a gateway nor excluded (EXC-2), nor of a pool whose list of exclusions is invalid (EXC-1).
            assert_eq!(spec.withheld, None);
            assert!(spec.ranges.as_ref().unwrap().usable(address));
        }
    }
    bystander.check();
    bystander.leader.remove_pool(&name);
    bystander.check();
    true
}
