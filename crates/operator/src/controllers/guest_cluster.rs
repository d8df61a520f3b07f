//! Removal of guest clusters (section 11, GC-1): when Rancher removes a guest cluster, the load balancers that it made
//! are removed with it.
//!
//! While a node that is to be removed lives, the cluster's load balancers are marked; when such a node goes, those that were
//! made by then are deleted, whenever they are seen (GC-2). The mark outlives the operator: at the next start, marked load
//! balancers of a cluster without nodes are deleted too. No finalizer is put on a virtual machine.

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

/// Brings a guest cluster's load balancers to their end, or marks them for it. One that cannot be deleted does not
/// keep the others.
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
            || guest_cluster::of_load_balancer(lb) != Some(&*cluster.name)
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
            warn!(lb = %key, %error, "a load balancer of a removed guest cluster is not done yet");
            failed = Some(error);
        }
    }
    match failed {
        Some(WriteError::Fenced) => Err(WriteError::Fenced),
        Some(_) => Ok(Requeue::Backoff),
        None => Ok(Requeue::AwaitChange),
    }
}

/// Marks an object. `None` if it is gone.
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

/// Deletes a load balancer that is marked, or else is marked first: if its deletion fails, a later process knows of it.
async fn delete(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let meta = if guest_cluster::is_marked(&lb.metadata) {
        lb.metadata.clone()
    } else {
        match mark(ctx, key, lb).await? {
            Some(marked) => marked.metadata,
            None => return Ok(()),
        }
    };
    info!(lb = %key, "its guest cluster is removed, deleting it");
    ctx.client.delete::<LoadBalancer>(key, &meta).await
}
