//! An IPAllocation from a watch: either it is read completely or it blocks its name, and its removal leaves no trace.

use harvester_lb_api::IPAllocation;
use harvester_lb_core::cached::{Allocation, allocation_spec};
use harvester_lb_ipam::{Decision, Phase, Request, Workload, addr};

use crate::common::{Bystander, HELD, NOW, object, pool, range, request};

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let Some(decoded) = object::<IPAllocation>(data) else {
        return false;
    };
    let meta = match &decoded {
        Ok(object) => &object.metadata,
        Err(invalid) => &invalid.metadata,
    };
    let name = meta.name.clone().unwrap_or_default();
    let address = addr::parse_record_name(&name);
    if address == Some(HELD) {
        // A user who can write the bystander's IPAllocation can take its address.
        return true;
    }
    let allocation = Allocation::from_watch(decoded);
    let mut bystander = Bystander::default();
    bystander.leader.observe_allocation(&name, &allocation);
    let prefix = if address.is_some_and(|a| a.is_ipv6()) {
        128
    } else {
        32
    };
    let only = address.map(|a| pool("only", &[range(&format!("{a}/{prefix}"))]));
    let usable = only.as_ref().is_some_and(|pool| pool.ranges.is_ok());
    if let Some(only) = only {
        bystander.leader.ledger.set_pool(only);
    }
    // Of cluster type: the IPAllocation may be of an IPv6 address (BE-7).
    let asks = Request {
        workload: Workload::Cluster,
        ..request("asks", "u", Some("only"))
    };
    let takes = |bystander: &mut Bystander| {
        let decision = bystander.leader.ledger.decide(&asks, NOW);
        bystander.leader.ledger.withdraw(&asks.owner.id);
        matches!(decision, Decision::Take { .. })
    };
    let (version, owners) = match &allocation {
        Allocation::Valid { record, .. } => {
            assert_eq!(Some(record.spec.addr), address);
            let written = allocation_spec(&record.spec);
            assert_eq!(written.address, record.spec.addr.to_string());
            let own = record.spec.owner.id == asks.owner.id;
            if !own && usable {
                assert_eq!(takes(&mut bystander), record.spec.phase == Phase::Released);
            }
            // The address may be that of a group (SHR-5).
            let owners = vec![record.spec.owner.id.clone(), record.spec.address_of()];
            (record.version, owners)
        }
        Allocation::Lease(_) | Allocation::UnreadableLease(_) | Allocation::Reserved => {
            assert_eq!(address, None, "{name}");
            (harvester_lb_object::Version(0), Vec::new())
        }
        Allocation::Unreadable { version, why } => {
            assert!(!why.is_empty() && why.len() < 2_048 + name.len());
            assert!(address.is_none() || !takes(&mut bystander));
            (*version, Vec::new())
        }
    };
    bystander.check();
    bystander.leader.forget(&name, version);
    for owner in owners {
        bystander.leader.ledger.withdraw(&owner);
    }
    bystander.check();
    assert!(!usable || takes(&mut bystander), "{name} is lost");
    let counts = bystander.leader.ledger.counts();
    assert_eq!((counts.bound, counts.released, counts.blocked), (1, 0, 0));
    bystander.leader.remove_pool("only");
    true
}
