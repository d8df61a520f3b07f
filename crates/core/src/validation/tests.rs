use fastrand::Rng;
use harvester_lb_fixtures::{listener, with};
use serde_json::{Value, json};

use super::*;
use crate::spec;

fn lb(spec: &Value) -> LoadBalancer {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u-1"}, "spec": spec,
    }))
    .unwrap()
}

/// Rule, field, value, and the severity for admission and for the operator.
fn rows(found: &[Violation]) -> Vec<(&'static str, String, String, Severity, Severity)> {
    let row = |v: &Violation| {
        (
            v.rule(),
            v.field(),
            v.value(),
            v.severity(Consumer::Admission),
            v.severity(Consumer::Operator),
        )
    };
    found.iter().map(row).collect()
}

#[test]
fn val_1_every_violation_in_the_order_of_the_rules() {
    use Severity::{Accept, Refuse, Warn};
    let all = lb(&json!({
        "listeners": [
            listener("a", "TCP", 0, 8080),
            listener("b", "udp", 70000, 8080),
            listener("a", "TCP", 81, 8080),
            listener("c", "TCP", 81, -1),
        ],
        "backendServerSelector": {"app": [], "tier": ["x"], "zone": []},
        "healthCheck": {"port": 9, "periodSeconds": 0},
    }));
    let expected = [
        ("WV-2", "spec.listeners[2].name", "a", Refuse, Refuse),
        (
            "WV-4",
            "spec.listeners[2].backendPort",
            "8080",
            Refuse,
            Accept,
        ),
        ("WV-3", "spec.listeners[3].port", "81", Refuse, Refuse),
        ("WV-5", "spec.listeners[0].port", "0", Refuse, Refuse),
        ("8.2", "spec.listeners[1].protocol", "udp", Warn, Refuse),
        ("WV-5", "spec.listeners[1].port", "70000", Refuse, Refuse),
        (
            "WV-5",
            "spec.listeners[3].backendPort",
            "-1",
            Refuse,
            Refuse,
        ),
        (
            "BE-1",
            "spec.backendServerSelector[\"app\"]",
            "[]",
            Warn,
            Refuse,
        ),
        ("WV-6", "spec.healthCheck.port", "9", Refuse, Warn),
    ]
    .map(|(rule, field, value, admission, operator)| {
        (
            rule,
            field.to_owned(),
            value.to_owned(),
            admission,
            operator,
        )
    });
    assert_eq!(rows(&validate(&all)), expected);
}

#[test]
fn shr_1_a_request_to_share_that_only_an_edit_cures_is_denied_and_not_refused_by_the_operator() {
    use Severity::{Accept, Refuse};
    let long = format!("a/{}", "x".repeat(1_000));
    let dhcp = json!({"listeners": [tcp(80, 8080)], "ipam": "dhcp"});
    let pool = json!({"listeners": [tcp(80, 8080)]});
    for (value, requested, spec, shown) in [
        ("other", None, &pool, None),
        ("other", Some("10.0.0.9"), &pool, Some("other")),
        ("other", None, &dhcp, Some("other")),
        ("web", None, &pool, Some("web")),
        ("", None, &pool, Some("")),
        (&*long, None, &pool, Some(&long[..64])),
    ] {
        let mut lb = lb(spec);
        let annotations = lb.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::ANNOTATION_PRIMARY.to_owned(), value.to_owned());
        annotations.extend(requested.map(|address| {
            let key = keys::ANNOTATION_REQUESTED_ADDRESS.to_owned();
            (key, address.to_owned())
        }));
        let field = format!("metadata.annotations[{}]", keys::ANNOTATION_PRIMARY);
        let expected = shown.map(|shown| ("SHR-1", field, shown.to_owned(), Refuse, Accept));
        let found = validate(&lb);
        assert_eq!(rows(&found), Vec::from_iter(expected), "{value}");
        // It has a condition of its own, and is served with its own address.
        assert!(spec::check(&lb).is_ok(), "{value}");
        let condition = membership::fault_of(&lb).map(|why| why.to_string());
        assert_eq!(found.first().map(Violation::to_string), condition);
    }
}

