use harvester_lb_ipam::dhcp::{Conflict, HardwareAddress, HardwareAddressError};
use harvester_lb_ipam::{Owner, Uid};

use super::*;

mod world;

const A: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 7);
const B: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 8);
const NOW: Micros = Micros(1_770_000_000_000_000);
const OTHER_HARDWARE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 9]);

fn owner() -> Owner {
    Owner::new("shop", "web", "6f1c6f0a-3f0e-4b57-9d4e-1f2f3a4b5c6d")
}

fn interfaces() -> Interfaces {
    by_default(true)
}

fn by_default(is_chosen: bool) -> Interfaces {
    Interfaces {
        default: "eth0".to_owned(),
        is_chosen,
        allowed: "eth1".parse().unwrap(),
    }
}

fn claims(interface: Option<&str>) -> Claim {
    Claim::Lease {
        interface: interface.map(ToOwned::to_owned),
        hardware: Ok(None),
    }
}

fn lb(claim: Claim) -> LbView {
    LbView {
        owner: owner(),
        claim,
    }
}

fn lease(address: Ipv4Addr) -> Lease {
    Lease {
        address,
        server: Ipv4Addr::new(192, 168, 100, 1),
        server_hardware: None,
        mask: None,
        router: None,
        times: None,
    }
}

fn record(phase: LeasePhase) -> LeaseSpec {
    LeaseSpec {
        owner: owner(),
        phase,
        interface: "eth0".to_owned(),
        is_chosen: true,
        hardware: Identity::new(&owner().uid, None).hardware,
        wanted: None,
        bound_at: None,
    }
}

fn client(lease: Option<Lease>) -> ClientView {
    ClientView {
        interface: "eth0".to_owned(),
        hardware: Identity::new(&owner().uid, None).hardware,
        lease,
        is_asking: false,
        loss: None,
        declined: None,
    }
}

struct Case {
    mode: Mode,
    claim: Option<Claim>,
    record: Option<LeaseSpec>,
    client: Option<ClientView>,
    is_kube_vips: bool,
    is_served: bool,
    holder: Option<Holder>,
    interfaces: Interfaces,
}

impl Case {
    fn of(claim: Option<Claim>, record: Option<LeasePhase>, client: Option<ClientView>) -> Self {
        Self {
            mode: Mode::Builtin,
            claim,
            record: record.map(self::record),
            client,
            is_kube_vips: false,
            is_served: false,
            holder: None,
            interfaces: interfaces(),
        }
    }

    fn step(&self) -> Step {
        let lb = self.claim.clone().map(lb);
        let situation = Situation {
            mode: self.mode,
            interfaces: &self.interfaces,
            lb: lb.as_ref(),
            record: self.record.as_ref(),
            client: self.client.as_ref(),
            is_kube_vips: self.is_kube_vips,
            is_served: self.is_served,
            holder: self.holder.as_ref(),
        };
        decide(&situation, NOW)
    }
}

fn asks() -> Claim {
    claims(None)
}

fn pending(wanted: Option<Ipv4Addr>) -> LeaseSpec {
    LeaseSpec {
        wanted,
        ..record(LeasePhase::Pending)
    }
}

fn bound_now(address: Ipv4Addr) -> LeaseSpec {
    LeaseSpec {
        bound_at: Some(NOW),
        ..record(LeasePhase::Bound(lease(address)))
    }
}

#[test]
fn dhc_1_from_the_record_to_a_lease() {
    let create = Case::of(Some(asks()), None, None);
    assert_eq!(create.step(), Step::Create);
    let start = Case::of(Some(asks()), Some(LeasePhase::Pending), None);
    assert_eq!(start.step(), Step::Run(Guard::NotKubeVips));
    let waits = Case::of(Some(asks()), Some(LeasePhase::Pending), Some(client(None)));
    assert_eq!(waits.step(), Step::Rest);
    let has = Case::of(
        Some(asks()),
        Some(LeasePhase::Pending),
        Some(client(Some(lease(A)))),
    );
    assert_eq!(has.step(), Step::Write(Guard::None, bound_now(A)));
    let recorded = Case::of(
        Some(asks()),
        Some(LeasePhase::Bound(lease(A))),
        Some(client(Some(lease(A)))),
    );
    assert_eq!(recorded.step(), Step::Rest);
}

