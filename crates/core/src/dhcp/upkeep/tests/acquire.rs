//! Records that become leases, and leases that go on, or are lost (DHC-1 to DHC-3).

use super::*;

#[test]
fn dhc_1_from_the_record_to_a_lease() {
    let create = Case::of(Some(asks()), None, None);
    assert_eq!(create.step(), Step::Create(Guard::AsSeen));
    let start = Case::of(Some(asks()), Some(LeasePhase::Pending), None);
    assert_eq!(start.step(), Step::Run(Guard::AsSeenAndNotKubeVips));
    let waits = Case::of(Some(asks()), Some(LeasePhase::Pending), Some(client(None)));
    assert_eq!(waits.step(), Step::Rest);
    let has = Case::of(
        Some(asks()),
        Some(LeasePhase::Pending),
        Some(client(Some(lease(A)))),
    );
    assert_eq!(has.step(), Step::Write(Guard::NotOfPool(A), bound_now(A)));
    let recorded = Case::of(
        Some(asks()),
        Some(LeasePhase::Bound(lease(A))),
        Some(client(Some(lease(A)))),
    );
    assert_eq!(recorded.step(), Step::Rest);
}

#[test]
fn dhc_1_no_client_starts_before_its_twin_has_given_the_lease_back() {
    let waits = |record, client| Case {
        ending_twin: Some(Owner::new("shop", "web", "before")),
        ..Case::of(Some(asks()), record, client)
    };
    // The record is there meanwhile, and a client that runs goes on.
    let [pending, bound] = [LeasePhase::Pending, LeasePhase::Bound(lease(A))];
    for (record, client, expected) in [
        (None, None, Step::Create(Guard::AsSeen)),
        (Some(pending), None, Step::AwaitTwin),
        (Some(pending), Some(client(None)), Step::Rest),
        (Some(bound), None, Step::Run(Guard::NotKubeVips)),
    ] {
        assert_eq!(waits(record, client).step(), expected, "{record:?}");
    }
    let gone = Case {
        claim: None,
        ..waits(Some(pending), None)
    };
    assert_eq!(gone.step(), Step::Delete(Guard::Gone));
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
