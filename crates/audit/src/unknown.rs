//! Objects that exist and cannot be used: nothing is said about what depends on them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use harvester_lb_object::Key;

use crate::meta::{address_of_name, is_misnamed, name_of};
use crate::snapshot::Snapshot;

/// Objects that cannot be decoded, and IPAllocations with the name of another address.
#[derive(Default)]
pub(crate) struct Unknown<'a> {
    pub(crate) lbs: BTreeSet<Key>,
    pub(crate) pools: BTreeSet<&'a str>,
    /// Addresses of IPAllocations, misnamed ones included.
    pub(crate) records: BTreeSet<IpAddr>,
    /// Services and EndpointSlices.
    pub(crate) owned: BTreeSet<Key>,
    /// Namespaces of VirtualMachineInstances.
    pub(crate) machines: BTreeSet<&'a str>,
}

impl<'a> Unknown<'a> {
    pub(crate) fn read(snapshot: &'a Snapshot) -> Self {
        let mut unknown = Self::default();
        for object in &snapshot.undecodable {
            let key = || Key::new(&object.namespace, &object.name);
            match object.kind {
                "LoadBalancer" => drop(unknown.lbs.insert(key())),
                "IPPool" => drop(unknown.pools.insert(&object.name)),
                "IPAllocation" => unknown.records.extend(address_of_name(&object.name)),
                "Service" | "EndpointSlice" => drop(unknown.owned.insert(key())),
                "VirtualMachineInstance" => drop(unknown.machines.insert(&object.namespace)),
                _ => {}
            }
        }
        let misnamed = snapshot.records.iter().filter(|r| is_misnamed(r));
        unknown
            .records
            .extend(misnamed.filter_map(|record| address_of_name(name_of(record))));
        unknown
    }
}
