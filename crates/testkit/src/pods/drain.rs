//! Owns what an administrator does to a node: cordon, drain, uncordon.

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client, ResourceExt};
use tokio::time::{sleep, timeout};

/// Pause before an eviction that a PodDisruptionBudget forbids is tried again; with kubectl 5 s.
const RETRY: Duration = Duration::from_millis(200);

/// Keeps new Pods from a node, or lets them come again.
pub(crate) async fn cordon(client: &Client, node: &str, on: bool) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    if on {
        nodes.cordon(node).await?;
    } else {
        nodes.uncordon(node).await?;
    }
    Ok(())
}

/// Cordons a node and evicts its Pods, but those of DaemonSets; returns when they are gone.
pub(crate) async fn drain(client: &Client, node: &str, limit: Duration) -> anyhow::Result<()> {
    cordon(client, node, true).await?;
    let drained = timeout(limit, async {
        while evict_all(client, node).await? > 0 {
            sleep(RETRY).await;
        }
        Ok(())
    });
    drained
        .await
        .with_context(|| format!("{node} is not drained within {limit:?}"))?
}

/// Asks for the eviction of all; the number of Pods that are still there.
async fn evict_all(client: &Client, node: &str) -> anyhow::Result<usize> {
    let all: Api<Pod> = Api::all(client.clone());
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let mut left = 0;
    for pod in all.list(&on_node).await? {
        let owner = pod
            .owner_references()
            .iter()
            .find(|o| o.controller == Some(true));
        if owner.is_some_and(|owner| owner.kind == "DaemonSet") {
            continue;
        }
        left += 1;
        if pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        evict(
            client,
            &pod.namespace().unwrap_or_default(),
            &pod.name_any(),
        )
        .await?;
    }
    Ok(left)
}

/// Asks for the eviction of a Pod; false if a PodDisruptionBudget forbids it now.
pub(crate) async fn evict(client: &Client, namespace: &str, name: &str) -> anyhow::Result<bool> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods.evict(name, &EvictParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(false),
        // It is gone.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        Err(error) => bail!("eviction of {name}: {error}"),
    }
}
