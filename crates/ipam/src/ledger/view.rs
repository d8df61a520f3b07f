//! Views for the pools' status and the metrics. Every change updates the numbers, so that a view
//! costs nothing until its maps are iterated (POOL-3).

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Ledger;
use super::pool::Pool;
use super::records::RecordEntry;
use crate::types::{Micros, OwnerId, PoolName, Record};

/// A pool's status according to the records (POOL-1, POOL-3).
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    /// Number of addresses that can be allocated (RNG-8, RNG-10); 0 while the ranges are invalid.
    pub total: i64,
    /// Number of these that are neither held nor blocked, whichever pool their records name (ALC-11, IPA-4).
    pub available: i64,
    /// The address allocated last.
    pub last_allocated: Option<IpAddr>,
    /// Length of [`allocated`](Self::allocated).
    pub allocated_len: usize,
    /// Length of [`history`](Self::history).
    pub history_len: usize,
    /// Number of load balancers that wait for an address of this pool.
    pub waiting: usize,
    ledger: &'a Ledger,
    pool: &'a Pool,
    at: u32,
}

impl<'a> PoolView<'a> {
    fn members(&self) -> impl Iterator<Item = &'a RecordEntry> + use<'a> {
        self.pool.members(&self.ledger.records, self.at)
    }

