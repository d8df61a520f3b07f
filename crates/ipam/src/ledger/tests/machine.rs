//! The ledger against a model that keeps lists and scans them, step by step.

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use super::*;
use crate::select::select;

const POOLS: [&str; 2] = ["p", "q"];
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const CREATED: [i64; 6] = [3, 1, 2, 2, 5, 4];

/// Shapes of a pool; they overlap, and one is invalid.
fn shape(number: usize) -> PoolSpec {
    let ranges = match number {
        0 => vec![range("10.0.0.0/29", "", "")],
        1 => vec![range("10.0.0.0/29", "10.0.0.4", "10.0.0.6")],
        2 => vec![range("10.0.0.8/30", "", ""), range("10.0.0.0/30", "", "")],
        3 => vec![
            range("10.0.0.8/29", "10.0.0.9", "10.0.0.11"),
            range("10.0.0.0/29", "10.0.0.2", "10.0.0.3"),
        ],
        _ => vec![range("10.0.0.0/29", "x", "")],
    };
    let scope = match number {
        0 | 4 => Tuple::new("*", "*", "*"),
        _ => Tuple::new("", "ns", ""),
    };
    let selector = Selector {
        scope: vec![scope],
        ..Selector::default()
    };
    PoolSpec {
        selector,
        ..pool("", &ranges)
    }
}

const SHAPES: usize = 5;

fn at(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    SetPool(usize, usize),
    RemovePool(usize),
    Ask(usize),
    Enlist(usize),
    Commit(usize),
    Abandon(usize),
    /// A record of this load balancer appears: of another process, or of a late write.
    Appears(usize, usize, u8),
    Release(usize),
    Adopt(usize),
    DeleteRecord(usize),
    Recreate(usize),
    Withdraw(usize),
    Shows(usize, Vec<u8>),
    Status(usize, Option<u8>),
    Demand(usize, Option<usize>),
}

/// What a step does to the ledger, and what must come of it.
#[derive(Clone, Debug)]
enum Effect {
    None,
    SetPool(PoolSpec),
    RemovePool(&'static str),
    Decide(Request, i64, Outcome),
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
    Take(RecordSpec, Option<Version>, Why, Vec<IpAddr>),
    Wait(WaitReason, Vec<IpAddr>),
}

#[derive(Clone, Debug)]
struct Reserved {
    addr: IpAddr,
    owner: Owner,
    pool: PoolName,
    why: Why,
    at: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pools: Vec<PoolSpec>,
    records: Vec<Record>,
    reserved: Vec<Reserved>,
    claims: Vec<(IpAddr, Owner, PoolName)>,
    shown: Vec<(OwnerId, IpAddr)>,
    waiting: Vec<Request>,
    last: Vec<(PoolName, IpAddr, i64)>,
    uid: [u32; 6],
    status: [Option<u8>; 6],
    demand: [Option<usize>; 6],
    now: i64,
    stamp: i64,
    version: u64,
    effect: Effect,
}

impl Model {
    fn pool(&self, name: &str) -> Option<&PoolSpec> {
        self.pools.iter().find(|pool| *pool.name == *name)
    }

    fn ranges(&self, name: &str) -> Option<&PoolRanges> {
        self.pool(name)?.ranges.as_ref().ok()
    }

