use harvester_lb_fixtures::{cluster_spec, listener, record, subnet, vm_spec, with};
use serde_json::{Value, json};

use crate::admission::response::Warning;
use crate::admission::tests::world::{
    World, denied, mutated, refused_by, review, review_of, warnings,
};

mod additions;

const OWNER: &str = "cloudprovider.harvesterhci.io/cluster";
const CREATOR: &str = "harvesterhci.io/creator";
const NODE_DRIVER: &str = "docker-machine-driver-harvester";
const GUEST: &str = "guestcluster.harvesterhci.io/name";
const REMOVAL: &str = "harvesterhci.io/removeAllPersistentVolumeClaims";

/// The LoadBalancer shop/web.
fn lb(spec: &Value) -> Value {
    json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec})
}

/// A case: what it is, the spec, the stored spec on an update, and the rule that refuses it.
type Case = (&'static str, Value, Option<Value>, Option<&'static str>);

/// Asserts which rule refuses each case.
fn assert_rules(cases: Vec<Case>) {
    for (what, spec, stored, rule) in cases {
        let request = match &stored {
            Some(stored) => review_of("UPDATE", &lb(&spec), &lb(stored)),
            None => review("CREATE", &lb(&spec)),
        };
        assert_eq!(refused_by(&request, &World::default()), rule, "{what}");
    }
}

fn with_listeners(listeners: &Value) -> Value {
    json!({"listeners": listeners})
}

/// A listener with a name of its own.
fn tcp(port: i64, backend_port: i64) -> Value {
    listener(
        &format!("n{port}-{backend_port}"),
        "TCP",
        port,
        backend_port,
    )
}

#[test]
fn wv_1_vm_type_has_a_listener() {
    let all_wrong = json!({"workloadType": "cluster", "listeners": [tcp(0, 0), tcp(0, 0)]});
    assert_rules(vec![
        ("one", with_listeners(&json!([tcp(80, 8080)])), None, None),
        ("none", with_listeners(&json!([])), None, Some("WV-1")),
        ("absent", json!({}), None, Some("WV-1")),
        ("cluster type without", cluster_spec(), None, None),
        ("cluster type skips WV-1 to WV-5", all_wrong, None, None),
    ]);
}

#[test]
fn wv_2_names_are_unique() {
    let names = |a: Value, b: Value| {
        json!({"listeners": [
            {"name": a, "port": 1, "backendPort": 1, "protocol": "TCP"},
            {"name": b, "port": 2, "backendPort": 2, "protocol": "TCP"},
        ]})
    };
    assert_rules(vec![
        ("a, b", names(json!("a"), json!("b")), None, None),
        ("a, a", names(json!("a"), json!("a")), None, Some("WV-2")),
        (
            "two unnamed",
            names(Value::Null, Value::Null),
            None,
            Some("WV-2"),
        ),
        (
            "absent and empty",
            names(Value::Null, json!("")),
            None,
            Some("WV-2"),
        ),
        ("one unnamed", names(Value::Null, json!("a")), None, None),
    ]);
}

#[test]
fn wv_3_protocol_and_port_are_unique() {
    let udp = listener("dns", "UDP", 53, 5353);
    assert_rules(vec![
        (
            "TCP 53 and UDP 53",
            with_listeners(&json!([tcp(53, 5353), udp])),
            None,
            None,
        ),
        (
            "TCP 80 twice",
            with_listeners(&json!([tcp(80, 1), tcp(80, 2)])),
            None,
            Some("WV-3"),
        ),
    ]);
}

#[test]
fn wv_4_protocol_and_backend_port_are_unique() {
    let distinct = with_listeners(&json!([tcp(80, 8080), tcp(81, 8081)]));
    let same = with_listeners(&json!([tcp(80, 8080), tcp(81, 8080)]));
    let udp = with_listeners(&json!([tcp(80, 8080), listener("u", "UDP", 80, 8080)]));
    assert_rules(vec![
        ("80 to 8080, 81 to 8081", distinct, None, None),
        ("80 and 81 to 8080", same, None, Some("WV-4")),
        ("TCP and UDP to 8080", udp, None, None),
    ]);
}

