//! What the status of a pool and the metrics show. Every number here is kept up to date by each
//! change, so that a view costs nothing until its maps are walked (POOL-3).

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Ledger;
use super::pools::Pool;
use super::records::RecordEntry;
use crate::types::{Micros, OwnerId, PoolName, Record};

/// A pool's status as the records have it (POOL-1, POOL-3).
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    /// How many addresses can be handed out (RNG-8, RNG-10); 0 while the ranges are refused.
    pub total: i64,
    /// How many of them nobody holds, blocks or excludes, in whatever pool (ALC-11, IPA-4).
    pub available: i64,
    /// The address taken last.
    pub last_allocated: Option<IpAddr>,
    /// Length of [`allocated`](Self::allocated).
    pub allocated_len: usize,
    /// Length of [`history`](Self::history).
    pub history_len: usize,
    /// How many wait for an address of this pool.
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
        self.members()
            .filter(|slot| slot.is_bound())
            .map(|slot| (slot.addr, &slot.owner.id))
    }

    /// `status.allocatedHistory`, released last first: what is left once the history that is too much is deleted. So the
    /// status is right before that is done (POOL-5).
    pub fn remembered(&self) -> impl Iterator<Item = (IpAddr, &'a OwnerId)> + use<'a> {
        let (pool, records) = (self.pool, &self.ledger.records);
        let judged = pool.is_judged();
        pool.history
            .iter()
            .rev()
            .filter(move |(_, addr)| !(judged && pool.outside.contains(addr)))
            .take(self.ledger.settings.history_per_pool)
            .filter_map(|(_, addr)| records.get(*addr))
            .map(|slot| (slot.addr, &slot.owner.id))
    }

    /// All Released records that name this pool, by ascending address, with the time of the release.
    pub fn history(&self) -> impl Iterator<Item = (IpAddr, &'a OwnerId, Micros)> + use<'a> {
        self.members()
            .filter(|slot| !slot.is_bound())
            .map(|slot| (slot.addr, &slot.owner.id, slot.released_at))
    }
}

/// Sizes, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Addresses held.
    pub bound: usize,
    /// Addresses remembered.
    pub released: usize,
    /// Addresses proposed whose record is not seen yet.
    pub reserved: usize,
    /// Addresses held without a record.
    pub claimed: usize,
    /// Addresses whose record cannot be read.
    pub blocked: usize,
    /// Load balancers that wait.
    pub waiting: usize,
    /// Pools.
    pub pools: usize,
}

impl Ledger {
    /// The status of a pool; none when there is no such pool.
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

    /// Whether a pool can go no further in one direction: nothing of it is held and nothing is about to be, or every
    /// address is. So it is of a pool that is not known.
    pub fn is_settled(&self, name: &str) -> bool {
        self.pools.by_name(name).is_none_or(Pool::is_settled)
    }

    /// IPA-4: an older pool (by creation, then name) whose ranges overlap those of this one; of
    /// several the oldest.
    pub fn overlaps(&self, name: &str) -> Option<PoolName> {
        self.pools.by_name(name)?.older().cloned()
    }

    /// Pools of which somebody has come to hold an address or ceased to, since the last call: their counters have changed
    /// (ALC-11).
    pub fn take_recounted(&mut self) -> Vec<PoolName> {
        let recounted = std::mem::take(&mut self.recounted).into_iter();
        let pools = recounted.map(|at| &self.pools[at]);
        let existing = pools.filter(|pool| pool.spec.is_some());
        existing.map(|pool| pool.name.clone()).collect()
    }

    /// Pools that overlap another pool than before, and these others, since the last call (IPA-4).
    pub fn take_crossed(&mut self) -> BTreeSet<PoolName> {
        self.pools.take_crossed()
    }

    /// IPA-7: the addresses Bound in this pool that it could not hand out any more: outside its
    /// ranges, or its gateway. Nothing is said while its ranges are refused.
    pub fn out_of_pool(&self, name: &str) -> Vec<Record> {
        let Some(pool) = self.pools.by_name(name) else {
            return Vec::new();
        };
        if pool.spec.is_some() && pool.ranges().is_none() {
            return Vec::new();
        }
        pool.outside
            .iter()
            .filter_map(|addr| self.records.get(*addr))
            .filter(|slot| slot.is_bound())
            .map(|slot| self.to_record(slot))
            .collect()
    }

    /// Whom an edit of a pool concerns, whether they know it yet or not: who holds an address of it, and to whom one is
    /// reserved (IPA-7).
    pub fn holders(&self, name: &str) -> BTreeSet<OwnerId> {
        let bound = self
            .pools
            .find(name)
            .into_iter()
            .flat_map(|at| self.pools[at].members(&self.records, at))
            .filter(|slot| slot.is_bound())
            .map(|slot| &slot.owner.id);
        let reserved = self
            .holds
            .iter()
            .filter_map(|hold| hold.reservation.as_ref())
            .filter(|reservation| *reservation.pool == *name)
            .map(|reservation| &reservation.owner.id);
        bound.chain(reserved).cloned().collect()
    }

    /// The pools that can hand out an address: their counts change with its record, whichever pool that names (IPA-4).
    pub fn pools_of(&self, addr: IpAddr) -> impl Iterator<Item = &PoolName> {
        let near = self.pools.near(addr).map(|at| &self.pools[at]);
        near.filter(move |pool| pool.usable(addr))
            .map(|pool| &pool.name)
    }

    /// Whether a pool's history may hold the address: the pool can hand it out, or its ranges cannot
    /// be judged.
    pub(crate) fn may_remember(&self, name: &str, addr: IpAddr) -> bool {
        self.pools
            .by_name(name)
            .and_then(|pool| pool.spec.as_ref())
            .is_some_and(|spec| {
                spec.ranges.as_ref().is_ok_and(|it| it.usable(addr)) || spec.ranges.is_err()
            })
    }

    /// How much of everything there is.
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
            waiting: self.waiting.len() + self.blocked_by_record.len(),
            pools: self.pools.existing().count(),
        }
    }
}
