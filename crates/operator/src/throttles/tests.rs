use super::*;

use std::collections::BTreeSet;

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
    throttle.deciding(&pool, now);
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
    throttle.deciding(&pool, now);
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
            throttle.deciding(&pool, now);
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
    throttle.deciding(&pool, now);
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
fn pool_3_a_pause_has_an_end_and_an_urgent_write_waits_for_none() {
    let (throttle, pool, now) = pools();
    throttle.wrote(&pool, Duration::from_secs(15), now);
    assert_eq!(throttle.due_in(&pool, now), PACE_LIMIT);
    throttle.urgent(&pool);
    assert_eq!(throttle.changed(&pool, false, now), Duration::ZERO);
    throttle.deciding(&pool, now);
    assert_eq!(throttle.due_in(&pool, now), PACE_LIMIT);
    throttle.failed(&pool, Duration::ZERO, now);
    assert_eq!(throttle.due_in(&pool, now), PACE_LIMIT, "a failed try");
    throttle.forget(&pool);
    assert_eq!(throttle.due_in(&pool, now), Duration::ZERO);
}

fn numbered(number: usize) -> PoolName {
    PoolName::from(format!("p{number}").as_str())
}

/// Pools whose addresses have been changing for so long that their interim writes are due. Returns the time.
fn in_burst(throttle: &Throttle<PoolName>, pools: usize, start: Instant) -> Instant {
    for number in 0..pools {
        throttle.changed(&numbered(number), false, start);
    }
    let now = start + HOLD;
    for number in 0..pools {
        let delay = throttle.changed(&numbered(number), false, now);
        assert_eq!(delay, Duration::ZERO, "{number}");
    }
    now
}

/// How a write that was due ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The burst is over before, because the pool is full.
    Over,
    /// A worker never asks again.
    Lost,
    /// There is no difference, or the pool cannot be decoded.
    NoWrite,
    /// The pool is gone.
    Gone,
    /// The write is done, or fails, after this time.
    Done(Duration),
    Failed(Duration),
}

#[test]
fn pool_3_only_the_time_that_an_interim_write_took_delays_others() {
    let cases = [
        (End::Over, Duration::ZERO),
        (End::Lost, Duration::ZERO),
        (End::NoWrite, Duration::ZERO),
        (End::Gone, Duration::ZERO),
        (End::Done(Duration::ZERO), Duration::ZERO),
        (End::Failed(Duration::ZERO), Duration::ZERO),
        (End::Done(3 * MS), 57 * MS),
        (End::Failed(3 * MS), 57 * MS),
        (End::Done(300 * MS), 5_700 * MS),
    ];
    for (end, delay) in cases {
        let (throttle, _, start) = pools();
        let mut now = in_burst(&throttle, 60, start);
        // All but the last pool end like that, the first of them with a write, if any.
        for number in 0..59 {
            let pool = numbered(number);
            match end {
                End::Over => assert_eq!(throttle.changed(&pool, true, now), Duration::ZERO),
                End::Lost => {}
                End::NoWrite => throttle.deciding(&pool, now),
                End::Gone => throttle.forget(&pool),
                End::Done(_) | End::Failed(_) if number > 0 => {}
                End::Done(took) => {
                    throttle.deciding(&pool, now);
                    now += took;
                    throttle.wrote(&pool, took, now);
                }
                End::Failed(took) => {
                    throttle.deciding(&pool, now);
                    now += took;
                    throttle.failed(&pool, took, now);
                }
            }
        }
        // Its burst goes on.
        let last = now + delay.saturating_sub(MS);
        let waits = throttle.changed(&numbered(59), false, last);
        let least = delay.min(MS);
        assert!(
            (least..=least + 5 * MS).contains(&waits),
            "{end:?}: {waits:?}"
        );
    }
}

