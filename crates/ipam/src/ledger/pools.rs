//! All pools of the ledger, by place, by name and by address.

mod overlap;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::{Index, IndexMut};

use super::near::Near;
use super::pool::{Pool, Spec};
use super::records::Records;
use crate::interval::IntervalSet;
use crate::select::Selector;
use crate::types::PoolName;

/// All pools. A place is reused for another name only when nothing refers to it any more.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    places: Vec<Pool>,
    unused: Vec<u32>,
    by_name: BTreeMap<PoolName, u32>,
    /// Places of those that exist.
    existing: BTreeSet<u32>,
    /// Index of their ranges.
    near: Near,
    /// Pools whose older overlapping pool changed, and the pools that it was and is (IPA-4).
    overlap_changed: BTreeSet<PoolName>,
}

impl Pools {
    /// The place of a name.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The pool of a name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Pool> {
        self.find(name).map(|at| &self[at])
    }

    /// The place of a name, added if there is none.
    pub(crate) fn intern(&mut self, name: &PoolName) -> u32 {
        if let Some(at) = self.find(name) {
            return at;
        }
        let pool = Pool::new(PoolName::clone(name));
        let at = if let Some(at) = self.unused.pop() {
            self[at] = pool;
            at
        } else {
            self.places.push(pool);
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        };
        self.by_name.insert(PoolName::clone(name), at);
        at
    }

    /// Frees the place if nothing needs it.
    pub(crate) fn tidy(&mut self, at: u32) {
        if self[at].is_idle() && self.by_name.get(&self[at].name) == Some(&at) {
            let name = PoolName::clone(&self[at].name);
            self.by_name.remove(&name);
            self[at] = Pool::new(PoolName::from(""));
            self.unused.push(at);
        }
    }

    /// Sets or removes the spec of a pool. Visits only those other pools whose ranges overlap its own.
    pub(crate) fn replace_spec(
        &mut self,
        at: u32,
        spec: Option<Spec>,
        records: &Records,
        taken: &IntervalSet,
        proposed: &BTreeSet<IpAddr>,
    ) {
        let is_moved = match (&self[at].spec, &spec) {
            (Some(old), Some(new)) => (old.created, &old.ranges) != (new.created, &new.ranges),
            (old, new) => old.is_some() || new.is_some(),
        };
        if !is_moved {
            self[at].spec = spec;
            // Withheld may have changed.
            self[at].update_queue_free();
            return;
        }
        let members = self[at].members(records, at);
        let members = members.map(|entry| entry.addr).collect();
        self.remove_overlaps(at);
        if spec.is_some() {
            self.existing.insert(at);
        } else {
            self.existing.remove(&at);
        }
        self[at].spec = spec;
        self[at].count(members, taken, proposed);
        self.add_overlaps(at);
    }

    /// Places of the pools that exist.
    pub(crate) fn existing(&self) -> impl Iterator<Item = u32> {
        self.existing.iter().copied()
    }

    /// The same by name.
    pub(crate) fn by_name_existing(&self) -> impl Iterator<Item = u32> {
        let all = self.by_name.values().copied();
        all.filter(|at| self.existing.contains(at))
    }

    /// Calls `each` for every pool with a range that contains the address.
    pub(crate) fn for_each_near(&mut self, addr: IpAddr, mut each: impl FnMut(u32, &mut Pool)) {
        for at in self.near.at(addr) {
            each(at, &mut self.places[at as usize]);
        }
    }

    /// Places of the pools with a range that contains the address.
    pub(crate) fn near(&self, addr: IpAddr) -> impl Iterator<Item = u32> {
        self.near.at(addr)
    }

    /// All pools, including missing ones that are only named.
    pub(crate) fn all(&self) -> &[Pool] {
        &self.places
    }

    /// Name and selector of each existing pool.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = (&str, &Selector)> {
        self.existing().filter_map(|at| self.selector(at))
    }

    /// Name and selector of a pool, if it exists.
    pub(crate) fn selector(&self, at: u32) -> Option<(&str, &Selector)> {
        let pool = &self[at];
        Some((&*pool.name, &pool.spec.as_ref()?.selector))
    }
}

impl Index<u32> for Pools {
    type Output = Pool;

    fn index(&self, at: u32) -> &Pool {
        &self.places[at as usize]
    }
}

impl IndexMut<u32> for Pools {
    fn index_mut(&mut self, at: u32) -> &mut Pool {
        &mut self.places[at as usize]
    }
}
