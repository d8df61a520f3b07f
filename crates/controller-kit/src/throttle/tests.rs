use super::*;

use std::collections::BTreeSet;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SETTINGS: Settings = Settings {
    debounce: Duration::from_millis(200),
    debounce_factor: 2,
    max_delay: Duration::from_secs(10),
    min_interval: Duration::from_secs(1),
    pause_factor: 20,
    max_pause: Duration::from_mins(1),
};

fn throttle() -> (Throttle<u32>, Instant) {
    (Throttle::new(SETTINGS), Instant::now())
}

#[test]
fn a_key_of_which_nothing_is_known_is_due() {
    let (throttle, start) = throttle();
    assert_eq!(throttle.due_in(&1, start), Duration::ZERO);
    assert_eq!(throttle.changed(&1, false, start), SETTINGS.debounce);
    assert_eq!(throttle.due_in(&2, start), Duration::ZERO, "another one");
}

#[test]
fn without_settings_everything_is_due() {
    let (throttle, start) = (Throttle::new(Settings::default()), Instant::now());
    assert_eq!(throttle.changed(&1, false, start), Duration::ZERO);
    throttle.wrote(&1, SECOND, start);
    assert_eq!(throttle.due_in(&1, start), Duration::ZERO);
}

#[test]
fn a_pause_is_neither_shorter_nor_longer_than_allowed() {
    let (throttle, start) = throttle();
    for (took, pause) in [
        (Duration::ZERO, SECOND),
        (50 * MS, SECOND),
        (51 * MS, 1_020 * MS),
        (3 * SECOND, 60 * SECOND),
        (Duration::MAX, 60 * SECOND),
    ] {
        throttle.forget(&1);
        throttle.wrote(&1, took, start);
        assert_eq!(throttle.due_in(&1, start), pause, "{took:?}");
    }
}

#[test]
fn keys_that_are_over_are_forgotten_and_no_others() {
    let (throttle, mut now) = throttle();
    throttle.changed(&0, false, now);
    throttle.urgent(&1);
    for key in 2..10_000 {
        throttle.changed(&key, false, now);
        throttle.deciding(&key, now);
        throttle.wrote(&key, Duration::ZERO, now);
        throttle.deciding(&(key + 1_000_000), now);
        now += 100 * MS;
    }
    let kept = throttle.states.lock().by_key.len();
    assert!(kept <= MIN_SWEEP, "{kept}");
    assert_eq!(throttle.due_in(&9_999, now), 900 * MS);
    let states = throttle.states.lock();
    assert!(states.by_key.contains_key(&0) && states.by_key.contains_key(&1));
}

/// Keys whose changes are 100 ms apart, from 0 s to `until`, and whose writes take `took`, one at a time; nothing changes
/// during a write. As in a queue each key comes when it was told to, a few microseconds late. Returns each write: its time
/// and its key.
fn endless_bursts(keys: u32, took: Duration, until: Duration) -> Vec<(Duration, u32)> {
    let (throttle, start) = throttle();
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut now, mut change, mut writes) = (start, start, Vec::new());
    let mut queue: BTreeSet<(Instant, u32)> = (0..keys).map(|key| (start, key)).collect();
    while let Some((due, key)) = queue.pop_first() {
        now = now.max(due);
        if now >= start + until {
            break;
        }
        while change <= now {
            for key in 0..keys {
                throttle.changed(&key, false, change);
            }
            change += 100 * MS;
        }
        let mut wait = throttle.due_in(&key, now);
        if wait.is_zero() {
            throttle.deciding(&key, now);
            writes.push((now - start, key));
            now += took;
            throttle.wrote(&key, took, now);
            (change, wait) = (now, 100 * MS);
        }
        queue.insert((now + wait + Duration::from_micros(rng.u64(0..50)), key));
    }
    writes
}

#[test]
fn interim_writes_of_all_keys_share_one_pause() {
    let until = 600 * SECOND;
    for (keys, took) in [
        (1, 20 * MS),
        (1, SECOND),
        (4, 300 * MS),
        (4, 700 * MS),
        (30, 80 * MS),
    ] {
        let writes = endless_bursts(keys, took, until);
        let total = took * u32::try_from(writes.len()).unwrap();
        // In the first round the durations are not known.
        assert!(
            total <= until / 20 + took * keys,
            "{keys} keys, {took:?} each: {total:?}"
        );
    }
}

