//! The store of records: by address in ascending order, and by owner.
//!
//! Sixty thousand records must take little memory, so they are in one vector; the index by address
//! holds positions, and the index by owner is a linked list through the records themselves, whose
//! heads are in a map by hash of the id. A tenant who finds names of equal hash only makes the list
//! of these names longer.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use harvester_lb_object::Version;
use rustc_hash::{FxHashMap, FxHasher};

use crate::types::{Micros, Owner, OwnerId, Phase};

/// End of a list.
const NONE: u32 = u32::MAX;

/// Number of tombstones, so that the late response to an earlier write does not restore a deleted
/// record. Far more than there are concurrent writes.
const DELETIONS: usize = 4096;

/// A record in the store.
#[derive(Clone, Debug)]
pub(crate) struct RecordEntry {
    pub(crate) version: Version,
    pub(crate) bound_at: Micros,
    /// [`Micros::MIN`] stands for none.
    pub(crate) released_at: Micros,
    pub(crate) owner: Owner,
    /// Place of the pool among the ledger's pools.
    pub(crate) pool: u32,
    /// The next record whose id has the same hash.
    next: u32,
    pub(crate) addr: IpAddr,
    pub(crate) phase: Phase,
}

impl RecordEntry {
    pub(crate) fn new(addr: IpAddr, owner: Owner, pool: u32, phase: Phase) -> Self {
        let (version, bound_at) = (Version(0), Micros(0));
        Self {
            version,
            bound_at,
            released_at: Micros::MIN,
            owner,
            pool,
            next: NONE,
            addr,
            phase,
        }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.phase == Phase::Bound
    }
}

/// All records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    entries: Vec<Option<RecordEntry>>,
    unused: Vec<u32>,
    by_addr: ByAddr,
    /// Hash of an id to the first record of its list.
    by_owner: FxHashMap<u32, u32>,
    bound: usize,
    deleted: FxHashMap<IpAddr, Version>,
    deleted_order: BTreeSet<(Version, IpAddr)>,
}

