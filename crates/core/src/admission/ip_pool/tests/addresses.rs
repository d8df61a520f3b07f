//! Addresses of a pool: those that are allocated from it stay in its ranges (PV-4, PV-9), and warnings about ranges with nothing
//! to allocate and about addresses that others have.

use harvester_lb_fixtures::{part, pool, record, subnet, with};
use serde_json::{Value, json};

use super::{held, shrunk};
use crate::admission::response::Warning;
use crate::admission::tests::world::{World, denied, refused_by, review, review_of, warnings};

#[test]
fn pv_4_allocated_addresses_stay_in_a_range() {
    let (object, world) = held();
    let update = |after: &Value| refused_by(&review_of("UPDATE", after, &object), &world);
    assert_eq!(update(&shrunk(9, 9)), None, "shrunk around it");
    assert_eq!(update(&shrunk(5, 100)), None, "history does not matter");
    assert_eq!(update(&shrunk(10, 100)), Some("PV-4"));
    let split = pool(
        "p",
        &[
            part("10.10.5.0/24", "10.10.5.2", "10.10.5.8"),
            part("10.10.5.0/24", "10.10.5.9", "10.10.5.30"),
        ],
    );
    assert_eq!(update(&split), None);
    let refusal = denied(&review_of("UPDATE", &shrunk(10, 100), &object), &world);
    assert_eq!(
        refusal.message(),
        "IPPool p: spec.ranges leaves out 1 allocated address, the first is 10.10.5.9 of LoadBalancer shop/web: keep it in a range, or delete its owner first"
    );
    // Only on an update: a pool of that name may be created again.
    assert_eq!(
        refused_by(&review("CREATE", &shrunk(10, 100)), &world),
        None
    );
}

#[test]
fn pv_4_the_maps_are_only_a_copy() {
    let (mut object, mut world) = held();
    let after = shrunk(5, 100);
    let allocated = |address: &str| json!({"total": 9, "available": 8, "lastAllocated": "", "allocated": {address: "shop/x"}});
    // In the request nobody looks at them.
    object["status"] = allocated("10.10.5.150");
    let request = review_of("UPDATE", &after, &object);
    assert_eq!(refused_by(&request, &world), None);
    // Stored by another writer, the IPAllocation may be yet to come.
    world.pool(&object);
    let refusal = denied(&request, &world);
    assert_eq!(refusal.rule(), "PV-4");
    assert!(
        refusal
            .message()
            .contains("10.10.5.150 of LoadBalancer shop/x"),
        "{refusal}"
    );
    object["status"] = allocated("10.10.5.9");
    world.pool(&object);
    assert_eq!(refused_by(&request, &world), None, "in the range");
    object["status"] = allocated("10.10.5.009");
    world.pool(&object);
    let refusal = denied(&request, &world);
    assert_eq!(
        refusal.message(),
        "IPPool p: status.allocated has the key \"10.10.5.009\", which is no address: remove it before the pool is changed"
    );
    // Our own copy counts for nothing, even if it is old.
    object["status"] = allocated("10.10.5.150");
    let maps = std::collections::BTreeMap::from([("10.10.5.150".to_owned(), "shop/x".to_owned())]);
    let digest =
        harvester_lb_api::projection::digest(Some(&maps), Some(&std::collections::BTreeMap::new()));
    object["metadata"]["annotations"] = json!({"loadbalancer.harvesterhci.io/projection": digest});
    world.pool(&object);
    assert_eq!(refused_by(&request, &world), None);
}

#[test]
fn pv_4_an_unreadable_record_counts_where_it_lies() {
    let (object, mut world) = held();
    let mut unreadable = record("10.10.5.150", "p", "Bound", ("shop", "x", "u"));
    unreadable["spec"]["address"] = json!("10.10.5.151");
    world.record(&unreadable);
    let refusal = denied(&review_of("UPDATE", &shrunk(5, 100), &object), &world);
    assert_eq!(refusal.rule(), "PV-4");
    assert!(
        refusal
            .message()
            .contains("10.10.5.150 of unreadable IPAllocation 10.10.5.150"),
        "{refusal}"
    );
    let elsewhere = pool("r", &[subnet("10.10.7.0/24")]);
    let smaller = pool("r", &[subnet("10.10.7.0/25")]);
    let of_r = review_of("UPDATE", &smaller, &elsewhere);
    assert_eq!(refused_by(&of_r, &world), None);
    // Repaired or deleted.
    world.allocated.remove_record("10.10.5.150");
    assert_eq!(
        refused_by(&review_of("UPDATE", &shrunk(5, 100), &object), &world),
        None
    );
}