/// Plays pools whose addresses do not cease to change, with a worker that asks for each when it was told to. Returns the
/// longest time between two writes of a pool, and the time of all writes.
fn play_bursts(pools: usize, took: Duration, until: Duration) -> (Duration, Duration) {
    let (throttle, _, start) = self::pools();
    let mut now = start;
    let mut queue: BTreeSet<(Instant, usize)> = (0..pools).map(|n| (start, n)).collect();
    let mut last = vec![start; pools];
    let (mut change, mut longest, mut sum) = (start, Duration::ZERO, Duration::ZERO);
    while let Some((due, number)) = queue.pop_first() {
        now = now.max(due);
        if now >= start + until {
            break;
        }
        while change <= now {
            for number in 0..pools {
                throttle.changed(&numbered(number), false, change);
            }
            change += QUIET / 2;
        }
        let pool = numbered(number);
        let mut wait = throttle.due_in(&pool, now);
        if wait.is_zero() {
            throttle.deciding(&pool, now);
            now += took;
            throttle.wrote(&pool, took, now);
            longest = longest.max(now - std::mem::replace(&mut last[number], now));
            sum += took;
            (change, wait) = (now, QUIET / 2);
        }
        queue.insert((now + wait, number));
    }
    (longest, sum)
}

#[test]
fn pool_3_many_small_pools_do_not_wait_for_each_other() {
    let (longest, sum) = play_bursts(60, 3 * MS, Duration::from_mins(3));
    assert!(longest < Duration::from_secs(15), "{longest:?}");
    assert!(sum < Duration::from_mins(3) / 20, "{sum:?}");
}

#[test]
fn pool_3_four_large_pools_take_a_twentieth_of_the_time_together() {
    let (longest, sum) = play_bursts(4, 700 * MS, Duration::from_mins(10));
    assert!(longest < PACE_LIMIT + 2 * HOLD, "{longest:?}");
    assert!(sum < Duration::from_mins(10) / 20 + 4 * 700 * MS, "{sum:?}");
}

/// From the 64th pool on the states of idle ones are dropped.
#[test]
fn pool_3_large_pools_among_many_keep_their_debounce_and_pause() {
    let (throttle, large, start) = pools();
    let took = Duration::from_secs(1);
    throttle.wrote(&large, took, start);
    let mut now = start;
    for number in 0..1_000 {
        now += 20 * MS;
        throttle.wrote(&numbered(number), 3 * MS, now);
    }
    // The pause is just over.
    assert_eq!(now, start + 20 * took);
    assert_eq!(throttle.due_in(&large, now - MS), MS);
    assert_eq!(throttle.changed(&large, false, now), 2 * took);
}

#[test]
fn pool_3_a_stalled_write_delays_no_change_that_comes_much_later() {
    for took in [5, 14] {
        let (throttle, pool, start) = pools();
        throttle.wrote(&pool, Duration::from_secs(took), start);
        let now = start + PACE_LIMIT;
        assert_eq!(throttle.changed(&pool, false, now), HOLD, "in a burst");
        throttle.deciding(&pool, now);
        let now = start + 2 * PACE_LIMIT;
        assert_eq!(throttle.changed(&pool, false, now), QUIET);
    }
}

/// In paused time a successful write takes none.
#[test]
fn pool_3_a_write_that_takes_no_time_is_no_failed_one() {
    let (throttle, pool, start) = pools();
    throttle.wrote(&pool, Duration::from_secs(1), start);
    let now = start + Duration::from_secs(20);
    throttle.changed(&pool, false, now);
    throttle.deciding(&pool, now);
    throttle.wrote(&pool, Duration::ZERO, now);
    let now = now + PACE;
    assert_eq!(throttle.changed(&pool, false, now), QUIET, "it is small");
    throttle.deciding(&pool, now);
    throttle.failed(&pool, Duration::ZERO, now);
    // The changes that were not written are as old as they were.
    throttle.changed(&pool, false, now + HOLD);
    assert_eq!(throttle.due_in(&pool, now + HOLD), Duration::ZERO);
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
