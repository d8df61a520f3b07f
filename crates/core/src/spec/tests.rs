use super::*;
use harvester_lb_fixtures::listener;
use harvester_lb_ipam::Micros;
use serde_json::{Value, json};

/// The load balancer `shop/web` with this spec and the case's additions.
fn lb(spec: &Value) -> LoadBalancer {
    object(&json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u-1"},
        "spec": spec,
    }))
}

fn object(value: &Value) -> LoadBalancer {
    serde_json::from_value(value.clone()).unwrap()
}

/// A load balancer of VM type with these listeners.
fn listening(listeners: &Value) -> LoadBalancer {
    lb(&json!({"listeners": listeners, "backendServerSelector": {"app": ["web"]}}))
}

fn vm(lb: &LoadBalancer) -> VmSpec {
    check(lb).unwrap().vm.unwrap()
}

fn refusal(lb: &LoadBalancer) -> Refusal {
    check(lb).err().unwrap()
}

fn pool_request(lb: &LoadBalancer) -> Request {
    match check(lb).unwrap().source {
        Source::Pool(request) => *request,
        Source::Dhcp => unreachable!("the address comes from a pool"),
    }
}

#[test]
fn section_8_3_the_ports_as_written_and_in_order() {
    let lb = listening(&json!([
        listener("http", "TCP", 80, 8080),
        listener("dns", "UDP", 53, 5353),
        listener("sig", "SCTP", 2905, 1),
        {"name": "last", "port": 65535, "backendPort": 65535},
    ]));
    let port = |name: &str, protocol, port, backend_port| Port {
        name: name.to_owned(),
        protocol,
        port,
        backend_port,
    };
    assert_eq!(
        vm(&lb).ports,
        [
            port("http", "TCP", 80, 8080),
            port("dns", "UDP", 53, 5353),
            port("sig", "SCTP", 2905, 1),
            port("last", "TCP", 65535, 65535),
        ]
    );
}

#[test]
fn wv_1_to_wv_5_what_is_refused_says_where_and_what() {
    let http = listener("http", "TCP", 80, 8080);
    // The listeners, the reason, and the message.
    let cases = [
        (
            "WV-1",
            json!([]),
            "spec.listeners is empty: a load balancer of workload type vm needs at least one",
        ),
        (
            "WV-2",
            json!([
                http,
                listener("x", "TCP", 81, 81),
                listener("http", "UDP", 82, 82)
            ]),
            "spec.listeners[2].name is \"http\", as another listener's: names must differ",
        ),
        (
            "WV-2, no name counts as a name",
            json!([{"port": 80, "backendPort": 80}, listener("", "TCP", 81, 81)]),
            "spec.listeners[1].name is \"\", as another listener's: names must differ",
        ),
        (
            "WV-3",
            json!([http, listener("b", "TCP", 80, 8081)]),
            "spec.listeners[1] serves TCP 80, as another listener does",
        ),
        (
            "WV-3, an absent protocol is TCP",
            json!([http, {"name": "b", "port": 80, "backendPort": 8081}]),
            "spec.listeners[1] serves TCP 80, as another listener does",
        ),
        (
            "WV-5",
            json!([listener("a", "TCP", 0, 8080)]),
            "spec.listeners[0].port is 0: it must be 1 to 65535",
        ),
        (
            "WV-5",
            json!([http, listener("a", "TCP", -1, 8080)]),
            "spec.listeners[1].port is -1: it must be 1 to 65535",
        ),
        (
            "WV-5",
            json!([http, listener("a", "TCP", 65536, 8080)]),
            "spec.listeners[1].port is 65536: it must be 1 to 65535",
        ),
        (
            "WV-5",
            json!([listener("a", "TCP", 80, 0)]),
            "spec.listeners[0].backendPort is 0: it must be 1 to 65535",
        ),
        (
            "WV-5",
            json!([listener("a", "TCP", 80, i64::MAX)]),
            "spec.listeners[0].backendPort is 9223372036854775807: it must be 1 to 65535",
        ),
        (
            "protocol",
            json!([http, listener("a", "tcp", 81, 81)]),
            "spec.listeners[1].protocol is \"tcp\": it must be TCP, UDP or SCTP",
        ),
    ];
    for (rule, listeners, message) in cases {
        let error = refusal(&listening(&listeners));
        assert_eq!(error.to_string(), message, "{rule}");
        assert_eq!(error.reason(), "InvalidListener", "{rule}");
    }
    assert_eq!(*refusal(&lb(&json!({}))).first(), Violation::NoListener);
}

