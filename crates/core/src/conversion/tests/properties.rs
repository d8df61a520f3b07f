//! What holds for every object: both round trips, metadata untouched, no panic.

use fastrand::Rng;

use super::*;

const OBJECTS: u64 = 4_000;

fn one_of(rng: &mut Rng, of: &[Value]) -> Value {
    of[rng.usize(..of.len())].clone()
}

/// An object of these fields, some of which are missing.
fn some_of(rng: &mut Rng, fields: &[(&str, Value)]) -> Value {
    fields
        .iter()
        .filter(|_| rng.u8(..4) > 0)
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn metadata(rng: &mut Rng) -> Value {
    let fields = [
        ("labels", json!({"a": "b"})),
        ("annotations", json!({"x": "", "y": "{}"})),
        (
            "managedFields",
            json!([{"fieldsV1": {"f:spec": {}}, "time": null}]),
        ),
        ("resourceVersion", json!("7")),
        ("deletionGracePeriodSeconds", json!(0)),
    ];
    with(
        some_of(rng, &fields),
        json!({"namespace": "web", "name": one_of(rng, &[json!("a"), json!("b")])}),
    )
}

fn conditions(rng: &mut Rng) -> Value {
    let status = one_of(rng, &[json!("True"), json!("False")]);
    json!([{"type": "Ready", "status": status, "reason": "r"}])
}

fn address(rng: &mut Rng) -> Value {
    let addresses = ["10.10.9.4", "10.10.9.5", "10.10.9.6", "10.10.9.7", "", "x"];
    json!(addresses[rng.usize(..addresses.len())])
}

fn servers(rng: &mut Rng) -> Value {
    let all = ["10.10.1.7", "10.10.1.8", "10.10.1.9", "10.10.1.99"];
    (0..rng.usize(..4))
        .map(|_| all[rng.usize(..all.len())])
        .collect()
}

fn listeners(rng: &mut Rng, may_lack: &str) -> Value {
    let listener = |n: usize| {
        let mut listener = json!({
            "name": format!("l{n}"), "port": 80 + n, "protocol": "TCP", "backendPort": 8080 + n,
        });
        if rng.u8(..4) == 0 {
            listener.as_object_mut().unwrap().remove(may_lack);
        }
        listener
    };
    (0..3).map(listener).collect()
}

fn health_check(rng: &mut Rng, period: &str) -> Value {
    json!({
        "port": 8080, "successThreshold": rng.u8(..3), "failureThreshold": 2, period: rng.u8(..9), "timeoutSeconds": 1,
    })
}

/// An object that the schema of v1alpha1 admits.
fn any_alpha(rng: &mut Rng) -> Value {
    let spec = [
        ("description", json!("d")),
        ("listeners", listeners(rng, "backendPort")),
        ("backendServers", servers(rng)),
        ("healthCheck", health_check(rng, "PeriodSeconds")),
    ];
    let ipam = one_of(rng, &[json!("pool"), json!("dhcp")]);
    let spec = with(some_of(rng, &spec), json!({"ipam": ipam}));
    let status = [("address", address(rng)), ("conditions", conditions(rng))];
    let status = with(some_of(rng, &status), json!({"address": address(rng)}));
    let parts = [("status", status), ("unknown", json!([1.5]))];
    let parts = with(
        some_of(rng, &parts),
        json!({"spec": spec, "metadata": metadata(rng)}),
    );
    lb(ALPHA, parts)
}

/// An object that the schema of v1beta1 admits.
fn any_beta(rng: &mut Rng) -> Value {
    let check = health_check(rng, "periodSeconds");
    let spec = [
        ("description", json!("d")),
        ("ipam", one_of(rng, &[json!("pool"), json!("dhcp")])),
        (
            "workloadType",
            one_of(rng, &[json!("vm"), json!("cluster")]),
        ),
        ("ipPool", json!("p")),
        ("listeners", listeners(rng, "name")),
        ("backendServerSelector", json!({"app": ["web"]})),
        ("healthCheck", check),
    ];
    let status = [
        ("address", address(rng)),
        ("conditions", conditions(rng)),
        ("backendServers", servers(rng)),
        (
            "allocatedAddress",
            json!({"ip": "10.10.9.4", "mask": "255.255.255.0", "ipPool": "p"}),
        ),
    ];
    let parts = json!({
        "spec": some_of(rng, &spec), "status": some_of(rng, &status), "metadata": metadata(rng),
    });
    lb(BETA, parts)
}

/// GEN-1: what a guest cluster of v0.1.x wrote is what it reads.
#[test]
fn gen_1_v1alpha1_comes_back_from_v1beta1() {
    for seed in 0..OBJECTS {
        let before = any_alpha(&mut Rng::with_seed(seed));
        let stored = convert(BETA, &before);
        let after = convert(ALPHA, &stored);
        // An absent backendPort means the port.
        let mut expected = before.clone();
        let listeners = expected["spec"].get_mut("listeners");
        for listener in listeners
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let port = listener["port"].clone();
            listener
                .as_object_mut()
                .unwrap()
                .entry("backendPort")
                .or_insert(port);
        }
        // The servers are in the status in between.
        assert_eq!(
            after, expected,
            "seed {seed}: {before} was stored as {stored}"
        );
        // The next write of the guest changes nothing that is stored.
        assert_eq!(convert(BETA, &after), stored, "seed {seed}");
        assert_eq!(stored["metadata"], before["metadata"], "seed {seed}");
    }
}