#[test]
fn pv_4_no_gateway_becomes_an_allocated_address() {
    let (object, world) = held();
    let with_gateway = |gateway: &str| {
        pool(
            "p",
            &[with(subnet("10.10.5.0/24"), json!({"gateway": gateway}))],
        )
    };
    let update = |after: &Value| refused_by(&review_of("UPDATE", after, &object), &world);
    assert_eq!(update(&with_gateway("10.10.5.8")), None);
    assert_eq!(
        update(&with_gateway("10.10.5.200")),
        None,
        "history does not matter"
    );
    assert_eq!(update(&with_gateway("10.10.5.9")), Some("10.4"));
    let refusal = denied(
        &review_of("UPDATE", &with_gateway("10.10.5.9"), &object),
        &world,
    );
    assert_eq!(
        refusal.message(),
        "IPPool p: spec.ranges[0] has the gateway 10.10.5.9, which is allocated to LoadBalancer shop/web: choose another gateway, or delete the owner first"
    );
    // The default gateway of a smaller subnet.
    let default = pool("p", &[subnet("10.10.5.8/29")]);
    assert_eq!(update(&default), Some("10.4"));
    // One that was there before does not stop another edit.
    let mut described = with_gateway("10.10.5.9");
    described["spec"]["description"] = json!("edited");
    let request = review_of("UPDATE", &described, &with_gateway("10.10.5.9"));
    assert_eq!(refused_by(&request, &world), None);
}

#[test]
fn pv_9_only_a_pool_without_allocated_addresses_is_deleted() {
    let (object, mut world) = held();
    let delete = review_of("DELETE", &Value::Null, &object);
    let refusal = denied(&delete, &world);
    assert_eq!(refusal.rule(), "PV-9");
    assert_eq!(
        refusal.message(),
        "IPPool p: 1 of its addresses is allocated, the first is 10.10.5.9 of LoadBalancer shop/web: delete the load balancers first"
    );
    world.record(&record("10.10.5.9", "p", "Released", ("shop", "web", "u")));
    assert_eq!(refused_by(&delete, &world), None, "history only");
    let mut unreadable = record("10.10.5.9", "p", "Bound", ("shop", "x", "u"));
    unreadable["spec"]["address"] = json!("nothing");
    world.record(&unreadable);
    assert_eq!(refused_by(&delete, &world), Some("PV-9"), "unreadable");
    world.allocated.remove_record("10.10.5.9");
    let mut foreign = object.clone();
    foreign["status"] = json!({
        "total": 253, "available": 252, "lastAllocated": "", "allocated": {"10.10.5.77": "shop/x"},
        "allocatedHistory": {"10.10.5.78": "shop/y"},
    });
    world.pool(&foreign);
    assert_eq!(
        refused_by(&delete, &world),
        Some("PV-9"),
        "not imported yet"
    );
    foreign["status"]["allocated"] = json!({});
    world.pool(&foreign);
    assert_eq!(refused_by(&delete, &world), None);
}

/// A collection's deletion names its objects only in the objects.
#[test]
fn pv_9_a_deletion_of_all_pools() {
    let (object, world) = held();
    let mut body =
        crate::admission::tests::world::body("DELETE", "IPPool", "", &Value::Null, &object);
    for name in [Value::Null, json!("")] {
        body["request"]["name"] = name;
        let request = crate::admission::Request::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(refused_by(&request, &world), Some("PV-9"));
    }
}

