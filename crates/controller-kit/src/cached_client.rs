//! Writes that the cache knows before the next decision: the answer to a write goes into the index at once, and a
//! conflict is followed by a live read. So the caller decides again from what the API server holds, and a reconcile
//! only has to return the error.

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

/// A kind that is written and whose newest known copy is cached in the index `I`.
pub trait CachedResource<I>:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + 'static
{
    /// The type in which the index caches it.
    type Cached;

    /// The labels by which the watch selects objects of the kind; `None`: it has all.
    const SELECTOR: Option<&'static str> = None;

    /// The index's store of the kind.
    fn store(index: &I) -> &Store<Self::Cached>;

    /// The API of the object's namespace, or of the cluster scope.
    fn api(client: Client, key: &Key) -> Api<Self>;

    /// Stores an object that the API server returned. Returns the change, if it is new to the index. Sufficient after
    /// our own write, which is no news to its writer.
    fn upsert(index: &I, key: &Key, object: &Self) -> Option<Change<Self::Cached>>;

    /// Records that a live read found no object. `known` is the version known before the read; only that copy and older
    /// ones are removed.
    fn remove(index: &I, key: &Key, known: Version) {
        if let Some(change) = Self::store(index).absent(key, known) {
            Self::changed(index, key, &change);
        }
    }

    /// A live read has found a change: enqueues everything that depends on it. The watch will not report it again.
    fn changed(index: &I, key: &Key, change: &Change<Self::Cached>);
}

/// Observes conflicts, for the metrics.
pub trait ConflictObserver: Send + Sync {
    /// A write of an object of this kind met a conflict.
    fn conflict(&self, kind: &str);
}

/// The client for all writes, backed by the index `I`.
pub struct CachedClient<I> {
    index: Arc<I>,
    writer: Writer,
    refused: Arc<RefusedWrites>,
    observer: Arc<dyn ConflictObserver>,
}

impl<I> CachedClient<I> {
    /// Writes with `writer`, stores the answers in `index`, and records refusals in `refused` (RUN-1).
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

    /// The index that has the stores.
    pub(crate) fn index(&self) -> &I {
        &self.index
    }

    /// The underlying writer: for kinds that the index does not cache.
    pub const fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Creates an object.
    pub async fn create<K: CachedResource<I>>(
        &self,
        key: &Key,
        object: &K,
    ) -> Result<K, WriteError> {
        let lists = K::store(&self.index).lists();
        let answer = self.writer.create(&self.api(key), object).await;
        self.after_write(key, lists, answer).await
    }

    /// Applies a merge patch to exactly the copy with this metadata (IPA-5).
    pub async fn patch<K: CachedResource<I>>(
        &self,
        key: &Key,
        from: &ObjectMeta,
        patch: Value,
    ) -> Result<K, WriteError> {
        let lists = K::store(&self.index).lists();
        let version = from.resource_version.as_deref().unwrap_or_default();
        let answer = self
            .writer
            .patch(&self.api(key), &key.name, version, patch)
            .await;
        self.after_write(key, lists, answer).await
    }

    /// As [`CachedClient::patch`], with the operations of a JSON patch, which name the resource version themselves.
    pub async fn patch_json<K: CachedResource<I>>(
        &self,
        key: &Key,
        operations: Value,
    ) -> Result<K, WriteError> {
        let lists = K::store(&self.index).lists();
        let answer = self
            .writer
            .patch_json(&self.api(key), &key.name, operations)
            .await;
        self.after_write(key, lists, answer).await
    }

    /// Deletes exactly the copy with this metadata (IPA-5). Succeeds if it is gone already. Returns whether it is gone; if finalizers
    /// remain, the watch reports the end of the object.
    pub async fn delete<K: CachedResource<I>>(
        &self,
        key: &Key,
        from: &ObjectMeta,
    ) -> Result<bool, WriteError> {
        let answer = self
            .writer
            .delete(&self.api::<K>(key), &key.name, from)
            .await;
        self.note_refusal(&K::kind(&()), key, answer.as_ref().err());
        match answer {
            Err(error) if error.is_stale() => {
                match self.reread_on_conflict::<K>(key, &error).await? {
                    Some(_) => Err(error),
                    None => Ok(true),
                }
            }
            other => other,
        }
    }

    /// Live read: gets an object from the API server and stores the result.
    pub async fn get_live<K: CachedResource<I>>(&self, key: &Key) -> Result<Option<K>, WriteError> {
        let store = K::store(&self.index);
        let (known, object) = loop {
            let (lists, known) = (store.lists(), store.version(key));
            let object = self.writer.get(&self.api(key), &key.name).await?;
            // A list that was completed meanwhile may be newer than the answer, see `Store::lists`.
            if store.lists() == lists {
                break (known, object);
            }
        };
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

    /// RUN-1: a refusal is reported until the object can be written or has been replaced.
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

    /// Stores the result of a write. `lists`: the number of complete lists when it was sent.
    async fn after_write<K: CachedResource<I>>(
        &self,
        key: &Key,
        lists: u64,
        answer: Result<K, WriteError>,
    ) -> Result<K, WriteError> {
        self.note_refusal(&K::kind(&()), key, answer.as_ref().err());
        match &answer {
            Ok(_) if K::store(&self.index).lists() != lists => {
                // The list may be newer than the answer, and lack the object because it was deleted since. Then no watch reports
                // the deletion, and the caller is the only one who can learn of it.
                let kind = K::kind(&());
                let error = match self.get_live::<K>(key).await {
                    Ok(Some(_)) => return answer,
                    Ok(None) => {
                        let why = format!("{kind} {key} was deleted just after it was written");
                        WriteError::Conflict(why)
                    }
                    Err(WriteError::Fenced) => WriteError::Fenced,
                    // As if the write had not been answered: what it has led to is not known.
                    Err(unread) => WriteError::Unavailable(format!(
                        "{kind} {key} was written, and cannot be read: {unread}"
                    )),
                };
                return Err(error);
            }
            Ok(object) => {
                K::upsert(&self.index, key, object);
            }
            Err(error) if error.is_stale() => {
                // If the live read fails there is nothing to learn; the conflict is still what the caller gets.
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
        debug!(%kind, object = %key, %error, "conflict, reading the object live");
        self.observer.conflict(&kind);
        self.get_live(key).await
    }
}