#[test]
fn wv_5_ports() {
    let mut cases = vec![(
        "the ends",
        with_listeners(&json!([tcp(1, 65535), tcp(65535, 1)])),
        None,
        None,
    )];
    for port in [0, -1, 65_536] {
        cases.push((
            "port",
            with_listeners(&json!([tcp(port, 1)])),
            None,
            Some("WV-5"),
        ));
        cases.push((
            "backend port",
            with_listeners(&json!([tcp(1, port)])),
            None,
            Some("WV-5"),
        ));
    }
    // WV-2 to WV-4 come first.
    let two = with_listeners(&json!([tcp(0, 1), tcp(0, 2)]));
    cases.push(("WV-3 before WV-5", two, None, Some("WV-3")));
    assert_rules(cases);
}

/// A spec with a listener from 80 to 8080 of this protocol, and this health check.
fn checked(protocol: &str, port: i64, numbers: [i64; 4]) -> Value {
    let [s, f, p, t] = numbers;
    json!({
        "listeners": [listener("a", protocol, 80, 8080)],
        "healthCheck": {
            "port": port, "successThreshold": s, "failureThreshold": f, "periodSeconds": p, "timeoutSeconds": t,
        },
    })
}

#[test]
fn wv_6_the_port_of_the_check_is_the_backend_port_of_a_tcp_listener() {
    let numbers = [1, 3, 5, 3];
    let cluster = with(
        checked("TCP", 9, numbers),
        json!({"workloadType": "cluster"}),
    );
    assert_rules(vec![
        ("backend port", checked("TCP", 8080, numbers), None, None),
        (
            "backend port of UDP",
            checked("UDP", 8080, numbers),
            None,
            Some("WV-6"),
        ),
        (
            "front port",
            checked("TCP", 80, numbers),
            None,
            Some("WV-6"),
        ),
        (
            "unknown port",
            checked("TCP", 9, numbers),
            None,
            Some("WV-6"),
        ),
        ("no port", checked("TCP", -1, numbers), None, Some("WV-6")),
        ("off", checked("TCP", 0, [0; 4]), None, None),
        ("cluster type", cluster, None, None),
    ]);
}

#[test]
fn wv_7_the_numbers_of_the_check() {
    let mut cases = vec![("1/3/5/3", checked("TCP", 8080, [1, 3, 5, 3]), None, None)];
    for at in 0..4 {
        let mut numbers = [1, 3, 5, 3];
        numbers[at] = 0;
        cases.push(("a zero", checked("TCP", 8080, numbers), None, Some("WV-7")));
        cases.push(("WV-6 first", checked("TCP", 9, numbers), None, Some("WV-6")));
    }
    assert_rules(cases);
    // The mutating webhook fills them in.
    let zero = lb(&checked("TCP", 8080, [0; 4]));
    let filled = mutated("CREATE", &zero, &Value::Null, &World::default());
    assert_eq!(
        refused_by(&review("CREATE", &filled), &World::default()),
        None
    );
}

/// Changes of a field from `default` or absent to `other` and back.
fn immutable(field: &'static str, default: &str, other: &str, rule: &'static str) {
    let spec = |value: Option<&str>| {
        let fields = value.map_or_else(|| json!({}), |value| json!({ field: value }));
        // What makes the spec differ besides, so that the rules run.
        with(vm_spec("web"), fields)
    };
    let described = |value| with(spec(value), json!({"description": "edited"}));
    assert_rules(vec![
        ("set", described(Some(default)), Some(spec(None)), None),
        ("unset", described(None), Some(spec(Some(default))), None),
        (
            "same",
            described(Some(other)),
            Some(spec(Some(other))),
            None,
        ),
        (
            "changed",
            spec(Some(other)),
            Some(spec(Some(default))),
            Some(rule),
        ),
        (
            "set to another",
            spec(Some(other)),
            Some(spec(None)),
            Some(rule),
        ),
        (
            "back",
            spec(Some(default)),
            Some(spec(Some(other))),
            Some(rule),
        ),
        ("removed", spec(None), Some(spec(Some(other))), Some(rule)),
    ]);
}

#[test]
fn wv_8_ipam_is_immutable() {
    immutable("ipam", "pool", "dhcp", "WV-8");
}

#[test]
fn wv_9_the_workload_type_is_immutable() {
    immutable("workloadType", "vm", "cluster", "WV-9");
}

/// A LoadBalancer of cluster type of this guest cluster.
fn of_cluster(cluster: &str) -> Value {
    let mut guest = lb(&cluster_spec());
    guest["metadata"]["labels"] = json!({OWNER: cluster});
    guest
}

