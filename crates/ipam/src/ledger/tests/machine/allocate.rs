//! Allocations compared with the model. Each write has a fate: it is accepted or refused, another writer is faster, or
//! its response is lost and it is stored later. After every step the process may crash: the test also runs the
//! allocation of a later process, with the present records and with the stale ones from before the allocation.

use proptest::prelude::*;

use super::fate::{Expected, Fate, InFlight, Turn};
use super::*;
use crate::allocation::tests::server::{Answer, Server};
use crate::allocation::{Allocation, GiveUp, ROUNDS, Step as Next};

pub(super) fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        4 => Just(Fate::Accepted),
        2 => Just(Fate::Refused),
        2 => Just(Fate::Late),
        4 => (0..NAMES.len()).prop_map(Fate::Faster),
        3 => Just(Fate::Overtaken),
    ];
    prop::collection::vec(fate, 0..6)
}

impl Model {
    fn version_at(&self, addr: IpAddr) -> Option<Version> {
        self.record(addr).map(|record| record.version)
    }

    fn turn(&self, expected: Expected) -> Turn {
        Turn {
            now: self.now,
            expected,
            learned: None,
            accepted: false,
            records: self.records.clone(),
        }
    }

    /// Stores a record: the written one, or another one in its place.
    fn stores(&mut self, spec: RecordSpec) -> Option<Record> {
        self.store(spec);
        match std::mem::replace(&mut self.effect, Effect::None) {
            Effect::Observe(record) => Some(record),
            _ => None,
        }
    }

    /// A pending write is stored, if its precondition still holds.
    pub(super) fn land(&mut self, n: usize) {
        if !self.in_flight.is_empty() {
            let (spec, replaces) = self.in_flight.remove(n % self.in_flight.len());
            if self.version_at(spec.addr) == replaces {
                self.store(spec);
            }
        }
    }

    /// The record that is stored before a write arrives.
    fn overtakes(
        &mut self,
        fate: Fate,
        spec: &RecordSpec,
        replaces: Option<Version>,
    ) -> Option<RecordSpec> {
        match fate {
            Fate::Faster(other) if !self.is_bound(spec.addr) => Some(RecordSpec {
                owner: self.request(other).owner,
                bound_at: Micros(self.now),
                ..spec.clone()
            }),
            Fate::Faster(_) => {
                let found = self.record(spec.addr)?;
                Some(RecordSpec {
                    phase: Phase::Released,
                    released_at: Some(Micros(self.now)),
                    ..found.spec.clone()
                })
            }
            Fate::Overtaken => {
                let same = |it: &InFlight| it.0.addr == spec.addr && it.1 == replaces;
                let at = self.in_flight.iter().position(same)?;
                Some(self.in_flight.remove(at).0)
            }
            Fate::Accepted | Fate::Refused | Fate::Late => None,
        }
    }

