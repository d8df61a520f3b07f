//! Addresses that somebody else has (DHC-5).

use super::*;

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
