//! The ledger against a model that keeps lists and scans them, step by step. Here: the model; what it
//! answers is in `decide`, what a step does to it in `steps`, allocations in `allocate` and `fate`, requested addresses in
//! `requested`, the comparison in `subject`.

mod allocate;
mod decide;
mod fate;
mod requested;
mod steps;
mod subject;

use fate::{Fate, InFlight, Turn};

use super::*;
use crate::select::select;

const POOLS: [&str; 2] = ["p", "q"];
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const CREATED: [i64; 6] = [3, 1, 2, 2, 5, 4];

/// The last bytes of the addresses that the pools with exclusions exclude (EXC-2).
const EXCLUDED: [u8; 4] = [2, 4, 5, 13];

/// Variants of a pool; they overlap, some have IPv6 addresses, one cannot be decoded, one has an invalid list of
/// exclusions, two have exclusions, all addresses of one of these are excluded, and one is invalid.
fn shape(number: usize) -> PoolSpec {
    let ranges = match number {
        0 | 7 => vec![range("10.0.0.0/29", "", "")],
        10 => vec![range("10.0.0.0/29", "", ""), range("fd10::/126", "", "")],
        11 => vec![range("10.0.0.0/29", "10.0.0.4", "10.0.0.5")],
        1 => vec![range("10.0.0.0/29", "10.0.0.4", "10.0.0.6")],
        2 => vec![range("10.0.0.8/30", "", ""), range("10.0.0.0/30", "", "")],
        3 => vec![
            range("10.0.0.8/29", "10.0.0.9", "10.0.0.11"),
            range("10.0.0.0/29", "10.0.0.2", "10.0.0.3"),
        ],
        4 => vec![range("10.0.0.0/30", "", ""), range("fd10::/126", "", "")],
        5 => vec![
            range("fd10::/126", "", ""),
            range("10.0.0.0/29", "10.0.0.2", "10.0.0.3"),
        ],
        6 => vec![range("fd10::/126", "", "")],
        8 => vec![],
        _ => vec![range("10.0.0.0/29", "x", "")],
    };
    let scope = match number {
        0 | 5 | 9 => vec![Tuple::new("*", "*", "*")],
        8 => vec![],
        _ => vec![Tuple::new("", "ns", "")],
    };
    let selector = Selector {
        scope,
        ..Selector::default()
    };
    let withheld = match number {
        7 => Some(Withheld::InvalidExclude(
            Exclusions::parse("x").unwrap_err(),
        )),
        8 => Some(Withheld::Undecodable("no list".to_owned())),
        _ => None,
    };
    let plain = pool("", &ranges);
    let excluded = EXCLUDED.map(|last| at(last).to_string()).join(", ");
    let exclusions = match number {
        10 | 11 => Exclusions::parse(&excluded).unwrap(),
        _ => Exclusions::default(),
    };
    PoolSpec {
        selector,
        withheld,
        // Of two overlapping pools either may be the older one.
        created: Micros(i64::try_from(number % 3).unwrap()),
        ranges: plain.ranges.map(|ranges| ranges.without(&exclusions)),
        ..plain
    }
}

const SHAPES: usize = 12;

/// Number of addresses; the last few are IPv6.
const ADDRESSES: u8 = 16;

fn at(last: u8) -> IpAddr {
    match last.checked_sub(12) {
        None => [10, 0, 0, last].into(),
        Some(last) => [0xfd10, 0, 0, 0, 0, 0, 0, last.into()].into(),
    }
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    SetPool(usize, usize),
    RemovePool(usize),
    Ask(usize),
    /// A whole allocation (ALC-8), with the outcome of each write.
    Allocate(usize, Vec<Fate>),
    /// A late write is stored.
    Land(usize),
    Enlist(usize),
    Commit(usize),
    Abandon(usize),
    /// A record of this load balancer appears, from another process or a late write.
    Appears(usize, usize, u8),
    Release(usize),
    Adopt(usize),
    DeleteRecord(usize),
    Recreate(usize),
    Withdraw(usize),
    Shows(usize, Vec<u8>),
    Status(usize, Option<(u8, Option<usize>)>),
    Demand(usize, Option<usize>),
    /// REQ-1.
    Request(usize, Option<u8>),
}

