//! The auditor finds violations: each is injected into a valid snapshot, and must be reported.

mod before_import;
mod documentation;
mod leases;
mod requested;
mod selection;
mod sharing;
mod surroundings;
mod undecodable;
mod unserved;

use std::collections::BTreeMap;

use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, keys, projection};
use harvester_lb_fixtures as fixtures;
use harvester_lb_fixtures::{cluster_spec, part, vm_spec, with};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Cluster, Finding, Snapshot, UndecodableObject, audit};

const POOL: &str = "p";
const MACHINE: &str = "10.52.0.1";

fn made<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn uid(name: &str) -> String {
    format!("uid-of-{name}")
}

fn record(ip: &str, phase: &str, owner: &str) -> IPAllocation {
    made(fixtures::record(ip, POOL, phase, ("n", owner, &uid(owner))))
}

fn condition(reason: &str, message: &str) -> Value {
    let status = if reason == "Ready" { "True" } else { "False" };
    json!([{"type": "Ready", "status": status, "reason": reason, "message": message}])
}

fn lb(name: &str, spec: Value, status: &Value) -> LoadBalancer {
    let spec = with(spec, json!({"ipPool": POOL}));
    let lb = fixtures::load_balancer("n", name, &uid(name), &spec);
    made(with(lb, json!({"status": status})))
}

/// A load balancer with an address, and the status that goes with it.
fn served(name: &str, spec: Value, ip: &str, backends: &[&str]) -> LoadBalancer {
    let status = json!({
        "address": ip, "allocatedAddress": {"ip": ip, "ipPool": POOL}, "backendServers": backends,
        "conditions": condition("Ready", ""),
    });
    lb(name, spec, &status)
}

/// Sets the Ready condition of a load balancer to False.
fn says(lb: &mut LoadBalancer, reason: &str, message: &str) {
    lb.status.as_mut().unwrap().conditions = made(condition(reason, message));
}

/// Adds a condition beside Ready.
fn tells(lb: &mut LoadBalancer, type_: &str, status: &str, message: &str) {
    let told = json!({"type": type_, "status": status, "reason": type_, "message": message});
    let conditions = lb.status.as_mut().unwrap().conditions.as_mut();
    conditions.unwrap().push(made(told));
}

fn waiting(name: &str, reason: &str, message: &str) -> LoadBalancer {
    let status = json!({"conditions": condition(reason, message)});
    lb(name, cluster_spec(), &status)
}

fn service(name: &str, ip: &str) -> Service {
    let service = fixtures::service(&fixtures::owned_by("n", name, &uid(name)), ip);
    made(with(service, json!({"status": fixtures::announced(ip)})))
}

fn slice(name: &str) -> EndpointSlice {
    let endpoint = fixtures::endpoint(MACHINE, "n", "vm", "uid-of-vm");
    let meta = fixtures::owned_by("n", name, &uid(name));
    made(fixtures::endpoint_slice(&meta, &[endpoint]))
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(ip, id)| ((*ip).to_owned(), (*id).to_owned()))
        .collect()
}

/// A pool of `total` addresses with this status, and the digest of its maps.
fn pool(total: i64, allocated: &[(&str, &str)], history: &[(&str, &str)]) -> IPPool {
    let (allocated, history) = (map(allocated), map(history));
    let digest = projection::digest(Some(&allocated), Some(&history));
    let available = total - i64::try_from(allocated.len()).unwrap();
    let last = format!("10.0.0.{}", total + 1);
    let pool = fixtures::pool(POOL, &[part("10.0.0.0/24", "10.0.0.2", &last)]);
    made(with(
        pool,
        json!({
            "metadata": {"name": POOL, "annotations": {keys::ANNOTATION_PROJECTION: digest}},
            "status": {
                "total": total, "available": available, "lastAllocated": "10.0.0.3",
                "allocated": allocated, "allocatedHistory": history,
                "conditions": condition("Ready", ""),
            },
        }),
    ))
}

