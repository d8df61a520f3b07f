use proptest::prelude::*;

use super::*;

/// Applies `results` ('+' and '-', spaces ignored) and returns each change as (probe number, verdict).
fn changes(start: bool, success: u32, failure: u32, results: &str) -> Vec<(usize, bool)> {
    let mut state = Threshold::new(start);
    let signs = results.chars().filter(|sign| *sign != ' ');
    signs
        .enumerate()
        .filter_map(|(at, sign)| {
            let change = state.step(sign == '+', success, failure);
            change.map(|ready| (at + 1, ready))
        })
        .collect()
}

#[test]
fn hc_1_examples_of_the_contract() {
    assert_eq!(
        changes(false, 2, 2, "+ - + + - + - - + +"),
        [(4, true), (8, false), (10, true)]
    );
    assert_eq!(
        changes(false, 1, 3, "- - + - - + - - -"),
        [(3, true), (9, false)]
    );
}

#[test]
fn hc_1_new_backend_becomes_ready_with_the_first_success_by_default() {
    assert_eq!(changes(false, 1, 3, "+"), [(1, true)]);
    assert_eq!(changes(false, 1, 3, "- - - - +"), [(5, true)]);
}

#[test]
fn hc_1_healthy_backend_falls_at_the_third_failure_in_a_row() {
    assert_eq!(changes(true, 1, 3, "- - + - - -"), [(6, false)]);
}

#[test]
fn hc_5_repeated_results_are_no_change() {
    assert_eq!(changes(true, 1, 3, "+ + + + +"), []);
    assert_eq!(changes(false, 1, 3, "- - - - - - - -"), []);
}

#[test]
fn hc_threshold_zero_counts_as_one() {
    assert_eq!(changes(false, 0, 0, "+ -"), [(1, true), (2, false)]);
}

#[test]
fn hc_counters_do_not_overflow() {
    let mut state = Threshold {
        successes: u32::MAX - 1,
        failures: 0,
        own_faults: 0,
        ready: false,
    };
    assert_eq!(state.step(true, u32::MAX, 1), Some(true));
    assert_eq!(state, Threshold::new(true));
}

/// The verdict by the text of the rules, from the whole history: walk back over the current run of equal results,
/// which restarts from 0 each time it reaches its threshold.
fn naive(start: bool, success: usize, failure: usize, history: &[bool]) -> bool {
    let mut ready = start;
    for end in 1..=history.len() {
        let last = history[end - 1];
        let run = history[..end]
            .iter()
            .rev()
            .take_while(|result| **result == last)
            .count();
        let threshold = if last { success } else { failure };
        if run % threshold == 0 {
            ready = last;
        }
    }
    ready
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hc_1_verdict_is_that_of_the_naive_model(
        start: bool,
        success in 1_u32..6,
        failure in 1_u32..6,
        history in prop::collection::vec(any::<bool>(), 0..60),
    ) {
        let mut state = Threshold::new(start);
        for end in 1..=history.len() {
            let before = state.ready();
            let change = state.step(history[end - 1], success, failure);
            let expected = naive(start, success as usize, failure as usize, &history[..end]);
            prop_assert_eq!(state.ready(), expected);
            prop_assert_eq!(change, (expected != before).then_some(expected));
        }
    }
}

#[test]
fn hc_6_so_many_own_faults_in_a_row_and_the_verdict_is_of_the_past() {
    for ready in [true, false] {
        let mut state = Threshold::new(ready);
        let faults = |state: &mut Threshold, count| -> Vec<bool> {
            (0..count).map(|_| state.own_fault(3)).collect()
        };
        assert_eq!(faults(&mut state, 4), [false, false, true, true]);
        assert_eq!(state.ready(), ready, "the verdict stays");
        // Any result resets the count, even one that changes nothing.
        assert_eq!(state.step(ready, 1, 3), None);
        assert_eq!(faults(&mut state, 3), [false, false, true]);
    }
    assert!(Threshold::new(true).own_fault(0), "0 counts as 1");
}
