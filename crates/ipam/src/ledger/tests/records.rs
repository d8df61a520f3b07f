//! Observed records: at a start, twice, unreadable, out of their pool (IPA-1, IPA-4, IPA-6, IPA-7).

use super::*;

#[test]
fn ipa_1_claims_and_shown_addresses_count_as_taken() {
    let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/29", "", "")])]);
    fixture
        .ledger
        .claim(ip("172.20.1.2"), lb("a").owner, Evidence::Status);
    fixture.ledger.claim(
        ip("172.20.1.3"),
        lb("b").owner,
        Evidence::Trusted("p".into()),
    );
    fixture.ledger.set_shown(
        &OwnerId::new("ns", "s"),
        &[ip("172.20.1.4"), ip("172.20.1.4")],
    );
    assert!(fixture.ledger.block_name("172.20.1.5", Version(50)));
    assert!(!fixture.ledger.block_name("dhcp-1234", Version(50)));
    assert_eq!(fixture.ask(&lb("z")), Some(ip("172.20.1.6")));
    waits(fixture.decide(&lb("y")));
    assert_eq!(
        taken(fixture.decide(&lb("a"))),
        ("172.20.1.2".into(), AllocationReason::Recorded, None)
    );
    assert_eq!(taken(fixture.decide(&lb("b"))).0, "172.20.1.3");
    assert_eq!(fixture.ledger.take_wakes(), []);
    fixture.ledger.forget(ip("172.20.1.5"), Version(50));
    assert_eq!(names(fixture.ledger.take_wakes()), ["y"]);
}

#[test]
fn alc_11_available_is_what_nobody_holds_or_blocks() {
    let mut fixture = Fixture::new(&[
        pool("p", &[range("172.20.1.0/29", "", "")]),
        pool("q", &[range("172.20.1.0/30", "", "")]),
    ]);
    let is = |fixture: &Fixture, available: i64| {
        assert_eq!(fixture.ledger.projection("p").unwrap().available, available);
    };
    is(&fixture, 5);
    // An address that is only proposed does not count as allocated yet.
    let Decision::Take { spec, .. } = fixture.decide(&lb("a")) else {
        panic!("nothing is free")
    };
    is(&fixture, 5);
    let (first, record) = (spec.addr, fixture.store(spec));
    is(&fixture, 4);
    // A record of the other pool, whose address this one has too (IPA-4).
    fixture.bind("172.20.1.2", "q", "b", "b");
    is(&fixture, if first == ip("172.20.1.2") { 4 } else { 3 });
    fixture.ledger.block_name("172.20.1.5", Version(50));
    is(&fixture, 2 + i64::from(first == ip("172.20.1.2")));
    let shown = [ip("172.20.1.6")];
    fixture.ledger.set_shown(&OwnerId::new("ns", "s"), &shown);
    is(&fixture, 1 + i64::from(first == ip("172.20.1.2")));
    // Its record is deleted, but the load balancer exists: it holds the address as before.
    fixture.ledger.forget(first, Version(record.version.0 + 60));
    is(&fixture, 1 + i64::from(first == ip("172.20.1.2")));
    fixture.ledger.withdraw(&OwnerId::new("ns", "a"));
    fixture.ledger.forget(ip("172.20.1.5"), Version(50));
    fixture.ledger.set_shown(&OwnerId::new("ns", "s"), &[]);
    fixture.ledger.remove_pool("q");
    fixture.delete("b");
    is(&fixture, 5);
}

#[test]
fn ipa_1_unreadable_record_of_its_own_address_makes_it_wait() {
    let mut fixture = Fixture::example();
    fixture.ledger.block_name("172.20.1.4", Version(50));
    let request = with_status(lb("a"), "p", "172.20.1.4");
    let (reason, text, ..) = waits(fixture.decide(&request));
    assert_eq!(reason, WaitReason::RecordUnreadable);
    assert_eq!(
        text,
        "pool p: IPAllocation 172.20.1.4 unreadable; its address stays blocked until the object is repaired or deleted"
    );
    assert_eq!(fixture.ledger.take_wakes(), []);
    assert_eq!(fixture.ledger.counts().waiting, 1);
    // It blocks no other load balancer.
    for name in ["b", "c", "d", "e"] {
        assert!(fixture.ask(&lb(name)).is_some());
    }
    fixture.ledger.forget(ip("172.20.1.4"), Version(50));
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    assert_eq!(
        taken(fixture.decide(&request)),
        ("172.20.1.4".into(), AllocationReason::Recorded, None)
    );
}

