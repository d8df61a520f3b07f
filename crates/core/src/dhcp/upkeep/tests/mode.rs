//! Changes of the mode (DHC-6).

use super::*;

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
    let step = Step::Write(Guard::NotOfPool(A), bound_now(A));
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
