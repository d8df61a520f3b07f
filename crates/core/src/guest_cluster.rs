//! Cleanup of the load balancers of a guest cluster that Rancher removes (section 11, GC-1, GC-2).
//!
//! Once a node VM has Rancher's removal annotation, the cluster's load balancers are marked. When such a node is deleted,
//! the load balancers created before are deleted. The mark survives a restart of the operator: at the next start, marked
//! load balancers of a cluster without nodes are deleted too.

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_ipam::Micros;
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::Vm;

/// Whether a load balancer is marked for cleanup (GC-2). A mark without a uid is by an earlier version and counts. A mark
/// with another uid was copied with the object, as by a restore from a backup, and does not count.
pub fn is_marked(meta: &ObjectMeta) -> bool {
    let uid = annotation(meta, keys::ANNOTATION_GUEST_REMOVED_UID);
    annotation(meta, keys::ANNOTATION_GUEST_REMOVED) == Some("true")
        && uid.is_none_or(|uid| Some(uid) == meta.uid.as_deref())
}

/// The name of the guest cluster that owns a load balancer, from its label; `None` if it is absent or empty (GC-1).
pub fn of_load_balancer(lb: &LoadBalancer) -> Option<&str> {
    lb.metadata
        .labels
        .as_ref()
        .and_then(|l| l.get(keys::LABEL_CLOUDPROVIDER_CLUSTER))
        .map(String::as_str)
        .filter(|c| !c.is_empty())
}

/// The guest cluster (namespace and name) that is being removed according to this node VM. `None` for other virtual
/// machines (GC-1).
pub fn being_removed(key: &Key, vm: &Vm) -> Option<Key> {
    let cluster = vm.guest_cluster.as_deref()?;
    (vm.from_node_driver && vm.cluster_removed).then(|| Key::new(&key.namespace, cluster))
}

/// Progress of the removal of a guest cluster (GC-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// When a node with the removal annotation was last deleted or marked for deletion; `None` if none was.
    pub at: Option<Micros>,
    /// Whether a node with the removal annotation exists.
    pub announced: bool,
    /// Whether no node exists.
    pub is_empty: bool,
}

impl Removal {
    /// From the existing nodes, and the time of the last observed deletion of a node with the removal annotation.
    pub fn of(nodes: &[&Vm], witnessed: Option<Micros>) -> Self {
        let removed = nodes.iter().filter(|vm| vm.cluster_removed);
        let going = removed.clone().filter_map(|vm| vm.deleted_at).max();
        Self {
            at: witnessed.max(going),
            announced: removed.count() > 0,
            is_empty: nodes.is_empty(),
        }
    }
}

/// The action for one load balancer of the guest cluster (GC-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupAction {
    /// Mark it: the removal of the nodes is announced.
    Mark,
    /// Delete it: a node was deleted after its creation, or it is marked and no node is left.
    Delete,
    /// Leave it as it is.
    Keep,
}

/// Decides about one load balancer (GC-1). A removal concerns only load balancers created no later than it (GC-2).
pub fn cleanup_action(removal: Removal, created: Micros, is_marked: bool) -> CleanupAction {
    if removal.at.is_some_and(|at| created <= at) || (removal.is_empty && is_marked) {
        CleanupAction::Delete
    } else if removal.announced && !is_marked {
        CleanupAction::Mark
    } else {
        CleanupAction::Keep
    }
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
        let cases: [(&[&Vm], Option<Micros>, CleanupAction, CleanupAction); 9] = [
            (&[&stays], None, CleanupAction::Keep, CleanupAction::Keep),
            (
                &[&plain_going],
                None,
                CleanupAction::Keep,
                CleanupAction::Keep,
            ),
            (
                &[&stays, &marked],
                None,
                CleanupAction::Mark,
                CleanupAction::Keep,
            ),
            (&[&marked], None, CleanupAction::Mark, CleanupAction::Keep),
            (
                &[&marked, &going],
                None,
                CleanupAction::Delete,
                CleanupAction::Delete,
            ),
            (
                &[&stays],
                Some(THEN),
                CleanupAction::Delete,
                CleanupAction::Delete,
            ),
            (
                &[],
                Some(THEN),
                CleanupAction::Delete,
                CleanupAction::Delete,
            ),
            (
                &[&marked],
                Some(BEFORE),
                CleanupAction::Delete,
                CleanupAction::Delete,
            ),
            (&[], None, CleanupAction::Keep, CleanupAction::Delete),
        ];
        for (nodes, witnessed, unmarked, marked) in cases {
            let removal = Removal::of(nodes, witnessed);
            let told = format!("{nodes:?} {witnessed:?}");
            assert_eq!(cleanup_action(removal, BEFORE, false), unmarked, "{told}");
            assert_eq!(cleanup_action(removal, BEFORE, true), marked, "{told}");
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
            assert_eq!(
                cleanup_action(removal, BEFORE, false),
                CleanupAction::Delete
            );
            assert_eq!(cleanup_action(removal, THEN, false), CleanupAction::Delete);
            assert_ne!(cleanup_action(removal, AFTER, false), CleanupAction::Delete);
        }
        // Created later under the same name, and another node of it is to be removed.
        let removal = Removal::of(&[&marked], Some(THEN));
        assert_eq!(cleanup_action(removal, AFTER, false), CleanupAction::Mark);
        assert_eq!(cleanup_action(removal, AFTER, true), CleanupAction::Keep);
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
        assert_eq!(being_removed(&key, &other), Some(Key::new("shop", "gc")));
        other.from_node_driver = false;
        assert_eq!(being_removed(&key, &other), None);
        let mut nameless = vm(true, None);
        nameless.guest_cluster = None;
        assert_eq!(being_removed(&key, &nameless), None);
    }
}