/// A valid snapshot: one load balancer of cluster type, one of VM type, one Released address.
fn well() -> Snapshot {
    let machine = fixtures::machine("n", "vm", &json!({"app": "web"}), Some(MACHINE));
    let machine = with(
        machine,
        json!({"metadata": {
            "namespace": "n", "name": "vm", "uid": "uid-of-vm", "labels": {"app": "web"},
        }}),
    );
    Snapshot {
        records: vec![
            record("10.0.0.2", "Bound", "a"),
            record("10.0.0.3", "Bound", "b"),
            record("10.0.0.4", "Released", "old"),
        ],
        load_balancers: vec![
            served("a", cluster_spec(), "10.0.0.2", &[]),
            served("b", vm_spec("web"), "10.0.0.3", &[MACHINE]),
        ],
        services: vec![service("b", "10.0.0.3")],
        slices: vec![slice("b")],
        pools: vec![pool(
            3,
            &[("10.0.0.2", "n/a"), ("10.0.0.3", "n/b")],
            &[("10.0.0.4", "n/old")],
        )],
        cluster: Some(Cluster {
            machines: vec![made(machine)],
            ..Cluster::default()
        }),
        undecodable: Vec::new(),
        announcing: true,
    }
}

#[test]
fn all_is_well() {
    let report = audit(&well());
    assert_eq!(report.findings, []);
    assert_eq!(
        (report.bound, report.released, report.load_balancers),
        (2, 1, 2)
    );
    assert!(report.waiting.is_empty());
}

/// The violation to inject, the rule that it breaks, and the text of the finding.
type InjectedViolation = (fn(&mut Snapshot), &'static str, &'static str);

fn status(all: &mut Snapshot) -> &mut harvester_lb_api::IPPoolStatus {
    all.pools[0].status.as_mut().unwrap()
}

fn is_named(violations: &[InjectedViolation]) {
    for (inject, rule, said) in violations {
        let mut all = well();
        inject(&mut all);
        let findings = audit(&all).findings;
        let named = |f: &Finding| f.rule == *rule && f.to_string().contains(said);
        assert!(
            findings.iter().any(named),
            "not said: {rule} {said}, but {findings:#?}"
        );
    }
}

#[test]
fn wrongs_of_addresses_are_named() {
    is_named(&[
        (
            |all| all.records.push(record("10.0.0.5", "Bound", "gone")),
            "REL-2",
            "10.0.0.5 (REL-2): is Bound to LoadBalancer n/gone, which does not exist",
        ),
        (
            |all| all.records[0].spec.owner.uid = "before".into(),
            "IPA-3",
            "is Bound to another uid than that of LoadBalancer n/a",
        ),
        (
            |all| all.records[0].spec.owner.name = "c".into(),
            "REL-2",
            "is Bound to LoadBalancer n/c",
        ),
        (
            |all| all.records[0].metadata.name = Some("10.0.0.9".into()),
            "section 6.5",
            "IPAllocation 10.0.0.9 (section 6.5): spec.address is 10.0.0.2",
        ),
        (
            |all| drop(all.records.remove(0)),
            "ALC-5",
            "LoadBalancer n/a (ALC-5): has no Bound IPAllocation, and status.allocatedAddress is 10.0.0.2",
        ),
        (
            |all| all.records.push(record("10.0.0.5", "Bound", "a")),
            "ALC-1",
            "LoadBalancer n/a (ALC-1): has several Bound IPAllocations",
        ),
        (
            |all| all.records[0].spec.phase = harvester_lb_api::Phase::Released,
            "ALC-5",
            "status.allocatedAddress is 10.0.0.2, which is Released by LoadBalancer n/a",
        ),
        (
            |all| all.records[0].spec.pool = "q".into(),
            "ALC-6",
            "has 10.0.0.2 of IPPool q",
        ),
        (
            |all| all.load_balancers[0].spec.ip_pool = Some("q".into()),
            "REL-4",
            "spec.ipPool is q, and its address 10.0.0.2 is of IPPool p",
        ),
        (
            |all| all.records[2].spec.pool = "q".into(),
            "POOL-1",
            "is Released in IPPool q, which does not exist",
        ),
        (
            |all| all.load_balancers[0] = served("a", cluster_spec(), "10.0.0.3", &[]),
            "ALC-8",
            "has address 10.0.0.3, as has LoadBalancer n/a",
        ),
        (
            |all| all.load_balancers[0].status = None,
            "section 9",
            "LoadBalancer n/a (section 9): has no condition Ready",
        ),
        (
            |all| {
                all.load_balancers.push(waiting("w", "NoMatchedPool", ""));
            },
            "ALC-5",
            "LoadBalancer n/w (ALC-5): waits for an address (False NoMatchedPool",
        ),
        // An address is free: the waiting load balancer was forgotten.
        (
            |all| {
                all.load_balancers.push(waiting("w", "NoAvailableIP", ""));
            },
            "ALC-5",
            "10.0.0.4",
        ),
        (
            |all| {
                let told = condition("Ready", "");
                let lb = &mut all.load_balancers[0];
                lb.spec.ipam = Some(harvester_lb_api::Ipam::Dhcp);
                lb.status.as_mut().unwrap().conditions = made(told);
            },
            "OPS-3",
            "uses DHCP, and status.allocatedAddress is",
        ),
    ]);
}

