//! The Service (section 8.2).

use super::*;

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
            // As an old client writes it: an absent protocol is TCP.
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
    // A user has changed the type, which removes allocateLoadBalancerNodePorts.
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
