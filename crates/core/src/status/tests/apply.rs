//! The status that a report leads to.

use super::*;
use crate::merge_patch::difference;

#[test]
fn section_8_3_example_status() {
    let wanted = apply(&lb(&json!(null)), &example(), T1);
    assert_eq!(
        status_of(&wanted),
        json!({
            "address": "172.20.1.4",
            "allocatedAddress": {"ipPool": "p", "ip": "172.20.1.4", "mask": "255.255.255.248", "gateway": "172.20.1.1"},
            "backendServers": ["10.10.1.7", "10.10.1.8"],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready",
                "lastUpdateTime": T1, "lastTransitionTime": T1,
            }],
        })
    );
}

#[test]
fn rec_5_the_same_report_later_is_no_difference() {
    let reports = [
        example(),
        StatusUpdate::only(Readiness::not(NO_BACKEND, "nothing matches")),
        StatusUpdate {
            extras: vec![
                ExtraCondition::new(ADDRESS_LOST, Some("x".repeat(5000))),
                ExtraCondition::new(BACKENDS_LEFT_OUT, None),
            ],
            ..StatusUpdate::only(Readiness::not(API_ERROR, "y".repeat(5000)))
        },
    ];
    for report in reports {
        let first = apply(&lb(&json!(null)), &report, T1);
        let second = apply(&first, &report, T2);
        assert_eq!(difference(&first, &second), None, "{report:?}");
    }
}

#[test]
fn rec_5_a_status_of_the_go_operator_gains_only_the_reason() {
    let present = lb(&json!({
        "address": "172.20.1.4",
        "allocatedAddress": {"ipPool": "p", "ip": "172.20.1.4", "mask": "255.255.255.248", "gateway": "172.20.1.1"},
        "backendServers": ["10.10.1.7", "10.10.1.8"],
        "conditions": [{"type": "Ready", "status": "True", "lastUpdateTime": T1}],
    }));
    let wanted = apply(&present, &example(), T2);
    assert_eq!(
        difference(&present, &wanted),
        Some(json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "Ready", "lastUpdateTime": T2},
        ]}}))
    );
    let before = present.status.unwrap().conditions;
    let after = wanted.status.unwrap().conditions.unwrap();
    assert_eq!(event_drafts(before.as_deref(), &after), []);
}

#[test]
fn section_2_1_fields_are_kept_set_or_taken_out() {
    let full = json!({
        "address": "10.0.0.1",
        "allocatedAddress": {"ip": "10.0.0.2"},
        "backendServers": ["10.0.0.3"],
    });
    let taken_out = StatusUpdate {
        allocated: FieldUpdate::Set(None),
        address: FieldUpdate::Set(None),
        backend_servers: FieldUpdate::Set(None),
        ..example()
    };
    let cases = [
        ("kept", StatusUpdate::only(Readiness::ready()), full.clone()),
        (
            "set",
            example(),
            status_of(&apply(&lb(&json!(null)), &example(), T1)),
        ),
        ("taken out", taken_out, json!({})),
        (
            "each for itself: the address alone",
            StatusUpdate {
                address: FieldUpdate::Set(Some("10.0.0.9".into())),
                ..StatusUpdate::only(Readiness::ready())
            },
            json!({"address": "10.0.0.9", "allocatedAddress": {"ip": "10.0.0.2"}, "backendServers": ["10.0.0.3"]}),
        ),
        (
            "each for itself: what is allocated alone",
            StatusUpdate {
                allocated: FieldUpdate::Set(None),
                ..StatusUpdate::only(Readiness::ready())
            },
            json!({"address": "10.0.0.1", "backendServers": ["10.0.0.3"]}),
        ),
        (
            "each for itself: the backends alone",
            StatusUpdate {
                backend_servers: FieldUpdate::Set(None),
                ..StatusUpdate::only(Readiness::ready())
            },
            json!({"address": "10.0.0.1", "allocatedAddress": {"ip": "10.0.0.2"}}),
        ),
    ];
    for (what, report, mut expected) in cases {
        let mut status = status_of(&apply(&lb(&full), &report, T1));
        for status in [&mut status, &mut expected] {
            status.as_object_mut().unwrap().remove("conditions");
        }
        assert_eq!(status, expected, "{what}");
    }
}

#[test]
fn section_9_ready_follows_the_reason() {
    let all = [
        NO_BACKEND,
        BACKENDS_WITHOUT_IP,
        BACKENDS_UNHEALTHY,
        WAITING_FOR_EXTERNAL_IP,
        NAME_CONFLICT,
        API_ERROR,
        INVALID_OBJECT,
        "NoMatchedPool",
    ];
    for reason in all {
        let report = StatusUpdate::only(Readiness::not(reason, "why"));
        let ready = ready(&apply(&lb(&json!(null)), &report, T1));
        assert_eq!(
            (
                ready.status.as_str(),
                ready.reason.as_deref(),
                ready.message.as_deref()
            ),
            ("False", Some(reason), Some("why"))
        );
    }
    let ready = ready(&apply(
        &lb(&json!(null)),
        &StatusUpdate::only(Readiness::ready()),
        T1,
    ));
    assert_eq!(
        (
            ready.status.as_str(),
            ready.reason.as_deref(),
            ready.message
        ),
        ("True", Some("Ready"), None)
    );
}

