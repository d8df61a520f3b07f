//! Withheld pools: those that cannot be decoded, and those with an invalid list of exclusions (EXC-1).

use super::*;

fn plain() -> PoolSpec {
    pool("p", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.12")])
}

fn excluding() -> PoolSpec {
    PoolSpec {
        withheld: Some(Withheld::InvalidExclude(
            Exclusions::parse("10.0.0.x").unwrap_err(),
        )),
        ..plain()
    }
}

/// Its ranges and its selector are unknown.
fn undecodable(why: &str) -> PoolSpec {
    PoolSpec {
        ranges: PoolRanges::parse(&[]),
        selector: Selector::default(),
        withheld: Some(Withheld::Undecodable(why.to_owned())),
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
fn exc_1_nothing_new_from_a_pool_with_an_invalid_list() {
    let mut fixture = Fixture::new(&[plain()]);
    assert_eq!(fixture.ask(&lb("held")), Some(ip("10.0.0.10")));
    assert_eq!(fixture.ask(&lb("gone")), Some(ip("10.0.0.11")));
    fixture.delete("gone");
    fixture.ledger.set_pool(excluding());
    // A new one, one that names the pool, one with history, and one whose status names an address.
    for request in [
        lb("new"),
        in_pool(lb("named"), "p"),
        lb_uid("gone", "gone-2"),
        with_status(lb("forged"), "p", "10.0.0.12"),
    ] {
        let (reason, message) = waits(fixture.decide(&request));
        assert_eq!(reason.as_str(), "InvalidExclude");
        assert!(
            message.contains("10.0.0.x") && message.contains("pool p"),
            "{message}"
        );
    }
    // Existing allocations stay, also if their owner is recreated.
    assert_eq!(fixture.ask(&lb("held")), Some(ip("10.0.0.10")));
    assert_eq!(
        fixture.ask(&lb_uid("held", "held-2")),
        Some(ip("10.0.0.10"))
    );
    // The status counts as before, as the exclusions are unknown. The address in a status may be its own.
    let view = fixture.ledger.projection("p").unwrap();
    assert_eq!((view.total, view.available), (3, 1));
    assert!(fixture.ledger.take_wakes().is_empty());
    // With a valid list the waiting ones are served, oldest first, and the others' explanation becomes that it is
    // full.
    fixture.ledger.set_pool(plain());
    assert_eq!(names(fixture.ledger.take_wakes()), ["forged", "gone"]);
    assert_eq!(fixture.outdated(), ["named", "new"]);
    assert_eq!(
        fixture.ask(&lb_uid("gone", "gone-2")),
        Some(ip("10.0.0.11"))
    );
}

#[test]
fn exc_1_a_proposal_is_dropped_when_the_list_becomes_invalid() {
    let mut fixture = Fixture::new(&[plain()]);
    fixture.ask(&lb("gone"));
    fixture.delete("gone");
    let requested = Request {
        requested: Some(ip("10.0.0.12")),
        ..lb("requested")
    };
    // Proposed from history, as a free address, and on request; no record of them was observed.
    let all = [lb_uid("gone", "gone-2"), lb("fresh"), requested];
    for request in &all {
        let decision = fixture.decide(request);
        assert!(matches!(decision, Decision::Take { .. }), "{decision:?}");
    }
    fixture.ledger.set_pool(excluding());
    for request in &all {
        let (_, message) = waits(fixture.decide(request));
        assert!(message.contains("10.0.0.x"), "{message}");
    }
    assert_eq!(fixture.ledger.counts().reserved, 0);
}

#[test]
fn exc_1_a_proposal_that_its_service_shows_stays_the_same() {
    let mut fixture = Fixture::new(&[plain()]);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.10")));
    fixture.delete("a");
    fixture.ledger.set_pool(excluding());
    let again = lb_uid("a", "a-2");
    fixture
        .ledger
        .set_shown(&again.owner.id, &[ip("10.0.0.10")]);
    let first = fixture.decide(&again);
    assert!(matches!(first, Decision::Take { .. }), "{first:?}");
    assert_eq!(fixture.decide(&again), first);
    // What nothing shows is new.
    fixture.ledger.set_shown(&again.owner.id, &[]);
    waits(fixture.decide(&again));
    // So is what it never had: anybody may have made that Service.
    let mut fixture = Fixture::new(&[plain()]);
    let fresh = lb("fresh");
    assert!(matches!(fixture.decide(&fresh), Decision::Take { .. }));
    fixture.ledger.set_pool(excluding());
    fixture
        .ledger
        .set_shown(&fresh.owner.id, &[ip("10.0.0.10")]);
    waits(fixture.decide(&fresh));
}

#[test]
fn alc_7_a_claim_that_gives_way_to_another_one_hides_no_conflict() {
    let mut fixture = Fixture::new(&[excluding()]);
    let request = with_status(lb("a"), "p", "10.0.0.10");
    for (addr, evidence) in [
        ("10.0.0.10", Evidence::Status),
        ("10.0.0.11", Evidence::Trusted("p".into())),
    ] {
        let owner = request.owner.clone();
        fixture.ledger.claim(ip(addr), owner, evidence);
    }
    let other = OwnerId::new("ns", "other");
    fixture.ledger.set_shown(&other, &[ip("10.0.0.10")]);
    let first = fixture.decide(&request);
    let Decision::Take { grant, .. } = &first else {
        panic!("{first:?}")
    };
    assert_eq!(grant.addr, ip("10.0.0.11"));
    assert!(grant.address_conflict.is_some(), "{grant:?}");
    assert_eq!(fixture.decide(&request), first);
}

#[test]
fn exc_1_a_service_that_a_deleted_one_has_left_ends_no_service_in_an_unknown_pool() {
    for imported in [true, false] {
        let mut fixture = Fixture::new(&[undecodable("x")]);
        let request = with_status(lb("a"), "p", "10.0.0.10");
        if imported {
            let owner = request.owner.clone();
            fixture
                .ledger
                .claim(ip("10.0.0.10"), owner, Evidence::Status);
        }
        for id in [&request.owner.id, &OwnerId::new("ns", "deleted")] {
            fixture.ledger.set_shown(id, &[ip("10.0.0.10")]);
        }
        for _ in 0..2 {
            assert!(stays_of(&mut fixture, &request), "imported {imported}");
        }
        // Another one that has the address is no leftover.
        let one = pool("q", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.10")]);
        fixture.ledger.set_pool(one);
        fixture.bind("10.0.0.10", "q", "other", "other-1");
        for _ in 0..2 {
            assert!(!matches!(
                fixture.decide(&request),
                Decision::Wait {
                    keep_service: true,
                    ..
                }
            ));
        }
    }
}

#[test]
fn exc_1_what_is_shown_or_trusted_is_nothing_new() {
    let mut fixture = Fixture::new(&[excluding()]);
    let shown = with_status(lb("shown"), "p", "10.0.0.10");
    fixture
        .ledger
        .set_shown(&shown.owner.id, &[ip("10.0.0.10")]);
    assert_eq!(fixture.ask(&shown), Some(ip("10.0.0.10")));
    let trusted = lb("trusted");
    let evidence = Evidence::Trusted("p".into());
    let owner = trusted.owner.clone();
    fixture.ledger.claim(ip("10.0.0.11"), owner, evidence);
    assert_eq!(fixture.ask(&trusted), Some(ip("10.0.0.11")));
    let claimed = with_status(lb("claimed"), "p", "10.0.0.12");
    let owner = claimed.owner.clone();
    fixture
        .ledger
        .claim(ip("10.0.0.12"), owner, Evidence::Status);
    waits(fixture.decide(&claimed));
}

#[test]
fn pool_2_one_that_cannot_be_decoded_is_said_to_be_that() {
    let mut fixture = Fixture::new(&[undecodable("spec.ranges: not a list")]);
    let expected = "pool p: cannot be decoded: spec.ranges: not a list";
    let (reason, message) = waits(fixture.decide(&in_pool(lb("a"), "p")));
    assert_eq!((reason, &*message), (WaitReason::PoolInvalid, expected));
    // Its selector is unknown, so every load balancer without a pool gets this explanation.
    let (reason, message) = waits(fixture.decide(&lb("b")));
    assert_eq!((reason, &*message), (WaitReason::NoMatchedPool, expected));
    fixture.ledger.set_pool(plain());
    assert_eq!(fixture.ask(&in_pool(lb("a"), "p")), Some(ip("10.0.0.10")));
}

#[track_caller]
fn keep_service(decision: &Decision) -> bool {
    match decision {
        Decision::Wait {
            keep_service,
            address_conflict,
            ..
        } => {
            assert_eq!(*address_conflict, None);
            *keep_service
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn exc_1_what_only_a_status_names_stays_until_the_pool_can_tell() {
    for (withheld, expected) in [
        (excluding(), WaitReason::InvalidExclude),
        (undecodable("x"), WaitReason::PoolInvalid),
    ] {
        // Imported at the start or decided about later; naming the pool or matched by its selector.
        for (imported, named) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut fixture = Fixture::new(std::slice::from_ref(&withheld));
            let mut request = with_status(lb("a"), "p", "10.0.0.10");
            if named {
                request = in_pool(request, "p");
            }
            if imported {
                let owner = request.owner.clone();
                fixture
                    .ledger
                    .claim(ip("10.0.0.10"), owner, Evidence::Status);
            }
            let decision = fixture.decide(&request);
            assert!(
                keep_service(&decision),
                "{expected:?}, imported {imported}, named {named}"
            );
            let (reason, message) = waits(decision);
            assert_eq!(reason, expected);
            assert!(message.starts_with("pool p: "), "{message}");
            assert!(fixture.ledger.take_wakes().is_empty());
            // No other load balancer gets it meanwhile, from any pool, if it is known to be an address of this one.
            if withheld.ranges.is_ok() {
                let one = pool("q", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.10")]);
                fixture.ledger.set_pool(one);
                assert_eq!(fixture.ask(&in_pool(lb("other"), "q")), None);
            }
            // It does not block those that wait for the free addresses.
            fixture.ledger.set_pool(plain());
            assert!(fixture.ledger.take_wakes().contains(&request.owner.id));
            assert_eq!(fixture.ask(&lb("younger")), Some(ip("10.0.0.11")));
            assert_eq!(fixture.ask(&request), Some(ip("10.0.0.10")));
        }
    }
}

#[test]
fn exc_1_what_a_status_names_of_others_or_of_elsewhere_does_not_stay() {
    let mut fixture = Fixture::new(&[plain()]);
    assert_eq!(fixture.ask(&lb("held")), Some(ip("10.0.0.10")));
    fixture.ledger.set_pool(excluding());
    let of_another = with_status(lb("forged"), "p", "10.0.0.10");
    let Decision::Wait {
        keep_service,
        address_conflict,
        ..
    } = fixture.decide(&of_another)
    else {
        panic!()
    };
    assert!(!keep_service && address_conflict.is_some());
    let outside = in_pool(with_status(lb("outside"), "p", "10.0.0.99"), "p");
    assert!(matches!(
        fixture.decide(&outside),
        Decision::Wait {
            keep_service: false,
            ..
        }
    ));
    assert!(!stays_of(&mut fixture, &lb("new")));
    // Two load balancers name one address: the first one keeps it.
    let [one, two] = ["one", "two"].map(|name| with_status(lb(name), "p", "10.0.0.11"));
    assert!(stays_of(&mut fixture, &one) && !stays_of(&mut fixture, &two));
    assert!(stays_of(&mut fixture, &one));
    // It is withdrawn, or requests another pool.
    fixture.ledger.withdraw(&one.owner.id);
    assert!(stays_of(&mut fixture, &two));
    assert!(!stays_of(&mut fixture, &in_pool(two, "missing")));
    assert!(stays_of(&mut fixture, &one));
}

fn stays_of(fixture: &mut Fixture, request: &Request) -> bool {
    matches!(
        fixture.decide(request),
        Decision::Wait {
            keep_service: true,
            ..
        }
    )
}

#[test]
fn exc_1_what_cannot_be_told_blocks_nobody_elses_address() {
    let one = pool("q", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.10")]);
    let mut fixture = Fixture::new(&[undecodable("x"), one]);
    let forged = with_status(lb("forged"), "p", "10.0.0.10");
    assert!(stays_of(&mut fixture, &forged));
    assert_eq!(
        fixture.ask(&in_pool(lb("other"), "q")),
        Some(ip("10.0.0.10"))
    );
    // The record shows the owner of the address.
    assert_eq!(names(fixture.ledger.take_wakes()), ["forged"]);
    assert!(!stays_of(&mut fixture, &forged));
}

#[test]
fn exc_1_what_a_service_of_another_shows_does_not_stay_in_an_unknown_pool() {
    // Imported from its status, or claimed while an earlier pool had the address.
    for imported in [true, false] {
        let mut fixture = Fixture::new(&[excluding()]);
        let mut request = with_status(lb("a"), "p", "10.0.0.10");
        if imported {
            let owner = request.owner.clone();
            fixture
                .ledger
                .claim(ip("10.0.0.10"), owner, Evidence::Status);
        } else {
            assert!(stays_of(&mut fixture, &request));
        }
        let unknown = PoolSpec {
            name: "q".into(),
            ..undecodable("x")
        };
        fixture.ledger.set_pool(unknown);
        request = in_pool(with_status(lb("a"), "q", "10.0.0.10"), "q");
        let other = OwnerId::new("ns", "other");
        fixture.ledger.set_shown(&other, &[ip("10.0.0.10")]);
        // The same request gets the same decision.
        for _ in 0..2 {
            assert!(!stays_of(&mut fixture, &request), "imported {imported}");
        }
    }
}

#[test]
fn exc_1_another_pool_may_serve_one_whose_pool_cannot_confirm_its_address() {
    let mut fixture = Fixture::new(&[excluding()]);
    let request = with_status(lb("a"), "p", "10.0.0.10");
    assert!(stays_of(&mut fixture, &request));
    assert!(fixture.ledger.take_wakes().is_empty());
    let other = pool("q", &[range("10.0.1.0/24", "10.0.1.10", "10.0.1.10")]);
    fixture.ledger.set_pool(other.clone());
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    // The same spec selects nothing else.
    fixture.ledger.set_pool(other);
    assert!(fixture.ledger.take_wakes().is_empty());
}
