//! Removal of guest clusters (section 11, GC-1): when Rancher removes a guest cluster, the load balancers that it made
//! are removed with it.
//!
//! While a node that is to be removed lives, the cluster's load balancers are marked; when such a node goes they are
//! deleted. The mark outlives the operator: at the next start, marked load balancers of a cluster without nodes are
//! deleted too. No finalizer is put on a virtual machine.

use harvester_lb_api::{LoadBalancer, WorkloadType, keys};
use harvester_lb_controller_kit::Key;
use harvester_lb_controller_kit::store::Change;
use harvester_lb_controller_kit::writer::WriteError;
use serde_json::json;
use tracing::{info, warn};

use crate::hub::Hub;
use crate::objects::{self, Lb, Vm};
use crate::reconcile::Next;

/// A virtual machine was made, altered or deleted.
pub fn vm_changed(hub: &Hub, key: &Key, change: &Change<Vm>) {
    match change {
        Change::Applied { old, new } => {
            if old.as_ref().is_none_or(|old| old != new) {
                vm_seen(hub, key, new);
            }
        }
        Change::Deleted { old, .. } => {
            if let Some(cluster) = removed_cluster(key, old) {
                hub.lead(|lead| lead.removed_clusters.insert(cluster.clone()));
                queue(hub, cluster);
            }
        }
    }
}

/// A virtual machine is there.
pub fn vm_seen(hub: &Hub, key: &Key, vm: &Vm) {
    if vm.from_node_driver && vm.cluster_removed && vm.guest_cluster.is_none() {
        warn!(vm = %key, label = keys::LABEL_GUEST_CLUSTER, "a node of a guest cluster is removed, but does not say of which; its load balancers stay");
    }
    if let Some(cluster) = removed_cluster(key, vm) {
        queue(hub, cluster);
    }
}

/// A load balancer is there: it may be one of a cluster that is being removed.
pub fn lb_applied(hub: &Hub, lb: &LoadBalancer) {
    if lb.spec.workload() == WorkloadType::Cluster
        && let Some(cluster) = guest_cluster(lb)
    {
        let namespace = lb.metadata.namespace.as_deref().unwrap_or_default();
        let marked =
            objects::annotation(&lb.metadata, keys::ANNOTATION_GUEST_REMOVED) == Some("true");
        // Looking at the nodes of a namespace is not free: only where there is a reason.
        if marked
            || hub
                .stores
                .vms
                .any_in_namespace(namespace, |vm| vm.cluster_removed)
        {
            queue(hub, Key::new(namespace, cluster));
        }
    }
}

fn queue(hub: &Hub, cluster: Key) {
    if hub.leads() {
        hub.queues.guests.add(cluster);
    }
}

/// The name of the guest cluster that made a load balancer.
fn guest_cluster(lb: &LoadBalancer) -> Option<&str> {
    lb.metadata
        .labels
        .as_ref()
        .and_then(|l| l.get(keys::LABEL_CLOUDPROVIDER_CLUSTER))
        .map(String::as_str)
        .filter(|c| !c.is_empty())
}

/// The guest cluster (its namespace and name) that a virtual machine says is being removed.
fn removed_cluster(key: &Key, vm: &Vm) -> Option<Key> {
    let cluster = vm.guest_cluster.as_deref()?;
    (vm.from_node_driver && vm.cluster_removed).then(|| Key::new(&key.namespace, cluster))
}

/// What is to be done with a cluster's load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its nodes are to go.
    Mark,
    /// A node has gone.
    Delete,
    /// Those that are marked go: no node is left.
    DeleteMarked,
    /// They stay.
    Keep,
}

fn fate(nodes: &[&Vm], witnessed: bool) -> Fate {
    let removed: Vec<_> = nodes.iter().filter(|vm| vm.cluster_removed).collect();
    if witnessed || removed.iter().any(|vm| vm.deleting) {
        Fate::Delete
    } else if !removed.is_empty() {
        Fate::Mark
    } else if nodes.is_empty() {
        Fate::DeleteMarked
    } else {
        Fate::Keep
    }
}

