//! The table of section 2.4, row by row, and its example.

mod lookups;
mod properties;
mod reviews;

use harvester_lb_api::kubevirt::VirtualMachineInstance;
use harvester_lb_fixtures::{self as fixtures, with};
use harvester_lb_ipam::addr;
use harvester_lb_object::Key;
use serde_json::{Value, json};

use super::*;
use crate::cached::{Allocation, Vmi};

const ALPHA: &str = "loadbalancer.harvesterhci.io/v1alpha1";
const BETA: &str = "loadbalancer.harvesterhci.io/v1beta1";

fn vmi(object: Value) -> Vmi {
    let object: VirtualMachineInstance = serde_json::from_value(object).unwrap();
    Vmi::from_watch(Ok(object))
}

fn running(namespace: &str, name: &str, address: &str) -> Vmi {
    vmi(fixtures::machine(
        namespace,
        name,
        &json!({}),
        Some(address),
    ))
}

fn add_machine(index: &mut Index, namespace: &str, name: &str, address: &str) {
    let vmi = running(namespace, name, address);
    index.set_virtual_machine(&Key::new(namespace, name), Some(&vmi));
}

fn allocation(address: &str, pool: &str, phase: &str, owner: &str) -> Allocation {
    let (namespace, name) = owner.split_once('/').unwrap();
    let mut object = fixtures::record(address, pool, phase, (namespace, name, "u-1"));
    let addr = addr::parse(address).unwrap();
    object["metadata"]["name"] = addr::record_name(addr).into();
    Allocation::decoded(&serde_json::from_value(object).unwrap())
}

fn add_allocation(index: &mut Index, address: &str, pool: &str, phase: &str, owner: &str) {
    let addr = addr::parse(address).unwrap();
    index.set_allocation(addr, Some(&allocation(address, pool, phase, owner)));
}

/// The cluster of the rules' example, with more virtual machines.
fn facts() -> Index {
    let mut index = Index::default();
    add_machine(&mut index, "web", "vm7", "10.10.1.7");
    add_machine(&mut index, "web", "vm8", "10.10.1.8");
    add_machine(&mut index, "other", "vm9", "10.10.1.9");
    add_allocation(&mut index, "10.10.9.4", "p", "Bound", "web/a");
    add_allocation(&mut index, "10.10.9.5", "q", "Released", "web/a");
    add_allocation(&mut index, "10.10.9.6", "r", "Bound", "web/b");
    add_allocation(&mut index, "fd10::5", "six", "Bound", "web/a");
    index
}

/// A review of these objects.
fn body(desired: &str, objects: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "r-1", "desiredAPIVersion": desired, "objects": objects},
    })
}

/// The response to a review as JSON.
fn answer(review: &Value, facts: Option<&dyn Facts>) -> Value {
    let response = super::review(review.to_string().as_bytes(), facts).unwrap();
    let json: Value = serde_json::from_slice(&response.body).unwrap();
    let is_success = matches!(response.outcome, Outcome::Converted { .. });
    assert_eq!(
        json["response"]["result"]["status"] == "Success",
        is_success
    );
    json
}

/// Converts one object.
fn convert(desired: &str, object: &Value) -> Value {
    let mut answer = answer(&body(desired, std::slice::from_ref(object)), Some(&facts()));
    assert_eq!(
        answer["response"]["result"],
        json!({"status": "Success"}),
        "{answer}"
    );
    answer["response"]["convertedObjects"][0].take()
}

/// LoadBalancer `web/a`, with parts.
fn lb(version: &str, parts: Value) -> Value {
    let base = json!({
        "apiVersion": version, "kind": "LoadBalancer",
        "metadata": {"namespace": "web", "name": "a", "uid": "u-1"},
    });
    with(base, parts)
}

fn parts(spec: Value, status: Value) -> Value {
    let parts = [("spec".to_owned(), spec), ("status".to_owned(), status)];
    Value::Object(parts.into_iter().collect())
}

/// `spec` and `status` of `web/a` after its conversion to v1beta1; null if absent.
fn beta(spec: Value, status: Value) -> (Value, Value) {
    let mut after = convert(BETA, &lb(ALPHA, parts(spec, status)));
    assert_eq!(after["apiVersion"], BETA);
    (after["spec"].take(), after["status"].take())
}