#[test]
fn wrongs_of_owned_objects_are_named() {
    is_named(&[
        (
            |all| drop(all.load_balancers.remove(1)),
            "REL-3",
            "Service n/b (REL-3): belongs to a LoadBalancer that does not exist",
        ),
        (
            |all| all.slices.push(slice("gone")),
            "REL-3",
            "EndpointSlice n/gone",
        ),
        (|all| all.services.clear(), "REC-4", "and no Service"),
        (|all| all.slices.clear(), "REC-4", "has no EndpointSlice"),
        (
            |all| all.services[0] = service("b", "10.0.0.2"),
            "section 8.2",
            "has address 10.0.0.3, and spec.loadBalancerIP of its Service is \"10.0.0.2\"",
        ),
        (
            |all| {
                all.services.push(service("a", "10.0.0.3"));
            },
            "REL-3",
            "spec.loadBalancerIP is 10.0.0.3, as that of Service n/a",
        ),
        (
            |all| all.services.push(service("a", "10.0.0.2")),
            "REC-1",
            "is of cluster type and has a Service",
        ),
        (
            |all| all.slices.push(slice("a")),
            "REC-1",
            "is of cluster type and has an EndpointSlice",
        ),
        (
            |all| {
                let owners = all.services[0].metadata.owner_references.as_mut();
                owners.unwrap()[0].uid = "before".into();
            },
            "section 8.2",
            "the ownerReferences of its Service are",
        ),
        (
            |all| {
                let spec = all.services[0].spec.as_mut().unwrap();
                spec.ports.as_mut().unwrap()[0].port = 81;
            },
            "section 8.2",
            "and its Service has ports",
        ),
        (
            |all| all.services[0].status = made(fixtures::announced("10.0.0.9")),
            "REC-2",
            "announced is \"10.0.0.9\"",
        ),
        (
            |all| {
                all.services[0].status = made(fixtures::announced("10.0.0.9"));
                all.load_balancers[1].status.as_mut().unwrap().address = Some("10.0.0.9".into());
            },
            "REL-4",
            "has address 10.0.0.3, announced is \"10.0.0.9\"",
        ),
        (
            |all| {
                all.services[0] = made(json!({"metadata": {"namespace": "n", "name": "b"}}));
            },
            "SVC-1",
            "has a foreign Service",
        ),
    ]);
}

