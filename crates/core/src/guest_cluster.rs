//! What happens to the load balancers of a guest cluster that Rancher removes (section 11, GC-1, GC-2).
//!
//! While a node that is to be removed lives, the cluster's load balancers are marked; when such a node goes, those that were
//! made by then are deleted. The mark outlives the operator: at the next start, marked load balancers of a cluster without
//! nodes are deleted too.

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_ipam::Micros;
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::Vm;

/// Whether this very object is marked (GC-2). A mark without a uid is of a version that wrote none; one with another uid has
/// come along with a copy, as from a backup.
pub fn is_marked(meta: &ObjectMeta) -> bool {
    let uid = annotation(meta, keys::ANNOTATION_GUEST_REMOVED_UID);
    annotation(meta, keys::ANNOTATION_GUEST_REMOVED) == Some("true")
        && uid.is_none_or(|uid| Some(uid) == meta.uid.as_deref())
}

/// The name of the guest cluster that made a load balancer.
pub fn of_load_balancer(lb: &LoadBalancer) -> Option<&str> {
    lb.metadata
        .labels
        .as_ref()
        .and_then(|l| l.get(keys::LABEL_CLOUDPROVIDER_CLUSTER))
        .map(String::as_str)
        .filter(|c| !c.is_empty())
}

/// The guest cluster (its namespace and name) that a virtual machine says is being removed.
pub fn being_removed(key: &Key, vm: &Vm) -> Option<Key> {
    let cluster = vm.guest_cluster.as_deref()?;
    (vm.from_node_driver && vm.cluster_removed).then(|| Key::new(&key.namespace, cluster))
}

/// How far the removal of a guest cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// When the last node so far has gone, or began to go, that was to be removed with its cluster.
    pub at: Option<Micros>,
    /// A node that is to be removed is there.
    pub announced: bool,
    /// No node is left.
    pub is_empty: bool,
}

impl Removal {
    /// From the nodes that are there, and when one was last seen to go.
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

/// What is to be done with one of its load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupAction {
    /// The nodes are to go.
    Mark,
    /// Its nodes have gone.
    Delete,
    /// It stays.
    Keep,
}

/// GC-1, GC-2: a load balancer goes with the nodes that it was made before.
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
        // Made later under the name, and to go with a node that is still there.
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
