//! The index of facts: virtual machines and pools as they come and go.

use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_ipam::{OwnerId, PoolName};

use super::*;
use crate::cached::Pool;

fn machine(index: &Index, address: &str) -> Option<String> {
    let address = address.parse().unwrap();
    index.virtual_machine("web", address).map(|n| n.to_string())
}

fn pool(index: &Index, owner: &str, address: &str) -> Option<String> {
    let (owner, address): (_, IpAddr) = (OwnerId::parse(owner).unwrap(), address.parse().unwrap());
    index.pool(&owner, address).map(|pool| pool.to_string())
}

#[test]
fn an_address_follows_its_virtual_machine() {
    let mut index = Index::default();
    let key = Key::new("web", "a");
    assert_eq!(machine(&index, "10.0.0.1"), None);
    add_machine(&mut index, "web", "a", "10.0.0.1");
    add_machine(&mut index, "web", "a", "10.0.0.1");
    assert_eq!(machine(&index, "10.0.0.1").as_deref(), Some("a"));
    assert!(
        index
            .virtual_machine("other", "10.0.0.1".parse().unwrap())
            .is_none()
    );
    add_machine(&mut index, "web", "a", "10.0.0.2");
    assert_eq!(machine(&index, "10.0.0.1"), None);
    assert_eq!(machine(&index, "10.0.0.2").as_deref(), Some("a"));
    let silent = vmi(fixtures::machine("web", "a", &json!({}), None));
    index.set_virtual_machine(&key, Some(&silent));
    assert_eq!(machine(&index, "10.0.0.2"), None);
    add_machine(&mut index, "web", "a", "10.0.0.2");
    index.set_virtual_machine(&key, None);
    index.set_virtual_machine(&key, None);
    assert_eq!(machine(&index, "10.0.0.2"), None);
    assert_eq!(format!("{index:?}"), format!("{:?}", Index::default()));
}

#[test]
fn of_several_virtual_machines_the_one_that_gets_traffic() {
    let mut index = Index::default();
    let address = "10.0.0.1";
    let mut set = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut object = fixtures::machine("web", name, &json!({}), Some(address));
        change(&mut object);
        index.set_virtual_machine(&Key::new("web", name), Some(&vmi(object)));
        machine(&index, address).unwrap()
    };
    let deleting = |object: &mut Value| {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    };
    let terminated = |object: &mut Value| object["status"]["phase"] = "Succeeded".into();
    assert_eq!(set("a", &deleting), "a");
    assert_eq!(set("b", &terminated), "b");
    assert_eq!(set("d", &|_| ()), "d");
    assert_eq!(set("c", &|_| ()), "c");
    assert_eq!(set("c", &terminated), "d");
    assert_eq!(set("d", &deleting), "b");
    assert_eq!(set("b", &deleting), "c");
    assert_eq!(set("c", &deleting), "a");
}

/// A pool whose maps the Go operator wrote.
fn foreign(allocated: &Value, history: &Value) -> Arc<Pool> {
    let mut object = fixtures::pool("any", &[fixtures::subnet("10.0.0.0/24")]);
    object["status"] = json!({
        "total": 1, "available": 1, "lastAllocated": "", "allocated": allocated, "allocatedHistory": history,
    });
    Arc::new(Pool::valid(serde_json::from_value(object).unwrap()))
}

#[test]
fn the_pool_by_the_ipallocation_then_by_foreign_maps() {
    let mut index = Index::default();
    let (address, id) = ("10.0.0.5", "web/a");
    let none = json!({});
    let named = json!({ address: id });
    let name: PoolName = "history".into();
    index.set_pool(&name, Some(&foreign(&none, &named)));
    assert_eq!(pool(&index, id, address).as_deref(), Some("history"));
    assert_eq!(pool(&index, "web/b", address), None);
    assert_eq!(pool(&index, id, "10.0.0.6"), None);

    add_allocation(&mut index, address, "released", "Released", id);
    assert_eq!(pool(&index, id, address).as_deref(), Some("released"));
    let name: PoolName = "map".into();
    index.set_pool(&name, Some(&foreign(&named, &none)));
    assert_eq!(pool(&index, id, address).as_deref(), Some("map"));
    add_allocation(&mut index, address, "bound", "Bound", id);
    assert_eq!(pool(&index, id, address).as_deref(), Some("bound"));

    // An IPAllocation of another load balancer says nothing about this one.
    add_allocation(&mut index, address, "bound", "Bound", "web/b");
    assert_eq!(pool(&index, id, address).as_deref(), Some("map"));
    assert_eq!(pool(&index, "web/b", address).as_deref(), Some("bound"));
    index.set_allocation(address.parse().unwrap(), None);
    assert_eq!(pool(&index, "web/b", address), None);

    // Maps that this operator wrote are only a copy.
    let mut ours = Pool::valid(serde_json::from_value(fixtures::pool("map", &[])).unwrap());
    ours.foreign_maps = None;
    index.set_pool(&name, Some(&Arc::new(ours)));
    assert_eq!(pool(&index, id, address).as_deref(), Some("history"));
    index.set_pool(&"history".into(), None);
    assert_eq!(pool(&index, id, address), None);
}

#[test]
fn an_unreadable_ipallocation_names_no_pool() {
    let mut index = facts();
    let mut object = fixtures::record("10.10.9.4", "p", "Bound", ("web", "a", "u-1"));
    object["spec"]["address"] = "10.10.9.5".into();
    let unreadable = Allocation::decoded(&serde_json::from_value(object).unwrap());
    assert!(matches!(unreadable, Allocation::Unreadable { .. }));
    index.set_allocation("10.10.9.4".parse().unwrap(), Some(&unreadable));
    assert_eq!(pool(&index, "web/a", "10.10.9.4"), None);
}
