//! The store of the load balancers that wait for a withheld pool to confirm their address (EXC-1), by owner, pool and address,
//! so that a change of a pool or an address visits only those that it concerns.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rustc_hash::FxHashMap;

use crate::types::{Owner, OwnerId};

/// An address that a load balancer's status names and a withheld pool may have.
#[derive(Clone, Debug)]
pub(crate) struct HeldBack {
    pub(crate) owner: Owner,
    pub(crate) addr: IpAddr,
    /// The place of the pool.
    pub(crate) pool: u32,
}

/// At most one address of each load balancer.
#[derive(Debug, Default)]
pub(crate) struct HeldBackLbs {
    lbs: FxHashMap<OwnerId, HeldBack>,
    of_pool: FxHashMap<u32, BTreeSet<OwnerId>>,
    at_addr: FxHashMap<IpAddr, BTreeSet<OwnerId>>,
}

impl HeldBackLbs {
    /// Adds a load balancer, in place of an earlier entry.
    pub(crate) fn insert(&mut self, held: HeldBack) {
        let id = &held.owner.id;
        self.remove(id);
        self.of_pool
            .entry(held.pool)
            .or_default()
            .insert(id.clone());
        self.at_addr
            .entry(held.addr)
            .or_default()
            .insert(id.clone());
        self.lbs.insert(id.clone(), held);
    }

    /// Removes a load balancer.
    pub(crate) fn remove(&mut self, id: &OwnerId) {
        let Some(held) = self.lbs.remove(id) else {
            return;
        };
        if let Some(others) = self.of_pool.get_mut(&held.pool) {
            others.remove(id);
            if others.is_empty() {
                self.of_pool.remove(&held.pool);
            }
        }
        if let Some(others) = self.at_addr.get_mut(&held.addr) {
            others.remove(id);
            if others.is_empty() {
                self.at_addr.remove(&held.addr);
            }
        }
    }

    /// Whether it is this address that a load balancer waits for.
    pub(crate) fn is_of(&self, id: &OwnerId, addr: IpAddr) -> bool {
        self.lbs.get(id).is_some_and(|held| held.addr == addr)
    }

    /// All, in no order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &OwnerId> {
        self.lbs.keys()
    }

    /// Those that wait for the pool at this place, by id.
    pub(crate) fn of_pool(&self, pool: u32) -> impl Iterator<Item = &HeldBack> {
        let ids = self.of_pool.get(&pool).into_iter().flatten();
        ids.filter_map(|id| self.lbs.get(id))
    }

    /// The load balancers whose status names the address, by id.
    pub(crate) fn at(&self, addr: IpAddr) -> impl Iterator<Item = &OwnerId> {
        self.at_addr.get(&addr).into_iter().flatten()
    }

    /// Their number.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let sum =
            |sets: &mut dyn Iterator<Item = &BTreeSet<OwnerId>>| sets.map(BTreeSet::len).sum();
        let indexed: [usize; 2] = [
            sum(&mut self.of_pool.values()),
            sum(&mut self.at_addr.values()),
        ];
        assert_eq!(indexed, [self.lbs.len(); 2]);
        self.lbs.len()
    }
}