#[test]
fn alc_8_one_that_loses_its_record_to_another_is_woken() {
    let mut fixture = Fixture::example();
    fixture.bind("172.20.1.4", "p", "a", "a-1");
    fixture.ledger.take_wakes();
    fixture.bind("172.20.1.4", "p", "b", "b-1");
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    fixture.release(ip("172.20.1.4"), "b-1");
    assert_eq!(fixture.ledger.take_wakes(), []);
}

type Change = fn(&mut Fixture);

#[test]
fn sel_8_ipa_7_so_does_one_whose_pool_does_not_serve_it_any_more() {
    let of = |status_pool: &str| with_status(lb("a"), status_pool, "172.20.1.4");
    let changes: [(&str, Change); 3] = [
        ("the pool is gone", |fixture| {
            fixture.ledger.remove_pool("p");
        }),
        ("it has other addresses", |fixture| {
            let other = [range("172.20.9.0/24", "172.20.9.4", "172.20.9.9")];
            fixture.ledger.set_pool(pool("p", &other));
        }),
        ("another pool comes first", |fixture| {
            fixture.ledger.remove_pool("p");
            let other = [range("172.20.9.0/24", "172.20.9.4", "172.20.9.9")];
            fixture.ledger.set_pool(pool("q", &other));
        }),
    ];
    for (what, change) in changes {
        let mut fixture = Fixture::example();
        change(&mut fixture);
        fixture.ledger.block_name("172.20.1.4", Version(50));
        let (reason, ..) = waits(fixture.decide(&of("p")));
        assert_eq!(reason, WaitReason::RecordUnreadable, "{what}");
        // It demands another pool than that of the address, or another one holds this.
        let demands = Request {
            pool: Some("other".into()),
            ..of("p")
        };
        let (reason, ..) = waits(fixture.decide(&demands));
        assert_eq!(reason, WaitReason::PoolNotFound, "{what}");
        let asks = Request {
            requested: Some(ip("172.20.1.7")),
            ..of("p")
        };
        let (reason, ..) = waits(fixture.decide(&asks));
        assert_eq!(reason, WaitReason::RecordUnreadable, "{what}");
    }
}

#[test]
fn ipa_1_an_unreadable_record_is_not_released() {
    let mut fixture = Fixture::example();
    fixture.bind("172.20.1.4", "p", "a", "a-1");
    fixture.ledger.block_name("172.20.1.4", Version(50));
    let release = |fixture: &Fixture| {
        let uid = Uid::new("a-1");
        fixture
            .ledger
            .may_release(ip("172.20.1.4"), &uid, Micros(5))
    };
    assert_eq!(release(&fixture), Err(Blocked::Unreadable));
    let mut repaired = fixture.ledger.record(ip("172.20.1.4")).unwrap();
    assert!(!fixture.ledger.observe(repaired.clone()), "an older copy");
    assert_eq!(release(&fixture), Err(Blocked::Unreadable));
    repaired.version = Version(51);
    assert!(fixture.ledger.observe(repaired));
    assert!(release(&fixture).is_ok());
    let late = fixture.ledger.block_name("172.20.1.4", Version(50));
    assert!(!late, "a live read that the watch has overtaken");
    assert!(release(&fixture).is_ok());
}

#[test]
fn ipa_4_overlapping_pools_share_each_address() {
    let old = pool("z-old", &[range("172.20.1.0/29", "", "")]);
    let young = PoolSpec {
        created: Micros(1),
        ..pool("a-young", &[range("172.20.1.0/30", "", "")])
    };
    let mut fixture = Fixture::new(&[young, old]);
    assert_eq!(fixture.ledger.overlaps("a-young").as_deref(), Some("z-old"));
    assert_eq!(fixture.ledger.overlaps("z-old"), None);
    assert_eq!(
        fixture.ask(&in_pool(lb("a"), "z-old")),
        Some(ip("172.20.1.2"))
    );
    let view = fixture.ledger.projection("a-young").unwrap();
    assert_eq!((view.total, view.available, view.allocated_len), (1, 0, 0));
    waits(fixture.decide(&in_pool(lb("b"), "a-young")));
    fixture.delete("a");
    assert_eq!(names(fixture.ledger.take_wakes()), ["b"]);
    assert_eq!(
        fixture.ask(&in_pool(lb("b"), "a-young")),
        Some(ip("172.20.1.2"))
    );
    assert_eq!(fixture.map("z-old", true), "");
}

