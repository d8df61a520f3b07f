//! The kinds that the operator writes and of which the newest copy is kept, and the requests that keep it true.
//!
//! What a request has answered is known before the next decision, and one that met another copy than it was decided
//! from is followed by a live read. So whoever decided it decides again from what the API server holds, and a reconcile
//! only passes the error on.

use std::fmt::Debug;

use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer};
use harvester_lb_controller_kit::store::Store;
use harvester_lb_controller_kit::watch::Change;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_controller_kit::{Key, Version};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::debug;

use crate::handlers;
use crate::hub::Hub;
use crate::objects::{self, Allocation, Lb, Pool};

/// Whether a request failed because the copy that it was decided from is old.
pub fn is_stale(error: &WriteError) -> bool {
    matches!(
        error,
        WriteError::Conflict(_) | WriteError::AlreadyExists(_) | WriteError::NotFound(_)
    )
}

/// A kind of which the newest copy is kept.
pub trait Kept:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + 'static
{
    /// The form in which it is kept.
    type Copy;

    /// Where its copies are.
    fn store(hub: &Hub) -> &Store<Self::Copy>;

    /// Where its objects are.
    fn api(hub: &Hub, key: &Key) -> Api<Self>;

    /// Takes in the answer to our own write: no news to whoever wrote.
    fn written(hub: &Hub, key: &Key, object: &Self);

    /// Takes in what a live read found, as if the watch had said so.
    fn read(hub: &Hub, key: &Key, object: &Self) {
        Self::written(hub, key, object);
    }

    /// Takes in that a live read found nothing. `known` is the version that was known before the read, which is what
    /// its answer can refute.
    fn absent(hub: &Hub, key: &Key, known: Version);
}

impl Hub {
    /// Makes an object.
    pub async fn create<K: Kept>(&self, key: &Key, object: &K) -> Result<K, WriteError> {
        let answer = self.writer.create(&K::api(self, key), object).await;
        self.settled(key, answer).await
    }

    /// Merges a patch into the copy with this metadata and no other (IPA-5).
    pub async fn patch<K: Kept>(
        &self,
        key: &Key,
        from: &ObjectMeta,
        patch: Value,
    ) -> Result<K, WriteError> {
        let api = K::api(self, key);
        let version = version(from);
        let answer = self.writer.patch(&api, &key.name, version, patch).await;
        self.settled(key, answer).await
    }

    /// As [`Hub::patch`], with the operations of a JSON patch, which name the version themselves.
    pub async fn patch_json<K: Kept>(&self, key: &Key, operations: Value) -> Result<K, WriteError> {
        let api = K::api(self, key);
        let answer = self.writer.patch_json(&api, &key.name, operations).await;
        self.settled(key, answer).await
    }

    /// Deletes the copy with this metadata and no other (IPA-5). Fine if it is gone already; what remains of it until its
    /// end is seen in the watch.
    pub async fn delete<K: Kept>(&self, key: &Key, from: &ObjectMeta) -> Result<(), WriteError> {
        let api = K::api(self, key);
        match self.writer.delete(&api, &key.name, from).await {
            Err(error) if is_stale(&error) => match self.met_another::<K>(key, &error).await? {
                Some(_) => Err(error),
                None => Ok(()),
            },
            other => other,
        }
    }

    /// Reads an object live and takes in what is there.
    pub async fn refresh<K: Kept>(&self, key: &Key) -> Result<Option<K>, WriteError> {
        let known = K::store(self).version(key);
        let object = self.writer.get(&K::api(self, key), &key.name).await?;
        match &object {
            Some(object) => K::read(self, key, object),
            None => K::absent(self, key, known),
        }
        Ok(object)
    }

    async fn settled<K: Kept>(
        &self,
        key: &Key,
        answer: Result<K, WriteError>,
    ) -> Result<K, WriteError> {
        match &answer {
            Ok(object) => K::written(self, key, object),
            Err(error) if is_stale(error) => {
                // What cannot be read cannot be learned; the answer stays what it is.
                if let Err(unread) = self.met_another::<K>(key, error).await {
                    debug!(object = %key, error = %unread, "it could not be read");
                }
            }
            Err(_) => {}
        }
        answer
    }

    async fn met_another<K: Kept>(
        &self,
        key: &Key,
        error: &WriteError,
    ) -> Result<Option<K>, WriteError> {
        let kind = K::kind(&());
        debug!(%kind, object = %key, %error, "reading it again");
        self.metrics
            .write_conflicts
            .with_label_values(&[&*kind])
            .inc();
        self.refresh(key).await
    }
}

/// The resource version of a copy.
pub fn version(meta: &ObjectMeta) -> &str {
    meta.resource_version.as_deref().unwrap_or_default()
}

impl Kept for LoadBalancer {
    type Copy = Lb;

    fn store(hub: &Hub) -> &Store<Lb> {
        &hub.stores.lbs
    }

    fn api(hub: &Hub, key: &Key) -> Api<Self> {
        Api::namespaced(hub.writer.client(), &key.namespace)
    }

