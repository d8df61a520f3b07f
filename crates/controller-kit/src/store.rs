//! The newest known copy of each object of a kind.
//!
//! A store has two sources: the watch, and the answers to our own writes (write-through), so that the next decision
//! uses what we just wrote and need not wait for the watch. Resource versions order the two: an older copy never
//! replaces a newer one, and the answer to a write that the watch has already passed is dropped, so that it cannot
//! bring a deleted object back. Nor does the watch, if a live read has found the object gone before the watch says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use harvester_lb_object::{Key, Version};
use parking_lot::RwLock;

use crate::stamp::Stamp;

/// Most objects of a list that are reported as older than known; one would do (RUN-3).
const OLDER: usize = 8;

/// A cached object, in the form that the program needs.
#[derive(Debug)]
pub struct Entry<V> {
    /// Identity and version of the copy.
    pub stamp: Stamp,
    /// The object.
    pub value: Arc<V>,
}

impl<V> Clone for Entry<V> {
    fn clone(&self) -> Self {
        Self {
            stamp: self.stamp,
            value: Arc::clone(&self.value),
        }
    }
}

/// A change of an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// It was created or modified.
    Applied {
        /// The copy before, if one was known.
        old: Option<Arc<V>>,
        /// The copy now.
        new: Arc<V>,
    },
    /// It is gone.
    Deleted {
        /// The last copy.
        old: Arc<V>,
        /// It is only missing from a list: its deletion was not seen, and `old` need not be its final state
        /// (client-go's `DeletedFinalStateUnknown`). Otherwise the deletion was seen in the watch or by a live read.
        final_state_unknown: bool,
    },
}

#[derive(Debug)]
struct Inner<V> {
    entries: BTreeMap<Key, Entry<V>>,
    /// Newest version that the watch has delivered.
    watched: Version,
    /// Set while a list is in progress.
    listing: Option<Listing>,
    /// Number of complete lists.
    lists: u64,
    /// Objects that a live read did not find, and whose deletion the watch has yet to deliver: the last copy of each.
    gone: BTreeMap<Key, Stamp>,
}

#[derive(Debug, Default)]
struct Listing {
    /// Keys in the list.
    named: BTreeSet<Key>,
    /// Keys written through since the list began.
    written: BTreeSet<Key>,
    /// Keys that a live read did not find since the list began.
    gone: BTreeSet<Key>,
    /// Objects that the list has in an older copy than was known when it began, with the known stamp.
    older: Vec<(Key, Stamp)>,
}

impl<V> Inner<V> {
    fn put(&mut self, key: &Key, stamp: Stamp, value: V) -> Change<V> {
        let new = Arc::new(value);
        let entry = Entry {
            stamp,
            value: Arc::clone(&new),
        };
        let old = self.entries.insert(key.clone(), entry).map(|e| e.value);
        Change::Applied { old, new }
    }

    /// Whether this is a copy of an object that is known to be gone. A later one of the name has another uid.
    fn is_of_gone(&self, key: &Key, stamp: Stamp) -> bool {
        let gone = self.gone.get(key);
        gone.is_some_and(|gone| gone.is_same_object(stamp))
    }

    /// Whether the watch is behind that: this is a copy of that object, or of an earlier one of the name.
    fn is_before_end(&self, key: &Key, stamp: Stamp) -> bool {
        let gone = self.gone.get(key).map(|gone| gone.version);
        let is_earlier = gone.is_some_and(|version| stamp.version <= version);
        self.is_of_gone(key, stamp) || (is_earlier && stamp.version != Version::default())
    }

    /// Removes an object whose deletion was seen.
    fn take(&mut self, key: &Key) -> Option<Change<V>> {
        let old = self.entries.remove(key)?.value;
        Some(Change::Deleted {
            old,
            final_state_unknown: false,
        })
    }
}

/// The result of a complete list.
#[derive(Debug)]
pub struct Listed<V> {
    /// Objects missing from the list: deleted.
    pub gone: Vec<(Key, Arc<V>)>,
    /// Objects missing from the list that were written while it was in progress, with the written version: created
    /// after the list, or deleted before it. Only a live read can tell.
    pub unconfirmed: Vec<(Key, Version)>,
    /// Some of the objects that the list has in an older copy than was known when it began, with the known stamp: a
    /// live read proves whether the API server was restored from a backup (RUN-3).
    pub older: Vec<(Key, Stamp)>,
}

