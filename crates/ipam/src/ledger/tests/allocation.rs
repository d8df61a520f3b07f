//! Choice of the address: the worked examples, ALC-1 to ALC-8, SEL-1, SEL-8, RNG-8.

use super::*;

/// The long worked example of 6.1, row by row.
#[test]
fn alc_worked_example() {
    let mut fixture = Fixture::example();
    let mut row = |delete: &str,
                   asks: &str,
                   answer: &[Option<u8>],
                   last: &str,
                   allocated: &str,
                   history: &str,
                   available: i64| {
        if !delete.is_empty() {
            fixture.delete(delete);
        }
        for (name, answer) in asks.split_whitespace().zip(answer) {
            let got = fixture.ask(&lb(name));
            assert_eq!(got, answer.map(|n| IpAddr::from([172, 20, 1, n])), "{name}");
        }
        let view = fixture.ledger.projection("p").unwrap();
        let shown = view.last_allocated.map(|addr| addr.to_string()).unwrap();
        assert_eq!(shown, format!("172.20.1{last}"));
        assert_eq!((view.total, view.available), (5, available));
        assert_eq!(fixture.map("p", false), allocated);
        assert_eq!(fixture.map("p", true), history);
    };
    row("", "a", &[Some(2)], ".2", "2=a", "", 4);
    row("", "b", &[Some(3)], ".3", "2=a 3=b", "", 3);
    row("a", "", &[], ".3", "3=b", "2=a", 4);
    row(
        "",
        "c d e",
        &[Some(4), Some(5), Some(6)],
        ".6",
        "3=b 4=c 5=d 6=e",
        "2=a",
        1,
    );
    row("", "f", &[Some(2)], ".2", "2=f 3=b 4=c 5=d 6=e", "", 0);
    row("", "g", &[None], ".2", "2=f 3=b 4=c 5=d 6=e", "", 0);
    // g is withdrawn; otherwise it would be served before a, if it were the older one.
    row("g", "", &[], ".2", "2=f 3=b 4=c 5=d 6=e", "", 0);
    row("d", "a", &[Some(5)], ".5", "2=f 3=b 4=c 5=a 6=e", "", 0);
    row("c", "c", &[Some(4)], ".4", "2=f 3=b 4=c 5=a 6=e", "", 0);
    row("b", "h", &[Some(3)], ".3", "2=f 3=h 4=c 5=a 6=e", "", 0);
    let before = fixture.version;
    assert!(matches!(fixture.decide(&lb("a")), Decision::Held { .. }));
    assert_eq!(fixture.ask(&lb("a")), Some(ip("172.20.1.5")));
    assert_eq!(fixture.version, before, "nothing is written");
}

#[test]
fn alc_worked_example_of_two_ranges() {
    let ranges = [
        range("172.20.1.0/24", "172.20.1.10", "172.20.1.11"),
        range("172.20.2.0/30", "", ""),
    ];
    let mut fixture = Fixture::new(&[pool("p", &ranges)]);
    for (name, addr) in [
        ("a", "172.20.1.10"),
        ("b", "172.20.1.11"),
        ("c", "172.20.2.2"),
    ] {
        assert_eq!(fixture.ask(&lb(name)), Some(ip(addr)));
    }
    assert_eq!(fixture.ask(&lb("d")), None);
    fixture.delete("d");
    fixture.delete("a");
    assert_eq!(fixture.ask(&lb("d")), Some(ip("172.20.1.10")));
}

#[test]
fn alc_1_same_name_other_uid_adopts() {
    let mut fixture = Fixture::example();
    fixture.bind("172.20.1.4", "p", "a", "old");
    let Decision::Adopt {
        grant,
        record,
        extra_records,
    } = fixture.decide(&lb_uid("a", "new"))
    else {
        panic!("not adopted");
    };
    assert_eq!(grant.addr, ip("172.20.1.4"));
    assert_eq!(
        (record.spec.owner.uid, record.version),
        (Uid::new("new"), Version(1))
    );
    assert_eq!(record.spec.phase, Phase::Bound);
    assert_eq!(extra_records, []);
    assert_eq!(fixture.ask(&lb_uid("a", "new")), Some(ip("172.20.1.4")));
    held(fixture.decide(&lb_uid("a", "new")));
}

