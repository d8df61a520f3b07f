//! The ranges of one pool in the order written, and what the allocator needs to know about them in
//! logarithmic time.

use std::net::IpAddr;

use super::{Range, RangeError, RangeSpec, saturate};
use crate::addr;
use crate::interval::IntervalSet;

/// An interval of one of the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// First address.
    pub(crate) start: IpAddr,
    /// Last address.
    pub(crate) end: IpAddr,
    /// Position of the range it is a part of.
    pub(crate) range: u32,
}

/// RNG-10: the ranges of a pool, in the order written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRanges {
    ranges: Vec<Range>,
    /// The ranges without what an earlier one covers already, ascending: a binary search finds the
    /// range of an address even where the webhook was off and ranges overlap (PV-2).
    cover: Vec<Segment>,
    /// What can be handed out, in written order: `cover` without any gateway.
    usable: Vec<Segment>,
    /// Positions in `usable`, by ascending address.
    ascending: Vec<u32>,
    /// Sum over `usable`.
    total: u128,
    /// Each later range that overlaps an earlier one, with that one.
    own_overlaps: Vec<(usize, usize)>,
}

impl PoolRanges {
    /// Reads all ranges of a pool; the first that fails refuses the pool (PV-1, RNG-1 to RNG-7).
    pub fn parse(specs: &[RangeSpec]) -> Result<Self, RangeError> {
        if specs.is_empty() {
            return Err(RangeError::Empty);
        }
        let ranges = specs
            .iter()
            .enumerate()
            .map(|(index, spec)| Range::parse(spec).map_err(|error| error.at(index)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(ranges))
    }

    fn new(ranges: Vec<Range>) -> Self {
        let mut covered = IntervalSet::new();
        let mut withheld = IntervalSet::new();
        // RNG-5: no gateway is handed out, not even that of another range.
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
            ascending,
            total,
            own_overlaps,
        }
    }

    /// The ranges as written.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// RNG-8, RNG-10: how many addresses can be handed out.
    pub fn total(&self) -> i64 {
        saturate(self.total)
    }

    /// The same without the limit of the status field.
    pub(crate) fn usable_total(&self) -> u128 {
        self.total
    }

    /// Whether the address lies in a range, gateways included.
    pub fn contains(&self, addr: IpAddr) -> bool {
        find(&self.cover, addr).is_some()
    }

    /// Whether the address can be handed out: in a range, and no range's gateway.
    pub fn usable(&self, addr: IpAddr) -> bool {
        self.segment_of(addr).is_some()
    }

    /// The range that an address lies in.
    pub fn range_of(&self, addr: IpAddr) -> Option<&Range> {
        find(&self.cover, addr).and_then(|segment| self.ranges.get(segment.range as usize))
    }

    /// The range that an address outside of every range belongs to by its subnet.
    pub(crate) fn range_by_subnet(&self, addr: IpAddr) -> Option<&Range> {
        self.ranges.iter().find(|range| range.subnet_contains(addr))
    }

    /// PV-2: pairs of positions of ranges that overlap. Of several earlier ranges that a range
    /// overlaps only one is named, so that the list is never longer than the pool.
    pub fn own_overlaps(&self) -> &[(usize, usize)] {
        &self.own_overlaps
    }

    /// PV-3, IPA-4: pairs of positions (ours, theirs) of ranges that overlap, in time by the number
    /// of ranges. Where a pool's own ranges overlap, a pair may stand for another.
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

    /// Whether [`overlaps`](Self::overlaps) would name a pair; pools far apart are told at once.
    pub fn meets(&self, other: &Self) -> bool {
        match (self.bounds(), other.bounds()) {
            (Some((a, b)), Some((c, d))) if a <= d && c <= b => !self.overlaps(other).is_empty(),
            _ => false,
        }
    }

    /// The lowest and the highest address of all ranges.
    fn bounds(&self) -> Option<(IpAddr, IpAddr)> {
        Some((self.cover.first()?.start, self.cover.last()?.end))
    }

    /// What the ranges cover, gateways included, by ascending address and without overlap.
    pub(crate) fn cover(&self) -> &[Segment] {
        &self.cover
    }

    /// RNG-9: positions of the ranges with nothing to hand out, for the admission warning.
    pub fn empty_ranges(&self) -> Vec<usize> {
        let empty = |(index, range): (usize, &Range)| (range.total() == 0).then_some(index);
        self.ranges.iter().enumerate().filter_map(empty).collect()
    }

    /// What can be handed out, in written order.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.usable
    }

    /// What can be handed out, by ascending address.
    pub(crate) fn segments_ascending(&self) -> impl Iterator<Item = &Segment> {
        self.ascending
            .iter()
            .filter_map(|at| self.usable.get(*at as usize))
    }

    /// The segment, by its place in written order, that an address can be handed out from.
    pub(crate) fn segment_of(&self, addr: IpAddr) -> Option<usize> {
        let after = self
            .ascending
            .partition_point(|at| self.usable[*at as usize].start <= addr);
        let at = *self.ascending.get(after.checked_sub(1)?)? as usize;
        (addr <= self.usable[at].end).then_some(at)
    }

    /// ALC-3: where the search for a free address begins: the segment, and the address in it. After
    /// the last one allocated if that lies in a range, else at the start of the first range; `None`
    /// when nothing can be handed out.
    pub(crate) fn search_start(&self, last: Option<IpAddr>) -> Option<(usize, IpAddr)> {
        let first = self.usable.first().map(|segment| (0, segment.start));
        let Some((last, range)) =
            last.and_then(|last| Some((last, find(&self.cover, last)?.range)))
        else {
            return first;
        };
        // The segments of a range stand together and ascend.
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
