//! Excluded addresses (EXC-2, EXC-3).

use super::*;

/// The pool `p` with three addresses, without the excluded ones.
fn excluding(list: &str) -> PoolSpec {
    let plain = pool("p", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.12")]);
    let excluded = Exclusions::parse(list).unwrap();
    PoolSpec {
        ranges: plain.ranges.map(|ranges| ranges.without(&excluded)),
        ..plain
    }
}

#[track_caller]
fn grant(decision: Decision) -> Grant {
    match decision {
        Decision::Held { grant, .. } | Decision::Adopt { grant, .. } => grant,
        other => panic!("{other:?}"),
    }
}

fn excluded(fixture: &Fixture) -> Vec<IpAddr> {
    let records = fixture.ledger.excluded("p").into_iter();
    records.map(|record| record.spec.addr).collect()
}

#[test]
fn exc_2_an_excluded_address_is_given_to_nobody() {
    let mut fixture = Fixture::new(&[excluding("10.0.0.10, 10.0.0.12")]);
    let view = fixture.ledger.projection("p").unwrap();
    assert_eq!((view.total, view.available), (1, 1));
    // Not because a status names it, nor to who names the pool.
    let named = with_status(lb("named"), "p", "10.0.0.12");
    assert_eq!(fixture.ask(&in_pool(named, "p")), Some(ip("10.0.0.11")));
    let Decision::Wait {
        reason,
        explanation,
        ..
    } = fixture.decide(&lb("late"))
    else {
        panic!()
    };
    assert_eq!(reason, WaitReason::NoAvailableIp);
    let message = explanation.to_string();
    assert_eq!(message, "pool p: all addresses are taken");
    // Once it is no longer excluded, who waits gets it.
    fixture.ledger.set_pool(excluding("10.0.0.10"));
    assert_eq!(names(fixture.ledger.take_wakes()), ["late"]);
    assert_eq!(fixture.ask(&lb("late")), Some(ip("10.0.0.12")));
}

#[test]
fn exc_2_an_excluded_address_is_not_given_from_history() {
    let mut fixture = Fixture::new(&[excluding("")]);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.10")));
    fixture.delete("a");
    fixture.ledger.set_pool(excluding("10.0.0.8-10.0.0.10"));
    assert_eq!(fixture.ask(&lb_uid("a", "a-2")), Some(ip("10.0.0.11")));
}

#[test]
fn exc_2_a_proposal_whose_address_becomes_excluded_is_dropped() {
    let mut fixture = Fixture::new(&[excluding("")]);
    let Decision::Take { grant, .. } = fixture.decide(&lb("a")) else {
        panic!()
    };
    assert_eq!(grant.addr, ip("10.0.0.10"));
    fixture.ledger.set_pool(excluding("10.0.0.10"));
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.11")));
}

#[test]
fn exc_2_a_pool_that_excludes_everything_says_so() {
    let mut fixture = Fixture::new(&[excluding("10.0.0.0/24")]);
    let Decision::Wait {
        reason,
        explanation,
        ..
    } = fixture.decide(&lb("a"))
    else {
        panic!()
    };
    assert_eq!(reason, WaitReason::NoAvailableIp);
    let message = explanation.to_string();
    assert_eq!(
        message,
        "pool p: its annotation exclude leaves no address to allocate"
    );
}

#[test]
fn exc_3_an_address_in_use_that_becomes_excluded_stays_until_its_release() {
    let mut fixture = Fixture::new(&[excluding("")]);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.10")));
    assert_eq!(fixture.ask(&lb("b")), Some(ip("10.0.0.11")));
    fixture.ledger.set_pool(excluding("10.0.0.10, 10.0.0.99"));
    let of_a = grant(fixture.decide(&lb("a")));
    assert_eq!(of_a.addr, ip("10.0.0.10"));
    assert_eq!(of_a.standing, Standing::Excluded);
    assert_eq!(of_a.mask.as_deref(), Some("255.255.255.0"));
    let of_b = grant(fixture.decide(&lb("b")));
    assert_eq!(of_b.standing, Standing::InPool);
    assert_eq!(excluded(&fixture), [ip("10.0.0.10")]);
    assert!(fixture.ledger.out_of_pool("p").is_empty());
    let view = fixture.ledger.projection("p").unwrap();
    assert_eq!((view.total, view.available), (2, 1));
    assert_eq!(fixture.map("p", false), "10=a 11=b");
    // Its owner made anew keeps it.
    let again = grant(fixture.decide(&lb_uid("a", "a-2")));
    assert_eq!(again.addr, ip("10.0.0.10"));
    assert_eq!(again.standing, Standing::Excluded);
    // Outside of the ranges it is that, excluded or not.
    let elsewhere = pool("p", &[range("10.0.0.0/24", "10.0.0.11", "10.0.0.12")]);
    fixture.ledger.set_pool(PoolSpec {
        ranges: elsewhere
            .ranges
            .map(|ranges| ranges.without(&Exclusions::parse("10.0.0.10").unwrap())),
        ..elsewhere
    });
    let of_a = grant(fixture.decide(&lb("a")));
    assert_eq!(of_a.standing, Standing::OutOfPool);
    fixture.ledger.set_pool(excluding("10.0.0.10"));
    fixture.delete("a");
    assert!(excluded(&fixture).is_empty());
    assert_eq!(fixture.ask(&lb("c")), Some(ip("10.0.0.12")));
    assert_eq!(fixture.ask(&lb("d")), None);
}