/// Effect of a step on the ledger, and the expected result.
#[derive(Clone, Debug)]
enum Effect {
    None,
    SetPool(PoolSpec),
    RemovePool(&'static str),
    Decide(Request, i64, Outcome),
    /// The records stored before, and the expected steps.
    Allocate(Request, Vec<Record>, Vec<Turn>),
    Enlist(Request),
    Observe(Record),
    Forget(IpAddr, Version),
    Abandon(OwnerId, IpAddr),
    Withdraw(OwnerId),
    Shows(OwnerId, Vec<IpAddr>),
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Held(IpAddr, Vec<IpAddr>),
    Adopt(IpAddr, Vec<IpAddr>),
    Take(RecordSpec, Option<Version>, AllocationReason, Vec<IpAddr>),
    /// Whether what it has stays as it is comes last.
    Wait(WaitReason, Vec<IpAddr>, bool),
}

/// Why the model finds no address.
enum Refused {
    Wait(WaitReason),
    /// EXC-1.
    HeldBack(WaitReason, IpAddr, PoolName),
}

impl From<WaitReason> for Refused {
    fn from(reason: WaitReason) -> Self {
        Self::Wait(reason)
    }
}

#[derive(Clone, Debug)]
struct Asking {
    addr: IpAddr,
    request: Request,
    has_address: bool,
}

#[derive(Clone, Debug)]
struct Reserved {
    addr: IpAddr,
    owner: Owner,
    pool: PoolName,
    reason: AllocationReason,
    at: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pools: Vec<PoolSpec>,
    records: Vec<Record>,
    reserved: Vec<Reserved>,
    /// The pool that a map or a record names; none for a claim by status.
    claims: Vec<(IpAddr, Owner, Option<PoolName>)>,
    /// EXC-1: load balancers that wait for a pool to confirm their address.
    held_back: Vec<(Owner, IpAddr, PoolName)>,
    shown: Vec<(OwnerId, IpAddr)>,
    waiting: Vec<Request>,
    /// REQ-3: those that wait for the address that they request.
    asking: Vec<Asking>,
    last: Vec<(PoolName, IpAddr, i64)>,
    uid: [u32; 6],
    /// The address that the status names, and the pool if it names one.
    status: [Option<(u8, Option<usize>)>; 6],
    demand: [Option<usize>; 6],
    requested: [Option<u8>; 6],
    now: i64,
    stamp: i64,
    version: u64,
    in_flight: Vec<InFlight>,
    effect: Effect,
}

impl Model {
    fn pool(&self, name: &str) -> Option<&PoolSpec> {
        self.pools.iter().find(|pool| *pool.name == *name)
    }

    fn ranges(&self, name: &str) -> Option<&PoolRanges> {
        self.pool(name)?.ranges.as_ref().ok()
    }

    /// Every address that a pool can allocate, with its range, in written order.
    fn listed(&self, name: &str) -> Vec<(usize, IpAddr)> {
        let Some(ranges) = self.ranges(name) else {
            return Vec::new();
        };
        let gateways: Vec<_> = ranges
            .ranges()
            .iter()
            .filter_map(crate::Range::gateway)
            .collect();
        let mut all = Vec::new();
        for (index, range) in ranges.ranges().iter().enumerate() {
            all.extend(
                (0..ADDRESSES)
                    .map(at)
                    .filter(|a| range.contains(*a))
                    .map(|a| (index, a)),
            );
        }
        all.retain(|(_, addr)| !gateways.contains(addr) && !Self::excludes(ranges, *addr));
        all
    }

    /// EXC-2: whether a pool has the address and excludes it.
    fn excludes(ranges: &PoolRanges, addr: IpAddr) -> bool {
        let is_in = ranges.ranges().iter().any(|range| range.contains(addr));
        ranges.has_exclusions() && is_in && EXCLUDED.map(at).contains(&addr)
    }

    fn usable(&self, name: &str, addr: IpAddr) -> bool {
        self.listed(name).iter().any(|(_, other)| *other == addr)
    }

