use super::*;

use tokio::time::Instant;

const PACE: Duration = Duration::from_secs(1);
const PACE_LIMIT: Duration = Duration::from_mins(1);
const MS: Duration = Duration::from_millis(1);

fn pools() -> (Throttle<PoolName>, PoolName, Instant) {
    let timings = Timings {
        pool_status_interval: PACE,
        pool_status_max_pause: PACE_LIMIT,
        ..Timings::default()
    };
    let pool = PoolName::from("p");
    (of_pool_statuses(&timings), pool, Instant::now())
}

#[test]
fn pool_3_a_single_change_is_told_of_after_a_moment() {
    let (throttle, pool, mut now) = pools();
    assert_eq!(
        throttle.due_in(&pool, now),
        Duration::ZERO,
        "nothing is known of it"
    );
    assert_eq!(throttle.changed(&pool, false, now), QUIET);
    now += QUIET;
    assert_eq!(throttle.due_in(&pool, now), Duration::ZERO);
    throttle.deciding(&pool);
    throttle.wrote(&pool, MS, now);
    assert_eq!(throttle.changed(&pool, false, now), PACE);
    now += PACE.saturating_sub(MS);
    assert_eq!(throttle.due_in(&pool, now), MS);
}

#[test]
fn pool_3_a_burst_is_told_of_at_its_end() {
    let (throttle, pool, mut now) = pools();
    for _ in 0..50 {
        throttle.changed(&pool, false, now);
        now += QUIET / 2;
        assert!(throttle.due_in(&pool, now) > Duration::ZERO);
    }
    now += QUIET / 2;
    assert_eq!(throttle.due_in(&pool, now), Duration::ZERO);
}

#[test]
fn pool_3_a_pool_that_is_empty_or_full_has_no_burst() {
    let (throttle, pool, now) = pools();
    throttle.changed(&pool, false, now);
    assert_eq!(throttle.changed(&pool, true, now), Duration::ZERO);
    assert_eq!(
        throttle.changed(&pool, false, now),
        QUIET,
        "it goes on after all"
    );
    assert_eq!(throttle.changed(&pool, true, now), Duration::ZERO);
    throttle.deciding(&pool);
    throttle.wrote(&pool, MS, now);
    assert_eq!(
        throttle.changed(&pool, true, now),
        PACE,
        "the pause is kept"
    );
}

#[test]
fn pool_3_a_burst_without_an_end_is_told_of_in_between() {
    let (throttle, pool, mut now) = pools();
    let mut writes = 0;
    for _ in 0..2_500 {
        throttle.changed(&pool, false, now);
        if throttle.due_in(&pool, now).is_zero() {
            throttle.deciding(&pool);
            throttle.wrote(&pool, MS, now);
            writes += 1;
        }
        now += 10 * MS;
    }
    assert_eq!(writes, 2, "25 s, every 10 s");
}

#[test]
fn pool_3_what_changes_during_a_write_waits_for_the_pause_after_it() {
    let (throttle, pool, mut now) = pools();
    throttle.changed(&pool, false, now);
    throttle.deciding(&pool);
    now += 100 * MS;
    assert_eq!(
        throttle.changed(&pool, false, now),
        QUIET,
        "the write has not ended yet"
    );
    throttle.wrote(&pool, 100 * MS, now);
    assert_eq!(
        throttle.due_in(&pool, now),
        Duration::from_secs(2),
        "20 times 0.1 s"
    );
    now += Duration::from_secs(2);
    assert_eq!(throttle.due_in(&pool, now), Duration::ZERO);
}

#[test]
fn pool_3_a_pause_has_an_end_and_whoever_asks_waits_for_none() {
    let (throttle, pool, now) = pools();
    throttle.wrote(&pool, Duration::from_secs(15), now);
    assert_eq!(throttle.due_in(&pool, now), PACE_LIMIT);
    throttle.urgent(&pool);
    assert_eq!(throttle.changed(&pool, false, now), Duration::ZERO);
    throttle.deciding(&pool);
    assert_eq!(throttle.due_in(&pool, now), PACE_LIMIT);
    throttle.wrote(&pool, Duration::ZERO, now);
    assert_eq!(throttle.due_in(&pool, now), PACE_LIMIT, "a failed try");
    throttle.forget(&pool);
    assert_eq!(throttle.due_in(&pool, now), Duration::ZERO);
}

#[test]
fn writes_of_one_slice_are_apart_and_those_of_others_are_not_waited_for() {
    let (throttle, a, b) = (of_slices(), Key::new("n", "a"), Key::new("n", "b"));
    let start = Instant::now();
    assert_eq!(throttle.due_in(&a, start), Duration::ZERO);
    throttle.wrote(&a, Duration::ZERO, start);
    assert_eq!(throttle.due_in(&a, start), GATHER);
    assert_eq!(throttle.due_in(&b, start), Duration::ZERO);
    assert_eq!(throttle.due_in(&a, start + GATHER / 2), GATHER / 2);
    assert_eq!(throttle.due_in(&a, start + GATHER), Duration::ZERO);
}

#[test]
fn a_write_of_a_slice_on_its_way_counts_from_its_end() {
    let (throttle, key) = (of_slices(), Key::new("n", "a"));
    let start = Instant::now();
    throttle.wrote(&key, Duration::ZERO, start);
    let end = start + GATHER / 2;
    throttle.wrote(&key, Duration::ZERO, end);
    assert_eq!(throttle.due_in(&key, start + GATHER), GATHER / 2);
    assert_eq!(throttle.due_in(&key, end + GATHER), Duration::ZERO);
}

/// Simulates a worker with random requests to write a slice and random write durations, each applied at a random time within
/// its duration. Returns the times at which the writes were applied.
fn play(rng: &mut fastrand::Rng) -> Vec<Instant> {
    let ms = Duration::from_millis;
    let (throttle, key) = (of_slices(), Key::new("n", "a"));
    let mut now = Instant::now();
    let mut done = Vec::new();
    for _ in 0..200 {
        now += ms(rng.u64(0..120));
        // The worker retries when the throttle allows it.
        loop {
            let wait = throttle.due_in(&key, now);
            if wait.is_zero() {
                break;
            }
            now += wait;
        }
        throttle.wrote(&key, Duration::ZERO, now);
        let took = rng.u64(0..400);
        done.push(now + ms(rng.u64(0..=took)));
        now += ms(took);
        throttle.wrote(&key, Duration::ZERO, now);
    }
    done
}

#[test]
fn never_two_writes_of_a_slice_within_the_time_of_gathering() {
    for seed in 0..200 {
        let done = play(&mut fastrand::Rng::with_seed(seed));
        for pair in done.windows(2) {
            assert!(pair[1].duration_since(pair[0]) >= GATHER, "seed {seed}");
        }
    }
}
