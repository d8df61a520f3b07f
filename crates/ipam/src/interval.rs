//! A set of addresses, stored as coalesced intervals: neighbours are one entry, so a full pool is
//! one entry however large it is, and the first absent address is found without iterating over the
//! present ones.
//!
//! Each address family has a separate set over plain integers. That takes a third of the memory of
//! one set over both, and no interval can reach from one family into the other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A set of IPv4 and IPv6 addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    v4: Spans<u32>,
    v6: Spans<u128>,
}

impl IntervalSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `addr` is in the set.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(v4) => self.v4.around(v4.to_bits()).is_some(),
            IpAddr::V6(v6) => self.v6.around(v6.to_bits()).is_some(),
        }
    }

    /// Adds one address; false when it was present.
    pub fn insert(&mut self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(v4) => self.v4.insert(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.insert(v6.to_bits()),
        }
    }

    /// Adds all of `start..=end`. Does nothing if that is no interval of one family.
    pub fn insert_span(&mut self, start: IpAddr, end: IpAddr) {
        match (start, end) {
            (IpAddr::V4(a), IpAddr::V4(b)) if a <= b => {
                self.v4.insert_span(a.to_bits(), b.to_bits());
            }
            (IpAddr::V6(a), IpAddr::V6(b)) if a <= b => {
                self.v6.insert_span(a.to_bits(), b.to_bits());
            }
            _ => {}
        }
    }

    /// Removes one address; false when it was absent.
    pub fn remove(&mut self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(v4) => self.v4.remove(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.remove(v6.to_bits()),
        }
    }

    /// The first address at or after `from` that is not in the set; `None` when the rest of the
    /// family is.
    pub fn first_absent_from(&self, from: IpAddr) -> Option<IpAddr> {
        match from {
            IpAddr::V4(v4) => self.v4.first_absent_from(v4.to_bits()).map(v4_from),
            IpAddr::V6(v6) => self.v6.first_absent_from(v6.to_bits()).map(v6_from),
        }
    }

    /// The first interval that intersects `start..=end`, clipped to it.
    pub fn first_within(&self, start: IpAddr, end: IpAddr) -> Option<(IpAddr, IpAddr)> {
        match (start, end) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let (from, to) = self.v4.within(a.to_bits(), b.to_bits()).next()?;
                Some((v4_from(from), v4_from(to)))
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let (from, to) = self.v6.within(a.to_bits(), b.to_bits()).next()?;
                Some((v6_from(from), v6_from(to)))
            }
            _ => None,
        }
    }

    /// Number of addresses of `start..=end` in the set, in time linear in the number of intervals
    /// there.
    pub fn count(&self, start: IpAddr, end: IpAddr) -> u128 {
        match (start, end) {
            (IpAddr::V4(a), IpAddr::V4(b)) => self.v4.count(a.to_bits(), b.to_bits()),
            (IpAddr::V6(a), IpAddr::V6(b)) => self.v6.count(a.to_bits(), b.to_bits()),
            _ => 0,
        }
    }

    /// The addresses of `start..=end` that are not in the set, as intervals in ascending order.
    pub fn gaps(&self, start: IpAddr, end: IpAddr) -> Vec<(IpAddr, IpAddr)> {
        match (start, end) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let gaps = self.v4.gaps(a.to_bits(), b.to_bits());
                gaps.into_iter()
                    .map(|(from, to)| (v4_from(from), v4_from(to)))
                    .collect()
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let gaps = self.v6.gaps(a.to_bits(), b.to_bits());
                gaps.into_iter()
                    .map(|(from, to)| (v6_from(from), v6_from(to)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Number of stored intervals, a measure of the memory used.
    pub fn intervals(&self) -> usize {
        self.v4.spans.len() + self.v6.spans.len()
    }
}

fn v4_from(bits: u32) -> IpAddr {
    Ipv4Addr::from_bits(bits).into()
}

fn v6_from(bits: u128) -> IpAddr {
    Ipv6Addr::from_bits(bits).into()
}

/// An address of one family as an integer.
trait Point: Copy + Ord {
    /// The next address.
    fn next(self) -> Option<Self>;
    /// The previous address.
    fn prev(self) -> Option<Self>;
    /// Number of addresses in `self..=end`; saturates for all of IPv6.
    fn span(self, end: Self) -> u128;
}

impl Point for u32 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn prev(self) -> Option<Self> {
        self.checked_sub(1)
    }

    fn span(self, end: Self) -> u128 {
        u128::from(end - self) + 1
    }
}

impl Point for u128 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn prev(self) -> Option<Self> {
        self.checked_sub(1)
    }

    fn span(self, end: Self) -> u128 {
        (end - self).saturating_add(1)
    }
}

/// The intervals of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Spans<T> {
    /// Start to end, both inclusive. Intervals neither overlap nor touch.
    spans: BTreeMap<T, T>,
}

impl<T: Point> Spans<T> {
    /// The interval that holds `point`.
    fn around(&self, point: T) -> Option<(T, T)> {
        let (start, end) = self.spans.range(..=point).next_back()?;
        (point <= *end).then_some((*start, *end))
    }

    fn insert(&mut self, point: T) -> bool {
        if self.around(point).is_some() {
            return false;
        }
        self.insert_span(point, point);
        true
    }

    fn insert_span(&mut self, start: T, end: T) {
        let left = start.prev().and_then(|before| self.around(before));
        let right = end.next().and_then(|after| self.around(after));
        let (mut from, mut to) = (start, end);
        if let Some((left_start, left_end)) = left {
            (from, to) = (left_start, end.max(left_end));
        }
        if let Some((_, right_end)) = right {
            to = to.max(right_end);
        }
        while let Some((&inner, _)) = self.spans.range(start..=to).next_back() {
            self.spans.remove(&inner);
        }
        self.spans.insert(from, to);
    }

    fn remove(&mut self, point: T) -> bool {
        let Some((start, end)) = self.around(point) else {
            return false;
        };
        match point.prev() {
            Some(before) if start < point => self.spans.insert(start, before),
            _ => self.spans.remove(&start),
        };
        if let Some(after) = point.next().filter(|after| *after <= end) {
            self.spans.insert(after, end);
        }
        true
    }

    fn first_absent_from(&self, from: T) -> Option<T> {
        match self.around(from) {
            None => Some(from),
            // Intervals do not touch, so the address after one is free.
            Some((_, end)) => end.next(),
        }
    }

    /// The intervals that intersect `start..=end`, clipped to it, in ascending order.
    fn within(&self, start: T, end: T) -> impl Iterator<Item = (T, T)> {
        let first = self.around(start).map_or(start, |(before, _)| before);
        let sound = start <= end;
        self.spans
            // `range` panics on a reversed interval.
            .range(first..=end.max(first))
            .take_while(move |_| sound)
            .map(move |(from, to)| ((*from).max(start), (*to).min(end)))
    }

    fn count(&self, start: T, end: T) -> u128 {
        self.within(start, end)
            .fold(0, |sum, (from, to)| sum.saturating_add(from.span(to)))
    }

    fn gaps(&self, start: T, end: T) -> Vec<(T, T)> {
        let mut gaps = Vec::new();
        let mut open = Some(start).filter(|start| *start <= end);
        for (from, to) in self.within(start, end) {
            if let (Some(gap), Some(before)) = (open, from.prev())
                && gap < from
            {
                gaps.push((gap, before));
            }
            open = to.next().filter(|after| *after <= end);
        }
        gaps.extend(open.map(|gap| (gap, end)));
        gaps
    }
}

#[cfg(test)]
mod tests;
