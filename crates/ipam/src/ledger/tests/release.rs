//! Release of addresses, and the history (REL-4, IPA-3, POOL-1).

use super::*;

#[test]
fn rel_4_moves_and_releases_when_the_service_has_switched() {
    let mut fixture = Fixture::new(&[
        pool("p", &[range("172.20.1.0/29", "", "")]),
        pool("q", &[range("172.20.2.0/30", "", "")]),
    ]);
    let a = || with_status(lb("a"), "p", "172.20.1.2");
    assert_eq!(fixture.ask(&in_pool(lb("a"), "p")), Some(ip("172.20.1.2")));
    fixture
        .ledger
        .set_shown(&lb("a").owner.id, &[ip("172.20.1.2")]);
    let Decision::Take {
        grant,
        spec,
        reason,
        extra_records,
        ..
    } = fixture.decide(&in_pool(a(), "q"))
    else {
        panic!("not taken");
    };
    assert_eq!(
        (grant.addr, reason, grant.address_conflict),
        (ip("172.20.2.2"), AllocationReason::Moved, None)
    );
    assert_eq!(extra_records[0].spec.addr, ip("172.20.1.2"));
    fixture.store(spec);
    let (grant, extra_records) = held(fixture.decide(&in_pool(a(), "q")));
    assert_eq!((grant.addr, extra_records.len()), (ip("172.20.2.2"), 1));
    let release = |fixture: &Fixture| {
        fixture
            .ledger
            .may_release(ip("172.20.1.2"), &Uid::new("a-1"), Micros(9))
            .map(|it| it.version)
    };
    assert_eq!(
        release(&fixture),
        Err(Blocked::Shown {
            owner: OwnerId::new("ns", "a")
        })
    );
    fixture
        .ledger
        .set_shown(&lb("a").owner.id, &[ip("172.20.2.2")]);
    assert_eq!(release(&fixture), Ok(Version(1)));
}

#[test]
fn rel_4_full_pool_leaves_no_address_and_the_old_record_to_be_released() {
    let mut fixture = Fixture::new(&[
        pool("p", &[range("172.20.1.0/29", "", "")]),
        pool("q", &[range("172.20.2.0/30", "", "")]),
    ]);
    fixture.bind("172.20.2.2", "q", "x", "x");
    fixture.ask(&in_pool(lb("a"), "p"));
    let request = in_pool(with_status(lb("a"), "p", "172.20.1.2"), "q");
    let (reason, _, address_conflict, extra_records) = waits(fixture.decide(&request));
    assert_eq!(
        (reason, address_conflict),
        (WaitReason::NoAvailableIp, None)
    );
    assert_eq!(extra_records[0].spec.addr, ip("172.20.1.2"));
    fixture.release(ip("172.20.1.2"), "a-1");
    fixture.delete("x");
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    assert_eq!(fixture.ask(&request), Some(ip("172.20.2.2")));
}

#[test]
fn rel_1_a_released_address_is_remembered_for_its_owner() {
    let mut fixture = Fixture::example();
    for name in ["a", "b"] {
        fixture.ask(&lb(name)).unwrap();
    }
    fixture.delete("a");
    assert_eq!(fixture.map("p", true), "2=a");
    assert_eq!(fixture.map("p", false), "3=b");
    let view = fixture.ledger.projection("p").unwrap();
    assert_eq!(view.available, 4);
    assert_eq!(view.last_allocated, Some(ip("172.20.1.3")), "unchanged");
    // Releasing it again is no error, and changes nothing.
    let again = fixture.ledger.record(ip("172.20.1.2")).unwrap();
    let uid = again.spec.owner.uid.clone();
    let answer = fixture
        .ledger
        .may_release(ip("172.20.1.2"), &uid, Micros(9_000));
    assert_eq!(answer.map(|_| ()), Err(Blocked::NotBound));
    // Others get it last, its owner gets it back.
    assert_eq!(fixture.ask(&lb("c")), Some(ip("172.20.1.4")));
    assert_eq!(fixture.ask(&lb("a")), Some(ip("172.20.1.2")));
    assert_eq!(fixture.map("p", true), "");
}

