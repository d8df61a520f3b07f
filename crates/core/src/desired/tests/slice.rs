//! The EndpointSlice, and the steady state of both objects (section 8.3, EPS-1 to EPS-3, REC-5).

use super::*;
use crate::desired::backends as build_backends;

#[test]
fn section_8_3_example_slice() {
    let lb = example();
    let slice = endpoint_slice(&lb, None, &ports(&lb), &backends(true));
    let (vm7, vm8) = (
        vm_endpoint("vm7", "10.10.1.7", true),
        vm_endpoint("vm8", "10.10.1.8", false),
    );
    assert_eq!(json_of(&slice), example_slice(&format!("[{vm7}, {vm8}]")));
}

#[test]
fn eps_2_the_stand_in_is_there_exactly_when_nothing_is_ready() {
    let lb = example();
    let (vm7, vm8) = (
        vm_endpoint("vm7", "10.10.1.7", false),
        vm_endpoint("vm8", "10.10.1.8", false),
    );
    let slice = endpoint_slice(&lb, None, &ports(&lb), &backends(false));
    assert_eq!(
        json_of(&slice),
        example_slice(&format!("[{vm7}, {vm8}, {STAND_IN}]"))
    );
    let names = |slice: &EndpointSlice| -> Vec<String> {
        real_endpoints(slice)
            .filter_map(|e| e.target_ref.as_ref()?.name.clone())
            .collect()
    };
    assert_eq!(names(&slice), ["vm7", "vm8"], "it is counted nowhere");

    let empty = endpoint_slice(&lb, Some(&slice), &ports(&lb), &[]);
    assert_eq!(json_of(&empty), example_slice(&format!("[{STAND_IN}]")));
    assert!(names(&empty).is_empty());

    let back = endpoint_slice(&lb, Some(&empty), &ports(&lb), &backends(true));
    assert_eq!(back.endpoints.len(), 2, "gone with the first ready one");
    assert!(
        back.endpoints
            .iter()
            .all(|e| e.addresses != [keys::DUMMY_ENDPOINT_ADDRESS])
    );
}

#[test]
fn section_8_3_names_and_protocols_of_ports() {
    let lb = example();
    let cases: [(&str, &[Port], Value, Value); 3] = [
        (
            "without a name: absent in the Service, empty in the slice",
            &[port("", "UDP", 53, 5353)],
            json!([{"protocol": "UDP", "port": 53, "targetPort": 5353}]),
            json!([{"name": "", "protocol": "UDP", "port": 5353}]),
        ),
        (
            "one",
            &[port("sig", "SCTP", 2905, 2906)],
            json!([{"name": "sig", "protocol": "SCTP", "port": 2905, "targetPort": 2906}]),
            json!([{"name": "sig", "protocol": "SCTP", "port": 2906}]),
        ),
        (
            "many, in the order of the listeners",
            &[
                port("z", "TCP", 443, 8443),
                port("a", "TCP", 80, 8080),
                port("dns", "UDP", 443, 65535),
            ],
            json!([
                {"name": "z", "protocol": "TCP", "port": 443, "targetPort": 8443},
                {"name": "a", "protocol": "TCP", "port": 80, "targetPort": 8080},
                {"name": "dns", "protocol": "UDP", "port": 443, "targetPort": 65535},
            ]),
            json!([
                {"name": "z", "protocol": "TCP", "port": 8443},
                {"name": "a", "protocol": "TCP", "port": 8080},
                {"name": "dns", "protocol": "UDP", "port": 65535},
            ]),
        ),
    ];
    for (what, ports, in_service, in_slice) in cases {
        let service = json_of(&service(&lb, None, ports, "172.20.1.4"));
        assert_eq!(service["spec"]["ports"], in_service, "{what}");
        let slice = json_of(&endpoint_slice(&lb, None, ports, &[]));
        assert_eq!(slice["ports"], in_slice, "{what}");
    }
}

#[test]
fn rec_5_what_is_right_is_not_written_again() {
    let lb = example();
    let all: [&[Port]; 3] = [
        &ports(&lb),
        &[port("", "TCP", 80, 8080)],
        &[port("a", "TCP", 53, 53), port("b", "UDP", 53, 53)],
    ];
    for ports in all {
        let first = service(&lb, None, ports, "172.20.1.4");
        let second = service(&lb, Some(&first), ports, "172.20.1.4");
        assert_eq!(difference(&first, &second), None, "{ports:?}");
        for backends in [backends(true), backends(false), Vec::new()] {
            let first = endpoint_slice(&lb, None, ports, &backends);
            let second = endpoint_slice(&lb, Some(&first), ports, &backends);
            assert_eq!(difference(&first, &second), None, "{ports:?}");
        }
    }
    let stored: Service = object(STORED_SERVICE);
    let again = service(&lb, Some(&stored), &ports(&lb), "172.20.1.4");
    assert_eq!(
        difference(&stored, &again),
        None,
        "as the API server and kube-vip leave it"
    );
    assert!(
        difference(
            &stored,
            &service(&lb, Some(&stored), &ports(&lb), "172.20.1.5")
        )
        .is_some()
    );
}