#[test]
fn section_2_4_v1beta1_keeps_address_and_listeners_through_v1alpha1() {
    let mut with_pool = 0;
    for seed in 0..OBJECTS {
        let before = any_beta(&mut Rng::with_seed(seed));
        let read = convert(ALPHA, &before);
        let after = convert(BETA, &read);
        let named = format!("seed {seed}: {before} was read as {read}");
        assert_eq!(read["metadata"], before["metadata"], "{named}");
        assert_eq!(after["metadata"], before["metadata"], "{named}");
        for field in ["address", "conditions", "backendServers"] {
            assert_eq!(
                after["status"].get(field),
                before["status"].get(field),
                "{named}"
            );
        }
        assert_eq!(
            after["spec"].get("description"),
            before["spec"].get("description")
        );
        let mut expected = before["spec"]["listeners"].clone();
        for listener in expected.as_array_mut().into_iter().flatten() {
            let listener = listener.as_object_mut().unwrap();
            listener.entry("name").or_insert(json!(""));
        }
        assert_eq!(after["spec"]["listeners"], expected, "{named}");
        assert_eq!(
            after["spec"].get("healthCheck"),
            before["spec"].get("healthCheck")
        );
        let is_dhcp = before["spec"]["ipam"] == "dhcp";
        assert_eq!(after["spec"]["ipam"], if is_dhcp { "dhcp" } else { "pool" });
        // The pool comes from the IPAllocations, never from the object.
        let name = before["metadata"]["name"].as_str().unwrap();
        let pool = match (name, before["status"]["address"].as_str()) {
            _ if is_dhcp => None,
            ("a", Some("10.10.9.4")) => Some("p"),
            ("a", Some("10.10.9.5")) => Some("q"),
            ("b", Some("10.10.9.6")) => Some("r"),
            _ => None,
        };
        with_pool += usize::from(pool.is_some());
        assert_eq!(after["spec"]["ipPool"], json!(pool), "{named}");
        let allocated = &after["status"]["allocatedAddress"];
        match pool {
            Some(pool) => {
                let address = &before["status"]["address"];
                assert_eq!(*allocated, json!({"ip": address, "ipPool": pool}));
            }
            None if is_dhcp => assert_eq!(*allocated, json!({"ip": "0.0.0.0"})),
            None => assert_eq!(*allocated, Value::Null),
        }
    }
    assert!(with_pool > 300, "only {with_pool} have a pool");
}

/// Any JSON, with the names that matter.
fn any_json(rng: &mut Rng, depth: usize) -> Value {
    const NAMES: [&str; 14] = [
        "spec",
        "status",
        "metadata",
        "namespace",
        "name",
        "ipam",
        "listeners",
        "port",
        "backendPort",
        "backendServers",
        "healthCheck",
        "PeriodSeconds",
        "periodSeconds",
        "address",
    ];
    match rng.u8(..if depth == 0 { 6 } else { 9 }) {
        0 => Value::Null,
        1 => rng.bool().into(),
        2 => rng.i64(-3..3).into(),
        3 => "10.10.1.7".into(),
        4 => "10.10.9.4".into(),
        5 => one_of(
            rng,
            &[json!("pool"), json!("dhcp"), json!(""), json!("\u{0}\"\\")],
        ),
        6 => (0..rng.usize(..4))
            .map(|_| any_json(rng, depth - 1))
            .collect(),
        _ => (0..rng.usize(..6))
            .map(|_| {
                (
                    NAMES[rng.usize(..NAMES.len())].to_owned(),
                    any_json(rng, depth - 1),
                )
            })
            .collect(),
    }
}

#[test]
fn section_2_4_any_object_is_converted_and_its_metadata_untouched() {
    let facts = facts();
    for seed in 0..OBJECTS {
        let rng = &mut Rng::with_seed(seed);
        for (from, to) in [(ALPHA, BETA), (BETA, ALPHA)] {
            let parts: Value = ["spec", "status", "metadata", "x"]
                .map(|name| (name.to_owned(), any_json(rng, 4)))
                .into_iter()
                .collect();
            let before = with(parts, json!({"apiVersion": from, "kind": "LoadBalancer"}));
            let after = convert(to, &before);
            assert_eq!(
                after["metadata"], before["metadata"],
                "seed {seed}: {before}"
            );
            assert_eq!(after["x"], before["x"], "seed {seed}: {before}");
            assert_eq!(after["kind"], before["kind"], "seed {seed}: {before}");
            // Converted, it can be converted back.
            convert(from, &after);
        }
        // As a whole review: an answer or an error.
        let any = any_json(rng, 5).to_string();
        assert!(super::super::review(any.as_bytes(), Some(&facts)).is_err());
        let review = with(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}),
            json!({"request": {"uid": "r", "desiredAPIVersion": BETA, "objects": any_json(rng, 5)}}),
        );
        answer(&review, Some(&facts));
    }
}
