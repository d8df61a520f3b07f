//! The Events that the operator writes while it creates: by a bare client, one at a time beside the other requests, as the
//! operator's task does it.

use anyhow::Context;
use harvester_lb_api::LoadBalancer;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::driver::NAMESPACE;

/// The Events that an operator has written between two moments.
pub(crate) fn written(now: &MetricsSnapshot, before: &MetricsSnapshot) -> u64 {
    let writes = now.writes_since(before).into_iter();
    let events = writes.filter(|(what, _)| what.ends_with(" events"));
    events.map(|(_, count)| count).sum()
}

/// Writes Events.
pub(crate) struct EventWriter {
    sender: UnboundedSender<(LoadBalancer, String)>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl EventWriter {
    /// Writes this many at most: the operator drops what exceeds its queue.
    pub(crate) fn start(client: Client, most: u64) -> Self {
        let (sender, receiver) = unbounded_channel();
        Self {
            sender,
            task: tokio::spawn(write(client, receiver, most)),
        }
    }

    /// Where the load balancers go that were given this address.
    pub(crate) fn sender(&self) -> UnboundedSender<(LoadBalancer, String)> {
        self.sender.clone()
    }

    /// Waits until all are written.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        drop(self.sender);
        self.task.await.context("the writer of Events has ended")?
    }
}

async fn write(
    client: Client,
    mut given: UnboundedReceiver<(LoadBalancer, String)>,
    most: u64,
) -> anyhow::Result<()> {
    let api: Api<Event> = Api::namespaced(client, NAMESPACE);
    let mut left = most;
    while let Some((lb, ip)) = given.recv().await {
        if left == 0 {
            continue;
        }
        left -= 1;
        api.create(&PostParams::default(), &event(&lb, &ip)?)
            .await?;
    }
    Ok(())
}

/// The Event of an address that was given.
fn event(lb: &LoadBalancer, ip: &str) -> anyhow::Result<Event> {
    let meta = &lb.metadata;
    let (name, uid) = (meta.name.as_deref(), meta.uid.as_deref());
    let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
    let regarding = lb.object_ref(&());
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": NAMESPACE, "name": format!("{name}.{uid}")},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "harvester-load-balancer", "reportingInstance": "bare-client",
        "action": "Allocate", "reason": "AddressAllocated", "type": "Normal",
        "regarding": regarding, "note": format!("address {ip} of IPPool bench"),
    }))?)
}
