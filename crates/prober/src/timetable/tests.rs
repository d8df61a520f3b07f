mod model;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(5);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn due(table: &mut Timetable, now: Duration) -> Vec<u32> {
    let mut out = Vec::new();
    table.due(now, Room::UNBOUNDED, &mut out);
    out.into_iter().map(|due| due.key).collect()
}

/// A table with one key of phase 0, so that its slots are the whole periods.
fn single() -> Timetable {
    let mut table = Timetable::default();
    table.add(0, Duration::ZERO, PERIOD, 0);
    table
}

/// A hash for tests that need many phases.
fn mix(seed: u64) -> u64 {
    let hash = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[test]
fn hc_1_first_probe_one_full_period_after_start_never_earlier() {
    assert_eq!(first_probe(SECOND, PERIOD, 0, 1), SECOND * 6);
    assert_eq!(first_probe(SECOND, PERIOD, 0, 1_000_000), SECOND * 6);
    for population in [1, 10, 1000, 40_000, usize::MAX] {
        for phase in [0, 1, 1 << 40, u64::MAX / 2, u64::MAX] {
            let first = first_probe(SECOND, PERIOD, phase, population);
            assert!(
                first >= SECOND * 6 && first < SECOND * 11,
                "{population} {phase} {first:?}"
            );
        }
    }
}

#[test]
fn hc_1_first_probe_is_hardly_spread_in_small_installations() {
    assert!(first_probe(Duration::ZERO, PERIOD, u64::MAX, 1) <= PERIOD + ms(2));
    assert!(first_probe(Duration::ZERO, PERIOD, u64::MAX, 100) <= PERIOD + ms(200));
    assert_eq!(
        first_probe(Duration::ZERO, PERIOD, 1 << 62, 1000),
        PERIOD + SECOND
    );
    assert_eq!(
        first_probe(Duration::ZERO, PERIOD, 1 << 63, 40_000),
        PERIOD + PERIOD / 2
    );
}

#[test]
fn hc_probe_once_per_period() {
    let mut table = single();
    assert_eq!(table.next_deadline(Room::UNBOUNDED), Some(PERIOD));
    assert!(due(&mut table, ms(4_999)).is_empty());
    for round in 1..100 {
        let slot = PERIOD * round;
        assert_eq!(table.next_deadline(Room::UNBOUNDED), Some(slot));
        assert_eq!(due(&mut table, slot + ms(7)), [0]);
        assert_eq!(table.next_deadline(Room::UNBOUNDED), None, "in flight");
        table.finish(0, slot + ms(900), false);
    }
}

#[test]
fn hc_slow_probe_delays_the_next_and_never_stacks() {
    let mut table = single();
    assert_eq!(due(&mut table, SECOND * 5), [0]);
    assert!(due(&mut table, SECOND * 10).is_empty(), "still in flight");
    // It covered the slots at 10 and 15 s: one follows at once, the other is skipped.
    table.finish(0, SECOND * 17, false);
    assert_eq!(table.next_deadline(Room::UNBOUNDED), Some(SECOND * 17));
    assert_eq!(due(&mut table, SECOND * 17), [0]);
    table.finish(0, SECOND * 17 + ms(1), false);
    assert_eq!(
        table.next_deadline(Room::UNBOUNDED),
        Some(SECOND * 20),
        "back on the grid"
    );
}

#[test]
fn hc_probe_as_long_as_its_period_is_followed_at_once() {
    let mut table = single();
    assert_eq!(due(&mut table, SECOND * 5), [0]);
    table.finish(0, SECOND * 10, false);
    assert_eq!(table.next_deadline(Room::UNBOUNDED), Some(SECOND * 10));
}

#[test]
fn hc_5_after_a_stall_each_key_is_probed_once_and_keeps_its_grid() {
    let mut table = single();
    assert_eq!(due(&mut table, SECOND * 23), [0], "18 s late");
    table.finish(0, SECOND * 23 + ms(1), false);
    assert_eq!(table.next_deadline(Room::UNBOUNDED), Some(SECOND * 25));
}

#[test]
fn due_is_bounded_and_takes_the_longest_waiting_first() {
    let mut table = Timetable::default();
    for key in (0..10).rev() {
        table.add(key, SECOND * key, SECOND, 0);
    }
    let mut out = Vec::new();
    let room = Room { all: 3, silent: 0 };
    table.due(SECOND * 60, room, &mut out);
    let scheduled: Vec<_> = out.iter().map(|due| (due.key, due.scheduled)).collect();
    assert_eq!(scheduled, [(0, SECOND), (1, SECOND * 2), (2, SECOND * 3)]);
    assert_eq!(table.next_deadline(Room::UNBOUNDED), Some(SECOND * 4));
}

#[test]
fn hc_5_silent_keys_wait_apart_and_in_their_turn() {
    let mut table = Timetable::default();
    (0..4).for_each(|key| table.add(key, SECOND * key, SECOND * 10, 0));
    assert_eq!(due(&mut table, SECOND * 13), [0, 1, 2, 3]);
    (0..4).for_each(|key| table.finish(key, SECOND * 14, key < 3));
    let mut out = Vec::new();
    let mut take = |all, silent| {
        out.clear();
        table.due(SECOND * 40, Room { all, silent }, &mut out);
        out.iter().map(|due| due.key).collect::<Vec<_>>()
    };
    assert_eq!(take(0, 2), [], "no room at all");
    assert_eq!(take(4, 2), [0, 1, 3], "the third silent one has to wait");
    assert_eq!(take(4, 0), []);
    assert_eq!(take(4, 1), [2]);
    table.finish(0, SECOND * 40, false);
    let answering = Room { all: 1, silent: 0 };
    assert_eq!(table.next_deadline(answering), Some(SECOND * 50));
    table.remove(0);
    assert_eq!(table.next_deadline(answering), None);
}

#[test]
fn hc_2_removed_key_is_never_due_and_a_late_end_of_its_probe_is_nothing() {
    let mut table = single();
    table.remove(0);
    assert_eq!(table.len(), 0);
    assert_eq!(table.next_deadline(Room::UNBOUNDED), None);
    table.add(0, Duration::ZERO, PERIOD, 0);
    assert_eq!(due(&mut table, PERIOD), [0]);
    table.remove(0);
    table.finish(0, PERIOD, false);
    table.finish(7, PERIOD, false);
    assert_eq!(
        (table.len(), table.next_deadline(Room::UNBOUNDED)),
        (0, None)
    );
}

#[test]
fn hc_2_key_added_again_starts_anew() {
    let mut table = single();
    assert_eq!(due(&mut table, PERIOD), [0]);
    table.add(0, SECOND * 6, SECOND, 0);
    assert_eq!(
        (table.len(), table.next_deadline(Room::UNBOUNDED)),
        (1, Some(SECOND * 7))
    );
}

/// The largest number of probes due in any window of `width`, over `rounds` periods.
fn peak(first: &[Duration], period: Duration, rounds: u32, width: Duration) -> u32 {
    let mut times: Vec<_> = (0..rounds)
        .flat_map(|round| first.iter().map(move |at| *at + period * round))
        .collect();
    times.sort_unstable();
    let mut from = 0;
    let mut most = 0;
    for (at, time) in times.iter().enumerate() {
        while *time >= times[from] + width {
            from += 1;
        }
        most = most.max(u32::try_from(at + 1 - from).unwrap());
    }
    most
}

#[test]
fn hc_5_many_targets_of_one_moment_are_spread_over_the_period() {
    // In one list, or in many small ones; the hash decides, not the order.
    for targets in [100_u32, 1_000, 5_000, 40_000] {
        let mut table = Timetable::default();
        let mut first = Vec::new();
        for key in 0..targets {
            table.add(key, SECOND, PERIOD, mix(key.into()));
            let row = table.rows[key as usize].unwrap();
            first.push(row.slot);
        }
        for width in [ms(50), ms(250), ms(1000)] {
            let fair = f64::from(targets) * width.as_secs_f64() / PERIOD.as_secs_f64();
            let most = f64::from(peak(&first, PERIOD, 3, width));
            // In addition to the fair share: targets that were added while the table was small and its windows short.
            let early = 2.0 * f64::from(CALM_RATE) * width.as_secs_f64();
            assert!(
                most <= (fair + early) * 1.1 + 25.0,
                "{targets} in {width:?}: {most} of {fair}"
            );
        }
    }
}

#[test]
fn hc_5_no_order_of_arrival_makes_a_burst() {
    // Ten targets every period, the worst case for a spread that grows with the population.
    let mut table = Timetable::default();
    let mut first = Vec::new();
    for key in 0_u32..5000 {
        table.add(key, PERIOD * (key / 10), PERIOD, mix(key.into()));
        let slot = table.rows[key as usize].unwrap().slot.as_nanos() % PERIOD.as_nanos();
        first.push(Duration::from_nanos(u64::try_from(slot).unwrap()));
    }
    let most = peak(&first, PERIOD, 3, SECOND);
    assert!(
        most < 3 * 1000,
        "{most} in a second, the fair share is 1000"
    );
}
