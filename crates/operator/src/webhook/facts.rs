//! What admission and conversion read of other objects: stores fed by watches, and the indexes of crate core over them.
//! A fact whose list is not complete is not answered (CNV-1).
//!
//! The stores have no LoadBalancers: listing those that are stored as v1alpha1 calls this very webhook. Those of a namespace are read
//! live for a warning that depends on them (SHR-1, SHR-9).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_api::cni::NetworkAttachmentDefinition;
use harvester_lb_api::keys;
use harvester_lb_api::kubevirt::{NetworkedInstance, VirtualMachineInstance};
use harvester_lb_api::meta::{Decoded, annotation};
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_core::admission::{
    self, AddressHolders, AllocatedAddresses, GuestNetworks, Incomplete, Lookup, MutationFacts,
    Neighbours, RemovedClusters, ValidationFacts,
};
use harvester_lb_core::cached::{Allocation, Pool, Vm, Vmi};
use harvester_lb_core::conversion;
use harvester_lb_core::kube_vip_annotations::Interfaces;
use harvester_lb_core::validation::pool_index::PoolIndex;
use harvester_lb_ipam::addr;
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{RwLock, RwLockReadGuard};

/// A VirtualMachineInstance, as both readers need it.
#[derive(Debug)]
pub struct Instance {
    vmi: Vmi,
    networks: NetworkedInstance,
}

impl Instance {
    /// Converts an object from the watch. One whose networks cannot be decoded keeps its address.
    pub fn from_watch(decoded: Decoded<NetworkedInstance>) -> Self {
        let (mut networks, backend) = match decoded {
            Ok(object) => {
                let backend = VirtualMachineInstance {
                    metadata: object.metadata.clone(),
                    status: object.status.clone(),
                    ..VirtualMachineInstance::default()
                };
                (object, Ok(backend))
            }
            Err(mut invalid) => {
                let object = std::mem::take(&mut invalid.object);
                let backend = serde_json::from_value(object);
                let networks = NetworkedInstance {
                    metadata: invalid.metadata.clone(),
                    ..NetworkedInstance::default()
                };
                (networks, backend.map_err(|_| invalid))
            }
        };
        let mut vmi = Vmi::from_watch(backend);
        // Conversion reads the address and the state; the labels are those of `networks`.
        vmi.labels.clear();
        networks.metadata = ObjectMeta {
            labels: networks.metadata.labels.take().map(|mut labels| {
                labels.retain(|key, _| {
                    key == keys::LABEL_GUEST_CLUSTER || key == keys::LABEL_CREATOR
                });
                labels
            }),
            ..ObjectMeta::default()
        };
        networks.status = None;
        Self { vmi, networks }
    }
}

/// The annotation of a Namespace that admission reads (WM-2); "" without one.
pub fn project_id(namespace: &ObjectMeta) -> String {
    let project = annotation(namespace, keys::ANNOTATION_PROJECT_ID);
    project.unwrap_or_default().to_owned()
}

/// The VLAN id of a network (WM-5), see [`admission::vlan_id`].
pub fn vlan_id(decoded: Decoded<NetworkAttachmentDefinition>) -> Result<i64, String> {
    match decoded {
        Ok(network) => admission::vlan_id(&network),
        Err(invalid) => Err(format!("cannot be decoded: {}", invalid.error)),
    }
}

/// The addresses of a Node.
pub fn node_addresses(decoded: Decoded<Node>) -> Option<Vec<IpAddr>> {
    decoded.ok().map(|node| admission::node_addresses(&node))
}

/// The addresses of a Service that is not this operator's, if it has any.
pub fn service_addresses(decoded: Decoded<Service>) -> Option<Vec<IpAddr>> {
    let addresses = admission::foreign_addresses(&decoded.ok()?);
    (!addresses.is_empty()).then_some(addresses)
}

/// The project of a Namespace.
pub fn project(decoded: Decoded<Namespace>) -> String {
    match decoded {
        Ok(namespace) => project_id(&namespace.metadata),
        Err(invalid) => project_id(&invalid.metadata),
    }
}

/// The indexes.
#[derive(Debug, Default)]
pub struct Indexes {
    guest_networks: GuestNetworks,
    removed_clusters: RemovedClusters,
    pools: PoolIndex,
    allocated: AllocatedAddresses,
    nodes: AddressHolders,
    services: AddressHolders,
    conversion: conversion::Index,
}

