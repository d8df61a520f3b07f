//! The kinds that the DHCP process reads live or writes, as resources of the cached client.

use harvester_lb_api::{IPAllocation, LoadBalancer};
use harvester_lb_controller_kit::Stamp;
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_core::dhcp::claim::{LbView, ServiceView};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};

use crate::dhcp::index::{Index, RecordView};

impl CachedResource<Index> for LoadBalancer {
    type Cached = LbView;

    fn store(index: &Index) -> &Store<LbView> {
        &index.stores.lbs
    }

    fn api(client: Client, key: &Key) -> Api<Self> {
        Api::namespaced(client, &key.namespace)
    }

    fn upsert(index: &Index, key: &Key, object: &Self) -> Option<Change<LbView>> {
        let stamp = Stamp::of(&object.metadata);
        Self::store(index).written(key, stamp, LbView::of(object))
    }

    fn changed(index: &Index, key: &Key, change: &Change<LbView>) {
        index.lb_changed(key, change);
    }
}

impl CachedResource<Index> for Service {
    type Cached = ServiceView;

    fn store(index: &Index) -> &Store<ServiceView> {
        &index.stores.services
    }

    fn api(client: Client, key: &Key) -> Api<Self> {
        Api::namespaced(client, &key.namespace)
    }

    /// A Service that is none of ours counts as none.
    fn upsert(index: &Index, key: &Key, object: &Self) -> Option<Change<ServiceView>> {
        let stamp = Stamp::of(&object.metadata);
        match ServiceView::of(object) {
            Some(view) => Self::store(index).written(key, stamp, view),
            None => Self::store(index).forget(key, stamp.version),
        }
    }

    fn changed(index: &Index, key: &Key, change: &Change<ServiceView>) {
        index.service_changed(key, change);
    }
}

impl CachedResource<Index> for IPAllocation {
    type Cached = RecordView;

    fn store(index: &Index) -> &Store<RecordView> {
        &index.stores.records
    }

    fn api(client: Client, _: &Key) -> Api<Self> {
        Api::all(client)
    }

    fn upsert(index: &Index, key: &Key, object: &Self) -> Option<Change<RecordView>> {
        let stamp = Stamp::of(&object.metadata);
        let change = match RecordView::decoded(object) {
            Some(view) => Self::store(index).written(key, stamp, view),
            None => Self::store(index).forget(key, stamp.version),
        }?;
        index.record_written(key, &change);
        Some(change)
    }

    fn changed(index: &Index, key: &Key, change: &Change<RecordView>) {
        index.record_changed(key, change);
    }
}