/// Half of the hash suffices to distinguish ids, and halves the size of the map's keys.
fn hash(id: &OwnerId) -> u32 {
    let mut hasher = FxHasher::default();
    id.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

/// Places of the records by address. Plain integers, one tree per family: a third of the memory of
/// one tree over `IpAddr`, and faster to search.
#[derive(Debug, Default)]
struct ByAddr {
    v4: BTreeMap<u32, u32>,
    v6: BTreeMap<u128, u32>,
}

impl ByAddr {
    fn get(&self, addr: IpAddr) -> Option<u32> {
        match addr {
            IpAddr::V4(v4) => self.v4.get(&v4.to_bits()).copied(),
            IpAddr::V6(v6) => self.v6.get(&v6.to_bits()).copied(),
        }
    }

    fn insert(&mut self, addr: IpAddr, at: u32) {
        match addr {
            IpAddr::V4(v4) => self.v4.insert(v4.to_bits(), at),
            IpAddr::V6(v6) => self.v6.insert(v6.to_bits(), at),
        };
    }

    fn remove(&mut self, addr: IpAddr) -> Option<u32> {
        match addr {
            IpAddr::V4(v4) => self.v4.remove(&v4.to_bits()),
            IpAddr::V6(v6) => self.v6.remove(&v6.to_bits()),
        }
    }

    /// The places of `start..=end`, ascending; one of the two families is empty.
    fn within(&self, start: IpAddr, end: IpAddr) -> impl Iterator<Item = u32> {
        let (v4, v6) = match (start, end) {
            (IpAddr::V4(a), IpAddr::V4(b)) if a <= b => (Some(a.to_bits()..=b.to_bits()), None),
            (IpAddr::V6(a), IpAddr::V6(b)) if a <= b => (None, Some(a.to_bits()..=b.to_bits())),
            _ => (None, None),
        };
        let v4 = v4
            .into_iter()
            .flat_map(|range| self.v4.range(range))
            .map(|(_, at)| *at);
        let v6 = v6
            .into_iter()
            .flat_map(|range| self.v6.range(range))
            .map(|(_, at)| *at);
        v4.chain(v6)
    }

    fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

impl Records {
    fn entry(&self, at: u32) -> Option<&RecordEntry> {
        self.entries.get(at as usize)?.as_ref()
    }

    /// The record of an address.
    pub(crate) fn get(&self, addr: IpAddr) -> Option<&RecordEntry> {
        self.entry(self.by_addr.get(addr)?)
    }

    /// Whether an address has a Bound record.
    pub(crate) fn is_bound(&self, addr: IpAddr) -> bool {
        self.get(addr).is_some_and(RecordEntry::is_bound)
    }

    /// Whether a record of this version is newer than the stored record and the tombstone of the address.
    pub(crate) fn is_news(&self, addr: IpAddr, version: Version) -> bool {
        self.get(addr).is_none_or(|entry| entry.version < version)
            && self
                .deleted
                .get(&addr)
                .is_none_or(|deleted| *deleted < version)
    }

    /// Adds a record of an address that has none; an earlier one must be [removed](Self::remove) first.
    pub(crate) fn insert(&mut self, mut entry: RecordEntry) {
        debug_assert!(self.by_addr.get(entry.addr).is_none(), "{}", entry.addr);
        if let Some(version) = self.deleted.remove(&entry.addr) {
            self.deleted_order.remove(&(version, entry.addr));
        }
        let fresh = u32::try_from(self.entries.len()).unwrap_or(NONE);
        let at = self.unused.pop().unwrap_or(fresh);
        let head = self.by_owner.insert(hash(&entry.owner.id), at);
        entry.next = head.unwrap_or(NONE);
        self.bound += usize::from(entry.is_bound());
        self.by_addr.insert(entry.addr, at);
        if let Some(place) = self.entries.get_mut(at as usize) {
            *place = Some(entry);
        } else {
            if self.entries.len() == self.entries.capacity() {
                // Grows by an eighth: doubling would waste memory on most clusters.
                self.entries.reserve_exact(self.entries.len() / 8 + 64);
            }
            self.entries.push(Some(entry));
        }
    }

    /// Removes the record of an address.
    pub(crate) fn remove(&mut self, addr: IpAddr) -> Option<RecordEntry> {
        let at = self.by_addr.remove(addr)?;
        let entry = self.entries.get_mut(at as usize)?.take()?;
        self.unused.push(at);
        self.bound -= usize::from(entry.is_bound());
        self.unchain(hash(&entry.owner.id), at, entry.next);
        Some(entry)
    }

    /// Removes a record from the list of its owner.
    fn unchain(&mut self, key: u32, at: u32, next: u32) {
        let head = self.by_owner.get(&key).copied().unwrap_or(NONE);
        if head == at {
            if next == NONE {
                self.by_owner.remove(&key);
            } else {
                self.by_owner.insert(key, next);
            }
            return;
        }
        let mut before = head;
        while let Some(Some(entry)) = self.entries.get_mut(before as usize) {
            if entry.next == at {
                entry.next = next;
                return;
            }
            before = entry.next;
        }
    }

    /// Adds a tombstone: the record of an address was deleted at this version.
    pub(crate) fn tombstone(&mut self, addr: IpAddr, version: Version) {
        if let Some(old) = self.deleted.insert(addr, version) {
            self.deleted_order.remove(&(old, addr));
        }
        self.deleted_order.insert((version, addr));
        if self.deleted_order.len() > DELETIONS
            && let Some((_, addr)) = self.deleted_order.pop_first()
        {
            self.deleted.remove(&addr);
        }
    }

    /// The records of an id, in no order.
    pub(crate) fn of<'a>(&'a self, id: &'a OwnerId) -> impl Iterator<Item = &'a RecordEntry> {
        let head = self.by_owner.get(&hash(id)).and_then(|at| self.entry(*at));
        std::iter::successors(head, |entry| self.entry(entry.next))
            .filter(move |entry| entry.owner.id == *id)
    }

    /// The records of `start..=end`, ascending.
    pub(crate) fn within(&self, start: IpAddr, end: IpAddr) -> impl Iterator<Item = &RecordEntry> {
        self.by_addr
            .within(start, end)
            .filter_map(|at| self.entry(at))
    }

    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.by_addr.len()
    }

    /// Number of Bound records.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }
}

#[cfg(test)]
mod tests;
