//! Who of a table has a key. Owns only that.

use std::collections::BTreeMap;

use crate::types::Uid;

/// Uids by a key of theirs, which usually one uid has.
#[derive(Debug)]
pub(super) struct Index<K>(pub(super) BTreeMap<K, Vec<Uid>>);

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Index<K> {
    /// Who has this key.
    pub(super) fn get(&self, key: &K) -> Vec<Uid> {
        self.0.get(key).cloned().unwrap_or_default()
    }

    /// Whether anybody has this key.
    pub(super) fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Everybody, by key.
    pub(super) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.0.values().flatten()
    }

    pub(super) fn insert(&mut self, key: K, uid: &Uid) {
        self.0.entry(key).or_default().push(uid.clone());
    }

    pub(super) fn remove(&mut self, key: &K, uid: &Uid) {
        if let Some(uids) = self.0.get_mut(key) {
            uids.retain(|other| other != uid);
            if uids.is_empty() {
                self.0.remove(key);
            }
        }
    }
}
