use super::*;
use harvester_lb_prober::OwnFault;

const T1: &str = "2026-01-01T00:00:00Z";
const T2: &str = "2026-01-01T00:00:05Z";

/// A health in a table: name, ready, cause.
type Row = (&'static str, bool, Option<Cause>);

const OK: Option<Cause> = None;
const NEW: Option<Cause> = Some(Cause::NotChecked);
const REFUSED: Option<Cause> = Some(Cause::CheckFailed(ProbeResult::Refused));
const TIMEOUT: Option<Cause> = Some(Cause::CheckFailed(ProbeResult::Timeout));
const PAUSED: Option<Cause> = Some(Cause::State(VmiState::Paused));
const OVER: Option<Cause> = Some(Cause::State(VmiState::Succeeded));
const STALE: Option<Cause> = Some(Cause::Stale);

fn rows(rows: &[Row]) -> Vec<BackendHealth<'static>> {
    let health = |(name, ready, cause): &Row| BackendHealth {
        name,
        ready: *ready,
        cause: *cause,
    };
    rows.iter().map(health).collect()
}

/// The conditions that hold this one alone.
fn stored(detail: &DetailCondition) -> Vec<Condition> {
    let mut conditions = Vec::new();
    apply(&mut conditions, std::slice::from_ref(detail), T1);
    conditions
}

/// Status, reason and message.
type Said<'a> = (&'static str, &'static str, &'a str);

/// What a condition says.
fn said(detail: &DetailCondition) -> Said<'_> {
    let (status, reason, message) = detail.value.as_ref().unwrap();
    (status.as_str(), reason, message)
}