/// The stores and indexes. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// VirtualMachineInstances.
    pub instances: Arc<Store<Instance>>,
    /// VirtualMachines.
    pub machines: Arc<Store<Vm>>,
    /// IPPools.
    pub pools: Arc<Store<Pool>>,
    /// IPAllocations.
    pub allocations: Arc<Store<Allocation>>,
    /// Projects of Namespaces.
    pub namespaces: Arc<Store<String>>,
    /// VLAN ids of NetworkAttachmentDefinitions.
    pub networks: Arc<Store<Result<i64, String>>>,
    /// Addresses of Nodes.
    pub nodes: Arc<Store<Vec<IpAddr>>>,
    /// Addresses of the Services of others.
    pub services: Arc<Store<Vec<IpAddr>>>,
    indexes: Arc<RwLock<Indexes>>,
    interfaces: Interfaces,
}

/// The value of a change, or that the object is gone.
fn present<V>(change: &Change<V>) -> Option<&Arc<V>> {
    match change {
        Change::Applied { new, .. } => Some(new),
        Change::Deleted { .. } => None,
    }
}

impl Facts {
    /// Empty ones. LoadBalancers may name these interfaces (KVA-2).
    pub fn new(interfaces: Interfaces) -> Self {
        Self {
            interfaces,
            ..Self::default()
        }
    }

    /// What conversion needs and is not listed yet; the webhook is ready without the rest (CNV-1).
    pub fn unsynced_for_conversion(&self) -> Vec<&'static str> {
        [
            ("virtualmachineinstances", self.instances.is_synced()),
            ("ippools", self.pools.is_synced()),
            ("ipallocations", self.allocations.is_synced()),
        ]
        .into_iter()
        .filter_map(|(kind, synced)| (!synced).then_some(kind))
        .collect()
    }

    /// What only some rules need and is not listed yet.
    pub fn unsynced_besides(&self) -> Vec<&'static str> {
        [
            ("virtualmachines", self.machines.is_synced()),
            ("namespaces", self.namespaces.is_synced()),
            ("network-attachment-definitions", self.networks.is_synced()),
            ("nodes", self.nodes.is_synced()),
            ("services", self.services.is_synced()),
        ]
        .into_iter()
        .filter_map(|(kind, synced)| (!synced).then_some(kind))
        .collect()
    }

    /// A VirtualMachineInstance has changed.
    pub fn instance_changed(&self, key: &Key, change: &Change<Instance>) {
        let mut indexes = self.indexes.write();
        let instance = present(change);
        let vmi = instance.map(|instance| &instance.vmi);
        indexes.conversion.set_virtual_machine(key, vmi);
        match instance {
            Some(instance) => indexes.guest_networks.set(key, &instance.networks),
            None => indexes.guest_networks.remove(key),
        }
    }

    /// A VirtualMachine has changed.
    pub fn machine_changed(&self, key: &Key, change: &Change<Vm>) {
        let mut indexes = self.indexes.write();
        match present(change) {
            Some(vm) => indexes.removed_clusters.set(key, vm),
            None => indexes.removed_clusters.remove(key),
        }
    }

    /// An IPPool has changed.
    pub fn pool_changed(&self, key: &Key, change: &Change<Pool>) {
        let mut indexes = self.indexes.write();
        let (name, pool) = (&*key.name, present(change));
        indexes.conversion.set_pool(&name.into(), pool);
        match pool {
            Some(pool) => indexes.allocated.set_pool(name, pool),
            None => indexes.allocated.remove_pool(name),
        }
        match pool.map(|pool| (&pool.meta, &pool.spec)) {
            Some((meta, Ok(spec))) => indexes.pools.set(name, meta, spec),
            Some((_, Err(_))) | None => indexes.pools.remove(name),
        }
    }

    /// An IPAllocation has changed.
    pub fn allocation_changed(&self, key: &Key, change: &Change<Allocation>) {
        let mut indexes = self.indexes.write();
        let (name, allocation) = (&*key.name, present(change));
        match allocation {
            Some(allocation) => indexes.allocated.set_record(name, allocation),
            None => indexes.allocated.remove_record(name),
        }
        if let Some(address) = addr::parse_record_name(name) {
            let allocation = allocation.map(|allocation| &**allocation);
            indexes.conversion.set_allocation(address, allocation);
        }
    }

    /// A Node has changed.
    pub fn node_changed(&self, key: &Key, change: &Change<Vec<IpAddr>>) {
        let mut indexes = self.indexes.write();
        match present(change) {
            Some(addresses) => indexes.nodes.set(&key.name, addresses.to_vec()),
            None => indexes.nodes.remove(&key.name),
        }
    }

    /// A Service has changed.
    pub fn service_changed(&self, key: &Key, change: &Change<Vec<IpAddr>>) {
        let mut indexes = self.indexes.write();
        let name = key.to_string();
        match present(change) {
            Some(addresses) => indexes.services.set(&name, addresses.to_vec()),
            None => indexes.services.remove(&name),
        }
    }

    /// The facts for one decision. They do not change while it is held: not across an await.
    pub fn read<'a>(&'a self, live: &'a Live) -> Snapshot<'a> {
        Snapshot {
            facts: self,
            indexes: self.indexes.read(),
            live,
        }
    }
}

