use super::*;
use crate::merge_patch::difference;
use serde_json::{Value, json};

const T1: &str = "2026-01-01T00:00:00Z";
const T2: &str = "2026-01-01T00:00:05Z";

fn lb(status: &Value) -> LoadBalancer {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u-1"},
        "spec": {},
        "status": status,
    }))
    .unwrap()
}

fn allocated() -> AllocatedAddress {
    AllocatedAddress {
        ip_pool: Some("p".into()),
        ip: Some("172.20.1.4".into()),
        mask: Some("255.255.255.248".into()),
        gateway: Some("172.20.1.1".into()),
    }
}

/// The status update of the contract's example (section 8.3).
fn example() -> StatusUpdate {
    StatusUpdate {
        readiness: Readiness::ready(),
        allocated: FieldUpdate::Set(Some(allocated())),
        address: FieldUpdate::Set(Some("172.20.1.4".into())),
        backend_servers: FieldUpdate::Set(Some(vec!["10.10.1.7".into(), "10.10.1.8".into()])),
        extras: Vec::new(),
    }
}

fn status_of(lb: &LoadBalancer) -> Value {
    serde_json::to_value(&lb.status).unwrap()
}

fn ready(lb: &LoadBalancer) -> Condition {
    let conditions = lb.status.as_ref().unwrap().conditions.as_ref().unwrap();
    condition::find(conditions, READY).unwrap().clone()
}

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
                ExtraCondition {
                    type_: ADDRESS_LOST,
                    message: Some("x".repeat(5000)),
                },
                ExtraCondition {
                    type_: BACKENDS_LEFT_OUT,
                    message: None,
                },
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
            ExtraCondition {
                type_: ADDRESS_OUT_OF_POOL,
                message: None,
            },
            ExtraCondition {
                type_: BACKENDS_LEFT_OUT,
                message: Some("5 more".into()),
            },
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
        extras: vec![ExtraCondition {
            type_: ADDRESS_LOST,
            message: Some(long.clone()),
        }],
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

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: (!reason.is_empty()).then(|| reason.into()),
        message: Some(message.into()),
        ..Condition::default()
    }
}

#[test]
fn section_9_events_of_refusals_and_recoveries() {
    let ok = || condition(READY, "True", "Ready", "");
    let no = |reason: &str| condition(READY, "False", reason, "why");
    let waiting = || no(WAITING_FOR_EXTERNAL_IP);
    let warning = |reason: &str, text: &str| {
        vec![EventDraft {
            warning: true,
            reason: reason.into(),
            text: text.into(),
        }]
    };
    let recovery = |reason: &str, from: &str| {
        vec![EventDraft {
            warning: false,
            reason: reason.into(),
            text: format!("no longer {from}"),
        }]
    };
    let cases = [
        ("the first Ready is none", None, ok(), vec![]),
        (
            "the first refusal",
            None,
            no("NoAvailableIP"),
            warning("NoAvailableIP", "why"),
        ),
        (
            "a refusal",
            Some(ok()),
            no(NO_BACKEND),
            warning(NO_BACKEND, "why"),
        ),
        ("once", Some(no(NO_BACKEND)), no(NO_BACKEND), vec![]),
        (
            "once, whatever the message says",
            Some(condition(READY, "False", NO_BACKEND, "old words")),
            no(NO_BACKEND),
            vec![],
        ),
        (
            "another refusal",
            Some(no(NO_BACKEND)),
            no(BACKENDS_UNHEALTHY),
            warning(BACKENDS_UNHEALTHY, "why"),
        ),
        (
            "a recovery",
            Some(no(NO_BACKEND)),
            ok(),
            recovery("Ready", NO_BACKEND),
        ),
        ("once", Some(ok()), ok(), vec![]),
        ("a step on the way", None, waiting(), vec![]),
        (
            "a step after a refusal",
            Some(no("NoAvailableIP")),
            waiting(),
            recovery(WAITING_FOR_EXTERNAL_IP, "NoAvailableIP"),
        ),
        (
            "a step back",
            Some(ok()),
            waiting(),
            warning(WAITING_FOR_EXTERNAL_IP, "why"),
        ),
        ("Ready after a step", Some(waiting()), ok(), vec![]),
        (
            "a refusal after a step",
            Some(waiting()),
            no(NO_BACKEND),
            warning(NO_BACKEND, "why"),
        ),
        (
            "what the Go operator left without a reason",
            Some(condition(READY, "True", "", "")),
            ok(),
            vec![],
        ),
        (
            "a refusal that the Go operator left without a reason",
            Some(condition(READY, "False", "", "old words")),
            ok(),
            vec![EventDraft {
                warning: false,
                reason: "Ready".into(),
                text: "ready again".into(),
            }],
        ),
    ];
    for (what, before, after, expected) in cases {
        let before = before.map(|b| vec![b]);
        assert_eq!(
            event_drafts(before.as_deref(), &[after]),
            expected,
            "{what}"
        );
    }
}

