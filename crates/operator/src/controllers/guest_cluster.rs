//! Removal of guest clusters (section 11, GC-1): when Rancher removes a guest cluster, the load balancers that it made
//! are removed with it.
//!
//! While a node that is to be removed lives, the cluster's load balancers are marked; when such a node goes, those that were
//! made by then are deleted, whenever they are seen (GC-2). The mark outlives the operator: at the next start, marked load
//! balancers of a cluster without nodes are deleted too. No finalizer is put on a virtual machine.

use harvester_lb_api::{LoadBalancer, WorkloadType, keys};
use harvester_lb_controller_kit::store::Change;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{Lb, Vm};
use harvester_lb_core::guest_cluster::{self, CleanupAction, Removal};
use harvester_lb_core::time;
use harvester_lb_ipam::Micros;
use harvester_lb_object::Key;
use serde_json::json;
use tracing::{info, warn};

use crate::clock;
use crate::context::Hub;

/// A virtual machine was made, altered or deleted.
pub fn vm_changed(hub: &Hub, key: &Key, change: &Change<Vm>) {
    match change {
        Change::Applied { old, new } => {
            if old.as_ref().is_none_or(|old| old != new) {
                vm_seen(hub, key, new);
            }
        }
        Change::Deleted { old, certain } => {
            if let Some(cluster) = guest_cluster::being_removed(key, old) {
                let at = old.deleted_at.or_else(|| certain.then(clock::now));
                // Absent from a list, it has gone some time after the last mark that it called for.
                let at = at.or_else(|| last_marked(hub, &cluster));
                hub.lead(|lead| {
                    if let Some(at) = at {
                        lead.guest_cluster_removed(&cluster, at);
                    }
                });
                queue(hub, cluster);
            }
        }
    }
}

/// When the youngest of a cluster's marked load balancers was made.
fn last_marked(hub: &Hub, cluster: &Key) -> Option<Micros> {
    let mut last = None;
    hub.stores.lbs.visit_namespace(&cluster.namespace, |_, lb| {
        if let Lb::Valid(lb) = lb
            && guest_cluster::of_load_balancer(lb) == Some(&*cluster.name)
            && guest_cluster::is_marked(&lb.metadata)
        {
            last = last.max(Some(time::created(&lb.metadata)));
        }
    });
    last
}

/// A virtual machine is there.
pub fn vm_seen(hub: &Hub, key: &Key, vm: &Vm) {
    if vm.from_node_driver && vm.cluster_removed && vm.guest_cluster.is_none() {
        warn!(vm = %key, label = keys::LABEL_GUEST_CLUSTER, "a node of a guest cluster is removed, but does not say of which; its load balancers stay");
    }
    if let Some(cluster) = guest_cluster::being_removed(key, vm) {
        queue(hub, cluster);
    }
}

/// A load balancer is there: it may be one of a cluster that is being removed.
pub fn lb_applied(hub: &Hub, lb: &LoadBalancer) {
    if lb.spec.workload() == WorkloadType::Cluster
        && let Some(cluster) = guest_cluster::of_load_balancer(lb)
    {
        let namespace = lb.metadata.namespace.as_deref().unwrap_or_default();
        let cluster = Key::new(namespace, cluster);
        let witnessed = hub.lead(|lead| lead.removed_clusters.get(&cluster).copied());
        let concerned = witnessed
            .flatten()
            .is_some_and(|at| time::created(&lb.metadata) <= at);
        // Looking at the nodes of a namespace is not free: only where there is a reason.
        if concerned
            || guest_cluster::is_marked(&lb.metadata)
            || hub
                .stores
                .vms
                .any_in_namespace(namespace, |vm| vm.cluster_removed)
        {
            queue(hub, cluster);
        }
    }
}

fn queue(hub: &Hub, cluster: Key) {
    if hub.leads() {
        hub.queues.guests.add(cluster);
    }
}

/// Brings a guest cluster's load balancers to their end, or marks them for it. One that cannot be deleted does not
/// keep the others.
pub async fn reconcile(hub: &Hub, cluster: &Key) -> Result<Requeue, WriteError> {
    let vms = hub.stores.vms.in_namespace(&cluster.namespace);
    let nodes: Vec<&Vm> = vms
        .iter()
        .map(|(_, vm)| &**vm)
        .filter(|vm| vm.from_node_driver && vm.guest_cluster.as_deref() == Some(&*cluster.name))
        .collect();
    let witnessed = hub
        .lead(|lead| lead.removed_clusters.get(cluster).copied())
        .ok_or(WriteError::Fenced)?;
    let removal = Removal::of(&nodes, witnessed);
    let mut failed = None;
    for (key, lb) in hub.stores.lbs.in_namespace(&cluster.namespace) {
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
            CleanupAction::Mark => mark(hub, &key, lb).await.map(drop),
            CleanupAction::Delete => delete(hub, &key, lb).await,
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
async fn mark(hub: &Hub, key: &Key, lb: &LoadBalancer) -> Result<Option<LoadBalancer>, WriteError> {
    let patch = json!({"metadata": {"annotations": {
        keys::ANNOTATION_GUEST_REMOVED: "true",
        keys::ANNOTATION_GUEST_REMOVED_UID: lb.metadata.uid,
    }}});
    match hub.patch(key, &lb.metadata, patch).await {
        Ok(marked) => Ok(Some(marked)),
        Err(WriteError::NotFound(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Deletes a load balancer that is marked, or else is marked first: if its deletion fails, a later process knows of it.
async fn delete(hub: &Hub, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let meta = if guest_cluster::is_marked(&lb.metadata) {
        lb.metadata.clone()
    } else {
        match mark(hub, key, lb).await? {
            Some(marked) => marked.metadata,
            None => return Ok(()),
        }
    };
    info!(lb = %key, "its guest cluster is removed, deleting it");
    hub.delete::<LoadBalancer>(key, &meta).await
}
