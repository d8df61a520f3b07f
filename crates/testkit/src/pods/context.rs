//! Owns what the tasks of one Pod share: the object as last seen, its state, and where it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::time::timeout;

use super::host::{Host, Machine, PodKey};
use super::state::PodState;

/// A Pod as the API server last showed it.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Present(Arc<Pod>),
    /// There is no such object any more.
    Gone,
}

/// Shared by the tasks of one Pod.
pub(crate) struct PodContext {
    pub(crate) host: Arc<Host>,
    pub(crate) machine: Arc<Machine>,
    /// As it was when its task began; its spec does not change.
    pub(crate) pod: Arc<Pod>,
    pub(crate) spec: PodSpec,
    pub(crate) uid: String,
    pub(crate) key: PodKey,
    /// A folder of this Pod.
    pub(crate) scratch: PathBuf,
    pub(crate) seen: watch::Receiver<Seen>,
    pub(crate) state: watch::Sender<PodState>,
}

impl PodContext {
    /// Its API.
    pub(crate) fn api(&self) -> Api<Pod> {
        Api::namespaced(self.host.client.clone(), &self.key.0)
    }

    /// The object as last seen; `None` once it is gone.
    pub(crate) fn current(&self) -> Option<Arc<Pod>> {
        match &*self.seen.borrow() {
            Seen::Present(pod) => Some(Arc::clone(pod)),
            Seen::Gone => None,
        }
    }

    /// Waits until the Pod is to end; the time that its containers have for it.
    pub(crate) async fn end_asked(&self) -> Duration {
        let mut seen = self.seen.clone();
        let asked = seen.wait_for(|seen| match seen {
            Seen::Present(pod) => pod.metadata.deletion_timestamp.is_some(),
            Seen::Gone => true,
        });
        let seconds = match asked.await.as_deref() {
            Ok(Seen::Present(pod)) => pod.metadata.deletion_grace_period_seconds,
            // Deleted by force, or the runner ends.
            _ => None,
        };
        // As a kubelet: at least one second.
        Duration::from_secs(
            seconds
                .and_then(|s| u64::try_from(s).ok())
                .unwrap_or(1)
                .max(1),
        )
    }

    /// Waits for a while; true if the Pod is to end.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        timeout(time, self.end_asked()).await.is_ok()
    }

    /// Waits until the object is gone.
    pub(crate) async fn gone(&self) {
        let mut seen = self.seen.clone();
        // An error means that the runner ends.
        let _ = seen.wait_for(|seen| matches!(seen, Seen::Gone)).await;
    }

    /// Name of its host, as its programs see it.
    pub(crate) fn host_name(&self) -> String {
        if self.spec.host_network == Some(true) {
            return self.machine.name.clone();
        }
        let name = self
            .spec
            .hostname
            .clone()
            .unwrap_or_else(|| self.pod.name_any());
        // Longest host name of Linux, less its end.
        name.chars().take(63).collect()
    }
}
