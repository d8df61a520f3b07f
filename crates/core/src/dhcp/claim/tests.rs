use harvester_lb_api::meta::Undecodable;
use harvester_lb_fixtures::{cluster_spec, load_balancer, vm_spec, with};
use serde_json::{Value, json};

use super::*;
use crate::cached;
use crate::kube_vip_annotations::is_interface_name;

fn lb(spec: &Value, metadata: Value) -> LbView {
    let mut object = load_balancer("shop", "web", "u-1", spec);
    object["metadata"] = with(object["metadata"].clone(), metadata);
    LbView::of(&serde_json::from_value(object).unwrap())
}

fn dhcp() -> Value {
    with(vm_spec("web"), json!({"ipam": "dhcp"}))
}

fn plain() -> Claim {
    Claim::Lease {
        interface: None,
        hardware: Ok(None),
    }
}

#[test]
fn dhc_1_vm_type_with_ipam_dhcp_asks_for_a_lease() {
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]});
    let cluster = with(cluster_spec(), json!({"ipam": "dhcp"}));
    let without_listeners = with(dhcp(), json!({"listeners": []}));
    let to_a_pool = with(vm_spec("web"), json!({"listeners": []}));
    let unusable = |ipam| {
        let mut spec = with(vm_spec("web"), json!({"ipam": ipam}));
        spec["listeners"][0]["name"] = "HTTP_1".into();
        spec
    };
    let no_hardware_address = json!({"annotations": {
        "loadbalancer.harvesterhci.io/dhcp-hardware-address": "x",
    }});
    let naming = json!({"annotations": {
        "loadbalancer.harvesterhci.io/primary-load-balancer": "api",
    }});
    let sharing = naming.clone();
    let cases = [
        (dhcp(), json!({}), plain()),
        (vm_spec("web"), json!({}), Claim::None),
        (cluster, json!({}), Claim::None),
        (dhcp(), deleted, Claim::Unchanged),
        // ALC-10, SHR-1: refused by the operator.
        (without_listeners, json!({}), Claim::Unchanged),
        (unusable("dhcp"), json!({}), Claim::Unchanged),
        (unusable("pool"), json!({}), Claim::Unchanged),
        (unusable("pool"), naming.clone(), Claim::None),
        // It may have a lease, and the edit that was to give it back is refused.
        (to_a_pool, json!({}), Claim::Unchanged),
        (vm_spec("web"), no_hardware_address, Claim::None),
        (dhcp(), naming, Claim::Unchanged),
        (vm_spec("web"), sharing, Claim::None),
    ];
    for (spec, metadata, expected) in cases {
        let view = lb(&spec, metadata.clone());
        assert_eq!(view.claim, expected, "{spec} {metadata}");
        assert_eq!(view.owner, Owner::new("shop", "web", "u-1"));
    }
    let invalid = Undecodable {
        metadata: serde_json::from_value(json!({"namespace": "shop", "name": "web", "uid": "u-1"}))
            .unwrap(),
        ..Undecodable::default()
    };
    let view = LbView::from_watch(Err(invalid));
    assert_eq!(view.claim, Claim::Unchanged);
    assert_eq!(*view.uid(), Uid::new("u-1"));
}

#[test]
fn dhc_1_annotations_of_a_lease() {
    let annotated =
        |annotations: Value| match lb(&dhcp(), json!({"annotations": annotations})).claim {
            Claim::Lease {
                interface,
                hardware,
            } => (interface, hardware),
            other => panic!("{other:?}"),
        };
    let (interface, hardware) = annotated(json!({
        "kube-vip.io/serviceInterface": "mgmt-br",
        "loadbalancer.harvesterhci.io/dhcp-hardware-address": "02:00:00:AA:bb:01",
    }));
    assert_eq!(interface.as_deref(), Some("mgmt-br"));
    let expected = HardwareAddress([2, 0, 0, 0xaa, 0xbb, 1]);
    assert_eq!(hardware, Ok(Some(expected)));
    let (interface, hardware) = annotated(json!({
        "kube-vip.io/serviceInterface": "",
        "loadbalancer.harvesterhci.io/dhcp-hardware-address": "ff:ff:ff:ff:ff:ff",
    }));
    assert_eq!(interface, None);
    assert_eq!(
        hardware,
        Err(HardwareAddressError::Multicast(HardwareAddress::BROADCAST))
    );
}

