use super::*;
use crate::spec;
use crate::writes::difference;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The load balancer of the contract's example (section 8.3).
fn example() -> LoadBalancer {
    object(
        "
        apiVersion: loadbalancer.harvesterhci.io/v1beta1
        kind: LoadBalancer
        metadata: {namespace: shop, name: web, uid: uid-web}
        spec:
          ipam: pool
          listeners: [{name: http, port: 80, protocol: TCP, backendPort: 8080}]
          backendServerSelector: {app: [web]}
          healthCheck: {port: 8080}
        ",
    )
}

fn object<T: DeserializeOwned>(yaml: &str) -> T {
    serde_json::from_value(serde_saphyr::from_str(yaml).unwrap()).unwrap()
}

fn ports(lb: &LoadBalancer) -> Vec<Port> {
    spec::check(lb).unwrap().vm.unwrap().ports
}

fn port(name: &str, protocol: &'static str, port: u16, backend_port: u16) -> Port {
    Port {
        name: name.to_owned(),
        protocol,
        port,
        backend_port,
    }
}

fn backend(name: &str, address: &str) -> Backend {
    Backend {
        name: name.into(),
        uid: format!("uid-{name}"),
        address: address.parse().unwrap(),
    }
}

/// vm7 healthy or not, vm8 not.
fn backends(first: bool) -> Vec<(Backend, bool)> {
    vec![
        (backend("vm7", "10.10.1.7"), first),
        (backend("vm8", "10.10.1.8"), false),
    ]
}

