//! Index of the pools by address: finds the pools whose ranges contain an address or intersect a span of addresses.
//!
//! The ranges of all pools, by family and by class, the power of two of their length. A range of a class that contains
//! an address begins at most the length of the longest range of that class before it. So a search visits few ranges
//! that do not contain the address, however many pools there are and however long the ranges of other classes are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::range::Segment;

/// The ranges of one family by class; in a class, (first address, pool) to last address.
type Classes = BTreeMap<u32, BTreeMap<(u128, u32), u128>>;

/// The ranges of all pools.
#[derive(Debug, Default)]
pub(crate) struct Near {
    v4: Classes,
    v6: Classes,
}

/// Whether the address is IPv6, and its number in its family.
fn point(addr: IpAddr) -> (bool, u128) {
    match addr {
        IpAddr::V4(v4) => (false, v4.to_bits().into()),
        IpAddr::V6(v6) => (true, v6.to_bits()),
    }
}

/// The class of a range: the number of bits of its length minus one.
fn class(start: u128, end: u128) -> u32 {
    u128::BITS - end.saturating_sub(start).leading_zeros()
}

/// Length minus one of the longest range of a class.
fn longest(class: u32) -> u128 {
    u128::MAX
        .checked_shr(u128::BITS - class.min(u128::BITS))
        .unwrap_or(0)
}

impl Near {
    fn family(&self, v6: bool) -> &Classes {
        if v6 { &self.v6 } else { &self.v4 }
    }

    fn family_mut(&mut self, v6: bool) -> &mut Classes {
        if v6 { &mut self.v6 } else { &mut self.v4 }
    }

    /// Adds ranges of a pool, which do not overlap one another.
    pub(crate) fn insert(&mut self, pool: u32, ranges: &[Segment]) {
        for range in ranges {
            let ((v6, start), (_, end)) = (point(range.start), point(range.end));
            let class = self.family_mut(v6).entry(class(start, end)).or_default();
            class.insert((start, pool), end);
        }
    }

    /// Removes the ranges of a pool.
    pub(crate) fn remove(&mut self, pool: u32, ranges: &[Segment]) {
        for range in ranges {
            let ((v6, start), (_, end)) = (point(range.start), point(range.end));
            let family = self.family_mut(v6);
            let key = class(start, end);
            if let Some(class) = family.get_mut(&key) {
                class.remove(&(start, pool));
                if class.is_empty() {
                    family.remove(&key);
                }
            }
        }
    }

    /// The pools with a range that contains the address, each once.
    pub(crate) fn at(&self, addr: IpAddr) -> impl Iterator<Item = u32> {
        self.meeting(addr, addr)
    }

    /// The pools with a range that intersects one of these.
    pub(crate) fn around(&self, ranges: &[Segment]) -> BTreeSet<u32> {
        ranges
            .iter()
            .flat_map(|range| self.meeting(range.start, range.end))
            .collect()
    }

    /// The pool of each range that intersects `first..=last`.
    fn meeting(&self, first: IpAddr, last: IpAddr) -> impl Iterator<Item = u32> {
        let ((v6, first), (_, last)) = (point(first), point(last));
        self.family(v6).iter().flat_map(move |(class, ranges)| {
            let from = first.saturating_sub(longest(*class));
            ranges
                .range((from, 0)..=(last, u32::MAX))
                .filter(move |(_, end)| **end >= first)
                .map(|((_, pool), _)| *pool)
        })
    }
}

#[cfg(test)]
mod tests;