#[test]
fn val_1_the_first_violation_leads_and_a_few_more_are_named() {
    let said = |listeners: &Value| refusal(&listening(listeners)).to_string();
    let two = json!([listener("a", "TCP", 0, 80), listener("a", "UDP", 53, 53),]);
    assert_eq!(
        said(&two),
        "spec.listeners[1].name is \"a\", as another listener's: names must differ; \
         spec.listeners[0].port is 0: it must be 1 to 65535"
    );
    let many: Vec<Value> = (0..9).map(|_| listener("a", "TCP", 80, 80)).collect();
    let text = said(&Value::Array(many));
    assert!(text.ends_with("; and 12 more"), "{text}");
    assert!(text.starts_with("spec.listeners[1].name"), "{text}");
    // A violation that only admission refuses is not listed.
    assert!(!text.contains("backendPort"), "{text}");
}

#[test]
fn wv_2_to_wv_4_what_is_alike_but_not_the_same_is_served() {
    let cases = [
        (
            "WV-3, TCP 53 and UDP 53",
            json!([listener("a", "TCP", 53, 53), listener("b", "UDP", 53, 53)]),
        ),
        (
            "WV-2, one without a name",
            json!([listener("a", "TCP", 80, 80), {"port": 81, "backendPort": 81}]),
        ),
        (
            "WV-4 is the webhook's alone: a Service can carry it, and an object older than the rule keeps working",
            json!([
                listener("a", "TCP", 80, 8080),
                listener("b", "TCP", 81, 8080)
            ]),
        ),
    ];
    for (what, listeners) in cases {
        assert_eq!(vm(&listening(&listeners)).ports.len(), 2, "{what}");
    }
}

#[test]
fn be_1_a_selector_key_without_values_is_refused() {
    let error = refusal(&lb(&json!({
        "listeners": [listener("http", "TCP", 80, 8080)],
        "backendServerSelector": {"app": ["web"], "zone": []},
    })));
    assert_eq!(
        *error.first(),
        Violation::SelectorWithoutValues("zone".to_owned())
    );
    assert_eq!(error.reason(), "InvalidSelector");
    assert_eq!(
        error.to_string(),
        "spec.backendServerSelector[\"zone\"] has no values: give it at least one, or remove the key"
    );
}

#[test]
fn be_1_no_selector_is_no_error() {
    let listeners = json!([listener("http", "TCP", 80, 8080)]);
    for spec in [
        json!({"listeners": listeners}),
        json!({"listeners": listeners, "backendServerSelector": {}}),
    ] {
        assert_eq!(vm(&lb(&spec)).selector, Selector::default(), "{spec}");
    }
}

#[test]
fn section_8_5_health_check() {
    let with = |check: &Value| {
        lb(&json!({
            "listeners": [listener("http", "TCP", 80, 8080)],
            "healthCheck": check,
        }))
    };
    let on = |port, success, failure, period, timeout| {
        HealthCheck::new(port, success, failure, period, timeout).unwrap()
    };
    let cases = [
        ("absent", json!(null), None),
        ("without a port", json!({"periodSeconds": 7}), None),
        ("port 0 is off", json!({"port": 0}), None),
        (
            "defaults",
            json!({"port": 8080}),
            on(Some(8080), Some(1), Some(3), Some(5), Some(3)),
        ),
        (
            "zero stands for the default",
            json!({"port": 8080, "successThreshold": 0, "failureThreshold": 0, "periodSeconds": 0, "timeoutSeconds": 0}),
            on(Some(8080), Some(1), Some(3), Some(5), Some(3)),
        ),
        (
            "each number in its place",
            json!({"port": 65535, "successThreshold": 2, "failureThreshold": 4, "periodSeconds": 6, "timeoutSeconds": 8}),
            on(Some(65535), Some(2), Some(4), Some(6), Some(8)),
        ),
    ];
    for (what, check, expected) in cases {
        assert_eq!(vm(&with(&check)).check, expected, "{what}");
    }
    for port in [-1_i64, 65536] {
        let error = refusal(&with(&json!({"port": port})));
        assert_eq!(*error.first(), Violation::CheckPortOutOfRange(port));
        assert_eq!(error.reason(), "InvalidHealthCheck");
        assert_eq!(
            error.to_string(),
            format!("spec.healthCheck.port is {port}: it must be 0 (off) to 65535")
        );
    }
}