#[test]
fn dhc_1_an_invalid_annotation_begins_nothing_and_changes_nothing() {
    let invalid = || {
        Some(Claim::Lease {
            interface: None,
            hardware: Err(HardwareAddressError::Format("x".to_owned())),
        })
    };
    assert_eq!(Case::of(invalid(), None, None).step(), Step::Rest);
    let held = Some(client(Some(lease(A))));
    let bound = Case::of(invalid(), Some(LeasePhase::Bound(lease(A))), held);
    assert_eq!(bound.step(), Step::Rest);
    assert_eq!(first(&lb(invalid().unwrap()), &interfaces(), None), None);
    // Neither another interface nor another mode (ALC-10).
    let elsewhere = Case {
        record: Some(LeaseSpec {
            interface: "bond0".to_owned(),
            ..record(LeasePhase::Bound(lease(A)))
        }),
        ..Case::of(invalid(), None, None)
    };
    assert_eq!(elsewhere.step(), Step::Run(Guard::NotKubeVips));
    let kube_vip = Case {
        mode: Mode::KubeVip,
        ..Case::of(invalid(), Some(LeasePhase::Bound(lease(A))), None)
    };
    assert_eq!(kube_vip.step(), Step::Run(Guard::NotKubeVips));
}

#[test]
fn dhc_2_a_recorded_lease_is_continued() {
    let case = Case::of(Some(asks()), Some(LeasePhase::Bound(lease(A))), None);
    assert_eq!(case.step(), Step::Run(Guard::NotKubeVips));
    // One that is being deleted keeps its lease as long as it is there (BE-6), and gets no first one.
    let keeps = |phase| Case::of(Some(Claim::Unchanged), Some(phase), None).step();
    assert_eq!(
        keeps(LeasePhase::Bound(lease(A))),
        Step::Run(Guard::NotKubeVips)
    );
    assert_eq!(keeps(LeasePhase::Pending), Step::Rest);
}

/// Its spec is refused, or a finalizer holds its deletion, and the mode was changed meanwhile (ALC-10, BE-6).
#[test]
fn dhc_6_what_stays_as_it_is_is_renewed_in_mode_kube_vip_until_it_is_lost() {
    let case = |client| Case {
        mode: Mode::KubeVip,
        ..Case::of(
            Some(Claim::Unchanged),
            Some(LeasePhase::Bound(lease(A))),
            client,
        )
    };
    assert_eq!(case(None).step(), Step::Run(Guard::NotKubeVips));
    let renews = case(Some(client(Some(lease(A)))));
    assert_eq!(renews.step(), Step::Rest);
    let lost = ClientView {
        loss: Some(Loss::Nak),
        ..client(None)
    };
    let ended = record(LeasePhase::Releasing(lease(A).ended(NOW)));
    assert_eq!(
        case(Some(lost)).step(),
        Step::Release(Guard::None, Some(ended))
    );
}

#[test]
fn dhc_3_a_lost_lease_leaves_the_record_at_once() {
    for (loss, wanted) in [
        (Loss::Nak, Some(A)),
        (Loss::Expired, Some(A)),
        (Loss::Conflict, None),
    ] {
        let lost = ClientView {
            loss: Some(loss),
            ..client(None)
        };
        let case = Case::of(Some(asks()), Some(LeasePhase::Bound(lease(A))), Some(lost));
        assert_eq!(case.step(), Step::Write(Guard::None, pending(wanted)));
    }
}

#[test]
fn dhc_4_what_is_not_wanted_is_given_back_in_order() {
    let held = || Some(client(Some(lease(A))));
    let releasing = || record(LeasePhase::Releasing(lease(A)));
    for (claim, guard, release) in [
        (None, Guard::Gone, Guard::GoneAndNotServed(A)),
        (Some(Claim::None), Guard::AsSeen, Guard::NotServed(A)),
    ] {
        let bound = Case::of(claim.clone(), Some(LeasePhase::Bound(lease(A))), held());
        assert_eq!(bound.step(), Step::Write(guard, releasing()));
        let given = Case::of(claim.clone(), Some(LeasePhase::Releasing(lease(A))), held());
        assert_eq!(given.step(), Step::Release(release, None));
        // Also if it was not running meanwhile.
        let later = Case::of(claim.clone(), Some(LeasePhase::Releasing(lease(A))), None);
        assert_eq!(later.step(), Step::Release(release, None));
        // A lease that is not recorded yet is recorded first.
        let fresh = Case::of(claim.clone(), Some(LeasePhase::Pending), held());
        assert_eq!(fresh.step(), Step::Write(guard, releasing()));
        let asking = ClientView {
            is_asking: true,
            ..client(None)
        };
        let asking = Case::of(claim.clone(), Some(LeasePhase::Pending), Some(asking));
        assert_eq!(asking.step(), Step::Rest);
        let idle = Case::of(claim.clone(), Some(LeasePhase::Pending), Some(client(None)));
        assert_eq!(idle.step(), Step::Stop);
        let nothing = Case::of(claim, Some(LeasePhase::Pending), None);
        assert_eq!(nothing.step(), Step::Delete(guard));
    }
}

