//! One pool: its spec, and counts that every change updates, so that no question about a pool needs an iteration over
//! its addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::decision::{Request, Withheld};
use super::queue::{Age, Queue, Room};
use super::records::{RecordEntry, Records};
use crate::addr;
use crate::interval::IntervalSet;
use crate::range::{PoolRanges, RangeError, Segment};
use crate::select::{Selector, Verdict, Workload};
use crate::types::{Micros, PoolName};

/// The parts of a pool's spec that the ledger uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) created: Micros,
    pub(crate) ranges: Result<PoolRanges, RangeError>,
    pub(crate) selector: Selector,
    pub(crate) withheld: Option<Withheld>,
}

/// A pool, or the name of a missing one that records or waiting load balancers still name.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: PoolName,
    /// None while there is no such pool.
    pub(crate) spec: Option<Spec>,
    /// `lastAllocated`, and the time of that allocation.
    pub(crate) last: Option<IpAddr>,
    pub(crate) last_at: Micros,
    /// The load balancers that wait for an address of this pool.
    pub(crate) queue: Queue,
    /// Released records that name this pool, oldest first.
    pub(crate) history: BTreeSet<(Micros, IpAddr)>,
    /// Addresses of records, Bound or Released, that name this pool and that it cannot allocate.
    pub(crate) outside: BTreeSet<IpAddr>,
    /// Number of Bound records that name this pool.
    pub(crate) named_bound: usize,
    /// Number of its usable addresses that are taken, whichever pool their records name.
    taken: u128,
    /// Number of these that are only proposed.
    proposed: u128,
    /// Number of its usable IPv4 addresses, and of those of them that are taken (BE-7).
    size_v4: u128,
    taken_v4: u128,
    /// Number of taken addresses in each segment of the ranges.
    taken_in: Vec<u128>,
    /// Segments with a free address.
    open: BTreeSet<usize>,
    /// IPA-4: the oldest of the older pools whose ranges overlap its own.
    pub(super) older: Option<Seniority>,
}

/// Creation time and name: of two pools that overlap, the one with the smaller value is the older.
pub(super) type Seniority = (Micros, PoolName);

impl Pool {
    pub(super) fn new(name: PoolName) -> Self {
        Self {
            name,
            spec: None,
            last: None,
            last_at: Micros::MIN,
            queue: Queue::default(),
            history: BTreeSet::new(),
            outside: BTreeSet::new(),
            named_bound: 0,
            taken: 0,
            proposed: 0,
            size_v4: 0,
            taken_v4: 0,
            taken_in: Vec::new(),
            open: BTreeSet::new(),
            older: None,
        }
    }

    /// The ranges, if the pool exists and they are valid.
    pub(crate) fn ranges(&self) -> Option<&PoolRanges> {
        self.spec.as_ref()?.ranges.as_ref().ok()
    }

    /// Whether this pool can allocate the address when it is free.
    pub(crate) fn usable(&self, addr: IpAddr) -> bool {
        self.ranges().is_some_and(|ranges| ranges.usable(addr))
    }

    /// Whether its addresses are known: a deleted pool has none, one with invalid ranges may have any.
    pub(crate) fn knows_addresses(&self) -> bool {
        self.spec.is_none() || self.ranges().is_some()
    }

    /// Number of usable addresses.
    pub(crate) fn size(&self) -> u128 {
        self.ranges().map_or(0, PoolRanges::usable_total)
    }

    /// Number of free addresses.
    pub(crate) fn free(&self) -> u128 {
        self.size().saturating_sub(self.taken)
    }

    /// Why it allocates no new addresses; none if it does.
    pub(crate) fn withheld(&self) -> Option<&Withheld> {
        self.spec.as_ref()?.withheld.as_ref()
    }

    /// The families of which a load balancer without an address may get one: an address is free, the pool is not
    /// withheld (EXC-1), and no older load balancer that could use the address waits for it (ALC-5, BE-7).
    pub(crate) fn room(&self, request: &Request) -> Room {
        self.queue.room(&Age::of(request), request.workload)
    }

    /// Number of free addresses that a load balancer of this workload type can use (BE-7).
    pub(crate) fn free_to(&self, workload: Workload) -> u128 {
        match workload {
            Workload::Cluster => self.free(),
            Workload::Vm => self.size_v4.saturating_sub(self.taken_v4),
        }
    }

    /// Whether it has an address, free or not, that a load balancer of this workload type can use (BE-7). A pool
    /// without any address is full, not of another family.
    pub(crate) fn suits(&self, workload: Workload) -> bool {
        workload == Workload::Cluster || self.size_v4 > 0 || self.size() == 0
    }

