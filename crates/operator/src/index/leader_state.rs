//! What a leader knows beyond the stores: the ledger, and who has just gone.
//!
//! It is made when leadership begins and lives behind one lock that is never held across a request. Changes to it come
//! out as keys to be queued, which [`Index::with_leader`](crate::index::Index::with_leader) collects, so that no wake-up is forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use harvester_lb_core::cached::{self, Allocation, Pool};
use harvester_lb_core::pool_spec::pool_spec;
use harvester_lb_core::unsupported;
use harvester_lb_ipam::{
    Evidence, Ledger, Micros, Owner, OwnerId, Phase, PoolName, Record, RecordSpec, Request,
};
use harvester_lb_object::Key;
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

use crate::clock;

/// How many removed guest clusters are remembered, the last ones. No watch lags behind by so many.
const REMOVED_CLUSTERS: usize = 1024;

/// A load balancer that is gone and whose address is still to be released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// Its uid.
    pub uid: String,
    /// Whether it had a Service.
    pub had_service: bool,
    /// Whether its deletion was seen in the watch, or found by a live read (IPA-3).
    pub certain: bool,
}

/// What a leader knows beyond the stores.
pub struct LeaderState {
    /// The addresses.
    pub ledger: Ledger,
    /// Who is gone.
    pub departed: HashMap<Key, Departed, FxBuildHasher>,
    /// What is not this version's to touch (IPA-9).
    pub unsupported: unsupported::Index,
    /// Load balancers whose Service still shows an address that they are to leave, and since when (REL-4).
    pub moving: HashMap<Key, Instant, FxBuildHasher>,
    /// Guest clusters (namespace and name) of which a node was deleted during their removal, and when the last was (GC-1,
    /// GC-2). Kept, since a load balancer that was made before may be seen later.
    pub removed_clusters: BTreeMap<Key, Micros>,
    /// Load balancers of which only the endpoints that are served follow the world (BE-6).
    pub followers: BTreeSet<Key>,
    /// Pools whose status has to be looked at.
    dirty: BTreeSet<PoolName>,
    /// What only the map of a pool says, and what is to become a record of it. Until it has, the status of that pool is not
    /// written: the map is the only proof (IPA-1, RUN-1).
    unimported: BTreeMap<IpAddr, RecordSpec>,
    /// Addresses that living load balancers name, and whose records are of owners that are gone and could not be released yet,
    /// with those who have asked for them meanwhile (RUN-1).
    unreleased: BTreeMap<IpAddr, BTreeSet<OwnerId>>,
}

impl LeaderState {
    /// Nothing known yet.
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            departed: HashMap::default(),
            unsupported: unsupported::Index::default(),
            moving: HashMap::default(),
            removed_clusters: BTreeMap::new(),
            followers: BTreeSet::new(),
            dirty: BTreeSet::new(),
            unimported: BTreeMap::new(),
            unreleased: BTreeMap::new(),
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

    /// Records are to be made of this, which only the maps of pools say.
    pub fn import(&mut self, records: impl IntoIterator<Item = RecordSpec>) {
        let records = records.into_iter();
        self.unimported
            .extend(records.map(|spec| (spec.addr, spec)));
    }

    /// An address has a record by now, whoever made it.
    pub fn imported(&mut self, addr: IpAddr) {
        if let Some(spec) = self.unimported.remove(&addr) {
            self.dirty.insert(spec.pool);
        }
    }

    /// Whether somebody else holds the address of whom only a map says so. It counts as taken again then: a holder that is
    /// on its way out, or wants another address, has given up its claim and not the address (RUN-1).
    pub fn keep_unimported(&mut self, addr: IpAddr, asks: &Owner) -> bool {
        let held = self.unimported.get(&addr);
        let Some(held) = held.filter(|it| it.phase == Phase::Bound && it.owner != *asks) else {
            return false;
        };
        self.ledger.abandon(&asks.id, addr);
        let evidence = Evidence::Trusted(held.pool.clone());
        self.ledger.claim(addr, held.owner.clone(), evidence);
        true
    }

    /// What is to become a record before the status of a pool may be written.
    pub fn unimported(&self, pool: &str) -> Vec<RecordSpec> {
        let of_pool = self.unimported.values().filter(|it| *it.pool == *pool);
        of_pool.cloned().collect()
    }

    /// The pools whose status may not be written yet.
    pub fn unimported_pools(&self) -> BTreeSet<PoolName> {
        self.unimported.values().map(|it| it.pool.clone()).collect()
    }

    /// Records of owners that are gone could not be released, although living load balancers name their addresses.
    pub fn keep_unreleased(&mut self, addrs: BTreeSet<IpAddr>) {
        self.unreleased = addrs
            .into_iter()
            .map(|addr| (addr, BTreeSet::new()))
            .collect();
    }

    /// Who is gone and whose record is still in the way of the address that a load balancer's status names. When that ends,
    /// the load balancer is woken.
    pub fn waits_for_release(&mut self, request: &Request) -> Option<OwnerId> {
        let addr = request.status.as_ref()?.addr;
        let gone = self.in_the_way(addr).filter(|id| *id != request.owner.id);
        match (&gone, self.unreleased.get_mut(&addr)) {
            (Some(_), Some(waiting)) => _ = waiting.insert(request.owner.id.clone()),
            _ => self.settle_release(addr),
        }
        gone
    }

    /// Whose record of an address should have been released and is not yet.
    fn in_the_way(&self, addr: IpAddr) -> Option<OwnerId> {
        self.unreleased.get(&addr)?;
        let record = self.ledger.record(addr)?;
        let holder = record.spec.owner.id;
        let is_gone = self.departed.contains_key(&cached::key(&holder));
        (record.spec.phase == Phase::Bound && is_gone).then_some(holder)
    }

    /// Wakes those who wait for the release of an address, if nobody who is gone holds it any more.
    fn settle_release(&mut self, addr: IpAddr) {
        if self.in_the_way(addr).is_none() {
            for id in self.unreleased.remove(&addr).into_iter().flatten() {
                self.ledger.wake(&id);
            }
        }
    }

    /// A load balancer of this name is there, or has nothing left to be released.
    pub fn is_there(&mut self, key: &Key) {
        if self.departed.remove(key).is_some() {
            let unreleased: Vec<IpAddr> = self.unreleased.keys().copied().collect();
            for addr in unreleased {
                self.settle_release(addr);
            }
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
        self.settle_release(addr);
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
        self.settle_release(addr);
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
