use super::*;

use harvester_lb_api::{IPAllocation, keys};
use harvester_lb_controller_kit::decode_guard::{DecodeGuard, decode};
use harvester_lb_controller_kit::watch::deliver;
use harvester_lb_core::cached::{self, Allocation, Lb};
use harvester_lb_core::sharing::refusals::{Change, What};
use harvester_lb_fixtures::{load_balancer, record, stored, vm_spec};
use harvester_lb_ipam::{Ledger, Settings as LedgerSettings};
use harvester_lb_object::{Key, Version};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use crate::fake::{self, FakeApiServer};
use crate::index::leader_state::LeaderState;
use crate::timings::Timings;

/// Delivers an object through a watch.
fn brings_node(index: &Index, object: &Value) {
    let decoded = decode::<Node>(&object.to_string()).unwrap();
    let event = Event::Apply(DecodeGuard(decoded));
    let handler = |key: &Key, change| index.node_changed(key, &change);
    let open = deliver(event, &index.stores.nodes, &cached::node, &handler);
    assert!(open.older.is_empty());
}

fn brings_service(index: &Index, object: &Value) {
    let decoded = decode::<Service>(&object.to_string()).unwrap();
    let event = Event::Apply(DecodeGuard(decoded));
    let handler = |key: &Key, change| index.service_changed(key, &change);
    let open = deliver(event, &index.stores.services, &cached::service, &handler);
    assert!(open.older.is_empty());
}

fn loses_service(index: &Index, name: &str) {
    let change = index
        .stores
        .services
        .forget(&Key::new("n", name), harvester_lb_object::Version(99));
    index.service_changed(&Key::new("n", name), &change.unwrap());
}

fn refused(index: &Index, address: &str) -> bool {
    index
        .address_verdict(address.parse().unwrap())
        .refusal
        .is_some()
}

/// The answer to a write and the watch report changes on different threads.
#[tokio::test]
async fn shr_5_handlers_that_run_out_of_order_leave_the_load_balancer_that_is_stored() {
    let ctx = fake::context(FakeApiServer::default().client(), &Timings::default(), true);
    let index = &*ctx.index;
    index.become_leader(|| LeaderState::new(Ledger::new(LedgerSettings::default())));
    let (key, group) = (Key::new("n", "b"), Key::new("n", "a"));
    let is_shared = || index.group(&group).is_some();
    let is_deleted = || index.left_behind(&key).is_ok_and(|it| it.deleted.is_some());
    let copy = |version: u64, uid: &str| {
        let lb = load_balancer("n", "b", uid, &vm_spec("x"));
        let mut lb = stored(lb, uid, version);
        lb["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "a" });
        let lb = Lb::valid(serde_json::from_value(lb).unwrap());
        let lbs = &index.stores.lbs;
        lbs.written(&key, Version(version), lb).unwrap()
    };
    let created = copy(5, "u-1");
    index.lb_changed(&key, &created);
    assert!(is_shared());
    // It is deleted before what was written is handled.
    let written = copy(6, "u-1");
    let deleted = index.stores.lbs.forget(&key, Version(7)).unwrap();
    index.lb_changed(&key, &deleted);
    index.lb_updated(&key, &written);
    index.lb_changed(&key, &written);
    assert!(!is_shared() && is_deleted());
    // It is created again, and then deleted and created, before the deletion is handled.
    index.lb_changed(&key, &copy(8, "u-2"));
    let deleted = index.stores.lbs.forget(&key, Version(9)).unwrap();
    index.lb_changed(&key, &copy(10, "u-3"));
    index.lb_changed(&key, &deleted);
    assert!(is_shared() && !is_deleted());
}

#[tokio::test]
async fn dhc_5_handlers_that_run_out_of_order_leave_the_address_that_is_stored() {
    let ctx = fake::context(FakeApiServer::default().client(), &Timings::default(), true);
    let index = &*ctx.index;
    index.become_leader(|| LeaderState::new(Ledger::new(LedgerSettings::default())));
    let addresses = ["10.0.0.1", "10.0.0.2"];
    let [first, second] = addresses.map(|address| {
        let mut object = record(address, "", "Bound", ("n", "a", "u"));
        object["metadata"]["name"] = "dhcp-u".into();
        object["spec"]["lease"] = json!({
            "interface": "eth0", "hardwareAddress": "02:00:00:00:00:01", "clientId": "ff",
            "server": "10.0.0.254",
        });
        let object: IPAllocation = serde_json::from_value(stored(object, "r", 2)).unwrap();
        Allocation::decoded(&object)
    });
    let name = Key::new("", "dhcp-u");
    let store = &index.stores.allocations;
    let leased = || {
        let is_leased = |address: &str| {
            let address = address.parse().unwrap();
            index
                .with_leader(|leader| leader.is_leased(address))
                .unwrap()
        };
        addresses.map(is_leased)
    };
    let one = store.written(&name, Version(2), first).unwrap();
    let two = store.written(&name, Version(3), second).unwrap();
    index.allocation_changed(&name, &two);
    index.allocation_changed(&name, &one);
    assert_eq!(leased(), [false, true]);
    let gone = store.forget(&name, Version(3)).unwrap();
    index.allocation_changed(&name, &gone);
    index.allocation_changed(&name, &two);
    assert_eq!(leased(), [false, false]);
}

#[tokio::test]
async fn be_8_a_node_that_cannot_be_decoded_keeps_its_protection() {
    let ctx = fake::context(FakeApiServer::default().client(), &Timings::default(), true);
    let index = &*ctx.index;
    let node = |version: &str, status: Value| json!({"metadata": {"name": "n1", "resourceVersion": version}, "status": status});
    let addresses = |all: &[&str]| {
        let all: Vec<Value> = all
            .iter()
            .map(|a| json!({"type": "InternalIP", "address": a}))
            .collect();
        json!(all)
    };
    brings_node(
        index,
        &node("1", json!({"addresses": addresses(&["10.0.0.1"])})),
    );
    assert!(refused(index, "10.0.0.1"));
    // Known addresses stay, and readable ones are added.
    brings_node(
        index,
        &node(
            "2",
            json!({"addresses": addresses(&["10.0.0.2"]), "conditions": 7}),
        ),
    );
    brings_node(
        index,
        &node("3", json!({"addresses": "10.0.0.3", "conditions": 7})),
    );
    brings_node(index, &node("4", json!(7)));
    for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        assert!(refused(index, address), "{address}");
    }
    assert!(!refused(index, "10.0.0.4"));
    // Decodable again: only its own addresses count.
    brings_node(
        index,
        &node("5", json!({"addresses": addresses(&["10.0.0.4"])})),
    );
    assert!(!refused(index, "10.0.0.1") && refused(index, "10.0.0.4"));
}