    /// Every address that a pool can hand out, with its range, in written order.
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
                (0..16)
                    .map(at)
                    .filter(|a| range.contains(*a))
                    .map(|a| (index, a)),
            );
        }
        all.retain(|(_, addr)| !gateways.contains(addr));
        all
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

    /// Everybody who has something on the address.
    fn holders(&self, addr: IpAddr) -> Vec<OwnerId> {
        if let Some(record) = self.record(addr).filter(|r| r.spec.phase == Phase::Bound) {
            return vec![record.spec.owner.id.clone()];
        }
        let reserved = self
            .reserved
            .iter()
            .filter(|r| r.addr == addr)
            .map(|r| &r.owner.id);
        let claims = self.claims.iter().filter(|c| c.0 == addr).map(|c| &c.1.id);
        let shown = self.shown.iter().filter(|s| s.1 == addr).map(|s| &s.0);
        reserved.chain(claims).chain(shown).cloned().collect()
    }

    fn free(&self, name: &str) -> usize {
        let listed = self.listed(name);
        listed
            .iter()
            .filter(|(_, addr)| self.holders(*addr).is_empty())
            .count()
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
            status: self.status[lb].map(|last| StatusAddress {
                pool: None,
                addr: at(last),
            }),
            ..lb_uid(NAMES[lb], &format!("{}-{}", NAMES[lb], self.uid[lb]))
        }
    }

    fn key(request: &Request) -> (Micros, Owner) {
        (request.created, request.owner.clone())
    }

    /// Those that wait for a pool, oldest first.
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

    fn decide(&mut self, request: &Request) -> Outcome {
        let id = &request.owner.id;
        let own = |owner: &Owner| owner.id != *id || *owner == request.owner;
        self.reserved.retain(|r| own(&r.owner));
        self.claims.retain(|c| own(&c.1));
        self.waiting.retain(|w| own(&w.owner));
        let status = request.status.as_ref().map(|status| status.addr);
        let bound: Vec<Record> = self.bound_of(id).into_iter().cloned().collect();
        let kept = bound
            .iter()
            .filter(|r| {
                request
                    .pool
                    .as_ref()
                    .is_none_or(|pool| *pool == r.spec.pool)
            })
            .min_by_key(|r| {
                (
                    r.spec.owner != request.owner,
                    Some(r.spec.addr) != status,
                    r.spec.addr,
                )
            });
        let rest = |kept: Option<IpAddr>| -> Vec<IpAddr> {
            bound
                .iter()
                .map(|r| r.spec.addr)
                .filter(|addr| Some(*addr) != kept)
                .collect()
        };
        if let Some(kept) = kept {
            self.waiting.retain(|w| w.owner.id != *id);
            self.drop_holds(id, None);
            let addr = kept.spec.addr;
            return if kept.spec.owner == request.owner {
                Outcome::Held(addr, rest(Some(addr)))
            } else {
                Outcome::Adopt(addr, rest(Some(addr)))
            };
        }
        match self.find(request, status, &bound) {
            Ok((addr, pool, why, at)) => {
                self.waiting.retain(|w| w.owner.id != *id);
                self.drop_holds(id, Some(addr));
                self.reserved.retain(|r| r.addr != addr);
                let (owner, stamp) = (request.owner.clone(), at.unwrap_or(self.now));
                if at.is_none() {
                    self.stamp = self.now;
                }
                let reserved = Reserved {
                    addr,
                    owner,
                    pool: pool.clone(),
                    why,
                    at: stamp,
                };
                self.reserved.push(reserved);
                let spec = RecordSpec {
                    addr,
                    pool,
                    owner: request.owner.clone(),
                    phase: Phase::Bound,
                    bound_at: Micros(stamp),
                    released_at: None,
                };
                let over = self.record(addr).map(|record| record.version);
                Outcome::Take(spec, over, why, rest(None))
            }
            Err(reason) => {
                self.drop_holds(id, None);
                self.waiting.retain(|w| w.owner.id != *id);
                self.waiting.push(request.clone());
                Outcome::Wait(reason, rest(None))
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn find(
        &mut self,
        request: &Request,
        status: Option<IpAddr>,
        bound: &[Record],
    ) -> Result<(IpAddr, PoolName, Why, Option<i64>), WaitReason> {
        let id = &request.owner.id;
        let demanded = |pool: &PoolName| {
            request
                .pool
                .as_ref()
                .is_none_or(|demanded| demanded == pool)
        };
        if let Some(r) = self.reserved.iter().find(|r| r.owner == request.owner)
            && demanded(&r.pool)
            && (r.why == Why::Recorded || self.usable(&r.pool, r.addr))
        {
            return Ok((r.addr, r.pool.clone(), r.why, Some(r.at)));
        }
        self.reserved.retain(|r| r.owner != request.owner);
        let mut claims: Vec<_> = self
            .claims
            .iter()
            .filter(|c| c.1 == request.owner)
            .collect();
        claims.sort_by_key(|c| (Some(c.0) != status, c.0));
        if let Some((addr, _, pool)) = claims.into_iter().find(|c| demanded(&c.2)) {
            return Ok((*addr, pool.clone(), Why::Recorded, None));
        }
        self.drop_holds(id, None);
        let target = self.target(request).ok_or(WaitReason::NoMatchedPool)?;
        let pool = self.pool(&target).ok_or(WaitReason::PoolNotFound)?;
        let ranges = pool.ranges.as_ref().map_err(|_| WaitReason::PoolInvalid)?;
        let older = self
            .queue(&target)
            .iter()
            .filter(|w| w.owner.id != *id && Self::key(w) < Self::key(request))
            .count();
        let served = self.free(&target) > older;
        let mine = |addr: IpAddr| self.holders(addr).iter().all(|holder| holder == id);
        let allowed = |addr: IpAddr| served || !self.holders(addr).is_empty();
        if let Some(addr) = status
            && !bound.iter().any(|r| r.spec.addr == addr)
            && mine(addr)
            && self.usable(&target, addr)
        {
            return if allowed(addr) {
                Ok((addr, target, Why::Recorded, None))
            } else {
                Err(WaitReason::NoAvailableIp)
            };
        }
        let mut history: Vec<IpAddr> = self
            .records
            .iter()
            .map(|r| &r.spec)
            .filter(|s| s.phase == Phase::Released && s.owner.id == *id && s.pool == target)
            .map(|s| s.addr)
            .filter(|addr| self.usable(&target, *addr) && mine(*addr) && allowed(*addr))
            .collect();
        history.sort();
        if let Some(addr) = history.first() {
            return Ok((*addr, target, Why::Sticky, None));
        }
        if !served {
            return Err(WaitReason::NoAvailableIp);
        }
        let listed = self.listed(&target);
        let last = self.last.iter().find(|l| l.0 == target).map(|l| l.1);
        let place = last.and_then(|last| {
            Some((
                ranges
                    .ranges()
                    .iter()
                    .position(|range| range.contains(last))?,
                last,
            ))
        });
        let start = place.map_or(0, |place| {
            listed.iter().position(|entry| *entry > place).unwrap_or(0)
        });
        let turn = listed.iter().cycle().skip(start).take(listed.len());
        let free = turn
            .map(|(_, addr)| *addr)
            .find(|addr| self.holders(*addr).is_empty());
        let moved = bound.iter().any(|r| r.spec.owner == request.owner);
        let why = if moved { Why::Moved } else { Why::Fresh };
        free.map(|addr| (addr, target, why, None))
            .ok_or(WaitReason::NoAvailableIp)
    }

    fn store(&mut self, spec: RecordSpec) {
        self.version += 1;
        let (addr, owner) = (spec.addr, spec.owner.clone());
        let mut why = None;
        if spec.phase == Phase::Bound {
            why = self
                .reserved
                .iter()
                .find(|r| r.addr == addr && r.owner == owner)
                .map(|r| r.why);
            self.reserved.retain(|r| r.addr != addr);
            self.claims.retain(|c| c.0 != addr);
        }
        let last = self
            .last
            .iter()
            .find(|l| l.0 == spec.pool)
            .map_or(i64::MIN, |l| l.2);
        let newest = spec.bound_at.0 > last || (why.is_some() && last > self.stamp);
        if newest && why != Some(Why::Recorded) {
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

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let model = Self {
            pools: Vec::new(),
            records: Vec::new(),
            reserved: Vec::new(),
            claims: Vec::new(),
            shown: Vec::new(),
            waiting: Vec::new(),
            last: Vec::new(),
            uid: [0; 6],
            status: [None; 6],
            demand: [None; 6],
            now: 100,
            stamp: i64::MIN,
            version: 0,
            effect: Effect::None,
        };
        Just(model).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let lb = 0..NAMES.len();
        let pool = 0..POOLS.len();
        let addr = 0u8..13;
        prop_oneof![
            3 => (pool.clone(), 0..SHAPES).prop_map(|(p, s)| Step::SetPool(p, s)),
            1 => pool.clone().prop_map(Step::RemovePool),
            12 => lb.clone().prop_map(Step::Ask),
            1 => lb.clone().prop_map(Step::Enlist),
            8 => lb.clone().prop_map(Step::Commit),
            1 => lb.clone().prop_map(Step::Abandon),
            2 => (lb.clone(), pool.clone(), addr.clone())
                .prop_map(|(l, p, a)| Step::Appears(l, p, a)),
            5 => (0usize..9).prop_map(Step::Release),
            2 => lb.clone().prop_map(Step::Adopt),
            1 => (0usize..9).prop_map(Step::DeleteRecord),
            1 => lb.clone().prop_map(Step::Recreate),
            1 => lb.clone().prop_map(Step::Withdraw),
            2 => (lb.clone(), prop::collection::vec(addr.clone(), 0..3))
                .prop_map(|(l, a)| Step::Shows(l, a)),
            2 => (lb.clone(), prop::option::of(addr)).prop_map(|(l, a)| Step::Status(l, a)),
            2 => (lb, prop::option::of(pool)).prop_map(|(l, p)| Step::Demand(l, p)),
        ]
        .boxed()
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        model.now += 1;
        model.effect = Effect::None;
        match step.clone() {
            Step::SetPool(pool, number) => {
                let spec = PoolSpec {
                    name: POOLS[pool].into(),
                    ..shape(number)
                };
                model.pools.retain(|other| other.name != spec.name);
                model.pools.push(spec.clone());
                model.effect = Effect::SetPool(spec);
            }
            Step::RemovePool(pool) => {
                let known = model.pools.iter().any(|other| *other.name == *POOLS[pool])
                    || model.records.iter().any(|r| *r.spec.pool == *POOLS[pool]);
                model.pools.retain(|other| *other.name != *POOLS[pool]);
                if known {
                    model.last.retain(|last| *last.0 != *POOLS[pool]);
                    model.effect = Effect::RemovePool(POOLS[pool]);
                }
            }
            Step::Ask(lb) => {
                let request = model.request(lb);
                let outcome = model.decide(&request);
                model.effect = Effect::Decide(request, model.now, outcome);
            }
            Step::Enlist(lb) => {
                let request = model.request(lb);
                let id = &request.owner.id;
                let holds = !model.bound_of(id).is_empty()
                    || model.reserved.iter().any(|r| r.owner.id == *id)
                    || model.claims.iter().any(|c| c.1.id == *id);
                if !holds {
                    model.waiting.retain(|w| w.owner.id != *id);
                    model.waiting.push(request.clone());
                }
                model.effect = Effect::Enlist(request);
            }
            Step::Commit(lb) => {
                let owner = model.request(lb).owner;
                if let Some(r) = model.reserved.iter().find(|r| r.owner == owner).cloned() {
                    model.store(RecordSpec {
                        addr: r.addr,
                        pool: r.pool,
                        owner,
                        phase: Phase::Bound,
                        bound_at: Micros(r.at),
                        released_at: None,
                    });
                }
            }
            Step::Abandon(lb) => {
                let id = OwnerId::new("ns", NAMES[lb]);
                if let Some(r) = model.reserved.iter().find(|r| r.owner.id == id).cloned() {
                    model.reserved.retain(|r| r.owner.id != id);
                    model.effect = Effect::Abandon(id, r.addr);
                }
            }
            Step::Appears(lb, pool, last) => {
                if !model.is_bound(at(last)) {
                    model.store(RecordSpec {
                        addr: at(last),
                        pool: POOLS[pool].into(),
                        owner: model.request(lb).owner,
                        phase: Phase::Bound,
                        bound_at: Micros(model.now),
                        released_at: None,
                    });
                }
            }
            Step::Release(n) => {
                if let Some(mut record) = model.nth_bound(n)
                    && !model
                        .shown
                        .contains(&(record.spec.owner.id.clone(), record.spec.addr))
                {
                    record.spec.phase = Phase::Released;
                    record.spec.released_at = Some(Micros(model.now));
                    model.store(record.spec);
                }
            }
            Step::Adopt(lb) => {
                let owner = model.request(lb).owner;
                let old = model.bound_of(&owner.id).into_iter().next().cloned();
                if let Some(Record { mut spec, .. }) = old {
                    spec.owner = owner;
                    model.store(spec);
                }
            }
            Step::DeleteRecord(n) => {
                if !model.records.is_empty() {
                    let Record { spec, .. } = model.records.remove(n % model.records.len());
                    model.version += 1;
                    model.effect = Effect::Forget(spec.addr, Version(model.version));
                    if spec.phase == Phase::Bound {
                        model.claims.push((spec.addr, spec.owner, spec.pool));
                    }
                }
            }
            Step::Recreate(lb) => model.uid[lb] += 1,
            Step::Withdraw(lb) => {
                let id = OwnerId::new("ns", NAMES[lb]);
                model.drop_holds(&id, None);
                model.waiting.retain(|w| w.owner.id != id);
                model.effect = Effect::Withdraw(id);
            }
            Step::Shows(lb, lasts) => {
                let id = OwnerId::new("ns", NAMES[lb]);
                let addrs: Vec<_> = lasts.into_iter().map(at).collect();
                model.shown.retain(|shown| shown.0 != id);
                for addr in &addrs {
                    if !model.shown.contains(&(id.clone(), *addr)) {
                        model.shown.push((id.clone(), *addr));
                    }
                }
                model.effect = Effect::Shows(id, addrs);
            }
            Step::Status(lb, last) => model.status[lb] = last,
            Step::Demand(lb, pool) => model.demand[lb] = pool,
        }
        // Nothing is remembered of a missing pool that nobody names.
        let named = |name: &PoolName| {
            model.pool(name).is_some()
                || model.records.iter().any(|r| r.spec.pool == *name)
                || model.waiting.iter().any(|w| w.pool.as_ref() == Some(name))
        };
        let kept = model
            .last
            .iter()
            .filter(|last| named(&last.0))
            .cloned()
            .collect();
        model.last = kept;
        model
    }
}

/// The ledger, and who was woken and has not asked since.
struct Subject {
    ledger: Ledger,
    woken: BTreeSet<OwnerId>,
}

fn addrs(records: &[Record]) -> Vec<IpAddr> {
    records.iter().map(|record| record.spec.addr).collect()
}

fn outcome(decision: Decision) -> Outcome {
    match decision {
        Decision::Held { grant, surplus } => Outcome::Held(grant.addr, addrs(&surplus)),
        Decision::Adopt { grant, surplus, .. } => Outcome::Adopt(grant.addr, addrs(&surplus)),
        Decision::Take {
            spec,
            over,
            why,
            surplus,
            ..
        } => Outcome::Take(spec, over, why, addrs(&surplus)),
        Decision::Wait {
            reason, surplus, ..
        } => Outcome::Wait(reason, addrs(&surplus)),
    }
}

impl StateMachineTest for Subject {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        Self {
            ledger: Ledger::new(Settings::default()),
            woken: BTreeSet::new(),
        }
    }

    fn apply(mut subject: Self, model: &Model, _: Step) -> Self {
        let ledger = &mut subject.ledger;
        match model.effect.clone() {
            Effect::None => {}
            Effect::SetPool(spec) => ledger.set_pool(spec),
            Effect::RemovePool(name) => ledger.remove_pool(name),
            Effect::Decide(request, now, wanted) => {
                subject.woken.remove(&request.owner.id);
                assert_eq!(outcome(ledger.decide(&request, Micros(now))), wanted);
                // The same question gets the same answer.
                assert_eq!(outcome(ledger.decide(&request, Micros(now + 1))), wanted);
            }
            Effect::Enlist(request) => {
                subject.woken.remove(&request.owner.id);
                ledger.enlist(request);
            }
            Effect::Observe(record) => {
                if record.spec.phase == Phase::Released {
                    let uid = &record.spec.owner.uid;
                    let at = record.spec.released_at.unwrap();
                    let proposed = ledger.may_release(record.spec.addr, uid, at).unwrap();
                    assert_eq!(proposed.spec, record.spec);
                }
                assert!(ledger.observe(record));
            }
            Effect::Forget(addr, version) => ledger.forget(addr, version),
            Effect::Abandon(id, addr) => ledger.abandon(&id, addr),
            Effect::Withdraw(id) => ledger.withdraw(&id),
            Effect::Shows(id, addrs) => ledger.set_shown(&id, &addrs),
        }
        subject.woken.extend(subject.ledger.take_wakes());
        subject
    }

    fn check_invariants(subject: &Self, model: &Model) {
        let ledger = &subject.ledger;
        let counts = ledger.counts();
        let bound = model
            .records
            .iter()
            .filter(|r| r.spec.phase == Phase::Bound)
            .count();
        assert_eq!(
            (counts.bound, counts.released),
            (bound, model.records.len() - bound)
        );
        assert_eq!(
            (counts.reserved, counts.claimed),
            (model.reserved.len(), model.claims.len())
        );
        assert_eq!(counts.waiting, model.waiting.len());
        for last in 0..16 {
            assert_eq!(
                ledger.taken.contains(at(last)),
                !model.holders(at(last)).is_empty()
            );
            assert_eq!(ledger.record(at(last)).as_ref(), model.record(at(last)));
        }
        for name in POOLS {
            let named = |phase: Phase| -> Vec<(IpAddr, OwnerId)> {
                let own = |r: &&Record| *r.spec.pool == *name && r.spec.phase == phase;
                let mut records: Vec<_> = model
                    .records
                    .iter()
                    .filter(own)
                    .map(|r| (r.spec.addr, r.spec.owner.id.clone()))
                    .collect();
                records.sort();
                records
            };
            let Some(view) = ledger.projection(name) else {
                assert!(model.pool(name).is_none());
                continue;
            };
            let listed = model.listed(name);
            let used = listed
                .iter()
                .filter(|(_, addr)| model.is_bound(*addr))
                .count();
            assert_eq!(usize::try_from(view.total).unwrap(), listed.len());
            assert_eq!(
                usize::try_from(view.available).unwrap(),
                listed.len() - used
            );
            let last = model.last.iter().find(|l| *l.0 == *name).map(|l| l.1);
            assert_eq!(view.last_allocated, last);
            let allocated: Vec<_> = view.allocated().map(|(a, id)| (a, id.clone())).collect();
            assert_eq!(allocated, named(Phase::Bound));
            assert_eq!(view.allocated_len, allocated.len());
            let history: Vec<_> = view.history().map(|(a, id, _)| (a, id.clone())).collect();
            assert_eq!(history, named(Phase::Released));
            assert_eq!(view.history_len, history.len());
            let strays: Vec<_> = named(Phase::Bound)
                .into_iter()
                .map(|(addr, _)| addr)
                .filter(|addr| model.ranges(name).is_some() && !model.usable(name, *addr))
                .collect();
            assert_eq!(addrs(&ledger.out_of_pool(name)), strays);
            // Nobody who could be served is left asleep.
            assert_eq!(view.waiting, model.queue(name).len());
            for request in model.queue(name).into_iter().take(model.free(name)) {
                assert!(
                    subject.woken.contains(&request.owner.id),
                    "{:?} sleeps",
                    request.owner
                );
            }
        }
    }
}

prop_state_machine! {
    #[test]
    fn the_ledger_behaves_as_the_model(sequential 1..80 => Subject);
}
