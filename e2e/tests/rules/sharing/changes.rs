//! All changes of the objects of a namespace, as a watch shows them.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use anyhow::ensure;
use futures::StreamExt;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::eventually;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

/// The changes so far, in their order: `added`, `modified` or `deleted`, and the object.
pub(super) struct Changes<K> {
    task: JoinHandle<()>,
    all: Arc<Mutex<Vec<(&'static str, K)>>>,
}

impl<K> Changes<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Watches until it is dropped. What exists, at least one object, is `added` first.
    pub(super) async fn watch(api: Api<K>) -> anyhow::Result<Self> {
        let all: Arc<Mutex<Vec<_>>> = Arc::default();
        let seen = Arc::clone(&all);
        let task = tokio::spawn(async move {
            let Ok(stream) = api.watch(&WatchParams::default(), "0").await else {
                return;
            };
            let mut stream = pin!(stream);
            while let Some(Ok(event)) = stream.next().await {
                let change = match event {
                    WatchEvent::Added(object) => ("added", object),
                    WatchEvent::Modified(object) => ("modified", object),
                    WatchEvent::Deleted(object) => ("deleted", object),
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                };
                seen.lock().unwrap().push(change);
            }
        });
        let changes = Self { task, all };
        eventually("what exists is seen", SOON, || async {
            ensure!(!changes.task.is_finished(), "the watch has ended");
            Ok((!changes.all.lock().unwrap().is_empty()).then_some(()))
        })
        .await?;
        Ok(changes)
    }

    /// One value for each change.
    pub(super) fn map<T>(&self, of: impl Fn(&'static str, &K) -> T) -> Vec<T> {
        assert!(!self.task.is_finished(), "the watch has ended");
        let all = self.all.lock().unwrap();
        all.iter().map(|(what, object)| of(what, object)).collect()
    }
}

impl<K> Drop for Changes<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