#[test]
fn dhc_1_a_hardware_address_that_no_client_can_have_is_refused_where_a_lease_is_asked_for() {
    use Severity::Refuse;
    let format = "write six pairs of hexadecimal digits";
    let (zero, multicast) = ("write that of the reservation", "whose first byte is even");
    let long = "é".repeat(1_000);
    let dhcp = json!({"listeners": [tcp(80, 8080)], "ipam": "dhcp"});
    let pool = json!({"listeners": [tcp(80, 8080)]});
    let cluster = json!({"workloadType": "cluster", "ipam": "dhcp"});
    for (value, spec, expected) in [
        ("02:00:5e:10:00:01", &dhcp, None),
        (" 02-00-5E-10-00-01\n", &dhcp, None),
        ("", &dhcp, Some(("", format))),
        ("02:00:5e:10:00", &dhcp, Some(("02:00:5e:10:00", format))),
        (
            "00:00:00:00:00:00",
            &dhcp,
            Some(("00:00:00:00:00:00", zero)),
        ),
        (
            "ff:ff:ff:ff:ff:ff",
            &dhcp,
            Some(("ff:ff:ff:ff:ff:ff", multicast)),
        ),
        (
            "01:00:5e:00:00:01",
            &dhcp,
            Some(("01:00:5e:00:00:01", multicast)),
        ),
        (&*long, &dhcp, Some((&long[..128], format))),
        // No client of ours leases an address for these.
        ("x", &pool, None),
        ("x", &cluster, None),
    ] {
        let mut lb = lb(spec);
        let annotations = lb.metadata.annotations.get_or_insert_default();
        let key = keys::ANNOTATION_DHCP_HARDWARE_ADDRESS;
        annotations.insert(key.to_owned(), value.to_owned());
        let found = validate(&lb);
        let field = format!("metadata.annotations[{key}]");
        let row = expected.map(|(shown, _)| ("DHC-1", field, shown.to_owned(), Refuse, Refuse));
        assert_eq!(rows(&found), Vec::from_iter(row), "{value}");
        let refusal = spec::check(&lb).err();
        assert_eq!(refusal.is_some(), expected.is_some(), "{value}");
        let Some(((_, problem), refusal)) = expected.zip(refusal) else {
            continue;
        };
        assert_eq!(refusal.reason(), "InvalidHardwareAddress");
        let text = refusal.to_string();
        assert!(text.starts_with(&format!("annotation {key}: ")), "{text}");
        assert!(text.contains(problem) && text.len() < 512, "{text}");
    }
}

/// Asserts the rules that each spec violates.
fn assert_rules(cases: &[(&str, Value, &[&str])]) {
    for (what, spec, expected) in cases {
        let found = validate(&lb(spec));
        let rules: Vec<&str> = found.iter().map(Violation::rule).collect();
        assert_eq!(rules, *expected, "{what}");
    }
}

/// A TCP listener, with a name of its own.
fn tcp(port: i64, backend_port: i64) -> Value {
    let name = format!("n{port}-{backend_port}");
    listener(&name, "TCP", port, backend_port)
}

/// A valid health check of port 8080 with other values of these fields.
fn check_with(other: Value) -> Value {
    let check = json!({"port": 8080, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3});
    with(check, other)
}

/// A spec with a listener from 80 to 8080 and this health check.
fn checked(check: &Value) -> Value {
    json!({"listeners": [tcp(80, 8080)], "healthCheck": check})
}

#[test]
fn wv_1_vm_type_has_a_listener() {
    let cluster = json!({
        "workloadType": "cluster", "listeners": [tcp(0, 0), tcp(0, 0)], "healthCheck": {"port": -1},
    });
    assert_rules(&[
        ("one", json!({"listeners": [tcp(80, 8080)]}), &[]),
        ("none", json!({"listeners": []}), &["WV-1"]),
        ("absent", json!({}), &["WV-1"]),
        ("cluster type skips all rules of listeners", cluster, &[]),
    ]);
}

#[test]
fn wv_2_names_are_unique() {
    let unnamed = json!([{"port": 1, "backendPort": 1}, {"port": 2, "backendPort": 2}]);
    let rules = ["WV-2", "8.2", "8.2"];
    assert_rules(&[("two unnamed", json!({"listeners": unnamed}), &rules)]);
}

