//! Removal of guest clusters (section 11, GC-1): when Rancher removes a guest cluster, the load balancers that it made
//! are removed with it.
//!
//! While a node that is to be removed lives, the cluster's load balancers are marked; when such a node goes, those that were
//! made by then are deleted, whenever they are seen (GC-2). The mark outlives the operator: at the next start, marked load
//! balancers of a cluster without nodes are deleted too. No finalizer is put on a virtual machine.

use harvester_lb_api::{LoadBalancer, WorkloadType, keys, meta};
use harvester_lb_controller_kit::store::Change;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{Lb, Vm};
use harvester_lb_core::time;
use harvester_lb_ipam::Micros;
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use tracing::{info, warn};

use crate::clock;
use crate::hub::Hub;
use crate::reconcile::Next;

/// A virtual machine was made, altered or deleted.
pub fn vm_changed(hub: &Hub, key: &Key, change: &Change<Vm>) {
    match change {
        Change::Applied { old, new } => {
            if old.as_ref().is_none_or(|old| old != new) {
                vm_seen(hub, key, new);
            }
        }
        Change::Deleted { old, certain } => {
            if let Some(cluster) = removed_cluster(key, old) {
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
            && guest_cluster(lb) == Some(&*cluster.name)
            && is_marked(&lb.metadata)
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
        let cluster = Key::new(namespace, cluster);
        let witnessed = hub.lead(|lead| lead.removed_clusters.get(&cluster).copied());
        let concerned = witnessed
            .flatten()
            .is_some_and(|at| time::created(&lb.metadata) <= at);
        // Looking at the nodes of a namespace is not free: only where there is a reason.
        if concerned
            || is_marked(&lb.metadata)
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

/// Whether this very object is marked (GC-2). A mark without a uid is of a version that wrote none; one with another uid has
/// come along with a copy, as from a backup.
fn is_marked(meta: &ObjectMeta) -> bool {
    let uid = meta::annotation(meta, keys::ANNOTATION_GUEST_REMOVED_UID);
    meta::annotation(meta, keys::ANNOTATION_GUEST_REMOVED) == Some("true")
        && uid.is_none_or(|uid| Some(uid) == meta.uid.as_deref())
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

/// How far the removal of a guest cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Removal {
    /// When the last node so far has gone, or began to go, that was to be removed with its cluster.
    at: Option<Micros>,
    /// A node that is to be removed is there.
    announced: bool,
    /// No node is left.
    is_empty: bool,
}

impl Removal {
    fn of(nodes: &[&Vm], witnessed: Option<Micros>) -> Self {
        let removed = nodes.iter().filter(|vm| vm.cluster_removed);
        let going = removed.clone().filter_map(|vm| vm.deleted_at).max();
        Self {
            at: witnessed.max(going),
            announced: removed.count() > 0,
            is_empty: nodes.is_empty(),
        }
    }
}

/// What is to be done with one of its load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The nodes are to go.
    Mark,
    /// Its nodes have gone.
    Delete,
    /// It stays.
    Keep,
}

/// GC-1, GC-2: a load balancer goes with the nodes that it was made before.
fn fate(removal: Removal, created: Micros, is_marked: bool) -> Fate {
    if removal.at.is_some_and(|at| created <= at) || (removal.is_empty && is_marked) {
        Fate::Delete
    } else if removal.announced && !is_marked {
        Fate::Mark
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
        .lead(|lead| lead.removed_clusters.get(cluster).copied())
        .ok_or(WriteError::Fenced)?;
    let removal = Removal::of(&nodes, witnessed);
    let mut failed = None;
    for (key, lb) in hub.stores.lbs.in_namespace(&cluster.namespace) {
        let Lb::Valid(lb) = &*lb else { continue };
        if lb.spec.workload() != WorkloadType::Cluster
            || guest_cluster(lb) != Some(&*cluster.name)
            || lb.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let created = time::created(&lb.metadata);
        let outcome = match fate(removal, created, is_marked(&lb.metadata)) {
            Fate::Mark => mark(hub, &key, lb).await.map(drop),
            Fate::Delete => delete(hub, &key, lb).await,
            Fate::Keep => Ok(()),
        };
        if let Err(error) = outcome {
            warn!(lb = %key, %error, "a load balancer of a removed guest cluster is not done yet");
            failed = Some(error);
        }
    }
    match failed {
        Some(WriteError::Fenced) => Err(WriteError::Fenced),
        Some(_) => Ok(Next::Backoff),
        None => Ok(Next::Event),
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
    let meta = if is_marked(&lb.metadata) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Micros = Micros(10);
    const THEN: Micros = Micros(20);
    const AFTER: Micros = Micros(30);

    fn vm(cluster_removed: bool, deleted_at: Option<Micros>) -> Vm {
        Vm {
            guest_cluster: Some("gc".into()),
            from_node_driver: true,
            cluster_removed,
            deleted_at,
            finalizers_to_keep: None,
        }
    }

    #[test]
    fn gc_1_marked_while_the_nodes_live_deleted_when_one_goes() {
        let (stays, marked, going) = (vm(false, None), vm(true, None), vm(true, Some(THEN)));
        let plain_going = vm(false, Some(THEN));
        let cases: [(&[&Vm], Option<Micros>, Fate, Fate); 9] = [
            (&[&stays], None, Fate::Keep, Fate::Keep),
            (&[&plain_going], None, Fate::Keep, Fate::Keep),
            (&[&stays, &marked], None, Fate::Mark, Fate::Keep),
            (&[&marked], None, Fate::Mark, Fate::Keep),
            (&[&marked, &going], None, Fate::Delete, Fate::Delete),
            (&[&stays], Some(THEN), Fate::Delete, Fate::Delete),
            (&[], Some(THEN), Fate::Delete, Fate::Delete),
            (&[&marked], Some(BEFORE), Fate::Delete, Fate::Delete),
            (&[], None, Fate::Keep, Fate::Delete),
        ];
        for (nodes, witnessed, unmarked, marked) in cases {
            let removal = Removal::of(nodes, witnessed);
            let told = format!("{nodes:?} {witnessed:?}");
            assert_eq!(fate(removal, BEFORE, false), unmarked, "{told}");
            assert_eq!(fate(removal, BEFORE, true), marked, "{told}");
        }
    }

    #[test]
    fn gc_2_a_removal_concerns_what_was_made_by_then() {
        let (stays, marked) = (vm(false, None), vm(true, None));
        let going = vm(true, Some(THEN));
        for (nodes, witnessed) in [
            (&[&stays][..], Some(THEN)),
            (&[], Some(THEN)),
            (&[&going], None),
            (&[&going, &stays], Some(BEFORE)),
        ] {
            let removal = Removal::of(nodes, witnessed);
            assert_eq!(fate(removal, BEFORE, false), Fate::Delete);
            assert_eq!(fate(removal, THEN, false), Fate::Delete);
            assert_ne!(fate(removal, AFTER, false), Fate::Delete);
        }
        // Made later under the name, and to go with a node that is still there.
        let removal = Removal::of(&[&marked], Some(THEN));
        assert_eq!(fate(removal, AFTER, false), Fate::Mark);
        assert_eq!(fate(removal, AFTER, true), Fate::Keep);
    }

    #[test]
    fn gc_2_a_mark_is_the_objects_own() {
        let meta = |mark: &str, of: Option<&str>| ObjectMeta {
            uid: Some("u-1".to_owned()),
            annotations: Some(
                [(keys::ANNOTATION_GUEST_REMOVED, Some(mark))]
                    .into_iter()
                    .chain([(keys::ANNOTATION_GUEST_REMOVED_UID, of)])
                    .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
                    .collect(),
            ),
            ..ObjectMeta::default()
        };
        assert!(is_marked(&meta("true", Some("u-1"))));
        assert!(is_marked(&meta("true", None)), "by an earlier version");
        assert!(!is_marked(&meta("true", Some("u-0"))), "of another object");
        assert!(!is_marked(&meta("false", Some("u-1"))));
        assert!(!is_marked(&ObjectMeta::default()));
    }

    #[test]
    fn gc_1_only_the_node_drivers_machines_count() {
        let key = Key::new("shop", "vm");
        let mut other = vm(true, None);
        assert_eq!(removed_cluster(&key, &other), Some(Key::new("shop", "gc")));
        other.from_node_driver = false;
        assert_eq!(removed_cluster(&key, &other), None);
        let mut nameless = vm(true, None);
        nameless.guest_cluster = None;
        assert_eq!(removed_cluster(&key, &nameless), None);
    }
}
