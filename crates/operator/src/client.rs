//! The kinds that the operator writes and of which the newest copy is kept, and the requests that keep it true.
//!
//! What a request has answered is known before the next decision, and one that met another copy than it was decided
//! from is followed by a live read. So whoever decided it decides again from what the API server holds, and a reconcile
//! only passes the error on.

use std::fmt::Debug;

use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer};
use harvester_lb_controller_kit::Stamp;
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, Allocation, CachedService, Lb, Pool};
use harvester_lb_object::{Key, Version};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::debug;

use crate::context::Hub;
use crate::index::handlers;

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

    /// Takes in what the API server has answered; what is new by that. Enough after our own write, which is no news to
    /// whoever wrote.
    fn take(hub: &Hub, key: &Key, object: &Self) -> Option<Change<Self::Copy>>;

    /// Tells everybody else whom it concerns of a change that a live read has found. The watch will not tell it again.
    fn changed(hub: &Hub, key: &Key, change: &Change<Self::Copy>);

    /// Takes in that a live read found nothing. `known` is the version that was known before the read, which is what
    /// its answer can refute.
    fn absent(hub: &Hub, key: &Key, known: Version) {
        if let Some(change) = Self::store(hub).forget(key, known) {
            Self::changed(hub, key, &change);
        }
    }
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
        let answer = self.writer.delete(&api, &key.name, from).await;
        self.note_refusal(&K::kind(&()), key, answer.as_ref().err());
        match answer {
            Err(error) if error.is_stale() => match self.met_another::<K>(key, &error).await? {
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
            Some(object) => {
                if let Some(change) = K::take(self, key, object) {
                    K::changed(self, key, &change);
                }
            }
            None => K::absent(self, key, known),
        }
        Ok(object)
    }

    async fn settled<K: Kept>(
        &self,
        key: &Key,
        answer: Result<K, WriteError>,
    ) -> Result<K, WriteError> {
        self.note_refusal(&K::kind(&()), key, answer.as_ref().err());
        match &answer {
            Ok(object) => {
                K::take(self, key, object);
            }
            Err(error) if error.is_stale() => {
                // What cannot be read cannot be learned; the answer stays what it is.
                if let Err(unread) = self.met_another::<K>(key, error).await {
                    debug!(object = %key, error = %unread, "it could not be read");
                }
            }
            Err(_) => {}
        }
        answer
    }

    /// Takes in what came of a write (RUN-1): a refusal is named until the object can be written, or is another by now.
    pub fn note_refusal(&self, kind: &str, key: &Key, error: Option<&WriteError>) {
        match error {
            Some(WriteError::Refused(_)) => self.refused_writes.refused(kind, key),
            None => self.refused_writes.written(kind, key),
            Some(error) if error.is_stale() => self.refused_writes.written(kind, key),
            Some(_) => {}
        }
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

    fn take(hub: &Hub, key: &Key, object: &Self) -> Option<Change<Lb>> {
        let stamp = Stamp::of(&object.metadata);
        Self::store(hub).written(key, stamp, Lb::valid(object.clone()))
    }

    fn changed(hub: &Hub, key: &Key, change: &Change<Lb>) {
        handlers::lb_changed(hub, key, change);
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

    fn take(hub: &Hub, key: &Key, object: &Self) -> Option<Change<Pool>> {
        let stamp = Stamp::of(&object.metadata);
        Self::store(hub).written(key, stamp, Pool::valid(object.clone()))
    }

    fn changed(hub: &Hub, key: &Key, change: &Change<Pool>) {
        handlers::pool_changed(hub, key, change);
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
    fn take(hub: &Hub, key: &Key, object: &Self) -> Option<Change<Allocation>> {
        let stamp = Stamp::of(&object.metadata);
        let allocation = Allocation::decoded(object);
        hub.lead(|lead| lead.observe_allocation(&key.name, &allocation));
        let change = Self::store(hub).written(key, stamp, allocation)?;
        if let Change::Applied { old: None, .. } = &change {
            handlers::record_came_or_went(hub, key);
        }
        Some(change)
    }

    /// Whoever reads a record need not be its owner.
    fn changed(hub: &Hub, key: &Key, change: &Change<Allocation>) {
        handlers::allocation_changed(hub, key, change);
    }

    fn absent(hub: &Hub, key: &Key, known: Version) {
        let gone = Self::store(hub).forget(key, known);
        hub.lead(|lead| lead.forget(&key.name, known));
        if gone.is_some() {
            handlers::record_came_or_went(hub, key);
        }
    }
}

impl Kept for Service {
    type Copy = CachedService;

    fn store(hub: &Hub) -> &Store<CachedService> {
        &hub.stores.services
    }

    fn api(hub: &Hub, key: &Key) -> Api<Self> {
        Api::namespaced(hub.writer.client(), &key.namespace)
    }

    /// What it shows must be known before the next decision.
    fn take(hub: &Hub, key: &Key, object: &Self) -> Option<Change<CachedService>> {
        let stamp = Stamp::of(&object.metadata);
        let object = cached::service(Ok(object.clone()))?;
        let change = Self::store(hub).written(key, stamp, object)?;
        handlers::service_is_known(hub, key);
        Some(change)
    }

    fn changed(hub: &Hub, key: &Key, change: &Change<CachedService>) {
        if matches!(change, Change::Deleted { .. }) {
            handlers::service_is_known(hub, key);
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
    fn take(hub: &Hub, key: &Key, object: &Self) -> Option<Change<Self>> {
        if !cached::is_labelled(&object.metadata) {
            return None;
        }
        let stamp = Stamp::of(&object.metadata);
        let object = cached::slice(Ok(object.clone()))?;
        Self::store(hub).written(key, stamp, object)
    }

    fn changed(_: &Hub, _: &Key, _: &Change<Self>) {}
}