#[test]
fn section_8_2_a_port_of_a_service_can_have_the_name() {
    use Severity::{Accept, Warn};
    let long = "x".repeat(64);
    let named = |name: &str| listener(name, "TCP", 80, 8080);
    for (name, is_usable) in [
        ("http", true),
        ("443-tcp", true),
        (&long[..63], true),
        (&long, false),
        ("HTTP", false),
        ("web_1", false),
        ("web.1", false),
        ("-http", false),
        // A Service with one port needs no name.
        ("", true),
    ] {
        let found = validate(&lb(&json!({"listeners": [named(name)]})));
        let field = "spec.listeners[0].name".to_owned();
        let expected = (!is_usable).then(|| ("8.2", field, name.to_owned(), Warn, Accept));
        assert_eq!(rows(&found), Vec::from_iter(expected), "{name}");
    }
    let listeners = json!([named(""), listener("https", "TCP", 443, 8443)]);
    let found = validate(&lb(&json!({ "listeners": listeners })));
    let message = "spec.listeners[0].name is \"\": each of several listeners needs a name";
    assert_eq!(
        found.first().map(Violation::to_string).as_deref(),
        Some(message)
    );
    assert_eq!(found.len(), 1);
}

#[test]
fn wv_3_protocol_and_port_are_unique() {
    let absent = json!({"name": "x", "protocol": "", "port": 80, "backendPort": 2});
    let both = [listener("a", "TCP", 53, 53), listener("b", "UDP", 53, 53)];
    assert_rules(&[
        ("TCP 53 and UDP 53", json!({"listeners": both}), &[]),
        (
            "TCP 80 twice",
            json!({"listeners": [tcp(80, 1), tcp(80, 2)]}),
            &["WV-3"],
        ),
        (
            "an absent protocol is TCP",
            json!({"listeners": [tcp(80, 1), absent]}),
            &["WV-3"],
        ),
    ]);
}

#[test]
fn wv_4_protocol_and_backend_port_repeat() {
    let same = json!({"listeners": [tcp(80, 8080), tcp(81, 8080)]});
    assert_rules(&[("80 and 81 to 8080", same, &["WV-4"])]);
}

#[test]
fn wv_5_ports() {
    let ends = json!({"listeners": [tcp(1, 65535), tcp(65535, 1)]});
    assert_rules(&[
        ("ports 1 and 65535", ends, &[]),
        ("port 0", json!({"listeners": [tcp(0, 1)]}), &["WV-5"]),
        (
            "port 65536",
            json!({"listeners": [tcp(65536, 1)]}),
            &["WV-5"],
        ),
        (
            "backend port 65536",
            json!({"listeners": [tcp(1, 65536)]}),
            &["WV-5"],
        ),
    ]);
}

#[test]
fn wv_6_the_port_of_the_check_is_the_backend_port_of_a_tcp_listener() {
    let udp = listener("dns", "UDP", 53, 8080);
    let of_udp = json!({"listeners": [udp], "healthCheck": check_with(json!({}))});
    assert_rules(&[
        ("backend port", checked(&check_with(json!({}))), &[]),
        (
            "port of the listener",
            checked(&check_with(json!({"port": 80}))),
            &["WV-6"],
        ),
        ("backend port of UDP", of_udp, &["WV-6"]),
        ("no port", checked(&json!({"port": 65536})), &["WV-6"]),
        (
            "no health check",
            checked(&json!({"port": 0, "periodSeconds": 0})),
            &[],
        ),
    ]);
}

#[test]
fn wv_7_the_numbers_of_the_check_are_at_least_1() {
    for field in [
        "successThreshold",
        "failureThreshold",
        "periodSeconds",
        "timeoutSeconds",
    ] {
        let one = checked(&check_with(json!({ field: 1 })));
        let zero = checked(&check_with(json!({ field: 0 })));
        assert_rules(&[(field, one, &[]), (field, zero, &["WV-7"])]);
    }
    let port = checked(&json!({"port": 9}));
    assert_rules(&[("only once WV-6 is satisfied", port, &["WV-6"])]);
}

#[test]
fn wv_8_and_wv_9_what_stays_and_what_may_change() {
    let rules = |before: Value, after: Value| -> Vec<&str> {
        let found = validate_update(&lb(&before), &lb(&after));
        found.iter().map(Violation::rule).collect()
    };
    assert!(rules(json!({}), json!({"ipam": "pool", "workloadType": "vm"})).is_empty());
    assert!(rules(json!({"ipam": "pool", "workloadType": "vm"}), json!({})).is_empty());
    assert_eq!(rules(json!({}), json!({"ipam": "dhcp"})), ["WV-8"]);
    assert_eq!(rules(json!({"ipam": "dhcp"}), json!({})), ["WV-8"]);
    assert_eq!(
        rules(
            json!({"workloadType": "cluster"}),
            json!({"ipam": "dhcp", "workloadType": "vm"})
        ),
        ["WV-8", "WV-9"]
    );
    let found = validate_update(&lb(&json!({})), &lb(&json!({"ipam": "dhcp"})));
    assert_eq!(
        found[0].to_string(),
        "spec.ipam cannot be changed from pool to dhcp: delete the load balancer and create it again"
    );
}