/// `spec` and `status` of `web/a` after its conversion to v1alpha1; null if absent.
fn alpha(spec: Value, status: Value) -> (Value, Value) {
    let mut after = convert(ALPHA, &lb(BETA, parts(spec, status)));
    assert_eq!(after["apiVersion"], ALPHA);
    (after["spec"].take(), after["status"].take())
}

#[test]
fn section_2_4_example_and_back() {
    let original = lb(
        ALPHA,
        json!({
            "spec": {"ipam": "pool", "backendServers": ["10.10.1.7"]},
            "status": {"address": "10.10.9.4"},
        }),
    );
    let converted = convert(BETA, &original);
    assert_eq!(
        converted,
        lb(
            BETA,
            json!({
                "spec": {
                    "ipam": "pool", "ipPool": "p",
                    "backendServerSelector": {"harvesterhci.io/vmName": ["vm7"]},
                },
                "status": {
                    "backendServers": ["10.10.1.7"], "address": "10.10.9.4",
                    "allocatedAddress": {"ip": "10.10.9.4", "ipPool": "p"},
                },
            })
        )
    );
    assert_eq!(convert(ALPHA, &converted), original);
}

#[test]
fn section_2_4_carried_both_ways() {
    let conditions = json!([{"type": "Ready", "status": "True", "message": "m", "later": 1e20}]);
    let spec = json!({"description": "d", "ipam": "dhcp"});
    let status = json!({"address": "172.20.1.9", "conditions": conditions});
    let metadata = json!({
        "namespace": "web", "name": "a", "uid": "u-1", "generation": 3, "labels": {"l": ""},
        "managedFields": [{"apiVersion": ALPHA, "fieldsV1": {"f:spec": {"f:ipam": {}}}}],
        "annotations": {"cloudprovider.harvesterhci.io/service-uuid": "s"},
    });
    for (from, to) in [(ALPHA, BETA), (BETA, ALPHA)] {
        let before = with(
            lb(from, json!({"spec": spec, "status": status})),
            json!({"metadata": metadata, "unknown": [1, {}]}),
        );
        let mut after = convert(to, &before);
        if to == BETA {
            let allocated = after["status"]["allocatedAddress"].take();
            assert_eq!(allocated, json!({"ip": "0.0.0.0"}));
            let fields = after["status"].as_object_mut().unwrap();
            fields.remove("allocatedAddress");
        }
        assert_eq!(after, with(before, json!({"apiVersion": to})));
    }
}

#[test]
fn section_2_4_text_is_not_rewritten() {
    let metadata = r#"{ "name":"a","annotations":{"n":"\u0041\ud800"}, "x":1e400,"y":12345678901234567890123}"#;
    let object = format!(
        r#"{{"apiVersion":"{BETA}","kind":"LoadBalancer","metadata":{metadata},"spec":{{}}}}"#
    );
    let review = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"r","desiredAPIVersion":"{ALPHA}","objects":[{object}]}}}}"#
    );
    let response = super::review(review.as_bytes(), None).unwrap();
    let text = String::from_utf8(response.body).unwrap();
    assert!(text.contains(metadata), "{text}");
}

#[test]
fn section_2_4_listeners() {
    let listeners = |l: &[Value]| json!({"ipam": "pool", "listeners": l});
    let full = json!({"name": "http", "port": 80, "protocol": "UDP", "backendPort": 8080});
    let without = json!({"name": "", "port": 81, "protocol": "TCP"});
    let null = json!({"name": "n", "port": 82, "protocol": "TCP", "backendPort": null});
    let (spec, _) = beta(listeners(&[full.clone(), without, null]), json!({}));
    assert_eq!(
        spec["listeners"],
        json!([
            full,
            {"name": "", "port": 81, "protocol": "TCP", "backendPort": 81},
            {"name": "n", "port": 82, "protocol": "TCP", "backendPort": 82},
        ])
    );
    let unnamed = json!({"port": 80, "protocol": "TCP", "backendPort": 8080});
    let null = with(unnamed.clone(), json!({"name": null}));
    let (spec, _) = alpha(listeners(&[full.clone(), unnamed.clone(), null]), json!({}));
    let named = with(unnamed, json!({"name": ""}));
    assert_eq!(spec["listeners"], json!([full, named, named]));
}

