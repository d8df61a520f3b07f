use super::*;

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
        throttle.wrote(&key, Duration::ZERO, now);
        throttle.deciding(&(key + 1_000_000));
        now += 100 * MS;
    }
    let kept = throttle.states.lock().by_key.len();
    assert!(kept <= MIN_SWEEP, "{kept}");
    assert_eq!(throttle.due_in(&9_999, now), 900 * MS);
    let states = throttle.states.lock();
    assert!(states.by_key.contains_key(&0) && states.by_key.contains_key(&1));
}

/// Keys whose changes are 100 ms apart, from 0 s to `until`, and whose writes take `took`, one at a time. Returns each write:
/// its time and its key.
fn endless_bursts(keys: u32, took: Duration, until: Duration) -> Vec<(Duration, u32)> {
    let (throttle, start) = throttle();
    let (mut now, mut writes) = (start, Vec::new());
    while now < start + until {
        for key in 0..keys {
            throttle.changed(&key, false, now);
        }
        for key in 0..keys {
            if throttle.due_in(&key, now).is_zero() {
                throttle.deciding(&key);
                writes.push((now - start, key));
                now += took;
                throttle.wrote(&key, took, now);
                for other in 0..keys {
                    throttle.changed(&other, false, now);
                }
            }
        }
        now += 100 * MS;
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
    throttle.deciding(&1);
    let now = now + SECOND;
    throttle.wrote(&1, SECOND, now);
    for since in 0..9 {
        let now = now + since * SECOND;
        assert_eq!(throttle.changed(&2, false, now), SETTINGS.debounce);
        assert_eq!(throttle.changed(&2, true, now), Duration::ZERO);
    }
    // Without an end it waits for its turn, 20 s after that of the other key.
    let late = start + SETTINGS.max_delay + 19 * SECOND + 900 * MS;
    assert_eq!(throttle.changed(&2, false, late), 100 * MS);
    assert_eq!(throttle.due_in(&3, late), Duration::ZERO, "no burst");
}

#[test]
fn interim_writes_do_not_begin_together() {
    let (throttle, start) = throttle();
    for key in [1, 2] {
        throttle.changed(&key, false, start);
    }
    let now = start + SETTINGS.max_delay;
    assert_eq!(throttle.changed(&1, false, now), Duration::ZERO);
    assert_eq!(throttle.changed(&2, false, now), SETTINGS.debounce);
    let now = now + 900 * MS;
    assert_eq!(throttle.changed(&2, false, now), 100 * MS);
}

#[test]
fn settings_without_a_debounce_reserve_no_time() {
    let interval = Settings {
        min_interval: SECOND,
        ..Settings::default()
    };
    let (throttle, start) = (Throttle::new(interval), Instant::now());
    for key in 0..10 {
        assert_eq!(throttle.changed(&key, false, start), Duration::ZERO);
    }
    assert_eq!(throttle.states.lock().free, None);
}

/// Brings keys into a burst that has lasted for the longest debounce delay. Returns the time.
fn in_burst(throttle: &Throttle<u32>, keys: std::ops::Range<u32>, start: Instant) -> Instant {
    for key in keys.clone() {
        throttle.changed(&key, false, start);
    }
    let now = start + SETTINGS.max_delay;
    for key in keys {
        throttle.changed(&key, false, now);
    }
    now
}

#[test]
fn a_failed_interim_write_takes_no_second_turn() {
    let (throttle, start) = throttle();
    // 50 keys reserve a second each.
    let now = in_burst(&throttle, 0..50, start) + 5 * SECOND;
    throttle.changed(&5, false, now);
    assert_eq!(throttle.due_in(&5, now), Duration::ZERO);
    throttle.deciding(&5);
    throttle.changed(&5, false, now);
    throttle.wrote(&5, Duration::ZERO, now);
    let now = now + SETTINGS.max_delay;
    assert_eq!(throttle.changed(&5, false, now), Duration::ZERO);
}

#[test]
fn slow_writes_reserve_no_more_than_the_longest_pause() {
    let (throttle, start) = throttle();
    let mut now = in_burst(&throttle, 0..30, start);
    for key in 0..30 {
        throttle.deciding(&key);
        now += 3 * SECOND;
        throttle.wrote(&key, 3 * SECOND, now);
    }
    let free = throttle.states.lock().free.unwrap();
    assert!(free <= now + SETTINGS.max_pause, "{:?}", free - now);
}

#[test]
fn a_failed_write_says_nothing_about_the_pause() {
    let (throttle, start) = throttle();
    throttle.wrote(&1, 2 * SECOND, start);
    throttle.wrote(&1, Duration::ZERO, start);
    let now = in_burst(&throttle, 1..2, start + 40 * SECOND);
    let free = throttle.states.lock().free.unwrap();
    assert_eq!(free - now, 40 * SECOND);
}

#[test]
fn no_turn_is_reserved_during_a_pause() {
    let (throttle, start) = throttle();
    throttle.wrote(&1, 3 * SECOND, start);
    in_burst(&throttle, 1..2, start + SECOND);
    assert_eq!(throttle.states.lock().free, None);
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
    throttle.wrote(&1, SECOND, start);
    let now = start + 100 * SECOND;
    for (took, debounce) in [
        (Duration::ZERO, 2 * SECOND),
        (90 * MS, 200 * MS),
        (700 * MS, 1_400 * MS),
        (20 * SECOND, SETTINGS.max_delay),
    ] {
        throttle.wrote(&1, took, start);
        throttle.deciding(&1);
        assert_eq!(throttle.changed(&1, false, now), debounce, "{took:?}");
        assert_eq!(throttle.changed(&1, true, now), Duration::ZERO);
    }
}