#[test]
fn kva_2_an_interface_that_is_not_allowed_is_not_used() {
    let interfaces = Interfaces {
        default: "mgmt-br".to_owned(),
        is_chosen: false,
        allowed: "vlan10".parse().unwrap(),
    };
    for (named, expected) in [
        (None, ("mgmt-br", false)),
        (Some("vlan10"), ("vlan10", true)),
        (Some("eth7"), ("mgmt-br", false)),
        (Some("mgmt-br"), ("mgmt-br", false)),
    ] {
        assert_eq!(interfaces.choose(named), expected, "{named:?}");
    }
}

#[test]
fn dhc_1_names_of_interfaces() {
    for (name, is_one) in [
        ("mgmt-br", true),
        ("vlan.10", true),
        ("a", true),
        ("", false),
        ("a b", false),
        ("b/c", false),
        ("a:1", false),
        (".", false),
        ("..", false),
        ("sixteen-letters-", false),
    ] {
        assert_eq!(is_interface_name(name), is_one, "{name}");
    }
}

fn service(address: &str, fields: &Value) -> Option<ServiceView> {
    let metadata = json!({
        "name": "web", "namespace": "shop",
        "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
    });
    let object = harvester_lb_fixtures::service(&with(metadata, fields.clone()), address);
    let decoded = serde_json::from_value::<Service>(object).unwrap();
    ServiceView::from_watch(&cached::service(Ok(decoded)).unwrap())
}

#[test]
fn dhc_4_only_services_of_ours_count() {
    let address = Ipv4Addr::new(192, 168, 100, 7);
    let ours = service("192.168.100.7", &json!({})).unwrap();
    assert!(ours.may_serve(address) && !ours.is_kube_vips);
    assert!(!ours.may_serve(Ipv4Addr::new(192, 168, 100, 8)));
    assert_eq!(service("192.168.100.7", &json!({"labels": {}})), None);
}

#[test]
fn dhc_4_a_service_that_is_still_announced_serves() {
    let mut object: Service = serde_json::from_value(harvester_lb_fixtures::service(
        &json!({"name": "web", "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"}}),
        "",
    ))
    .unwrap();
    let announced = harvester_lb_fixtures::announced("192.168.100.7");
    object.status = serde_json::from_value(announced).unwrap();
    let view = ServiceView::of(&object).unwrap();
    assert!(view.may_serve(Ipv4Addr::new(192, 168, 100, 7)));
}

#[test]
fn dhc_4_a_service_that_cannot_be_decoded_may_serve_anything() {
    let metadata = json!({
        "name": "web", "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
    });
    let invalid = Undecodable {
        metadata: serde_json::from_value(metadata).unwrap(),
        ..Undecodable::default()
    };
    let view = ServiceView::from_watch(&cached::service(Err(invalid)).unwrap()).unwrap();
    assert!(view.may_serve(Ipv4Addr::new(10, 0, 0, 1)));
}

#[test]
fn dhc_6_what_kube_vip_has_written_is_read() {
    let annotations = json!({"annotations": {
        "kube-vip.io/requestedIP": "192.168.100.9", "kube-vip.io/hwaddr": "00:00:6c:11:22:33",
    }});
    let view = service("0.0.0.0", &annotations).unwrap();
    assert!(view.is_kube_vips && view.shown.is_empty());
    assert_eq!(view.kube_vip_address, Some(Ipv4Addr::new(192, 168, 100, 9)));
    let hardware = HardwareAddress([0, 0, 0x6c, 0x11, 0x22, 0x33]);
    assert_eq!(view.kube_vip_hardware, Some(hardware));
    let nonsense = json!({"annotations": {
        "kube-vip.io/requestedIP": "0.0.0.0", "kube-vip.io/hwaddr": "x",
    }});
    let view = service("0.0.0.0", &nonsense).unwrap();
    assert_eq!(
        (view.kube_vip_address, view.kube_vip_hardware),
        (None, None)
    );
}