    /// ALC-8, step by step.
    pub(super) fn allocate(&mut self, request: &Request, fates: &[Fate]) -> Vec<Turn> {
        let mut turns = Vec::new();
        let mut fates = fates.iter().copied();
        let mut unconfirmed = request.status.as_ref().map(|status| status.addr);
        let mut written = None;
        for _ in 0..ROUNDS {
            self.now += 1;
            let outcome = self.decide(request);
            self.tidy();
            let (granted, extra) = match &outcome {
                Outcome::Held(addr, extra) | Outcome::Adopt(addr, extra) => (Some(*addr), extra),
                Outcome::Take(spec, _, _, extra) => (Some(spec.addr), extra),
                Outcome::Wait(_, extra, _) => (None, extra),
            };
            let extra = extra.clone();
            // EXC-1: a load balancer that is held back loses nothing.
            let keep_service = matches!(outcome, Outcome::Wait(_, _, true));
            // A record of another pool than the status names is an old copy.
            let pool = request.status.as_ref().and_then(|it| it.pool.as_ref());
            let has_own = |addr| {
                let record = self.record(addr).map(|record| &record.spec);
                record.is_some_and(|it| {
                    it.owner == request.owner && pool.is_none_or(|pool| *pool == it.pool)
                })
            };
            if let Some(named) = unconfirmed
                && granted != Some(named)
                && !keep_service
                && !(extra.contains(&named) && has_own(named))
            {
                unconfirmed = None;
                if matches!(outcome, Outcome::Take(..)) {
                    self.reserved.retain(|r| r.owner != request.owner);
                }
                turns.push(self.turn(Expected::Read(named)));
                continue;
            }
            let (spec, replaces, reason) = match outcome {
                Outcome::Held(addr, extra) => {
                    turns.push(self.turn(Expected::Done(addr, written == Some(addr), extra)));
                    return turns;
                }
                Outcome::Wait(reason, extra, keep_service) => {
                    turns.push(self.turn(Expected::Wait(reason, extra, keep_service)));
                    return turns;
                }
                Outcome::Adopt(addr, _) => {
                    turns.push(self.turn(Expected::Verify));
                    let mut spec = self.record(addr).unwrap().spec.clone();
                    spec.owner = request.owner.clone();
                    (spec, self.version_at(addr), None)
                }
                Outcome::Take(spec, replaces, reason, _) => {
                    if request.names(spec.addr) {
                        turns.push(self.turn(Expected::VerifyStatus(spec.addr)));
                    }
                    (spec, replaces, Some(reason))
                }
            };
            let (addr, pool) = (spec.addr, spec.pool.clone());
            let mut write = self.turn(Expected::Write(spec.clone(), replaces, reason));
            let fate = fates.next().unwrap_or(Fate::Accepted);
            if matches!(fate, Fate::Refused | Fate::Late) {
                if matches!(fate, Fate::Late) {
                    self.in_flight.push((spec, replaces));
                }
                turns.push(write);
                return turns;
            }
            let other = self.overtakes(fate, &spec, replaces);
            write.accepted = other.is_none();
            write.learned = self.stores(other.unwrap_or(spec));
            write.records = self.records.clone();
            let is_done = write.accepted;
            turns.push(write);
            if is_done {
                written = Some(addr);
                // REQ-4: recorded first, and moved afterwards.
                let is_named = request.pool.as_ref().is_none_or(|it| *it == pool);
                if request.requested.is_some_and(|it| it != addr || !is_named) {
                    continue;
                }
                turns.push(self.turn(Expected::Done(addr, true, extra)));
                return turns;
            }
        }
        turns.push(self.turn(Expected::GiveUp));
        turns
    }
}

fn addrs(records: &[Record]) -> Vec<IpAddr> {
    records.iter().map(|record| record.spec.addr).collect()
}

/// Runs an allocation and compares it with the model; `before`: the records stored before it.
pub(super) fn execute(
    ledger: &mut Ledger,
    model: &Model,
    request: &Request,
    before: &[Record],
    turns: &[Turn],
) {
    let mut allocation = Allocation::acquire(request);
    for turn in turns {
        let mut next = allocation.next(ledger, Micros(turn.now));
        // RUN-1: the API server refuses all deletions.
        while let Next::Delete(record) = next {
            assert_eq!(record.spec.phase, Phase::Released);
            assert_eq!(record.spec.owner.id, request.owner.id);
            next = allocation.next(ledger, Micros(turn.now));
        }
        let step = match next {
            Next::ReadRecord(addr) => Expected::Read(addr),
            Next::VerifyOwner => Expected::Verify,
            Next::VerifyStatus(addr) => Expected::VerifyStatus(addr),
            Next::Write {
                spec,
                replaces,
                reason,
            } => Expected::Write(spec, replaces, reason),
            Next::Done {
                grant,
                extra_records,
                written,
            } => {
                let held = turn.records.iter().map(|record| &record.spec);
                let mut held = held.filter(|it| it.addr == grant.addr);
                assert!(held.any(|it| it.phase == Phase::Bound && it.owner == request.owner));
                Expected::Done(grant.addr, written, addrs(&extra_records))
            }
            Next::Wait {
                reason,
                extra_records,
                keep_service,
                ..
            } => Expected::Wait(reason, addrs(&extra_records), keep_service),
            Next::GiveUp(GiveUp::TooManyRounds) => Expected::GiveUp,
            Next::Delete(_) | Next::Nothing { .. } | Next::GiveUp(_) => panic!("{next:?}"),
        };
        assert_eq!(step, turn.expected);
        if let Some(record) = &turn.learned {
            assert!(ledger.observe(record.clone()));
        }
        if turn.accepted {
            allocation.accepted();
        }
        crash(model, request, &turn.records, &turn.records);
        crash(model, request, &turn.records, before);
    }
}

