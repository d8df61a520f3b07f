//! The store of records: by address in ascending order, and by owner.
//!
//! Sixty thousand of them must cost little, so the records lie in one vector; the index by address
//! holds positions, and the index by owner is a chain through the records themselves, which begins
//! in a map from the hash of the id. A tenant who finds names of equal hash makes the chain of
//! these names longer and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use rustc_hash::{FxHashMap, FxHasher};

use crate::types::{Micros, Owner, OwnerId, Phase, Version};

/// Ends a chain.
const NONE: u32 = u32::MAX;

/// How many deletions are remembered, so that the late answer of an earlier write does not bring a
/// deleted record back. Far more than writes can be under way at once.
const DELETIONS: usize = 4096;

/// A record in the store.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
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

impl Slot {
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
    slots: Vec<Option<Slot>>,
    unused: Vec<u32>,
    by_addr: BTreeMap<IpAddr, u32>,
    /// Hash of an id to the first record of its chain.
    by_owner: FxHashMap<u64, u32>,
    bound: usize,
    deleted: FxHashMap<IpAddr, Version>,
    deleted_order: BTreeSet<(Version, IpAddr)>,
}

fn hash(id: &OwnerId) -> u64 {
    let mut hasher = FxHasher::default();
    id.hash(&mut hasher);
    hasher.finish()
}

impl Records {
    fn slot(&self, at: u32) -> Option<&Slot> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// The record of an address.
    pub(crate) fn get(&self, addr: IpAddr) -> Option<&Slot> {
        self.slot(*self.by_addr.get(&addr)?)
    }

    /// Whether an address is held.
    pub(crate) fn is_bound(&self, addr: IpAddr) -> bool {
        self.get(addr).is_some_and(Slot::is_bound)
    }

    /// Whether a record of this version is news: neither older than what is stored nor deleted
    /// since.
    pub(crate) fn is_news(&self, addr: IpAddr, version: Version) -> bool {
        self.get(addr).is_none_or(|slot| slot.version < version)
            && self
                .deleted
                .get(&addr)
                .is_none_or(|deleted| *deleted < version)
    }

    /// Stores a record; gives the one that it replaces.
    pub(crate) fn insert(&mut self, mut slot: Slot) -> Option<Slot> {
        let old = self.remove(slot.addr);
        if let Some(version) = self.deleted.remove(&slot.addr) {
            self.deleted_order.remove(&(version, slot.addr));
        }
        let fresh = u32::try_from(self.slots.len()).unwrap_or(NONE);
        let at = self.unused.pop().unwrap_or(fresh);
        let head = self.by_owner.insert(hash(&slot.owner.id), at);
        slot.next = head.unwrap_or(NONE);
        self.bound += usize::from(slot.is_bound());
        self.by_addr.insert(slot.addr, at);
        match self.slots.get_mut(at as usize) {
            Some(place) => *place = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        old
    }

    /// Takes the record of an address out.
    pub(crate) fn remove(&mut self, addr: IpAddr) -> Option<Slot> {
        let at = self.by_addr.remove(&addr)?;
        let slot = self.slots.get_mut(at as usize)?.take()?;
        self.unused.push(at);
        self.bound -= usize::from(slot.is_bound());
        self.unchain(hash(&slot.owner.id), at, slot.next);
        Some(slot)
    }

    /// Closes the gap that a record leaves in its chain.
    fn unchain(&mut self, key: u64, at: u32, next: u32) {
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
        while let Some(Some(slot)) = self.slots.get_mut(before as usize) {
            if slot.next == at {
                slot.next = next;
                return;
            }
            before = slot.next;
        }
    }

    /// Remembers that the record of an address was deleted at this version.
    pub(crate) fn bury(&mut self, addr: IpAddr, version: Version) {
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
    pub(crate) fn of<'a>(&'a self, id: &'a OwnerId) -> impl Iterator<Item = &'a Slot> {
        let head = self.by_owner.get(&hash(id)).and_then(|at| self.slot(*at));
        std::iter::successors(head, |slot| self.slot(slot.next))
            .filter(move |slot| slot.owner.id == *id)
    }

    /// The records of `start..=end`, ascending.
    pub(crate) fn within(&self, start: IpAddr, end: IpAddr) -> impl Iterator<Item = &Slot> {
        self.by_addr
            .range(start..=end.max(start))
            .filter_map(|(_, at)| self.slot(*at))
    }

    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.by_addr.len()
    }

    /// Number of addresses held.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }
}

#[cfg(test)]
mod tests;
