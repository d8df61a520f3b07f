//! The timetable against a model without an index: a list that is searched each time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use super::*;

const KEYS: u32 = 6;

#[derive(Clone, Debug)]
enum Step {
    Add {
        key: u32,
        period: u64,
        phase: u64,
    },
    Remove {
        key: u32,
    },
    /// Time passes, then the due keys are taken.
    Due {
        after: u64,
        room: Room,
    },
    /// Time passes, then a probe ends (if the key has one).
    Finish {
        after: u64,
        key: u32,
        silent: bool,
    },
}

#[derive(Clone, Debug, Default)]
struct Model {
    now: Duration,
    keys: BTreeMap<u32, Key>,
    /// What the last step handed out.
    out: Vec<Due>,
}

#[derive(Clone, Debug)]
struct Key {
    first: Duration,
    period: Duration,
    started: Option<Duration>,
    next: Duration,
    silent: bool,
    starts: u32,
}

impl Key {
    /// The slots of this key from the first one on.
    fn slots(&self) -> impl Iterator<Item = Duration> + '_ {
        (0..).map(|round| self.first + self.period * round)
    }

    fn finish(&mut self, now: Duration, silent: bool) {
        let Some(started) = self.started.take() else {
            return;
        };
        self.silent = silent;
        // The slot of this probe is the last one at or before its due time.
        let slot = self
            .slots()
            .take_while(|slot| *slot <= self.next)
            .last()
            .unwrap();
        let following = slot + self.period;
        let slow = now >= started + self.period;
        self.next = if following >= now {
            following
        } else if slow {
            now
        } else {
            self.slots().find(|slot| *slot > now).unwrap()
        };
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let phase = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
        let after =
            prop_oneof![3 => 0_u64..300, 2 => 0_u64..3000, 1 => Just(1000), 1 => 0_u64..20_000];
        prop_oneof![
            2 => (0..KEYS, 1_u64..4, phase)
                .prop_map(|(key, period, phase)| Step::Add { key, period, phase }),
            1 => (0..KEYS).prop_map(|key| Step::Remove { key }),
            4 => (after.clone(), 0_usize..5, 0_usize..5)
                .prop_map(|(after, all, silent)| Step::Due { after, room: Room { all, silent } }),
            4 => (after, 0..KEYS, any::<bool>())
                .prop_map(|(after, key, silent)| Step::Finish { after, key, silent }),
        ]
        .boxed()
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        state.out.clear();
        match *step {
            Step::Add { key, period, phase } => {
                state.keys.remove(&key);
                let period = Duration::from_secs(period);
                let first = first_probe(state.now, period, phase, state.keys.len() + 1);
                let new = Key {
                    first,
                    period,
                    started: None,
                    next: first,
                    silent: false,
                    starts: 0,
                };
                state.keys.insert(key, new);
            }
            Step::Remove { key } => {
                state.keys.remove(&key);
            }
            Step::Due { after, mut room } => {
                state.now += ms(after);
                let waits = |key: &Key| key.started.is_none() && key.next <= state.now;
                let mut out: Vec<_> = state
                    .keys
                    .iter()
                    .filter(|(_, key)| waits(key))
                    .map(|(k, v)| (v.next, *k))
                    .collect();
                out.sort_unstable();
                for (scheduled, key) in out {
                    let entry = state.keys.get_mut(&key).unwrap();
                    let silent = entry.silent;
                    if room.all == 0 || silent && room.silent == 0 {
                        continue;
                    }
                    room.all -= 1;
                    room.silent -= usize::from(silent);
                    entry.started = Some(state.now);
                    entry.starts += 1;
                    state.out.push(Due {
                        key,
                        scheduled,
                        silent,
                    });
                }
            }
            Step::Finish { after, key, silent } => {
                state.now += ms(after);
                if let Some(entry) = state.keys.get_mut(&key) {
                    entry.finish(state.now, silent);
                }
            }
        }
        state
    }
}

struct Real {
    table: Timetable,
    out: Vec<Due>,
}

impl StateMachineTest for Real {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        Self {
            table: Timetable::default(),
            out: Vec::new(),
        }
    }

    fn apply(mut state: Self, model: &Model, step: Step) -> Self {
        state.out.clear();
        // The model has applied this step already: its time is that of the step's end, and an addition takes no time.
        match step {
            Step::Add { key, period, phase } => {
                state
                    .table
                    .add(key, model.now, Duration::from_secs(period), phase);
            }
            Step::Remove { key } => state.table.remove(key),
            Step::Due { room, .. } => state.table.due(model.now, room, &mut state.out),
            Step::Finish { key, silent, .. } => state.table.finish(key, model.now, silent),
        }
        state
    }

    fn check_invariants(state: &Self, model: &Model) {
        assert_eq!(state.out, model.out);
        assert_eq!(state.table.len(), model.keys.len());
        for silent in [0, 1] {
            let next = model
                .keys
                .values()
                .filter(|key| key.started.is_none() && (silent > 0 || !key.silent))
                .map(|key| key.next);
            let room = Room { all: 1, silent };
            assert_eq!(state.table.next_deadline(room), next.min());
        }
        for key in model.keys.values() {
            // At most once per period: never more probes than slots have passed.
            let slots = key.slots().take_while(|slot| *slot <= model.now).count();
            assert!(key.starts as usize <= slots, "{key:?} at {:?}", model.now);
        }
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hc_timetable_is_that_of_the_naive_model(sequential 1..120 => Real);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With probes shorter than their period and a frequent timer, each key has exactly one probe per slot, at most one
    /// pass of the timer late.
    #[test]
    fn hc_every_target_is_probed_exactly_once_per_period(
        keys in prop::collection::vec((1_u64..6, any::<u64>(), 0_u64..5000, 1_u64..900), 1..40),
        tick in 1_u64..50,
    ) {
        let mut table = Timetable::default();
        let mut starts: Vec<Vec<Duration>> = vec![Vec::new(); keys.len()];
        let mut first = vec![Duration::ZERO; keys.len()];
        let mut running: Vec<(Duration, u32)> = Vec::new();
        let mut out = Vec::new();
        let mut added = 0;
        let end = 30_000;
        let mut now = 0;
        while now < end {
            for (index, (period, phase, at, _)) in keys.iter().enumerate() {
                if *at >= now && *at < now + tick {
                    let (key, period) = (u32::try_from(index).unwrap(), Duration::from_secs(*period));
                    added += 1;
                    first[index] = first_probe(ms(now), period, *phase, added);
                    table.add(key, ms(now), period, *phase);
                }
            }
            running.retain(|(at, key)| {
                let over = *at <= ms(now);
                if over {
                    table.finish(*key, ms(now), false);
                }
                !over
            });
            out.clear();
            table.due(ms(now), Room::UNBOUNDED, &mut out);
            for due in &out {
                prop_assert!(!running.iter().any(|(_, key)| *key == due.key), "two in flight");
                starts[due.key as usize].push(ms(now));
                running.push((ms(now + keys[due.key as usize].3), due.key));
            }
            now += tick;
        }
        for (index, (period, ..)) in keys.iter().enumerate() {
            for (round, start) in (0..).zip(&starts[index]) {
                let slot = first[index] + Duration::from_secs(*period) * round;
                prop_assert!(*start >= slot && *start < slot + ms(tick), "{start:?} for {slot:?}");
            }
            let last = ms(end - tick);
            let slots = (0_u32..40)
                .map(|round| first[index] + Duration::from_secs(*period) * round)
                .take_while(|slot| *slot <= last)
                .count();
            prop_assert!(starts[index].len() >= slots);
        }
    }
}
