//! The index: stores, leader state and work queues. It turns changes of objects into queued keys, without I/O.
//!
//! A change comes from a watch, a live read or the response to a write ([`crate::client`]); each kind has a file. A standby
//! has no leader state and queues nothing; a new leader derives both from the stores ([`crate::controllers::takeover`]).

mod doubt;
mod endpoint_slice;
mod ip_allocation;
mod ip_pool;
mod joins;
pub mod leader_ops;
pub mod leader_state;
mod load_balancer;
mod node;
mod offers;
pub mod queues;
mod service;
pub mod sharing_ops;
pub mod stores;
mod virtual_machine;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_controller_kit::throttle::Throttle;
use harvester_lb_core::backend_addresses::{AddressVerdict, Addresses};
use harvester_lb_core::cached;
use harvester_lb_ipam::{PoolName, addr};
use harvester_lb_object::Key;
use harvester_lb_prober::Prober;
use leader_state::LeaderState;
use parking_lot::Mutex;
use queues::{Queues, Singleton};
use stores::Stores;
use tokio::time::Instant;

use crate::settings::Settings;
use crate::throttles;
use crate::timings::Timings;

/// The index of one leadership term (RUN-5). Stores and backend addresses live as long as the process; the rest is dropped
/// at the end of the term.
pub struct Index {
    /// Decisions of the administrator.
    pub settings: Arc<Settings>,
    /// The cached objects.
    pub stores: Stores,
    /// The work queues.
    pub queues: Queues,
    /// Throttle of pool status writes (POOL-3).
    pub pool_throttle: Throttle<PoolName>,
    /// Refused and reported addresses (BE-8). Updated on a standby too, from every change of the stores.
    addresses: Arc<Mutex<Addresses>>,
    /// Health checks stop when their load balancer is deleted, on a standby too.
    prober: Prober,
    leader: Mutex<Option<LeaderState>>,
}

impl Index {
    /// An index of these stores, without leader state.
    pub fn new(stores: Stores, prober: Prober, settings: Settings, timings: &Timings) -> Self {
        let denied = settings.denied_to_backends.clone();
        let addresses = Arc::new(Mutex::new(Addresses::new(denied)));
        Self::over(stores, addresses, prober, Arc::new(settings), timings)
    }

    /// The index of the next term: with the same stores and without leader state.
    #[must_use]
    pub fn next_term(&self, timings: &Timings) -> Self {
        let addresses = Arc::clone(&self.addresses);
        let settings = Arc::clone(&self.settings);
        let (stores, prober) = (self.stores.clone(), self.prober.clone());
        Self::over(stores, addresses, prober, settings, timings)
    }

    fn over(
        stores: Stores,
        addresses: Arc<Mutex<Addresses>>,
        prober: Prober,
        settings: Arc<Settings>,
        timings: &Timings,
    ) -> Self {
        Self {
            settings,
            stores,
            queues: Queues::new(timings),
            pool_throttle: throttles::of_pool_statuses(timings),
            addresses,
            prober,
            leader: Mutex::new(None),
        }
    }

    /// Sets the leader state. `begin` builds it from the stores under the lock, so that no change of a store is missed. No-op
    /// if the term has ended meanwhile.
    pub fn become_leader(&self, begin: impl FnOnce() -> LeaderState) {
        let mut leader = self.leader.lock();
        // end_term closes the queues before it drops the state, so a concurrent end is noticed here or drops this state.
        if !self.queues.lbs.is_closed() {
            *leader = Some(begin());
        }
    }

    /// Ends the term: closes the queues and drops the leader state. Reconciles in progress then get [`NotLeader`].
    ///
    /// [`NotLeader`]: leader_ops::NotLeader
    pub fn end_term(&self) {
        self.queues.close();
        *self.leader.lock() = None;
    }

    /// Whether the leader state exists. Without it nothing is queued.
    pub fn is_leader(&self) -> bool {
        self.leader.lock().is_some()
    }

    /// Runs `work` on the leader state, then queues the load balancers and pools that it affects. `None` on a standby.
    fn with_leader<T>(&self, work: impl FnOnce(&mut LeaderState) -> T) -> Option<T> {
        let mut guard = self.leader.lock();
        let leader = guard.as_mut()?;
        let answer = work(leader);
        let wakes = leader.ledger.take_wakes();
        let may_have_outdated = leader.ledger.may_have_outdated();
        // Under the lock, so that the throttle sees the changes of a pool in their order.
        let pools: Vec<(PoolName, Duration)> = leader
            .take_dirty()
            .into_iter()
            .map(|(pool, is_empty_or_full)| {
                let delay = self
                    .pool_throttle
                    .changed(&pool, is_empty_or_full, Instant::now());
                (pool, delay)
            })
            .collect();
        drop(guard);
        for id in wakes {
            self.queues.lbs.add(cached::key(&id));
        }
        if may_have_outdated {
            self.queues.waiting_messages.add(Singleton);
        }
        for (pool, delay) in pools {
            self.queues.pools.add_after(pool, delay);
        }
        Some(answer)
    }

    /// Whether a backend may have an address that a virtual machine reports (BE-8).
    pub fn address_verdict(&self, address: Ipv4Addr) -> AddressVerdict {
        let record = Key::new("", addr::record_name(address.into()));
        let is_leased = || self.with_leader(|leader| leader.is_leased(address.into()));
        let has_record = self.stores.allocations.get(&record).is_some();
        let allocated = has_record || is_leased() == Some(true);
        self.addresses.lock().address_verdict(address, allocated)
    }

    /// Queues load balancers.
    fn queue_lbs(&self, lbs: impl IntoIterator<Item = Key>) {
        for lb in lbs {
            self.queues.lbs.add(lb);
        }
    }

    /// Queues a load balancer that exists, or a deleted one that is not cleaned up yet.
    pub(crate) fn queue_lb_if_known(&self, key: &Key) {
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
            self.queues.guest_clusters.add(cluster);
        }
    }
}

#[cfg(test)]
mod tests;
