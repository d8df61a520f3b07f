//! The engine under paused time, on a network without sockets.

use super::*;

const PERIOD: Duration = Duration::from_secs(5);
/// A pass of the timer task plus the resolution of tokio's timers.
const TICK: Duration = Duration::from_millis(12);

fn names(groups: &[GroupId]) -> Vec<&str> {
    let mut names: Vec<_> = groups.iter().map(GroupId::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test(start_paused = true)]
async fn hc_1_new_backend_is_ready_after_about_5_s_and_falls_about_15_s_after_it_died() {
    let (prober, mut changes, network, recorder) = start(100);
    prober.set_group("g", check(), targets([1], false));
    sleep_ms(4_990).await;
    assert_eq!(network.starts(1), []);
    assert_eq!(names(&changes.next().await.unwrap()), ["g"]);
    assert_eq!(prober.verdict("g", "uid-1", addr(1)), Some(true));
    let starts = network.starts(1);
    assert!(
        starts.len() == 1 && starts[0] >= PERIOD && starts[0] < PERIOD + TICK,
        "{starts:?}"
    );

    network.set([1], Act::Refuse);
    assert_eq!(names(&changes.next().await.unwrap()), ["g"]);
    assert_eq!(prober.verdict("g", "uid-1", addr(1)), Some(false));
    let starts = network.starts(1);
    assert_eq!(starts.len(), 4, "three failures");
    assert!(starts[3] < PERIOD * 4 + TICK, "{starts:?}");
    assert_eq!(recorder.results(), [("success", 1), ("refused", 3)].into());
    assert_eq!(*recorder.changes.lock(), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn hc_5_dead_and_slow_targets_never_delay_others() {
    let (prober, _edges, network, recorder) = start(100);
    network.set(0..40, Act::Hang);
    network.set(40..50, Act::Accept(2_900));
    prober.set_group("dead", check(), targets(0..50, true));
    prober.set_group("good", check(), targets(50..100, false));
    sleep_ms(60_500).await;
    for target in 50..100 {
        let starts = network.starts(target);
        assert_eq!(
            starts.len(),
            12,
            "target {target}: once per period, {starts:?}"
        );
        for pair in starts.windows(2) {
            let gap = pair[1].saturating_sub(pair[0]);
            assert!(gap + TICK > PERIOD && gap < PERIOD + TICK, "{gap:?}");
        }
    }
    assert!(recorder.greatest_lag() < TICK);
    assert_eq!(
        prober
            .group("good")
            .unwrap()
            .iter()
            .filter(|view| view.ready)
            .count(),
        50
    );
    assert_eq!(
        prober
            .group("dead")
            .unwrap()
            .iter()
            .filter(|view| view.ready)
            .count(),
        10
    );
    for (result, duration) in recorder.probes.lock().iter() {
        if *result == ProbeResult::Timeout {
            assert!(
                *duration >= Duration::from_secs(3),
                "the timeout of the check"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hc_5_beyond_the_in_flight_bound_probes_are_late_never_failed() {
    let (prober, _edges, network, recorder) = start(4);
    // Twenty dead targets for three seconds each through four slots: 15 s for a round.
    network.set(0..20, Act::Hang);
    prober.set_group("dead", check(), targets(0..20, true));
    prober.set_group("good", check(), targets(20..30, true));
    sleep_ms(120_000).await;
    assert_eq!(network.0.lock().most_open, 4);
    assert!(prober.snapshot().in_flight <= 4);
    assert!(
        recorder.greatest_lag() > Duration::from_secs(1),
        "the lag shows it"
    );
    for target in 20..30 {
        let probes = network.starts(target).len();
        assert!(probes >= 4, "target {target} has its turn: {probes}");
        let id = format!("uid-{target}");
        assert_eq!(prober.verdict("good", &id, addr(target)), Some(true));
    }
    let results = recorder.results();
    assert_eq!(results.keys().len(), 2, "{results:?}");
    assert_eq!(prober.snapshot().up, 10);
}

#[tokio::test(start_paused = true)]
async fn hc_5_the_silent_do_not_hold_the_places_of_those_that_answer() {
    let (prober, _edges, network, recorder) = start(8);
    // Six slots for a hundred dead targets with a timeout of 3 s: 50 s for a round.
    network.set(0..100, Act::Hang);
    prober.set_group("dead", check(), targets(0..100, true));
    prober.set_group("good", check(), targets(100..120, true));
    // Until each dead one is known to be silent.
    sleep_ms(60_000).await;
    recorder.lags.lock().clear();
    let before: Vec<usize> = (100..120).map(|t| network.starts(t).len()).collect();
    sleep_ms(100_000).await;
    for (target, before) in (100..120).zip(before) {
        let starts = network.starts(target);
        assert_eq!(starts.len() - before, 20, "once per period: {starts:?}");
        for pair in starts[before..].windows(2) {
            let gap = pair[1].saturating_sub(pair[0]);
            assert!(gap + TICK > PERIOD && gap < PERIOD + TICK, "{gap:?}");
        }
        let id = format!("uid-{target}");
        assert_eq!(prober.verdict("good", &id, addr(target)), Some(true));
    }
    for target in 0..100 {
        let probes = network.starts(target).len();
        assert!(probes >= 2, "dead target {target} has its turn: {probes}");
    }
    assert!(recorder.greatest_lag() > PERIOD, "the lag shows it");
    assert_eq!(network.0.lock().most_open, 8, "before they were known");
    assert!(prober.snapshot().in_flight <= 7);
}

#[tokio::test(start_paused = true)]
async fn hc_own_faults_are_reported_but_not_counted() {
    let (prober, mut changes, network, recorder) = start(100);
    network.set([1], Act::NoFiles);
    prober.set_group("g", check_of(1, 1, 1, 1), targets([1], true));
    sleep_ms(10_500).await;
    assert_eq!(network.starts(1).len(), 10, "again each period");
    assert_eq!(recorder.results(), [("own_file_limit", 10)].into());
    assert_eq!(prober.verdict("g", "uid-1", addr(1)), Some(true));
    assert!(recorder.changes.lock().is_empty(), "no edge");
    // The verdict became stale, once.
    assert_eq!(names(&changes.next().await.unwrap()), ["g"]);
    assert!(
        tokio::time::timeout(PERIOD, changes.next()).await.is_err(),
        "once"
    );
}

#[tokio::test(start_paused = true)]
async fn hc_6_a_waiting_consumer_is_woken_without_a_changed_verdict() {
    let (prober, mut changes, network, recorder) = start(100);
    network.set([1], Act::NoFiles);
    network.set([2], Act::Refuse);
    // A verdict becomes stale, and the first one on a new target is as it was.
    for (group, target, ready) in [("stale", 1, true), ("first", 2, false)] {
        prober.set_group(group, check_of(1, 2, 1, 1), targets([target], ready));
        // It waits before anything happens.
        let groups = tokio::time::timeout(PERIOD, changes.next()).await;
        assert_eq!(names(&groups.unwrap().unwrap()), [group]);
    }
    assert!(recorder.changes.lock().is_empty(), "no verdict has changed");
}

#[tokio::test(start_paused = true)]
async fn hc_slow_probe_delays_its_next_and_never_stacks() {
    let (prober, _edges, network, recorder) = start(100);
    network.set([1], Act::Hang);
    prober.set_group("g", check_of(1, 3, 1, 3), targets([1], true));
    // The network itself asserts that no two probes of a target are in flight.
    sleep_ms(10_500).await;
    let starts = network.starts(1);
    assert_eq!(starts.len(), 4, "at 1, 4, 7 and 10 s: {starts:?}");
    assert!(
        recorder.greatest_lag() < TICK,
        "the target was slow, not we"
    );
    assert_eq!(prober.verdict("g", "uid-1", addr(1)), Some(false));
}

#[tokio::test(start_paused = true)]
async fn run_5_all_groups_are_forgotten_at_once_and_others_come_later() {
    let (prober, mut changes, network, _) = start(100);
    network.set([1], Act::Hang);
    prober.set_group("a", check_of(1, 1, 5, 3), targets([1], true));
    prober.set_group("b", check_of(1, 1, 5, 3), targets([2], false));
    let groups = prober.groups();
    assert_eq!(names(&groups), ["a", "b"]);
    sleep_ms(5_500).await;
    prober.clear();
    sleep_ms(1).await;
    assert_eq!(
        (network.open(), prober.snapshot()),
        (0, Snapshot::default())
    );
    assert_eq!(prober.groups(), []);
    // Earlier changes are no longer delivered; new groups are probed as usual.
    prober.set_group("b", check_of(1, 1, 5, 3), targets([2], false));
    let asked = tokio::time::Instant::now();
    assert_eq!(names(&changes.next().await.unwrap()), ["b"]);
    assert!(asked.elapsed() >= PERIOD);
}

#[tokio::test(start_paused = true)]
async fn hc_2_removed_target_stops_and_its_probe_in_flight_is_taken_down() {
    let (prober, mut changes, network, recorder) = start(100);
    network.set([1, 2], Act::Hang);
    prober.set_group("g", check_of(1, 1, 5, 3), targets([1, 2], true));
    sleep_ms(5_500).await;
    assert_eq!((network.open(), prober.snapshot().in_flight), (2, 2));
    prober.set_group("g", check_of(1, 1, 5, 3), targets([2], true));
    sleep_ms(1).await;
    assert_eq!((network.open(), prober.snapshot().in_flight), (1, 1));
    prober.remove_group("g");
    sleep_ms(1).await;
    assert_eq!(
        (network.open(), prober.snapshot()),
        (0, Snapshot::default())
    );
    assert!(
        tokio::time::timeout(PERIOD * 10, changes.next())
            .await
            .is_err(),
        "yields nothing"
    );
    assert_eq!((network.starts(1).len(), network.starts(2).len()), (1, 1));
    assert_eq!(recorder.results(), HashMap::new());
}

#[tokio::test(start_paused = true)]
async fn hc_2_changed_check_restarts_and_an_old_probe_alters_nothing() {
    let (prober, mut changes, network, recorder) = start(100);
    network.set([1], Act::Accept(2_000));
    prober.set_group("g", check(), targets([1], false));
    sleep_ms(6_000).await;
    assert_eq!(network.open(), 1, "would succeed at 7 s");
    prober.set_group("g", check_of(1, 2, 5, 3), targets([1], false));
    sleep_ms(4_900).await;
    assert_eq!(prober.verdict("g", "uid-1", addr(1)), Some(false));
    assert_eq!(
        (network.starts(1).len(), recorder.probes.lock().len()),
        (1, 0)
    );
    assert_eq!(names(&changes.next().await.unwrap()), ["g"]);
    let starts = network.starts(1);
    assert!(
        starts.len() == 2 && starts[1] >= Duration::from_secs(11),
        "{starts:?}"
    );
    assert_eq!(prober.verdict("g", "uid-1", addr(1)), Some(true));
    assert_eq!(prober.check("g"), Some(check_of(1, 2, 5, 3)));
}

#[tokio::test(start_paused = true)]
async fn hc_2_same_call_again_and_again_changes_nothing() {
    let (prober, _edges, network, _) = start(100);
    for _ in 0..100 {
        prober.set_group("g", check(), targets([1], false));
        sleep_ms(100).await;
    }
    sleep_ms(500).await;
    assert_eq!(network.starts(1).len(), 2, "at 5 and 10 s");
}

#[tokio::test(start_paused = true)]
async fn hc_5_many_changes_of_a_group_are_one_delivery() {
    let (prober, mut changes, network, recorder) = start(1000);
    // A hundred targets come up within 200 ms, see the spread of the timetable.
    prober.set_group("a", check(), targets(0..50, false));
    prober.set_group("b", check(), targets(50..100, false));
    let mut delivered = Vec::new();
    while delivered.len() < 2 {
        delivered.extend(changes.next().await.unwrap());
    }
    assert_eq!(names(&delivered), ["a", "b"]);
    assert_eq!(recorder.changes.lock().len(), 100);
    let last = network
        .0
        .lock()
        .starts
        .iter()
        .map(|(_, at)| *at)
        .max()
        .unwrap();
    assert!(last <= PERIOD + Duration::from_millis(200) + TICK);
    assert!(
        tokio::time::timeout(PERIOD * 4, changes.next())
            .await
            .is_err(),
        "nothing new"
    );
}

#[tokio::test(start_paused = true)]
async fn hc_5_consumer_that_does_not_come_stops_nothing_and_gets_one_delivery_per_group() {
    let (prober, mut changes, network, recorder) = start(1000);
    prober.set_group("a", check_of(1, 1, 1, 1), targets(0..20, false));
    prober.set_group("b", check_of(1, 1, 1, 1), targets(20..40, false));
    for round in 0..20 {
        let act = if round % 2 == 0 {
            Act::Accept(0)
        } else {
            Act::Refuse
        };
        network.set(0..40, act);
        sleep_ms(1_000).await;
    }
    network.set(0..40, Act::Refuse);
    sleep_ms(2_000).await;
    assert!(recorder.changes.lock().len() >= 400);
    assert_eq!(names(&changes.next().await.unwrap()), ["a", "b"]);
    assert_eq!(prober.snapshot().up, 0);
    assert!(tokio::time::timeout(PERIOD, changes.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn hc_5_edge_is_delivered_at_most_200_ms_after_the_change() {
    let (prober, mut changes, network, _) = start(10);
    prober.set_group("g", check(), targets([1], false));
    // `next` is dropped and called again repeatedly: cancel safe.
    let groups = loop {
        if let Ok(groups) = tokio::time::timeout(Duration::from_millis(7), changes.next()).await {
            break groups.unwrap();
        }
    };
    let changed = network.starts(1)[0];
    let late = network.now().saturating_sub(changed);
    assert!(
        late >= crate::GATHER && late <= crate::GATHER + TICK,
        "{late:?}"
    );
    assert_eq!(names(&groups), ["g"]);
}

#[tokio::test(start_paused = true)]
async fn hc_5_overdue_probes_after_a_stall_are_paced() {
    let (prober, _edges, network, _) = start(10_000);
    prober.set_group("g", check(), targets(0..3_000, true));
    // The machine sleeps for a minute.
    tokio::time::advance(Duration::from_mins(1)).await;
    sleep_ms(4_000).await;
    let starts: Vec<_> = network.0.lock().starts.iter().map(|(_, at)| *at).collect();
    assert!(
        starts.len() >= 3_000 && starts.len() < 6_000,
        "{}",
        starts.len()
    );
    let mut per_ms: HashMap<u128, usize> = HashMap::new();
    for start in starts {
        *per_ms.entry(start.as_millis()).or_default() += 1;
    }
    assert!(
        per_ms.values().all(|count| *count <= 600),
        "{:?}",
        per_ms.values().max()
    );
}

#[tokio::test(start_paused = true)]
async fn hc_5_connector_that_panics_costs_neither_the_target_nor_its_place() {
    let (prober, _edges, network, _) = start(1);
    network.set([1], Act::Panic);
    prober.set_group("g", check(), targets([1, 2], false));
    sleep_ms(10_500).await;
    assert_eq!((network.starts(1).len(), network.starts(2).len()), (2, 2));
    network.set([1], Act::Accept(0));
    sleep_ms(5_000).await;
    assert_eq!(
        prober.snapshot(),
        Snapshot {
            groups: 1,
            targets: 2,
            up: 2,
            unknown: 0,
            in_flight: 0
        }
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_stops_the_tasks_and_ends_the_edges() {
    let (prober, mut changes, network, _) = start(100);
    network.set(0..10, Act::Hang);
    prober.set_group("g", check(), targets(0..20, false));
    sleep_ms(5_100).await;
    assert_eq!(network.open(), 10);
    prober.shutdown();
    prober.shutdown();
    assert_eq!(changes.next().await, None);
    sleep_ms(20).await;
    assert_eq!(
        (network.open(), prober.snapshot()),
        (0, Snapshot::default())
    );
    assert_eq!(
        Arc::strong_count(&network.0),
        1,
        "no task holds the connector any more"
    );
    prober.set_group("g", check(), targets(0..20, false));
    assert!(prober.is_empty());
    assert!(!prober.remove_group("g"));
}

#[tokio::test(start_paused = true)]
async fn drop_of_the_last_clone_is_the_shutdown() {
    let (prober, mut changes, network, _) = start(100);
    prober.set_group("g", check(), targets(0..20, false));
    let clone = prober.clone();
    drop(prober);
    assert_eq!(names(&changes.next().await.unwrap()), ["g"]);
    assert_eq!(clone.len(), 20);
    drop(clone);
    assert_eq!(changes.next().await, None);
    sleep_ms(20).await;
    assert_eq!(Arc::strong_count(&network.0), 1);
}