    fn record(&self, addr: IpAddr) -> Option<&Record> {
        self.records.iter().find(|record| record.spec.addr == addr)
    }

    fn is_bound(&self, addr: IpAddr) -> bool {
        self.record(addr)
            .is_some_and(|record| record.spec.phase == Phase::Bound)
    }

    fn bound_of(&self, id: &OwnerId) -> Vec<&Record> {
        let own = |r: &&Record| r.spec.owner.id == *id && r.spec.phase == Phase::Bound;
        let mut records: Vec<_> = self.records.iter().filter(own).collect();
        records.sort_by_key(|record| record.spec.addr);
        records
    }

    /// All load balancers with a record, reservation, claim or Service of the address.
    fn holders(&self, addr: IpAddr) -> Vec<OwnerId> {
        let mut holders = self.takers(addr);
        if !self.is_bound(addr) {
            let shown = self.shown.iter().filter(|s| s.1 == addr).map(|s| &s.0);
            holders.extend(shown.cloned());
        }
        holders
    }

    /// Those with a record, reservation or claim.
    fn takers(&self, addr: IpAddr) -> Vec<OwnerId> {
        if let Some(record) = self.record(addr).filter(|r| r.spec.phase == Phase::Bound) {
            return vec![record.spec.owner.id.clone()];
        }
        let reserved = self
            .reserved
            .iter()
            .filter(|r| r.addr == addr)
            .map(|r| &r.owner.id);
        let claims = self.claims.iter().filter(|c| c.0 == addr).map(|c| &c.1.id);
        reserved.chain(claims).cloned().collect()
    }

    /// REQ-3: whether a load balancer waits for the address that a pool would serve.
    fn is_awaited(&self, addr: IpAddr) -> bool {
        let mut all = self.asking.iter();
        all.any(|it| it.addr == addr && self.is_served(it))
    }

    fn is_taken(&self, addr: IpAddr) -> bool {
        !self.holders(addr).is_empty() || self.is_awaited(addr)
    }

    fn shown_by(&self, id: &OwnerId) -> Vec<IpAddr> {
        let shown = self.shown.iter().filter(|shown| shown.0 == *id);
        shown.map(|shown| shown.1).collect()
    }

    /// Whether a load balancer has the address, not only a reservation.
    fn is_held(&self, addr: IpAddr) -> bool {
        self.is_bound(addr)
            || self.claims.iter().any(|claim| claim.0 == addr)
            || self.shown.iter().any(|shown| shown.1 == addr)
    }

    /// The oldest of the older pools that overlap this one.
    fn older(&self, name: &str) -> Option<PoolName> {
        let own = self.pool(name)?;
        let seniority = |pool: &PoolSpec| (pool.created, pool.name.clone());
        let older = self.pools.iter().filter(|other| {
            let ranges = [&own.ranges, &other.ranges].map(|ranges| ranges.as_ref().ok());
            let [Some(ours), Some(theirs)] = ranges else {
                return false;
            };
            seniority(other) < seniority(own) && ours.overlaps_any(theirs)
        });
        older.map(seniority).min().map(|(_, name)| name)
    }

    /// ALC-5, BE-7, EXC-1: whether a free address of the family of this one may be allocated: more of them are free
    /// than older load balancers wait for them.
    fn has_room(&self, name: &str, request: &Request, addr: IpAddr) -> bool {
        let listed = self.listed(name);
        let free = listed
            .iter()
            .filter(|(_, other)| other.is_ipv4() == addr.is_ipv4())
            .filter(|(_, other)| !self.is_taken(*other))
            .count();
        let queue = self.queue(name);
        let older = queue
            .iter()
            .filter(|w| w.owner.id != request.owner.id && Self::key(w) < Self::key(request))
            .filter(|w| w.takes(addr))
            .count();
        let hands_out = self.pool(name).is_some_and(|pool| pool.withheld.is_none());
        hands_out && request.takes(addr) && free > older
    }

    /// Whether it may get any address.
    fn is_due(&self, name: &str, request: &Request) -> bool {
        let listed = self.listed(name);
        let mut listed = listed.iter();
        listed.any(|(_, addr)| self.has_room(name, request, *addr))
    }