    fn written(hub: &Hub, key: &Key, object: &Self) {
        let version = Version::of(&object.metadata);
        hub.stores
            .lbs
            .written(key, version, Lb::valid(object.clone()));
    }

    fn read(hub: &Hub, key: &Key, object: &Self) {
        let version = Version::of(&object.metadata);
        let news = hub
            .stores
            .lbs
            .written(key, version, Lb::valid(object.clone()));
        if let Some(news) = news
            && let Some(new) = hub.stores.lbs.get(key)
        {
            handlers::lb_changed(hub, key, &Change::Applied { old: news.old, new });
        }
    }

    fn absent(hub: &Hub, key: &Key, known: Version) {
        if let Some(old) = hub.stores.lbs.forget(key, known) {
            handlers::lb_changed(hub, key, &Change::Deleted { old, certain: true });
        }
    }
}

impl Kept for IPPool {
    type Copy = Pool;

    fn store(hub: &Hub) -> &Store<Pool> {
        &hub.stores.pools
    }

    fn api(hub: &Hub, _: &Key) -> Api<Self> {
        Api::all(hub.writer.client())
    }

    fn written(hub: &Hub, key: &Key, object: &Self) {
        let version = Version::of(&object.metadata);
        hub.stores
            .pools
            .written(key, version, Pool::valid(object.clone()));
    }

    fn read(hub: &Hub, key: &Key, object: &Self) {
        let version = Version::of(&object.metadata);
        let news = hub
            .stores
            .pools
            .written(key, version, Pool::valid(object.clone()));
        if let Some(news) = news
            && let Some(new) = hub.stores.pools.get(key)
        {
            handlers::pool_changed(hub, key, &Change::Applied { old: news.old, new });
        }
    }

    fn absent(hub: &Hub, key: &Key, known: Version) {
        if let Some(old) = hub.stores.pools.forget(key, known) {
            handlers::pool_changed(hub, key, &Change::Deleted { old, certain: true });
        }
    }
}

impl Kept for IPAllocation {
    type Copy = Allocation;

    fn store(hub: &Hub) -> &Store<Allocation> {
        &hub.stores.allocations
    }

    fn api(hub: &Hub, _: &Key) -> Api<Self> {
        Api::all(hub.writer.client())
    }

    /// The ledger is told in any case: it must know the outcome before the next decision, and it keeps versions apart by
    /// itself.
    fn written(hub: &Hub, key: &Key, object: &Self) {
        let version = Version::of(&object.metadata);
        let allocation = Allocation::decoded(object);
        hub.lead(|lead| lead.observe_allocation(&key.name, &allocation));
        hub.stores.allocations.written(key, version, allocation);
    }

    /// Whoever reads a record need not be its owner, and the watch will not tell again what this has told.
    fn read(hub: &Hub, key: &Key, object: &Self) {
        let version = Version::of(&object.metadata);
        let allocation = Allocation::decoded(object);
        hub.lead(|lead| lead.observe_allocation(&key.name, &allocation));
        let news = hub.stores.allocations.written(key, version, allocation);
        if let Some(news) = news
            && let Some(new) = hub.stores.allocations.get(key)
        {
            handlers::allocation_changed(hub, key, &Change::Applied { old: news.old, new });
        }
    }

    fn absent(hub: &Hub, key: &Key, known: Version) {
        hub.stores.allocations.forget(key, known);
        hub.lead(|lead| lead.forget(&key.name, harvester_lb_ipam::Version(known.0)));
    }
}

impl Kept for Service {
    type Copy = Self;

    fn store(hub: &Hub) -> &Store<Self> {
        &hub.stores.services
    }

    fn api(hub: &Hub, key: &Key) -> Api<Self> {
        Api::namespaced(hub.writer.client(), &key.namespace)
    }

    fn written(hub: &Hub, key: &Key, object: &Self) {
        let version = Version::of(&object.metadata);
        if let Some(object) = objects::service(Ok(object.clone()))
            && hub.stores.services.written(key, version, object).is_some()
        {
            hub.tell_shown(key);
        }
    }

    fn absent(hub: &Hub, key: &Key, known: Version) {
        if hub.stores.services.forget(key, known).is_some() {
            hub.tell_shown(key);
        }
    }
}

impl Kept for EndpointSlice {
    type Copy = Self;

    fn store(hub: &Hub) -> &Store<Self> {
        &hub.stores.slices
    }

    fn api(hub: &Hub, key: &Key) -> Api<Self> {
        Api::namespaced(hub.writer.client(), &key.namespace)
    }

    /// One without our label is not kept, since its end would not be seen.
    fn written(hub: &Hub, key: &Key, object: &Self) {
        let version = Version::of(&object.metadata);
        if objects::is_labelled(&object.metadata)
            && let Some(object) = objects::slice(Ok(object.clone()))
        {
            hub.stores.slices.written(key, version, object);
        }
    }

    fn absent(hub: &Hub, key: &Key, known: Version) {
        hub.stores.slices.forget(key, known);
    }
}