/// A later process whose cache holds `known`, and an API server that holds `stored`.
fn later(model: &Model, stored: &[Record], known: &[Record]) -> (Ledger, Server) {
    let mut ledger = Ledger::new(Settings::default());
    for pool in &model.pools {
        ledger.set_pool(pool.clone());
    }
    for record in known {
        ledger.observe(record.clone());
    }
    for id in NAMES.map(|name| OwnerId::new("ns", name)) {
        ledger.set_shown(&id, &model.shown_by(&id));
    }
    let records = stored.iter().map(|it| (it.spec.addr, it.clone()));
    let server = Server {
        records: records.collect(),
        version: model.version + 1_000,
    };
    (ledger, server)
}

/// After a crash of the process: a later one continues, with a cache that is current, or stale from before the
/// allocation.
fn crash(model: &Model, request: &Request, stored: &[Record], known: &[Record]) {
    let id = &request.owner.id;
    let is_bound = |it: &&Record| it.spec.phase == Phase::Bound;
    let is_own = |it: &&Record| is_bound(it) && it.spec.owner.id == *id;
    let had: Vec<IpAddr> = stored
        .iter()
        .filter(is_own)
        .map(|it| it.spec.addr)
        .collect();
    let is_current = stored == known;
    for keeps in [false, true] {
        let (mut ledger, mut server) = later(model, stored, known);
        let mut allocation = if keeps {
            Allocation::keep(request)
        } else {
            Allocation::acquire(request)
        };
        let steps = server.play(&mut ledger, &mut allocation, |_, _| Answer::Executed);
        let own = server.records.values().filter(is_own);
        let gained: Vec<IpAddr> = own
            .map(|it| it.spec.addr)
            .filter(|addr| !had.contains(addr))
            .collect();

        // Each round reads, or verifies and writes; in addition, records may be deleted.
        assert!(steps.len() <= 2 * ROUNDS as usize + known.len());
        match steps.last().unwrap() {
            Next::Done { grant, written, .. } => {
                let found = server.records.get(&grant.addr).filter(is_bound);
                let is_held = found.is_some_and(|it| it.spec.owner == request.owner);
                // A record in its stale cache may be gone if it wrote nothing; the watch will tell it.
                assert!(is_held || !is_current && !written, "{steps:?}");
            }
            Next::Wait { .. } => assert!(!keeps),
            Next::Nothing { .. } => assert!(keeps),
            last => assert!(
                *last == Next::GiveUp(GiveUp::TooManyRounds) && !is_current,
                "{steps:?}"
            ),
        }
        for other in stored.iter().filter(is_bound).filter(|it| !is_own(it)) {
            assert_eq!(server.records.get(&other.spec.addr), Some(other));
        }
        // REQ-4: one that it has already is recorded before it moves.
        let most = 1 + usize::from(request.requested.is_some());
        assert!(gained.len() <= most, "{steps:?}");
        let serves = |it: &&Record| {
            let demanded = request
                .pool
                .as_ref()
                .is_none_or(|it_is| *it_is == it.spec.pool);
            // REQ-4: it moves to what it requests.
            let asked = request.requested.is_none_or(|addr| addr == it.spec.addr);
            let is_its_own = it.spec.owner == request.owner;
            // BE-7: of an earlier one only what this one can have, or its status names.
            let status = request.status.as_ref().map(|status| status.addr);
            let adopts = status == Some(it.spec.addr) || request.takes(it.spec.addr);
            is_own(it)
                && if keeps {
                    is_its_own
                } else {
                    demanded && asked && (is_its_own || adopts)
                }
        };
        let serving = stored.iter().find(serves);
        assert!(
            gained.is_empty() || !is_current || serving.is_none(),
            "doubled: {steps:?}"
        );
        if keeps {
            let mut known = known
                .iter()
                .filter(is_own)
                .map(|it| it.spec.addr)
                .collect::<Vec<_>>();
            known.extend(model.shown_by(id));
            known.extend(request.status.as_ref().map(|status| status.addr));
            assert!(gained.iter().all(|addr| known.contains(addr)), "{steps:?}");
        }
    }
}
