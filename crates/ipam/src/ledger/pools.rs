//! The pools as the ledger keeps them: what the spec says, and counts that follow every change, so
//! that no question about a pool needs a walk over its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::{Index, IndexMut};

use super::decision::{Request, Withheld};
use super::queue::{Age, Queue, Waiter, older};
use super::records::{Records, Slot};
use crate::addr;
use crate::interval::IntervalSet;
use crate::range::{PoolRanges, RangeError};
use crate::select::{Selector, Workload};
use crate::types::{Micros, Phase, PoolName};

/// What a pool object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) created: Micros,
    pub(crate) ranges: Result<PoolRanges, RangeError>,
    pub(crate) selector: Selector,
    pub(crate) withheld: Option<Withheld>,
}

/// A pool, or the name of one that is missing but still named by records or waiting load balancers.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: PoolName,
    /// None while there is no such pool.
    pub(crate) spec: Option<Spec>,
    /// `lastAllocated`, and when it was taken.
    pub(crate) last: Option<IpAddr>,
    pub(crate) last_at: Micros,
    /// Who waits for an address of this pool.
    pub(crate) queue: Queue,
    /// Released records that name this pool, oldest first.
    pub(crate) history: BTreeSet<(Micros, IpAddr)>,
    /// Records, Bound or Released, that name this pool but cannot be handed out by it.
    pub(crate) outside: BTreeSet<IpAddr>,
    /// Bound records that name this pool.
    pub(crate) named_bound: usize,
    /// Addresses it can hand out that are Bound, whichever pool their records name.
    bound: u128,
    /// Addresses it can hand out that are taken in any way.
    taken: u128,
    /// Addresses of IPv4 that it can hand out, and those of them that are taken in any way (BE-7).
    size_v4: u128,
    taken_v4: u128,
    /// The same for each segment of the ranges.
    taken_in: Vec<u128>,
    /// Segments with something free.
    open: BTreeSet<usize>,
}

impl Pool {
    fn new(name: PoolName) -> Self {
        Self {
            name,
            spec: None,
            last: None,
            last_at: Micros::MIN,
            queue: Queue::default(),
            history: BTreeSet::new(),
            outside: BTreeSet::new(),
            named_bound: 0,
            bound: 0,
            taken: 0,
            size_v4: 0,
            taken_v4: 0,
            taken_in: Vec::new(),
            open: BTreeSet::new(),
        }
    }

    /// The ranges, if the pool is there and they are valid.
    pub(crate) fn ranges(&self) -> Option<&PoolRanges> {
        self.spec.as_ref()?.ranges.as_ref().ok()
    }

    /// Whether the address can be handed out by this pool when it is free.
    pub(crate) fn usable(&self, addr: IpAddr) -> bool {
        self.ranges().is_some_and(|ranges| ranges.usable(addr))
    }

    /// Whether it is known which addresses are its own: a pool that is gone has none, one whose ranges are refused may have
    /// any.
    pub(crate) fn is_judged(&self) -> bool {
        self.spec.is_none() || self.ranges().is_some()
    }

    /// How many addresses can be handed out in all.
    pub(crate) fn size(&self) -> u128 {
        self.ranges().map_or(0, PoolRanges::usable_total)
    }

    /// How many addresses are not taken in any way.
    pub(crate) fn free(&self) -> u128 {
        self.size().saturating_sub(self.taken)
    }

    /// Why nothing new is handed out, if that is so.
    pub(crate) fn withheld(&self) -> Option<&Withheld> {
        self.spec.as_ref()?.withheld.as_ref()
    }

    /// How many of the free addresses may be given to those of this type who wait (IPA-9, BE-7).
    pub(crate) fn grantable_to(&self, workload: Workload) -> u128 {
        if self.withheld().is_some() {
            0
        } else {
            self.free_to(workload)
        }
    }

    /// ALC-3 and fairness: whether something is free that no older load balancer waits for. Who cannot have what is free is
    /// in nobody's way (BE-7).
    pub(crate) fn is_turn_of(&self, request: &Request) -> bool {
        let grantable = self.grantable_to(request.workload);
        let competes = |other: &Waiter| self.free_to(other.request.workload) > 0;
        grantable > older(&self.queue, &Age::of(request), grantable, competes) as u128
    }

    /// How many addresses that a load balancer of this type can have are not taken in any way (BE-7).
    pub(crate) fn free_to(&self, workload: Workload) -> u128 {
        match workload {
            Workload::Cluster => self.free(),
            Workload::Vm => self.size_v4.saturating_sub(self.taken_v4),
        }
    }

