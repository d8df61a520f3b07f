//! The kinds that the operator writes, as resources of the cached client.

use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, keys};
use harvester_lb_controller_kit::Stamp;
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, Allocation, CachedService, Lb, Pool};
use harvester_lb_object::{Key, Version};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};

use crate::index::Index;
use crate::index::leader_ops::NotLeader;

/// Only the leader may write.
impl From<NotLeader> for WriteError {
    fn from(_: NotLeader) -> Self {
        Self::Fenced
    }
}

impl CachedResource<Index> for LoadBalancer {
    type Cached = Lb;

    fn store(index: &Index) -> &Store<Lb> {
        &index.stores.lbs
    }

    fn api(client: Client, key: &Key) -> Api<Self> {
        Api::namespaced(client, &key.namespace)
    }

    fn upsert(index: &Index, key: &Key, object: &Self) -> Option<Change<Lb>> {
        let stamp = Stamp::of(&object.metadata);
        let change = Self::store(index).written(key, stamp, Lb::valid(object.clone()))?;
        index.lb_updated(key, &change);
        Some(change)
    }

    fn changed(index: &Index, key: &Key, change: &Change<Lb>) {
        index.lb_changed(key, change);
    }
}

impl CachedResource<Index> for IPPool {
    type Cached = Pool;

    fn store(index: &Index) -> &Store<Pool> {
        &index.stores.pools
    }

    fn api(client: Client, _: &Key) -> Api<Self> {
        Api::all(client)
    }

    fn upsert(index: &Index, key: &Key, object: &Self) -> Option<Change<Pool>> {
        let stamp = Stamp::of(&object.metadata);
        Self::store(index).written(key, stamp, Pool::valid(object.clone()))
    }

    fn changed(index: &Index, key: &Key, change: &Change<Pool>) {
        index.pool_changed(key, change);
    }
}

impl CachedResource<Index> for IPAllocation {
    type Cached = Allocation;

    fn store(index: &Index) -> &Store<Allocation> {
        &index.stores.allocations
    }

    fn api(client: Client, _: &Key) -> Api<Self> {
        Api::all(client)
    }

    /// Updates the ledger even if the store has the object already: the ledger needs the outcome before the next decision, and it
    /// compares versions itself. What the store does not take since it is gone, the ledger must not have either (IPA-7).
    fn upsert(index: &Index, key: &Key, object: &Self) -> Option<Change<Allocation>> {
        let stamp = Stamp::of(&object.metadata);
        let store = Self::store(index);
        let change = store.written(key, stamp, Allocation::decoded(object));
        match &change {
            Some(Change::Applied { new, .. }) => index.observe_record(&key.name, new),
            _ if store.is_gone(key, stamp) => {}
            _ => index.observe_record(&key.name, &Allocation::decoded(object)),
        }
        let change = change?;
        index.shared_record_updated(&change);
        if let Change::Applied { old: None, .. } = &change {
            index.record_created_or_deleted(key);
        }
        Some(change)
    }

    /// Queues the owner: a live read of an IPAllocation may be by another load balancer.
    fn changed(index: &Index, key: &Key, change: &Change<Allocation>) {
        index.allocation_changed(key, change);
    }

    fn remove(index: &Index, key: &Key, known: Version) {
        let gone = Self::store(index).absent(key, known);
        index.forget_record(&key.name, known);
        if let Some(change) = gone {
            index.record_gone(key, &change);
        }
    }
}

impl CachedResource<Index> for Service {
    type Cached = CachedService;

    fn store(index: &Index) -> &Store<CachedService> {
        &index.stores.services
    }

    fn api(client: Client, key: &Key) -> Api<Self> {
        Api::namespaced(client, &key.namespace)
    }

    /// Updates the ledger at once: it needs the addresses of the Service before the next decision.
    fn upsert(index: &Index, key: &Key, object: &Self) -> Option<Change<CachedService>> {
        let stamp = Stamp::of(&object.metadata);
        let object = cached::service(Ok(object.clone()))?;
        let change = Self::store(index).written(key, stamp, object)?;
        index.service_updated(key);
        index.queue_parties_of_service(key, &change);
        Some(change)
    }

    fn changed(index: &Index, key: &Key, change: &Change<CachedService>) {
        match change {
            // `upsert` has updated the addresses.
            Change::Applied { .. } => index.queue_lbs_of_service(key, change),
            Change::Deleted { .. } => index.service_changed(key, change),
        }
    }
}

impl CachedResource<Index> for EndpointSlice {
    type Cached = Self;

    const SELECTOR: Option<&'static str> = Some(keys::SELECTOR_SERVICELB);

    fn store(index: &Index) -> &Store<Self> {
        &index.stores.slices
    }

    fn api(client: Client, key: &Key) -> Api<Self> {
        Api::namespaced(client, &key.namespace)
    }

    /// Ignores a slice without our label: the watch selects by that label and would not report its deletion.
    fn upsert(index: &Index, key: &Key, object: &Self) -> Option<Change<Self>> {
        if !cached::is_labelled(&object.metadata) {
            return None;
        }
        let stamp = Stamp::of(&object.metadata);
        let object = cached::slice(Ok(object.clone()))?;
        let change = Self::store(index).written(key, stamp, object)?;
        index.slice_updated(key);
        Some(change)
    }

    fn changed(index: &Index, key: &Key, change: &Change<Self>) {
        index.slice_changed(key, change);
    }
}

#[cfg(test)]
mod tests;