#[test]
fn ipa_6_several_records_keep_the_named_else_the_lowest() {
    let mut fixture = Fixture::example();
    for addr in ["172.20.1.5", "172.20.1.3", "172.20.1.4"] {
        fixture.bind(addr, "p", "a", "a-1");
    }
    let (grant, extra_records) = held(fixture.decide(&lb("a")));
    assert_eq!(grant.addr, ip("172.20.1.3"));
    let extra_records: Vec<_> = extra_records
        .iter()
        .map(|record| record.spec.addr)
        .collect();
    assert_eq!(extra_records, [ip("172.20.1.4"), ip("172.20.1.5")]);
    let (grant, _) = held(fixture.decide(&with_status(lb("a"), "p", "172.20.1.4")));
    assert_eq!(
        (grant.addr, grant.address_conflict),
        (ip("172.20.1.4"), None)
    );
}

#[test]
fn ipa_6_late_record_of_a_waiter_serves_it() {
    let mut fixture = Fixture::example();
    assert_eq!(taken(fixture.decide(&lb("a"))).0, "172.20.1.2");
    fixture.ledger.abandon(&lb("a").owner.id, ip("172.20.1.2"));
    fixture.bind("172.20.1.2", "p", "a", "a-1");
    assert_eq!(held(fixture.decide(&lb("a"))).0.addr, ip("172.20.1.2"));
}

#[test]
fn ipa_7_edit_or_deletion_of_the_pool_keeps_the_address() {
    let mut fixture = Fixture::example();
    fixture.ask(&lb("a"));
    fixture.ledger.set_pool(pool(
        "p",
        &[range("172.20.1.0/24", "172.20.1.100", "172.20.1.109")],
    ));
    let (grant, _) = held(fixture.decide(&lb("a")));
    assert_eq!(grant.standing, Standing::OutOfPool);
    assert_eq!(grant.mask.as_deref(), Some("255.255.255.0"));
    assert_eq!(
        fixture.ledger.out_of_pool("p")[0].spec.addr,
        ip("172.20.1.2")
    );
    let view = fixture.ledger.projection("p").unwrap();
    assert_eq!(
        (view.total, view.available, view.allocated_len),
        (10, 10, 1)
    );
    assert_eq!(fixture.map("p", false), "2=a");
    fixture.ledger.remove_pool("p");
    let (grant, _) = held(fixture.decide(&lb("a")));
    assert_eq!(
        (grant.standing, grant.mask, grant.gateway),
        (Standing::OutOfPool, None, None)
    );
    assert!(fixture.ledger.projection("p").is_none());
    assert_eq!(fixture.ledger.out_of_pool("p").len(), 1);
    fixture
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/29", "", "")]));
    assert_eq!(held(fixture.decide(&lb("a"))).0.standing, Standing::InPool);
    assert_eq!(fixture.ledger.projection("p").unwrap().available, 4);
}

#[test]
fn ipa_7_gateway_moved_onto_an_address() {
    let mut fixture = Fixture::example();
    fixture.ask(&lb("a"));
    let mut moved = range("172.20.1.0/29", "", "");
    moved.gateway = Some("172.20.1.2".into());
    fixture.ledger.set_pool(pool("p", &[moved]));
    assert_eq!(
        held(fixture.decide(&lb("a"))).0.standing,
        Standing::OutOfPool
    );
    assert_eq!(fixture.ledger.projection("p").unwrap().available, 5);
}

