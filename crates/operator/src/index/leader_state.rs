//! What a leader knows beyond the stores: the ledger, who has just gone, what is not this version's to touch, and what is
//! under way.
//!
//! It is made from the stores when leadership begins and lives in the index behind one lock that is never held across a
//! request. Whoever works reaches it by the methods of [`leader_ops`](crate::index::leader_ops) alone. What a change of it
//! makes due, the index collects and queues before it answers, so that no wake-up is forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use harvester_lb_core::cached::{self, Allocation, Pool};
use harvester_lb_core::pool_spec::pool_spec;
use harvester_lb_core::unsupported;
use harvester_lb_ipam::{Ledger, Micros, Phase, PoolName, Record, Settings};
use harvester_lb_object::Key;
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;
use tracing::warn;

use super::stores::Stores;
use crate::clock;

/// How many removed guest clusters are remembered, the last ones. No watch lags behind by so many.
const REMOVED_CLUSTERS: usize = 1024;

/// A load balancer that is gone and whose address is still to be released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedLb {
    /// Its uid.
    pub uid: String,
    /// Whether it had a Service.
    pub had_service: bool,
    /// Only a list has shown that it is gone; a live read has to confirm it before its address is released (IPA-3).
    pub final_state_unknown: bool,
}

/// What a leader knows beyond the stores.
pub struct LeaderState {
    /// The addresses.
    pub ledger: Ledger,
    /// Load balancers that are gone and whose addresses are still to be released.
    pub(super) deleted_lbs: HashMap<Key, DeletedLb, FxBuildHasher>,
    /// What is not this version's to touch (IPA-9).
    pub(super) unsupported: unsupported::Index,
    /// Load balancers whose Service still shows an address that they are to leave, and since when (REL-4).
    pub(super) moving: HashMap<Key, Instant, FxBuildHasher>,
    /// Guest clusters (namespace and name) of which a node was deleted during their removal, and when the last was (GC-1,
    /// GC-2). Kept, since a load balancer that was made before may be seen later.
    pub(super) removed_clusters: BTreeMap<Key, Micros>,
    /// Load balancers of which only the endpoints that are served follow the world (BE-6).
    pub(super) followers: BTreeSet<Key>,
    /// Pools whose status has to be looked at.
    dirty: BTreeSet<PoolName>,
}

impl LeaderState {
    /// Nothing known yet.
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            deleted_lbs: HashMap::default(),
            unsupported: unsupported::Index::default(),
            moving: HashMap::default(),
            removed_clusters: BTreeMap::new(),
            followers: BTreeSet::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// All that the stores know. Nothing is claimed yet: that is for whoever knows what the maps of the Go operator say.
    pub fn from_stores(stores: &Stores) -> Self {
        let mut leader = Self::new(Ledger::new(Settings::default()));
        for (key, pool) in stores.pools.all() {
            leader.set_pool(&key, &pool);
        }
        for (key, allocation) in stores.allocations.all() {
            if let Allocation::Unreadable { why, .. } = &*allocation {
                warn!(record = %key, why, "a record cannot be read; its address is given to nobody");
            }
            leader.observe_allocation(&key.name, &allocation);
        }
        for (key, service) in stores.services.all() {
            let shown = cached::shown_addresses(&service);
            if !shown.is_empty() {
                leader.ledger.set_shown(&cached::id(&key), &shown);
            }
        }
        leader.unsupported = stores.unsupported();
        for (_, allocation) in stores.allocations.all() {
            if let Allocation::Valid { record, .. } = &*allocation {
                leader.note_owner(stores, record);
            }
        }
        leader
    }

    /// A record whose owner is not there is released only after a live read (IPA-3 a).
    fn note_owner(&mut self, stores: &Stores, record: &Record) {
        let owner = cached::key(&record.spec.owner.id);
        if record.spec.phase == Phase::Bound && stores.lbs.get(&owner).is_none() {
            let deleted = DeletedLb {
                uid: record.spec.owner.uid.to_string(),
                had_service: true,
                final_state_unknown: true,
            };
            self.deleted_lbs.insert(owner, deleted);
        }
    }