#[test]
fn wv_10_no_load_balancer_of_a_cluster_that_is_being_removed() {
    let node = |cluster: &str| json!({CREATOR: NODE_DRIVER, GUEST: cluster});
    let removal = json!({REMOVAL: "true"});
    let created = |object: &Value, world: &World| refused_by(&review("CREATE", object), world);
    let mut world = World::default();
    world.machine("shop", "vm1", &node("gc1"), &json!({}));
    world.machine("other", "vm1", &node("gc1"), &removal);
    world.machine("shop", "vm2", &json!({GUEST: "gc1"}), &removal);
    world.machine("shop", "vm3", &json!({CREATOR: NODE_DRIVER}), &removal);
    world.machine("shop", "vm4", &node("gc2"), &removal);
    world.machine("shop", "vm5", &node("kubernetes"), &removal);
    world.machine("shop", "vm6", &node("gc1"), &json!({REMOVAL: "false"}));
    world.machine("shop", "vm7", &node(""), &removal);
    assert_eq!(created(&of_cluster("gc1"), &world), None);
    assert_eq!(created(&of_cluster("gc3"), &world), None, "no such VM");
    assert_eq!(created(&of_cluster(""), &world), None);
    assert_eq!(created(&of_cluster("kubernetes"), &world), None);
    assert_eq!(created(&lb(&cluster_spec()), &world), None, "no label");

    world.machine("shop", "vm1", &node("gc1"), &removal);
    assert_eq!(created(&of_cluster("gc1"), &world), Some("WV-10"));
    let refusal = denied(&review("CREATE", &of_cluster("gc1")), &world);
    assert_eq!(
        refusal.message(),
        "LoadBalancer shop/web: metadata.labels[\"cloudprovider.harvesterhci.io/cluster\"] is \"gc1\", a guest cluster that is being removed: VirtualMachine shop/vm1 has the annotation harvesterhci.io/removeAllPersistentVolumeClaims"
    );
    let mut vm_type = of_cluster("gc1");
    vm_type["spec"] = vm_spec("web");
    assert_eq!(created(&vm_type, &world), None, "VM type");
    let mut edited = of_cluster("gc1");
    edited["spec"]["description"] = json!("edited");
    let update = review_of("UPDATE", &edited, &of_cluster("gc1"));
    assert_eq!(refused_by(&update, &world), None, "an update");
    // The annotation is taken off again.
    world.machine("shop", "vm1", &node("gc1"), &json!({}));
    assert_eq!(created(&of_cluster("gc1"), &world), None);
}

#[test]
fn val_1_an_update_that_leaves_the_spec_alone_is_not_checked() {
    let broken = lb(&json!({"listeners": []}));
    let mut status = broken.clone();
    status["status"] = json!({"address": "10.0.0.1"});
    status["metadata"]["annotations"] = json!({"a": "b"});
    let world = World::unlisted();
    assert_eq!(
        refused_by(&review_of("UPDATE", &status, &broken), &world),
        None
    );
    status["spec"]["description"] = json!("edited");
    let edited = review_of("UPDATE", &status, &broken);
    assert_eq!(refused_by(&edited, &world), Some("WV-1"));
    let unreadable = lb(&json!({"listeners": 7}));
    let mut labelled = unreadable.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let same = review_of("UPDATE", &labelled, &unreadable);
    assert_eq!(refused_by(&same, &world), None, "metadata alone");
    assert!(refused_by(&review("CREATE", &unreadable), &world).is_some());
    // A stored object that cannot be decoded is no reason to skip the rules.
    assert_eq!(
        refused_by(&review_of("UPDATE", &broken, &unreadable), &world),
        Some("WV-1")
    );
}