#[test]
fn wrongs_of_backends_and_of_what_is_said_are_named() {
    is_named(&[
        (
            |all| says(&mut all.load_balancers[0], "ApiError", ""),
            "REC-1",
            "has address 10.0.0.2, and the condition Ready is False ApiError",
        ),
        (
            |all| says(&mut all.load_balancers[1], "WaitingForExternalIP", ""),
            "section 9",
            "the condition Ready is False WaitingForExternalIP: \"\", expected reason Ready",
        ),
        (
            |all| says(&mut all.load_balancers[1], "InvalidListener", ""),
            "section 9",
            "its spec is Valid",
        ),
        (
            |all| all.load_balancers[1].spec.listeners = None,
            "section 9",
            "its spec is WithoutListeners, and the condition Ready is True Ready",
        ),
        (
            |all| {
                let conditions = &mut all.load_balancers[0].status.as_mut().unwrap().conditions;
                conditions.as_mut().unwrap()[0].status = "False".into();
            },
            "section 9",
            "status and reason of the condition Ready differ: False Ready",
        ),
        (
            |all| {
                tells(
                    &mut all.load_balancers[1],
                    "AddressAllocated",
                    "True",
                    "10.0.0.9 of pool p",
                );
            },
            "section 9",
            "has address \"10.0.0.3\", and the condition AddressAllocated is True",
        ),
        (
            |all| tells(&mut all.load_balancers[1], "Announced", "False", ""),
            "section 9",
            "announced is \"10.0.0.3\", and the condition Announced is False",
        ),
        (
            |all| tells(&mut all.load_balancers[0], "AddressAllocated", "False", ""),
            "section 9",
            "has address 10.0.0.2, and the condition AddressAllocated is False",
        ),
        (
            |all| {
                tells(
                    &mut all.load_balancers[0],
                    "BackendsHealthy",
                    "True",
                    "1 of 1",
                );
            },
            "section 9",
            "has no Service, and the condition BackendsHealthy",
        ),
        (
            |all| all.slices[0].endpoints.clear(),
            "BE-3",
            "endpoints differ: 10.52.0.1 is absent, expected ready",
        ),
        (
            |all| all.cluster.as_mut().unwrap().machines.clear(),
            "BE-3",
            "10.52.0.1 is ready, expected absent, 10.52.0.255 is absent, expected ready",
        ),
        (
            |all| {
                let machine = &mut all.cluster.as_mut().unwrap().machines[0];
                machine.status.as_mut().unwrap().phase = Some("Succeeded".into());
            },
            "BE-3",
            "10.52.0.1 is ready, expected not ready, 10.52.0.255 is absent, expected ready",
        ),
        (
            |all| {
                let status = all.load_balancers[1].status.as_mut().unwrap();
                status.backend_servers = None;
            },
            "BE-3",
            "status.backendServers is [], expected [10.52.0.1]",
        ),
        (
            |all| {
                let node =
                    json!({"status": {"addresses": [{"type": "InternalIP", "address": MACHINE}]}});
                all.cluster.as_mut().unwrap().nodes =
                    vec![made(with(json!({"metadata": {}}), node))];
            },
            "BE-8",
            "refused backends: [10.52.0.1]",
        ),
        (
            |all| all.cluster.as_mut().unwrap().denied = vec![([10, 52, 0, 0].into(), 16)],
            "BE-8",
            "refused backends: [10.52.0.1]",
        ),
        (
            |all| {
                let other = fixtures::machine("m", "vm", &json!({}), Some(MACHINE));
                all.cluster.as_mut().unwrap().machines.push(made(other));
            },
            "BE-8",
            "backends whose address is used in another namespace",
        ),
        (
            // BE-6: the spec is invalid, and the backend that it served is gone.
            |all| {
                let lb = &mut all.load_balancers[1];
                lb.spec.listeners = None;
                says(lb, "InvalidListener", "");
                all.cluster.as_mut().unwrap().machines.clear();
            },
            "BE-6",
            "keeps the endpoint 10.52.0.1",
        ),
    ]);
}