    /// Whether it has any address that a load balancer of this type can have (BE-7). One without any address at all is
    /// full, and not of another family.
    pub(crate) fn suits(&self, workload: Workload) -> bool {
        workload == Workload::Cluster || self.size_v4 > 0 || self.size() == 0
    }

    /// POOL-1: `total` minus what is Bound, by whatever pool (IPA-4); never negative.
    pub(crate) fn available(&self) -> i64 {
        let total = self.ranges().map_or(0, PoolRanges::total);
        let bound = i64::try_from(self.bound).unwrap_or(i64::MAX);
        total.saturating_sub(bound).max(0)
    }

    /// Whether nothing is held and nothing about to be, or nothing is free.
    pub(crate) fn is_settled(&self) -> bool {
        self.available() == 0 || (self.taken == 0 && self.named_bound == 0)
    }

    /// Follows an address becoming taken or free; true when it is one of this pool's.
    pub(crate) fn mark_taken(&mut self, addr: IpAddr, taken: bool) -> bool {
        let Some(ranges) = self
            .spec
            .as_ref()
            .and_then(|spec| spec.ranges.as_ref().ok())
        else {
            return false;
        };
        let Some(at) = ranges.segment_of(addr) else {
            return false;
        };
        let segment = ranges.segments()[at];
        let count = &mut self.taken_in[at];
        if addr.is_ipv4() {
            self.taken_v4 = if taken {
                self.taken_v4 + 1
            } else {
                self.taken_v4 - 1
            };
        }
        if taken {
            *count += 1;
            self.taken += 1;
            if *count == addr::span(segment.start, segment.end) {
                self.open.remove(&at);
            }
        } else {
            *count -= 1;
            self.taken -= 1;
            self.open.insert(at);
        }
        true
    }

    /// Follows an address becoming Bound or not.
    pub(crate) fn mark_bound(&mut self, addr: IpAddr, bound: bool) {
        if self.usable(addr) {
            if bound {
                self.bound += 1;
            } else {
                self.bound -= 1;
            }
        }
    }

    /// Counts a record that names this pool in or out.
    pub(crate) fn count_member(&mut self, slot: &Slot, present: bool) {
        if slot.is_bound() {
            self.named_bound = if present {
                self.named_bound + 1
            } else {
                self.named_bound - 1
            };
        } else if present {
            self.history.insert((slot.released_at, slot.addr));
        } else {
            self.history.remove(&(slot.released_at, slot.addr));
        }
        if !present {
            self.outside.remove(&slot.addr);
        } else if !self.usable(slot.addr) {
            self.outside.insert(slot.addr);
        }
    }

    /// ALC-3: the next free address that a load balancer of this type can have (BE-7), in time by the logarithm of what is
    /// stored.
    pub(crate) fn next_free(&self, taken: &IntervalSet, workload: Workload) -> Option<IpAddr> {
        let ranges = self.ranges()?;
        let (at, from) = ranges.search_start(self.last)?;
        let segments = ranges.segments();
        let fits = |at: usize| workload == Workload::Cluster || segments[at].start.is_ipv4();
        let first_in = |at: usize, from: IpAddr| {
            taken
                .first_absent_from(from)
                .filter(|free| fits(at) && *free <= segments[at].end)
        };
        // The rest of this segment, then the next one with something free; the turn ends with the
        // beginning of this segment.
        first_in(at, from).or_else(|| {
            let turn = self.open.range(at + 1..).chain(self.open.range(..=at));
            let next = turn.into_iter().find(|at| fits(**at))?;
            first_in(*next, segments[*next].start)
        })
    }

    /// The addresses of the records that name this pool, ascending, with their records.
    pub(crate) fn members<'a>(&'a self, records: &'a Records, own: u32) -> Members<'a> {
        let inside = self
            .ranges()
            .into_iter()
            .flat_map(PoolRanges::segments_ascending)
            .flat_map(|segment| records.within(segment.start, segment.end))
            .filter(move |slot| slot.pool == own);
        let outside = self.outside.iter().filter_map(|addr| records.get(*addr));
        Members {
            inside: Box::new(inside),
            outside: Box::new(outside),
            ahead: [None, None],
        }
    }