    /// `status.allocated`, by ascending address.
    pub fn allocated(&self) -> impl Iterator<Item = (IpAddr, &'a OwnerId)> + use<'a> {
        let ledger = self.ledger;
        self.members()
            .filter(|entry| entry.is_bound())
            .map(|entry| (entry.addr, ledger.owner_id(entry)))
    }

    /// `status.allocatedHistory`, last released first: without the records that are to be deleted, outside of the pool
    /// or beyond its limit, so that the status is right before the deletion (POOL-5).
    pub fn remembered(&self) -> impl Iterator<Item = (IpAddr, &'a OwnerId)> + use<'a> {
        let (pool, records) = (self.pool, &self.ledger.records);
        let knows_addresses = pool.knows_addresses();
        pool.history
            .iter()
            .rev()
            .filter(move |(_, addr)| !(knows_addresses && pool.outside.contains(addr)))
            .take(self.ledger.settings.history_per_pool)
            .filter_map(|(_, addr)| records.get(*addr))
            .map(|entry| (entry.addr, &entry.owner.id))
    }

    /// All Released records that name this pool, by ascending address, with the time of the release.
    pub fn history(&self) -> impl Iterator<Item = (IpAddr, &'a OwnerId, Micros)> + use<'a> {
        self.members()
            .filter(|entry| !entry.is_bound())
            .map(|entry| (entry.addr, &entry.owner.id, entry.released_at))
    }
}

/// Counts for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bound records.
    pub bound: usize,
    /// Released records.
    pub released: usize,
    /// Addresses reserved until their record is observed.
    pub reserved: usize,
    /// Addresses claimed without a record.
    pub claimed: usize,
    /// Addresses whose record cannot be read.
    pub blocked: usize,
    /// Waiting load balancers.
    pub waiting: usize,
    /// Pools.
    pub pools: usize,
}

impl Ledger {
    /// The status of a pool; none if there is no such pool.
    pub fn projection(&self, name: &str) -> Option<PoolView<'_>> {
        let at = self.pools.find(name)?;
        let pool = &self.pools[at];
        let spec = pool.spec.as_ref()?;
        Some(PoolView {
            total: spec
                .ranges
                .as_ref()
                .map_or(0, crate::range::PoolRanges::total),
            available: pool.available(),
            last_allocated: pool.last,
            allocated_len: pool.named_bound,
            history_len: pool.history.len(),
            waiting: pool.queue.len(),
            ledger: self,
            pool,
            at,
        })
    }

    /// Whether a pool is empty or full: none of its addresses is held or taken, or all are. True for an unknown pool.
    pub fn is_empty_or_full(&self, name: &str) -> bool {
        self.pools.by_name(name).is_none_or(Pool::is_empty_or_full)
    }

    /// IPA-4: an older pool (by creation, then name) whose ranges overlap those of this one; of
    /// several the oldest.
    pub fn overlaps(&self, name: &str) -> Option<PoolName> {
        self.pools.by_name(name)?.older().cloned()
    }

    /// Pools whose number of held addresses, and so whose counters, changed since the last call (ALC-11).
    pub fn take_recounted(&mut self) -> Vec<PoolName> {
        let recounted = std::mem::take(&mut self.recounted).into_iter();
        let pools = recounted.map(|at| &self.pools[at]);
        let existing = pools.filter(|pool| pool.spec.is_some());
        existing.map(|pool| pool.name.clone()).collect()
    }

    /// Pools whose older overlapping pool changed since the last call, and the pools that it was and is (IPA-4).
    pub fn take_overlap_changes(&mut self) -> BTreeSet<PoolName> {
        self.pools.take_overlap_changes()
    }

    /// IPA-7: the Bound records of this pool whose address it could not allocate any more: outside
    /// its ranges, or its gateway. Empty while its ranges are invalid.
    pub fn out_of_pool(&self, name: &str) -> Vec<Record> {
        self.bound_outside(name, false)
    }

    /// EXC-3: the Bound records of this pool whose address it has and excludes.
    pub fn excluded(&self, name: &str) -> Vec<Record> {
        self.bound_outside(name, true)
    }

    fn bound_outside(&self, name: &str, excluded: bool) -> Vec<Record> {
        let Some(pool) = self.pools.by_name(name) else {
            return Vec::new();
        };
        if !pool.knows_addresses() {
            return Vec::new();
        }
        let is_excluded = |addr| pool.ranges().is_some_and(|ranges| ranges.excludes(addr));
        pool.outside
            .iter()
            .filter(|addr| is_excluded(**addr) == excluded)
            .filter_map(|addr| self.records.get(*addr))
            .filter(|entry| entry.is_bound())
            .map(|entry| self.to_record(entry))
            .collect()
    }

    /// The load balancers that an edit of a pool concerns: those with a Bound record or a reservation in it (IPA-7).
    pub fn holders(&self, name: &str) -> BTreeSet<OwnerId> {
        let bound = self
            .pools
            .find(name)
            .into_iter()
            .flat_map(|at| self.pools[at].members(&self.records, at))
            .filter(|entry| entry.is_bound())
            .map(|entry| &entry.owner.id);
        let reserved = self.holds.reserved_in(name).map(|it| &it.owner.id);
        bound.chain(reserved).cloned().collect()
    }

    /// The pools that can allocate an address: their counts change with its record, whichever pool that names (IPA-4).
    pub fn pools_of(&self, addr: IpAddr) -> impl Iterator<Item = &PoolName> {
        let near = self.pools.near(addr).map(|at| &self.pools[at]);
        near.filter(move |pool| pool.usable(addr))
            .map(|pool| &pool.name)
    }

    /// Whether a pool's history may contain the address: the pool can allocate it, or its ranges are
    /// invalid.
    pub(crate) fn may_remember(&self, name: &str, addr: IpAddr) -> bool {
        self.pools
            .by_name(name)
            .and_then(|pool| pool.spec.as_ref())
            .is_some_and(|spec| {
                spec.ranges.as_ref().is_ok_and(|it| it.usable(addr)) || spec.ranges.is_err()
            })
    }

    /// The counts for the metrics.
    pub fn counts(&self) -> Counts {
        let held = |test: fn(&super::holds::Hold) -> bool| {
            self.holds.iter().filter(|hold| test(hold)).count()
        };
        Counts {
            bound: self.records.bound(),
            released: self.records.len() - self.records.bound(),
            reserved: held(|hold| hold.reservation.is_some()),
            claimed: held(|hold| hold.claim.is_some()),
            blocked: held(|hold| hold.blocked.is_some()),
            waiting: self.waiting.len() + self.blocked_by_record.len() + self.askers.without(),
            pools: self.pools.existing().count(),
        }
    }
}
