//! Requested addresses (REQ-2 to REQ-4).

use super::*;

/// Four addresses, 10.0.0.10 to 10.0.0.13.
fn plain() -> PoolSpec {
    pool("p", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.13")])
}

/// A pool of 10.0.1.10 to 10.0.1.13 that section 5 prefers.
fn best() -> PoolSpec {
    PoolSpec {
        selector: Selector {
            priority: 9,
            ..global()
        },
        ..pool("best", &[range("10.0.1.0/24", "10.0.1.10", "10.0.1.13")])
    }
}

fn asking(request: Request, addr: &str) -> Request {
    Request {
        requested: Some(ip(addr)),
        ..request
    }
}

fn created(request: Request, at: i64) -> Request {
    Request {
        created: Micros(at),
        ..request
    }
}

#[track_caller]
fn waits(decision: Decision) -> String {
    match decision {
        Decision::Wait {
            reason,
            explanation,
            keep_service,
            ..
        } => {
            assert_eq!(reason, WaitReason::RequestedAddressUnavailable);
            assert!(!keep_service);
            explanation.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn stays(decision: Decision) -> (IpAddr, String) {
    match decision {
        Decision::Held { grant, .. } => (grant.addr, grant.unserved.unwrap().to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn req_2_the_pool_is_the_named_one_or_the_best_that_has_the_address() {
    let mut fixture = Fixture::new(&[plain(), best()]);
    // The best one does not have it.
    assert_eq!(
        fixture.ask(&asking(lb("a"), "10.0.0.12")),
        Some(ip("10.0.0.12"))
    );
    let named = asking(in_pool(lb("b"), "best"), "10.0.0.13");
    let message = waits(fixture.decide(&named));
    assert_eq!(message, "pool best: 10.0.0.13 is in none of its ranges");
    let missing = asking(in_pool(lb("c"), "gone"), "10.0.0.13");
    let message = waits(fixture.decide(&missing));
    assert_eq!(message, "pool gone: does not exist");
    let nowhere = asking(lb("d"), "192.0.2.1");
    let message = waits(fixture.decide(&nowhere));
    assert_eq!(
        message,
        "pool best: 192.0.2.1 is in none of its ranges; pool p: 192.0.2.1 is in none of its ranges"
    );
    // A pool that has it, and is not for this load balancer.
    let other = PoolSpec {
        selector: Selector::default(),
        ..pool("other", &[range("192.0.2.0/24", "", "")])
    };
    fixture.ledger.set_pool(other);
    let message = waits(fixture.decide(&nowhere));
    assert!(message.contains("pool other: has no scope"), "{message}");
    // One that comes.
    fixture.ledger.set_pool(pool(
        "new",
        &[range("192.0.2.0/24", "192.0.2.1", "192.0.2.9")],
    ));
    assert!(names(fixture.ledger.take_wakes()).contains(&"d".to_owned()));
}

#[test]
fn req_3_who_cannot_have_it_is_told_why_and_gets_no_other() {
    let excluded = Exclusions::parse("10.0.0.11").unwrap();
    let mut gateway = range("10.0.0.0/24", "10.0.0.10", "10.0.0.13");
    gateway.gateway = Some("10.0.0.12".into());
    let spec = pool("p", &[gateway, range("fd10::/64", "fd10::5", "fd10::6")]);
    let mut fixture = Fixture::new(&[PoolSpec {
        ranges: spec.ranges.map(|ranges| ranges.without(&excluded)),
        ..spec
    }]);
    assert_eq!(fixture.ask(&lb("holder")), Some(ip("10.0.0.10")));
    for (addr, why) in [
        ("10.0.0.10", "10.0.0.10 is held by LoadBalancer ns/holder"),
        (
            "10.0.0.11",
            "10.0.0.11 is excluded by its annotation exclude",
        ),
        ("10.0.0.12", "10.0.0.12 is a gateway of its ranges"),
    ] {
        let message = waits(fixture.decide(&asking(lb("a"), addr)));
        assert_eq!(message, format!("pool p: {why}"));
    }
    let vm = Request {
        workload: Workload::Vm,
        ..asking(lb("vm"), "fd10::5")
    };
    let message = waits(fixture.decide(&vm));
    assert!(message.contains("is an IPv6 address"), "{message}");
    let guest = asking(guest("guest"), "fd10::5");
    assert_eq!(fixture.ask(&guest), Some(ip("fd10::5")));
    // The free one is for others.
    assert_eq!(fixture.ask(&lb("b")), Some(ip("10.0.0.13")));
}

#[test]
fn req_3_it_is_served_when_the_address_is_freed_the_oldest_first() {
    let mut fixture = Fixture::new(&[plain()]);
    for name in ["w", "x", "y", "z"] {
        fixture.ask(&lb(name));
    }
    // One that takes any address waits longest; it has no claim on the one that others ask for.
    let any = created(lb("any"), 1);
    fixture.decide(&any);
    let young = created(asking(lb("young"), "10.0.0.11"), 3);
    let old = created(asking(lb("old"), "10.0.0.11"), 2);
    assert!(waits(fixture.decide(&young)).contains("ns/x"));
    assert!(waits(fixture.decide(&old)).contains("ns/x"));
    fixture.ledger.take_wakes();
    fixture.delete("x");
    let woken = names(fixture.ledger.take_wakes());
    assert!(woken.contains(&"old".to_owned()) && !woken.contains(&"any".to_owned()));
    assert_eq!(fixture.ask(&any), None);
    let message = waits(fixture.decide(&young));
    assert_eq!(
        message,
        "pool p: 10.0.0.11 is requested by LoadBalancer ns/old too, which is older"
    );
    // It is not counted as allocated meanwhile.
    assert_eq!(fixture.ledger.projection("p").unwrap().available, 1);
    assert_eq!(fixture.ask(&old), Some(ip("10.0.0.11")));
    assert!(waits(fixture.decide(&young)).contains("ns/old"));
    // Without those that ask for it the address is as any other.
    fixture.ledger.withdraw(&young.owner.id);
    fixture.delete("old");
    assert_eq!(fixture.ask(&any), Some(ip("10.0.0.11")));
}

#[test]
fn req_3_an_address_that_no_pool_would_give_to_it_is_kept_for_nobody() {
    let mut fixture = Fixture::new(&[plain()]);
    let named = asking(in_pool(lb("named"), "q"), "10.0.0.10");
    waits(fixture.decide(&named));
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.10")));
    // Told when the pool appears, and when its ranges change.
    fixture.ledger.take_wakes();
    let q = pool("q", &[range("10.0.9.0/24", "", "")]);
    fixture.ledger.set_pool(q);
    assert_eq!(names(fixture.ledger.take_wakes()), ["named"]);
    let message = waits(fixture.decide(&named));
    assert_eq!(message, "pool q: 10.0.0.10 is in none of its ranges");
}

#[test]
fn req_4_an_address_that_cannot_be_had_leaves_the_present_one() {
    let mut fixture = Fixture::new(&[plain()]);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.10")));
    assert_eq!(fixture.ask(&lb("b")), Some(ip("10.0.0.11")));
    let moves = asking(lb("a"), "10.0.0.11");
    let (addr, why) = stays(fixture.decide(&moves));
    assert_eq!(addr, ip("10.0.0.10"));
    assert_eq!(why, "pool p: 10.0.0.11 is held by LoadBalancer ns/b");
    // Also if it names a pool that it cannot be served from.
    let elsewhere = asking(in_pool(lb("a"), "q"), "10.0.0.11");
    let (addr, why) = stays(fixture.decide(&elsewhere));
    assert_eq!((addr, &*why), (ip("10.0.0.10"), "pool q: does not exist"));
    stays(fixture.decide(&moves));
    fixture.ledger.take_wakes();
    fixture.delete("b");
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    let Decision::Take {
        grant,
        reason,
        extra_records,
        ..
    } = fixture.decide(&moves)
    else {
        panic!()
    };
    assert_eq!(grant.addr, ip("10.0.0.11"));
    assert_eq!(reason, AllocationReason::Moved);
    let old: Vec<IpAddr> = extra_records.iter().map(|it| it.spec.addr).collect();
    assert_eq!(old, [ip("10.0.0.10")]);
    assert_eq!(fixture.ask(&moves), Some(ip("10.0.0.11")));
    // Removed, the address stays.
    let without = with_status(lb("a"), "p", "10.0.0.11");
    let (grant, _) = held(fixture.decide(&without));
    assert_eq!((grant.addr, grant.unserved), (ip("10.0.0.11"), None));
}

#[test]
fn req_4_an_address_of_two_pools_is_not_moved_to_itself() {
    let overlapping = pool("q", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.10")]);
    let mut fixture = Fixture::new(&[plain(), overlapping]);
    assert_eq!(fixture.ask(&in_pool(lb("a"), "p")), Some(ip("10.0.0.10")));
    let (addr, why) = stays(fixture.decide(&asking(in_pool(lb("a"), "q"), "10.0.0.10")));
    assert_eq!(addr, ip("10.0.0.10"));
    assert_eq!(why, "pool q: 10.0.0.10 is held by LoadBalancer ns/a");
}

#[test]
fn req_4_an_address_without_a_record_is_recorded_before_it_moves() {
    let mut fixture = Fixture::new(&[plain()]);
    let request = asking(with_status(lb("a"), "p", "10.0.0.12"), "10.0.0.10");
    let owner = request.owner.clone();
    fixture
        .ledger
        .claim(ip("10.0.0.12"), owner, Evidence::Status);
    assert_eq!(fixture.ask(&request), Some(ip("10.0.0.12")));
    assert_eq!(fixture.ask(&request), Some(ip("10.0.0.10")));
}

#[test]
fn req_4_a_changed_request_ends_the_one_before() {
    let mut fixture = Fixture::new(&[plain()]);
    // Proposed, and not yet written.
    let Decision::Take { grant, .. } = fixture.decide(&asking(lb("a"), "10.0.0.12")) else {
        panic!()
    };
    assert_eq!(grant.addr, ip("10.0.0.12"));
    assert_eq!(
        fixture.ask(&asking(lb("a"), "10.0.0.13")),
        Some(ip("10.0.0.13"))
    );
    assert_eq!(
        fixture.ask(&asking(lb("b"), "10.0.0.12")),
        Some(ip("10.0.0.12"))
    );
}

#[test]
fn req_4_the_request_before_does_not_keep_its_own_address_from_it() {
    let mut fixture = Fixture::new(&[plain()]);
    let other = lb("other");
    assert_eq!(fixture.ask(&other), Some(ip("10.0.0.10")));
    let one = with_status(lb("one"), "p", "10.0.0.10");
    waits(fixture.decide(&asking(one.clone(), "10.0.0.10")));
    fixture.delete("other");
    // Now it requests what nobody can give it: what its status names is free, and is recorded, each time it is decided about.
    let outside = asking(one, "10.0.0.99");
    for _ in 0..2 {
        let decision = fixture.decide(&outside);
        assert!(matches!(decision, Decision::Take { .. }), "{decision:?}");
    }
    assert_eq!(fixture.ask(&outside), Some(ip("10.0.0.10")));
}

#[test]
fn req_4_the_same_request_gets_the_same_decision_whatever_else_it_says() {
    let mut fixture = Fixture::new(&[plain()]);
    assert_eq!(fixture.ask(&lb("other")), Some(ip("10.0.0.10")));
    // Its Service shows one address, its status names another one, which somebody has.
    let one = asking(with_status(lb("one"), "p", "10.0.0.10"), "10.0.0.12");
    fixture.ledger.set_shown(&one.owner.id, &[ip("10.0.0.12")]);
    let first = fixture.decide(&one);
    let Decision::Take { grant, .. } = &first else {
        panic!("{first:?}")
    };
    assert!(grant.address_conflict.is_some(), "{grant:?}");
    assert_eq!(fixture.decide(&one), first);
}

#[test]
fn req_3_at_a_start_the_oldest_of_those_that_wait_is_first() {
    let mut fixture = Fixture::new(&[plain()]);
    // Wakes are by name; the order of the decisions does not matter.
    let young = created(asking(lb("a-young"), "10.0.0.11"), 3);
    let old = created(asking(lb("z-old"), "10.0.0.11"), 2);
    fixture.ledger.enlist(young.clone());
    fixture.ledger.enlist(old.clone());
    let woken = names(fixture.ledger.take_wakes());
    assert_eq!(woken, ["a-young", "z-old"]);
    assert!(waits(fixture.decide(&young)).contains("ns/z-old"));
    assert_eq!(fixture.ask(&old), Some(ip("10.0.0.11")));
}

#[test]
fn req_3_once_a_pool_gives_it_the_oldest_is_first_whoever_is_decided_about_first() {
    let excluding = |list: &str| {
        let excluded = Exclusions::parse(list).unwrap();
        PoolSpec {
            ranges: plain().ranges.map(|ranges| ranges.without(&excluded)),
            ..plain()
        }
    };
    let young = created(asking(lb("a-young"), "10.0.0.11"), 3);
    let old = created(asking(lb("z-old"), "10.0.0.11"), 2);
    let any = created(lb("any"), 1);
    // It was excluded, or in no pool.
    for before in [Some(excluding("10.0.0.11")), None] {
        let has_pool = before.is_some();
        let mut fixture = Fixture::new(&before.into_iter().collect::<Vec<_>>());
        if has_pool {
            for name in ["w", "x", "y"] {
                assert!(fixture.ask(&lb(name)).is_some());
            }
        }
        for request in [&young, &old] {
            waits(fixture.decide(request));
        }
        assert!(!has_pool || fixture.ask(&any).is_none());
        fixture.ledger.set_pool(plain());
        assert_eq!(
            fixture.ledger.projection("p").unwrap().available,
            if has_pool { 1 } else { 4 }
        );
        assert!(
            waits(fixture.decide(&young)).contains("is requested by LoadBalancer ns/z-old too")
        );
        if has_pool {
            assert_eq!(fixture.ask(&any), None);
        } else {
            assert_eq!(fixture.ask(&any), Some(ip("10.0.0.10")));
            assert_eq!(fixture.ask(&lb("more")), Some(ip("10.0.0.12")));
        }
        assert_eq!(fixture.ask(&old), Some(ip("10.0.0.11")));
    }
}

#[test]
fn req_4_what_only_its_service_and_its_status_show_is_recorded_before_it_moves() {
    let mut fixture = Fixture::new(&[plain()]);
    assert_eq!(fixture.ask(&lb("b")), Some(ip("10.0.0.10")));
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.11")));
    let a = asking(with_status(lb("a"), "p", "10.0.0.11"), "10.0.0.10");
    let own = a.owner.id.clone();
    for is_shown in [true, false] {
        // Its record was released by hand.
        fixture.release(ip("10.0.0.11"), "a-1");
        if is_shown {
            fixture.ledger.set_shown(&own, &[ip("10.0.0.11")]);
        }
        assert_eq!(fixture.ask(&a), Some(ip("10.0.0.11")), "{is_shown}");
        let (addr, _) = stays(fixture.decide(&a));
        assert_eq!(addr, ip("10.0.0.11"));
        fixture.ledger.set_shown(&own, &[]);
    }
}

#[test]
fn req_2_a_claim_on_the_requested_address_is_one_on_the_pool_that_has_it() {
    let mut fixture = Fixture::new(&[plain(), best()]);
    // The records are lost, and an older one asks for the address too.
    let a = asking(
        with_status(created(lb("a"), 2), "p", "10.0.0.11"),
        "10.0.0.11",
    );
    let owner = a.owner.clone();
    fixture
        .ledger
        .claim(ip("10.0.0.11"), owner, Evidence::Status);
    let older = created(asking(lb("older"), "10.0.0.11"), 1);
    assert!(waits(fixture.decide(&older)).contains("held by LoadBalancer ns/a"));
    assert_eq!(fixture.ask(&a), Some(ip("10.0.0.11")));
}

#[test]
fn req_3_one_that_is_made_anew_does_not_get_what_the_earlier_one_had() {
    let mut fixture = Fixture::new(&[plain()]);
    assert_eq!(fixture.ask(&lb("b")), Some(ip("10.0.0.10")));
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.11")));
    let again = asking(lb_uid("a", "a-2"), "10.0.0.10");
    let Decision::Wait { extra_records, .. } = fixture.decide(&again) else {
        panic!()
    };
    let released: Vec<IpAddr> = extra_records.iter().map(|it| it.spec.addr).collect();
    assert_eq!(released, [ip("10.0.0.11")]);
    // Restored from a backup its status names it.
    let restored = with_status(again.clone(), "p", "10.0.0.11");
    assert!(matches!(fixture.decide(&restored), Decision::Adopt { .. }));
    // Nor once it is released, while the Service that the earlier one left still shows it.
    fixture.release(ip("10.0.0.11"), "a-1");
    let own = &again.owner.id;
    fixture.ledger.set_shown(own, &[ip("10.0.0.11")]);
    waits(fixture.decide(&again));
    let decision = fixture.decide(&restored);
    assert!(matches!(decision, Decision::Take { .. }), "{decision:?}");
}

#[test]
fn req_3_an_unreadable_record_of_the_present_address_keeps_the_service() {
    let mut fixture = Fixture::new(&[plain()]);
    let a = asking(with_status(lb("a"), "p", "10.0.0.11"), "10.0.0.10");
    assert_eq!(fixture.ask(&lb("b")), Some(ip("10.0.0.10")));
    assert!(fixture.ledger.block_name("10.0.0.11", Version(99)));
    let decision = fixture.decide(&a);
    assert!(
        matches!(
            decision,
            Decision::Wait {
                keep_service: true,
                ..
            }
        ),
        "{decision:?}"
    );
}

#[test]
fn req_3_only_those_are_woken_whose_explanation_changes() {
    let mut fixture = Fixture::new(&[plain()]);
    fixture.ask(&lb("holder"));
    let all: Vec<Request> = (0..20)
        .map(|n| created(asking(lb(&format!("lb{n:02}")), "10.0.0.10"), n + 2))
        .collect();
    for request in &all {
        waits(fixture.decide(request));
        // The others know the holder, and the first one is the same.
        let woken = names(fixture.ledger.take_wakes());
        assert!(
            woken.is_empty() || request.owner.id.name() == "lb00",
            "{woken:?}"
        );
    }
    fixture.ledger.withdraw(&all[7].owner.id);
    assert!(fixture.ledger.take_wakes().is_empty());
    fixture.ledger.withdraw(&all[0].owner.id);
    assert!(fixture.ledger.take_wakes().is_empty());
    // The address is free, so each of them is told who is before it.
    fixture.release(ip("10.0.0.10"), "holder-1");
    assert_eq!(fixture.ledger.take_wakes().len(), 18);
    fixture.ledger.withdraw(&all[1].owner.id);
    assert_eq!(fixture.ledger.take_wakes().len(), 17);
}

#[test]
fn req_3_an_edit_of_the_pool_wakes_each_once() {
    let mut fixture = Fixture::new(&[plain()]);
    let all: Vec<Request> = (0..20)
        .map(|n| created(asking(lb(&format!("lb{n:02}")), "10.0.0.10"), n + 2))
        .collect();
    for request in &all[1..] {
        fixture.ledger.enlist(request.clone());
    }
    fixture.ledger.take_wakes();
    // The first of them changes with each that is not served any more, and at the end nobody is.
    fixture.ledger.remove_pool("p");
    assert_eq!(fixture.ledger.take_wakes().len(), 19);
    assert!(!fixture.ledger.taken.contains(ip("10.0.0.10")));
    fixture.ledger.set_pool(plain());
    assert_eq!(fixture.ledger.take_wakes().len(), 19);
    assert!(
        fixture.ledger.taken.contains(ip("10.0.0.10")),
        "kept for the oldest"
    );
}

#[test]
fn be_7_a_request_adopts_no_address_of_an_earlier_one_of_another_type() {
    let both = [range("10.0.0.0/24", "", ""), range("fd10::/126", "", "")];
    let mut fixture = Fixture::new(&[PoolSpec {
        selector: Selector::default(),
        ..pool("p", &both)
    }]);
    fixture.bind("fd10::2", "p", "a", "a-0");
    let of = |workload| Request {
        workload,
        ..asking(lb("a"), "fd10::2")
    };
    let (reason, .., extra) = super::waits(fixture.decide(&of(Workload::Vm)));
    assert_eq!(reason, WaitReason::RequestedAddressUnavailable);
    assert_eq!(extra.len(), 1, "it is released");
    let decision = fixture.decide(&of(Workload::Cluster));
    assert!(matches!(decision, Decision::Adopt { .. }), "{decision:?}");
}

#[test]
fn req_2_a_missing_pool_that_is_named_leaves_nothing_behind() {
    let mut fixture = Fixture::new(&[plain()]);
    for n in 0..9 {
        let request = with_status(in_pool(lb("a"), &format!("gone{n}")), "p", "192.0.2.1");
        waits(fixture.decide(&asking(request, "10.0.0.10")));
    }
    // The place of the pool, and one that is used again.
    assert!(fixture.ledger.pools.all().len() <= 2);
}
