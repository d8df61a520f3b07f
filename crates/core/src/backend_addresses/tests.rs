use super::*;
use crate::cached::{NodeAddresses, node};
use serde_json::json;

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn ips(all: &[&str]) -> Vec<Ipv4Addr> {
    all.iter().map(|text| ip(text)).collect()
}

fn key(namespace: &str, name: &str) -> Key {
    Key::new(namespace, name)
}

/// A cluster with one node, one Service and a denied range.
fn cluster() -> Addresses {
    let mut addresses = Addresses::new(vec!["192.0.2.0/24".parse().unwrap()]);
    addresses.set_node(&key("", "n1"), ips(&["10.0.0.1", "10.0.0.9"]));
    addresses.set_service(
        &key("kube-system", "dns"),
        ServiceAddresses {
            cluster: ips(&["10.53.0.10"]),
            external: ips(&["10.0.0.50"]),
            ingress: ips(&["10.0.0.60", "10.0.0.1"]),
        },
    );
    addresses
}

#[test]
fn be_8_what_may_not_stand_behind_a_load_balancer() {
    let dns = || key("kube-system", "dns");
    let denied = "192.0.2.0/24".parse().unwrap();
    // The address, whether it has an IPAllocation, why it is refused.
    let cases: [(&str, bool, Option<Refusal>, &str); 10] = [
        ("10.52.0.7", false, None, ""),
        (
            "10.0.0.9",
            false,
            Some(Refusal::Held(Holder::Node(key("", "n1")))),
            "an address of a Node",
        ),
        (
            "10.53.0.10",
            false,
            Some(Refusal::Held(Holder::ClusterIp(dns()))),
            "the ClusterIP of a Service",
        ),
        (
            "10.0.0.50",
            false,
            Some(Refusal::Held(Holder::ExternalIp(dns()))),
            "an external IP of a Service",
        ),
        (
            "10.0.0.60",
            false,
            Some(Refusal::Held(Holder::Ingress(dns()))),
            "the external address of a Service",
        ),
        (
            "10.0.0.77",
            true,
            Some(Refusal::Allocated),
            "an address with an IPAllocation",
        ),
        (
            "192.0.2.255",
            false,
            Some(Refusal::Denied(denied)),
            "inside 192.0.2.0/24, which is denied to backends",
        ),
        ("192.0.3.0", false, None, ""),
        // Of several reasons the first is reported.
        (
            "10.0.0.1",
            true,
            Some(Refusal::Held(Holder::Node(key("", "n1")))),
            "an address of a Node",
        ),
        (
            "192.0.2.1",
            true,
            Some(Refusal::Allocated),
            "an address with an IPAllocation",
        ),
    ];
    let addresses = cluster();
    for (address, allocated, expected, text) in cases {
        let address_verdict = addresses.address_verdict(ip(address), allocated);
        assert_eq!(address_verdict.refusal, expected, "{address}");
        assert!(!address_verdict.shared);
        if let Some(refusal) = address_verdict.refusal {
            assert_eq!(refusal.to_string(), text);
            assert!(!refusal.to_string().contains("dns"), "another's name");
        }
    }
}

#[test]
fn be_8_whoever_reports_an_address_hears_of_its_change() {
    let mut addresses = cluster();
    let (a, b) = (key("shop", "a"), key("shop", "b"));
    addresses.set_vmi(&a, Some(ip("10.1.0.7")));
    addresses.set_vmi(&b, Some(ip("10.1.0.8")));
    // A Service without a reported address.
    let cluster_ip = |address: &str| ServiceAddresses {
        cluster: ips(&[address]),
        ..ServiceAddresses::default()
    };
    let web = key("other", "web");
    assert_eq!(addresses.set_service(&web, cluster_ip("10.53.0.11")), []);
    assert_eq!(
        addresses.set_service(&web, cluster_ip("10.1.0.7")),
        std::slice::from_ref(&a)
    );
    assert_eq!(addresses.set_service(&web, cluster_ip("10.1.0.7")), []);
    assert!(
        addresses
            .address_verdict(ip("10.1.0.7"), false)
            .refusal
            .is_some()
    );
    assert_eq!(
        addresses.set_node(&key("", "n2"), ips(&["10.1.0.8"])),
        std::slice::from_ref(&b)
    );
    assert_eq!(
        addresses.set_service(&web, ServiceAddresses::default()),
        std::slice::from_ref(&a)
    );
    assert_eq!(addresses.set_node(&key("", "n2"), vec![]), [b]);
    assert_eq!(
        addresses.address_verdict(ip("10.1.0.7"), false),
        AddressVerdict::default()
    );
    assert_eq!(
        addresses.address_verdict(ip("10.1.0.8"), false),
        AddressVerdict::default()
    );
    assert_eq!(addresses.reporters_of(&ips(&["10.1.0.7"])), [a]);
}

