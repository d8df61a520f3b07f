//! The auditor can fail: each wrong is planted into a world in which all is well, and is named.

use harvester_lb_api::projection;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

const POOL: &str = "p";

fn made<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn uid(name: &str) -> String {
    format!("uid-of-{name}")
}

fn record(ip: &str, phase: &str, owner: &str) -> IPAllocation {
    made(json!({
        "metadata": {"name": ip},
        "spec": {
            "address": ip, "pool": POOL, "phase": phase,
            "owner": {"namespace": "n", "name": owner, "uid": uid(owner)},
        },
    }))
}

fn lb(name: &str, workload: &str, ip: &str) -> LoadBalancer {
    made(json!({
        "metadata": {"namespace": "n", "name": name, "uid": uid(name)},
        "spec": {"workloadType": workload, "ipPool": POOL},
        "status": {
            "address": ip, "allocatedAddress": {"ip": ip, "ipPool": POOL},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
        },
    }))
}

/// Says of a load balancer that it is not Ready.
fn not_ready(lb: &mut LoadBalancer, reason: &str) {
    let said = json!([{"type": "Ready", "status": "False", "reason": reason}]);
    lb.status.as_mut().unwrap().conditions = made(said);
}

fn waiting(name: &str, reason: &str) -> LoadBalancer {
    made(json!({
        "metadata": {"namespace": "n", "name": name, "uid": uid(name)},
        "spec": {"workloadType": "cluster", "ipPool": POOL},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": reason}]},
    }))
}

fn child(name: &str) -> Value {
    json!({
        "namespace": "n", "name": name,
        "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
        "ownerReferences": [{
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
            "name": name, "uid": uid(name),
        }],
    })
}

fn service(name: &str, ip: &str) -> Service {
    made(json!({
        "metadata": child(name), "spec": {"type": "LoadBalancer", "loadBalancerIP": ip},
        "status": {"loadBalancer": {"ingress": [{"ip": ip}]}},
    }))
}

fn slice(name: &str) -> EndpointSlice {
    let target = json!({"kind": "VirtualMachineInstance", "namespace": "n", "name": "vm"});
    made(json!({
        "metadata": child(name), "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": true}, "targetRef": target}],
    }))
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(ip, id)| ((*ip).to_owned(), (*id).to_owned()))
        .collect()
}

/// The pool of so many addresses with what its status says; the hash is that of its maps.
fn pool(total: i64, allocated: &[(&str, &str)], history: &[(&str, &str)]) -> IPPool {
    let (allocated, history) = (map(allocated), map(history));
    let digest = projection::digest(Some(&allocated), Some(&history));
    let available = total - i64::try_from(allocated.len()).unwrap();
    made(json!({
        "metadata": {"name": POOL, "annotations": {keys::ANNOTATION_PROJECTION: digest}},
        "spec": {"ranges": [{
            "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.2", "rangeEnd": format!("10.0.0.{}", total + 1),
        }]},
        "status": {
            "total": total, "available": available, "lastAllocated": "10.0.0.3",
            "allocated": allocated, "allocatedHistory": history,
        },
    }))
}

/// One load balancer of cluster type, one of VM type, one address of the past.
fn well() -> Everything {
    Everything {
        records: vec![
            record("10.0.0.2", "Bound", "a"),
            record("10.0.0.3", "Bound", "b"),
            record("10.0.0.4", "Released", "old"),
        ],
        lbs: vec![lb("a", "cluster", "10.0.0.2"), lb("b", "vm", "10.0.0.3")],
        services: vec![service("b", "10.0.0.3")],
        slices: vec![slice("b")],
        pools: vec![pool(
            3,
            &[("10.0.0.2", "n/a"), ("10.0.0.3", "n/b")],
            &[("10.0.0.4", "n/old")],
        )],
    }
}

fn figures(text: &str) -> Figures {
    Figures::parse(text).unwrap()
}

const FIGURES: &str = r#"
harvester_lb_load_balancers{ready="True",reason="Ready"} 2
harvester_lb_ipallocations{phase="Bound"} 2
harvester_lb_ipallocations{phase="Released"} 1
harvester_lb_load_balancers_waiting 0
harvester_lb_ippool_addresses{pool="p",state="total"} 3
harvester_lb_ippool_addresses{pool="p",state="allocated"} 2
harvester_lb_ippool_addresses{pool="p",state="available"} 1
harvester_lb_ippool_addresses{pool="other",state="available"} 9
"#;

