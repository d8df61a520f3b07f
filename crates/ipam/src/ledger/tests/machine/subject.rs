//! The ledger compared with the model: the same steps, the same decisions, the same visible state.

use proptest_state_machine::{StateMachineTest, prop_state_machine};

use super::*;
use crate::select::Verdict;

/// The ledger, and the load balancers that were woken and not decided about since.
struct Subject {
    ledger: Ledger,
    woken: BTreeSet<OwnerId>,
    /// The older pool that each pool overlaps, as reported.
    overlaps: [Option<PoolName>; 2],
}

/// No waiting load balancer has an outdated explanation, unless it was woken.
fn explanations_are_current(ledger: &mut Ledger, woken: &BTreeSet<OwnerId>) {
    assert!(!ledger.may_have_outdated());
    for asker in ledger.askers.all() {
        let now = ledger.explain_requested(&asker.request, asker.addr);
        let now = now.as_ref().map(super::super::super::outdated::digest);
        let is_current = now.is_some() && now == asker.explanation_digest;
        let id = &asker.request.owner.id;
        assert!(is_current || woken.contains(id), "{id} sleeps");
    }
    let waiting: Vec<_> = ledger.waiting.values().cloned().collect();
    for (place, age) in waiting {
        let waiter = ledger.queue(place).get(&age).unwrap();
        let (request, known_digest, is_woken) = (
            waiter.request.clone(),
            waiter.explanation_digest,
            waiter.is_woken,
        );
        let explanation = ledger.explain_to(&request);
        // Addresses that older load balancers can have by now may have been taken at its last decision.
        let left = explanation.pools.first().map(|pool| &pool.verdict);
        let taken = |name: &str| {
            let pool = ledger.pools.by_name(name).unwrap();
            pool.full(request.workload)
        };
        let mut full = explanation.clone();
        for pool in &mut full.pools {
            if pool.verdict == Verdict::OthersFirst {
                pool.verdict = taken(&pool.pool);
            }
        }
        full.pools
            .sort_by(super::super::super::choose::nearest_first);
        let digests =
            [&explanation, &full].map(|it| Some(super::super::super::outdated::digest(it)));
        assert!(
            is_woken || digests.contains(&known_digest),
            "{age:?} has another explanation than {left:?}"
        );
    }
}

fn addrs(records: &[Record]) -> Vec<IpAddr> {
    records.iter().map(|record| record.spec.addr).collect()
}

fn outcome(decision: Decision) -> Outcome {
    match decision {
        Decision::Held {
            grant,
            extra_records,
        } => Outcome::Held(grant.addr, addrs(&extra_records)),
        Decision::Adopt {
            grant,
            extra_records,
            ..
        } => Outcome::Adopt(grant.addr, addrs(&extra_records)),
        Decision::Take {
            spec,
            replaces,
            reason,
            extra_records,
            ..
        } => Outcome::Take(spec, replaces, reason, addrs(&extra_records)),
        Decision::Wait {
            reason,
            extra_records,
            keep_service,
            ..
        } => Outcome::Wait(reason, addrs(&extra_records), keep_service),
    }
}

impl StateMachineTest for Subject {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        Self {
            ledger: Ledger::new(Settings::default()),
            woken: BTreeSet::new(),
            overlaps: [None, None],
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
                let decision = ledger.decide(&request, Micros(now));
                // The same request gets the same decision, whatever else that says.
                assert_eq!(ledger.decide(&request, Micros(now + 1)), decision);
                assert_eq!(outcome(decision), wanted);
            }
            Effect::Allocate(request, before, turns) => {
                subject.woken.remove(&request.owner.id);
                allocate::execute(ledger, model, &request, &before, &turns);
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
        let outdated = subject
            .ledger
            .take_outdated_explanations(usize::MAX, usize::MAX);
        subject.woken.extend(outdated);
        explanations_are_current(&mut subject.ledger, &subject.woken);
        let overlap_changed = subject.ledger.take_overlap_changes();
        for (name, known) in POOLS.iter().zip(&mut subject.overlaps) {
            if overlap_changed.contains(*name) {
                *known = subject.ledger.overlaps(name);
            }
        }
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
        let asking = model.asking.iter().filter(|it| !it.has_address);
        assert_eq!(counts.waiting, model.waiting.len() + asking.count());
        assert_eq!(ledger.held_back.len(), model.held_back.len());
        for last in 0..ADDRESSES {
            assert_eq!(ledger.taken.contains(at(last)), model.is_taken(at(last)));
            assert_eq!(ledger.record(at(last)).as_ref(), model.record(at(last)));
        }
        for (name, overlaps) in POOLS.into_iter().zip(&subject.overlaps) {
            assert_eq!(ledger.overlaps(name), model.older(name));
            assert_eq!(*overlaps, model.older(name), "not told of {name}");
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
                .filter(|(_, addr)| model.is_held(*addr))
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
            let excludes = |addr: &IpAddr| {
                let ranges = model.ranges(name);
                ranges.is_some_and(|ranges| Model::excludes(ranges, *addr))
            };
            let (excluded, out): (Vec<_>, Vec<_>) = strays.into_iter().partition(excludes);
            assert_eq!(addrs(&ledger.out_of_pool(name)), out);
            assert_eq!(addrs(&ledger.excluded(name)), excluded);
            // Every load balancer that can be served was woken.
            assert_eq!(view.waiting, model.queue(name).len());
            let queue = model.queue(name).into_iter();
            for request in queue.filter(|request| model.is_due(name, request)) {
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