#[test]
fn be_8_one_address_in_two_namespaces_is_told_once_for_each_change() {
    let mut addresses = cluster();
    let shared = |addresses: &Addresses| addresses.address_verdict(ip("10.1.0.7"), false).shared;
    let [a, b, c, d] = [("m", "a"), ("m", "b"), ("n", "a"), ("o", "a")].map(|(ns, n)| key(ns, n));
    let same = Some(ip("10.1.0.7"));
    assert_eq!(addresses.set_vmi(&a, same), []);
    assert_eq!(addresses.set_vmi(&b, same), [], "the same namespace");
    assert!(!shared(&addresses));
    assert_eq!(addresses.set_vmi(&c, same), [a.clone(), b.clone()]);
    assert!(shared(&addresses));
    assert_eq!(addresses.set_vmi(&d, same), [], "no news to the others");
    assert_eq!(addresses.set_vmi(&d, Some(ip("10.1.0.8"))), []);
    assert_eq!(addresses.set_vmi(&c, Some(ip("10.1.0.9"))), [a, b]);
    assert!(!shared(&addresses));
    assert_eq!(addresses.set_vmi(&d, None), []);
}

#[test]
fn be_8_ranges_are_read_strictly() {
    let contains = |cidr: &str, address: &str| cidr.parse::<Cidr>().unwrap().contains(ip(address));
    for (cidr, address, expected) in [
        ("10.0.0.0/8", "10.255.255.255", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.1.2.3/16", "10.1.0.0", true),
        ("10.1.2.3/32", "10.1.2.3", true),
        ("10.1.2.3/32", "10.1.2.2", false),
        ("0.0.0.0/0", "203.0.113.9", true),
        ("::/0", "203.0.113.9", false),
        ("::ffff:10.0.0.0/104", "10.0.0.1", false),
    ] {
        assert_eq!(contains(cidr, address), expected, "{cidr} {address}");
    }
    for bad in [
        "",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/+8",
        "10.0.0/8",
        "x/8",
        "::/129",
        " 10.0.0.0/8",
    ] {
        let refused = bad.parse::<Cidr>();
        assert!(
            refused.as_ref().is_err_and(|why| why.contains(bad)),
            "{bad}: {refused:?}"
        );
    }
    let denied: Denied = " 10.0.0.0/8 ,,fd00::/8".parse().unwrap();
    assert_eq!(denied.0.len(), 2);
    assert_eq!("".parse(), Ok(Denied::default()));
    assert!("10.0.0.0/8,x".parse::<Denied>().is_err());
}

#[test]
fn be_8_the_addresses_of_services_and_nodes() {
    let service: Service = serde_json::from_value(json!({
        "spec": {
            "clusterIP": "10.53.0.10", "clusterIPs": ["10.53.0.10", "fd53::10"],
            "externalIPs": ["10.0.0.50", "nonsense"], "loadBalancerIP": "10.0.0.61",
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.60"}, {"hostname": "a.example"}]}},
    }))
    .unwrap();
    let addresses = ServiceAddresses::of(&service);
    assert_eq!(addresses.cluster, ips(&["10.53.0.10", "10.53.0.10"]));
    assert_eq!(addresses.external, ips(&["10.0.0.50"]));
    assert_eq!(addresses.ingress, ips(&["10.0.0.60"]));
    let headless = serde_json::from_value(json!({"spec": {"clusterIP": "None"}})).unwrap();
    assert_eq!(ServiceAddresses::of(&headless), ServiceAddresses::default());

    let node_of = |status| {
        node(Ok(
            serde_json::from_value(json!({"status": status})).unwrap()
        ))
    };
    let addresses = json!({"addresses": [
        {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n1"},
        {"type": "ExternalIP", "address": "203.0.113.1"}, {"type": "InternalIP", "address": "fd00::1"},
    ]});
    let addresses = node_of(addresses).unwrap().addresses;
    assert_eq!(addresses, ips(&["10.0.0.1", "203.0.113.1"]));
    assert_eq!(node_of(json!({})), Some(NodeAddresses::default()));
}
