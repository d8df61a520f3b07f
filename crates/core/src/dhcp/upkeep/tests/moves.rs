//! Leases that move to another interface, and those that stay (DHC-2, KVA-2).

use super::*;

#[test]
fn kva_2_another_interface_is_another_lease() {
    let moved = || Some(claims(Some("eth1")));
    let held = Some(client(Some(lease(A))));
    let bound = Case::of(moved(), Some(LeasePhase::Bound(lease(A))), held);
    let releasing = record(LeasePhase::Releasing(lease(A)));
    assert_eq!(bound.step(), Step::Write(Guard::AsSeen, releasing));
    let released = Case::of(moved(), Some(LeasePhase::Releasing(lease(A))), None);
    // An address of another network is not asked for.
    let next = LeaseSpec {
        interface: "eth1".to_owned(),
        ..pending(None)
    };
    assert_eq!(
        released.step(),
        Step::Release(Guard::NotServed(A), Some(next.clone()))
    );
    let waiting = Case::of(moved(), Some(LeasePhase::Pending), None);
    assert_eq!(waiting.step(), Step::Write(Guard::AsSeen, next));
    // One that is not allowed changes nothing.
    let refused = Case::of(
        Some(claims(Some("eth7"))),
        Some(LeasePhase::Bound(lease(A))),
        Some(client(Some(lease(A)))),
    );
    assert_eq!(refused.step(), Step::Rest);
}

#[test]
fn dhc_2_another_default_route_moves_no_lease() {
    let unchosen = |spec| LeaseSpec {
        is_chosen: false,
        ..spec
    };
    let on_bond = |phase, is_chosen| Case {
        record: Some(LeaseSpec {
            interface: "bond0".to_owned(),
            ..unchosen(record(phase))
        }),
        interfaces: by_default(is_chosen),
        ..Case::of(Some(asks()), None, None)
    };
    let mut over = lease(A);
    over.times = Some(harvester_lb_ipam::dhcp::LeaseTimes {
        renew_at: Micros(NOW.0 - 3),
        rebind_at: Micros(NOW.0 - 2),
        expires_at: Micros(NOW.0 - 1),
    });
    // Whose interface nobody has chosen, the host's; then one that somebody has.
    let run = Step::Run(Guard::NotKubeVips);
    let bound = LeasePhase::Bound(lease(A));
    assert_eq!(on_bond(bound, false).step(), run);
    let releasing = |phase| {
        Step::Write(
            Guard::AsSeen,
            LeaseSpec {
                interface: "bond0".to_owned(),
                ..unchosen(record(phase))
            },
        )
    };
    let given = releasing(LeasePhase::Releasing(lease(A)));
    assert_eq!(on_bond(bound, true).step(), given);
    // What is asked for anew is asked for on an interface of this host.
    let given = releasing(LeasePhase::Releasing(over));
    assert_eq!(on_bond(LeasePhase::Bound(over), false).step(), given);
    let after = on_bond(LeasePhase::Releasing(over), false).step();
    assert_eq!(
        after,
        Step::Release(Guard::NotServed(A), Some(unchosen(pending(None))))
    );
    let next = on_bond(LeasePhase::Pending, false).step();
    assert_eq!(next, Step::Write(Guard::AsSeen, unchosen(pending(None))));
}

#[test]
fn kva_2_an_interface_that_is_named_no_more_is_left() {
    // It was that of an annotation; the default route's counts again, where kube-vip announces.
    let withdrawn = |phase, client| Case {
        record: Some(LeaseSpec {
            interface: "eth1".to_owned(),
            ..record(phase)
        }),
        interfaces: by_default(false),
        ..Case::of(Some(asks()), None, client)
    };
    let releasing = LeaseSpec {
        interface: "eth1".to_owned(),
        ..record(LeasePhase::Releasing(lease(A)))
    };
    let case = withdrawn(LeasePhase::Bound(lease(A)), None);
    assert_eq!(case.step(), Step::Write(Guard::AsSeen, releasing));
    let case = withdrawn(LeasePhase::Releasing(lease(A)), None);
    let next = LeaseSpec {
        is_chosen: false,
        ..pending(None)
    };
    let release = Step::Release(Guard::NotServed(A), Some(next));
    assert_eq!(case.step(), release);
    // The same interface: the next renewal records that nobody names it any more.
    let mut renewed = lease(A);
    renewed.times = Some(harvester_lb_ipam::dhcp::LeaseTimes {
        renew_at: Micros(NOW.0 + 1),
        rebind_at: Micros(NOW.0 + 2),
        expires_at: Micros(NOW.0 + 3),
    });
    let case = Case {
        interfaces: by_default(false),
        ..Case::of(
            Some(asks()),
            Some(LeasePhase::Bound(lease(A))),
            Some(client(Some(renewed))),
        )
    };
    let Step::Write(Guard::None, written) = case.step() else {
        panic!("{:?}", case.step());
    };
    assert!(!written.is_chosen);
    assert_eq!(written.phase, LeasePhase::Bound(renewed));
}

/// The API server refuses the write of a renewal for a while: the record is older than the lease.
#[test]
fn dhc_2_a_lease_that_was_renewed_does_not_count_as_expired() {
    let until = |at| {
        let times = harvester_lb_ipam::dhcp::LeaseTimes {
            renew_at: Micros(1),
            rebind_at: Micros(2),
            expires_at: Micros(at),
        };
        Lease {
            times: Some(times),
            ..lease(A)
        }
    };
    let on_bond = |spec| LeaseSpec {
        interface: "bond0".to_owned(),
        is_chosen: false,
        ..spec
    };
    let renewed = until(NOW.0 + 1);
    let client = ClientView {
        interface: "bond0".to_owned(),
        ..client(Some(renewed))
    };
    let case = Case {
        record: Some(on_bond(record(LeasePhase::Bound(until(NOW.0))))),
        interfaces: by_default(false),
        ..Case::of(Some(asks()), None, Some(client))
    };
    let written = on_bond(record(LeasePhase::Bound(renewed)));
    assert_eq!(
        case.step(),
        Step::Write(
            Guard::None,
            LeaseSpec {
                bound_at: Some(NOW),
                ..written
            }
        )
    );
}
