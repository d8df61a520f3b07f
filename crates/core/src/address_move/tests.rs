use super::*;

const LIMITS: MoveLimits = MoveLimits {
    unknown: Duration::from_secs(3),
    followed: Duration::from_secs(8),
    ignored: Duration::from_secs(1),
};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What happens to a Service, and when, in milliseconds since the first.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The Service of this uid, with this desired address, is seen to show an address.
    Seen(&'static str, &'static str, Shown),
    /// It is deleted, to be recreated.
    Deleted,
}

use Step::{Deleted, Seen};

/// The outcome of the last step, and the remaining time for a limit of 3 s; `None` if there is nothing to wait for.
fn play(steps: &[(u64, Step)]) -> (Option<MoveOutcome>, Option<Duration>) {
    let (mut state, mut last) = (None::<AddressMove>, (None, None));
    for (at, step) in steps {
        let now = millis(*at);
        match step {
            Seen(uid, desired, shown) => {
                let service = ObservedService {
                    uid,
                    desired,
                    shown: *shown,
                };
                let progress = AddressMove::observe(state.take(), &service, now);
                state = progress.next;
                let state = state.as_ref();
                let remaining = state.and_then(|it| it.remaining(*shown, LIMITS.unknown, now));
                last = (progress.outcome, remaining);
            }
            Deleted => state.as_mut().unwrap().deleted(now),
        }
    }
    last
}

#[test]
fn rel_4_what_kube_vip_did_decides_how_long_it_may_take() {
    use MoveOutcome::{Followed, Ignored};
    for (outcomes, seconds) in [
        // After a restart nothing is known.
        (&[] as &[MoveOutcome], 3),
        (&[Followed], 8),
        (&[Ignored], 1),
        (&[Ignored, Ignored], 1),
        // One that follows can miss a change: that alone proves nothing.
        (&[Followed, Ignored], 3),
        (&[Followed, Followed, Ignored], 3),
        // As after an upgrade of kube-vip.
        (&[Followed, Ignored, Ignored], 1),
        (&[Ignored, Followed], 8),
        (&[Followed, Ignored, Followed], 8),
    ] {
        let history = outcomes
            .iter()
            .fold(MoveHistory::default(), |it, outcome| it.after(*outcome));
        let limit = history.limit(&LIMITS);
        assert_eq!(limit, Duration::from_secs(seconds), "{outcomes:?}");
    }
}

#[test]
fn rel_4_the_time_of_a_move_counts_from_the_first_sight_of_the_previous_address() {
    use Shown::{Desired, Nothing, Other, Previous};
    let left = |millis_left| Some(millis(millis_left));
    for (steps, remaining) in [
        (&[(0, Seen("u", "b", Previous))][..], left(3_000)),
        (
            &[
                (0, Seen("u", "b", Previous)),
                (2_900, Seen("u", "b", Previous)),
            ],
            left(100),
        ),
        (
            &[
                (0, Seen("u", "b", Previous)),
                (9_000, Seen("u", "b", Previous)),
            ],
            left(0),
        ),
        // The desired address changes again.
        (
            &[
                (0, Seen("u", "b", Previous)),
                (2_900, Seen("u", "c", Previous)),
            ],
            left(3_000),
        ),
        // It was deleted by hand and recreated, and kube-vip wrote a stale copy.
        (
            &[
                (0, Seen("u", "b", Previous)),
                (2_900, Seen("v", "b", Previous)),
            ],
            left(3_000),
        ),
        // The previous address is withdrawn and comes back.
        (
            &[
                (0, Seen("u", "b", Previous)),
                (1_000, Seen("u", "b", Nothing)),
                (2_000, Seen("u", "b", Previous)),
            ],
            left(1_000),
        ),
        // There is nothing to wait for.
        (&[(0, Seen("u", "b", Nothing))], None),
        (&[(0, Seen("u", "b", Desired))], None),
        (&[(0, Seen("u", "b", Other))], None),
        (
            &[(0, Seen("u", "b", Previous)), (500, Seen("u", "b", Other))],
            None,
        ),
        // Its deletion waits for a finalizer.
        (
            &[
                (0, Seen("u", "b", Previous)),
                (3_000, Deleted),
                (9_000, Seen("u", "b", Previous)),
            ],
            None,
        ),
        // The recreated one shows the previous address again.
        (
            &[
                (0, Seen("u", "b", Previous)),
                (3_000, Deleted),
                (3_500, Seen("v", "b", Nothing)),
                (4_000, Seen("v", "b", Previous)),
            ],
            left(3_000),
        ),
    ] {
        assert_eq!(play(steps).1, remaining, "{steps:?}");
    }
}

#[test]
fn rel_4_only_a_move_whose_end_is_seen_says_what_kube_vip_does() {
    use MoveOutcome::{Followed, Ignored};
    use Shown::{Desired, Nothing, Other, Previous};
    let moving = (0, Seen("u", "b", Previous));
    for (steps, outcome) in [
        (
            &[moving, (300, Seen("u", "b", Desired))][..],
            Some(Followed),
        ),
        (
            &[
                moving,
                (300, Seen("u", "b", Nothing)),
                (600, Seen("u", "b", Desired)),
            ],
            Some(Followed),
        ),
        (
            &[
                moving,
                (3_000, Deleted),
                (3_100, Seen("v", "b", Nothing)),
                (4_200, Seen("v", "b", Desired)),
            ],
            Some(Ignored),
        ),
        // kube-vip announces it late: it may have been down.
        (
            &[
                moving,
                (3_000, Deleted),
                (3_100, Seen("v", "b", Nothing)),
                (6_100, Seen("v", "b", Desired)),
            ],
            None,
        ),
        // It was about to be deleted when kube-vip followed.
        (
            &[moving, (3_000, Deleted), (3_100, Seen("u", "b", Desired))],
            None,
        ),
        // Not ours: somebody else has recreated it, or it is to have yet another address.
        (&[moving, (300, Seen("v", "b", Desired))], None),
        (&[moving, (300, Seen("u", "c", Desired))], None),
        (
            &[moving, (3_000, Deleted), (3_500, Seen("v", "c", Desired))],
            None,
        ),
        (&[moving, (300, Seen("u", "b", Other))], None),
        // No move at all.
        (&[(0, Seen("u", "b", Desired))], None),
        (
            &[(0, Seen("u", "b", Nothing)), (300, Seen("u", "b", Desired))],
            None,
        ),
    ] {
        assert_eq!(play(steps).0, outcome, "{steps:?}");
    }
}