#[test]
fn alc_2_lowest_of_history_unless_unusable() {
    let mut fixture = Fixture::example();
    for addr in ["172.20.1.1", "172.20.1.9", "172.20.1.4", "172.20.1.3"] {
        fixture.bind(addr, "p", "a", "x");
    }
    fixture.delete("a");
    let Decision::Take {
        grant,
        reason,
        replaces,
        stale,
        ..
    } = fixture.decide(&lb("a"))
    else {
        panic!("not taken");
    };
    assert_eq!(
        (grant.addr, reason),
        (ip("172.20.1.3"), AllocationReason::Sticky)
    );
    assert_eq!(
        replaces,
        fixture
            .ledger
            .record(ip("172.20.1.3"))
            .map(|record| record.version)
    );
    let stale: Vec<_> = stale.iter().map(|record| record.spec.addr).collect();
    assert_eq!(stale, [ip("172.20.1.1"), ip("172.20.1.9")]);
    // The gateway and the address outside are history excess too.
    let excess: Vec<_> = fixture
        .ledger
        .history_excess(10)
        .iter()
        .map(|it| it.spec.addr)
        .collect();
    assert_eq!(excess, stale);
}

#[test]
fn alc_2_history_shown_by_a_foreign_service_is_passed_over() {
    let mut fixture = Fixture::example();
    fixture.bind("172.20.1.4", "p", "a", "x");
    fixture.delete("a");
    fixture
        .ledger
        .set_shown(&OwnerId::new("ns", "other"), &[ip("172.20.1.4")]);
    assert_eq!(taken(fixture.decide(&lb("a"))).1, AllocationReason::Fresh);
    // Its own Service does not block the address.
    let mut fixture = Fixture::example();
    fixture.bind("172.20.1.4", "p", "a", "x");
    fixture.delete("a");
    fixture
        .ledger
        .set_shown(&OwnerId::new("ns", "a"), &[ip("172.20.1.4")]);
    assert_eq!(taken(fixture.decide(&lb("a"))).0, "172.20.1.4");
}

#[test]
fn alc_3_starts_at_last_allocated_of_the_status() {
    let start = |last: Option<(&str, i64)>, record: bool| {
        let mut spec = pool("p", &[range("172.20.1.0/29", "", "")]);
        spec.last_allocated = last.map(|(addr, at)| (ip(addr), Micros(at)));
        let mut fixture = Fixture::new(&[spec]);
        if record {
            fixture.bind("172.20.1.2", "p", "x", "x");
        }
        taken(fixture.decide(&lb("a"))).0
    };
    assert_eq!(start(None, false), "172.20.1.2");
    assert_eq!(start(Some(("172.20.1.4", i64::MIN)), false), "172.20.1.5");
    assert_eq!(start(Some(("9.9.9.9", i64::MIN)), false), "172.20.1.2");
    // Every record overrides our own status write, no record a status of another writer that is newer than it.
    assert_eq!(start(Some(("172.20.1.4", i64::MIN)), true), "172.20.1.3");
    assert_eq!(start(Some(("172.20.1.4", 1 << 40)), true), "172.20.1.5");
}

#[test]
fn alc_3_a_record_of_the_future_does_not_stop_the_turn() {
    let mut fixture = Fixture::example();
    let mut spec = fixture.bind("172.20.1.2", "p", "x", "x").spec;
    spec.bound_at = Micros(i64::MAX);
    fixture.store(spec);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("172.20.1.3")));
    fixture.delete("a");
    fixture.ledger.forget(ip("172.20.1.3"), Version(99));
    assert_eq!(fixture.ask(&lb("b")), Some(ip("172.20.1.4")));
}

#[test]
fn alc_4_a_newly_allocated_address_is_no_longer_remembered_for_its_previous_owner() {
    let mut fixture = Fixture::example();
    for name in ["a", "b", "c", "d", "e"] {
        fixture.ask(&lb(name)).unwrap();
    }
    fixture.delete("a");
    assert_eq!(fixture.map("p", true), "2=a");
    assert_eq!(fixture.ask(&lb("f")), Some(ip("172.20.1.2")));
    assert_eq!(fixture.map("p", false), "2=f 3=b 4=c 5=d 6=e");
    assert_eq!(fixture.map("p", true), "");
    // It is the last allocated address, although a higher one is allocated.
    let view = fixture.ledger.projection("p").unwrap();
    assert_eq!(view.last_allocated, Some(ip("172.20.1.2")));
    assert_eq!(view.available, 0);
    // Released again, it is remembered for the one that had it last.
    fixture.delete("f");
    assert_eq!(fixture.map("p", true), "2=f");
    assert_eq!(taken(fixture.decide(&lb("a"))).1, AllocationReason::Fresh);
}

