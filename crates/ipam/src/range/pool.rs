//! The ranges of one pool in the order written, indexed so that the ledger's questions take
//! logarithmic time.

use std::net::IpAddr;

use super::{Range, RangeError, RangeSpec, saturate};
use crate::addr;
use crate::exclude::Exclusions;
use crate::interval::IntervalSet;

/// An interval of one of the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// First address.
    pub(crate) start: IpAddr,
    /// Last address.
    pub(crate) end: IpAddr,
    /// Index of the range it is a part of.
    pub(crate) range: u32,
}

/// RNG-10: the ranges of a pool, in the order written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRanges {
    ranges: Vec<Range>,
    /// The ranges without the parts that an earlier one covers, ascending: a binary search finds
    /// the range of an address even if ranges overlap because the webhook was off (PV-2).
    cover: Vec<Segment>,
    /// The addresses that can be allocated, in written order: `cover` without gateways (RNG-5) and excluded addresses (EXC-2).
    usable: Vec<Segment>,
    /// The excluded addresses, in a range or not.
    excluded: IntervalSet,
    /// Indexes into `usable`, by ascending address.
    ascending: Vec<u32>,
    /// Sum over `usable`.
    total: u128,
    /// Each later range that overlaps an earlier one, with that one.
    own_overlaps: Vec<(usize, usize)>,
}

impl PoolRanges {
    /// Parses all ranges of a pool (PV-1, RNG-1 to RNG-7).
    ///
    /// # Errors
    ///
    /// There is no range, or the first one that is invalid.
    pub fn parse(specs: &[RangeSpec]) -> Result<Self, RangeError> {
        if specs.is_empty() {
            return Err(RangeError::Empty);
        }
        let ranges = specs
            .iter()
            .enumerate()
            .map(|(index, spec)| Range::parse(spec).map_err(|error| error.at(index)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(ranges, &Exclusions::default()))
    }

    /// The same ranges without excluded addresses: these lie in a range, and cannot be allocated (EXC-2).
    #[must_use]
    pub fn without(self, excluded: &Exclusions) -> Self {
        if excluded.is_empty() {
            return self;
        }
        Self::new(self.ranges, excluded)
    }

    fn new(ranges: Vec<Range>, exclusions: &Exclusions) -> Self {
        let mut covered = IntervalSet::new();
        let mut excluded = IntervalSet::new();
        for (first, last) in exclusions.spans() {
            excluded.insert_span(*first, *last);
        }
        let mut withheld = excluded.clone();
        // No gateway is allocated, not even that of another range.
        for gateway in ranges.iter().filter_map(Range::gateway) {
            withheld.insert(gateway);
        }
        let (mut cover, mut usable) = (Vec::new(), Vec::new());
        let mut overlapping = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            let position = u32::try_from(index).unwrap_or(u32::MAX);
            let cut = |gaps: Vec<(IpAddr, IpAddr)>| {
                gaps.into_iter().map(move |(start, end)| Segment {
                    start,
                    end,
                    range: position,
                })
            };
            let overlap = covered.first_within(range.start, range.end);
            overlapping.extend(overlap.map(|(at, _)| (index, at)));
            cover.extend(cut(covered.gaps(range.start, range.end)));
            usable.extend(cut(withheld.gaps(range.start, range.end)));
            covered.insert_span(range.start, range.end);
            withheld.insert_span(range.start, range.end);
        }
        cover.sort_unstable_by_key(|segment| segment.start);
        let mut ascending: Vec<u32> = (0..).take(usable.len()).collect();
        ascending.sort_unstable_by_key(|at| usable[*at as usize].start);
        let total = usable.iter().fold(0u128, |sum, segment| {
            sum.saturating_add(addr::span(segment.start, segment.end))
        });
        let own_overlaps = overlapping
            .into_iter()
            .filter_map(|(later, at)| {
                find(&cover, at).map(|segment| (segment.range as usize, later))
            })
            .collect();
        Self {
            ranges,
            cover,
            usable,
            excluded,
            ascending,
            total,
            own_overlaps,
        }
    }

    /// The ranges as written.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// RNG-8, RNG-10: number of addresses that can be allocated.
    pub fn total(&self) -> i64 {
        saturate(self.total)
    }

    /// As [`total`](Self::total), without the limit of the status field.
    pub(crate) fn usable_total(&self) -> u128 {
        self.total
    }

    /// Whether the address lies in a range, gateways included.
    pub fn contains(&self, addr: IpAddr) -> bool {
        find(&self.cover, addr).is_some()
    }

    /// Whether the address can be allocated: in a range, not the gateway of any, not excluded.
    pub fn usable(&self, addr: IpAddr) -> bool {
        self.segment_of(addr).is_some()
    }

    /// Whether the address lies in a range and is excluded (EXC-2).
    pub fn excludes(&self, addr: IpAddr) -> bool {
        self.excluded.contains(addr) && self.contains(addr)
    }