fn json_of(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

fn expected(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap()
}

const OWNER: &str = "{apiVersion: loadbalancer.harvesterhci.io/v1beta1, kind: LoadBalancer, name: web, uid: uid-web}";

/// The slice of the example with these endpoints.
fn example_slice(endpoints: &str) -> Value {
    expected(&format!(
        "
        apiVersion: discovery.k8s.io/v1
        kind: EndpointSlice
        metadata:
          namespace: shop
          name: web
          labels:
            loadbalancer.harvesterhci.io/servicelb: \"true\"
            kubernetes.io/service-name: web
            endpointslice.kubernetes.io/managed-by: harvester-load-balancer
          ownerReferences: [{OWNER}]
        addressType: IPv4
        ports: [{{name: http, protocol: TCP, port: 8080}}]
        endpoints: {endpoints}
        "
    ))
}

const STAND_IN: &str = "{addresses: [10.52.0.255], conditions: {ready: true}, targetRef: {namespace: shop, name: web, uid: dummy347-546a-4642-9da6-5608endpoint}}";

fn vm_endpoint(name: &str, address: &str, ready: bool) -> String {
    format!(
        "{{addresses: [{address}], conditions: {{ready: {ready}}}, targetRef: {{kind: VirtualMachineInstance, namespace: shop, name: {name}, uid: uid-{name}}}}}"
    )
}

/// A Service as the API server and kube-vip leave it.
const STORED_SERVICE: &str = r#"
    apiVersion: v1
    kind: Service
    metadata:
      namespace: shop
      name: web
      uid: uid-service
      resourceVersion: "77"
      creationTimestamp: "2026-01-01T00:00:00Z"
      finalizers: [service.kubernetes.io/load-balancer-cleanup]
      annotations:
        kube-vip.io/hwaddr: "00:00:5e:00:53:01"
        kube-vip.io/requestedIP: 172.20.1.4
        kube-vip.io/loadbalancerIPs: 172.20.1.9
      labels: {team: blue, implementation: kube-vip, loadbalancer.harvesterhci.io/servicelb: "true"}
      ownerReferences: [{apiVersion: loadbalancer.harvesterhci.io/v1beta1, kind: LoadBalancer, name: web, uid: uid-web}]
    spec:
      type: LoadBalancer
      allocateLoadBalancerNodePorts: true
      clusterIP: 10.53.1.1
      clusterIPs: [10.53.1.1]
      externalTrafficPolicy: Local
      healthCheckNodePort: 31999
      internalTrafficPolicy: Cluster
      ipFamilies: [IPv4]
      ipFamilyPolicy: SingleStack
      loadBalancerIP: 172.20.1.4
      loadBalancerClass: kube-vip.io/kube-vip-class
      loadBalancerSourceRanges: [10.0.0.0/8]
      sessionAffinity: ClientIP
      ports:
      - {name: http, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080, appProtocol: http}
    status: {loadBalancer: {ingress: [{ip: 172.20.1.4}]}}
"#;

#[test]
fn section_8_2_example_service() {
    let lb = example();
    let service = service(&lb, None, &ports(&lb), "172.20.1.4");
    assert_eq!(
        json_of(&service),
        expected(&format!(
            "
            apiVersion: v1
            kind: Service
            metadata:
              namespace: shop
              name: web
              labels: {{loadbalancer.harvesterhci.io/servicelb: \"true\"}}
              ownerReferences: [{OWNER}]
            spec:
              type: LoadBalancer
              allocateLoadBalancerNodePorts: false
              loadBalancerIP: 172.20.1.4
              ports: [{{name: http, protocol: TCP, port: 80, targetPort: 8080}}]
            "
        ))
    );
}

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
fn ops_3_dhcp_is_the_address_of_zeros() {
    let lb = example();
    let service = service(&lb, None, &ports(&lb), keys::DHCP_ADDRESS);
    assert_eq!(json_of(&service)["spec"]["loadBalancerIP"], "0.0.0.0");
}

#[test]
fn section_8_2_what_others_set_is_kept() {
    let lb = example();
    let present: Service = object(STORED_SERVICE);
    let ports = vec![port("http", "TCP", 80, 9090), port("dns", "UDP", 80, 5353)];
    let wanted = service(&lb, Some(&present), &ports, "172.20.1.5");
    let mut expected = expected(STORED_SERVICE);
    expected["spec"]["loadBalancerIP"] = json!("172.20.1.5");
    expected["spec"]["ports"] = json!([
        {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 9090, "nodePort": 30080, "appProtocol": "http"},
        {"name": "dns", "protocol": "UDP", "port": 80, "targetPort": 5353},
    ]);
    assert_eq!(json_of(&wanted), expected);
}

#[test]
fn section_8_2_node_ports_follow_protocol_and_port() {
    let lb = example();
    let mut present: Service = object(STORED_SERVICE);
    present.spec.as_mut().unwrap().ports = Some(vec![
        ServicePort {
            // As an old client leaves it: no protocol is TCP.
            port: 80,
            node_port: Some(30080),
            ..ServicePort::default()
        },
        ServicePort {
            port: 80,
            protocol: Some("UDP".to_owned()),
            node_port: Some(30081),
            ..ServicePort::default()
        },
        ServicePort {
            port: 81,
            protocol: Some("SCTP".to_owned()),
            node_port: Some(30082),
            ..ServicePort::default()
        },
    ]);
    let ports = [
        port("new", "TCP", 443, 8443),
        port("u", "UDP", 80, 1),
        port("renamed", "TCP", 80, 2),
        port("s", "SCTP", 81, 3),
    ];
    let wanted = service(&lb, Some(&present), &ports, "172.20.1.4");
    let kept: Vec<_> = wanted
        .spec
        .unwrap()
        .ports
        .unwrap()
        .into_iter()
        .map(|p| (p.name.unwrap(), p.protocol.unwrap(), p.node_port))
        .collect();
    let expect =
        |name: &str, protocol: &str, node_port| (name.to_owned(), protocol.to_owned(), node_port);
    assert_eq!(
        kept,
        [
            expect("new", "TCP", None),
            expect("u", "UDP", Some(30081)),
            expect("renamed", "TCP", Some(30080)),
            expect("s", "SCTP", Some(30082)),
        ]
    );
}

#[test]
fn section_8_2_node_ports_are_switched_off_where_nothing_is_said() {
    let lb = example();
    let switch = |present: Option<&Service>| {
        service(&lb, present, &ports(&lb), "172.20.1.4")
            .spec
            .unwrap()
            .allocate_load_balancer_node_ports
    };
    assert_eq!(switch(None), Some(false));
    let mut present: Service = object(STORED_SERVICE);
    assert_eq!(switch(Some(&present)), Some(true));
    present
        .spec
        .as_mut()
        .unwrap()
        .allocate_load_balancer_node_ports = None;
    assert_eq!(switch(Some(&present)), None);
    // Somebody has made it another type, which takes the switch off.
    present.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    assert_eq!(switch(Some(&present)), Some(false));
    present.spec = None;
    assert_eq!(switch(Some(&present)), Some(false));
}

#[test]
fn rec_4_what_was_altered_is_restored() {
    let lb = example();
    let mut altered: Service = object(STORED_SERVICE);
    let spec = altered.spec.as_mut().unwrap();
    spec.type_ = Some("ClusterIP".to_owned());
    spec.selector = Some(BTreeMap::from([("app".to_owned(), "web".to_owned())]));
    spec.load_balancer_ip = None;
    spec.ports.as_mut().unwrap()[0].target_port = Some(IntOrString::Int(1));
    altered.metadata.labels = None;
    altered.metadata.owner_references = None;
    let wanted = service(&lb, Some(&altered), &ports(&lb), "172.20.1.4");
    let mut expected = expected(STORED_SERVICE);
    expected["metadata"]["labels"] = json!({"loadbalancer.harvesterhci.io/servicelb": "true"});
    assert_eq!(json_of(&wanted), expected);
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

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

fn ours(uid: &str) -> OwnerReference {
    owner(API_VERSION, "LoadBalancer", "web", uid)
}

#[test]
fn svc_1_whose_an_object_is() {
    use Ownership::{Foreign, Ours};
    let group = harvester_lb_api::GROUP;
    let cases = [
        ("nothing", None, vec![], Foreign),
        ("our label", Some("true"), vec![], Ours),
        (
            "our label with another value",
            Some("false"),
            vec![],
            Foreign,
        ),
        ("this load balancer", None, vec![ours("uid-web")], Ours),
        (
            "one of its name before it",
            None,
            vec![ours("uid-old")],
            Ours,
        ),
        (
            "by the old version of the API",
            None,
            vec![owner(
                &format!("{group}/v1alpha1"),
                "LoadBalancer",
                "web",
                "u",
            )],
            Ours,
        ),
        (
            "another load balancer",
            None,
            vec![owner(API_VERSION, "LoadBalancer", "api", "uid-api")],
            Foreign,
        ),
        (
            "another kind of that name",
            None,
            vec![owner("apps/v1", "Deployment", "web", "uid-web")],
            Foreign,
        ),
        (
            "that kind of another group",
            None,
            vec![owner("example.org/v1beta1", "LoadBalancer", "web", "u")],
            Foreign,
        ),
        (
            "that kind of a group that begins like ours",
            None,
            vec![owner(
                &format!("{group}.example.org/v1"),
                "LoadBalancer",
                "web",
                "u",
            )],
            Foreign,
        ),
        (
            "not the first of several",
            None,
            vec![owner("apps/v1", "Deployment", "x", "u"), ours("uid-old")],
            Ours,
        ),
    ];
    for (what, label, owners, expected) in cases {
        let meta = ObjectMeta {
            labels: label
                .map(|v| BTreeMap::from([(keys::LABEL_SERVICELB.to_owned(), v.to_owned())])),
            owner_references: Some(owners),
            ..ObjectMeta::default()
        };
        assert_eq!(ownership(&meta, "web"), expected, "{what}");
    }
    assert_eq!(ownership(&ObjectMeta::default(), "web"), Foreign);
}

#[test]
fn svc_1_the_owner_is_this_load_balancer_and_owners_of_others_stay() {
    let deployment = owner("apps/v1", "Deployment", "web", "uid-deployment");
    let namesake = owner("example.org/v1", "LoadBalancer", "web", "uid-namesake");
    let sibling = owner(API_VERSION, "LoadBalancer", "api", "uid-api");
    let controlling = OwnerReference {
        controller: Some(true),
        block_owner_deletion: Some(true),
        ..ours("uid-web")
    };
    let cases = [
        ("none", vec![], vec![ours("uid-web")]),
        (
            "right already",
            vec![ours("uid-web")],
            vec![ours("uid-web")],
        ),
        ("an old uid", vec![ours("uid-old")], vec![ours("uid-web")]),
        (
            "an old uid beside the right one",
            vec![ours("uid-old"), ours("uid-web")],
            vec![ours("uid-web")],
        ),
        ("and nothing more", vec![controlling], vec![ours("uid-web")]),
        (
            "of others",
            vec![
                deployment.clone(),
                ours("uid-old"),
                sibling.clone(),
                namesake.clone(),
            ],
            vec![deployment, sibling, namesake, ours("uid-web")],
        ),
    ];
    let lb = example();
    for (what, owners, expected) in cases {
        let metadata = ObjectMeta {
            owner_references: Some(owners),
            ..ObjectMeta::default()
        };
        let present = Service {
            metadata: metadata.clone(),
            ..Service::default()
        };
        let service = service(&lb, Some(&present), &[], "172.20.1.4");
        assert_eq!(
            service.metadata.owner_references.as_ref(),
            Some(&expected),
            "{what}"
        );
        let present = EndpointSlice {
            metadata,
            ..EndpointSlice::default()
        };
        let slice = endpoint_slice(&lb, Some(&present), &[], &[]);
        assert_eq!(slice.metadata.owner_references, Some(expected), "{what}");
    }
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
