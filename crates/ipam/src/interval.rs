//! A set of addresses kept as coalesced intervals: neighbours are one entry, so a full pool is one
//! entry however large it is, and the first address that is missing is found without a walk over
//! those that are there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::addr;

/// A set of IPv4 and IPv6 addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// Start to end, both inside. Intervals neither overlap nor touch.
    intervals: BTreeMap<IpAddr, IpAddr>,
}

impl IntervalSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The interval that holds `addr`.
    fn around(&self, addr: IpAddr) -> Option<(IpAddr, IpAddr)> {
        self.intervals
            .range(..=addr)
            .next_back()
            .filter(|(_, end)| addr <= **end)
            .map(|(start, end)| (*start, *end))
    }

    /// Whether `addr` is in the set.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.around(addr).is_some()
    }

    /// Adds one address; false when it was there.
    pub fn insert(&mut self, addr: IpAddr) -> bool {
        if self.contains(addr) {
            return false;
        }
        self.insert_span(addr, addr);
        true
    }

    /// Adds all of `start..=end`. Nothing happens when the two do not make an interval of one
    /// family.
    pub fn insert_span(&mut self, start: IpAddr, end: IpAddr) {
        if addr::span(start, end) == 0 {
            return;
        }
        let left = addr::prev(start).and_then(|before| self.around(before));
        let right = addr::next(end).and_then(|after| self.around(after));
        let mut merged = (start, end);
        // One address between two others, or the same with one side open, is the common case and
        // needs no search for intervals that are swallowed.
        if let Some((left_start, left_end)) = left {
            merged = (left_start, left_end.max(end));
        }
        if let Some((_, right_end)) = right {
            merged.1 = merged.1.max(right_end);
        }
        while let Some((&inner, _)) = self.intervals.range(start..=merged.1).next_back() {
            self.intervals.remove(&inner);
        }
        self.intervals.insert(merged.0, merged.1);
    }

    /// Takes one address out; false when it was not there.
    pub fn remove(&mut self, addr: IpAddr) -> bool {
        let Some((start, end)) = self.around(addr) else {
            return false;
        };
        match addr::prev(addr) {
            Some(before) if start < addr => self.intervals.insert(start, before),
            _ => self.intervals.remove(&start),
        };
        if let Some(after) = addr::next(addr).filter(|after| *after <= end) {
            self.intervals.insert(after, end);
        }
        true
    }

    /// The first address at or after `from` that is not in the set; `None` when the rest of the
    /// family is.
    pub fn first_absent_from(&self, from: IpAddr) -> Option<IpAddr> {
        match self.around(from) {
            None => Some(from),
            // Intervals do not touch, so the address after one is free.
            Some((_, end)) => addr::next(end),
        }
    }

    /// The intervals that meet `start..=end`, cut to it, in ascending order.
    pub fn within(&self, start: IpAddr, end: IpAddr) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        let first = self.around(start).map_or(start, |(before, _)| before);
        // `range` refuses a backward interval.
        let last = end.max(first);
        let sound = addr::span(start, end) > 0;
        self.intervals
            .range(first..=last)
            .take_while(move |_| sound)
            .map(move |(from, to)| ((*from).max(start), (*to).min(end)))
    }

    /// How many addresses of `start..=end` are in the set, in time by the number of intervals
    /// there.
    pub fn count(&self, start: IpAddr, end: IpAddr) -> u128 {
        self.within(start, end).fold(0, |sum, (from, to)| {
            sum.saturating_add(addr::span(from, to))
        })
    }

    /// What of `start..=end` is not in the set, as intervals in ascending order.
    pub fn gaps(&self, start: IpAddr, end: IpAddr) -> Vec<(IpAddr, IpAddr)> {
        let mut gaps = Vec::new();
        if addr::span(start, end) == 0 {
            return gaps;
        }
        let mut open = Some(start);
        for (from, to) in self.within(start, end) {
            if let (Some(gap), Some(before)) = (open, addr::prev(from))
                && gap < from
            {
                gaps.push((gap, before));
            }
            open = addr::next(to).filter(|after| *after <= end);
        }
        gaps.extend(open.map(|gap| (gap, end)));
        gaps
    }

    /// Number of stored intervals: what the set costs.
    pub fn intervals(&self) -> usize {
        self.intervals.len()
    }
}

#[cfg(test)]
mod tests;