    /// Why it serves no load balancer of this workload type, however many addresses are free; none if it does.
    pub(crate) fn refusal(&self, workload: Workload) -> Option<Verdict> {
        let Some(spec) = &self.spec else {
            return Some(Verdict::Missing);
        };
        match (&spec.withheld, &spec.ranges) {
            (Some(Withheld::Undecodable(error)), _) => Some(Verdict::Undecodable {
                error: error.clone(),
            }),
            (_, Err(error)) => Some(Verdict::RangesInvalid {
                error: error.to_string(),
            }),
            (Some(Withheld::InvalidExclude(error)), Ok(_)) => Some(Verdict::InvalidExclude {
                error: error.to_string(),
            }),
            (None, Ok(_)) => (!self.suits(workload)).then_some(Verdict::OtherFamily),
        }
    }

    /// The verdict for load balancers of this workload type while no address that they can use is free. It does not
    /// depend on the number of free addresses of the other family, so that it does not change with that.
    pub(crate) fn full(&self, workload: Workload) -> Verdict {
        let excludes_all =
            || self.size() == 0 && self.ranges().is_some_and(PoolRanges::has_exclusions);
        if workload == Workload::Vm && self.size_v4 < self.size() {
            Verdict::FullOfFamily
        } else if excludes_all() {
            Verdict::AllExcluded
        } else {
            Verdict::Full
        }
    }

    /// Updates the queue's numbers of free addresses; none while the pool is withheld (EXC-1).
    pub(super) fn update_queue_free(&mut self) {
        let v4 = self.free_to(Workload::Vm);
        let v6 = self.free().saturating_sub(v4);
        if self.withheld().is_some() {
            self.queue.set_free(0, 0);
        } else {
            self.queue.set_free(v4, v6);
        }
    }

    /// ALC-11: number of usable addresses that are neither held nor blocked, whichever pool their records name (IPA-4).
    /// Addresses that are only proposed are not held yet: they are not counted as allocated either.
    pub(crate) fn available(&self) -> i64 {
        let total = self.ranges().map_or(0, PoolRanges::total);
        let held = i64::try_from(self.taken.saturating_sub(self.proposed)).unwrap_or(i64::MAX);
        total.saturating_sub(held).max(0)
    }

    /// IPA-4: the oldest of the older pools whose ranges overlap its own.
    pub(crate) fn older(&self) -> Option<&PoolName> {
        self.older.as_ref().map(|(_, name)| name)
    }

    /// None while there is no such pool.
    pub(super) fn seniority(&self) -> Option<Seniority> {
        Some((self.spec.as_ref()?.created, self.name.clone()))
    }

    /// The addresses of its ranges; empty if the pool is missing or its ranges are invalid.
    pub(super) fn cover(&self) -> &[Segment] {
        self.ranges().map_or(&[][..], PoolRanges::cover)
    }

    /// Whether no address is held or taken, or none is free.
    pub(crate) fn is_empty_or_full(&self) -> bool {
        self.available() == 0 || (self.taken == 0 && self.named_bound == 0)
    }

    /// Index, in written order, of the segment that the address can be allocated from.
    pub(crate) fn segment_of(&self, addr: IpAddr) -> Option<usize> {
        self.ranges()?.segment_of(addr)
    }

    /// Counts an address of a segment that became taken or free.
    pub(crate) fn mark_taken(&mut self, at: usize, taken: bool) {
        let Some(segment) = self.ranges().and_then(|ranges| ranges.segments().get(at)) else {
            return;
        };
        let size = addr::span(segment.start, segment.end);
        let is_v4 = segment.start.is_ipv4();
        let Some(count) = self.taken_in.get_mut(at) else {
            return;
        };
        if taken {
            *count += 1;
            self.taken += 1;
            self.taken_v4 += u128::from(is_v4);
            if *count == size {
                self.open.remove(&at);
            }
        } else {
            *count -= 1;
            self.taken -= 1;
            self.taken_v4 -= u128::from(is_v4);
            self.open.insert(at);
        }
        self.update_queue_free();
    }

    /// Counts a usable address that became, or ceased to be, only proposed.
    pub(crate) fn mark_proposed(&mut self, proposed: bool) {
        if proposed {
            self.proposed += 1;
        } else {
            self.proposed -= 1;
        }
    }

