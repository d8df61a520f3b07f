//! Addresses that several load balancers share (SHR-3, SHR-5, SHR-6).

use super::*;

/// The address of `p`, bound to `p-1`, with its Service.
fn shared() -> Fixture {
    let mut fixture = Fixture::example();
    fixture.bind("172.20.1.2", "p", "p", "p-1");
    let service = lb("p").owner.id;
    fixture.ledger.set_shown(&service, &[ip("172.20.1.2")]);
    fixture
}

fn hand_over(fixture: &mut Fixture, to: &str) -> RecordSpec {
    let to = lb(to).owner;
    let record = fixture.ledger.hand_over(ip("172.20.1.2"), &to);
    fixture.store(record.unwrap().spec).spec
}

#[test]
fn shr_5_a_record_that_is_handed_over_stays_that_of_the_group() {
    let mut fixture = shared();
    let bound_at = fixture.ledger.record(ip("172.20.1.2")).unwrap();
    let spec = hand_over(&mut fixture, "m");
    assert_eq!(spec.owner, lb("m").owner);
    assert_eq!(spec.group.as_deref(), Some("p"));
    assert_eq!(spec.bound_at, bound_at.spec.bound_at);
    let (group, member) = (lb("p").owner.id, lb("m").owner.id);
    assert_eq!(spec.address_of(), group);
    assert_eq!(fixture.ledger.bound_records_of(&group)[0].spec, spec);
    assert_eq!(fixture.ledger.records_of(&member), []);
    assert!(!fixture.ledger.has_address(&member));
    // The pool's map names the one that exists.
    let view = fixture.ledger.projection("p").unwrap();
    let allocated: Vec<_> = view.allocated().map(|(_, id)| id.to_string()).collect();
    assert_eq!(allocated, ["ns/m"]);
    // The member that is served like any other one gets another address.
    assert_eq!(fixture.ask(&lb("m")), Some(ip("172.20.1.3")));
    let back = hand_over(&mut fixture, "p");
    assert_eq!((back.owner, back.group), (lb("p").owner, None));
}

#[test]
fn req_3_the_holder_of_a_shared_address_is_the_owner_of_its_record() {
    let mut fixture = shared();
    let asks = Request {
        requested: Some(ip("172.20.1.2")),
        ..lb("x")
    };
    let told = |fixture: &mut Fixture| match fixture.decide(&asks) {
        Decision::Wait { explanation, .. } => explanation.to_string(),
        other => panic!("{other:?}"),
    };
    let of = |name: &str| format!("pool p: 172.20.1.2 is held by LoadBalancer ns/{name}");
    assert_eq!(told(&mut fixture), of("p"));
    // The primary is gone.
    hand_over(&mut fixture, "m");
    assert_eq!(told(&mut fixture), of("m"));
}

#[test]
fn shr_5_the_last_to_go_releases_once_the_service_of_the_group_is_gone() {
    let mut fixture = shared();
    hand_over(&mut fixture, "m");
    let uid = lb("m").owner.uid;
    let group = lb("p").owner.id;
    let refused = fixture
        .ledger
        .may_release(ip("172.20.1.2"), &uid, Micros(99));
    assert_eq!(
        refused,
        Err(Blocked::Shown {
            owner: group.clone()
        })
    );
    fixture.ledger.set_shown(&group, &[]);
    let released = fixture
        .ledger
        .may_release(ip("172.20.1.2"), &uid, Micros(99))
        .unwrap();
    assert_eq!(released.spec.owner.id, lb("m").owner.id);
    assert_eq!(released.spec.group, None);
    fixture.store(released.spec);
    // It is remembered for the one that had it last (ALC-2).
    assert_eq!(fixture.ledger.records_of(&group), []);
    assert_eq!(fixture.ask(&lb("m")), Some(ip("172.20.1.2")));
}

