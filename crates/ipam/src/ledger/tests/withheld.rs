//! Pools that hand out nothing new: those that cannot be decoded, and those that ask for what this version lacks (IPA-9).

use super::*;

const EXCLUDE: &str = "example.org/exclude";

fn plain() -> PoolSpec {
    pool("p", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.12")])
}

fn excluding() -> PoolSpec {
    PoolSpec {
        withheld: Some(Withheld::Unsupported(EXCLUDE)),
        ..plain()
    }
}

#[track_caller]
fn waits(decision: Decision) -> (WaitReason, String) {
    match decision {
        Decision::Wait {
            reason,
            explanation,
            ..
        } => (reason, explanation.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ipa_9_nothing_new_from_a_pool_with_exclusions() {
    let mut world = World::new(&[plain()]);
    assert_eq!(world.ask(&lb("held")), Some(ip("10.0.0.10")));
    assert_eq!(world.ask(&lb("gone")), Some(ip("10.0.0.11")));
    world.delete("gone");
    world.ledger.set_pool(excluding());
    // New, by its name, of its history, and by its status.
    for request in [
        lb("new"),
        in_pool(lb("named"), "p"),
        lb_uid("gone", "gone-2"),
        with_status(lb("forged"), "p", "10.0.0.12"),
    ] {
        let (reason, message) = waits(world.decide(&request));
        assert_eq!(reason.as_str(), "UnsupportedAnnotation");
        assert!(
            message.contains(EXCLUDE) && message.contains("pool p"),
            "{message}"
        );
    }
    // What is held stays, also when its owner is made anew.
    assert_eq!(world.ask(&lb("held")), Some(ip("10.0.0.10")));
    assert_eq!(world.ask(&lb_uid("held", "held-2")), Some(ip("10.0.0.10")));
    // The status tells what it told: nothing here knows what is excluded.
    let view = world.ledger.projection("p").unwrap();
    assert_eq!((view.total, view.available), (3, 2));
    assert!(world.ledger.take_wakes().is_empty());
    // Without the annotation those that wait are served, oldest first, and the others are told that it is full.
    world.ledger.set_pool(plain());
    assert_eq!(names(world.ledger.take_wakes()), ["forged", "gone"]);
    assert_eq!(world.misinformed(), ["named", "new"]);
    assert_eq!(world.ask(&lb_uid("gone", "gone-2")), Some(ip("10.0.0.11")));
}

#[test]
fn ipa_9_what_is_shown_or_trusted_is_nothing_new() {
    let mut world = World::new(&[excluding()]);
    let shown = with_status(lb("shown"), "p", "10.0.0.10");
    world.ledger.set_shown(&shown.owner.id, &[ip("10.0.0.10")]);
    assert_eq!(world.ask(&shown), Some(ip("10.0.0.10")));
    let trusted = lb("trusted");
    let evidence = Evidence::Trusted("p".into());
    let owner = trusted.owner.clone();
    world.ledger.claim(ip("10.0.0.11"), owner, evidence);
    assert_eq!(world.ask(&trusted), Some(ip("10.0.0.11")));
    let claimed = with_status(lb("claimed"), "p", "10.0.0.12");
    let owner = claimed.owner.clone();
    world.ledger.claim(ip("10.0.0.12"), owner, Evidence::Status);
    waits(world.decide(&claimed));
}

#[test]
fn pool_2_one_that_cannot_be_decoded_is_said_to_be_that() {
    let unknown = PoolSpec {
        ranges: PoolRanges::parse(&[]),
        selector: Selector::default(),
        withheld: Some(Withheld::Undecodable("spec.ranges: not a list".to_owned())),
        ..plain()
    };
    let mut world = World::new(&[unknown]);
    let expected = "pool p: cannot be decoded: spec.ranges: not a list";
    let (reason, message) = waits(world.decide(&in_pool(lb("a"), "p")));
    assert_eq!((reason, &*message), (WaitReason::PoolInvalid, expected));
    // Whom it would serve is not known, so it is said to everybody without a pool.
    let (reason, message) = waits(world.decide(&lb("b")));
    assert_eq!((reason, &*message), (WaitReason::NoMatchedPool, expected));
    world.ledger.set_pool(plain());
    assert_eq!(world.ask(&in_pool(lb("a"), "p")), Some(ip("10.0.0.10")));
}
