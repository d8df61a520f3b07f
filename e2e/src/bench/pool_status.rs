//! The status of a pool as the operator writes it, replayed: all counters and both maps, a given number of writes for a
//! given number of changed IPAllocations.

use std::collections::BTreeMap;
use std::sync::Arc;

use harvester_lb_api::{IPPool, keys, projection};
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex as Plain;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// See the module.
pub(crate) struct PoolStatus {
    client: Client,
    name: String,
    total: i64,
    maps: Plain<Maps>,
    /// The resource version to overwrite; one write at a time.
    version: Mutex<String>,
    /// Writes in flight.
    running: Plain<JoinSet<anyhow::Result<()>>>,
}

#[derive(Clone, Debug, Default)]
struct Maps {
    allocated: BTreeMap<String, String>,
    history: BTreeMap<String, String>,
    last: String,
    /// IPAllocations that changed since the last [`PoolStatus::expect`].
    changed: usize,
    /// Expected number of changes, and of writes for them.
    expected: usize,
    writes: usize,
}

impl PoolStatus {
    /// For a pool that was just created; writes its first status.
    pub(crate) async fn first(client: Client, name: &str, total: i64) -> anyhow::Result<Arc<Self>> {
        let pool = Api::<IPPool>::all(client.clone()).get(name).await?;
        let status = Arc::new(Self {
            client,
            name: name.to_owned(),
            total,
            maps: Plain::default(),
            version: Mutex::new(pool.resource_version().unwrap_or_default()),
            running: Plain::default(),
        });
        status.write().await?;
        Ok(status)
    }

    /// Announces that `records` IPAllocations will change, with `writes` writes of the status meanwhile: the last one
    /// by [`PoolStatus::last`], the others evenly spread.
    pub(crate) fn expect(&self, records: usize, writes: usize) {
        let mut maps = self.maps.lock();
        (maps.changed, maps.expected, maps.writes) = (0, records, writes.max(1));
    }

    /// An address was allocated.
    pub(crate) fn bound(self: &Arc<Self>, address: &str, id: &str) {
        self.changed(|maps| {
            maps.history.remove(address);
            maps.allocated.insert(address.to_owned(), id.to_owned());
            address.clone_into(&mut maps.last);
        });
    }

    /// An address was released.
    pub(crate) fn released(self: &Arc<Self>, address: &str) {
        self.changed(|maps| {
            if let Some((address, id)) = maps.allocated.remove_entry(address) {
                maps.history.insert(address, id);
            }
        });
    }

    fn changed(self: &Arc<Self>, change: impl FnOnce(&mut Maps)) {
        let due = {
            let mut maps = self.maps.lock();
            change(&mut maps);
            let before = maps.changed * maps.writes / maps.expected.max(1);
            maps.changed += 1;
            let now = maps.changed * maps.writes / maps.expected.max(1);
            now > before && now < maps.writes
        };
        if due {
            let this = Arc::clone(self);
            self.running.lock().spawn(async move { this.write().await });
        }
    }

    /// The last of the expected writes, after all others.
    pub(crate) async fn last(&self) -> anyhow::Result<()> {
        let mut running = std::mem::take(&mut *self.running.lock());
        while let Some(done) = running.join_next().await {
            done??;
        }
        self.write().await
    }

    async fn write(&self) -> anyhow::Result<()> {
        let mut version = self.version.lock().await;
        let maps = self.maps.lock().clone();
        let held = i64::try_from(maps.allocated.len())?;
        let digest = projection::digest(Some(&maps.allocated), Some(&maps.history));
        let patch = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": *version},
            {"op": "add", "path": "/status", "value": {
                "total": self.total,
                "available": self.total - held,
                "lastAllocated": maps.last,
                "allocated": maps.allocated,
                "allocatedHistory": maps.history,
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                    "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            }},
            {"op": "add", "path": "/metadata/annotations", "value": {keys::ANNOTATION_PROJECTION: digest}},
        ]);
        let request =
            http::Request::patch(format!("{}/{}", IPPool::url_path(&(), None), self.name))
                .header(http::header::CONTENT_TYPE, "application/json-patch+json")
                .body(serde_json::to_vec(&patch)?)?;
        let written: IPPool = self.client.request(request).await?;
        *version = written.resource_version().unwrap_or_default();
        Ok(())
    }
}