#[test]
fn detail_backends_healthy_names_who_is_not_and_why() {
    let cases: [(&[Row], bool, Said<'_>); 12] = [
        (
            &[("vm1", true, OK), ("vm2", true, OK)],
            true,
            ("True", "BackendsHealthy", "2 of 2"),
        ),
        (
            &[("vm1", true, OK)],
            false,
            (
                "True",
                "BackendsHealthy",
                "1 of 1; there is no health check",
            ),
        ),
        (
            &[
                ("vm1", true, OK),
                ("vm2", false, REFUSED),
                ("vm3", true, OK),
            ],
            true,
            (
                "False",
                "SomeBackendsUnhealthy",
                "2 of 3; vm2: connection refused",
            ),
        ),
        (
            &[("vm1", false, TIMEOUT), ("vm2", false, REFUSED)],
            true,
            (
                "False",
                "BackendsUnhealthy",
                "0 of 2; vm1: timed out; vm2: connection refused",
            ),
        ),
        (
            &[("vm1", false, NEW), ("vm2", false, NEW)],
            true,
            (
                "Unknown",
                "FirstHealthChecks",
                "0 of 2; vm1: no health check result yet; vm2: no health check result yet",
            ),
        ),
        (
            &[("vm1", true, OK), ("vm2", false, NEW)],
            true,
            (
                "Unknown",
                "FirstHealthChecks",
                "1 of 2; vm2: no health check result yet",
            ),
        ),
        (
            &[("vm1", false, REFUSED), ("vm2", false, NEW)],
            true,
            (
                "False",
                "BackendsUnhealthy",
                "0 of 2; vm1: connection refused; vm2: no health check result yet",
            ),
        ),
        (
            &[("vm1", true, STALE), ("vm2", false, REFUSED)],
            true,
            (
                "Unknown",
                "HealthChecksStale",
                "1 of 2; vm1: its health checks cannot be started; vm2: connection refused",
            ),
        ),
        (
            &[("vm1", false, OVER), ("vm2", true, OK)],
            false,
            (
                "False",
                "SomeBackendsUnhealthy",
                "1 of 2; there is no health check; vm1: Succeeded",
            ),
        ),
        (
            &[("vm1", false, PAUSED), ("vm2", true, OK)],
            true,
            ("False", "SomeBackendsUnhealthy", "1 of 2; vm1: paused"),
        ),
        (
            &[("vm1", false, Some(Cause::State(VmiState::Failed)))],
            true,
            ("False", "BackendsUnhealthy", "0 of 1; vm1: Failed"),
        ),
        (
            &[(
                "vm1",
                false,
                Some(Cause::CheckFailed(ProbeResult::Unreachable)),
            )],
            true,
            (
                "False",
                "BackendsUnhealthy",
                "0 of 1; vm1: host unreachable",
            ),
        ),
    ];
    for (all, is_checked, expected) in cases {
        let detail = backends_healthy(&rows(all), is_checked, &[]);
        assert_eq!(said(&detail), expected);
        assert_eq!(detail.type_, BACKENDS_HEALTHY);
    }
}

#[test]
fn detail_five_backends_are_named_at_most() {
    let names: Vec<String> = (1..=7).map(|n| format!("vm{n}")).collect();
    let health = |name| BackendHealth {
        name,
        ready: false,
        cause: REFUSED,
    };
    let all: Vec<BackendHealth<'_>> = names.iter().map(|name| health(name)).collect();
    let detail = backends_healthy(&all, true, &[]);
    let (.., message) = said(&detail);
    assert!(
        message.ends_with("; vm5: connection refused; and 2 more"),
        "{message}"
    );
    assert_eq!(counts(message), Some((0, 7)));
    // The longest names fit in, and are found again.
    let long = "v".repeat(253);
    let all = vec![health(&long); 9];
    let detail = backends_healthy(&all, true, &[]);
    let (.., message) = said(&detail);
    assert!(
        message.len() <= MESSAGE_LIMIT && message.ends_with("and 4 more"),
        "{message}"
    );
    let other = BackendHealth {
        cause: TIMEOUT,
        ..health(&long)
    };
    let again = backends_healthy(&vec![other; 9], true, &stored(&detail));
    assert_eq!(again, detail);
}

#[test]
fn detail_the_text_changes_with_a_verdict_only() {
    // What is stored, what holds now, and whether the stored text stays.
    let cases: [(&[Row], &[Row], bool); 9] = [
        // It fails in another way.
        (
            &[("a", true, OK), ("b", false, REFUSED)],
            &[("a", true, OK), ("b", false, TIMEOUT)],
            true,
        ),
        // A new process has no result yet.
        (
            &[("a", true, OK), ("b", false, REFUSED)],
            &[("a", true, OK), ("b", false, NEW)],
            true,
        ),
        (
            &[("b", false, REFUSED), ("c", false, NEW)],
            &[("b", false, NEW), ("c", false, NEW)],
            true,
        ),
        // The first verdict.
        (
            &[("a", true, OK), ("b", false, NEW)],
            &[("a", true, OK), ("b", false, REFUSED)],
            false,
        ),
        (
            &[("b", false, REFUSED), ("c", false, NEW)],
            &[("b", false, NEW), ("c", false, TIMEOUT)],
            false,
        ),
        // A changed verdict.
        (
            &[("a", true, OK), ("b", false, REFUSED)],
            &[("a", true, OK), ("b", true, OK)],
            false,
        ),
        (
            &[("a", true, OK), ("b", false, REFUSED)],
            &[("a", false, TIMEOUT), ("b", false, REFUSED)],
            false,
        ),
        // The state of the virtual machine.
        (
            &[("a", true, OK), ("b", false, REFUSED)],
            &[("a", true, OK), ("b", false, PAUSED)],
            false,
        ),
        // This host.
        (
            &[("a", true, OK), ("b", false, REFUSED)],
            &[("a", true, STALE), ("b", false, REFUSED)],
            false,
        ),
    ];
    for (before, now, stays) in cases {
        let before = backends_healthy(&rows(before), true, &[]);
        let now = backends_healthy(&rows(now), true, &stored(&before));
        assert_eq!(now == before, stays, "{before:?} {now:?}");
    }
}

#[test]
fn detail_a_name_that_begins_like_another_has_its_own_cause() {
    let before = backends_healthy(
        &rows(&[("vm1", true, OK), ("vm10", false, REFUSED)]),
        true,
        &[],
    );
    let now = rows(&[("vm1", false, TIMEOUT), ("vm10", false, TIMEOUT)]);
    let now = backends_healthy(&now, true, &stored(&before));
    assert_eq!(
        said(&now).2,
        "0 of 2; vm1: timed out; vm10: connection refused"
    );
}

#[test]
fn detail_health_of_an_endpoint_by_state_and_target() {
    let backend = |state| Backend {
        name: "vm".into(),
        uid: "u".into(),
        address: [10, 0, 0, 1].into(),
        state,
    };
    let target = |failure, stale| TargetView {
        id: "u".into(),
        addr: [10, 0, 0, 1].into(),
        ready: false,
        last: Some(ProbeResult::OwnFault(OwnFault::Network)),
        failure,
        stale,
    };
    let failed = target(Some(ProbeResult::Refused), false);
    let (fresh, stale) = (target(None, false), target(None, true));
    let cases = [
        (VmiState::Running, true, None, OK),
        (VmiState::Running, true, Some(&fresh), OK),
        (VmiState::Running, true, Some(&stale), STALE),
        (VmiState::Running, false, Some(&stale), STALE),
        (VmiState::Running, false, None, NEW),
        (VmiState::Running, false, Some(&fresh), NEW),
        (VmiState::Running, false, Some(&failed), REFUSED),
        // No running one is ready (BE-5).
        (VmiState::Paused, true, Some(&fresh), OK),
        (VmiState::Paused, false, Some(&failed), PAUSED),
        (VmiState::Succeeded, false, None, OVER),
        (VmiState::Succeeded, false, Some(&failed), OVER),
    ];
    for (state, ready, target, cause) in cases {
        let backend = backend(state);
        let health = BackendHealth::new(&backend, ready, target);
        assert_eq!((health.ready, health.cause), (ready, cause), "{state:?}");
    }
}

#[test]
fn detail_address_and_announcement() {
    let (announced_, waits) = ("Announced", "WaitingForExternalIP");
    let cases = [
        (
            allocated_from_pool("10.0.0.2", "lan"),
            ("True", "AddressAllocated", "10.0.0.2 of pool lan"),
        ),
        (
            allocated_by_dhcp(Some("10.0.0.2")),
            ("True", "AddressAllocated", "10.0.0.2 by DHCP"),
        ),
        (
            allocated_by_dhcp(None),
            (
                "False",
                waits,
                "waiting for kube-vip to obtain an address by DHCP",
            ),
        ),
        (
            allocated_by_guest(),
            (
                "True",
                "AddressAllocated",
                "the guest cluster obtains an address by DHCP",
            ),
        ),
        (
            announced(None, "10.0.0.2", false),
            ("False", waits, "waiting for kube-vip to announce 10.0.0.2"),
        ),
        (
            announced(None, "10.0.0.2", true),
            ("False", waits, "waiting for kube-vip to announce 10.0.0.2"),
        ),
        (
            announced(Some("10.0.0.2"), "10.0.0.2", false),
            ("True", announced_, "10.0.0.2"),
        ),
        (
            announced(Some("10.0.0.1"), "10.0.0.2", true),
            (
                "False",
                waits,
                "waiting for kube-vip to announce 10.0.0.2; it still announces 10.0.0.1",
            ),
        ),
    ];
    for (detail, expected) in cases {
        assert_eq!(said(&detail), expected);
    }
    // Without an address nothing is announced and nothing is checked.
    let all = waiting("NoAvailableIP");
    assert_eq!(said(&all[0]).1, "NoAvailableIP");
    assert!(all[1..].iter().all(|detail| detail.value.is_none()));
    let of_cluster = of_cluster(allocated_by_guest());
    assert!(of_cluster[1..].iter().all(|detail| detail.value.is_none()));
    let all = without_service("NameConflict");
    assert_eq!(said(&all[0]).1, "NameConflict");
    assert_eq!(all[1].value, None);
    for all in [waiting("x"), of_cluster, all] {
        assert!(all.iter().all(|detail| is_detail(detail.type_)));
    }
}

#[test]
fn detail_conditions_come_and_go_and_others_stay() {
    let mut all = vec![Condition {
        type_: "Blessed".into(),
        status: "True".into(),
        ..Condition::default()
    }];
    assert!(!any_stored(&all));
    apply(
        &mut all,
        &[announced(Some("10.0.0.2"), "10.0.0.2", false)],
        T1,
    );
    assert!(any_stored(&all));
    let first = all.clone();
    apply(
        &mut all,
        &[announced(Some("10.0.0.2"), "10.0.0.2", false)],
        T2,
    );
    assert_eq!(all, first, "the same again changes nothing");
    apply(&mut all, &waiting("NoAvailableIP"), T2);
    let types: Vec<&str> = all.iter().map(|c| &*c.type_).collect();
    assert_eq!(types, ["Blessed", "AddressAllocated"]);
}

/// Up to eight backends whose readiness fits their cause.
fn any_backends(rng: &mut fastrand::Rng) -> Vec<Row> {
    const NAMES: [&str; 8] = ["a", "a1", "b", "c", "d", "e", "f", "g"];
    let number = rng.usize(1..=NAMES.len());
    let mut row = |name: &'static str| {
        let cause = [OK, NEW, REFUSED, TIMEOUT, PAUSED, OVER, STALE][rng.usize(..7)];
        let ready = cause.is_none() || (cause == STALE && rng.bool());
        (name, ready, cause)
    };
    NAMES[..number].iter().map(|name| row(name)).collect()
}