#[test]
fn val_1_warnings() {
    let world = World::unlisted();
    let of = |spec: &Value| warnings(&review("CREATE", &lb(spec)), &world);
    assert_eq!(of(&vm_spec("web")).len(), 1, "port 80");
    let quiet = with_listeners(&json!([tcp(8080, 80), listener("u", "UDP", 22, 22)]));
    assert!(
        of(&quiet).is_empty(),
        "backend ports and other protocols do not count"
    );
    let cluster = with(
        quiet,
        json!({"workloadType": "cluster", "listeners": [tcp(22, 22)]}),
    );
    assert!(of(&cluster).is_empty());
    let ssh = of(&with_listeners(&json!([tcp(5000, 1), tcp(22, 2)])));
    assert_eq!(
        ssh,
        [
            "spec.listeners[1].port is TCP 22, which sshd on the hosts uses too: connections reach the host while the load balancer is not served"
        ]
    );
    let odd = json!({
        "listeners": [listener("a", "tcp", 5000, 1)], "backendServerSelector": {"app": []},
    });
    let odd = of(&odd);
    assert_eq!(odd.len(), 2, "{odd:?}");
    assert!(odd[0].contains("protocol is \"tcp\"") && odd[1].contains("backendServerSelector"));
    let many: Vec<Value> = (0..40).map(|n| tcp(30_000 + n, 1 + n)).collect();
    assert_eq!(of(&with_listeners(&json!(many))).len(), Warning::MOST);
    let long = json!({"listeners": [listener("a", &"é".repeat(500), 5000, 1)]});
    let long = of(&long);
    assert!(long[0].len() <= 256 && long[0].ends_with("..."), "{long:?}");
}

#[test]
fn kva_2_annotations_that_kube_vip_does_not_get_are_warned_about() {
    let mut world = World::unlisted();
    world.interfaces = "vlan20".parse().unwrap();
    let quiet = with_listeners(&json!([tcp(8080, 80)]));
    let of = |spec: &Value, key: &str, value: &str| {
        let mut object = lb(spec);
        object["metadata"]["annotations"] = json!({ key: value });
        warnings(&review("CREATE", &object), &world)
    };
    let interface = "kube-vip.io/serviceInterface";
    assert!(of(&quiet, interface, "vlan20").is_empty());
    assert!(of(&quiet, "kube-vip.io/loadbalancerHostname", "a").is_empty());
    let refused = of(&quiet, interface, "eth0");
    assert!(refused[0].contains("allowed are vlan20"), "{refused:?}");
    assert_eq!(of(&quiet, "kube-vip.io/egress", "true").len(), 1);
    let cluster = with(quiet, json!({"workloadType": "cluster"}));
    assert!(of(&cluster, interface, "eth0").is_empty());
    // An update of the annotation alone counts.
    let spec = with_listeners(&json!([tcp(8080, 80)]));
    let mut object = lb(&spec);
    object["metadata"]["annotations"] = json!({ interface: "eth0" });
    let update = review_of("UPDATE", &object, &lb(&spec));
    assert_eq!(warnings(&update, &world).len(), 1);
    // Of one that is ignored, once: when it is added.
    let with = |annotations: Value| {
        let mut object = lb(&spec);
        object["metadata"]["annotations"] = annotations;
        object
    };
    let (egress, copied) = ("kube-vip.io/egress", "kube-vip.io/flush-conntrack");
    for (before, after, count) in [
        (json!({}), json!({ egress: "true" }), 1),
        (json!({ egress: "true" }), json!({ egress: "false" }), 0),
        (json!({ egress: "true" }), json!({}), 0),
        (json!({}), json!({ copied: "true" }), 0),
    ] {
        let update = review_of("UPDATE", &with(after), &with(before));
        assert_eq!(warnings(&update, &world).len(), count);
    }
    // However many there are, as a response has no more warnings.
    let many = (0..20).map(|i| (format!("kube-vip.io/other-{i}"), json!("true")));
    let many = Value::Object(many.collect());
    let update = review_of("UPDATE", &with(many), &with(json!({})));
    assert_eq!(warnings(&update, &world).len(), Warning::MOST);
    // Also of one that is older than a rule, whose spec would be refused.
    let older = json!({"listeners": [tcp(8080, 80), tcp(8080, 80)]});
    let mut after = lb(&older);
    after["metadata"]["annotations"] = json!({ egress: "true" });
    let update = review_of("UPDATE", &after, &lb(&older));
    assert_eq!(warnings(&update, &world).len(), 1);
}

