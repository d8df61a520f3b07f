//! Features of later versions of the operator, whose objects this version must not touch (IPA-9).

use std::collections::BTreeSet;

use harvester_lb_api::{LoadBalancer, keys};

use crate::meta::name_of;
use crate::snapshot::Snapshot;

/// Whether a load balancer has an annotation that only a later version supports.
pub(crate) fn asks_for_more(lb: &LoadBalancer) -> bool {
    let annotations = lb.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(keys::ANNOTATION_DHCP_HARDWARE_ADDRESS))
}

/// Uids of the load balancers with a DHCP lease: an IPAllocation of this name, decoded or not.
pub(crate) fn leases(snapshot: &Snapshot) -> BTreeSet<&str> {
    let unknown = snapshot.undecodable.iter();
    let unknown = unknown.filter(|object| object.kind == "IPAllocation");
    let unknown = unknown.map(|object| &*object.name);
    let names = snapshot.records.iter().map(name_of).chain(unknown);
    names
        .filter_map(|name| name.strip_prefix(keys::LEASE_RECORD_PREFIX))
        .collect()
}