#[test]
fn alc_5_missing_invalid_and_full_pools() {
    let mut fixture = Fixture::new(&[]);
    let (reason, text, ..) = waits(fixture.decide(&lb("a")));
    assert_eq!(
        (reason, text.as_str()),
        (WaitReason::NoMatchedPool, "there are no pools")
    );
    let (reason, text, ..) = waits(fixture.decide(&in_pool(lb("b"), "p")));
    assert_eq!(
        (reason, text.as_str()),
        (WaitReason::PoolNotFound, "pool p: does not exist")
    );
    assert_eq!(names(fixture.ledger.take_wakes()), [""; 0]);
    fixture
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "x", "")]));
    assert_eq!(names(fixture.ledger.take_wakes()), [""; 0]);
    assert_eq!(fixture.outdated(), ["a", "b"]);
    let (reason, text, ..) = waits(fixture.decide(&lb("a")));
    assert_eq!(reason, WaitReason::PoolInvalid);
    assert!(text.contains("rangeStart"), "{text}");
    waits(fixture.decide(&in_pool(lb("b"), "p")));
    // One address for two load balancers: the older is woken to get it, the other has an outdated explanation.
    fixture
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "", "")]));
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    assert_eq!(fixture.outdated(), ["b"]);
    let (reason, text, ..) = waits(fixture.decide(&in_pool(lb("b"), "p")));
    assert_eq!(reason, WaitReason::NoAvailableIp);
    assert_eq!(
        text,
        "pool p: older load balancers wait for its free addresses"
    );
    assert_eq!(fixture.outdated(), [""; 0]);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("172.20.1.2")));
    assert_eq!(fixture.outdated(), ["b"], "nothing is free any more");
    let (_, text, ..) = waits(fixture.decide(&in_pool(lb("b"), "p")));
    assert_eq!(text, "pool p: all addresses are taken");
    assert_eq!(names(fixture.ledger.take_wakes()), [""; 0]);
    fixture.delete("a");
    assert_eq!(names(fixture.ledger.take_wakes()), ["b"]);
    assert_eq!(names(fixture.ledger.take_wakes()), [""; 0]);
    fixture.ledger.remove_pool("p");
    assert_eq!(names(fixture.ledger.take_wakes()), [""; 0]);
    assert_eq!(fixture.outdated(), [""; 0], "it is about to ask");
}

#[test]
fn alc_6_mask_and_gateway() {
    let specs = [
        pool("v4", &[range("172.20.1.0/29", "", "")]),
        pool("v6", &[range("fd10:5::/64", "", "")]),
        pool("host", &[range("10.0.0.1/32", "", "")]),
    ];
    let mut fixture = Fixture::new(&specs);
    for (pool, addr, mask, gateway) in [
        ("v4", "172.20.1.2", "255.255.255.248", Some("172.20.1.1")),
        (
            "v6",
            "fd10:5::2",
            "ffff:ffff:ffff:ffff::",
            Some("fd10:5::1"),
        ),
        ("host", "10.0.0.1", "255.255.255.255", None),
    ] {
        let Decision::Take { grant, .. } = fixture.decide(&in_pool(guest(pool), pool)) else {
            panic!("not taken");
        };
        assert_eq!((grant.addr, grant.mask.as_deref()), (ip(addr), Some(mask)));
        assert_eq!(
            (grant.gateway, grant.standing),
            (gateway.map(ip), Standing::InPool)
        );
    }
}