    /// A pool was made or changed.
    pub fn set_pool(&mut self, key: &Key, pool: &Pool) {
        let name = PoolName::from(&*key.name);
        self.ledger.set_pool(pool_spec(&name, pool, clock::now()));
        self.dirty.insert(name);
    }

    /// A node of a guest cluster went with its cluster (GC-2).
    pub fn guest_cluster_removed(&mut self, cluster: &Key, at: Micros) {
        let last = self.removed_clusters.entry(cluster.clone()).or_insert(at);
        *last = at.max(*last);
        if self.removed_clusters.len() > REMOVED_CLUSTERS {
            let oldest = self.removed_clusters.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(cluster, _)| cluster.clone()) {
                self.removed_clusters.remove(&oldest);
            }
        }
    }

    /// An address has a record by now, whoever made it. The status of its pool may be written if that was the last.
    pub fn imported(&mut self, addr: IpAddr) {
        self.dirty.extend(self.ledger.imported(addr));
    }

    /// Records of owners that are gone could not be released, although living load balancers name their addresses (RUN-1).
    pub fn await_release(&mut self, addrs: BTreeSet<IpAddr>) {
        for addr in addrs {
            let holder = self.ledger.record(addr).map(|it| it.spec.owner.id);
            if holder.is_some_and(|id| self.deleted_lbs.contains_key(&cached::key(&id))) {
                self.ledger.await_release(addr);
            }
        }
    }

    /// A load balancer of this name is there, or has nothing left to be released.
    pub fn is_there(&mut self, key: &Key) {
        if self.deleted_lbs.remove(key).is_some() {
            self.ledger.stop_awaiting(&cached::id(key));
        }
    }

    /// The load balancers that what is not this version's to touch concerns: those it names, and who holds an address that
    /// it has let go of (IPA-9).
    pub fn concerned(&self, news: unsupported::Concerned) -> BTreeSet<Key> {
        let mut all = news.lbs;
        let records = news
            .addrs
            .into_iter()
            .filter_map(|addr| self.ledger.record(addr));
        all.extend(records.map(|record| cached::key(&record.spec.owner.id)));
        all
    }

    /// A pool is gone.
    pub fn remove_pool(&mut self, name: &str) {
        self.ledger.remove_pool(name);
    }

    /// A record as the API server holds it.
    pub fn observe(&mut self, record: Record) -> bool {
        let addr = record.spec.addr;
        let before = self.ledger.record(addr);
        let pool = record.spec.pool.clone();
        if !self.ledger.observe(record) {
            return false;
        }
        if let Some(before) = before {
            self.dirty.insert(before.spec.pool);
        }
        self.dirty.insert(pool);
        true
    }

    /// A record, or what is left of it, as the watch delivers it.
    pub fn observe_allocation(&mut self, name: &str, allocation: &Allocation) {
        match allocation {
            Allocation::Valid { record, .. } => {
                self.observe(record.clone());
            }
            Allocation::Unreadable { version, .. } => {
                self.ledger.block_name(name, *version);
            }
            // IPA-8: it holds no address of a pool.
            Allocation::Reserved => {}
        }
    }

    /// A record that is gone.
    pub fn forget(&mut self, name: &str, version: harvester_lb_object::Version) {
        let Some(addr) = harvester_lb_ipam::addr::parse_record_name(name) else {
            return;
        };
        let before = self.ledger.record(addr);
        if let Some(before) = before {
            self.dirty.insert(before.spec.pool);
        }
        self.ledger.forget(addr, version);
    }

    /// Pools whose status has to be looked at, since the last call, and whether nothing of them is held now, or nothing
    /// free.
    pub fn take_dirty(&mut self) -> Vec<(PoolName, bool)> {
        // An edit of one pool begins and ends the overlap of others (IPA-4).
        self.dirty.append(&mut self.ledger.take_crossed());
        // Claims, Services and unreadable records count too (ALC-11).
        self.dirty.extend(self.ledger.take_recounted());
        let dirty = std::mem::take(&mut self.dirty).into_iter();
        dirty
            .map(|pool| {
                let settled = self.ledger.is_settled(&pool);
                (pool, settled)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