#[test]
fn section_9_further_conditions_come_and_go_and_those_of_others_stay() {
    let foreign = json!({"type": "Blessed", "status": "True", "message": "by somebody"});
    let held = json!({"type": ADDRESS_OUT_OF_POOL, "status": "True", "reason": ADDRESS_OUT_OF_POOL, "message": "old"});
    let present = lb(&json!({"conditions": [foreign, held]}));
    let report = StatusUpdate {
        extras: vec![
            ExtraCondition::new(ADDRESS_OUT_OF_POOL, None),
            ExtraCondition::new(BACKENDS_LEFT_OUT, Some("5 more".into())),
        ],
        ..StatusUpdate::only(Readiness::ready())
    };
    let wanted = apply(&present, &report, T1);
    assert_eq!(
        status_of(&wanted)["conditions"],
        json!([
            foreign,
            {"type": "Ready", "status": "True", "reason": "Ready", "lastUpdateTime": T1, "lastTransitionTime": T1},
            {"type": BACKENDS_LEFT_OUT, "status": "True", "reason": BACKENDS_LEFT_OUT, "message": "5 more",
                "lastUpdateTime": T1, "lastTransitionTime": T1},
        ])
    );
    let kept = apply(&present, &StatusUpdate::only(Readiness::ready()), T1);
    assert_eq!(
        status_of(&kept)["conditions"][1],
        held,
        "a report that does not speak of it leaves it"
    );
}

#[test]
fn section_9_messages_are_cut_between_characters() {
    // 1,023 bytes and then a character of two.
    let long = format!("{}äöü", "a".repeat(1023));
    let report = StatusUpdate {
        extras: vec![ExtraCondition::new(ADDRESS_LOST, Some(long.clone()))],
        ..StatusUpdate::only(Readiness::not(API_ERROR, long))
    };
    let wanted = apply(&lb(&json!(null)), &report, T1);
    for condition in wanted.status.unwrap().conditions.unwrap() {
        assert_eq!(
            condition.message,
            Some("a".repeat(1023)),
            "{}",
            condition.type_
        );
    }
    let exact = "b".repeat(1024);
    let report = StatusUpdate::only(Readiness::not(API_ERROR, exact.clone()));
    assert_eq!(
        ready(&apply(&lb(&json!(null)), &report, T1)).message,
        Some(exact)
    );
}

#[test]
fn hc_4_the_marker_of_the_first_checks_comes_and_goes_with_the_readiness() {
    let lb = LoadBalancer::default();
    let told = |lb: &LoadBalancer, readiness: Readiness| {
        apply(lb, &StatusUpdate::only(readiness), "2026-06-01T00:00:00Z")
    };
    let marked = |lb: &LoadBalancer| condition::find(conditions(lb), FIRST_HEALTH_CHECKS).is_some();
    let first = told(&lb, Readiness::first_checks("they are under way"));
    assert!(marked(&first));
    let again = apply(
        &first,
        &StatusUpdate::only(Readiness::first_checks("they are under way")),
        "2026-06-02T00:00:00Z",
    );
    assert_eq!(first, again);
    for other in [
        Readiness::ready(),
        Readiness::not(BACKENDS_UNHEALTHY, "none passes"),
        Readiness::not(API_ERROR, "no"),
    ] {
        assert!(!marked(&told(&first, other.clone())), "{other:?}");
    }
}

#[test]
fn fin_2_finalizers_of_old_are_taken_off_and_those_of_others_kept() {
    type Finalizers<'a> = Option<&'a [&'a str]>;
    let [lb_controller, ipam_controller] = keys::LEGACY_FINALIZERS;
    let cases: [(Finalizers<'_>, Finalizers<'_>); 6] = [
        (None, None),
        (Some(&[lb_controller]), None),
        (Some(&[ipam_controller, lb_controller]), None),
        (Some(&["x/y", lb_controller, "a/b"]), Some(&["x/y", "a/b"])),
        (Some(&["x/y"]), Some(&["x/y"])),
        (Some(&[]), Some(&[])),
    ];
    let list = |of: Finalizers<'_>| of.map(|f| f.iter().map(|f| (*f).to_owned()).collect());
    for (before, after) in cases {
        let mut lb = lb(&json!(null));
        lb.metadata.finalizers = list(before);
        let wanted = apply(&lb, &StatusUpdate::only(Readiness::ready()), T1);
        assert_eq!(wanted.metadata.finalizers, list(after), "{before:?}");
    }
}

#[test]
fn apply_touches_status_and_finalizers_alone() {
    let present = LoadBalancer {
        spec: serde_json::from_value(json!({"description": "x", "ipPool": "p"})).unwrap(),
        ..lb(&json!(null))
    };
    let wanted = apply(&present, &example(), T1);
    assert_eq!(wanted.spec, present.spec);
    assert_eq!(wanted.metadata, present.metadata);
}
