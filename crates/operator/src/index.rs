//! What is known: the stores, the leader's state, and which keys are due. Changes go in, keys come out; nothing here
//! knows a client or waits.
//!
//! A change comes from a watch, or from a live read ([`crate::client`]); there is a file for each kind. Only a leader has
//! work: on a standby there is no leader's state and the queues are left alone. What happened before leadership is read from
//! the stores when it begins ([`crate::controllers::takeover`]).

mod endpoint_slice;
mod ip_allocation;
mod ip_pool;
pub mod leader_ops;
pub mod leader_state;
mod load_balancer;
mod node;
pub mod queues;
mod service;
pub mod stores;
mod virtual_machine;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_controller_kit::throttle::Throttle;
use harvester_lb_core::backend_addresses::{Addresses, Cidr, Standing};
use harvester_lb_core::cached;
use harvester_lb_ipam::{PoolName, addr};
use harvester_lb_object::Key;
use harvester_lb_prober::Prober;
use leader_state::LeaderState;
use parking_lot::Mutex;
use queues::{Queues, Singleton};
use stores::Stores;
use tokio::time::Instant;

use crate::throttles;
use crate::timings::Timings;

/// What is known in one term of leadership (RUN-5). Stores and backend addresses are those of the process, all else is the
/// leader's and goes with it.
pub struct Index {
    /// The newest copies.
    pub stores: Stores,
    /// What is due.
    pub queues: Queues,
    /// When a pool's status may be written again (POOL-3).
    pub pool_throttle: Throttle<PoolName>,
    /// Which addresses no backend may have, and who reports which (BE-8). Kept on a standby too: it follows the stores step
    /// by step, and is complete when they are.
    addresses: Arc<Mutex<Addresses>>,
    /// Health checks end with their load balancer, also while this process does not lead.
    prober: Prober,
    leader: Mutex<Option<LeaderState>>,
}

impl Index {
    /// An index of these stores, without a leader's state. No backend may have an address of the ranges `denied` (BE-8).
    pub fn new(stores: Stores, prober: Prober, denied: Vec<Cidr>, timings: &Timings) -> Self {
        let addresses = Arc::new(Mutex::new(Addresses::new(denied)));
        Self::over(stores, addresses, prober, timings)
    }

    /// The index of the next term: it knows the same objects and nothing of this term's leader.
    #[must_use]
    pub fn next_term(&self, timings: &Timings) -> Self {
        let addresses = Arc::clone(&self.addresses);
        Self::over(self.stores.clone(), addresses, self.prober.clone(), timings)
    }

    fn over(
        stores: Stores,
        addresses: Arc<Mutex<Addresses>>,
        prober: Prober,
        timings: &Timings,
    ) -> Self {
        Self {
            stores,
            queues: Queues::new(timings),
            pool_throttle: throttles::of_pool_statuses(timings),
            addresses,
            prober,
            leader: Mutex::new(None),
        }
    }

    /// Leadership begins: `begin` makes the leader's state from the stores, under the lock, so that no change of a store
    /// falls between. Not in a term that is over, or about to be, while it has still begun.
    pub fn become_leader(&self, begin: impl FnOnce() -> LeaderState) {
        let mut leader = self.leader.lock();
        // The queues are closed before the state is dropped, so one of the two sees the other.
        if !self.queues.lbs.is_closed() {
            *leader = Some(begin());
        }
    }

    /// Ends the term: the leader's state is dropped, and nothing is due any more. What is under way finds neither.
    pub fn end_term(&self) {
        self.queues.close();
        *self.leader.lock() = None;
    }

    /// Whether there is a leader's state, without which nothing is queued.
    pub fn is_leader(&self) -> bool {
        self.leader.lock().is_some()
    }

    /// Works on the leader's state, then queues what that has made due. `None` if this process does not lead.
    fn with_leader<T>(&self, work: impl FnOnce(&mut LeaderState) -> T) -> Option<T> {
        let mut guard = self.leader.lock();
        let leader = guard.as_mut()?;
        let answer = work(leader);
        let wakes = leader.ledger.take_wakes();
        let has_suspects = leader.ledger.has_suspects();
        // Before the lock is given up: the last word on a pool must be what it has come to.
        let pools: Vec<(PoolName, Duration)> = leader
            .take_dirty()
            .into_iter()
            .map(|(pool, settled)| {
                let delay = self.pool_throttle.changed(&pool, settled, Instant::now());
                (pool, delay)
            })
            .collect();
        drop(guard);
        for id in wakes {
            self.queues.lbs.add(cached::key(&id));
        }
        if has_suspects {
            self.queues.tell.add(Singleton);
        }
        for (pool, delay) in pools {
            self.queues.pools.add_after(pool, delay);
        }
        Some(answer)
    }

    /// What is known of an address that a virtual machine reports (BE-8).
    pub fn standing(&self, address: Ipv4Addr) -> Standing {
        let record = Key::new("", addr::record_name(address.into()));
        let allocated = self.stores.allocations.get(&record).is_some();
        self.addresses.lock().standing(address, allocated)
    }

    /// Queues load balancers.
    fn queue_lbs(&self, lbs: impl IntoIterator<Item = Key>) {
        for lb in lbs {
            self.queues.lbs.add(lb);
        }
    }

    /// Queues a load balancer that exists, or that has left something behind.
    fn queue_lb_if_known(&self, key: &Key) {
        let left_behind = self.with_leader(|leader| {
            leader.deleted_lbs.contains_key(key)
                || !leader.ledger.records_of(&cached::id(key)).is_empty()
        });
        if let Some(left_behind) = left_behind
            && (left_behind || self.stores.lbs.get(key).is_some())
        {
            self.queues.lbs.add(key.clone());
        }
    }

    /// Queues a guest cluster.
    fn queue_guest_cluster(&self, cluster: Key) {
        if self.is_leader() {
            self.queues.guests.add(cluster);
        }
    }
}

#[cfg(test)]
mod tests;