#[test]
fn hc_7_a_check_port_that_no_tcp_listener_has_is_served_and_named() {
    let with = |listeners: Value, port: i64| {
        vm(&lb(
            &json!({"listeners": listeners, "healthCheck": {"port": port}}),
        ))
    };
    let tcp = || listener("http", "TCP", 80, 8080);
    // The listeners, the port of the health check, the message of the condition.
    let cases = [
        ("WV-6", json!([tcp()]), 8080, None),
        ("off", json!([tcp()]), 0, None),
        (
            "one of several",
            json!([listener("a", "UDP", 53, 53), tcp()]),
            8080,
            None,
        ),
        (
            "the front port",
            json!([tcp()]),
            80,
            Some("the TCP listeners have 8080; the health check uses 80"),
        ),
        (
            "UDP alone",
            json!([listener("dns", "UDP", 53, 53)]),
            53,
            Some("there is no TCP listener; the health check uses 53"),
        ),
        (
            "of UDP, beside TCP",
            json!([
                listener("dns", "UDP", 53, 53),
                tcp(),
                listener("b", "TCP", 81, 8080)
            ]),
            53,
            Some("the TCP listeners have 8080; the health check uses 53"),
        ),
        (
            "many",
            Value::Array(
                (1..=10)
                    .map(|n| listener(&n.to_string(), "TCP", n, 20 - n))
                    .collect(),
            ),
            9,
            Some("have 10, 11, 12, 13, 14, 15, 16, 17 and 2 more; the health check uses 9"),
        ),
    ];
    for (what, listeners, port, expected) in cases {
        let spec = with(listeners, port);
        assert_eq!(
            spec.check.map_or(0, |c| i64::from(c.port())),
            port,
            "{what}: served as it is"
        );
        let said = spec.mismatch.map(|v| v.to_string());
        match expected {
            None => assert_eq!(said, None, "{what}"),
            Some(text) => {
                let said = said.unwrap();
                let named = said.starts_with(&format!("spec.healthCheck.port {port} is not"));
                assert!(named && said.ends_with(text), "{what}: {said}");
            }
        }
    }
}

#[test]
fn rec_1_of_cluster_type_listeners_selector_and_check_are_not_looked_at() {
    let checked = check(&lb(&json!({
        "workloadType": "cluster",
        "listeners": [listener("a", "XX", 0, 0), listener("a", "XX", 0, 0)],
        "backendServerSelector": {"app": []},
        "healthCheck": {"port": -1},
    })))
    .unwrap();
    assert_eq!(checked.vm, None);
    assert_eq!(
        pool_request(&lb(&json!({"workloadType": "cluster"}))).workload,
        Workload::Cluster
    );
}

#[test]
fn section_2_1_defaults_of_workload_type_and_ipam() {
    let spec = |workload: Value, ipam: Value| {
        lb(&json!({
            "workloadType": workload,
            "ipam": ipam,
            "listeners": [listener("http", "TCP", 80, 8080)],
        }))
    };
    let cases = [
        ("both absent", json!(null), json!(null), true, true),
        ("vm, pool", json!("vm"), json!("pool"), true, true),
        ("vm, dhcp", json!("vm"), json!("dhcp"), true, false),
        (
            "cluster, pool",
            json!("cluster"),
            json!("pool"),
            false,
            true,
        ),
        (
            "cluster, absent",
            json!("cluster"),
            json!(null),
            false,
            true,
        ),
        ("absent, dhcp", json!(null), json!("dhcp"), true, false),
    ];
    for (what, workload, ipam, is_vm, is_pool) in cases {
        let checked = check(&spec(workload, ipam)).unwrap();
        assert_eq!(checked.vm.is_some(), is_vm, "{what}");
        assert_eq!(matches!(checked.source, Source::Pool(_)), is_pool, "{what}");
        if let Source::Pool(request) = checked.source {
            let expected = if is_vm {
                Workload::Vm
            } else {
                Workload::Cluster
            };
            assert_eq!(request.workload, expected, "{what}");
        }
    }
}

#[test]
fn section_5_requirement() {
    let key = |name: &str| format!("loadbalancer.harvesterhci.io/{name}");
    let requirement = |network: &str, project: &str, namespace: &str, cluster: &str| Requirement {
        network: network.to_owned(),
        project: project.to_owned(),
        namespace: namespace.to_owned(),
        cluster: cluster.to_owned(),
    };
    let cases = [
        (
            "no annotations",
            json!(null),
            requirement("", "", "shop", ""),
        ),
        (
            "none of ours",
            json!({"network": "net/v20", "cloudprovider.harvesterhci.io/managementNetwork": "net/v9"}),
            requirement("", "", "shop", ""),
        ),
        (
            "all four",
            json!({key("network"): "net/v20", key("project"): "c-1/p-2", key("namespace"): "other", key("cluster"): "gc1"}),
            requirement("net/v20", "c-1/p-2", "other", "gc1"),
        ),
        (
            "an empty namespace is the load balancer's",
            json!({key("network"): "", key("project"): "", key("namespace"): "", key("cluster"): ""}),
            requirement("", "", "shop", ""),
        ),
        (
            "a wildcard stays one",
            json!({key("project"): "*", key("namespace"): "*"}),
            requirement("", "*", "*", ""),
        ),
    ];
    for (what, annotations, expected) in cases {
        let lb = object(&json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u-1", "annotations": annotations},
            "spec": {"workloadType": "cluster"},
        }));
        assert_eq!(pool_request(&lb).requirement, expected, "{what}");
    }
}

