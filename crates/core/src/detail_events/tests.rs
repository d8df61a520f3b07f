use serde_json::{Value, json};

use super::*;

fn lb(status: &Value) -> LoadBalancer {
    serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {}, "status": status}))
        .unwrap()
}

/// A status with this `BackendsHealthy`.
fn health(status: &str, reason: &str, message: &str) -> Value {
    let type_ = "BackendsHealthy";
    json!({"conditions": [{"type": type_, "status": status, "reason": reason, "message": message}]})
}

fn told(before: &Value, after: &Value) -> Vec<(bool, String, String)> {
    let drafts = event_drafts(&lb(before), &lb(after));
    let parts = |d: EventDraft| (d.warning, d.reason, d.text);
    drafts.into_iter().map(parts).collect()
}

#[test]
fn detail_event_of_an_address_once() {
    let pool = |ip: &str| json!({"allocatedAddress": {"ip": ip, "ipPool": "lan"}});
    let dhcp = |address: &str| json!({"allocatedAddress": {"ip": "0.0.0.0"}, "address": address});
    let cases = [
        (json!({}), pool("10.0.0.2"), Some("10.0.0.2 of pool lan")),
        (pool("10.0.0.2"), pool("10.0.0.2"), None),
        (pool("10.0.0.2"), json!({}), None),
        (
            pool("10.0.0.2"),
            pool("10.0.0.3"),
            Some("10.0.0.3 of pool lan, instead of 10.0.0.2"),
        ),
        (json!({}), dhcp(""), None),
        (dhcp(""), dhcp("10.1.0.9"), Some("10.1.0.9 by DHCP")),
        (dhcp("10.1.0.9"), dhcp("10.1.0.9"), None),
        (
            dhcp("10.1.0.9"),
            dhcp("10.1.0.8"),
            Some("10.1.0.8 by DHCP, instead of 10.1.0.9"),
        ),
    ];
    for (before, after, text) in cases {
        let expected = text.map(|text| (false, "AddressAllocated".into(), text.into()));
        assert_eq!(
            told(&before, &after),
            Vec::from_iter(expected),
            "{before} {after}"
        );
    }
}

#[test]
fn detail_events_of_a_backend_out_and_back() {
    let ok = health("True", "BackendsHealthy", "3 of 3");
    let some = |message: &str| health("False", "SomeBackendsUnhealthy", message);
    let two = some("2 of 3; b: timed out");
    let one = some("1 of 3; a: timed out; b: timed out");
    let none = health("False", "BackendsUnhealthy", "0 of 3; a: timed out");
    let first = health(
        "Unknown",
        "FirstHealthChecks",
        "1 of 3; a: no health check result yet",
    );
    let stale = health(
        "Unknown",
        "HealthChecksStale",
        "3 of 3; a: its health checks cannot be started",
    );
    let cases = [
        (&ok, &two, Some((true, "BackendUnhealthy"))),
        (&two, &two, None),
        (&two, &one, Some((true, "BackendUnhealthy"))),
        (&one, &two, Some((false, "BackendHealthy"))),
        (&two, &ok, Some((false, "BackendHealthy"))),
        (
            &two,
            &some("2 of 3; a: timed out"),
            Some((true, "BackendUnhealthy")),
        ),
        // One that was out is deleted, or a further one is out that is new.
        (
            &two,
            &health("True", "BackendsHealthy", "2 of 2"),
            Some((false, "BackendHealthy")),
        ),
        (&two, &some("2 of 4; b: timed out; d: timed out"), None),
        // Events of the condition Ready say these.
        (&two, &none, None),
        (&ok, &none, None),
        (&none, &one, None),
        (&none, &ok, None),
        // Starting up.
        (&first, &ok, None),
        (&first, &two, Some((true, "BackendUnhealthy"))),
        (&ok, &stale, None),
        (&stale, &ok, None),
        // The first after an upgrade, and without backends.
        (&json!({}), &two, None),
        (&health("False", "NoBackend", "none"), &two, None),
        (&two, &health("False", "NoBackend", "none"), None),
    ];
    for (before, after, event) in cases {
        let message = after["conditions"][0]["message"].as_str().unwrap();
        let expected = event.map(|(warning, reason)| (warning, reason.into(), message.into()));
        assert_eq!(
            told(before, after),
            Vec::from_iter(expected),
            "{before} {after}"
        );
    }
}

#[test]
fn detail_event_of_another_node() {
    let draft = announcing_node_changed("node1", "node2");
    assert!(!draft.warning);
    assert_eq!(
        draft.text,
        "kube-vip announces the address from node node2, before from node1"
    );
}