/// Whether the first version of the operator served it: that version's checks in its order.
fn was_served(lb: &LoadBalancer) -> bool {
    if lb.spec.workload() == WorkloadType::Cluster {
        return true;
    }
    let listeners = lb.spec.listeners.as_deref().unwrap_or_default();
    let (mut names, mut served) = (HashSet::new(), HashSet::new());
    let in_range = |port: i64| (1..=65535).contains(&port);
    let sound = |l: &Listener| {
        let protocol = match &*l.protocol {
            "" => "TCP",
            other => other,
        };
        ["TCP", "UDP", "SCTP"].contains(&protocol) && in_range(l.port) && in_range(l.backend_port)
    };
    !listeners.is_empty()
        && listeners.iter().all(sound)
        && listeners.iter().all(|l| {
            let protocol = if l.protocol.is_empty() {
                "TCP"
            } else {
                l.protocol.as_str()
            };
            names.insert(l.name.clone().unwrap_or_default())
                && served.insert((protocol.to_owned(), l.port))
        })
        && lb
            .spec
            .backend_server_selector
            .iter()
            .flatten()
            .all(|(_, values)| !values.is_empty())
        && lb
            .spec
            .health_check
            .as_ref()
            .and_then(|c| c.port)
            .is_none_or(|port| (0..=65535).contains(&port))
}

fn one_of<T: Clone>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())].clone()
}

/// A random spec; about half of them are served.
fn any_spec(rng: &mut Rng) -> Value {
    let port = |rng: &mut Rng| match rng.u8(..20) {
        0 => one_of(rng, &[0, -1, 65535, 65536]),
        _ => rng.i64(80..86),
    };
    let listener = |rng: &mut Rng| {
        let names = [json!("a"), json!("b"), json!("c"), json!(""), json!(null)];
        let protocols = ["TCP", "TCP", "TCP", "TCP", "TCP", "UDP", "SCTP", "", "tcp"];
        json!({
            "name": one_of(rng, &names), "protocol": one_of(rng, &protocols),
            "port": port(rng), "backendPort": port(rng),
        })
    };
    let listeners: Vec<Value> = (0..rng.usize(..4)).map(|_| listener(rng)).collect();
    let selectors = [
        json!(null),
        json!({"app": ["web"]}),
        json!({"app": ["web"], "tier": ["x", "y"]}),
        json!({"app": []}),
    ];
    let checks = [
        json!(null),
        json!({"periodSeconds": 1}),
        json!({"port": port(rng), "periodSeconds": rng.i64(-1..3)}),
        json!({"port": port(rng)}),
    ];
    let types = [json!(null), json!("vm"), json!("vm"), json!("cluster")];
    json!({
        "listeners": listeners,
        "backendServerSelector": one_of(rng, &selectors),
        "healthCheck": one_of(rng, &checks),
        "workloadType": one_of(rng, &types),
    })
}

#[test]
fn val_1_what_was_served_is_served_and_nothing_else() {
    let mut seen = [0, 0, 0];
    for seed in 0..5_000 {
        let spec = any_spec(&mut Rng::with_seed(seed));
        let lb = lb(&spec);
        let found = validate(&lb);
        let meant = |severity| {
            found
                .iter()
                .any(|v| v.severity(Consumer::Operator) == severity)
        };
        let (refused, warned) = (meant(Severity::Refuse), meant(Severity::Warn));
        assert_eq!(refused, !was_served(&lb), "seed {seed}: {found:?}, {spec}");
        // A spec that passes validation can be parsed.
        let checked = spec::check(&lb);
        assert_eq!(checked.is_err(), refused, "seed {seed}: {spec}");
        if let Ok(checked) = checked {
            let mismatch = checked.vm.is_some_and(|vm| vm.mismatch.is_some());
            assert_eq!(mismatch, warned, "seed {seed}: {spec}");
        }
        seen[usize::from(refused)] += 1;
        seen[2] += usize::from(warned);
    }
    assert!(
        seen.iter().all(|n| *n > 200),
        "of each kind enough: {seen:?}"
    );
}
