//! What a leader knows beyond the stores: the ledger, and who has just gone.
//!
//! It is made when leadership begins and lives behind one lock that is never held across a request. Changes to it come
//! out as keys to be queued, which [`Hub::lead`](crate::hub::Hub::lead) collects, so that no wake-up is forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use harvester_lb_controller_kit::Key;
use harvester_lb_ipam::{Ledger, Micros, PoolName, PoolRanges, PoolSpec, Record, Selector, Tuple};
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

use crate::objects::{Allocation, Pool};
use crate::time;

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
pub struct Lead {
    /// The addresses.
    pub ledger: Ledger,
    /// Who is gone.
    pub departed: HashMap<Key, Departed, FxBuildHasher>,
    /// Load balancers whose Service still shows an address that they are to leave, and since when (REL-4).
    pub moving: HashMap<Key, Instant, FxBuildHasher>,
    /// Load balancers of which only the endpoints that are served follow the world (BE-6).
    pub followers: BTreeSet<Key>,
    /// Guest clusters (namespace and name) of which a node was deleted during their removal (GC-1).
    pub removed_clusters: BTreeSet<Key>,
    /// Names of the pools.
    pools: BTreeSet<PoolName>,
    /// Pools whose status has to be looked at.
    dirty: BTreeSet<PoolName>,
    /// Pools that overlap an older one, and that one (IPA-4).
    crossing: BTreeMap<PoolName, PoolName>,
    /// Whether all that only the maps of pools knew has become records. Until then no pool's status is written: the maps
    /// are the only proof (IPA-1).
    pub imported: bool,
}

impl Lead {
    /// Nothing known yet.
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            departed: HashMap::default(),
            moving: HashMap::default(),
            followers: BTreeSet::new(),
            removed_clusters: BTreeSet::new(),
            pools: BTreeSet::new(),
            dirty: BTreeSet::new(),
            crossing: BTreeMap::new(),
            imported: false,
        }
    }

    /// A pool was made or changed. If its ranges may have, [`Lead::pools_changed`] is to follow, once for any number of
    /// pools.
    pub fn set_pool(&mut self, key: &Key, pool: &Pool) {
        let name = PoolName::from(&*key.name);
        self.ledger.set_pool(pool_spec(&name, pool));
        self.pools.insert(name.clone());
        self.dirty.insert(name);
    }

    /// A pool is gone.
    pub fn remove_pool(&mut self, name: &str) {
        self.ledger.remove_pool(name);
        self.pools.remove(name);
        self.pools_changed();
    }

    /// A change of one pool can begin or end an overlap with any other (IPA-4).
    pub fn pools_changed(&mut self) {
        let overlaps = |name: &PoolName| Some((name.clone(), self.ledger.overlaps(name)?));
        let crossing: BTreeMap<PoolName, PoolName> =
            self.pools.iter().filter_map(overlaps).collect();
        for (name, older) in self.crossing.iter().chain(&crossing) {
            if self.crossing.get(name) != crossing.get(name) {
                self.dirty.extend([name.clone(), older.clone()]);
            }
        }
        self.crossing = crossing;
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
        self.dirty.extend(self.ledger.pools_of(addr).cloned());
        true
    }

    /// A record, or what is left of it, as the watch delivers it.
    pub fn observe_allocation(&mut self, name: &str, allocation: &Allocation) {
        match allocation {
            Allocation::Valid { record, .. } => {
                self.observe(record.clone());
            }
            Allocation::Unreadable { version, .. } => {
                let version = harvester_lb_ipam::Version(version.0);
                self.ledger.block_name(name, version);
            }
        }
    }

    /// A record that is gone.
    pub fn forget(&mut self, name: &str, version: harvester_lb_ipam::Version) {
        let Some(addr) = harvester_lb_ipam::addr::parse_record_name(name) else {
            return;
        };
        let before = self.ledger.record(addr);
        if let Some(before) = before {
            self.dirty.insert(before.spec.pool);
        }
        self.ledger.forget(addr, version);
        self.dirty.extend(self.ledger.pools_of(addr).cloned());
    }

    /// Pools whose status has to be looked at, since the last call, and whether nothing of them is held now, or nothing
    /// free.
    pub fn take_dirty(&mut self) -> Vec<(PoolName, bool)> {
        let dirty = std::mem::take(&mut self.dirty).into_iter();
        dirty
            .map(|pool| {
                let settled = self.ledger.is_settled(&pool);
                (pool, settled)
            })
            .collect()
    }
}

/// What the ledger needs to know of a pool.
pub fn pool_spec(name: &PoolName, pool: &Pool) -> PoolSpec {
    let ranges: Vec<harvester_lb_ipam::RangeSpec> = pool
        .spec
        .as_ref()
        .map(|spec| {
            spec.ranges
                .iter()
                .map(|r| harvester_lb_ipam::RangeSpec {
                    subnet: r.subnet.clone(),
                    start: r.range_start.clone(),
                    end: r.range_end.clone(),
                    gateway: r.gateway.clone(),
                })
                .collect()
        })
        .unwrap_or_default();
    let selector = pool.spec.as_ref().ok().and_then(|s| s.selector.as_ref());
    // A status of our own is behind the records; one of somebody else's tells what no record does.
    let as_of = if pool.is_our_projection() {
        Micros::MIN
    } else {
        time::now()
    };
    let last_allocated = pool
        .counters
        .as_ref()
        .and_then(|(_, _, last)| harvester_lb_ipam::addr::parse(last))
        .map(|addr| (addr, as_of));
    PoolSpec {
        name: name.clone(),
        created: time::created(&pool.meta),
        // A pool that cannot be decoded is one without ranges.
        ranges: PoolRanges::parse(&ranges),
        selector: selector.map(selector_of).unwrap_or_default(),
        last_allocated,
    }
}

fn selector_of(selector: &harvester_lb_api::Selector) -> Selector {
    Selector {
        // The schema admits 0 to 2,147,483,647; what got around it counts as the nearest.
        priority: u32::try_from(selector.priority.unwrap_or(0).max(0)).unwrap_or(u32::MAX),
        network: selector.network.clone().unwrap_or_default(),
        scope: selector
            .scope
            .iter()
            .flatten()
            .map(|t| Tuple {
                project: t.project.clone().unwrap_or_default(),
                namespace: t.namespace.clone().unwrap_or_default(),
                guest_cluster: t.guest_cluster.clone().unwrap_or_default(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