#[test]
fn section_5_request_of_a_load_balancer_that_has_nothing() {
    let request = request(&lb(&json!({})));
    assert_eq!(request.owner, Owner::new("shop", "web", "u-1"));
    assert_eq!(request.created, Micros(0));
    assert_eq!(request.pool, None);
    assert_eq!(request.workload, Workload::Vm);
    assert_eq!(request.status, None);
}

#[test]
fn alc_7_what_the_status_says_of_the_address() {
    let with = |allocated: Value| {
        object(&json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"ipPool": "p"},
            "status": {"allocatedAddress": allocated},
        }))
    };
    let says = |pool: Option<&str>, addr: &str| {
        Some(StatusAddress {
            pool: pool.map(Arc::from),
            addr: addr.parse().unwrap(),
        })
    };
    let cases = [
        ("absent", json!(null), None),
        ("empty", json!({}), None),
        ("a pool alone", json!({"ipPool": "p"}), None),
        ("no address", json!({"ip": "", "ipPool": "p"}), None),
        ("text", json!({"ip": "172.20.1.4/24", "ipPool": "p"}), None),
        ("that of DHCP is nobody's", json!({"ip": "0.0.0.0"}), None),
        ("the same of IPv6", json!({"ip": "::", "ipPool": "p"}), None),
        (
            "IPv4",
            json!({"ip": "172.20.1.4", "ipPool": "p", "mask": "255.255.255.248"}),
            says(Some("p"), "172.20.1.4"),
        ),
        (
            "IPv6",
            json!({"ip": "FD10:0::4", "ipPool": "q"}),
            says(Some("q"), "fd10::4"),
        ),
        (
            "no pool",
            json!({"ip": "172.20.1.4"}),
            says(None, "172.20.1.4"),
        ),
        (
            "an empty pool",
            json!({"ip": "172.20.1.4", "ipPool": ""}),
            says(None, "172.20.1.4"),
        ),
    ];
    for (what, allocated, expected) in cases {
        let request = request(&with(allocated));
        assert_eq!(request.status, expected, "{what}");
        assert_eq!(request.pool.as_deref(), Some("p"), "{what}");
        assert_eq!(request.created, Micros(1_767_225_600_000_000), "{what}");
    }
}

#[test]
fn sel_1_an_empty_pool_name_is_none() {
    assert_eq!(request(&lb(&json!({"ipPool": ""}))).pool, None);
    assert_eq!(
        request(&lb(&json!({"ipPool": "p"}))).pool.as_deref(),
        Some("p")
    );
}

#[test]
fn section_8_5_the_definition_names_the_defaults_of_a_health_check() {
    let definition = serde_json::to_value(harvester_lb_api::crd::load_balancer()).unwrap();
    let fields = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        ["properties"]["healthCheck"]["properties"];
    let check = |number: Option<i64>| {
        HealthCheck::new(Some(80), number, number, number, number)
            .unwrap()
            .unwrap()
    };
    let (default, most) = (check(None), check(Some(i64::MAX)));
    let seconds = |field: &str, default: u64, most: u64| {
        let text = fields[field]["description"].as_str().unwrap_or_default();
        let expected = format!("; 0 or absent: {default}, above {most}: {most}.");
        assert!(text.ends_with(&expected), "{field}: {text}");
    };
    let (period, timeout) = (default.period().as_secs(), default.timeout().as_secs());
    seconds("periodSeconds", period, most.period().as_secs());
    seconds("timeoutSeconds", timeout, most.timeout().as_secs());
    for (field, default) in [
        ("successThreshold", default.success_threshold()),
        ("failureThreshold", default.failure_threshold()),
    ] {
        let text = fields[field]["description"].as_str().unwrap_or_default();
        assert!(
            text.ends_with(&format!("; 0 or absent: {default}.")),
            "{field}: {text}"
        );
    }
}
