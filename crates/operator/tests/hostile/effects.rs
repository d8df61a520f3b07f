//! Checks of the effects on the leader's state: what an import claims, and what a lease takes.

use std::net::IpAddr;

use harvester_lb_api::IPAllocation;
use harvester_lb_core::cached::Allocation;
use harvester_lb_core::dhcp::Mode;
use harvester_lb_core::dhcp::record::{LeaseRecord, LeaseSpec};
use harvester_lb_core::dhcp::serving::{Serving, serving};
use harvester_lb_ipam::{Micros, import};
use harvester_lb_object::Key;

use crate::scene::{HELD, Scene};

pub(crate) fn import_claims_nothing_of_others(
    scene: &Scene,
    maps: &[import::PoolMaps],
    existing: &[import::ExistingLb],
) {
    let plan = import::plan(&scene.leader.ledger, maps, existing, Micros(7));
    let held: IpAddr = HELD.parse().unwrap();
    assert!(plan.claims.iter().all(|c| c.addr != held));
    assert!(plan.released.iter().all(|r| r.addr != held));
    let entries: usize = maps
        .iter()
        .map(|m| m.allocated.len() + m.history.len())
        .sum();
    assert!(plan.claims.len() <= existing.len() && plan.released.len() <= entries);
}

/// Checks a lease that could be read: it is that of the uid in its name, what would be written is read as the same, and its address
/// counts as leased as long as the record is there.
pub(crate) fn is_lease_of_its_name(scene: &mut Scene, key: &Key, record: &LeaseRecord) {
    let spec = &record.spec;
    assert_eq!(spec.name(), *key.name);
    let mut again = IPAllocation {
        spec: spec.to_api(),
        ..IPAllocation::default()
    };
    again.metadata.name = Some(spec.name());
    let again = Allocation::decoded(&again);
    assert!(
        matches!(&again, Allocation::Lease(again) if again.spec == *spec),
        "{again:?} from {spec:?}"
    );
    is_served_until_its_expiry(spec);
    let address = spec.phase.lease().map(|lease| lease.address.into());
    scene.leader.set_lease(spec, true);
    assert!(address.is_none_or(|address| scene.leader.is_leased(address)));
    scene.leader.set_lease(spec, false);
    assert!(!address.is_some_and(|address| scene.leader.is_leased(address)));
}

/// DHC-3: whatever the record says, no address is served after the expiry of its lease.
fn is_served_until_its_expiry(spec: &LeaseSpec) {
    for mode in [Mode::KubeVip, Mode::Builtin] {
        for now in [Micros(0), Micros(1_770_000_000_000_000), Micros(i64::MAX)] {
            match serving(mode, Some(spec), false, now) {
                Serving::Leased(address, until) => {
                    assert!(until.is_none_or(|until| until > now), "{spec:?}");
                    let lease = spec.phase.lease();
                    assert_eq!(lease.map(|lease| lease.address), Some(address), "{spec:?}");
                }
                Serving::Waiting(why, _) => assert!(!why.is_empty()),
                Serving::KubeVip(_) => assert_eq!(mode, Mode::KubeVip),
            }
        }
    }
}
