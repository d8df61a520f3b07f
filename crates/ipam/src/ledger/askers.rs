//! The store of the load balancers that wait for the address that they request (REQ-3), by owner, by address and by pool.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rustc_hash::{FxHashMap, FxHashSet};

use super::decision::Request;
use super::queue::Age;
use crate::types::{OwnerId, PoolName};

/// A load balancer that waits.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// The address.
    pub(crate) addr: IpAddr,
    /// The request.
    pub(crate) request: Request,
    /// Whether a pool would allocate the address to it as soon as it is free: it is kept for the oldest of these.
    pub(crate) is_served: bool,
    /// Whether it has another address meanwhile (REQ-4).
    pub(crate) has_address: bool,
    /// Digest of its last explanation; none if it was only enlisted.
    pub(crate) explanation_digest: Option<u64>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Askers {
    by_owner: FxHashMap<OwnerId, Asker>,
    by_addr: BTreeMap<IpAddr, BTreeSet<Age>>,
    /// Those that a pool would serve.
    served: FxHashMap<IpAddr, BTreeSet<Age>>,
    /// Those that name a pool.
    naming: FxHashMap<PoolName, FxHashSet<OwnerId>>,
    /// Those that name none, and that no pool with the address would serve.
    unmatched: BTreeSet<Age>,
    /// Number of those without any address.
    without: usize,
}

fn add<K: std::hash::Hash + Eq>(sets: &mut FxHashMap<K, BTreeSet<Age>>, key: K, age: Age) {
    sets.entry(key).or_default().insert(age);
}

impl Askers {
    /// Number of those without any address.
    pub(crate) fn without(&self) -> usize {
        self.without
    }

    /// All of them.
    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Asker> {
        self.by_owner.values()
    }

    pub(crate) fn get(&self, id: &OwnerId) -> Option<&Asker> {
        self.by_owner.get(id)
    }

    /// Whether any pool would allocate the address to one of them as soon as it is free.
    pub(crate) fn await_it(&self, addr: IpAddr) -> bool {
        self.served.contains_key(&addr)
    }

    /// The one that gets the address.
    pub(crate) fn first(&self, addr: IpAddr) -> Option<&Age> {
        self.served.get(&addr)?.first()
    }

    /// All that ask for an address, oldest first.
    pub(crate) fn at(&self, addr: IpAddr) -> impl Iterator<Item = &OwnerId> {
        let ages = self.by_addr.get(&addr).into_iter().flatten();
        ages.map(|age| &age.id)
    }

    /// All that ask for an address of a span.
    pub(crate) fn within(&self, first: IpAddr, last: IpAddr) -> impl Iterator<Item = &OwnerId> {
        let spans = self.by_addr.range(first..=last);
        spans.flat_map(|(_, ages)| ages).map(|age| &age.id)
    }

    /// All that name a pool.
    pub(crate) fn naming(&self, pool: &str) -> impl Iterator<Item = &OwnerId> {
        self.naming.get(pool).into_iter().flatten()
    }

    /// Those that name no pool, and that no pool with the address would serve: their explanations are about all pools.
    pub(crate) fn unmatched(&self) -> impl Iterator<Item = &Age> {
        self.unmatched.iter()
    }

    /// Adds or replaces one.
    pub(crate) fn insert(&mut self, asker: Asker) {
        let age = Age::of(&asker.request);
        let id = age.id.clone();
        self.remove(&id);
        self.without += usize::from(!asker.has_address);
        self.by_addr
            .entry(asker.addr)
            .or_default()
            .insert(age.clone());
        match &asker.request.pool {
            Some(pool) => {
                let naming = self.naming.entry(pool.clone()).or_default();
                naming.insert(id.clone());
            }
            None if !asker.is_served => {
                self.unmatched.insert(age.clone());
            }
            None => {}
        }
        if asker.is_served {
            add(&mut self.served, asker.addr, age);
        }
        self.by_owner.insert(id, asker);
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, id: &OwnerId) {
        let Some(asker) = self.by_owner.remove(id) else {
            return;
        };
        self.without -= usize::from(!asker.has_address);
        let age = Age::of(&asker.request);
        if let Some(ages) = self.by_addr.get_mut(&asker.addr) {
            ages.remove(&age);
            if ages.is_empty() {
                self.by_addr.remove(&asker.addr);
            }
        }
        if let Some(ages) = self.served.get_mut(&asker.addr) {
            ages.remove(&age);
            if ages.is_empty() {
                self.served.remove(&asker.addr);
            }
        }
        if let Some(pool) = &asker.request.pool
            && let Some(naming) = self.naming.get_mut(pool)
        {
            naming.remove(id);
            if naming.is_empty() {
                self.naming.remove(pool);
            }
        }
        self.unmatched.remove(&age);
    }
}
