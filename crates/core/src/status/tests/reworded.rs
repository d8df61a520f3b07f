//! Messages that an earlier version stored in other words.

use super::*;
use crate::merge_patch::difference;

/// The condition as the version before stored it, and what this version says in the same situation.
fn reworded() -> Vec<(&'static str, &'static str, StatusUpdate)> {
    use harvester_lb_ipam::{
        AddressConflict, Explanation, OwnerId, PoolVerdict, Standing, Verdict,
    };

    use crate::backends::DiscoveredBackends;
    use crate::readiness::{Present, extras, waiting_for_external_ip};

    let waits = |verdicts: Vec<Verdict>| {
        let pools = verdicts.into_iter().zip(["a", "b"]);
        let pools = pools.map(|(verdict, pool)| PoolVerdict {
            pool: pool.into(),
            verdict,
        });
        let message = Explanation::new(pools.collect(), 8).to_string();
        StatusUpdate::only(Readiness::not("NoMatchedPool", message))
    };
    let not = |reason, message: &str| StatusUpdate::only(Readiness::not(reason, message));
    let address_conflict = AddressConflict {
        addr: [10, 0, 0, 7].into(),
        holder: Some(OwnerId::new("shop", "api")),
    };
    let extra = |standing: Standing| StatusUpdate {
        extras: extras(
            (standing == Standing::InPool).then_some(&address_conflict),
            Some(Present {
                address: "10.0.0.9",
                standing,
                unserved: None,
                shared: None,
            }),
            &DiscoveredBackends::default(),
        ),
        ..StatusUpdate::only(Readiness::ready())
    };
    vec![
        (
            READY,
            "pool a: none of its 2 scopes matches; and 3 more",
            not(
                "NoMatchedPool",
                "pool a: none of its scopes matches; and others",
            ),
        ),
        (
            READY,
            "pool a: all addresses are taken; pool b: 3 older load balancers wait for its free addresses",
            waits(vec![Verdict::Full, Verdict::OthersFirst]),
        ),
        (
            READY,
            "pool a: all IPv4 addresses are taken, and a load balancer of workload type vm gets no other",
            waits(vec![Verdict::FullOfFamily]),
        ),
        (
            READY,
            "pool a: has IPv6 addresses alone, and a load balancer of workload type vm gets none of those: name a pool with IPv4 addresses",
            waits(vec![Verdict::OtherFamily]),
        ),
        (
            READY,
            "pool a: matches only loosely, and g is chosen before that; pool b: has no scope",
            waits(vec![
                Verdict::LooseUnused { chosen: "g".into() },
                Verdict::NoScope,
            ]),
        ),
        (
            READY,
            "pool a: IPAllocation 10.0.0.9 cannot be read; repair or delete it",
            waits(vec![Verdict::RecordUnreadable {
                record: "10.0.0.9".to_owned(),
            }]),
        ),
        (
            READY,
            "Service shop/web has no external address yet; kube-vip is to announce 10.0.0.9",
            StatusUpdate::only(waiting_for_external_ip("10.0.0.9")),
        ),
        (
            READY,
            "LoadBalancer shop/web: the lease in IPAllocation dhcp-u cannot be read: spec.lease is missing; nothing of the load balancer is made, changed or released",
            not(
                UNSUPPORTED_ANNOTATION,
                "LoadBalancer shop/web: the lease in IPAllocation dhcp-u cannot be read: spec.lease is missing; nothing of the load balancer is created, changed or released",
            ),
        ),
        (
            READY,
            "the IPAllocation of shop/web cannot be written: its address is still recorded for LoadBalancer shop/api, which is gone; that record could not be released yet",
            not(
                API_ERROR,
                "the IPAllocation of shop/web cannot be written: its address still belongs to LoadBalancer shop/api, which is deleted; that IPAllocation could not be released yet",
            ),
        ),
        (
            ADDRESS_OUT_OF_POOL,
            "10.0.0.9 is no longer an address of its pool; it is kept until the load balancer goes",
            extra(Standing::OutOfPool),
        ),
        (
            ADDRESS_LOST,
            "10.0.0.7 belongs to LoadBalancer shop/api; 10.0.0.9 was given instead",
            extra(Standing::InPool),
        ),
        (
            FIRST_HEALTH_CHECKS,
            "no backend was judged yet",
            StatusUpdate::only(Readiness::first_checks("they are under way")),
        ),
    ]
}

#[test]
fn sel_7_a_status_in_the_words_of_an_earlier_version_is_no_reason_to_write() {
    for (type_, before, report) in reworded() {
        let now = apply(&lb(&json!(null)), &report, T1);
        let said = condition::find(conditions(&now), type_)
            .unwrap()
            .message
            .clone();
        assert_ne!(said.as_deref(), Some(before), "it was reworded");
        let mut stored = now.clone();
        let all = stored.status.as_mut().unwrap().conditions.as_mut().unwrap();
        let condition = all.iter_mut().find(|it| it.type_ == type_).unwrap();
        condition.message = Some(before.to_owned());
        let after = apply(&stored, &report, T2);
        assert_eq!(difference(&stored, &after), None, "{before}");
        assert_eq!(
            event_drafts(Some(conditions(&stored)), conditions(&after)),
            []
        );
        // With another value it is another message.
        let condition = |it: &LoadBalancer| condition::find(conditions(it), type_).cloned();
        let other = before
            .replace("10.0.0.9", "10.0.0.8")
            .replace("pool a", "pool z");
        if other != before {
            let all = stored.status.as_mut().unwrap().conditions.as_mut().unwrap();
            let of_type = all.iter_mut().find(|it| it.type_ == type_).unwrap();
            of_type.message = Some(other);
            assert_eq!(
                condition(&apply(&stored, &report, T2)).unwrap().message,
                said
            );
        }
    }
}
