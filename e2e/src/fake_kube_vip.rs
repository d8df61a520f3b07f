//! Replaces kube-vip where no traffic is needed: writes into each Service that its address is announced. Like the real one it
//! follows a changed address or ignores it, depending on the version.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::world::OURS;

/// Retries a watch every half second: with an exponential back-off it would notice the return of the API server too
/// late for a test.
#[derive(Debug)]
pub struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

/// A time during which the address that a Service requests was not announced, although it had announced another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The Service's `namespace/name`. It may have been recreated.
    pub service: String,
    /// From the change of the requested address to the announcement.
    pub length: Duration,
}

/// Announces addresses until it is dropped.
pub struct FakeKubeVip {
    task: JoinHandle<()>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    ignores_changes: AtomicBool,
    announced: Mutex<HashMap<String, Announced>>,
    gaps: Mutex<Vec<Gap>>,
}

/// What it does for the Services of a name.
struct Announced {
    uid: Option<String>,
    /// The address that it announces for that uid.
    address: Option<String>,
    requested: String,
    /// When another address was requested than the one that is announced.
    changed: Option<Instant>,
}

impl Drop for FakeKubeVip {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeKubeVip {
    /// Starts announcing the operator's Services, and follows changed addresses, as kube-vip 1.1.2 does.
    pub fn start(client: &Client) -> Self {
        let state = Arc::<State>::default();
        let task = tokio::spawn(run(client.clone(), Arc::clone(&state)));
        Self { task, state }
    }

    /// From now on ignores a changed address of a Service, as kube-vip 1.2.3 does, or follows it. A Service that is recreated is
    /// announced either way.
    pub fn ignore_changes(&self, ignores: bool) {
        let ignores_changes = &self.state.ignores_changes;
        ignores_changes.store(ignores, Ordering::Relaxed);
    }

    /// The gaps that have ended so far.
    pub fn gaps(&self) -> Vec<Gap> {
        self.state.gaps.lock().clone()
    }
}

impl State {
    /// Whether the address that a Service requests is to be announced now.
    fn is_announced_now(&self, name: &str, service: &Service, requested: &str) -> bool {
        let uid = service.uid();
        let mut all = self.announced.lock();
        let known = all.entry(name.to_owned()).or_insert_with(|| Announced {
            uid: uid.clone(),
            address: None,
            requested: requested.to_owned(),
            changed: None,
        });
        if known.requested != requested {
            requested.clone_into(&mut known.requested);
            known.changed = Some(Instant::now());
        }
        if known.uid != uid {
            known.uid = uid;
            known.address = None;
        }
        let is_change = known.address.as_deref().is_some_and(|a| a != requested);
        !(is_change && self.ignores_changes.load(Ordering::Relaxed))
    }

    /// It announces the address.
    fn announces(&self, name: &str, address: &str) {
        let mut all = self.announced.lock();
        let Some(known) = all.get_mut(name) else {
            return;
        };
        known.address = Some(address.to_owned());
        if let Some(changed) = known.changed.take() {
            self.gaps.lock().push(Gap {
                service: name.to_owned(),
                length: changed.elapsed(),
            });
        }
    }
}

async fn run(client: Client, state: Arc<State>) {
    let all: Api<Service> = Api::all(client.clone());
    let ours = watcher::Config::default().labels(OURS);
    let stream = watch(all, ours).backoff(Steady);
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        let Ok(Event::Apply(service) | Event::InitApply(service)) = event else {
            continue;
        };
        let Some(requested) = requested(&service) else {
            continue;
        };
        let name = format!(
            "{}/{}",
            service.namespace().unwrap_or_default(),
            service.name_any()
        );
        if service.metadata.deletion_timestamp.is_none()
            && state.is_announced_now(&name, &service, requested)
            // On a conflict or deletion there is another event.
            && announce(&client, &service).await.is_ok()
        {
            state.announces(&name, requested);
        }
    }
}

fn requested(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.load_balancer_ip.as_deref()
}

/// Writes the requested address of a Service into its status, unless it is there.
pub async fn announce(client: &Client, service: &Service) -> kube::Result<()> {
    let wanted = requested(service);
    let shown = service
        .status
        .as_ref()
        .and_then(|s| s.load_balancer.as_ref())
        .and_then(|l| l.ingress.as_ref()?.first()?.ip.as_deref());
    if wanted.is_none() || wanted == shown || service.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let patch = json!({"status": {"loadBalancer": {"ingress": [{"ip": wanted}]}}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(uid: &str, address: &str) -> Service {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "a", "uid": uid},
            "spec": {"loadBalancerIP": address},
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_address_is_followed_or_ignored_and_gaps_are_counted() {
        let state = State::default();
        let sees = |uid: &str, address: &str| {
            let seen = state.is_announced_now("n/a", &service(uid, address), address);
            if seen {
                state.announces("n/a", address);
            }
            seen
        };
        assert!(sees("u", "10.0.0.1"));
        assert!(sees("u", "10.0.0.2"));
        assert_eq!(state.gaps.lock().pop().unwrap().length, Duration::ZERO);
        state.ignores_changes.store(true, Ordering::Relaxed);
        assert!(sees("u", "10.0.0.2"));
        assert!(!sees("u", "10.0.0.3"));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(!sees("u", "10.0.0.3"));
        assert!(state.gaps.lock().is_empty());
        assert!(sees("v", "10.0.0.3"));
        let gap = state.gaps.lock().pop().unwrap();
        assert_eq!(gap.length, Duration::from_secs(3));
        assert_eq!(gap.service, "n/a");
    }
}
