//! Leases that are given back, and when not (DHC-4).

use super::*;

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
