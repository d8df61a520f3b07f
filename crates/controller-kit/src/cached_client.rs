//! Writes that are known before the next decision: what a request has answered is taken into the index at once, and a
//! request that met another copy than it was decided from is followed by a live read. So whoever decided it decides again
//! from what the API server holds, and a reconcile only passes the error on.

use std::fmt::Debug;
use std::sync::Arc;

use harvester_lb_object::{Key, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::debug;

use crate::refused_writes::RefusedWrites;
use crate::store::{Change, Store};
use crate::writer::{WriteError, Writer};

/// A kind that is written and of which the index `I` holds the newest copy.
pub trait CachedResource<I>:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + 'static
{
    /// The form in which the index holds it.
    type Cached;

    /// Where the index holds it.
    fn store(index: &I) -> &Store<Self::Cached>;

    /// Where the API server has the object.
    fn api(client: Client, key: &Key) -> Api<Self>;

    /// Takes in what the API server has answered; what is new by that. Enough after our own write, which is no news to
    /// its writer.
    fn upsert(index: &I, key: &Key, object: &Self) -> Option<Change<Self::Cached>>;

    /// Takes in that a live read found nothing. `known` is the version that was known before the read, which is what
    /// its answer can refute.
    fn remove(index: &I, key: &Key, known: Version) {
        if let Some(change) = Self::store(index).forget(key, known) {
            Self::changed(index, key, &change);
        }
    }

    /// A live read has found a change: queues all that it concerns. The watch will not tell of it again.
    fn changed(index: &I, key: &Key, change: &Change<Self::Cached>);
}

/// Told of conflicts, for the metrics.
pub trait ConflictObserver: Send + Sync {
    /// A write of an object of this kind met another copy than it was decided from.
    fn conflict(&self, kind: &str);
}

/// The client of everything that writes, over the index `I`.
pub struct CachedClient<I> {
    index: Arc<I>,
    writer: Writer,
    refused: Arc<RefusedWrites>,
    observer: Arc<dyn ConflictObserver>,
}

impl<I> CachedClient<I> {
    /// Writes with `writer`, tells `index` of the answers, and notes in `refused` what the API server refuses (RUN-1).
    pub fn new(
        index: Arc<I>,
        writer: Writer,
        refused: Arc<RefusedWrites>,
        observer: Arc<dyn ConflictObserver>,
    ) -> Self {
        Self {
            index,
            writer,
            refused,
            observer,
        }
    }

    /// The writer below: for kinds of which the index holds no copy that could be written.
    pub const fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Creates an object.
    pub async fn create<K: CachedResource<I>>(
        &self,
        key: &Key,
        object: &K,
    ) -> Result<K, WriteError> {
        let answer = self.writer.create(&self.api(key), object).await;
        self.after_write(key, answer).await
    }

    /// Merges a patch into the copy with this metadata and no other (IPA-5).
    pub async fn patch<K: CachedResource<I>>(
        &self,
        key: &Key,
        from: &ObjectMeta,
        patch: Value,
    ) -> Result<K, WriteError> {
        let version = from.resource_version.as_deref().unwrap_or_default();
        let answer = self
            .writer
            .patch(&self.api(key), &key.name, version, patch)
            .await;
        self.after_write(key, answer).await
    }

    /// As [`CachedClient::patch`], with the operations of a JSON patch, which name the version themselves.
    pub async fn patch_json<K: CachedResource<I>>(
        &self,
        key: &Key,
        operations: Value,
    ) -> Result<K, WriteError> {
        let answer = self
            .writer
            .patch_json(&self.api(key), &key.name, operations)
            .await;
        self.after_write(key, answer).await
    }

    /// Deletes the copy with this metadata and no other (IPA-5). Fine if it is gone already; what remains of it until its
    /// end is seen in the watch.
    pub async fn delete<K: CachedResource<I>>(
        &self,
        key: &Key,
        from: &ObjectMeta,
    ) -> Result<(), WriteError> {
        let answer = self
            .writer
            .delete(&self.api::<K>(key), &key.name, from)
            .await;
        self.note_refusal(&K::kind(&()), key, answer.as_ref().err());
        match answer {
            Err(error) if error.is_stale() => {
                match self.reread_on_conflict::<K>(key, &error).await? {
                    Some(_) => Err(error),
                    None => Ok(()),
                }
            }
            other => other,
        }
    }

    /// Reads an object live and takes in what is there.
    pub async fn get_live<K: CachedResource<I>>(&self, key: &Key) -> Result<Option<K>, WriteError> {
        let known = K::store(&self.index).version(key);
        let object = self.writer.get(&self.api(key), &key.name).await?;
        match &object {
            Some(object) => {
                if let Some(change) = K::upsert(&self.index, key, object) {
                    K::changed(&self.index, key, &change);
                }
            }
            None => K::remove(&self.index, key, known),
        }
        Ok(object)
    }

    /// RUN-1: a refusal is named until the object can be written, or is another by now.
    pub fn note_refusal(&self, kind: &str, key: &Key, error: Option<&WriteError>) {
        match error {
            Some(WriteError::Refused(_)) => self.refused.refused(kind, key),
            None => self.refused.written(kind, key),
            Some(error) if error.is_stale() => self.refused.written(kind, key),
            Some(_) => {}
        }
    }

    fn api<K: CachedResource<I>>(&self, key: &Key) -> Api<K> {
        K::api(self.writer.client(), key)
    }

    async fn after_write<K: CachedResource<I>>(
        &self,
        key: &Key,
        answer: Result<K, WriteError>,
    ) -> Result<K, WriteError> {
        self.note_refusal(&K::kind(&()), key, answer.as_ref().err());
        match &answer {
            Ok(object) => {
                K::upsert(&self.index, key, object);
            }
            Err(error) if error.is_stale() => {
                // What cannot be read cannot be learned; the answer stays what it is.
                if let Err(unread) = self.reread_on_conflict::<K>(key, error).await {
                    debug!(object = %key, error = %unread, "live read failed");
                }
            }
            Err(_) => {}
        }
        answer
    }

    async fn reread_on_conflict<K: CachedResource<I>>(
        &self,
        key: &Key,
        error: &WriteError,
    ) -> Result<Option<K>, WriteError> {
        let kind = K::kind(&());
        debug!(%kind, object = %key, %error, "conflict, reading it live");
        self.observer.conflict(&kind);
        self.get_live(key).await
    }
}