#[test]
fn ops_2_a_slice_of_the_go_operator_gains_only_what_is_added() {
    let lb = example();
    let mut stored = example_slice(&format!(
        "[{{addresses: [10.10.1.7], conditions: {{ready: true}}, targetRef: {{namespace: shop, name: vm7, uid: uid-vm7}}}}, {STAND_IN}]"
    ));
    stored["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("endpointslice.kubernetes.io/managed-by");
    stored["metadata"]["labels"]["team"] = json!("blue");
    let present: EndpointSlice = serde_json::from_value(stored).unwrap();
    let vm7 = vec![(backend("vm7", "10.10.1.7"), true)];
    let wanted = endpoint_slice(&lb, Some(&present), &ports(&lb), &vm7);
    let vm7 = vm_endpoint("vm7", "10.10.1.7", true);
    assert_eq!(
        difference(&present, &wanted),
        Some(json!({
            "metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "harvester-load-balancer"}},
            "endpoints": expected(&format!("[{vm7}]")),
        }))
    );
}

#[test]
fn eps_1_readiness_is_known_by_uid_and_address() {
    let lb = example();
    let slice = endpoint_slice(&lb, None, &ports(&lb), &backends(true));
    let known = known_readiness(Some(&slice));
    let of = |uid: &str, address: &str| {
        known
            .get(&(uid.to_owned(), address.parse().unwrap()))
            .copied()
    };
    assert_eq!(of("uid-vm7", "10.10.1.7"), Some(true));
    assert_eq!(of("uid-vm8", "10.10.1.8"), Some(false));
    assert_eq!(of("uid-new", "10.10.1.7"), None, "a restarted machine");
    assert_eq!(of("uid-vm7", "10.10.1.9"), None, "a new address");
    assert!(known_readiness(None).is_empty());
}

#[test]
fn eps_1_ready_unless_it_says_no() {
    let cases = [
        ("no conditions", json!(null), true),
        ("no word of it", json!({}), true),
        ("true", json!({"ready": true}), true),
        ("false", json!({"ready": false}), false),
    ];
    for (what, conditions, expected) in cases {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.10.1.7"], "conditions": conditions, "targetRef": {"uid": "u"}}],
        }))
        .unwrap();
        let known: Vec<_> = known_readiness(Some(&slice)).into_values().collect();
        assert_eq!(known, [expected], "{what}");
    }
}

#[test]
fn be_6_a_slice_follows_and_nothing_else_of_it_changes() {
    let lb = example();
    let two = super::backends(true);
    let mut present = endpoint_slice(&lb, None, &ports(&lb), &two);
    present.ports = None;
    let named: Vec<Backend> = two.iter().map(|(backend, _)| backend.clone()).collect();
    assert_eq!(build_backends(&present), named);
    let none_left = with_backends(&lb.metadata, &present, &[]);
    let mut expected = json_of(&present);
    expected["endpoints"] = example_slice(&format!("[{STAND_IN}]"))["endpoints"].clone();
    assert_eq!(json_of(&none_left), expected);
    assert_eq!(build_backends(&none_left), []);
    let same = with_backends(&lb.metadata, &present, &two);
    assert_eq!(json_of(&same), json_of(&present));
}

#[test]
fn eps_3_what_is_no_endpoint_of_ours_is_replaced() {
    let lb = example();
    let broken = [
        (
            "no targetRef",
            json!({"addresses": ["10.10.1.7"], "conditions": {"ready": true}}),
        ),
        (
            "no uid",
            json!({"addresses": ["10.10.1.7"], "conditions": {"ready": true}, "targetRef": {"name": "vm7"}}),
        ),
        (
            "two addresses",
            json!({"addresses": ["10.10.1.7", "10.10.1.9"], "conditions": {"ready": true}, "targetRef": {"uid": "uid-vm7"}}),
        ),
        (
            "no address",
            json!({"addresses": [], "conditions": {"ready": true}, "targetRef": {"uid": "uid-vm7"}}),
        ),
        (
            "an address of another family",
            json!({"addresses": ["fd00::7"], "conditions": {"ready": true}, "targetRef": {"uid": "uid-vm7"}}),
        ),
    ];
    let vm8 = vm_endpoint("vm8", "10.10.1.8", true);
    for (what, endpoint) in broken {
        let mut stored = example_slice(&format!("[{vm8}]"));
        stored["endpoints"]
            .as_array_mut()
            .unwrap()
            .insert(0, endpoint);
        let present: EndpointSlice = serde_json::from_value(stored).unwrap();
        let known = known_readiness(Some(&present));
        assert_eq!(
            known.into_iter().collect::<Vec<_>>(),
            [(("uid-vm8".to_owned(), Ipv4Addr::new(10, 10, 1, 8)), true)],
            "{what}"
        );
        let names: Vec<_> = build_backends(&present)
            .into_iter()
            .map(|b| b.uid)
            .collect();
        assert_eq!(names, ["uid-vm8"], "{what}");
        let wanted = endpoint_slice(&lb, Some(&present), &ports(&lb), &backends(false));
        let (vm7, vm8) = (
            vm_endpoint("vm7", "10.10.1.7", false),
            vm_endpoint("vm8", "10.10.1.8", false),
        );
        assert_eq!(
            json_of(&wanted),
            example_slice(&format!("[{vm7}, {vm8}, {STAND_IN}]")),
            "{what}"
        );
    }
}
