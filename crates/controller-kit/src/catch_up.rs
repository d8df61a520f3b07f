//! Brings the store of a kind up to the present without waiting for its watch. Owns which objects are read live for that.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};

use crate::cached_client::{CachedClient, CachedResource};
use crate::writer::WriteError;

/// Concurrent live reads.
const READS_AT_A_TIME: usize = 16;

impl<I> CachedClient<I> {
    /// Lists the names and versions of all objects of a kind as they are now, and reads live those that the store lacks, has in another
    /// version, or has although they are gone. Afterwards the store is at least as new as this call.
    ///
    /// Of the kinds whose watch selects objects by their labels, the same are listed: [`CachedResource::SELECTOR`].
    ///
    /// An object that cannot be decoded is left to the watch: the answer to a live read cannot be decoded either.
    ///
    /// # Errors
    /// Those of the requests. What was read until then is in the store.
    pub async fn catch_up<K: CachedResource<I>>(&self) -> Result<(), WriteError> {
        let store = K::store(self.index());
        let mut unlisted = BTreeSet::new();
        store.for_each(|key, _| {
            unlisted.insert(key.clone());
        });
        let mut differing = Vec::new();
        let mut next = None;
        loop {
            let page = self
                .writer()
                .list_versions::<K>(K::SELECTOR, next.as_deref());
            let page = page.await?;
            for (key, version) in page.objects {
                unlisted.remove(&key);
                if store.version(&key) != version {
                    differing.push(key);
                }
            }
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        differing.extend(unlisted);
        let reads = stream::iter(differing).map(|key| async move {
            match self.get_live::<K>(&key).await {
                Ok(_) | Err(WriteError::Undecodable(_)) => Ok(()),
                Err(other) => Err(other),
            }
        });
        reads
            .buffer_unordered(READS_AT_A_TIME)
            .try_collect::<()>()
            .await
    }
}
