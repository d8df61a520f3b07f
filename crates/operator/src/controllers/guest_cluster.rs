//! Cleanup of guest clusters (section 11, GC-1): when Rancher removes a guest cluster, its load balancers are deleted.
//!
//! Once a node VM has Rancher's removal annotation, the cluster's load balancers are marked. When such a node is deleted,
//! the load balancers created before are deleted, even if they are seen later (GC-2). The mark survives a restart of the
//! operator: at the next start, marked load balancers of a cluster without nodes are deleted too. VMs get no finalizer.

use harvester_lb_api::{LoadBalancer, WorkloadType, keys};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{Lb, Vm};
use harvester_lb_core::guest_cluster::{self, CleanupAction, Removal};
use harvester_lb_core::time;
use harvester_lb_object::Key;
use serde_json::json;
use tracing::{info, warn};

use crate::context::Context;

/// Marks or deletes the load balancers of a guest cluster that is being removed. A failure for one does not affect the
/// others.
pub async fn reconcile(ctx: &Context, cluster: &Key) -> Result<Requeue, WriteError> {
    let vms = ctx.index.stores.vms.in_namespace(&cluster.namespace);
    let nodes: Vec<&Vm> = vms
        .iter()
        .map(|(_, vm)| &**vm)
        .filter(|vm| vm.from_node_driver && vm.guest_cluster.as_deref() == Some(&*cluster.name))
        .collect();
    let witnessed = ctx.index.guest_cluster_removed_at(cluster)?;
    let removal = Removal::of(&nodes, witnessed);
    let mut failed = None;
    for (key, lb) in ctx.index.stores.lbs.in_namespace(&cluster.namespace) {
        let Lb::Valid(lb) = &*lb else { continue };
        if lb.spec.workload() != WorkloadType::Cluster
            || lb.guest_cluster.as_deref() != Some(&*cluster.name)
            || lb.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let created = time::created(&lb.metadata);
        let outcome = match guest_cluster::cleanup_action(
            removal,
            created,
            guest_cluster::is_marked(&lb.metadata),
        ) {
            CleanupAction::Mark => mark(ctx, &key, lb).await.map(drop),
            CleanupAction::Delete => delete(ctx, &key, lb).await,
            CleanupAction::Keep => Ok(()),
        };
        if let Err(error) = outcome {
            warn!(lb = %key, %error, "guest cluster clean-up failed, will retry");
            failed = Some(error);
        }
    }
    match failed {
        Some(WriteError::Fenced) => Err(WriteError::Fenced),
        Some(_) => Ok(Requeue::Backoff),
        None => Ok(Requeue::AwaitChange),
    }
}

/// Marks a load balancer. `None` if it no longer exists.
async fn mark(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
) -> Result<Option<LoadBalancer>, WriteError> {
    let patch = json!({"metadata": {"annotations": {
        keys::ANNOTATION_GUEST_REMOVED: "true",
        keys::ANNOTATION_GUEST_REMOVED_UID: lb.metadata.uid,
    }}});
    match ctx.client.patch(key, &lb.metadata, patch).await {
        Ok(marked) => Ok(Some(marked)),
        Err(WriteError::NotFound(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Marks a load balancer if it is not marked yet, then deletes it. If the deletion fails, a later process sees the mark.
async fn delete(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let meta = if guest_cluster::is_marked(&lb.metadata) {
        lb.metadata.clone()
    } else {
        match mark(ctx, key, lb).await? {
            Some(marked) => marked.metadata,
            None => return Ok(()),
        }
    };
    info!(lb = %key, "guest cluster removed, deleting its LoadBalancer");
    ctx.client
        .delete::<LoadBalancer>(key, &meta)
        .await
        .map(drop)
}