#[test]
fn dhc_4_a_lease_is_renewed_until_it_can_be_given_back() {
    let case = Case::of(
        None,
        Some(LeasePhase::Releasing(lease(A))),
        Some(client(Some(lease(B)))),
    );
    // Whoever has that one was first with it.
    let renewed = LeaseSpec {
        bound_at: Some(NOW),
        ..record(LeasePhase::Releasing(lease(B)))
    };
    assert_eq!(case.step(), Step::Write(Guard::None, renewed));
    let lost = |lease| {
        let client = Some(client(None));
        Case::of(None, Some(LeasePhase::Releasing(lease)), client).step()
    };
    let ended = lease(A).ended(NOW);
    let next = record(LeasePhase::Releasing(ended));
    assert_eq!(lost(lease(A)), Step::Release(Guard::None, Some(next)));
    assert_eq!(lost(ended), Step::Stop);
}

/// The definition of an earlier version does not keep it, so it would be written again and again.
#[test]
fn dhc_4_where_the_last_ack_came_from_is_no_reason_to_write() {
    let held = Lease {
        server_hardware: Some(OTHER_HARDWARE),
        ..lease(A)
    };
    let step = |claim, phase| Case::of(claim, Some(phase), Some(client(Some(held)))).step();
    assert_eq!(step(Some(asks()), LeasePhase::Bound(lease(A))), Step::Rest);
    assert_eq!(
        step(None, LeasePhase::Releasing(lease(A))),
        Step::Release(Guard::GoneAndNotServed(A), None)
    );
}

/// The operator is down, or somebody's finalizer holds the Service.
#[test]
fn dhc_4_a_lease_that_is_still_served_is_renewed_after_a_restart_too() {
    let served = |mode, claim: Option<Claim>, phase, client| Case {
        mode,
        is_served: true,
        ..Case::of(claim, Some(phase), client)
    };
    let releasing = LeasePhase::Releasing(lease(A));
    for mode in [Mode::Builtin, Mode::KubeVip] {
        for claim in [
            None,
            Some(Claim::None),
            Some(Claim::Unchanged),
            Some(asks()),
        ] {
            let case = served(mode, claim, releasing, None);
            assert_eq!(case.step(), Step::Run(Guard::NotKubeVips));
        }
        let held = Some(client(Some(lease(A))));
        let case = served(mode, None, releasing, held);
        assert_eq!(case.step(), Step::Release(Guard::GoneAndNotServed(A), None));
        // One that has ended is nobody's to renew.
        let ended = LeasePhase::Releasing(lease(A).ended(NOW));
        let case = served(mode, None, ended, None);
        assert_eq!(case.step(), Step::Release(Guard::GoneAndNotServed(A), None));
    }
}

#[test]
fn dhc_4_a_load_balancer_that_cannot_be_read_loses_nothing() {
    for phase in [
        LeasePhase::Bound(lease(A)),
        LeasePhase::Releasing(lease(A)),
        LeasePhase::Released(A),
    ] {
        let is_released = matches!(phase, LeasePhase::Released(_));
        let held = (!is_released).then(|| client(Some(lease(A))));
        let case = Case::of(Some(Claim::Unchanged), Some(phase), held);
        assert_eq!(case.step(), Step::Rest);
    }
}

#[test]
fn dhc_5_an_address_of_a_pool_is_declined() {
    for phase in [LeasePhase::Pending, LeasePhase::Bound(lease(A))] {
        let case = Case {
            holder: Some(Holder::Pool),
            ..Case::of(Some(asks()), Some(phase), Some(client(Some(lease(A)))))
        };
        assert_eq!(
            case.step(),
            Step::Decline(Guard::Held(A), A, Conflict::Pool)
        );
    }
    // It is not asked for again.
    let declined = ClientView {
        declined: Some(A),
        ..client(None)
    };
    let case = Case {
        record: Some(pending(Some(A))),
        ..Case::of(Some(asks()), None, Some(declined))
    };
    assert_eq!(case.step(), Step::Write(Guard::None, pending(None)));
}

#[test]
fn dhc_5_an_address_that_another_lease_has_is_declined_and_not_given_back() {
    let other = Owner::new("shop", "api", "u-9");
    let with = |is_twin, claim: Option<Claim>, phase, client| {
        let lb = other.clone();
        let case = Case::of(claim, Some(phase), client);
        let holder = Some(Holder::Lease { lb, is_twin });
        Case { holder, ..case }
    };
    let held = || Some(client(Some(lease(A))));
    for (is_twin, conflict) in [(false, Conflict::Lease), (true, Conflict::Twin)] {
        for phase in [LeasePhase::Pending, LeasePhase::Bound(lease(A))] {
            let case = with(is_twin, Some(asks()), phase, held());
            assert_eq!(case.step(), Step::Decline(Guard::Held(A), A, conflict));
        }
        let releasing = LeasePhase::Releasing(lease(A));
        for claim in [None, Some(Claim::None), Some(asks())] {
            let stops = with(is_twin, claim, releasing, held());
            assert_eq!(stops.step(), Step::Stop);
        }
        for claim in [None, Some(Claim::None)] {
            let gone = with(is_twin, claim, releasing, None);
            assert_eq!(gone.step(), Step::Delete(Guard::Held(A)));
        }
        // Nor is it asked for again, whoever does that.
        let stays = with(is_twin, Some(asks()), releasing, None);
        assert_eq!(stays.step(), Step::Write(Guard::Held(A), pending(None)));
        let mode = Mode::KubeVip;
        let to_kube_vip = Case { mode, ..stays };
        assert_eq!(to_kube_vip.step(), Step::Delete(Guard::Held(A)));
    }
}