/// Brings a guest cluster's load balancers to their end, or marks them for it. One that cannot be deleted does not
/// keep the others.
pub async fn reconcile(hub: &Hub, cluster: &Key) -> Result<Next, WriteError> {
    let vms = hub.stores.vms.in_namespace(&cluster.namespace);
    let nodes: Vec<&Vm> = vms
        .iter()
        .map(|(_, vm)| &**vm)
        .filter(|vm| vm.from_node_driver && vm.guest_cluster.as_deref() == Some(&*cluster.name))
        .collect();
    let witnessed = hub
        .lead(|lead| lead.removed_clusters.contains(cluster))
        .ok_or(WriteError::Fenced)?;
    let fate = fate(&nodes, witnessed);
    let mut failed = None;
    for (key, lb) in hub.stores.lbs.in_namespace(&cluster.namespace) {
        let Lb::Valid(lb) = &*lb else { continue };
        if lb.spec.workload() != WorkloadType::Cluster
            || guest_cluster(lb) != Some(&*cluster.name)
            || lb.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let marked =
            objects::annotation(&lb.metadata, keys::ANNOTATION_GUEST_REMOVED) == Some("true");
        let outcome = match fate {
            Fate::Mark if !marked => mark(hub, &key, lb).await,
            Fate::Delete => delete(hub, &key, lb).await,
            Fate::DeleteMarked if marked => delete(hub, &key, lb).await,
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            warn!(lb = %key, %error, "a load balancer of a removed guest cluster is not done yet");
            failed = Some(error);
        }
    }
    match failed {
        Some(WriteError::Fenced) => Err(WriteError::Fenced),
        Some(_) => Ok(Next::Backoff),
        None => {
            hub.lead(|lead| lead.removed_clusters.remove(cluster));
            Ok(Next::Event)
        }
    }
}

async fn mark(hub: &Hub, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let patch = json!({"metadata": {"annotations": { keys::ANNOTATION_GUEST_REMOVED: "true" }}});
    match hub.patch::<LoadBalancer>(key, &lb.metadata, patch).await {
        Ok(_) | Err(WriteError::NotFound(_)) => Ok(()),
        Err(other) => Err(other),
    }
}

async fn delete(hub: &Hub, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    info!(lb = %key, "its guest cluster is removed, deleting it");
    hub.delete::<LoadBalancer>(key, &lb.metadata).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(cluster_removed: bool, deleting: bool) -> Vm {
        Vm {
            guest_cluster: Some("gc".into()),
            from_node_driver: true,
            cluster_removed,
            deleting,
            finalizers_to_keep: None,
        }
    }

    #[test]
    fn gc_1_marked_while_the_nodes_live_deleted_when_one_goes() {
        let (stays, marked, going) = (vm(false, false), vm(true, false), vm(true, true));
        let plain_going = vm(false, true);
        let cases: [(&[&Vm], bool, Fate); 8] = [
            (&[&stays], false, Fate::Keep),
            (&[&plain_going], false, Fate::Keep),
            (&[&stays, &marked], false, Fate::Mark),
            (&[&marked], false, Fate::Mark),
            (&[&marked, &going], false, Fate::Delete),
            (&[&stays], true, Fate::Delete),
            (&[], true, Fate::Delete),
            (&[], false, Fate::DeleteMarked),
        ];
        for (nodes, witnessed, expected) in cases {
            assert_eq!(fate(nodes, witnessed), expected, "{nodes:?} {witnessed}");
        }
    }

    #[test]
    fn gc_1_only_the_node_drivers_machines_count() {
        let key = Key::new("shop", "vm");
        let mut other = vm(true, false);
        assert_eq!(removed_cluster(&key, &other), Some(Key::new("shop", "gc")));
        other.from_node_driver = false;
        assert_eq!(removed_cluster(&key, &other), None);
        let mut nameless = vm(true, false);
        nameless.guest_cluster = None;
        assert_eq!(removed_cluster(&key, &nameless), None);
    }
}