#[test]
fn section_9_the_first_health_checks_are_a_step_on_the_way() {
    let ok = || vec![condition(READY, "True", "Ready", "")];
    let waiting = || vec![condition(READY, "False", WAITING_FOR_EXTERNAL_IP, "why")];
    // With any message.
    let failing = || vec![condition(READY, "False", BACKENDS_UNHEALTHY, "why")];
    let first = || {
        let marker = condition(FIRST_HEALTH_CHECKS, "True", FIRST_HEALTH_CHECKS, "");
        [failing(), vec![marker]].concat()
    };
    let warns = |before: Option<&[Condition]>, after: &[Condition]| -> Vec<bool> {
        event_drafts(before, after)
            .iter()
            .map(|n| n.warning)
            .collect()
    };
    assert!(warns(None, &first()).is_empty());
    assert!(warns(Some(&waiting()), &first()).is_empty());
    assert!(warns(Some(&first()), &first()).is_empty());
    assert!(warns(Some(&first()), &ok()).is_empty());
    assert_eq!(warns(Some(&first()), &failing()), [true]);
    assert!(warns(Some(&failing()), &failing()).is_empty());
    assert_eq!(warns(Some(&failing()), &ok()), [false], "a recovery");
    assert_eq!(warns(Some(&ok()), &first()), [true], "it was ready before");
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
fn section_9_further_conditions_are_events_when_they_begin() {
    let ok = condition(READY, "True", "Ready", "");
    let lost = condition(
        ADDRESS_LOST,
        "True",
        ADDRESS_LOST,
        "10.0.0.1 belongs to another",
    );
    let expected = [EventDraft {
        warning: true,
        reason: ADDRESS_LOST.into(),
        text: "10.0.0.1 belongs to another".into(),
    }];
    let before = [ok.clone()];
    let after = [ok.clone(), lost];
    assert_eq!(event_drafts(Some(&before), &after), expected);
    assert_eq!(event_drafts(None, &after), expected);
    assert_eq!(event_drafts(Some(&after), &after), []);
    assert_eq!(
        event_drafts(Some(&after), &before),
        [],
        "nothing when they end"
    );
}

#[test]
fn be_8_each_new_message_is_an_event_and_the_same_is_none() {
    let ok = condition(READY, "True", "Ready", "");
    let refused = |who| {
        condition(
            BACKEND_ADDRESS_REFUSED,
            "True",
            BACKEND_ADDRESS_REFUSED,
            who,
        )
    };
    let [one, two] = ["a", "a; b"].map(|who| [ok.clone(), refused(who)]);
    assert_eq!(event_drafts(Some(&one), &one), []);
    let expected = EventDraft {
        warning: true,
        reason: BACKEND_ADDRESS_REFUSED.into(),
        text: "a; b".into(),
    };
    assert_eq!(event_drafts(Some(&one), &two), [expected]);
    // Other conditions cause an Event only when they appear.
    let left_out = |many| condition(BACKENDS_LEFT_OUT, "True", BACKENDS_LEFT_OUT, many);
    assert_eq!(event_drafts(Some(&[left_out("1")]), &[left_out("2")]), []);
}

/// The condition as the version before stored it, and what this version says in the same situation.
fn reworded() -> Vec<(&'static str, &'static str, StatusUpdate)> {
    use harvester_lb_ipam::{AddressConflict, Explanation, OwnerId, PoolVerdict, Verdict};

    use crate::backends::DiscoveredBackends;
    use crate::readiness::{extras, waiting_for_external_ip};
    use crate::unsupported::Unsupported;

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
    let extra = |out_of_pool: bool| StatusUpdate {
        extras: extras(
            (!out_of_pool).then_some(&address_conflict),
            Some("10.0.0.9"),
            out_of_pool,
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
            "LoadBalancer shop/web: this version does not support the lease of IPAllocation dhcp-u; nothing of the load balancer is made, changed or released",
            not(
                UNSUPPORTED_ANNOTATION,
                &format!(
                    "LoadBalancer shop/web: {}",
                    Unsupported::Lease("dhcp-u".to_owned())
                ),
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
            extra(true),
        ),
        (
            ADDRESS_LOST,
            "10.0.0.7 belongs to LoadBalancer shop/api; 10.0.0.9 was given instead",
            extra(false),
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
