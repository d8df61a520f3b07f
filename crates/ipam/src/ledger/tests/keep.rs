//! The address that a load balancer with an invalid spec keeps (ALC-10).

use super::*;

/// Pools without a selector: p of .10 to .12, q of .20 to .22.
fn fixture() -> Fixture {
    let named = |name: &str, first: &str, last: &str| PoolSpec {
        selector: Selector::default(),
        ..pool(name, &[range("10.0.0.0/24", first, last)])
    };
    Fixture::new(&[
        named("p", "10.0.0.10", "10.0.0.12"),
        named("q", "10.0.0.20", "10.0.0.22"),
    ])
}

fn keep(fixture: &mut Fixture, request: &Request) -> Result<Decision, Vec<Record>> {
    fixture.now += 1;
    fixture.ledger.keep(request, Micros(fixture.now))
}

/// The address that is recorded, and its pool.
#[track_caller]
fn recorded(outcome: Result<Decision, Vec<Record>>) -> (String, String) {
    match outcome {
        Ok(Decision::Take { spec, reason, .. }) => {
            assert_eq!(reason, AllocationReason::Recorded);
            (spec.addr.to_string(), spec.pool.to_string())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn alc_10_nothing_new_is_given_out() {
    let mut fixture = fixture();
    assert_eq!(keep(&mut fixture, &in_pool(lb("a"), "p")), Err(vec![]));
    // The address that its status names belongs to another load balancer; it gets no other address.
    fixture.bind("10.0.0.10", "p", "b", "b-1");
    let a = with_status(in_pool(lb("a"), "p"), "p", "10.0.0.10");
    assert_eq!(keep(&mut fixture, &a), Err(vec![]));
    // Nor an address that it had before.
    fixture.bind("10.0.0.11", "p", "a", "a-1");
    fixture.release(ip("10.0.0.11"), "a-1");
    assert_eq!(keep(&mut fixture, &a), Err(vec![]));
    assert_eq!(fixture.ledger.counts().reserved, 0);
}

#[test]
fn alc_10_nobody_waits_behind_it() {
    let mut fixture = fixture();
    for (n, name) in ["x", "y", "z"].iter().enumerate() {
        fixture.bind(&format!("10.0.0.1{n}"), "p", name, name);
    }
    let older = in_pool(lb("a"), "p");
    assert!(matches!(fixture.decide(&older), Decision::Wait { .. }));
    assert_eq!(keep(&mut fixture, &older), Err(vec![]));
    assert_eq!(fixture.ledger.counts().waiting, 0);
    fixture.release(ip("10.0.0.10"), "x");
    assert_eq!(fixture.ask(&in_pool(lb("b"), "p")), Some(ip("10.0.0.10")));
}

#[test]
fn alc_10_what_was_promised_is_given_up() {
    let mut fixture = fixture();
    let a = in_pool(lb("a"), "p");
    assert!(matches!(fixture.decide(&a), Decision::Take { .. }));
    assert_eq!(keep(&mut fixture, &a), Err(vec![]));
    assert_eq!(fixture.ledger.counts().reserved, 0);
}

#[test]
fn alc_10_its_record_stays_whatever_pool_it_names() {
    let mut fixture = fixture();
    fixture.bind("10.0.0.10", "p", "a", "a-1");
    fixture.bind("10.0.0.11", "p", "a", "a-1");
    let kept = |outcome: Result<Decision, Vec<Record>>| match outcome {
        Ok(Decision::Held {
            grant,
            extra_records,
        }) => (grant.addr, extra_records.len()),
        other => panic!("{other:?}"),
    };
    for request in [lb("a"), in_pool(lb("a"), "q"), in_pool(lb("a"), "none")] {
        assert_eq!(kept(keep(&mut fixture, &request)), (ip("10.0.0.10"), 1));
    }
    let named = with_status(in_pool(lb("a"), "q"), "p", "10.0.0.11");
    assert_eq!(kept(keep(&mut fixture, &named)), (ip("10.0.0.11"), 1));
}

#[test]
fn alc_10_an_earlier_ones_record_is_its_own_if_its_status_names_it() {
    let mut fixture = fixture();
    let record = fixture.bind("10.0.0.10", "p", "a", "a-0");
    assert_eq!(
        keep(&mut fixture, &in_pool(lb("a"), "p")),
        Err(vec![record])
    );
    let restored = with_status(in_pool(lb("a"), "p"), "p", "10.0.0.10");
    let Ok(Decision::Adopt { record, .. }) = keep(&mut fixture, &restored) else {
        panic!();
    };
    assert_eq!(record.spec.owner, restored.owner);
}

#[test]
fn alc_10_what_a_map_says_stays() {
    let mut fixture = fixture();
    let a = in_pool(lb("a"), "q");
    let evidence = Evidence::Trusted("p".into());
    fixture
        .ledger
        .claim(ip("10.0.0.10"), a.owner.clone(), evidence);
    let expected = ("10.0.0.10".to_owned(), "p".to_owned());
    assert_eq!(recorded(keep(&mut fixture, &a)), expected);
    // The same decision until the record is observed.
    assert_eq!(recorded(keep(&mut fixture, &a)), expected);
}

#[test]
fn alc_10_what_its_own_service_shows_stays() {
    let mut fixture = fixture();
    let a = with_status(in_pool(lb("a"), "q"), "p", "10.0.0.10");
    let (own, other) = (OwnerId::new("ns", "a"), OwnerId::new("ns", "b"));
    fixture.ledger.set_shown(&own, &[ip("10.0.0.10")]);
    let expected = ("10.0.0.10".to_owned(), "p".to_owned());
    assert_eq!(recorded(keep(&mut fixture, &a)), expected);
    fixture.ledger.withdraw(&own);
    // Shown without a known pool: it gets no record, but no other load balancer gets it.
    fixture.ledger.set_shown(&own, &[ip("10.0.0.21")]);
    assert_eq!(keep(&mut fixture, &in_pool(lb("a"), "p")), Err(vec![]));
    for name in ["x", "y"] {
        fixture.ask(&in_pool(lb(name), "q"));
    }
    assert_eq!(fixture.ask(&in_pool(lb("z"), "q")), None);
    // An address that another load balancer's Service shows is not its own.
    fixture.ledger.set_shown(&own, &[]);
    fixture.ledger.set_shown(&other, &[ip("10.0.0.10")]);
    let a = with_status(in_pool(lb("a"), "p"), "p", "10.0.0.10");
    assert_eq!(keep(&mut fixture, &a), Err(vec![]));
}

#[test]
fn alc_10_what_only_its_status_names_is_for_the_pool_that_serves_it() {
    let mut fixture = fixture();
    let status = |request| with_status(request, "p", "10.0.0.10");
    // Neither spec.ipPool nor section 5 leads to the pool.
    assert_eq!(
        keep(&mut fixture, &status(in_pool(lb("a"), "q"))),
        Err(vec![])
    );
    assert_eq!(keep(&mut fixture, &status(lb("a"))), Err(vec![]));
    let none = status(in_pool(lb("a"), "none"));
    assert_eq!(keep(&mut fixture, &none), Err(vec![]));
    let expected = ("10.0.0.10".to_owned(), "p".to_owned());
    assert_eq!(
        recorded(keep(&mut fixture, &status(in_pool(lb("a"), "p")))),
        expected
    );
    fixture.ledger.withdraw(&OwnerId::new("ns", "a"));
    fixture
        .ledger
        .set_pool(pool("p", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.12")]));
    assert_eq!(recorded(keep(&mut fixture, &status(lb("a")))), expected);
}

#[test]
fn alc_10_what_a_withheld_pool_may_have_is_recorded_once_it_can_tell() {
    let mut fixture = fixture();
    let plain = pool("p", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.12")]);
    let invalid = Exclusions::parse("x").unwrap_err();
    fixture.ledger.set_pool(PoolSpec {
        withheld: Some(Withheld::InvalidExclude(invalid)),
        ..plain.clone()
    });
    let a = with_status(in_pool(lb("a"), "p"), "p", "10.0.0.10");
    assert_eq!(keep(&mut fixture, &a), Err(vec![]));
    fixture.ledger.take_wakes();
    fixture.ledger.set_pool(plain.clone());
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    // Nobody else gets it before.
    assert_eq!(fixture.ask(&in_pool(lb("b"), "p")), Some(ip("10.0.0.11")));
    let expected = ("10.0.0.10".to_owned(), "p".to_owned());
    assert_eq!(recorded(keep(&mut fixture, &a)), expected);
    fixture.ledger.set_pool(plain);
    assert!(fixture.ledger.take_wakes().is_empty());
}

#[test]
fn alc_10_what_its_status_names_is_looked_at_again_when_pools_or_its_record_change() {
    let named = |name: &str, priority, ranges: &[RangeSpec]| PoolSpec {
        selector: Selector {
            priority,
            ..global()
        },
        ..pool(name, ranges)
    };
    let of_p = named("p", 1, &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.12")]);
    let better = named("q", 9, &[range("10.0.1.0/24", "10.0.1.10", "10.0.1.12")]);
    let mut fixture = Fixture::new(&[of_p, better]);
    fixture.bind("10.0.0.10", "p", "other", "other-1");
    fixture.ledger.take_wakes();
    // A better pool serves it, which does not have the address.
    let a = with_status(lb("a"), "p", "10.0.0.11");
    assert_eq!(keep(&mut fixture, &a), Err(vec![]));
    fixture.ledger.remove_pool("q");
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    let expected = ("10.0.0.11".to_owned(), "p".to_owned());
    assert_eq!(recorded(keep(&mut fixture, &a)), expected);
    // Another load balancer has it.
    let b = with_status(lb("b"), "p", "10.0.0.10");
    assert_eq!(keep(&mut fixture, &b), Err(vec![]));
    fixture.ledger.take_wakes();
    fixture.release(ip("10.0.0.10"), "other-1");
    assert!(names(fixture.ledger.take_wakes()).contains(&"b".to_owned()));
    let expected = ("10.0.0.10".to_owned(), "p".to_owned());
    assert_eq!(recorded(keep(&mut fixture, &b)), expected);
}

#[test]
fn alc_1_the_claims_of_an_earlier_one_are_void_whether_the_present_one_is_served_or_not() {
    let claim = |fixture: &mut Fixture| {
        let owner = lb("a").owner;
        fixture
            .ledger
            .claim(ip("10.0.0.10"), owner, Evidence::Status);
        assert_eq!(fixture.ledger.counts().claimed, 1);
    };
    let mut fixture = fixture();
    claim(&mut fixture);
    fixture.ledger.set_aside(&lb("a").owner);
    assert_eq!(fixture.ledger.counts().claimed, 1, "its own");
    fixture.ledger.set_aside(&lb_uid("a", "a-2").owner);
    assert_eq!(fixture.ledger.counts().claimed, 0);
    claim(&mut fixture);
    fixture.ledger.dequeue(&lb_uid("a", "a-2").owner);
    assert_eq!(fixture.ledger.counts().claimed, 0);
}

#[test]
fn alc_10_it_is_woken_once_nobody_else_claims_the_address_that_its_status_names() {
    let mut fixture = fixture();
    fixture.ledger.claim(
        ip("10.0.0.10"),
        Owner::new("ns", "b", "b-1"),
        Evidence::Status,
    );
    let a = with_status(in_pool(lb("a"), "p"), "p", "10.0.0.10");
    assert_eq!(keep(&mut fixture, &a), Err(vec![]));
    fixture.ledger.take_wakes();
    fixture.ledger.withdraw(&OwnerId::new("ns", "b"));
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    assert_eq!(recorded(keep(&mut fixture, &a)).0, "10.0.0.10");
}