/// The objects that were read live for one request, because the stores lack them or have none of their kind.
#[derive(Debug, Default)]
pub struct Live {
    /// Projects of Namespaces.
    pub namespaces: HashMap<String, Lookup<String>>,
    /// VLAN ids of NetworkAttachmentDefinitions, by namespace and name.
    pub networks: HashMap<(String, String), Lookup<Result<i64, String>>>,
    /// LoadBalancers, by namespace.
    pub neighbours: HashMap<String, Lookup<Neighbours>>,
}

/// The facts for one decision.
pub struct Snapshot<'a> {
    facts: &'a Facts,
    indexes: RwLockReadGuard<'a, Indexes>,
    live: &'a Live,
}

impl Snapshot<'_> {
    /// The facts of a conversion; `None` until all of them are listed (CNV-1).
    pub fn conversion(&self) -> Option<&dyn conversion::Facts> {
        let is_complete = self.facts.unsynced_for_conversion().is_empty();
        is_complete.then_some(&self.indexes.conversion as &dyn conversion::Facts)
    }
}

/// A fact of a list, if that is complete.
fn listed<T>(is_synced: bool, fact: &T) -> Result<&T, Incomplete> {
    if is_synced { Ok(fact) } else { Err(Incomplete) }
}

impl MutationFacts for Snapshot<'_> {
    fn project_id(&self, namespace: &str) -> Lookup<String> {
        if let Some(read) = self.live.namespaces.get(namespace) {
            return read.clone();
        }
        match self.facts.namespaces.get(&Key::new("", namespace)) {
            Some(project) => Lookup::Found((*project).clone()),
            None => Lookup::Unread,
        }
    }

    fn vlan_id(&self, namespace: &str, name: &str) -> Lookup<Result<i64, String>> {
        let id = (namespace.to_owned(), name.to_owned());
        if let Some(read) = self.live.networks.get(&id) {
            return read.clone();
        }
        match self.facts.networks.get(&Key::new(namespace, name)) {
            Some(vlan) => Lookup::Found((*vlan).clone()),
            None => Lookup::Unread,
        }
    }

    fn guest_networks(&self) -> Result<&GuestNetworks, Incomplete> {
        let is_synced = self.facts.instances.is_synced();
        listed(is_synced, &self.indexes.guest_networks)
    }
}

impl ValidationFacts for Snapshot<'_> {
    fn removed_clusters(&self) -> Result<&RemovedClusters, Incomplete> {
        let is_synced = self.facts.machines.is_synced();
        listed(is_synced, &self.indexes.removed_clusters)
    }

    fn pools(&self) -> Result<&PoolIndex, Incomplete> {
        listed(self.facts.pools.is_synced(), &self.indexes.pools)
    }

    fn allocated(&self) -> Result<&AllocatedAddresses, Incomplete> {
        let is_synced = self.facts.allocations.is_synced() && self.facts.pools.is_synced();
        listed(is_synced, &self.indexes.allocated)
    }

    fn nodes(&self) -> Option<&AddressHolders> {
        self.facts.nodes.is_synced().then_some(&self.indexes.nodes)
    }

    fn services(&self) -> Option<&AddressHolders> {
        self.facts
            .services
            .is_synced()
            .then_some(&self.indexes.services)
    }

    fn interfaces(&self) -> &Interfaces {
        &self.facts.interfaces
    }

    fn neighbours(&self, namespace: &str) -> Lookup<&Neighbours> {
        let read = self.live.neighbours.get(namespace);
        read.map_or(Lookup::Unread, Lookup::as_ref)
    }
}

#[cfg(test)]
pub(super) mod tests;