/// Number of random cases of each property.
const CASES: u64 = 2_000;

/// The same state again, with failures of another kind or not known any more, leaves the stored condition.
#[test]
fn detail_a_restart_and_another_failure_write_nothing() {
    for seed in 0..CASES {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let backends = any_backends(rng);
        let before = backends_healthy(&rows(&backends), true, &[]);
        let conditions = stored(&before);
        let again = backends_healthy(&rows(&backends), true, &conditions);
        assert_eq!(again, before, "seed {seed}");
        let named = backends.iter().filter(|row| row.2.is_some()).count();
        let forgets = rng.bool() && named <= NAMED;
        let later = |(name, ready, cause): Row| match cause {
            Some(Cause::CheckFailed(_)) if forgets => (name, ready, NEW),
            Some(Cause::CheckFailed(_)) => (name, ready, TIMEOUT),
            other => (name, ready, other),
        };
        let later: Vec<Row> = backends.into_iter().map(later).collect();
        let now = backends_healthy(&rows(&later), true, &conditions);
        assert_eq!(now, before, "seed {seed}");
    }
}

/// The counts are those of the backends, the status is that of the causes, and five are named at most.
#[test]
fn detail_status_and_counts_follow_the_backends() {
    for seed in 0..CASES {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let (backends, before) = (any_backends(rng), any_backends(rng));
        let conditions = stored(&backends_healthy(&rows(&before), true, &[]));
        let detail = backends_healthy(&rows(&backends), rng.bool(), &conditions);
        let (status, reason, message) = said(&detail);
        let has = |wanted: fn(Option<Cause>) -> bool| backends.iter().any(|row| wanted(row.2));
        let up = backends.iter().filter(|row| row.1).count();
        assert_eq!(counts(message), Some((up, backends.len())), "seed {seed}");
        assert_eq!(status == "True", !has(|c| c.is_some()), "seed {seed}");
        let is_stale = has(|c| c == STALE);
        assert_eq!(reason == HEALTH_CHECKS_STALE, is_stale, "seed {seed}");
        let fails = has(|c| !matches!(c, OK | NEW | STALE));
        assert!(!fails || is_stale || status == "False", "seed {seed}");
        assert!(reason != SOME_BACKENDS_UNHEALTHY || up > 0, "seed {seed}");
        let parts = message.split(SEPARATOR);
        let named = parts.filter(|part| part.contains(NAME_END)).count();
        assert!(
            named <= NAMED && message.len() <= MESSAGE_LIMIT,
            "seed {seed}"
        );
    }
}