    /// Adds a record that names this pool to the counts, or removes it.
    pub(crate) fn count_member(&mut self, entry: &RecordEntry, present: bool) {
        if entry.is_bound() {
            self.named_bound = if present {
                self.named_bound + 1
            } else {
                self.named_bound - 1
            };
        } else if present {
            self.history.insert((entry.released_at, entry.addr));
        } else {
            self.history.remove(&(entry.released_at, entry.addr));
        }
        if !present {
            self.outside.remove(&entry.addr);
        } else if !self.usable(entry.addr) {
            self.outside.insert(entry.addr);
        }
    }

    /// ALC-3: the next free address of the families that there is room for, in logarithmic time.
    pub(crate) fn next_free(&self, taken: &IntervalSet, room: Room) -> Option<IpAddr> {
        let ranges = self.ranges()?;
        let (at, from) = ranges.search_start(self.last)?;
        let segments = ranges.segments();
        let fits = |at: usize| room.has(segments[at].start);
        let first_in = |at: usize, from: IpAddr| {
            taken
                .first_absent_from(from)
                .filter(|free| fits(at) && *free <= segments[at].end)
        };
        // The rest of this segment, then the next one with a free address; the round ends with the
        // beginning of this segment.
        first_in(at, from).or_else(|| {
            let turn = self.open.range(at + 1..).chain(self.open.range(..=at));
            let next = turn.into_iter().find(|at| fits(**at))?;
            first_in(*next, segments[*next].start)
        })
    }

    /// The records that name this pool, by ascending address.
    pub(crate) fn members<'a>(&'a self, records: &'a Records, own: u32) -> Members<'a> {
        let inside = self
            .ranges()
            .into_iter()
            .flat_map(PoolRanges::segments_ascending)
            .flat_map(|segment| records.within(segment.start, segment.end))
            .filter(move |entry| entry.pool == own);
        let outside = self.outside.iter().filter_map(|addr| records.get(*addr));
        Members {
            inside: Box::new(inside),
            outside: Box::new(outside),
            ahead: [None, None],
        }
    }

    /// Recalculates the counts that depend on the ranges.
    pub(super) fn count(
        &mut self,
        members: Vec<IpAddr>,
        taken: &IntervalSet,
        proposed: &BTreeSet<IpAddr>,
    ) {
        let outside = members.into_iter().filter(|addr| !self.usable(*addr));
        self.outside = outside.collect();
        let segments = self.ranges().map_or(&[][..], PoolRanges::segments);
        let counts: Vec<u128> = segments
            .iter()
            .map(|segment| taken.count(segment.start, segment.end))
            .collect();
        let open = segments
            .iter()
            .zip(&counts)
            .enumerate()
            .filter(|(_, (segment, count))| addr::span(segment.start, segment.end) > **count)
            .map(|(at, _)| at)
            .collect();
        let of_v4 = segments.iter().zip(&counts);
        let of_v4 = of_v4.filter(|(segment, _)| segment.start.is_ipv4());
        let (size_v4, taken_v4) = of_v4.fold((0, 0), |(size, taken), (segment, count)| {
            (size + addr::span(segment.start, segment.end), taken + count)
        });
        self.open = open;
        (self.size_v4, self.taken_v4) = (size_v4, taken_v4);
        self.taken = counts.iter().sum();
        self.taken_in = counts;
        let proposed = self.ranges().map_or(0, |ranges| {
            let segments = ranges.segments().iter();
            let inside = segments.flat_map(|it| proposed.range(it.start..=it.end));
            inside.count()
        });
        self.proposed = proposed as u128;
        self.update_queue_free();
    }

    /// Whether nothing needs the name any more.
    pub(super) fn is_idle(&self) -> bool {
        self.spec.is_none()
            && self.named_bound == 0
            && self.history.is_empty()
            && self.queue.is_empty()
    }
}

/// Merges the records inside a pool's ranges with those outside.
pub(crate) struct Members<'a> {
    inside: Box<dyn Iterator<Item = &'a RecordEntry> + 'a>,
    outside: Box<dyn Iterator<Item = &'a RecordEntry> + 'a>,
    ahead: [Option<&'a RecordEntry>; 2],
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a RecordEntry;

    fn next(&mut self) -> Option<&'a RecordEntry> {
        let [inside, outside] = &mut self.ahead;
        *inside = inside.or_else(|| self.inside.next());
        *outside = outside.or_else(|| self.outside.next());
        match (*inside, *outside) {
            (Some(a), Some(b)) if b.addr < a.addr => outside.take(),
            (Some(_), _) => inside.take(),
            (None, _) => outside.take(),
        }
    }
}
