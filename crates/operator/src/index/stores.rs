//! The newest known copies of objects, a store for each kind that is watched.

use std::sync::Arc;

use harvester_lb_controller_kit::store::Store;
use harvester_lb_core::cached::{Allocation, CachedService, Lb, NodeAddresses, Pool, Vm, Vmi};
use harvester_lb_core::unsupported;
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// The stores, one for each kind that is watched. Clones share them.
#[derive(Clone, Default)]
pub struct Stores {
    /// Load balancers.
    pub lbs: Arc<Store<Lb>>,
    /// Pools.
    pub pools: Arc<Store<Pool>>,
    /// Records.
    pub allocations: Arc<Store<Allocation>>,
    /// Services, everybody's: a name conflict has to be seen, and its end too.
    pub services: Arc<Store<CachedService>>,
    /// EndpointSlices with our label.
    pub slices: Arc<Store<EndpointSlice>>,
    /// Running virtual machines.
    pub vmis: Arc<Store<Vmi>>,
    /// Virtual machines.
    pub vms: Arc<Store<Vm>>,
    /// Nodes; their addresses are all that is kept of them (BE-8).
    pub nodes: Arc<Store<NodeAddresses>>,
}

impl Stores {
    /// All that is known of what is not this version's to touch (IPA-9).
    pub fn unsupported(&self) -> unsupported::Index {
        let mut index = unsupported::Index::default();
        self.lbs.for_each(|key, lb| {
            index.set_lb(key, Some(lb));
        });
        self.services.for_each(|key, service| {
            index.set_service(key, Some(service));
        });
        self.allocations.for_each(|key, _| {
            index.set_record(&key.name, true);
        });
        index
    }

    /// The kinds that have not been listed yet.
    pub fn unsynced(&self) -> Vec<&'static str> {
        [
            ("loadbalancers", self.lbs.is_synced()),
            ("ippools", self.pools.is_synced()),
            ("ipallocations", self.allocations.is_synced()),
            ("services", self.services.is_synced()),
            ("endpointslices", self.slices.is_synced()),
            ("virtualmachineinstances", self.vmis.is_synced()),
            ("virtualmachines", self.vms.is_synced()),
            ("nodes", self.nodes.is_synced()),
        ]
        .into_iter()
        .filter_map(|(kind, synced)| (!synced).then_some(kind))
        .collect()
    }
}
