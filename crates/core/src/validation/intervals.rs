//! The address ranges of all pools, for the question which pools share addresses with some ranges (PV-3). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_ipam::PoolRanges;

/// A range of a pool.
#[derive(Clone, Debug)]
struct Interval {
    start: IpAddr,
    end: IpAddr,
    pool: Arc<str>,
}

/// Ranges by pool. Without overlaps between them, every operation costs O(log n) per range and hit. Ranges that overlap with
/// others, because admission was off when they were stored, are kept in a list: each operation costs O(1) more for each.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    /// By first address; no two overlap.
    disjoint: BTreeMap<IpAddr, Interval>,
    /// Those that overlap with others.
    others: Vec<Interval>,
}

impl Intervals {
    /// Adds the ranges of a pool.
    pub(super) fn insert(&mut self, pool: &Arc<str>, ranges: &PoolRanges) {
        for range in ranges.ranges() {
            self.add(Interval {
                start: range.start(),
                end: range.end(),
                pool: pool.clone(),
            });
        }
    }

    fn add(&mut self, interval: Interval) {
        if self.within(interval.start, interval.end).next().is_none() {
            self.disjoint.insert(interval.start, interval);
        } else {
            self.others.push(interval);
        }
    }

    /// Removes the ranges of a pool.
    pub(super) fn remove(&mut self, pool: &str, ranges: &PoolRanges) {
        for range in ranges.ranges() {
            if self
                .disjoint
                .get(&range.start())
                .is_some_and(|interval| *interval.pool == *pool)
            {
                self.disjoint.remove(&range.start());
            }
        }
        // Some may be disjoint now.
        for interval in std::mem::take(&mut self.others) {
            if *interval.pool != *pool {
                self.add(interval);
            }
        }
    }

    /// The pools, at most `limit`, other than `own`, that have an address in one of the ranges.
    pub(super) fn pools_in(
        &self,
        own: &str,
        ranges: &PoolRanges,
        limit: usize,
    ) -> BTreeSet<Arc<str>> {
        let mut found = BTreeSet::new();
        for range in ranges.ranges() {
            let (start, end) = (range.start(), range.end());
            let others = self.others.iter();
            let others = others.filter(|other| other.start <= end && start <= other.end);
            for interval in self.within(start, end).chain(others) {
                if *interval.pool == *own {
                    continue;
                }
                if found.len() == limit {
                    return found;
                }
                found.insert(interval.pool.clone());
            }
        }
        found
    }

    /// The disjoint intervals that have an address in `start..=end`.
    fn within(&self, start: IpAddr, end: IpAddr) -> impl Iterator<Item = &Interval> {
        let before = self.disjoint.range(..start).next_back();
        let before = before.filter(|(_, interval)| start <= interval.end);
        let inside = self.disjoint.range(start..=end);
        before
            .into_iter()
            .chain(inside)
            .map(|(_, interval)| interval)
    }
}
