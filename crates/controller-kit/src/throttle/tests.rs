use super::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SETTINGS: Settings = Settings {
    debounce: Duration::from_millis(200),
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