#[test]
fn req_3_an_address_that_is_waited_for_is_warned_about() {
    let mut world = World::default();
    let pool =
        |name: &str, range: Value| json!({"metadata": {"name": name}, "spec": {"ranges": [range]}});
    let mut excluding = pool("p", subnet("10.0.0.0/24"));
    excluding["metadata"]["annotations"] =
        json!({"loadbalancer.harvesterhci.io/exclude": "10.0.0.5, 10.0.0.8-10.0.0.9"});
    world.pool(&excluding);
    world.pool(&pool("q", subnet("10.0.1.0/24")));
    for (address, owner) in [
        ("10.0.0.5", "other"),
        ("10.0.0.6", "web"),
        // In use when it was excluded: it stays.
        ("10.0.0.9", "web"),
    ] {
        world.record(&record(address, "p", "Bound", ("shop", owner, "u")));
    }
    let spec = |pool: &str| with(cluster_spec(), json!({"ipPool": pool}));
    let wanted = "loadbalancer.harvesterhci.io/requested-address";
    for (address, named, why) in [
        (
            "10.0.0.5",
            "",
            Some("10.0.0.5 is allocated to LoadBalancer shop/other"),
        ),
        ("10.0.0.6", "", None),
        ("10.0.0.7", "", None),
        ("10.0.0.7", "p", None),
        (
            "10.0.0.7",
            "q",
            Some("IPPool q, which spec.ipPool names, does not have 10.0.0.7"),
        ),
        (
            "10.0.0.7",
            "r",
            Some("IPPool r, which spec.ipPool names, does not have 10.0.0.7"),
        ),
        ("10.9.0.7", "", Some("no IPPool has 10.9.0.7")),
        // As the condition will say.
        (
            "10.0.0.8",
            "",
            Some("pool p: 10.0.0.8 is excluded by its annotation exclude"),
        ),
        (
            "10.0.0.8",
            "p",
            Some("pool p: 10.0.0.8 is excluded by its annotation exclude"),
        ),
        (
            "10.0.0.1",
            "",
            Some("pool p: 10.0.0.1 is a gateway of its ranges"),
        ),
        (
            "10.0.1.1",
            "q",
            Some("pool q: 10.0.1.1 is a gateway of its ranges"),
        ),
        ("10.0.0.9", "", None),
    ] {
        let mut object = lb(&spec(named));
        object["metadata"]["annotations"] = json!({ wanted: address });
        let found = warnings(&review("CREATE", &object), &world);
        let expected = why.map(|why| {
            format!("annotation {wanted}: {why}: the load balancer gets no other address, and waits for it")
        });
        assert_eq!(
            found,
            expected.into_iter().collect::<Vec<_>>(),
            "{address} {named}"
        );
        // What is not known is not warned about.
        assert!(warnings(&review("CREATE", &object), &World::unlisted()).is_empty());
    }
}

#[test]
fn every_port_of_the_hosts_is_named_once() {
    use crate::admission::host_ports::user_of;
    for (protocol, port, user) in [
        ("TCP", 22, "sshd"),
        ("TCP", 80, "the ingress controller"),
        ("TCP", 443, "the ingress controller"),
        ("TCP", 2379, "etcd"),
        ("TCP", 2382, "etcd"),
        ("TCP", 6443, "the Kubernetes API server"),
        ("TCP", 8443, "the ingress controller"),
        ("TCP", 9345, "the RKE2 supervisor"),
        ("TCP", 10_250, "kubelet"),
        ("UDP", 8472, "the CNI plugin Canal"),
        ("TCP", 30_000, "NodePorts of Services"),
        ("TCP", 32_767, "NodePorts of Services"),
    ] {
        assert_eq!(user_of(protocol, port), Some(user), "{protocol} {port}");
    }
    for (protocol, port) in [
        ("UDP", 22),
        ("TCP", 8080),
        ("TCP", 32_768),
        ("SCTP", 22),
        ("TCP", -1),
        ("TCP", 65_558),
    ] {
        assert_eq!(user_of(protocol, port), None, "{protocol} {port}");
    }
}

#[test]
fn the_document_has_the_same_ports() {
    use crate::admission::host_ports::USED;
    let document = include_str!("../../../../../docs/admission.md");
    let rows = USED.iter().map(|(ports, protocol, user)| {
        let (first, last) = (ports.start(), ports.end());
        if first == last {
            format!("| {protocol} {first} | {user} |")
        } else {
            format!("| {protocol} {first}-{last} | {user} |")
        }
    });
    let (_, table) = document
        .split_once("| port | used by |\n|---|---|\n")
        .unwrap();
    assert_eq!(table.lines().collect::<Vec<_>>(), rows.collect::<Vec<_>>());
}