#[test]
fn alc_7_status_without_record() {
    let network = |name: &str, subnet: &str, network: &str| PoolSpec {
        selector: Selector {
            network: network.into(),
            scope: vec![Tuple::new("*", "*", "*"), Tuple::new("", "", "x")],
            priority: 0,
        },
        ..pool(name, &[range(subnet, "", "")])
    };
    let mut fixture = Fixture::new(&[
        network("p", "172.20.1.0/29", ""),
        network("q", "172.20.2.0/29", "other"),
    ]);
    // Free, in range, in the pool that section 5 selects now.
    let (addr, reason, _) = taken(fixture.decide(&with_status(lb("a"), "p", "172.20.1.5")));
    assert_eq!(
        (addr.as_str(), reason),
        ("172.20.1.5", AllocationReason::Recorded)
    );
    // The pool in the status does not matter, only the address.
    let (addr, ..) = taken(fixture.decide(&with_status(lb("b"), "q", "172.20.1.6")));
    assert_eq!(addr, "172.20.1.6");
    // Held or reserved by another load balancer, the gateway, or of another pool: a new address.
    for (name, addr, holder) in [
        ("c", "172.20.1.5", Some("a")),
        ("d", "172.20.1.1", None),
        ("e", "172.20.2.4", None),
    ] {
        let decision = fixture.decide(&with_status(lb(name), "p", addr));
        let Decision::Take { grant, reason, .. } = decision else {
            panic!("{decision:?}")
        };
        assert_eq!(reason, AllocationReason::Fresh);
        let holder = holder.map(|name| OwnerId::new("ns", name));
        assert_eq!(
            grant.address_conflict,
            Some(AddressConflict {
                addr: ip(addr),
                holder
            })
        );
    }
    // The pool in the spec takes precedence over the selected one.
    let request = in_pool(with_status(lb("f"), "q", "172.20.2.4"), "q");
    assert_eq!(
        taken(fixture.decide(&request)).1,
        AllocationReason::Recorded
    );
}

#[test]
fn alc_8_conflict_is_proposed_anew() {
    let mut fixture = Fixture::example();
    let first = fixture.decide(&lb("a"));
    assert_eq!(
        taken(first.clone()),
        ("172.20.1.2".into(), AllocationReason::Fresh, None)
    );
    fixture.now += 60;
    assert_eq!(
        fixture.decide(&lb("a")),
        first,
        "the same question, the same answer"
    );
    // Another load balancer's record was stored first.
    fixture.bind("172.20.1.2", "p", "b", "b-1");
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    assert_eq!(taken(fixture.decide(&lb("a"))).0, "172.20.1.3");
    // A Released record that was unknown: the same address, replacing that record.
    fixture.bind("172.20.1.3", "p", "z", "z");
    fixture.release(ip("172.20.1.3"), "z");
    assert_eq!(taken(fixture.decide(&lb("a"))).0, "172.20.1.4");
    let mut spec = fixture.bind("172.20.1.6", "p", "y", "y").spec;
    spec.addr = ip("172.20.1.4");
    spec.phase = Phase::Released;
    let version = fixture.store(spec).version;
    assert_eq!(
        taken(fixture.decide(&lb("a"))),
        ("172.20.1.4".into(), AllocationReason::Fresh, Some(version))
    );
    // The reservation is abandoned.
    fixture
        .ledger
        .abandon(&OwnerId::new("ns", "a"), ip("172.20.1.4"));
    assert_eq!(fixture.ledger.counts().reserved, 0);
}

#[test]
fn alc_8_bound_at_grows_strictly() {
    let mut ledger = Ledger::new(Settings::default());
    ledger.set_pool(pool("p", &[range("172.20.1.0/24", "", "")]));
    let mut last = Micros::MIN;
    for n in 0..5 {
        let Decision::Take { spec, .. } = ledger.decide(&lb(&format!("a{n}")), Micros(7)) else {
            panic!("not taken");
        };
        assert!(spec.bound_at > last);
        last = spec.bound_at;
    }
}

#[test]
fn sel_1_explicit_pool_is_taken_as_is_and_sel_8_address_stays() {
    let other = PoolSpec {
        selector: Selector::default(),
        ..pool("q", &[range("10.0.0.0/29", "", "")])
    };
    let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/29", "", "")]), other]);
    assert_eq!(fixture.ask(&in_pool(lb("a"), "q")), Some(ip("10.0.0.2")));
    // spec.ipPool cleared, and nothing matches any more: nothing moves.
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.2")));
    fixture.ledger.remove_pool("p");
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.2")));
}