#[test]
fn all_is_well() {
    let found = well().audit(&[POOL]);
    assert!(found.wrongs.is_empty(), "{:#?}", found.wrongs);
    assert_eq!(
        (found.bound, found.released, found.load_balancers),
        (2, 1, 2)
    );
    assert_eq!(
        well().exported(&figures(FIGURES), &[POOL]),
        Vec::<String>::new()
    );
}

/// What is planted, and what must be, or is rightly, said of it.
type Planted = (fn(&mut Everything), &'static str);

fn status(pool: &mut IPPool) -> &mut harvester_lb_api::IPPoolStatus {
    pool.status.as_mut().unwrap()
}

#[test]
fn each_wrong_is_named() {
    let planted: &[Planted] = &[
        // Addresses.
        (
            |all| all.records.push(record("10.0.0.5", "Bound", "gone")),
            "leaked: 10.0.0.5 of n/gone",
        ),
        (
            |all| all.records[0].spec.owner.uid = "before".into(),
            "leaked: 10.0.0.2 of n/a",
        ),
        (
            |all| all.records[0].spec.owner.name = "c".into(),
            "10.0.0.2 calls its owner n/c",
        ),
        (
            |all| all.records[0].metadata.name = Some("10.0.0.9".into()),
            "record 10.0.0.9 speaks of 10.0.0.2",
        ),
        (
            |all| drop(all.records.remove(0)),
            "n/a uses 10.0.0.2 without a record",
        ),
        (
            |all| all.records.push(record("10.0.0.5", "Bound", "a")),
            "n/a holds",
        ),
        (
            |all| all.records[0].spec.pool = "q".into(),
            "10.0.0.2 is of q",
        ),
        (
            |all| all.records[2].spec.pool = "q".into(),
            "remembered for a pool that is gone",
        ),
        (
            |all| all.lbs[0] = lb("a", "cluster", "10.0.0.3"),
            "twice: 10.0.0.3 of n/a and n/b",
        ),
        (|all| all.lbs[0].status = None, "unserved: n/a"),
        (
            |all| all.lbs.push(waiting("w", "NoMatchedPool")),
            "unserved: n/w",
        ),
        // There is one left: who waits was forgotten.
        (
            |all| all.lbs.push(waiting("w", "NoAvailableIP")),
            "unserved: n/w",
        ),
        // Services and EndpointSlices.
        (
            |all| drop(all.lbs.remove(1)),
            "Service n/b has no load balancer",
        ),
        (|all| drop(all.services.remove(0)), "n/b has no Service"),
        (|all| drop(all.slices.remove(0)), "n/b has no EndpointSlice"),
        (
            |all| all.services[0] = service("b", "10.0.0.2"),
            "Service n/b shows 10.0.0.2",
        ),
        (
            |all| all.services.push(service("a", "10.0.0.3")),
            "10.0.0.3 is shown by Services",
        ),
        (
            |all| all.services.push(service("a", "10.0.0.2")),
            "Service n/a is a guest cluster's",
        ),
        (
            |all| all.slices.push(slice("gone")),
            "EndpointSlice n/gone has no load balancer",
        ),
        (
            |all| {
                all.services[0].metadata.owner_references.as_mut().unwrap()[0].uid =
                    "before".into();
            },
            "Service n/b has another owner",
        ),
        // Who has all that it needs is Ready.
        (
            |all| not_ready(&mut all.lbs[0], "ApiError"),
            "n/a has all that it needs and is not Ready: ApiError",
        ),
        (
            |all| not_ready(&mut all.lbs[1], "WaitingForExternalIP"),
            "n/b has all that it needs and is not Ready: WaitingForExternalIP",
        ),
        (
            |all| all.lbs[1].status.as_mut().unwrap().conditions = None,
            "n/b has all that it needs and is not Ready",
        ),
        // Counters and maps.
        (|all| drop(all.pools.remove(0)), "there is no pool p"),
        (
            |all| status(&mut all.pools[0]).available = 2,
            "pool p: available is 2",
        ),
        (
            |all| status(&mut all.pools[0]).total = 4,
            "pool p: available is 1",
        ),
        (
            |all| {
                let status = status(&mut all.pools[0]);
                (status.total, status.available) = (4, 2);
            },
            "pool p: total is 4, its ranges have 3",
        ),
        (
            |all| status(&mut all.pools[0]).last_allocated = "10.1.0.3".into(),
            "pool p: lastAllocated is \"10.1.0.3\"",
        ),
        (
            |all| status(&mut all.pools[0]).last_allocated = "10.0.0.1".into(),
            "pool p: lastAllocated is \"10.0.0.1\"",
        ),
        (
            |all| status(&mut all.pools[0]).last_allocated = "none".into(),
            "pool p: lastAllocated is \"none\"",
        ),
        (
            |all| {
                all.pools[0] = pool(
                    3,
                    &[("10.0.0.2", "n/a"), ("10.0.0.3", "n/a")],
                    &[("10.0.0.4", "n/old")],
                );
            },
            "pool p: status.allocated is not the records",
        ),
        (
            |all| all.pools[0] = pool(3, &[("10.0.0.2", "n/a"), ("10.0.0.3", "n/b")], &[]),
            "pool p: status.allocatedHistory is not the records",
        ),
        (
            |all| all.pools[0].metadata.annotations = None,
            "pool p: the maps' hash",
        ),
    ];
    for (plant, said) in planted {
        let mut all = well();
        plant(&mut all);
        let wrongs = all.audit(&[POOL]).wrongs;
        assert!(
            wrongs.iter().any(|w| w.contains(said)),
            "not said: {said}, but {wrongs:#?}"
        );
    }
}

/// Who lacks something, or is kept from it by somebody else, is rightly not Ready.
#[test]
fn not_to_be_ready_can_be_right() {
    let lacking: &[Planted] = &[
        (|all| all.services[0].status = None, "WaitingForExternalIP"),
        (|all| all.slices[0].endpoints.clear(), "NoBackend"),
        (
            |all| all.slices[0].endpoints[0].target_ref = None,
            "NoBackend",
        ),
        (
            |all| all.lbs[1].spec.health_check = made(json!({"port": 80})),
            "BackendsUnhealthy",
        ),
        (|all| drop(all.services.remove(0)), "NameConflict"),
        (|_| (), "ApiError"),
        (|_| (), "InvalidSelector"),
    ];
    for (lack, reason) in lacking {
        let mut all = well();
        lack(&mut all);
        not_ready(&mut all.lbs[1], reason);
        let wrongs = all.audit(&[POOL]).wrongs;
        assert!(wrongs.is_empty(), "{reason}: {wrongs:#?}");
    }
}

#[test]
fn too_much_of_the_past_is_named() {
    let mut all = well();
    for n in 0..HISTORY_OF_A_POOL {
        let ip = format!("10.1.{}.{}", n / 256, n % 256);
        all.records.push(record(&ip, "Released", "old"));
    }
    let wrongs = all.audit(&[]).wrongs;
    assert!(
        wrongs.iter().any(|w| w.contains("are remembered")),
        "{wrongs:#?}"
    );
}

#[test]
fn waiting_for_a_full_pool_is_no_wrong() {
    let mut all = well();
    all.lbs.push(waiting("w", "NoAvailableIP"));
    all.pools[0] = pool(
        2,
        &[("10.0.0.2", "n/a"), ("10.0.0.3", "n/b")],
        &[("10.0.0.4", "n/old")],
    );
    let found = all.audit(&[POOL]);
    assert!(found.wrongs.is_empty(), "{:#?}", found.wrongs);
    assert_eq!(found.waiting, ["n/w"]);
}

#[test]
fn ops_1_each_figure_that_is_not_what_is_stored_is_named() {
    for (right, wrong) in [
        (r#"reason="Ready"} 2"#, r#"reason="Ready"} 3"#),
        (r#"reason="Ready"} 2"#, r#"reason="NoBackend"} 2"#),
        (r#"phase="Bound"} 2"#, r#"phase="Bound"} 1"#),
        (r#"phase="Released"} 1"#, r#"phase="Released"} 0"#),
        ("waiting 0", "waiting 1"),
        (r#"state="total"} 3"#, r#"state="total"} 4"#),
        (r#"state="allocated"} 2"#, r#"state="allocated"} 3"#),
        (r#"state="available"} 1"#, r#"state="available"} 0"#),
        (
            r#"harvester_lb_ippool_addresses{pool="p",state="total"} 3"#,
            "",
        ),
    ] {
        let text = FIGURES.replacen(right, wrong, 1);
        assert_ne!(text, FIGURES);
        let wrongs = well().exported(&figures(&text), &[POOL]);
        assert_eq!(wrongs.len(), 1, "{wrong}: {wrongs:#?}");
    }
}