    /// Whether any address is excluded, in a range or not.
    pub fn has_exclusions(&self) -> bool {
        self.excluded.intervals() > 0
    }

    /// Whether all addresses of a span lie in a range, gateways included.
    pub fn contains_all(&self, first: IpAddr, last: IpAddr) -> bool {
        let mut next = Some(first);
        while let Some(addr) = next {
            let Some(segment) = find(&self.cover, addr) else {
                return false;
            };
            if segment.end >= last {
                return true;
            }
            next = addr::next(segment.end);
        }
        false
    }

    /// The range that an address lies in.
    pub fn range_of(&self, addr: IpAddr) -> Option<&Range> {
        find(&self.cover, addr).and_then(|segment| self.ranges.get(segment.range as usize))
    }

    /// The range whose subnet holds the address, for an address outside of every range.
    pub(crate) fn range_by_subnet(&self, addr: IpAddr) -> Option<&Range> {
        self.ranges.iter().find(|range| range.subnet_contains(addr))
    }

    /// PV-2: pairs of indexes of ranges that overlap. A range that overlaps several earlier ones is
    /// paired with one of them only, so that the list is never longer than the pool.
    pub fn own_overlaps(&self) -> &[(usize, usize)] {
        &self.own_overlaps
    }

    /// PV-3, IPA-4: pairs of indexes (ours, theirs) of ranges that overlap, in time linear in the
    /// number of ranges. If ranges within a pool overlap, one pair may stand for several.
    pub fn overlaps(&self, other: &Self) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        let (mut ours, mut theirs) = (self.cover.iter().peekable(), other.cover.iter().peekable());
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            if a.start <= b.end && b.start <= a.end {
                pairs.push((a.range as usize, b.range as usize));
            }
            if a.end <= b.end {
                ours.next();
            } else {
                theirs.next();
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// Whether [`overlaps`](Self::overlaps) has any pair; in constant time for pools far apart.
    pub fn overlaps_any(&self, other: &Self) -> bool {
        match (self.bounds(), other.bounds()) {
            (Some((a, b)), Some((c, d))) if a <= d && c <= b => !self.overlaps(other).is_empty(),
            _ => false,
        }
    }

    /// The lowest and the highest address of all ranges.
    fn bounds(&self) -> Option<(IpAddr, IpAddr)> {
        Some((self.cover.first()?.start, self.cover.last()?.end))
    }

    /// The addresses of the ranges, gateways included, ascending and without overlap.
    pub(crate) fn cover(&self) -> &[Segment] {
        &self.cover
    }

    /// RNG-9, EXC-2: indexes of the ranges without an address to allocate, for the admission warning: each of theirs is their
    /// gateway or excluded.
    pub fn empty_ranges(&self) -> Vec<usize> {
        let is_empty = |range: &Range| {
            let left = self.excluded.gaps(range.start, range.end);
            let mut left = left.into_iter();
            left.all(|(first, last)| first == last && range.gateway() == Some(first))
        };
        let empty = |(index, range)| is_empty(range).then_some(index);
        self.ranges.iter().enumerate().filter_map(empty).collect()
    }

    /// The addresses that can be allocated, in written order.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.usable
    }

    /// The addresses that can be allocated, ascending.
    pub(crate) fn segments_ascending(&self) -> impl Iterator<Item = &Segment> {
        self.ascending
            .iter()
            .filter_map(|at| self.usable.get(*at as usize))
    }

    /// Index, in written order, of the segment that an address can be allocated from.
    pub(crate) fn segment_of(&self, addr: IpAddr) -> Option<usize> {
        let after = self
            .ascending
            .partition_point(|at| self.usable[*at as usize].start <= addr);
        let at = *self.ascending.get(after.checked_sub(1)?)? as usize;
        (addr <= self.usable[at].end).then_some(at)
    }

    /// ALC-3: segment and address at which the search for a free address begins: after the last
    /// one allocated if that lies in a range, else at the start of the first range; `None` when
    /// the pool has no address to allocate.
    pub(crate) fn search_start(&self, last: Option<IpAddr>) -> Option<(usize, IpAddr)> {
        let first = self.usable.first().map(|segment| (0, segment.start));
        let Some((last, range)) =
            last.and_then(|last| Some((last, find(&self.cover, last)?.range)))
        else {
            return first;
        };
        // The segments of a range are consecutive and ascending.
        let at = self
            .usable
            .partition_point(|s| s.range < range || (s.range == range && s.end <= last));
        match self.usable.get(at) {
            Some(segment) if segment.range == range && segment.start <= last => {
                addr::next(last).map(|from| (at, from))
            }
            Some(segment) => Some((at, segment.start)),
            None => first,
        }
    }
}

/// The segment that holds the address, among segments that ascend and do not overlap.
fn find(segments: &[Segment], addr: IpAddr) -> Option<&Segment> {
    let after = segments.partition_point(|segment| segment.start <= addr);
    segments
        .get(after.checked_sub(1)?)
        .filter(|segment| addr <= segment.end)
}