#[tokio::test]
async fn be_8_a_service_that_cannot_be_decoded_keeps_its_protection() {
    let ctx = fake::context(FakeApiServer::default().client(), &Timings::default(), true);
    let index = &*ctx.index;
    let service = |name: &str, version: &str, spec: Value, status: Value| {
        json!({
            "metadata": {"namespace": "n", "name": name, "resourceVersion": version},
            "spec": spec, "status": status,
        })
    };
    let ingress = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}});
    let sound = json!({"clusterIP": "10.53.0.1", "clusterIPs": ["10.53.0.1"]});
    brings_service(index, &service("a", "1", sound.clone(), ingress.clone()));
    assert!(refused(index, "10.53.0.1") && refused(index, "10.0.0.9"));
    brings_service(index, &service("a", "2", json!(7), json!({})));
    assert!(
        refused(index, "10.53.0.1") && refused(index, "10.0.0.9"),
        "as it was known"
    );
    // Never decoded: only readable addresses count.
    let broken = json!({
        "clusterIP": "10.53.0.2", "clusterIPs": ["10.53.0.2", 7], "externalIPs": ["10.0.0.50"], "ports": "none",
    });
    let ingress = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.60"}]}});
    brings_service(index, &service("b", "3", broken, ingress));
    for address in ["10.53.0.2", "10.0.0.50", "10.0.0.60"] {
        assert!(refused(index, address), "{address}");
    }
    // Deleted, or decodable again.
    loses_service(index, "b");
    assert!(!refused(index, "10.53.0.2"));
    brings_service(index, &service("a", "4", sound, json!({})));
    assert!(refused(index, "10.53.0.1") && !refused(index, "10.0.0.9"));
}

/// What is refused of a shared Service is tried again by itself after a write that has left it out.
#[tokio::test]
async fn shr_3_a_write_of_what_is_not_refused_brings_the_group_back_for_the_rest() {
    let ctx = fake::context(FakeApiServer::default().client(), &Timings::default(), true);
    let index = &*ctx.index;
    index.become_leader(|| LeaderState::new(Ledger::new(LedgerSettings::default())));
    let group = Key::new("n", "a");
    let mut lb = stored(load_balancer("n", "b", "u-b", &vm_spec("x")), "u-b", 5);
    lb["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "a" });
    let lb = Lb::valid(serde_json::from_value(lb).unwrap());
    let member = Key::new("n", "b");
    let change = index.stores.lbs.written(&member, Version(5), lb).unwrap();
    index.lb_changed(&member, &change);
    let is_due = || fake::due(index).contains(&group);
    let fields = |name: &str| Change {
        name: name.to_owned(),
        uid: format!("u-{name}"),
        what: What::Fields(String::new()),
    };
    let (one, two) = ([fields("b")], [fields("a")]);
    is_due();
    index.service_written(&group, &one);
    assert!(!is_due(), "nothing was refused");
    let pause = |_| Duration::from_secs(1);
    assert!(index.service_refused(&group, &[one.clone(), two.clone()].concat(), "no", pause));
    assert!(is_due());
    index.service_written(&group, &one);
    assert!(is_due() && index.has_refusals(&group));
    index.service_written(&group, &two);
    assert!(is_due() && !index.has_refusals(&group));
    index.service_written(&group, &two);
    assert!(!is_due(), "all is done");
}