#[test]
fn ipa_3_release_touches_only_the_uid_that_went() {
    let mut fixture = Fixture::example();
    fixture.bind("172.20.1.4", "p", "a", "new");
    let id = OwnerId::new("ns", "a");
    let release = |fixture: &Fixture, uid| {
        fixture
            .ledger
            .may_release(ip("172.20.1.4"), &Uid::new(uid), Micros(5))
            .map(|it| it.spec)
    };
    assert_eq!(
        release(&fixture, "old"),
        Err(Blocked::OtherOwner { owner: id.clone() })
    );
    fixture.ledger.set_shown(&id, &[ip("172.20.1.4")]);
    assert_eq!(
        release(&fixture, "new"),
        Err(Blocked::Shown { owner: id.clone() })
    );
    fixture.ledger.set_shown(&id, &[]);
    let spec = release(&fixture, "new").unwrap();
    assert_eq!(
        (spec.phase, spec.released_at),
        (Phase::Released, Some(Micros(5)))
    );
    fixture.store(spec);
    assert_eq!(release(&fixture, "new"), Err(Blocked::NotBound));
    assert_eq!(
        fixture
            .ledger
            .may_release(ip("172.20.1.5"), &Uid::new("new"), Micros(5)),
        Err(Blocked::NoRecord)
    );
}

#[test]
fn pool_1_history_is_bounded_oldest_first() {
    let mut ledger = Ledger::new(Settings {
        history_per_pool: 3,
        history_total: 4,
    });
    for name in ["p", "q"] {
        let subnet = if name == "p" {
            "10.0.1.0/24"
        } else {
            "10.0.2.0/24"
        };
        ledger.set_pool(pool(name, &[range(subnet, "", "")]));
    }
    let mut add = |pool: &str, addr: &str, released: i64| {
        let spec = RecordSpec {
            addr: ip(addr),
            pool: pool.into(),
            owner: Owner::new("ns", "x", "x"),
            phase: Phase::Released,
            bound_at: Micros(0),
            released_at: Some(Micros(released)),
            group: None,
        };
        assert!(ledger.observe(Record {
            spec,
            version: Version(1)
        }));
    };
    for n in 0..5 {
        add("p", &format!("10.0.1.{}", 20 - n), 100 + n);
    }
    add("q", "10.0.2.2", 50);
    add("q", "10.0.2.3", 200);
    add("q", "10.0.9.9", 300);
    let excess: Vec<_> = ledger
        .history_excess(99)
        .iter()
        .map(|record| record.spec.addr.to_string())
        .collect();
    assert_eq!(excess, ["10.0.1.19", "10.0.1.20", "10.0.2.2", "10.0.9.9"]);
    assert_eq!(ledger.history_excess(1).len(), 1);
    ledger.set_pool(pool("q", &[range("10.0.2.0/24", "x", "")]));
    let excess: Vec<_> = ledger
        .history_excess(99)
        .iter()
        .map(|record| record.spec.addr.to_string())
        .collect();
    assert_eq!(excess, ["10.0.1.18", "10.0.1.19", "10.0.1.20", "10.0.2.2"]);
    ledger.remove_pool("q");
    assert_eq!(ledger.history_excess(99).len(), 5);
}

#[test]
fn tidy_forgets_missing_pools_that_nobody_names_any_more() {
    let mut fixture = Fixture::new(&[]);
    for n in 0..100 {
        waits(fixture.decide(&in_pool(lb("a"), &format!("missing{n}"))));
    }
    assert!(fixture.ledger.pools.all().len() <= 2);
    assert_eq!(
        fixture.ledger.counts(),
        Counts {
            waiting: 1,
            ..Counts::default()
        }
    );
}
