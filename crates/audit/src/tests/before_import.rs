//! Objects of the Go operator: no IPAllocations, no reasons in conditions, maps without a digest.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::kinds::{self, Kind, Severity};
use crate::{Leader, State, audit_before_import};

/// The same objects as the Go operator leaves them.
fn left_by_go() -> Snapshot {
    let mut all = well();
    all.records.clear();
    all.pools[0].metadata.annotations = None;
    for lb in &mut all.load_balancers {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        lb.status.as_mut().unwrap().conditions = made(conditions);
    }
    all.announcing = false;
    all
}

#[test]
fn ops_2_what_is_not_imported_is_no_violation() {
    let all = left_by_go();
    assert_eq!(State::of(&all, &Leader::None), State::NotImported);
    assert_eq!(audit_before_import(&all).findings, []);
    let misjudged = audit(&all).findings;
    assert!(!misjudged.is_empty(), "else there is nothing to tell apart");
}

#[test]
fn ops_2_the_state_is_told_by_the_leader_else_by_the_objects() {
    let go = Leader::Go("harvester-load-balancer-7d9".into());
    let this = Leader::This("harvester-load-balancer-7d9_uid".into());
    let states = |all: &Snapshot| [&go, &this, &Leader::None].map(|leader| State::of(all, leader));
    let (imported, not) = (State::Imported, State::NotImported);
    assert_eq!(states(&well()), [not, imported, imported]);
    assert_eq!(states(&left_by_go()), [not, imported, not]);
    // Swapped back and forth: the IPAllocations are those of the first time.
    let mut all = well();
    status(&mut all).allocated = Some(map(&[("10.0.0.2", "n/z")]));
    assert_eq!(states(&all), [not, imported, not]);
    // An empty cluster.
    assert_eq!(states(&Snapshot::default()), [not, imported, imported]);
}

#[test]
fn ops_2_the_holder_of_the_lease_is_told_by_its_name() {
    let lease = |holder: &str, renewed: &str| -> Lease {
        made(json!({"metadata": {}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed,
        }}))
    };
    let now: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
    let leader = |holder, renewed| Leader::of(Some(&lease(holder, renewed)), now);
    let (fresh, old) = ("2026-01-01T00:00:20.000000Z", "2026-01-01T00:00:09.000000Z");
    assert_eq!(leader("host_u1", fresh), Leader::This("host_u1".into()));
    assert_eq!(leader("host", fresh), Leader::Go("host".into()));
    assert_eq!(leader("host", old), Leader::None);
    assert_eq!(leader("", fresh), Leader::None);
    assert_eq!(Leader::of(None, now), Leader::None);
}

#[test]
fn ops_2_what_is_wrong_before_the_import_is_named() {
    type Case = (fn(&mut Snapshot), &'static Kind, &'static str, Severity);
    let cases: [Case; 12] = [
        (
            |all| all.load_balancers[0] = served("a", cluster_spec(), "10.0.0.3", &[]),
            &kinds::DUPLICATE_ADDRESS,
            "has address 10.0.0.3, as has LoadBalancer n/a",
            Severity::Error,
        ),
        (
            |all| {
                let mut other = service("c", "10.0.0.3");
                other.metadata.owner_references = None;
                all.services.push(other);
            },
            &kinds::DUPLICATE_SERVICE_ADDRESS,
            "as that of Service n/b",
            Severity::Error,
        ),
        (
            |all| all.services.push(service("gone", "10.0.0.9")),
            &kinds::SERVICE_ORPHANED,
            "belongs to a LoadBalancer that does not exist",
            Severity::Error,
        ),
        (
            |all| all.services[0] = service("b", "10.0.0.4"),
            &kinds::SERVICE_ADDRESS_MISMATCH,
            "spec.loadBalancerIP of its Service is \"10.0.0.4\"",
            Severity::Error,
        ),
        (
            |all| all.services[0].status = made(fixtures::announced("10.0.0.4")),
            &kinds::ANNOUNCED_ADDRESS_MISMATCH,
            "announced is \"10.0.0.4\"",
            Severity::Error,
        ),
        (
            |all| all.services[0].status = None,
            &kinds::STATUS_MISMATCH,
            "status.address is \"10.0.0.3\", announced is \"\"",
            Severity::Warning,
        ),
        (
            |all| {
                all.services[0].metadata.labels = None;
                all.services[0].metadata.owner_references = None;
            },
            &kinds::FOREIGN_SERVICE,
            "has a Service without the label",
            Severity::Error,
        ),
        (
            |all| all.services.clear(),
            &kinds::SERVICE_MISSING,
            "has address 10.0.0.3 and no Service",
            Severity::Warning,
        ),
        (
            |all| all.cluster.as_mut().unwrap().machines.clear(),
            &kinds::STALE_ENDPOINT_BEFORE_IMPORT,
            "no VirtualMachineInstance reports: 10.52.0.1",
            Severity::Warning,
        ),
        (
            |all| all.pools[0].spec.ranges[0].subnet = "10.0.0.0".into(),
            &kinds::POOL_INVALID,
            "its ranges are invalid",
            Severity::Warning,
        ),
        (
            |all| {
                let list = [(keys::ANNOTATION_EXCLUDE.to_owned(), "x".to_owned())];
                all.pools[0].metadata.annotations = Some(list.into());
            },
            &kinds::POOL_INVALID,
            "its annotation loadbalancer.harvesterhci.io/exclude is invalid",
            Severity::Warning,
        ),
        (
            |all| {
                let mut other = all.pools[0].clone();
                other.metadata.name = Some("second".into());
                all.pools.push(other);
            },
            &kinds::POOLS_OVERLAP,
            "IPPool second (IPA-4): overlaps IPPool p",
            Severity::Warning,
        ),
    ];
    for (inject, kind, said, severity) in cases {
        let mut all = left_by_go();
        inject(&mut all);
        let findings = audit_before_import(&all).findings;
        let named = |f: &&Finding| f.kind == kind && f.to_string().contains(said);
        let found = findings.iter().find(named);
        assert!(found.is_some(), "not said: {said}, but {findings:#?}");
        assert_eq!(kind.class.severity(false), severity, "{said}");
    }
}

#[test]
fn ops_2_a_load_balancer_without_an_address_waits() {
    let mut all = left_by_go();
    all.load_balancers.push(lb("w", cluster_spec(), &json!({})));
    let report = audit_before_import(&all);
    assert_eq!((report.findings.len(), report.waiting.len()), (0, 1));
}