#[test]
fn interim_writes_of_others_delay_no_change_beyond_the_longest_pause() {
    for (keys, took) in [(4, 300 * MS), (4, SECOND), (12, 700 * MS), (200, 30 * MS)] {
        let writes = endless_bursts(keys, took, 600 * SECOND);
        let mut numbers = Vec::new();
        for key in 0..keys {
            let of_key = writes.iter().filter(|(_, k)| *k == key).map(|(at, _)| *at);
            let times: Vec<Duration> = [Duration::ZERO].into_iter().chain(of_key).collect();
            for pair in times.windows(2) {
                // Writes that are due at the same time follow each other.
                let limit = SETTINGS.max_pause + took * (keys + 1) + 100 * MS;
                let apart = pair[1].saturating_sub(pair[0]);
                assert!(apart <= limit, "{key} of {keys}: {pair:?}");
            }
            numbers.push(times.len());
        }
        let (least, most) = (numbers.iter().min().unwrap(), numbers.iter().max().unwrap());
        assert!(*least > 6 && most - least <= 1, "in turns: {numbers:?}");
    }
}

#[test]
fn the_end_of_a_burst_waits_for_no_interim_write_of_another_key() {
    let (throttle, start) = throttle();
    throttle.changed(&1, false, start);
    let now = start + SETTINGS.max_delay;
    assert_eq!(throttle.changed(&1, false, now), Duration::ZERO);
    throttle.changed(&2, false, now);
    throttle.deciding(&1, now);
    let now = now + SECOND;
    throttle.wrote(&1, SECOND, now);
    for since in 0..9 {
        let now = now + since * SECOND;
        assert_eq!(throttle.changed(&2, false, now), SETTINGS.debounce);
        assert_eq!(throttle.changed(&2, true, now), Duration::ZERO);
    }
    // Without an end it waits until 20 s after the start of that write, and a ten-thousandth of the 40 s that it has left then.
    let late = start + SETTINGS.max_delay + 19 * SECOND + 900 * MS;
    assert_eq!(throttle.changed(&2, false, late), 104 * MS);
    assert_eq!(throttle.due_in(&3, late), Duration::ZERO, "no burst");
}

#[test]
fn a_write_under_way_is_not_forgotten() {
    let (throttle, start) = throttle();
    let sweep = |now| {
        for key in 10..10 + u32::try_from(2 * MIN_SWEEP).unwrap() {
            throttle.wrote(&key, Duration::ZERO, now);
            throttle.forget(&key);
            throttle.states.lock().sweep_at = 0;
        }
    };
    // A long write that began as an interim write, and fails.
    let now = in_burst(&throttle, 1..2, start);
    throttle.deciding(&1, now);
    sweep(now + 30 * SECOND);
    let now = now + 40 * SECOND;
    throttle.failed(&1, 40 * SECOND, now);
    let free_at = throttle.states.lock().free_at;
    assert_eq!(free_at, Some(now + SETTINGS.max_pause));
    assert_eq!(throttle.due_in(&1, now), SECOND, "its changes wait on");
    // The first of them is as old as the longest pause.
    let late = start + SETTINGS.max_pause;
    assert_eq!(throttle.changed(&1, false, late), Duration::ZERO);
    // A decision that no write followed.
    throttle.changed(&2, true, now);
    throttle.deciding(&2, now);
    sweep(now + UNDER_WAY - MS);
    assert!(throttle.states.lock().by_key.contains_key(&2));
    sweep(now + UNDER_WAY);
    assert!(!throttle.states.lock().by_key.contains_key(&2));
}

#[test]
fn what_is_not_set_delays_no_other_key() {
    let interval = Settings {
        min_interval: SECOND,
        ..Settings::default()
    };
    let (throttle, start) = (Throttle::new(interval), Instant::now());
    for key in 0..10 {
        assert_eq!(throttle.changed(&key, false, start), Duration::ZERO);
        throttle.deciding(&key, start);
        throttle.wrote(&key, SECOND, start);
    }
    assert_eq!(throttle.states.lock().free_at, None);
}

/// Brings keys into a burst that has lasted for the longest debounce delay. Returns the time.
fn in_burst(throttle: &Throttle<u32>, keys: std::ops::Range<u32>, start: Instant) -> Instant {
    for key in keys.clone() {
        throttle.changed(&key, false, start);
    }
    let now = start + SETTINGS.max_delay;
    for key in keys {
        assert_eq!(throttle.changed(&key, false, now), Duration::ZERO);
    }
    now
}

#[test]
fn the_oldest_change_is_written_first() {
    let (throttle, start) = throttle();
    for key in 1..4 {
        throttle.changed(&key, false, start + key * SECOND);
    }
    let now = in_burst(&throttle, 0..1, start + 5 * SECOND);
    throttle.deciding(&0, now);
    throttle.wrote(&0, SECOND, now + SECOND);
    let at_turn = now + 20 * SECOND;
    for key in [3, 1, 2] {
        throttle.changed(&key, false, at_turn - 100 * MS);
    }
    let delays = [1, 2, 3].map(|key| throttle.due_in(&key, at_turn));
    assert_eq!(delays, [2_600, 2_700, 2_800].map(Duration::from_micros));
}

