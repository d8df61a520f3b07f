use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn check(success: i64, failure: i64, period: i64) -> HealthCheck {
    HealthCheck::new(Some(80), Some(success), Some(failure), Some(period), None)
        .unwrap()
        .unwrap()
}

fn addr(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn target(id: &str, last: u8, ready: bool) -> Target {
    Target::new(id, addr(last), ready)
}

fn set(
    registry: &mut Registry,
    now: Duration,
    group: &str,
    check: HealthCheck,
    mut targets: Vec<Target>,
) -> Vec<u64> {
    let mut cancelled = Vec::new();
    in_order(&mut targets);
    registry.set_group(now, &group.into(), check, targets, &mut cancelled);
    cancelled
}

fn launch(registry: &mut Registry, now: Duration) -> Vec<Launch> {
    let mut out = Vec::new();
    registry.launch(now, Room::UNBOUNDED, &mut out);
    out
}

/// Probes every target that is due until `until` with this result, without delay.
fn run(registry: &mut Registry, until: Duration, result: ProbeResult) -> usize {
    let mut probes = 0;
    while let Some(at) = registry
        .next_deadline(Room::UNBOUNDED)
        .filter(|at| *at <= until)
    {
        for launch in launch(registry, at) {
            registry.finish(at, launch.ticket, result);
            probes += 1;
        }
    }
    probes
}

fn ready(registry: &Registry, group: &str) -> Vec<(String, bool)> {
    let views = registry.group(group).unwrap();
    views
        .into_iter()
        .map(|view| (view.id.to_string(), view.ready))
        .collect()
}

#[test]
fn eps_1_new_target_starts_with_the_ready_it_is_given() {
    let mut registry = Registry::default();
    let targets = vec![target("b", 2, true), target("a", 1, false)];
    set(&mut registry, SECOND, "g", check(1, 3, 5), targets);
    assert_eq!(
        ready(&registry, "g"),
        [("a".into(), false), ("b".into(), true)]
    );
    assert_eq!(registry.verdict("g", "b", addr(2)), Some(true));
    assert_eq!(registry.verdict("g", "b", addr(1)), None);
    assert_eq!(registry.verdict("x", "b", addr(2)), None);
    let snapshot = registry.snapshot(0);
    assert_eq!(
        (
            snapshot.groups,
            snapshot.targets,
            snapshot.up,
            snapshot.down()
        ),
        (1, 2, 1, 1)
    );
}

#[test]
fn eps_1_same_address_under_another_uid_is_a_new_target() {
    let mut registry = Registry::default();
    set(
        &mut registry,
        Duration::ZERO,
        "g",
        check(1, 3, 5),
        vec![target("old", 1, true)],
    );
    set(
        &mut registry,
        SECOND,
        "g",
        check(1, 3, 5),
        vec![target("new", 1, false)],
    );
    assert_eq!(ready(&registry, "g"), [("new".into(), false)]);
    assert!(registry.next_deadline(Room::UNBOUNDED) >= Some(SECOND * 6));
    set(
        &mut registry,
        SECOND,
        "g",
        check(1, 3, 5),
        vec![target("new", 2, true)],
    );
    assert_eq!(
        registry.verdict("g", "new", addr(2)),
        Some(true),
        "a new address is new too"
    );
    assert_eq!(registry.snapshot(0).targets, 1);
}

#[test]
fn hc_2_the_same_group_again_keeps_verdicts_counters_and_timetable() {
    let mut registry = Registry::default();
    let group = |registry: &mut Registry, now| {
        let targets = vec![target("a", 1, true), target("b", 2, true)];
        assert!(set(registry, now, "g", check(1, 3, 5), targets).is_empty());
    };
    group(&mut registry, Duration::ZERO);
    // Two failures of three, with another call between every two probes.
    for round in 1..=2_u32 {
        run(
            &mut registry,
            SECOND * 5 * round + SECOND,
            ProbeResult::Refused,
        );
        let next = registry.next_deadline(Room::UNBOUNDED);
        group(&mut registry, SECOND * 5 * round + SECOND);
        assert_eq!(registry.next_deadline(Room::UNBOUNDED), next);
    }
    assert_eq!(registry.snapshot(0).up, 2);
    run(&mut registry, SECOND * 16, ProbeResult::Timeout);
    assert_eq!(registry.snapshot(0).up, 0);
    group(&mut registry, SECOND * 16);
    assert_eq!(
        registry.snapshot(0).up,
        0,
        "the passed ready is not read again"
    );
}

#[test]
fn hc_2_changed_check_restarts_with_fresh_counters_and_keeps_ready() {
    let mut registry = Registry::default();
    let group = |registry: &mut Registry, now, check| {
        set(registry, now, "g", check, vec![target("a", 1, false)])
    };
    group(&mut registry, Duration::ZERO, check(1, 3, 5));
    run(&mut registry, SECOND * 6, ProbeResult::Success);
    run(&mut registry, SECOND * 17, ProbeResult::Refused);
    assert_eq!(
        ready(&registry, "g"),
        [("a".into(), true)],
        "two failures of three"
    );
    let other_port = HealthCheck::new(Some(81), None, None, None, None)
        .unwrap()
        .unwrap();
    group(&mut registry, SECOND * 17, other_port);
    assert_eq!(
        ready(&registry, "g"),
        [("a".into(), true)],
        "the verdict, not the passed ready"
    );
    assert!(
        registry.next_deadline(Room::UNBOUNDED) >= Some(SECOND * 22),
        "a full period from now"
    );
    assert_eq!(run(&mut registry, SECOND * 28, ProbeResult::Refused), 2);
    assert_eq!(
        ready(&registry, "g"),
        [("a".into(), true)],
        "two of three again"
    );
    run(&mut registry, SECOND * 33, ProbeResult::Refused);
    assert_eq!(ready(&registry, "g"), [("a".into(), false)]);
}

#[test]
fn hc_2_probe_in_flight_of_a_restarted_or_removed_target_alters_nothing() {
    let mut registry = Registry::default();
    let targets = || vec![target("a", 1, false)];
    set(
        &mut registry,
        Duration::ZERO,
        "g",
        check(1, 1, 5),
        targets(),
    );
    let old = launch(&mut registry, SECOND * 6)[0];
    let cancelled = set(&mut registry, SECOND * 6, "g", check(1, 1, 6), targets());
    assert_eq!(cancelled, [old.ticket.number]);
    assert!(!registry.waits_for(old.ticket));
    assert_eq!(
        registry.finish(SECOND * 7, old.ticket, ProbeResult::Success),
        Finished::Stale
    );
    assert_eq!(ready(&registry, "g"), [("a".into(), false)]);
    assert!(registry.next_deadline(Room::UNBOUNDED) >= Some(SECOND * 12));

    let old = launch(&mut registry, SECOND * 13)[0];
    assert!(registry.waits_for(old.ticket));
    assert_eq!(
        set(&mut registry, SECOND * 13, "g", check(1, 1, 6), Vec::new()),
        [old.ticket.number]
    );
    // The index is reused by another target.
    set(
        &mut registry,
        SECOND * 13,
        "g",
        check(1, 1, 6),
        vec![target("b", 1, false)],
    );
    assert_eq!(
        registry.finish(SECOND * 14, old.ticket, ProbeResult::Success),
        Finished::Stale
    );
    assert_eq!(ready(&registry, "g"), [("b".into(), false)]);
    assert!(registry.changes.take(SECOND * 60).is_empty());
}

#[test]
fn hc_2_removed_group_is_gone_with_its_edge() {
    let mut registry = Registry::default();
    set(
        &mut registry,
        Duration::ZERO,
        "g",
        check(1, 1, 5),
        vec![target("a", 1, false)],
    );
    run(&mut registry, SECOND * 6, ProbeResult::Success);
    assert!(registry.changes.next_deadline().is_some());
    assert!(registry.remove_group("g", &mut Vec::new()));
    assert!(!registry.remove_group("g", &mut Vec::new()));
    assert_eq!(registry.changes.next_deadline(), None);
    assert_eq!(registry.next_deadline(Room::UNBOUNDED), None);
    assert_eq!(registry.snapshot(0), Snapshot::default());
    assert_eq!((registry.group("g"), registry.check("g")), (None, None));
}

#[test]
fn hc_own_fault_counts_neither_way() {
    let mut registry = Registry::default();
    set(
        &mut registry,
        Duration::ZERO,
        "g",
        check(1, 2, 5),
        vec![target("a", 1, true)],
    );
    let fault = ProbeResult::OwnFault(crate::OwnFault::FileLimit);
    let mut failed = false;
    for (result, up) in [
        (fault, 1),
        (fault, 1),
        (ProbeResult::Refused, 1),
        (fault, 1),
        // The second consecutive failure, own faults not counted.
        (ProbeResult::Refused, 0),
        (fault, 0),
    ] {
        let at = registry.next_deadline(Room::UNBOUNDED).unwrap();
        let ticket = launch(&mut registry, at)[0].ticket;
        registry.finish(at, ticket, result);
        failed |= result == ProbeResult::Refused;
        assert_eq!(registry.snapshot(0).up, up);
        let last = registry.group("g").unwrap()[0].last;
        assert_eq!(
            last,
            failed.then_some(ProbeResult::Refused),
            "own faults say nothing"
        );
        assert_eq!(
            registry.next_deadline(Room::UNBOUNDED),
            Some(at + SECOND * 5),
            "again next period"
        );
    }
}

#[test]
fn hc_6_targets_whose_verdict_is_of_the_past_are_counted() {
    let mut registry = Registry::default();
    let all = || vec![target("a", 1, true), target("b", 2, false)];
    set(&mut registry, Duration::ZERO, "g", check(1, 2, 5), all());
    let fault = ProbeResult::OwnFault(crate::OwnFault::Network);
    let round = |registry: &mut Registry, result| {
        let from = registry.next_deadline(Room::UNBOUNDED).unwrap();
        assert_eq!(run(registry, from + SECOND, result), 2);
        let snapshot = registry.snapshot(0);
        (snapshot.unknown, snapshot.up)
    };
    assert_eq!(round(&mut registry, fault), (0, 1));
    assert_eq!(round(&mut registry, fault), (2, 1), "the verdicts stay");
    assert_eq!(round(&mut registry, fault), (2, 1));
    assert_eq!(round(&mut registry, ProbeResult::Refused), (0, 1));
    assert_eq!(round(&mut registry, fault), (0, 1));
    assert_eq!(round(&mut registry, fault), (2, 1));
    // One is removed; the other restarts with another check.
    let now = SECOND * 100;
    set(
        &mut registry,
        now,
        "g",
        check(1, 2, 5),
        vec![target("a", 1, true)],
    );
    assert_eq!(registry.snapshot(0).unknown, 1);
    set(
        &mut registry,
        now,
        "g",
        check(1, 3, 5),
        vec![target("a", 1, true)],
    );
    assert_eq!(registry.snapshot(0).unknown, 0);
}

#[test]
fn hc_6_a_verdict_that_becomes_stale_or_fresh_is_delivered_once() {
    let mut registry = Registry::default();
    let all = vec![target("a", 1, true), target("b", 2, true)];
    set(&mut registry, Duration::ZERO, "g", check(1, 2, 5), all);
    let fault = ProbeResult::OwnFault(crate::OwnFault::Network);
    // The result of a round, whether the verdicts are stale after it, and whether the group is delivered.
    for (result, stale, delivered) in [
        (fault, false, false),
        (fault, true, true),
        (fault, true, false),
        (ProbeResult::Success, false, true),
        (ProbeResult::Success, false, false),
    ] {
        let from = registry.next_deadline(Room::UNBOUNDED).unwrap();
        assert_eq!(run(&mut registry, from + SECOND * 4, result), 2);
        let views = registry.group("g").unwrap();
        assert!(views.iter().all(|view| view.stale == stale && view.ready));
        let groups = registry.changes.take(from + SECOND * 10);
        assert_eq!(!groups.is_empty(), delivered, "{result:?}");
    }
}

#[test]
fn hc_1_the_first_verdict_on_a_new_target_is_delivered() {
    let mut registry = Registry::default();
    let all = vec![target("a", 1, false)];
    set(&mut registry, Duration::ZERO, "g", check(2, 2, 5), all);
    // The result, the failure that is known after it, and whether the group is delivered.
    let (refused, timeout) = (ProbeResult::Refused, ProbeResult::Timeout);
    for (result, failure, delivered) in [
        (refused, None, false),
        (refused, Some(refused), true),
        // Another failure is no new verdict.
        (timeout, Some(refused), false),
        (timeout, Some(refused), false),
        (ProbeResult::Success, Some(refused), false),
        (ProbeResult::Success, None, true),
        (timeout, None, false),
        (timeout, Some(timeout), true),
    ] {
        let at = registry.next_deadline(Room::UNBOUNDED).unwrap();
        assert_eq!(run(&mut registry, at, result), 1);
        assert_eq!(registry.group("g").unwrap()[0].failure, failure);
        let groups = registry.changes.take(at + SECOND);
        assert_eq!(!groups.is_empty(), delivered, "{result:?} at {at:?}");
    }
    // A restart knows nothing yet.
    let all = vec![target("a", 1, false)];
    set(&mut registry, SECOND * 100, "g", check(1, 2, 5), all);
    assert_eq!(registry.group("g").unwrap()[0].failure, None);
}

#[test]
fn hc_target_listed_twice_counts_once_and_the_first_wins() {
    let mut registry = Registry::default();
    let targets = vec![
        target("a", 1, true),
        target("b", 1, false),
        target("a", 1, false),
    ];
    set(&mut registry, Duration::ZERO, "g", check(1, 3, 5), targets);
    assert_eq!(
        ready(&registry, "g"),
        [("a".into(), true), ("b".into(), false)]
    );
}

#[test]
fn hc_phase_is_the_same_in_every_process() {
    // A fixed value: another hash would shuffle the timetable at an update.
    assert_eq!(
        phase("shop/web", "uid-1", addr(7)),
        phase("shop/web", "uid-1", addr(7))
    );
    assert_ne!(
        phase("shop/web", "uid-1", addr(7)),
        phase("shop/web", "uid-1", addr(8))
    );
    assert_ne!(phase("ab", "c", addr(1)), phase("a", "bc", addr(1)));
    assert_eq!(
        phase("shop/web", "uid-1", addr(7)),
        13_971_040_425_086_663_170
    );
    // Neighbours, as real addresses are, do not cluster: each tenth of the range has its share.
    let mut tenths = [0_u32; 10];
    for last in 0..250 {
        for group in ["ns/a", "ns/b", "ns/c", "ns/d"] {
            let share = (u128::from(phase(group, "uid", addr(last))) * 10) >> 64;
            tenths[usize::try_from(share).unwrap()] += 1;
        }
    }
    assert!(
        tenths.iter().all(|count| (60..=140).contains(count)),
        "{tenths:?}"
    );
}

#[derive(Clone, Debug)]
enum Step {
    Set {
        group: u8,
        check: u8,
        targets: Vec<(u8, bool)>,
    },
    Remove {
        group: u8,
    },
    /// Some seconds pass; due probes start and stay in flight.
    Start {
        seconds: u8,
    },
    /// The oldest probe in flight ends, successful or not, even if it is not needed any more.
    End {
        success: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let targets = prop::collection::vec((0_u8..6, any::<bool>()), 0..6);
    let step = prop_oneof![
        2 => (0_u8..3, 0_u8..2, targets)
            .prop_map(|(group, check, targets)| Step::Set { group, check, targets }),
        1 => (0_u8..3).prop_map(|group| Step::Remove { group }),
        3 => (0_u8..8).prop_map(|seconds| Step::Start { seconds }),
        6 => any::<bool>().prop_map(|success| Step::End { success }),
    ];
    prop::collection::vec(step, 0..150)
}

/// A target of the model: its life (a new one with each restart) and its verdict by thresholds of 1.
#[derive(Clone, Copy, Debug)]
struct Life {
    life: u32,
    ready: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Groups, verdicts, counts and tickets, compared with maps that each call rebuilds.
    #[test]
    fn hc_2_registry_is_that_of_the_naive_model(steps in steps()) {
        let mut registry = Registry::default();
        let mut model: BTreeMap<u8, (u8, BTreeMap<u8, Life>)> = BTreeMap::new();
        let mut flights: VecDeque<(Ticket, u8, u8, u32)> = VecDeque::new();
        let mut now = Duration::ZERO;
        let mut lives = 0;
        for step in steps {
            match step {
                Step::Set { group, check: which, targets } => {
                    let list = targets.iter().map(|(t, up)| target(&format!("t{t}"), *t, *up));
                    set(&mut registry, now, &format!("g{group}"), check(1, 1, 2 + i64::from(which)), list.collect());
                    let old = model.remove(&group);
                    let mut new = BTreeMap::new();
                    for (target, ready) in targets {
                        lives += 1;
                        let known = old.as_ref().and_then(|(old, members)| {
                            let known = members.get(&target)?;
                            let life = if *old == which { known.life } else { lives };
                            Some(Life { life, ready: known.ready })
                        });
                        new.entry(target).or_insert_with(|| known.unwrap_or(Life { life: lives, ready }));
                    }
                    model.insert(group, (which, new));
                }
                Step::Remove { group } => {
                    let known = registry.remove_group(&format!("g{group}"), &mut Vec::new());
                    prop_assert_eq!(known, model.remove(&group).is_some());
                }
                Step::Start { seconds } => {
                    now += SECOND * seconds.into();
                    for launch in launch(&mut registry, now) {
                        let entry = registry.entry(launch.ticket.index).unwrap();
                        let group = entry.group.as_bytes()[1] - b'0';
                        let target = entry.id.as_bytes()[1] - b'0';
                        prop_assert_eq!(launch.addr, SocketAddr::new(addr(target), 80));
                        let life = model[&group].1[&target].life;
                        let twice = flights.iter().any(|(.., other)| *other == life);
                        prop_assert!(!twice, "two probes of one life in flight");
                        flights.push_back((launch.ticket, group, target, life));
                    }
                }
                Step::End { success } => {
                    let Some((ticket, group, target, life)) = flights.pop_front() else { continue };
                    let result = if success { ProbeResult::Success } else { ProbeResult::Timeout };
                    let entry = model.get_mut(&group).and_then(|(_, all)| all.get_mut(&target));
                    let expected = match entry.filter(|entry| entry.life == life) {
                        None => Finished::Stale,
                        Some(entry) if entry.ready == success => Finished::Same,
                        Some(entry) => {
                            entry.ready = success;
                            Finished::Changed(success)
                        }
                    };
                    prop_assert_eq!(registry.finish(now, ticket, result), expected);
                }
            }
            let all: Vec<_> = model.values().flat_map(|(_, all)| all.values()).collect();
            let snapshot = registry.snapshot(0);
            prop_assert_eq!(snapshot.groups, model.len());
            prop_assert_eq!(snapshot.targets, all.len());
            prop_assert_eq!(snapshot.up, all.iter().filter(|life| life.ready).count());
            for (group, (_, members)) in &model {
                let expected: Vec<_> =
                    members.iter().map(|(t, life)| (format!("t{t}"), life.ready)).collect();
                prop_assert_eq!(ready(&registry, &format!("g{group}")), expected);
                for (target, life) in members {
                    let verdict = registry.verdict(&format!("g{group}"), &format!("t{target}"), addr(*target));
                    prop_assert_eq!(verdict, Some(life.ready));
                }
            }
        }
    }
}
