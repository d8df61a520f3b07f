//! The stores of cached objects, one for each watched kind.

use std::sync::Arc;

use harvester_lb_controller_kit::store::Store;
use harvester_lb_core::cached::{Allocation, CachedService, Lb, NodeAddresses, Pool, Vm, Vmi};
use harvester_lb_core::unsupported::Unsupported;
use harvester_lb_core::{sharing, unsupported};
use harvester_lb_object::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The stores, one for each watched kind. Clones share them.
#[derive(Clone, Default)]
pub struct Stores {
    /// LoadBalancers.
    pub lbs: Arc<Store<Lb>>,
    /// IPPools.
    pub pools: Arc<Store<Pool>>,
    /// IPAllocations.
    pub allocations: Arc<Store<Allocation>>,
    /// All Services, because name conflicts (SVC-1) and refused backend addresses (BE-8) depend on foreign ones too.
    pub services: Arc<Store<CachedService>>,
    /// EndpointSlices with our label.
    pub slices: Arc<Store<EndpointSlice>>,
    /// VirtualMachineInstances.
    pub vmis: Arc<Store<Vmi>>,
    /// VirtualMachines.
    pub vms: Arc<Store<Vm>>,
    /// Nodes, as their addresses alone (BE-8).
    pub nodes: Arc<Store<NodeAddresses>>,
}

impl Stores {
    /// Why this version leaves a load balancer, existing or just deleted, alone (IPA-9); `None` if it does not.
    pub fn unsupported(&self, meta: &ObjectMeta) -> Option<Unsupported> {
        let record = Key::new("", unsupported::record_of(meta));
        unsupported::of_lb(meta, self.allocations.get(&record).as_deref())
    }

    /// Builds the index of load balancers that share addresses (SHR-3).
    pub fn sharing(&self) -> sharing::index::Index {
        let mut index = sharing::index::Index::default();
        self.lbs.for_each(|key, lb| {
            index.set_lb(key, Some(lb));
        });
        self.services.for_each(|key, service| {
            index.set_service(key, Some(service));
        });
        self.slices.for_each(|key, slice| {
            index.set_slice(key, Some(slice));
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