#[test]
fn ipa_7_record_deleted_by_hand_is_made_again() {
    let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    fixture.ask(&lb("a"));
    waits(fixture.decide(&lb("b")));
    fixture.ledger.take_wakes();
    fixture.ledger.remove_pool("p");
    fixture.ledger.take_wakes();
    fixture.ledger.forget(ip("172.20.1.2"), Version(50));
    fixture.version = 60;
    assert!(names(fixture.ledger.take_wakes()).contains(&"a".to_owned()));
    assert_eq!(
        taken(fixture.decide(&lb("a"))),
        ("172.20.1.2".into(), AllocationReason::Recorded, None)
    );
    // Its owner is gone: the address is free.
    fixture
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "", "")]));
    waits(fixture.decide(&lb("b")));
    fixture.ledger.take_wakes();
    fixture.ledger.withdraw(&lb("a").owner.id);
    assert_eq!(names(fixture.ledger.take_wakes()), ["b"]);
}

#[test]
fn observe_ignores_what_is_older() {
    let mut fixture = Fixture::example();
    let first = fixture.bind("172.20.1.4", "p", "a", "a-1");
    let second = fixture.bind("172.20.1.4", "p", "b", "b-1");
    assert!(!fixture.ledger.observe(first.clone()));
    assert_eq!(
        fixture.ledger.record(ip("172.20.1.4")),
        Some(second.clone())
    );
    fixture.ledger.forget(ip("172.20.1.4"), first.version);
    assert!(
        fixture.ledger.record(ip("172.20.1.4")).is_some(),
        "a later one was created since"
    );
    fixture.ledger.forget(ip("172.20.1.4"), Version(10));
    assert!(
        !fixture.ledger.observe(second),
        "the late answer of a write before the deletion"
    );
    assert!(fixture.ledger.record(ip("172.20.1.4")).is_none());
}

#[test]
fn ipa_7_a_pool_knows_holders_and_those_who_are_about_to_hold() {
    let mut fixture = Fixture::example();
    fixture.bind("172.20.1.2", "p", "a", "a");
    taken(fixture.decide(&lb("b")));
    fixture.bind("172.20.1.9", "q", "c", "c");
    let holders = |fixture: &Fixture| names(fixture.ledger.holders("p").into_iter().collect());
    assert_eq!(holders(&fixture), ["a", "b"]);
    fixture.release(ip("172.20.1.2"), "a");
    assert_eq!(holders(&fixture), ["b"]);
    // The pool is deleted, the reservation in it still exists.
    fixture.ledger.remove_pool("p");
    assert_eq!(holders(&fixture), ["b"]);
}

#[test]
fn ipa_4_an_address_counts_in_each_pool_that_has_it() {
    let fixture = Fixture::new(&[
        pool("p", &[range("172.20.1.0/29", "", "")]),
        pool("q", &[range("172.20.1.0/29", "172.20.1.3", "172.20.1.4")]),
        pool("r", &[range("172.20.2.0/29", "", "")]),
    ]);
    let pools_of = |addr| -> Vec<&str> {
        let mut pools: Vec<&str> = fixture.ledger.pools_of(ip(addr)).map(|p| &**p).collect();
        pools.sort_unstable();
        pools
    };
    assert_eq!(pools_of("172.20.1.3"), ["p", "q"]);
    assert_eq!(pools_of("172.20.1.2"), ["p"]);
    assert!(pools_of("172.20.1.1").is_empty(), "the gateway");
}

#[test]
fn pool_3_settled_is_a_pool_that_is_empty_or_full() {
    let mut fixture = Fixture::new(&[pool(
        "p",
        &[range("172.20.1.0/29", "172.20.1.2", "172.20.1.3")],
    )]);
    assert!(fixture.ledger.is_empty_or_full("p"), "nothing is held");
    let first = fixture.decide(&lb("a"));
    assert!(
        !fixture.ledger.is_empty_or_full("p"),
        "a record is on its way"
    );
    let Decision::Take { spec, .. } = first else {
        panic!("{first:?}")
    };
    fixture.store(spec);
    assert!(!fixture.ledger.is_empty_or_full("p"), "one of two");
    fixture.bind("172.20.1.3", "p", "b", "b");
    assert!(fixture.ledger.is_empty_or_full("p"), "every one is held");
    fixture.delete("a");
    assert!(!fixture.ledger.is_empty_or_full("p"));
    fixture.delete("b");
    assert!(fixture.ledger.is_empty_or_full("p"));
    fixture.bind("172.20.9.9", "p", "c", "c");
    assert!(
        !fixture.ledger.is_empty_or_full("p"),
        "one outside of the ranges"
    );
    assert!(fixture.ledger.is_empty_or_full("unknown"));
}