#[test]
fn shr_6_after_the_group_one_of_its_name_has_the_address() {
    let mut fixture = shared();
    hand_over(&mut fixture, "m");
    let later = Request {
        owner: Owner::new("ns", "p", "p-2"),
        ..lb("p")
    };
    let Decision::Adopt { record, .. } = fixture.decide(&later) else {
        panic!("not adopted");
    };
    assert_eq!((record.spec.owner, record.spec.group), (later.owner, None));
}

/// It is released, as the last of the group would have released it (SHR-5), and goes on as any other free address.
#[test]
fn shr_6_after_the_group_one_of_its_name_gets_no_address_that_others_would_not() {
    let later = Request {
        owner: Owner::new("ns", "p", "p-2"),
        ..lb("p")
    };
    let released = |decision: Decision| match decision {
        Decision::Take {
            grant,
            extra_records,
            ..
        } => (grant.addr, extra_records[0].spec.addr),
        other => panic!("{other:?}"),
    };
    let expected = (ip("172.20.1.3"), ip("172.20.1.2"));
    // EXC-2: it was excluded meanwhile.
    let mut fixture = shared();
    hand_over(&mut fixture, "m");
    let plain = pool("p", &[range("172.20.1.0/29", "", "")]);
    let excluded = Exclusions::parse("172.20.1.2").unwrap();
    fixture.ledger.set_pool(PoolSpec {
        ranges: plain.ranges.map(|ranges| ranges.without(&excluded)),
        ..plain
    });
    assert_eq!(released(fixture.decide(&later)), expected);
    // REQ-3: somebody waits for it, and this one takes any.
    let mut fixture = shared();
    hand_over(&mut fixture, "m");
    let asks = Request {
        requested: Some(ip("172.20.1.2")),
        ..lb("x")
    };
    assert!(matches!(fixture.decide(&asks), Decision::Wait { .. }));
    assert_eq!(released(fixture.decide(&later)), expected);
    // If it asks for it too, the older one has it.
    let also = Request {
        requested: asks.requested,
        ..later.clone()
    };
    assert!(matches!(fixture.decide(&also), Decision::Wait { .. }));
    fixture.ledger.withdraw(&asks.owner.id);
    assert!(matches!(fixture.decide(&also), Decision::Adopt { .. }));
    // A restored one has it already (IPA-3).
    let restored = with_status(later, "p", "172.20.1.2");
    assert!(matches!(fixture.decide(&restored), Decision::Adopt { .. }));
}

#[test]
fn ipa_7_a_record_deleted_by_hand_is_made_again_for_the_holder() {
    let addr = ip("172.20.1.2");
    let (group, holder) = (lb("p").owner.id, lb("m").owner);
    let restore = |fixture: &mut Fixture, pool: Option<&str>| {
        let restored = fixture
            .ledger
            .restore(&group, &holder, addr, pool, Micros(500));
        restored.map(|(spec, replaces)| (spec.pool.to_string(), spec.group, replaces))
    };
    let expected = || Some(("p".to_owned(), Some("p".into()), None));
    // Its claim says of which pool it was.
    let mut fixture = shared();
    let spec = hand_over(&mut fixture, "m");
    assert_eq!(restore(&mut fixture, None), None);
    fixture.ledger.forget(addr, Version(9));
    assert_eq!(fixture.ledger.unrecorded(&group)[0], addr);
    assert_eq!(restore(&mut fixture, Some("other")), expected());
    assert!(fixture.ledger.take_wakes().contains(&group));
    // Another process knows only what the Service shows.
    let mut fixture = Fixture::example();
    fixture.ledger.set_shown(&group, &[addr]);
    assert_eq!(fixture.ledger.unrecorded(&group), [addr]);
    assert_eq!(restore(&mut fixture, None), expected());
    assert_eq!(restore(&mut fixture, Some("other")), expected());
    // Somebody else has it.
    fixture.store(RecordSpec {
        owner: lb("x").owner,
        group: None,
        ..spec
    });
    assert_eq!(restore(&mut fixture, None), None);
    assert_eq!(fixture.ledger.unrecorded(&group), Vec::<IpAddr>::new());
}