/// The objects of one kind by namespace and name.
#[derive(Debug)]
pub struct Store<V> {
    inner: RwLock<Inner<V>>,
    synced: AtomicBool,
}

impl<V> Default for Store<V> {
    fn default() -> Self {
        Self {
            inner: RwLock::new(Inner {
                entries: BTreeMap::new(),
                watched: Version::default(),
                listing: None,
                lists: 0,
                gone: BTreeMap::new(),
            }),
            synced: AtomicBool::new(false),
        }
    }
}

impl<V> Store<V> {
    /// The object of that name.
    pub fn get(&self, key: &Key) -> Option<Arc<V>> {
        self.inner
            .read()
            .entries
            .get(key)
            .map(|e| Arc::clone(&e.value))
    }

    /// The object of that name, with its version.
    pub fn entry(&self, key: &Key) -> Option<Entry<V>> {
        self.inner.read().entries.get(key).cloned()
    }

    /// All objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<(Key, Arc<V>)> {
        let inner = self.inner.read();
        inner
            .entries
            .range((Bound::Included(Key::new(namespace, "")), Bound::Unbounded))
            .take_while(|(key, _)| &*key.namespace == namespace)
            .map(|(key, entry)| (key.clone(), Arc::clone(&entry.value)))
            .collect()
    }

    /// Calls `f` for each object of a namespace, by name, without a copy of the list.
    pub fn visit_namespace(&self, namespace: &str, mut f: impl FnMut(&Key, &V)) {
        let inner = self.inner.read();
        for (key, entry) in inner
            .entries
            .range((Bound::Included(Key::new(namespace, "")), Bound::Unbounded))
            .take_while(|(key, _)| &*key.namespace == namespace)
        {
            f(key, &entry.value);
        }
    }

    /// The version of the cached copy; the least version if there is none.
    pub fn version(&self, key: &Key) -> Version {
        self.inner
            .read()
            .entries
            .get(key)
            .map(|e| e.stamp.version)
            .unwrap_or_default()
    }

    /// Whether the predicate holds for any object of a namespace.
    pub fn any_in_namespace(&self, namespace: &str, is_so: impl Fn(&V) -> bool) -> bool {
        let inner = self.inner.read();
        inner
            .entries
            .range((Bound::Included(Key::new(namespace, "")), Bound::Unbounded))
            .take_while(|(key, _)| &*key.namespace == namespace)
            .any(|(_, entry)| is_so(&entry.value))
    }

    /// All objects, by namespace and name.
    pub fn all(&self) -> Vec<(Key, Arc<V>)> {
        let inner = self.inner.read();
        inner
            .entries
            .iter()
            .map(|(k, e)| (k.clone(), Arc::clone(&e.value)))
            .collect()
    }

    /// Calls `f` for each object, without a copy of the list.
    pub fn for_each(&self, mut f: impl FnMut(&Key, &V)) {
        for (key, entry) in &self.inner.read().entries {
            f(key, &entry.value);
        }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.inner.read().entries.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest version of an object that the watch has delivered, in a list or as an event; the least one before the first.
    pub fn newest_watched(&self) -> Version {
        self.inner.read().watched
    }

    /// Number of complete lists so far. If it changes during a write, the answer may be older than the list, and only a live
    /// read can tell whether the object still exists.
    pub fn lists(&self) -> u64 {
        self.inner.read().lists
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Stores the answer to one of our writes. Returns `None` if the store already has that copy or a newer one.
    pub fn written(&self, key: &Key, stamp: impl Into<Stamp>, value: V) -> Option<Change<V>> {
        let stamp = stamp.into();
        let version = stamp.version;
        let mut inner = self.inner.write();
        // A list that is in progress has yet to bring those that it has not named, whatever the versions of the others.
        let is_to_come = |listing: &Listing| !listing.named.contains(key);
        let has_passed = !inner.listing.as_ref().is_some_and(is_to_come);
        if has_passed && version <= inner.watched && version != Version::default() {
            return None;
        }
        if inner.is_of_gone(key, stamp) {
            return None;
        }
        if inner
            .entries
            .get(key)
            .is_some_and(|e| e.stamp.version >= version)
        {
            return None;
        }
        if let Some(listing) = &mut inner.listing {
            listing.written.insert(key.clone());
        }
        Some(inner.put(key, stamp, value))
    }

    /// Removes an object that a live read did not find, unless the store has learned of a newer copy meanwhile. Copies of it that the
    /// watch has yet to deliver are dropped.
    pub fn absent(&self, key: &Key, version: Version) -> Option<Change<V>> {
        let mut guard = self.inner.write();
        let inner = &mut *guard;
        let stamp = inner.entries.get(key)?.stamp;
        if stamp.version > version {
            return None;
        }
        inner.gone.insert(key.clone(), stamp);
        if let Some(listing) = &mut inner.listing {
            listing.gone.insert(key.clone());
        }
        inner.take(key)
    }

    /// Whether the object of a copy is known to be gone: a live read did not find it, or the watch has passed that version and has no such
    /// object. While a list is in progress only the former tells.
    pub fn is_gone(&self, key: &Key, stamp: Stamp) -> bool {
        let inner = self.inner.read();
        let version = stamp.version;
        let is_past = inner.listing.is_none()
            && version <= inner.watched
            && version != Version::default()
            && !inner.entries.contains_key(key);
        is_past || inner.is_of_gone(key, stamp)
    }

    /// Removes an object that is none of those that the store is for, unless the store has learned of a newer copy meanwhile.
    pub fn forget(&self, key: &Key, version: Version) -> Option<Change<V>> {
        let mut inner = self.inner.write();
        if inner
            .entries
            .get(key)
            .is_some_and(|e| e.stamp.version <= version)
        {
            return inner.take(key);
        }
        None
    }

    /// Stores a copy from the watch or from a list. Returns the same as [`Store::written`].
    pub(crate) fn watched(
        &self,
        key: &Key,
        stamp: impl Into<Stamp>,
        value: V,
    ) -> Option<Change<V>> {
        let stamp = stamp.into();
        let version = stamp.version;
        let mut guard = self.inner.write();
        let inner = &mut *guard;
        inner.watched = inner.watched.max(version);
        let is_stale = inner.is_before_end(key, stamp);
        if let Some(listing) = &mut inner.listing {
            listing.named.insert(key.clone());
            // A list that was requested later proves that it exists: the API server was restored from a backup (RUN-3).
            if is_stale && listing.gone.contains(key) {
                return None;
            }
            if let Some(entry) = inner.entries.get(key)
                && stamp.is_before(entry.stamp)
                && !listing.written.contains(key)
                && listing.older.len() < OLDER
            {
                listing.older.push((key.clone(), entry.stamp));
            }
        } else if is_stale {
            return None;
        }
        inner.gone.remove(key);
        if version != Version::default()
            && inner
                .entries
                .get(key)
                .is_some_and(|e| e.stamp.version >= version)
        {
            return None;
        }
        Some(inner.put(key, stamp, value))
    }

    /// Applies a deletion from the watch.
    pub(crate) fn deleted(&self, key: &Key, stamp: impl Into<Stamp>) -> Option<Change<V>> {
        let stamp = stamp.into();
        let version = stamp.version;
        let mut inner = self.inner.write();
        inner.watched = inner.watched.max(version);
        if inner.is_of_gone(key, stamp) {
            inner.gone.remove(key);
        }
        if inner
            .entries
            .get(key)
            .is_some_and(|e| e.stamp.version > version && version.0 != 0)
        {
            return None;
        }
        inner.take(key)
    }

    /// A list begins.
    pub(crate) fn list_begins(&self) {
        self.inner.write().listing = Some(Listing::default());
    }

    /// A list is complete: objects missing from it are deleted, except those written meanwhile.
    pub(crate) fn list_ends(&self) -> Listed<V> {
        let mut inner = self.inner.write();
        let mut listed = Listed {
            gone: Vec::new(),
            unconfirmed: Vec::new(),
            older: Vec::new(),
        };
        let Some(listing) = inner.listing.take() else {
            return listed;
        };
        inner.lists += 1;
        // The watch after this list delivers no deletion of what the list lacks.
        inner.gone.retain(|key, _| listing.gone.contains(key));
        let not_named = |key: &&Key| !listing.named.contains(*key);
        let unnamed: Vec<Key> = inner.entries.keys().filter(not_named).cloned().collect();
        for key in unnamed {
            if listing.written.contains(&key) {
                let version = inner.entries[&key].stamp.version;
                listed.unconfirmed.push((key, version));
            } else if let Some(entry) = inner.entries.remove(&key) {
                listed.gone.push((key, entry.value));
            }
        }
        drop(inner);
        listed.older = listing.older;
        self.synced.store(true, Ordering::Release);
        listed
    }
}

#[cfg(test)]
mod tests;