#[test]
fn rng_8_a_huge_pool_costs_no_more() {
    for (subnet, first) in [("fd10:5::/64", "fd10:5::2"), ("10.0.0.0/8", "10.0.0.2")] {
        let mut fixture = Fixture::new(&[pool("p", &[range(subnet, "", "")])]);
        let total = fixture.ledger.projection("p").unwrap().total;
        assert_eq!(fixture.ask(&guest("a")), Some(ip(first)));
        assert_eq!(fixture.ledger.projection("p").unwrap().available, total - 1);
    }
}

#[test]
fn be_7_a_recreated_one_of_vm_type_adopts_no_ipv6_address() {
    let ranges = [range("fd10:5::/124", "", "")];
    let mut fixture = Fixture::new(&[pool("p", &ranges)]);
    let addr = fixture.ask(&guest("a")).unwrap();
    assert!(addr.is_ipv6());
    let recreated = Request {
        owner: Owner::new("ns", "a", "a-2"),
        ..lb("a")
    };
    let (reason, ..) = waits(fixture.decide(&recreated));
    assert_eq!(reason, WaitReason::AddressFamilyMismatch);
    // Unless its status names it: then it is told so, and keeps it.
    let restored = with_status(recreated, "p", &addr.to_string());
    assert!(matches!(fixture.decide(&restored), Decision::Adopt { .. }));
}

#[test]
fn be_7_a_load_balancer_of_vm_type_gets_no_ipv6_address() {
    let v6 = || range("fd10:5::/124", "", "");
    let mut fixture = Fixture::new(&[pool("p", &[v6()])]);
    let (reason, message, ..) = waits(fixture.decide(&lb("a")));
    assert_eq!(reason, WaitReason::AddressFamilyMismatch);
    assert!(
        message.starts_with("pool p: has only IPv6 addresses"),
        "{message}"
    );
    // It blocks no other load balancer, however few addresses are free.
    for nth in 2..=15 {
        let name = format!("b{nth:02}");
        let addr = ip(&format!("fd10:5::{nth:x}"));
        assert_eq!(fixture.ask(&guest(&name)), Some(addr), "{name}");
    }
    assert_eq!(fixture.ask(&guest("c")), None);
    fixture.delete("b03");
    let woken = names(fixture.ledger.take_wakes());
    assert!(woken.contains(&"c".to_owned()), "{woken:?}");
    assert_eq!(fixture.ask(&guest("c")), Some(ip("fd10:5::3")));
    // IPv4 is added: it is served, from there only.
    fixture
        .ledger
        .set_pool(pool("p", &[v6(), range("10.0.0.0/30", "", "")]));
    let woken = names(fixture.ledger.take_wakes());
    assert!(woken.contains(&"a".to_owned()), "{woken:?}");
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.2")));
    fixture.delete("c");
    let (reason, message, ..) = waits(fixture.decide(&lb("d")));
    assert_eq!(reason, WaitReason::NoAvailableIp);
    assert!(
        message.starts_with("pool p: all IPv4 addresses are taken"),
        "{message}"
    );
    assert_eq!(
        fixture.ask(&guest("e")),
        Some(ip("fd10:5::3")),
        "d does not want it"
    );
    fixture.delete("a");
    assert_eq!(names(fixture.ledger.take_wakes()), ["d"]);
    assert_eq!(fixture.ask(&lb("d")), Some(ip("10.0.0.2")));
}

#[test]
fn be_7_one_that_holds_an_ipv6_address_keeps_it_and_history_gives_none() {
    let ranges = [range("fd10:5::/124", "", ""), range("10.0.0.0/29", "", "")];
    let mut fixture = Fixture::new(&[pool("p", &ranges)]);
    fixture.bind("fd10:5::7", "p", "a", "a-1");
    let (grant, _) = held(fixture.decide(&lb("a")));
    assert_eq!(grant.addr, ip("fd10:5::7"));
    // Its record is deleted by hand: it is created again while its owner exists (IPA-7).
    fixture.ledger.forget(ip("fd10:5::7"), Version(99));
    let (addr, reason, _) = taken(fixture.decide(&lb("a")));
    assert_eq!((&*addr, reason), ("fd10:5::7", AllocationReason::Recorded));
    // A later load balancer of the name does not get it back.
    fixture.bind("fd10:5::8", "p", "b", "b-1");
    fixture.delete("b");
    assert_eq!(fixture.ask(&lb_uid("b", "b-2")), Some(ip("10.0.0.2")));
}