    /// Takes a new spec (or none) and counts anew.
    pub(crate) fn replace_spec(
        &mut self,
        own: u32,
        spec: Option<Spec>,
        records: &Records,
        taken: &IntervalSet,
    ) {
        let members: Vec<IpAddr> = self.members(records, own).map(|slot| slot.addr).collect();
        self.spec = spec;
        let outside = members
            .into_iter()
            .filter(|addr| !self.usable(*addr))
            .collect();
        self.outside = outside;
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
        let bound = segments
            .iter()
            .flat_map(|segment| records.within(segment.start, segment.end))
            .filter(|slot| slot.phase == Phase::Bound)
            .count();
        let of_v4 = |at: &usize| segments[*at].start.is_ipv4();
        let all_v4 = || (0..segments.len()).filter(of_v4);
        let (size_v4, taken_v4) = (
            all_v4()
                .map(|at| addr::span(segments[at].start, segments[at].end))
                .sum(),
            all_v4().map(|at| counts[at]).sum(),
        );
        self.size_v4 = size_v4;
        self.taken_v4 = taken_v4;
        self.bound = bound as u128;
        self.taken = counts.iter().sum();
        self.taken_in = counts;
        self.open = open;
    }

    /// Whether nothing needs the name any more.
    fn is_idle(&self) -> bool {
        self.spec.is_none()
            && self.named_bound == 0
            && self.history.is_empty()
            && self.queue.is_empty()
    }
}

/// Merges the records inside a pool's ranges with those outside.
pub(crate) struct Members<'a> {
    inside: Box<dyn Iterator<Item = &'a Slot> + 'a>,
    outside: Box<dyn Iterator<Item = &'a Slot> + 'a>,
    ahead: [Option<&'a Slot>; 2],
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a Slot;

    fn next(&mut self) -> Option<&'a Slot> {
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

/// All pools. A place is given to another name only when nothing refers to it any more.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    places: Vec<Pool>,
    unused: Vec<u32>,
    by_name: BTreeMap<PoolName, u32>,
    existing: Vec<Existing>,
}

/// A pool that exists. Each change of an address looks through all of these, so they lie together.
#[derive(Debug)]
struct Existing {
    at: u32,
    bounds: Option<(IpAddr, IpAddr)>,
}

impl Pools {
    /// The place of a name.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The pool of a name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Pool> {
        self.find(name).map(|at| &self[at])
    }

    /// The place of a name, made when there is none.
    pub(crate) fn intern(&mut self, name: &PoolName) -> u32 {
        if let Some(at) = self.find(name) {
            return at;
        }
        let pool = Pool::new(PoolName::clone(name));
        let at = if let Some(at) = self.unused.pop() {
            self[at] = pool;
            at
        } else {
            self.places.push(pool);
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        };
        self.by_name.insert(PoolName::clone(name), at);
        at
    }

    /// Gives the place up if nothing needs it.
    pub(crate) fn tidy(&mut self, at: u32) {
        if self[at].is_idle() && self.by_name.get(&self[at].name) == Some(&at) {
            let name = PoolName::clone(&self[at].name);
            self.by_name.remove(&name);
            self[at] = Pool::new(PoolName::from(""));
            self.unused.push(at);
        }
    }

    /// Notes whether the pool at a place exists, and where its ranges lie.
    pub(crate) fn follow_spec(&mut self, at: u32) {
        self.existing.retain(|other| other.at != at);
        let pool = &self[at];
        if pool.spec.is_some() {
            let bounds = pool.ranges().and_then(PoolRanges::bounds);
            self.existing.push(Existing { at, bounds });
        }
    }

    /// Places of the pools that exist.
    pub(crate) fn existing(&self) -> impl Iterator<Item = u32> {
        self.existing.iter().map(|pool| pool.at)
    }

    /// Runs for each pool between whose lowest and highest address this one lies.
    pub(crate) fn for_each_near(&mut self, addr: IpAddr, mut each: impl FnMut(u32, &mut Pool)) {
        for Existing { at, bounds } in &self.existing {
            if bounds.is_some_and(|(first, last)| first <= addr && addr <= last) {
                each(*at, &mut self.places[*at as usize]);
            }
        }
    }

    /// Places of the pools between whose lowest and highest address this one lies.
    pub(crate) fn near(&self, addr: IpAddr) -> impl Iterator<Item = u32> {
        let near = move |pool: &&Existing| {
            pool.bounds
                .is_some_and(|(first, last)| first <= addr && addr <= last)
        };
        self.existing.iter().filter(near).map(|pool| pool.at)
    }

    /// All pools, those that are only named included.
    pub(crate) fn all(&self) -> &[Pool] {
        &self.places
    }

    /// Name and selector of each pool that exists.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = (&str, &Selector)> {
        self.existing().filter_map(|at| {
            let pool = &self[at];
            Some((&*pool.name, &pool.spec.as_ref()?.selector))
        })
    }
}

impl Index<u32> for Pools {
    type Output = Pool;

    fn index(&self, at: u32) -> &Pool {
        &self.places[at as usize]
    }
}

impl IndexMut<u32> for Pools {
    fn index_mut(&mut self, at: u32) -> &mut Pool {
        &mut self.places[at as usize]
    }
}
