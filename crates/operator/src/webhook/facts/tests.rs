use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::watch;
use harvester_lb_ipam::OwnerId;
use kube::Resource;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

/// Delivers a list, as a watch does.
pub(in crate::webhook) fn list<K, V>(
    store: &Store<V>,
    objects: &[Value],
    convert: impl Fn(Decoded<K>) -> Option<V>,
    handler: impl Fn(&Key, Change<V>),
) where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let objects = objects.iter().map(|object| {
        let guard: DecodeGuard<K> = serde_json::from_value(object.clone()).unwrap();
        Event::InitApply(guard)
    });
    let events = std::iter::once(Event::Init)
        .chain(objects)
        .chain(std::iter::once(Event::InitDone));
    for event in events {
        let pending = watch::deliver(event, store, &convert, &handler);
        assert!(pending.unconfirmed.is_empty() && pending.older.is_empty());
    }
}

pub(in crate::webhook) fn list_instances(facts: &Facts, objects: &[Value]) {
    list(
        &facts.instances,
        objects,
        |decoded| Some(Instance::from_watch(decoded)),
        |key, change| facts.instance_changed(key, &change),
    );
}

pub(in crate::webhook) fn list_pools(facts: &Facts, objects: &[Value]) {
    list(
        &facts.pools,
        objects,
        |decoded| Some(Pool::from_watch(decoded)),
        |key, change| facts.pool_changed(key, &change),
    );
}

pub(in crate::webhook) fn list_allocations(facts: &Facts, objects: &[Value]) {
    list(
        &facts.allocations,
        objects,
        |decoded| Some(Allocation::from_watch(decoded)),
        |key, change| facts.allocation_changed(key, &change),
    );
}

fn instance(name: &str, networks: &Value) -> Value {
    json!({
        "metadata": {
            "namespace": "web", "name": name, "resourceVersion": "5", "uid": name,
            "labels": {keys::LABEL_GUEST_CLUSTER: "gc1", "other": "x"},
        },
        "spec": {"networks": networks},
        "status": {"interfaces": [{"name": "default", "ipAddress": "10.10.1.7"}]},
    })
}

fn allocation() -> Value {
    json!({
        "metadata": {"name": "10.10.9.4", "resourceVersion": "6"},
        "spec": {
            "address": "10.10.9.4", "pool": "p", "phase": "Bound",
            "owner": {"namespace": "web", "name": "a", "uid": "u"},
        },
    })
}

#[test]
fn cnv_1_conversion_waits_for_three_kinds_and_no_other() {
    let facts = Facts::default();
    let live = Live::default();
    let waits = || facts.unsynced_for_conversion();
    assert_eq!(
        waits(),
        ["virtualmachineinstances", "ippools", "ipallocations"]
    );
    list_instances(&facts, &[]);
    list_pools(&facts, &[]);
    assert_eq!(waits(), ["ipallocations"]);
    assert!(facts.read(&live).conversion().is_none());
    list_allocations(&facts, &[allocation()]);
    assert!(waits().is_empty());
    assert!(facts.read(&live).conversion().is_some());
    // The others are listed later, and only their rules wait.
    assert_eq!(facts.unsynced_besides().len(), 5);
    let snapshot = facts.read(&live);
    assert!(snapshot.guest_networks().is_ok() && snapshot.pools().is_ok());
    assert!(snapshot.allocated().is_ok());
    assert!(snapshot.removed_clusters().is_err());
    assert!(snapshot.nodes().is_none() && snapshot.services().is_none());
}

#[test]
fn cnv_1_the_facts_of_a_conversion_follow_the_stores() {
    let facts = Facts::default();
    let live = Live::default();
    list_pools(&facts, &[]);
    list_allocations(&facts, &[allocation()]);
    list_instances(&facts, &[instance("vm7", &json!([]))]);
    let found = || {
        let snapshot = facts.read(&live);
        let conversion = snapshot.conversion().unwrap();
        let machine = conversion.virtual_machine("web", "10.10.1.7".parse().unwrap());
        let pool = conversion.pool(&OwnerId::new("web", "a"), "10.10.9.4".parse().unwrap());
        (machine, pool)
    };
    assert_eq!(found(), (Some("vm7".into()), Some("p".into())));
    list_instances(&facts, &[]);
    list_allocations(&facts, &[]);
    assert_eq!(found(), (None, None));
}

#[test]
fn wm_3_a_network_of_an_unexpected_form_hides_no_address() {
    let facts = Facts::default();
    let live = Live::default();
    let network = json!([{"name": "n", "multus": {"networkName": "net/v20"}}]);
    list_pools(&facts, &[]);
    list_allocations(&facts, &[]);
    for (networks, wanted) in [(network, Some("net/v20")), (json!({"x": 7}), None)] {
        let facts_of = instance("vm7", &networks);
        list_instances(&facts, &[]);
        list_instances(&facts, &[facts_of]);
        let snapshot = facts.read(&live);
        let found = snapshot.guest_networks().unwrap().network_of("web", "gc1");
        assert_eq!(found, wanted, "{networks}");
        let conversion = snapshot.conversion().unwrap();
        let machine = conversion.virtual_machine("web", "10.10.1.7".parse().unwrap());
        assert_eq!(machine.as_deref(), Some("vm7"), "{networks}");
    }
}

#[test]
fn wm_2_what_was_read_live_comes_before_the_store() {
    let facts = Facts::default();
    let namespace = json!({
        "metadata": {
            "name": "shop", "resourceVersion": "3",
            "annotations": {keys::ANNOTATION_PROJECT_ID: "c:p"},
        },
    });
    list(
        &facts.namespaces,
        &[namespace],
        |decoded| Some(project(decoded)),
        |_, _| {},
    );
    let mut live = Live::default();
    let project = |live: &Live, name: &str| facts.read(live).project_id(name);
    assert_eq!(project(&live, "shop"), Lookup::Found("c:p".to_owned()));
    // A store may lack what was just created: only a live read tells.
    assert_eq!(project(&live, "new"), Lookup::Unread);
    live.namespaces.insert("new".to_owned(), Lookup::NotFound);
    assert_eq!(project(&live, "new"), Lookup::NotFound);
}
