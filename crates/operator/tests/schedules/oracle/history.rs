//! The versions of all objects: what the operator may have known when it sent a request.

use std::collections::BTreeMap;
use std::rc::Rc;

use harvester_lb_object::Key;
use serde_json::Value;

use crate::api::{Event, version};
use crate::call::Positions;
use crate::kind::Kind;

/// The versions of an object, each with its resource version; `None`: it was deleted.
type Versions = Vec<(u64, Option<Rc<Value>>)>;

/// The versions of all objects.
#[derive(Default)]
pub(super) struct History {
    objects: BTreeMap<(Kind, Key), Versions>,
    /// For each kind the resource version of the last change.
    latest: Positions,
}

impl History {
    pub(super) fn note(&mut self, event: &Event) {
        let Some(revision) = event.after.as_ref().or(event.last.as_ref()) else {
            return;
        };
        let revision = version(revision);
        self.latest[event.kind as usize] = revision;
        let of = self
            .objects
            .entry((event.kind, event.key.clone()))
            .or_default();
        of.push((revision, event.after.clone()));
    }

    /// The version of an object that a watch had brought, and all later ones: the operator may have read one of these live.
    pub(super) fn known(
        &self,
        kind: Kind,
        key: &Key,
        seen: &Positions,
    ) -> impl Iterator<Item = Option<&Value>> + Clone {
        let all = self.objects.get(&(kind, key.clone()));
        let all = all.map_or(&[][..], |all| &all[..]);
        let later = all.partition_point(|(revision, _)| *revision <= seen[kind as usize]);
        let (earlier, later) = all.split_at(later);
        let brought = earlier.last().and_then(|(_, object)| object.as_deref());
        std::iter::once(brought).chain(later.iter().map(|(_, object)| object.as_deref()))
    }

    /// Whether a watch had brought the last version of an object.
    pub(super) fn is_current(&self, kind: Kind, key: &Key, seen: &Positions) -> bool {
        self.known(kind, key, seen).count() == 1
    }

    /// Whether the watches had brought all there is of these kinds.
    pub(super) fn is_latest(&self, kinds: &[Kind], seen: &Positions) -> bool {
        let mut kinds = kinds.iter().map(|kind| *kind as usize);
        kinds.all(|kind| self.latest[kind] <= seen[kind])
    }
}