#[test]
fn wrongs_of_pools_are_named() {
    is_named(&[
        (
            |all| status(all).available = 2,
            "ALC-11",
            "status.available is 2, 2 of 3 addresses are taken",
        ),
        (
            |all| status(all).total = 4,
            "POOL-1",
            "status.total is 4, its ranges have 3",
        ),
        (
            |all| status(all).last_allocated = "none".into(),
            "ALC-3",
            "status.lastAllocated is \"none\"",
        ),
        (
            |all| {
                let (allocated, history) = (
                    [("10.0.0.2", "n/a"), ("10.0.0.3", "n/a")],
                    [("10.0.0.4", "n/old")],
                );
                all.pools[0] = pool(3, &allocated, &history);
            },
            "POOL-3",
            "status.allocated differs from the IPAllocations: 10.0.0.3",
        ),
        (
            |all| all.pools[0] = pool(3, &[("10.0.0.2", "n/a"), ("10.0.0.3", "n/b")], &[]),
            "POOL-3",
            "status.allocatedHistory differs from the IPAllocations",
        ),
        (
            |all| all.pools[0].metadata.annotations = None,
            "IPA-1",
            "the digest of its maps",
        ),
        (
            |all| status(all).conditions = None,
            "POOL-2",
            "expected reason Ready",
        ),
        (
            |all| {
                let mut older = all.pools[0].clone();
                older.metadata.name = Some("older".into());
                all.pools.push(older);
            },
            "IPA-4",
            "overlaps an older IPPool: true",
        ),
        (
            |all| {
                let annotations = all.pools[0].metadata.annotations.as_mut().unwrap();
                let wish = "10.0.0.2: n/a".to_owned();
                annotations.insert(keys::ANNOTATION_MANUALLY_RELEASE_IP.to_owned(), wish);
            },
            "section 6.4",
            "the annotation of a manual release is not processed",
        ),
        (
            |all| {
                let truncated = json!([
                    {"type": "Ready", "status": "True", "reason": "Ready"},
                    {"type": "AllocatedMapTruncated", "status": "True", "message": "they do not fit"},
                ]);
                status(all).conditions = made(truncated);
            },
            "POOL-3",
            "they do not fit",
        ),
        (
            |all| {
                for n in 0..1_024 {
                    let ip = format!("10.1.{}.{}", n / 256, n % 256);
                    all.records.push(record(&ip, "Released", "old"));
                }
            },
            "POOL-5",
            "1025 are Released",
        ),
    ]);
}

/// The stored maps may lack entries that do not fit, and have none that is wrong.
#[test]
fn pool_3_maps_that_do_not_fit_are_incomplete() {
    let long = "n".repeat(240);
    let mut all = well();
    all.load_balancers.clear();
    all.services.clear();
    all.slices.clear();
    all.records = (0..4_000)
        .map(|n| {
            let ip = format!("10.1.{}.{}", n / 250, n % 250);
            made(fixtures::record(&ip, POOL, "Released", ("n", &long, "u")))
        })
        .collect();
    let findings = |all: &Snapshot| -> Vec<Finding> {
        let findings = audit(all).findings;
        let of_maps = |finding: &Finding| matches!(finding.rule, "POOL-3" | "IPA-1");
        findings.into_iter().filter(of_maps).collect()
    };
    let id = format!("n/{long}");
    all.pools[0] = pool(3, &[], &[("10.1.0.7", &id)]);
    status(&mut all).available = 3;
    assert_eq!(findings(&all), []);
    all.pools[0] = pool(3, &[], &[("10.1.0.7", "n/other")]);
    status(&mut all).available = 3;
    assert_eq!(findings(&all).len(), 1);
}

#[test]
fn a_long_text_is_cut() {
    let mut all = well();
    all.load_balancers[1].spec.ip_pool = Some("ü".repeat(2_000));
    let findings = audit(&all).findings;
    let [finding] = &findings[..] else {
        panic!("{findings:#?}")
    };
    assert!(finding.text.len() <= 600 && finding.text.ends_with(" ..."));
}