#[test]
fn dhc_6_to_kube_vip_and_back() {
    let step = |mode, phase| {
        let case = Case::of(Some(asks()), Some(phase), None);
        Case { mode, ..case }.step()
    };
    let releasing = record(LeasePhase::Releasing(lease(A)));
    let released = record(LeasePhase::Released(A));
    assert_eq!(
        step(Mode::KubeVip, LeasePhase::Bound(lease(A))),
        Step::Write(Guard::AsSeen, releasing)
    );
    assert_eq!(
        step(Mode::KubeVip, LeasePhase::Releasing(lease(A))),
        Step::Release(Guard::NotServed(A), Some(released))
    );
    assert_eq!(
        step(Mode::KubeVip, LeasePhase::Released(A)),
        Step::Delete(Guard::NamedForKubeVip)
    );
    assert_eq!(
        step(Mode::KubeVip, LeasePhase::Pending),
        Step::Delete(Guard::AsSeen)
    );
    assert_eq!(
        step(Mode::Builtin, LeasePhase::Released(A)),
        Step::Write(Guard::None, pending(Some(A)))
    );
    let without = Case::of(Some(asks()), None, None);
    let mode = Mode::KubeVip;
    assert_eq!(Case { mode, ..without }.step(), Step::Rest);
}

#[test]
fn dhc_6_a_client_ends_when_kube_vip_has_one() {
    let with = |lease| Case {
        is_kube_vips: true,
        ..Case::of(Some(asks()), Some(LeasePhase::Pending), Some(client(lease)))
    };
    assert_eq!(with(None).step(), Step::Stop);
    // What it has is recorded: the operator serves it then, in either mode.
    let step = Step::Write(Guard::None, bound_now(A));
    assert_eq!(with(Some(lease(A))).step(), step);
}

#[test]
fn dhc_6_the_first_record_asks_for_what_kube_vip_had() {
    let service = ServiceView {
        kube_vip_address: Some(A),
        kube_vip_hardware: Some(OTHER_HARDWARE),
        ..ServiceView::default()
    };
    let spec = first(&lb(claims(None)), &interfaces(), Some(&service)).unwrap();
    assert_eq!((spec.wanted, spec.hardware), (Some(A), OTHER_HARDWARE));
    // The annotation of the load balancer comes first.
    let annotated = lb(Claim::Lease {
        interface: Some("eth1".to_owned()),
        hardware: Ok(Some(HardwareAddress([2, 0, 0, 0, 0, 1]))),
    });
    let spec = first(&annotated, &interfaces(), Some(&service)).unwrap();
    assert_eq!(spec.hardware, HardwareAddress([2, 0, 0, 0, 0, 1]));
    assert_eq!(spec.interface, "eth1");
    let spec = first(&lb(claims(None)), &interfaces(), None).unwrap();
    assert_eq!(spec, pending(None));
}

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

#[test]
fn dhc_6_kube_vip_may_have_what_has_expired() {
    let mut over = lease(A);
    over.times = Some(harvester_lb_ipam::dhcp::LeaseTimes {
        renew_at: Micros(1),
        rebind_at: Micros(2),
        expires_at: Micros(3),
    });
    let case = Case {
        mode: Mode::KubeVip,
        ..Case::of(Some(asks()), Some(LeasePhase::Releasing(over)), None)
    };
    let released = record(LeasePhase::Released(A));
    assert_eq!(case.step(), Step::Write(Guard::None, released));
}

#[test]
fn dhc_1_a_client_of_another_record_is_stopped() {
    let other = ClientView {
        hardware: OTHER_HARDWARE,
        ..client(Some(lease(A)))
    };
    for phase in [
        LeasePhase::Pending,
        LeasePhase::Bound(lease(A)),
        LeasePhase::Releasing(lease(A)),
        LeasePhase::Released(A),
    ] {
        let case = Case::of(Some(asks()), Some(phase), Some(other.clone()));
        assert_eq!(case.step(), Step::Stop);
    }
    let orphan = Case::of(None, None, Some(client(None)));
    assert_eq!(orphan.step(), Step::Stop);
    assert_ne!(owner().uid, Uid::new(""));
}
