//! Replaces kube-vip where no traffic is needed: writes into each Service that its address is announced.

use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinHandle;

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

/// Announces addresses until it is dropped.
pub struct FakeKubeVip(JoinHandle<()>);

impl Drop for FakeKubeVip {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FakeKubeVip {
    /// Starts announcing the operator's Services.
    pub fn start(client: &Client) -> Self {
        Self(tokio::spawn(run(client.clone())))
    }
}

async fn run(client: Client) {
    let all: Api<Service> = Api::all(client.clone());
    let ours = watcher::Config::default().labels(OURS);
    let stream = watch(all, ours).backoff(Steady);
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        if let Ok(Event::Apply(service) | Event::InitApply(service)) = event {
            // On a conflict or deletion there is another event.
            let _ = announce(&client, &service).await;
        }
    }
}

/// Writes the requested address of a Service into its status, unless it is there.
pub async fn announce(client: &Client, service: &Service) -> kube::Result<()> {
    let wanted = service
        .spec
        .as_ref()
        .and_then(|s| s.load_balancer_ip.clone());
    let shown = service
        .status
        .as_ref()
        .and_then(|s| s.load_balancer.as_ref())
        .and_then(|l| l.ingress.as_ref()?.first()?.ip.clone());
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