    fn target(&self, request: &Request) -> Option<PoolName> {
        request.pool.clone().or_else(|| {
            let views = self.pools.iter().map(|pool| (&*pool.name, &pool.selector));
            let requirement = request.requirement.clone().or_namespace("ns");
            select(views, &requirement, request.workload).map(PoolName::from)
        })
    }

    fn request(&self, lb: usize) -> Request {
        Request {
            created: Micros(CREATED[lb]),
            pool: self.demand[lb].map(|pool| PoolName::from(POOLS[pool])),
            status: self.status[lb].map(|(last, pool)| StatusAddress {
                pool: pool.map(|pool| PoolName::from(POOLS[pool])),
                addr: at(last),
            }),
            workload: if lb.is_multiple_of(2) {
                Workload::Vm
            } else {
                Workload::Cluster
            },
            requested: self.requested[lb].map(at),
            ..lb_uid(NAMES[lb], &format!("{}-{}", NAMES[lb], self.uid[lb]))
        }
    }

    fn key(request: &Request) -> (Micros, Owner) {
        (request.created, request.owner.clone())
    }

    /// The load balancers that wait for a pool, oldest first.
    fn queue(&self, pool: &str) -> Vec<&Request> {
        let mut queue: Vec<_> = self
            .waiting
            .iter()
            .filter(|request| self.target(request).as_deref() == Some(pool))
            .collect();
        queue.sort_by_key(|request| Self::key(request));
        queue
    }

    fn drop_holds(&mut self, id: &OwnerId, but: Option<IpAddr>) {
        self.reserved
            .retain(|r| r.owner.id != *id || Some(r.addr) == but);
        self.claims.retain(|c| c.1.id != *id || Some(c.0) == but);
    }

    fn store(&mut self, spec: RecordSpec) {
        self.version += 1;
        let (addr, owner) = (spec.addr, spec.owner.clone());
        let mut reason = None;
        if spec.phase == Phase::Bound {
            reason = self
                .reserved
                .iter()
                .find(|r| r.addr == addr && r.owner == owner)
                .map(|r| r.reason);
            self.reserved.retain(|r| r.addr != addr);
            self.claims.retain(|c| c.0 != addr);
        }
        let last = self
            .last
            .iter()
            .find(|l| l.0 == spec.pool)
            .map_or(i64::MIN, |l| l.2);
        let newest = spec.bound_at.0 > last || (reason.is_some() && last > self.stamp);
        if newest && reason != Some(AllocationReason::Recorded) {
            self.last.retain(|l| l.0 != spec.pool);
            self.last.push((spec.pool.clone(), addr, spec.bound_at.0));
        }
        self.records.retain(|r| r.spec.addr != addr);
        let record = Record {
            spec,
            version: Version(self.version),
        };
        self.records.push(record.clone());
        self.effect = Effect::Observe(record);
    }

    /// Removes an earlier load balancer of the name from the queue, before the later one waits.
    fn earlier_ones_leave(&mut self, owner: &Owner) {
        self.waiting
            .retain(|w| w.owner.id != owner.id || w.owner == *owner);
        let other = |it: &Asking| it.request.owner.id != owner.id || it.request.owner == *owner;
        self.asking.retain(other);
        self.tidy();
    }

    /// Forgets the last address of missing pools that no record or waiting load balancer names.
    fn tidy(&mut self) {
        let last = std::mem::take(&mut self.last);
        let named = |name: &PoolName| {
            self.pool(name).is_some()
                || self.records.iter().any(|r| r.spec.pool == *name)
                || self.waiting.iter().any(|w| w.pool.as_ref() == Some(name))
        };
        self.last = last.into_iter().filter(|last| named(&last.0)).collect();
    }

    fn nth_bound(&self, n: usize) -> Option<Record> {
        let bound: Vec<_> = self
            .records
            .iter()
            .filter(|r| r.spec.phase == Phase::Bound)
            .cloned()
            .collect();
        (!bound.is_empty()).then(|| bound[n % bound.len()].clone())
    }
}