#[test]
fn rng_9_a_range_with_nothing_to_allocate_is_a_warning() {
    let world = World::default();
    let of = |ranges: &[Value]| warnings(&review("CREATE", &pool("p", ranges)), &world);
    assert!(of(&[subnet("10.10.5.0/24"), subnet("10.10.6.0/32")]).is_empty());
    assert_eq!(
        of(&[subnet("10.10.5.0/24"), subnet("fd10:5::/127")]),
        ["spec.ranges[1] has no address to allocate: its gateway is its only address"]
    );
    let one = part("10.10.5.0/24", "10.10.5.1", "10.10.5.1");
    assert_eq!(of(&[one]).len(), 1);
    let many: Vec<Value> = (0..40)
        .map(|n| subnet(&format!("fd10:{n:x}::/127")))
        .collect();
    assert_eq!(of(&many).len(), Warning::MOST);
}

#[test]
fn val_1_warnings_about_addresses_of_others() {
    let object = pool(
        "p",
        &[
            part("10.10.5.0/24", "10.10.5.10", "10.10.5.20"),
            subnet("fd10:5::/64"),
        ],
    );
    let of = |world: &World| warnings(&review("CREATE", &object), world);
    let mut world = World::default();
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    world.nodes.set(
        "node1",
        addresses(&["10.10.5.9", "10.10.5.1", "192.168.1.1"]),
    );
    world
        .services
        .set("kube-system/ingress-expose", addresses(&["10.10.5.21"]));
    assert!(of(&world).is_empty(), "beside the ranges");
    world.nodes.set("node1", addresses(&["10.10.5.10"]));
    world
        .nodes
        .set("node2", addresses(&["10.10.5.20", "fd10:5::7"]));
    world
        .services
        .set("kube-system/ingress-expose", addresses(&["10.10.5.15"]));
    assert_eq!(
        of(&world),
        [
            "spec.ranges holds 10.10.5.10, the address of Node node1, and 2 more in use like it: leave it out of the ranges, or two hosts answer for it",
            "spec.ranges holds 10.10.5.15, the address of Service kube-system/ingress-expose: leave it out of the ranges, or two hosts answer for it",
        ]
    );
    world.nodes.remove("node1");
    world.nodes.remove("node2");
    world.services.set("kube-system/ingress-expose", Vec::new());
    assert!(of(&world).is_empty());
    // A gateway is never allocated.
    world.nodes.set("router", addresses(&["fd10:5::1"]));
    assert!(of(&world).is_empty());
    // Nobody knows yet: no warning, and no delay.
    world.nodes.set("node1", addresses(&["10.10.5.10"]));
    let long = "n".repeat(253);
    world
        .nodes
        .set(&long, addresses(&["10.10.5.9", "10.10.5.10"]));
    assert!(of(&world).iter().all(|warning| warning.len() <= 256));
}

#[test]
fn val_1_services_of_others() {
    use crate::admission::{foreign_addresses, node_addresses};
    let service = |metadata: Value, kind: &str| {
        let service = json!({
            "metadata": metadata,
            "spec": {"type": kind, "loadBalancerIP": "10.0.0.1", "externalIPs": ["10.0.0.2"], "clusterIP": "10.53.0.1"},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.3"}, {"hostname": "x"}]}},
        });
        let service: k8s_openapi::api::core::v1::Service = serde_json::from_value(service).unwrap();
        let found = foreign_addresses(&service);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let foreign = json!({"namespace": "kube-system", "name": "ingress-expose"});
    assert_eq!(
        service(foreign.clone(), "LoadBalancer"),
        ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    );
    assert!(service(foreign, "ClusterIP").is_empty());
    let ours = harvester_lb_fixtures::owned_by("shop", "web", "u");
    assert!(service(ours, "LoadBalancer").is_empty());
    let node = json!({"metadata": {"name": "n"}, "status": {"addresses": [
        {"type": "InternalIP", "address": "10.0.0.9"}, {"type": "Hostname", "address": "n"},
    ]}});
    let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node).unwrap();
    assert_eq!(
        node_addresses(&node),
        ["10.0.0.9".parse::<std::net::IpAddr>().unwrap()]
    );
}