#[test]
fn section_2_4_backend_servers_to_selector_in_the_order_of_the_addresses() {
    let cases = [
        (json!(["10.10.1.8", "10.10.1.7"]), json!(["vm8", "vm7"])),
        // Unknown, of another namespace, no address, no text: left out. Each once.
        (
            json!([
                "10.10.1.99",
                "10.10.1.9",
                "x",
                7,
                "::1",
                "10.10.1.7",
                "10.10.1.7"
            ]),
            json!(["vm7"]),
        ),
        // No selector, because an empty list would be an invalid one.
        (json!(["10.10.1.99"]), Value::Null),
        (json!([]), Value::Null),
        (json!("10.10.1.7"), Value::Null),
    ];
    for (servers, names) in cases {
        let (spec, status) = beta(
            json!({"ipam": "pool", "backendServers": servers}),
            json!({}),
        );
        let selector = &spec["backendServerSelector"];
        assert_eq!(selector["harvesterhci.io/vmName"], names, "{servers}");
        assert_eq!(selector.is_null(), names.is_null(), "{servers}");
        assert_eq!(spec.get("backendServers"), None);
        assert_eq!(status["backendServers"], servers);
        // Back, whatever they are.
        let (spec, status) = alpha(json!({"ipam": "pool"}), status);
        assert_eq!(spec["backendServers"], servers);
        assert_eq!(status.get("backendServers"), None);
    }
    for absent in [
        json!({"ipam": "pool"}),
        json!({"ipam": "pool", "backendServers": null}),
    ] {
        let (spec, status) = beta(absent, json!({"address": ""}));
        assert_eq!(spec, json!({"ipam": "pool"}));
        assert_eq!(status, json!({"address": ""}));
    }
}

#[test]
fn section_2_4_health_check_keeps_its_period_and_has_no_negative_number() {
    let of_alpha = json!({
        "port": 8080, "successThreshold": 1, "failureThreshold": 2, "PeriodSeconds": 7, "timeoutSeconds": 3,
    });
    let of_beta = json!({
        "port": 8080, "successThreshold": 1, "failureThreshold": 2, "periodSeconds": 7, "timeoutSeconds": 3,
    });
    let check = |check: &Value| json!({"ipam": "pool", "healthCheck": check});
    assert_eq!(beta(check(&of_alpha), json!({})).0["healthCheck"], of_beta);
    assert_eq!(alpha(check(&of_beta), json!({})).0["healthCheck"], of_alpha);

    let negative = json!({
        "port": -1, "successThreshold": -2, "failureThreshold": -3, "PeriodSeconds": -4, "timeoutSeconds": -0.5,
    });
    let zeros = json!({
        "port": 0, "successThreshold": 0, "failureThreshold": 0, "periodSeconds": 0, "timeoutSeconds": 0,
    });
    assert_eq!(beta(check(&negative), json!({})).0["healthCheck"], zeros);
    // v1alpha1 requires all five numbers; 0 means the same as absent.
    let zeros = json!({
        "port": 9, "successThreshold": 0, "failureThreshold": 0, "PeriodSeconds": 0, "timeoutSeconds": 0,
    });
    let only_port = check(&json!({"port": 9, "successThreshold": null, "timeoutSeconds": -1}));
    assert_eq!(alpha(only_port, json!({})).0["healthCheck"], zeros);
    // Of both names the one of the version counts.
    let both = json!({"port": 9, "PeriodSeconds": 4, "periodSeconds": 5});
    let periods = |after: &Value| {
        (
            after.get("PeriodSeconds").cloned(),
            after.get("periodSeconds").cloned(),
        )
    };
    let after = beta(check(&both), json!({})).0;
    assert_eq!(periods(&after["healthCheck"]), (None, Some(json!(4))));
    let after = alpha(check(&both), json!({})).0;
    assert_eq!(periods(&after["healthCheck"]), (Some(json!(5)), None));
}