#[test]
fn two_interim_writes_at_a_time_count_both() {
    let (throttle, start) = throttle();
    let now = in_burst(&throttle, 1..4, start);
    for key in [1, 2] {
        throttle.deciding(&key, now);
    }
    let now = now + 500 * MS;
    for key in [1, 2] {
        throttle.wrote(&key, 500 * MS, now);
    }
    let free_at = throttle.states.lock().free_at;
    assert_eq!(free_at, Some(now + 19 * SECOND));
}

#[test]
fn a_failed_interim_write_takes_no_second_turn() {
    let (throttle, start) = throttle();
    let mut now = in_burst(&throttle, 0..50, start);
    for key in 0..5 {
        throttle.deciding(&key, now);
        now += SECOND;
        throttle.wrote(&key, SECOND, now);
    }
    // The next one fails before its answer; its changes are those of the start.
    let now = start + SETTINGS.max_pause;
    throttle.changed(&5, false, now);
    assert_eq!(throttle.due_in(&5, now), Duration::ZERO);
    throttle.deciding(&5, now);
    throttle.changed(&5, false, now);
    throttle.failed(&5, Duration::ZERO, now);
    let now = now + SETTINGS.min_interval;
    assert_eq!(throttle.changed(&5, false, now), Duration::ZERO);
}

#[test]
fn an_interim_write_that_failed_late_has_cost_its_time() {
    let (throttle, start) = throttle();
    let now = in_burst(&throttle, 1..3, start);
    throttle.deciding(&1, now);
    throttle.failed(&1, SECOND, now + SECOND);
    let free_at = throttle.states.lock().free_at;
    assert_eq!(free_at, Some(now + 20 * SECOND));
}

#[test]
fn slow_writes_delay_others_by_no_more_than_the_longest_pause() {
    let (throttle, start) = throttle();
    let mut now = in_burst(&throttle, 0..30, start);
    for key in 0..30 {
        throttle.changed(&key, false, now);
        throttle.deciding(&key, now);
        now += 3 * SECOND;
        throttle.wrote(&key, 3 * SECOND, now);
    }
    let free_at = throttle.states.lock().free_at.unwrap();
    assert_eq!(free_at, now + SETTINGS.max_pause);
}

#[test]
fn a_failed_write_says_nothing_about_the_pause() {
    let (throttle, start) = throttle();
    throttle.wrote(&1, 2 * SECOND, start);
    throttle.failed(&1, 20 * SECOND, start);
    assert_eq!(throttle.due_in(&1, start), 40 * SECOND);
    throttle.failed(&2, 20 * SECOND, start);
    assert_eq!(throttle.due_in(&2, start), SETTINGS.min_interval);
    let now = start + 40 * SECOND;
    assert_eq!(throttle.changed(&1, false, now), 4 * SECOND);
    assert_eq!(throttle.changed(&2, false, now), SETTINGS.debounce);
}

#[test]
fn no_other_key_waits_during_a_pause() {
    let (throttle, start) = throttle();
    throttle.wrote(&1, 3 * SECOND, start);
    throttle.changed(&1, false, start);
    let now = start + 20 * SECOND;
    assert_eq!(throttle.changed(&1, false, now), 40 * SECOND);
    assert_eq!(throttle.states.lock().free_at, None);
}

#[test]
fn beyond_the_longest_pause_each_key_is_written_once_in_that_time() {
    // Their pauses add up to two minutes: a tenth of the time, not a twentieth.
    let until = 600 * SECOND;
    let writes = endless_bursts(200, 30 * MS, until);
    let number = u32::try_from(writes.len()).unwrap();
    assert!(number <= 200 * 10, "{number}");
}

#[test]
fn the_stall_of_a_slow_write_does_not_end_a_burst() {
    let (throttle, start) = throttle();
    let now = start + 100 * SECOND;
    for (took, debounce) in [
        (SECOND, 2 * SECOND),
        (90 * MS, 200 * MS),
        (700 * MS, 1_400 * MS),
        (20 * SECOND, SETTINGS.max_delay),
    ] {
        throttle.wrote(&1, took, start);
        throttle.failed(&1, 3 * SECOND, start);
        throttle.deciding(&1, now);
        assert_eq!(throttle.changed(&1, false, now), debounce, "{took:?}");
        assert_eq!(throttle.changed(&1, true, now), Duration::ZERO);
    }
}
