//! Leader, webhooks and definitions.

use serde_json::Value;

use super::*;
use crate::kinds;
use crate::{Leader, Surroundings, check_surroundings};

/// Kinds and texts of the findings.
fn found(around: &Surroundings, leader: &Leader) -> Vec<(&'static str, String)> {
    let findings = check_surroundings(around, Some(leader));
    let texts = findings.iter();
    texts.map(|f| (f.kind.reason, f.to_string())).collect()
}

fn reasons(around: &Surroundings, leader: &Leader) -> Vec<&'static str> {
    let all = found(around, leader).into_iter();
    all.map(|(reason, _)| reason).collect()
}

fn this() -> Leader {
    Leader::This("harvester-load-balancer-7d9_u".into())
}

/// A webhook about these resources, with the Service hooks/w.
fn webhook(policy: Option<&str>, group: &str, resources: &[&str]) -> Value {
    let mut hook = json!({
        "name": "validator.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "hooks", "name": "w"}},
        "rules": [{
            "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": resources,
        }],
    });
    if let Some(policy) = policy {
        hook["failurePolicy"] = policy.into();
    }
    json!({"metadata": {"name": "conf"}, "webhooks": [hook]})
}

fn with_webhook(webhook: &Value) -> Surroundings {
    Surroundings {
        validating: vec![made(webhook.clone())],
        ..Surroundings::default()
    }
}

#[test]
fn ops_2_a_webhook_that_nobody_serves_blocks_writes() {
    let group = "loadbalancer.harvesterhci.io";
    for (policy, group, resources, blocks) in [
        (Some("Fail"), group, &["loadbalancers"][..], true),
        (None, group, &["ippools"], true),
        (Some("Fail"), "*", &["*"], true),
        (Some("Fail"), "", &["services/*"], true),
        (Some("Ignore"), group, &["loadbalancers"], false),
        (Some("Fail"), "apps", &["deployments"], false),
        (Some("Fail"), "apps", &["*"], false),
    ] {
        let mut around = with_webhook(&webhook(policy, group, resources));
        let expected: &[&str] = if blocks { &["WebhookUnreachable"] } else { &[] };
        let what = format!("{policy:?} {group} {resources:?}");
        assert_eq!(reasons(&around, &this()), expected, "{what}");
        around.ready_services.insert(Key::new("hooks", "w"));
        assert_eq!(reasons(&around, &this()), [""; 0], "{what}");
    }
    let hook = webhook(Some("Fail"), group, &["loadbalancers", "ippools"]);
    let mutating = Surroundings {
        mutating: vec![made(hook)],
        ..Surroundings::default()
    };
    let all = found(&mutating, &this());
    let text = "MutatingWebhookConfiguration conf (section 1): webhook validator.example.org asks Service hooks/w, which has no ready endpoint, about writes of loadbalancers, ippools";
    assert_eq!(all, [("WebhookUnreachable", text.to_owned())]);
    // A URL cannot be judged.
    let mut by_url = webhook(Some("Fail"), "*", &["*"]);
    by_url["webhooks"][0]["clientConfig"] = json!({"url": "https://example.org"});
    assert_eq!(reasons(&with_webhook(&by_url), &this()), [""; 0]);
}

#[test]
fn ops_2_another_operator_is_named() {
    let deployment = |replicas: i64| Surroundings {
        deployment: Some(made(json!({
            "metadata": {"namespace": "harvester-system", "name": "harvester-load-balancer"},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        }))),
        ..Surroundings::default()
    };
    let go = Leader::Go("harvester-load-balancer-7d9".into());
    let elsewhere = Leader::This("harvester-lb-operator-5f_u".into());
    assert_eq!(reasons(&deployment(1), &go), ["GoOperatorLeads"]);
    assert_eq!(reasons(&deployment(1), &this()), [""; 0]);
    assert_eq!(reasons(&deployment(1), &elsewhere), ["OtherDeployment"]);
    assert_eq!(reasons(&deployment(0), &elsewhere), [""; 0]);
    let none = reasons(&deployment(1), &Leader::None);
    assert_eq!(none, ["NoLeader", "OtherDeployment"]);
    let empty = Surroundings::default();
    assert_eq!(reasons(&empty, &Leader::None), ["NoLeader"]);
    // The Lease was not read.
    assert_eq!(check_surroundings(&deployment(1), None), []);
}

fn crd(plural: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.loadbalancer.harvesterhci.io")},
        "spec": {
            "group": "loadbalancer.harvesterhci.io", "scope": "Namespaced",
            "names": {"kind": "K", "plural": plural},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "additionalPrinterColumns": [{"name": "ADDRESS", "type": "string", "jsonPath": ".x"}],
            }],
        },
        "status": {"storedVersions": ["v1beta1"]},
    })
}

#[test]
fn ops_2_definitions_are_checked() {
    let around = |crds: &[Value]| Surroundings {
        crds: crds.iter().cloned().map(made).collect(),
        ..Surroundings::default()
    };
    let harvester = crd("loadbalancers");
    let lb = around(std::slice::from_ref(&harvester));
    assert_eq!(reasons(&lb, &this()), ["CRDOfHarvester"]);
    let mut ours = harvester.clone();
    ours["spec"]["versions"][0]["additionalPrinterColumns"][0]["name"] = "READY".into();
    let records = crd("ipallocations");
    assert_eq!(reasons(&around(&[ours.clone(), records]), &this()), [""; 0]);

    let mut converted = ours;
    converted["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"namespace": "hooks", "name": "w"}},
        "conversionReviewVersions": ["v1"],
    }});
    let mut all = around(std::slice::from_ref(&converted));
    assert_eq!(reasons(&all, &this()), ["ConversionUnreachableUnused"]);
    converted["status"]["storedVersions"] = json!(["v1alpha1", "v1beta1"]);
    let older = around(&[converted]);
    assert_eq!(reasons(&older, &this()), ["ConversionUnreachable"]);
    all.ready_services.insert(Key::new("hooks", "w"));
    assert_eq!(reasons(&all, &this()), [""; 0]);
    assert_eq!(
        kinds::CRD_OF_HARVESTER.class.severity(true).as_str(),
        "info"
    );
}