#[test]
fn section_2_4_the_pool_of_an_address() {
    let cases = [
        ("10.10.9.4", Some("p")),
        // Released: history.
        ("10.10.9.5", Some("q")),
        // Of another load balancer, of none, no address.
        ("10.10.9.6", None),
        ("10.10.9.7", None),
        ("0.0.0.0", None),
        ("", None),
        ("10.10.9.04", None),
        // The status of an IPv6 address need not be canonical, the result is.
        ("FD10:0::5", Some("six")),
    ];
    for (address, pool) in cases {
        for ipam in [json!("pool"), Value::Null] {
            let spec = json!({"ipam": ipam});
            let (spec, status) = beta(spec, json!({"address": address}));
            assert_eq!(status["address"], address);
            let expected = pool.map_or(Value::Null, |pool| {
                let ip = addr::parse(address).unwrap().to_string();
                json!({"ipPool": pool, "ip": ip})
            });
            assert_eq!(spec["ipPool"], json!(pool), "{address}");
            assert_eq!(status["allocatedAddress"], expected, "{address}");
            assert_eq!(spec.get("ipPool").is_some(), pool.is_some());
            assert_eq!(status.get("allocatedAddress").is_some(), pool.is_some());
        }
    }
}

#[test]
fn section_2_4_dhcp_has_no_pool() {
    for status in [json!({"address": "10.10.9.4"}), json!({}), Value::Null] {
        let (spec, after) = beta(json!({"ipam": "dhcp"}), status);
        assert_eq!(spec, json!({"ipam": "dhcp"}));
        assert_eq!(after["allocatedAddress"], json!({"ip": "0.0.0.0"}));
    }
}

#[test]
fn section_2_4_fields_of_v1beta1_alone_are_dropped() {
    let spec = json!({
        "workloadType": "cluster", "ipPool": "p", "backendServerSelector": {"a": ["b"]}, "ipam": "pool",
        "backendServers": ["10.10.1.99"],
    });
    let status = json!({"allocatedAddress": {"ip": "10.10.9.4"}, "address": "10.10.9.4"});
    let expected = (json!({"ipam": "pool"}), json!({"address": "10.10.9.4"}));
    assert_eq!(alpha(spec.clone(), status.clone()), expected);
    // An object of v1alpha1 cannot bring its own.
    let status = with(
        status,
        json!({"address": "10.10.9.7", "backendServers": ["1.1.1.1"]}),
    );
    let (spec, status) = beta(spec, status);
    assert_eq!(spec, json!({"ipam": "pool"}));
    let servers = json!({"address": "10.10.9.7", "backendServers": ["10.10.1.99"]});
    assert_eq!(status, servers);
}

#[test]
fn section_2_4_absent_parts_and_ipam() {
    let bare = |version: &str| lb(version, json!({}));
    let null = |version: &str| lb(version, json!({"spec": null, "status": null}));
    for before in [bare(ALPHA), null(ALPHA)] {
        let after = convert(BETA, &before);
        // v1beta1 requires a spec.
        assert_eq!(after, lb(BETA, json!({"spec": {}})));
    }
    for before in [bare(BETA), null(BETA)] {
        let after = convert(ALPHA, &before);
        assert_eq!(after, lb(ALPHA, json!({"spec": {"ipam": "pool"}})));
    }
    assert_eq!(alpha(json!({"ipam": null}), json!({})).0["ipam"], "pool");
    // A status that was empty stays, one that has become empty goes.
    assert_eq!(alpha(json!({}), json!({})).1, json!({}));
    let converted = lb(BETA, json!({"status": {"allocatedAddress": {}}}));
    assert_eq!(convert(ALPHA, &converted).get("status"), None);
}

#[test]
fn section_2_4_unexpected_types_hide_no_object() {
    let odd = [json!(7), json!("x"), json!([1]), json!(true), json!([{}])];
    for value in &odd {
        for (from, to) in [(ALPHA, BETA), (BETA, ALPHA)] {
            for part in ["spec", "status"] {
                let after = convert(to, &lb(from, json!({ part: value })));
                assert_eq!(after[part], *value, "{part}");
            }
            for field in ["listeners", "healthCheck", "description"] {
                let before = lb(from, json!({"spec": {"ipam": "pool", field: value}}));
                let after = convert(to, &before);
                let is_completed = field == "listeners" && *value == json!([{}]);
                assert!(is_completed || after["spec"][field] == *value, "{after}");
            }
            let before = lb(from, json!({"metadata": value}));
            assert_eq!(convert(to, &before)["metadata"], *value);
        }
    }
}
