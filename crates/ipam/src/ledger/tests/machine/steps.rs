//! The steps: their weights, and their effect on the model and the ledger.

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

use super::*;

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let model = Self {
            pools: Vec::new(),
            records: Vec::new(),
            reserved: Vec::new(),
            claims: Vec::new(),
            held_back: Vec::new(),
            shown: Vec::new(),
            waiting: Vec::new(),
            asking: Vec::new(),
            last: Vec::new(),
            uid: [0; 6],
            status: [None; 6],
            demand: [None; 6],
            requested: [None; 6],
            now: 100,
            stamp: i64::MIN,
            version: 0,
            in_flight: Vec::new(),
            effect: Effect::None,
        };
        Just(model).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let lb = 0..NAMES.len();
        let pool = 0..POOLS.len();
        let addr = 0..ADDRESSES;
        prop_oneof![
            3 => (pool.clone(), 0..SHAPES).prop_map(|(p, s)| Step::SetPool(p, s)),
            1 => pool.clone().prop_map(Step::RemovePool),
            12 => lb.clone().prop_map(Step::Ask),
            8 => (lb.clone(), allocate::fates()).prop_map(|(l, f)| Step::Allocate(l, f)),
            2 => (0usize..9).prop_map(Step::Land),
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
            2 => (lb.clone(), prop::option::of((addr.clone(), prop::option::of(pool.clone()))))
                .prop_map(|(l, a)| Step::Status(l, a)),
            2 => (lb.clone(), prop::option::of(addr)).prop_map(|(l, a)| Step::Request(l, a)),
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
                let is_same = model
                    .pool(&spec.name)
                    .is_some_and(|known| format!("{known:?}") == format!("{spec:?}"));
                model.pools.retain(|other| other.name != spec.name);
                model.pools.push(spec.clone());
                if !is_same {
                    model.wake_held_back(&spec.name);
                }
                model.effect = Effect::SetPool(spec);
            }
            Step::RemovePool(pool) => {
                let known = model.pools.iter().any(|other| *other.name == *POOLS[pool])
                    || model.records.iter().any(|r| *r.spec.pool == *POOLS[pool]);
                model.pools.retain(|other| *other.name != *POOLS[pool]);
                model.wake_held_back(POOLS[pool]);
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
            Step::Allocate(lb, fates) => {
                let request = model.request(lb);
                let before = model.records.clone();
                let turns = model.allocate(&request, &fates);
                model.effect = Effect::Allocate(request, before, turns);
            }
            Step::Land(n) => model.land(n),
            Step::Enlist(lb) => {
                let request = model.request(lb);
                let id = &request.owner.id;
                model.held_back.retain(|held| held.0.id != *id);
                let holds = !model.bound_of(id).is_empty()
                    || model.reserved.iter().any(|r| r.owner.id == *id)
                    || model.claims.iter().any(|c| c.1.id == *id);
                if !holds {
                    model.earlier_ones_leave(&request.owner);
                    if let Some(addr) = request.requested {
                        model.enlist_requested(&request, addr);
                    } else {
                        model.asking.retain(|it| it.request.owner.id != *id);
                        model.waiting.retain(|w| w.owner.id != *id);
                        model.waiting.push(request.clone());
                    }
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
                        group: None,
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
                        group: None,
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
                        model.claims.push((spec.addr, spec.owner, Some(spec.pool)));
                    }
                }
            }
            Step::Recreate(lb) => model.uid[lb] += 1,
            Step::Withdraw(lb) => {
                let id = OwnerId::new("ns", NAMES[lb]);
                model.drop_holds(&id, None);
                model.waiting.retain(|w| w.owner.id != id);
                model.asking.retain(|it| it.request.owner.id != id);
                model.held_back.retain(|held| held.0.id != id);
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
            Step::Status(lb, named) => model.status[lb] = named,
            Step::Demand(lb, pool) => model.demand[lb] = pool,
            Step::Request(lb, last) => model.requested[lb] = last,
        }
        model.tidy();
        model
    }
}
