use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use harvester_lb_api::{keys, projection};
use harvester_lb_fixtures::{self as fixtures, cluster_spec, part, stored, with};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::fake::{self, failure};

mod api_server;
mod import;
mod pages;

use api_server::{ApiServer, LEASE};

const LBS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers";
const POOLS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools";
const RECORDS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations";
const SERVICES: &str = "/api/v1/services";

/// A cluster with one load balancer of a pool of three addresses, as this operator leaves it.
fn well() -> Arc<ApiServer> {
    let server = Arc::new(ApiServer::default());
    server.set(POOLS, vec![pool(&[("10.0.0.2", "n/a")])]);
    server.set(LBS, vec![served_lb("a", "10.0.0.2")]);
    server.set(RECORDS, vec![record("10.0.0.2", "a")]);
    server.set(LEASE, vec![lease("harvester-load-balancer-7d9_u1")]);
    server
}

fn lease(holder: &str) -> Value {
    let now = Timestamp::now().to_string();
    json!({
        "metadata": {"namespace": "kube-system", "name": "harvester-load-balancer"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now},
    })
}

fn pool(allocated: &[(&str, &str)]) -> Value {
    let allocated: BTreeMap<String, String> = allocated
        .iter()
        .map(|(ip, id)| ((*ip).to_owned(), (*id).to_owned()))
        .collect();
    let digest = projection::digest(Some(&allocated), None);
    let pool = fixtures::pool("p", &[part("10.0.0.0/24", "10.0.0.2", "10.0.0.4")]);
    let mut pool = stored(pool, "u-pool", 3);
    pool["metadata"]["annotations"] = json!({keys::ANNOTATION_PROJECTION: digest});
    let status = json!({
        "total": 3, "available": 3 - allocated.len(), "lastAllocated": "10.0.0.2", "allocated": allocated,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
    });
    with(pool, json!({"status": status}))
}

fn served_lb(name: &str, ip: &str) -> Value {
    let spec = with(cluster_spec(), json!({"ipPool": "p"}));
    let lb = fixtures::load_balancer("n", name, "", &spec);
    let status = json!({
        "address": ip, "allocatedAddress": {"ip": ip, "ipPool": "p"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
    });
    with(
        stored(lb, &format!("u-{name}"), 4),
        json!({"status": status}),
    )
}

fn record(ip: &str, owner: &str) -> Value {
    let uid = format!("u-{owner}");
    let record = fixtures::record(ip, "p", "Bound", ("n", owner, &uid));
    stored(record, "u-record", 5)
}

/// Checks; whenever everything was read, the next of the later changes happens.
async fn checked(server: &Arc<ApiServer>) -> Outcome {
    checked_with(server, false).await
}

async fn checked_with(server: &Arc<ApiServer>, require_leader: bool) -> Outcome {
    let behind = Arc::clone(server);
    let client = fake::client(move |request| {
        if request.path == LBS && request.query == "limit=500" {
            let seen = behind.requests.lock().iter().any(|it| it.starts_with(LBS));
            let mut later = behind.later.lock();
            if seen && !later.is_empty() {
                let (path, objects) = later.remove(0);
                behind.set(path, objects);
            }
        }
        std::future::ready(behind.answer(&request))
    });
    let args = CheckArgs {
        output: Output::Text,
        recheck_after: Duration::from_secs(10),
        require_leader,
    };
    check(&client, &[], &args).await
}

fn reasons(outcome: &Outcome) -> Vec<&'static str> {
    let findings = outcome.findings.iter();
    findings.map(|(_, finding)| finding.kind.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn ops_2_nothing_found_is_exit_code_0() {
    let outcome = checked(&well()).await;
    assert_eq!(reasons(&outcome), [""; 0], "{outcome:#?}");
    assert_eq!((outcome.code(), outcome.state), (0, State::Imported));
    let text = report::text(&outcome);
    for line in [
        "IPPools: 1\n",
        "LoadBalancers: 1\n",
        "IPAllocations: 1 Bound, 0 Released\n",
        "Leader: harvester-load-balancer-7d9_u1, a process of this operator\n",
        "\n0 errors, 0 warnings, 0 infos\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    let json: Value = serde_json::from_str(&report::json(&outcome).unwrap()).unwrap();
    assert_eq!(
        (&json["imported"], &json["checked"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(json["findings"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn ops_2_an_error_is_exit_code_1_with_meaning_and_action() {
    let server = well();
    server.add(LBS, served_lb("b", "10.0.0.2"));
    let outcome = checked(&server).await;
    assert_eq!(outcome.code(), 1);
    let text = report::text(&outcome);
    for part in [
        "\nERROR LoadBalancer n/b\n",
        "  DuplicateAddress (ALC-8): has address 10.0.0.2, as has LoadBalancer n/a\n",
        "    meaning:  two LoadBalancers have one address",
        "    action:   delete one of the two LoadBalancers",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json: Value = serde_json::from_str(&report::json(&outcome).unwrap()).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let found = findings
        .iter()
        .find(|it| it["reason"] == "DuplicateAddress")
        .unwrap();
    let object = json!({"kind": "LoadBalancer", "namespace": "n", "name": "b"});
    assert_eq!(
        (&found["object"], &found["severity"]),
        (&object, &json!("error"))
    );
}

#[tokio::test(start_paused = true)]
async fn ops_2_what_cannot_be_read_is_exit_code_2() {
    for path in [LBS, POOLS, RECORDS, SERVICES] {
        let server = well();
        server.add(LBS, served_lb("b", "10.0.0.2"));
        server.fail(path, "", failure(403, "Forbidden: User \"u\" cannot list"));
        let outcome = checked(&server).await;
        assert_eq!((outcome.code(), outcome.is_read), (2, false), "{path}");
        assert_eq!(
            reasons(&outcome),
            [""; 0],
            "half of the objects tell nothing"
        );
        let text = report::text(&outcome);
        assert!(text.contains("cannot list"), "{text}");
        assert!(text.ends_with("nothing was checked: some objects could not be read\n"));
    }
    // What is around the objects: the rest is checked.
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    for path in [webhooks, LEASE] {
        let server = well();
        server.fail(path, "", failure(403, "Forbidden"));
        let outcome = checked(&server).await;
        assert_eq!((outcome.code(), outcome.is_read), (2, true), "{path}");
        assert!(report::text(&outcome).contains("\nNOT READ "));
        server.add(LBS, served_lb("b", "10.0.0.2"));
        assert_eq!(checked(&server).await.code(), 1, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn ops_2_what_is_gone_in_the_next_read_is_no_error() {
    let server = well();
    server.set(RECORDS, Vec::new());
    server.then(RECORDS, vec![record("10.0.0.2", "a")]);
    let outcome = checked(&server).await;
    assert_eq!((outcome.code(), reasons(&outcome)), (0, vec![]));
    assert!(outcome.passing > 0);
    assert!(report::text(&outcome).contains("changes in progress"));
    // Another one each time.
    let server = well();
    server.add(RECORDS, record("10.0.0.3", "gone"));
    server.then(
        RECORDS,
        vec![record("10.0.0.2", "a"), record("10.0.0.4", "other")],
    );
    let outcome = checked(&server).await;
    let lasting: Vec<&str> = reasons(&outcome);
    assert!(!lasting.contains(&"IPAllocationOrphaned"), "{lasting:?}");
}

/// The operator has started just now, and reconciles one load balancer after the other.
#[tokio::test(start_paused = true)]
async fn ops_2_the_operator_is_waited_for_while_it_repairs() {
    let server = well();
    let ips = ["10.0.0.2", "10.0.0.3", "10.0.0.4"];
    let names = ["a", "b", "c"];
    let lbs = names.iter().zip(ips).map(|(name, ip)| served_lb(name, ip));
    server.set(LBS, lbs.collect());
    let ids = ["n/a", "n/b", "n/c"];
    let held: Vec<_> = ips.into_iter().zip(ids).collect();
    server.set(POOLS, vec![pool(&held)]);
    let all: Vec<Value> = names
        .iter()
        .zip(ips)
        .map(|(name, ip)| record(ip, name))
        .collect();
    server.set(RECORDS, Vec::new());
    for number in 1..=3 {
        server.then(RECORDS, all[..number].to_vec());
    }
    let outcome = checked(&server).await;
    assert_eq!((outcome.code(), reasons(&outcome)), (0, vec![]));
    // It does not get on.
    let server = well();
    server.set(RECORDS, Vec::new());
    let began = Instant::now();
    assert_eq!(checked(&server).await.code(), 1);
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn pool_3_the_status_of_a_pool_may_be_late() {
    let behind = || {
        let mut pool = pool(&[("10.0.0.2", "n/a")]);
        pool["status"]["available"] = 3.into();
        pool
    };
    let server = well();
    server.set(POOLS, vec![behind()]);
    for _ in 0..3 {
        server.then(POOLS, vec![behind()]);
    }
    server.then(POOLS, vec![pool(&[("10.0.0.2", "n/a")])]);
    let began = Instant::now();
    assert_eq!(checked(&server).await.code(), 0);
    assert_eq!(began.elapsed(), Duration::from_secs(40));

    let server = well();
    server.set(POOLS, vec![behind()]);
    let began = Instant::now();
    let outcome = checked(&server).await;
    assert_eq!(
        (outcome.code(), reasons(&outcome)),
        (1, vec!["PoolStatusOutdated"])
    );
    assert!(began.elapsed() > POOL_STATUS_LIMIT);

    // Without a leader nobody is about to write it.
    server.set(LEASE, Vec::new());
    let outcome = checked(&server).await;
    assert_eq!(outcome.code(), 0, "a warning");
    let found: BTreeSet<&str> = reasons(&outcome).into_iter().collect();
    assert_eq!(found, BTreeSet::from(["NoLeader", "PoolStatusOutdated"]));
}

#[tokio::test(start_paused = true)]
async fn ops_2_a_leader_can_be_required() {
    let server = well();
    assert_eq!(checked_with(&server, true).await.code(), 0);
    server.set(LEASE, Vec::new());
    assert_eq!(checked(&server).await.code(), 0);
    let outcome = checked_with(&server, true).await;
    assert_eq!((outcome.code(), reasons(&outcome)), (1, vec!["NoLeader"]));
    server.set(LEASE, vec![lease("harvester-load-balancer-7d9")]);
    let outcome = checked_with(&server, true).await;
    let is_go = |(severity, finding): &(Severity, Finding)| {
        *severity == Severity::Error && finding.kind.reason == "GoOperatorLeads"
    };
    assert!(outcome.findings.iter().any(is_go), "{outcome:#?}");
}

#[tokio::test(start_paused = true)]
async fn ops_2_the_operator_s_permissions_are_not_demanded_of_a_reader() {
    let server = well();
    let of = async |lacks: &[&'static str]| {
        *server.lacks.lock() = lacks.to_vec();
        let outcome = checked(&server).await;
        assert_eq!(outcome.code(), 0);
        outcome
    };
    // The account of `helm test`.
    let reader = of(&["get", "watch", "create", "update", "patch", "delete"]).await;
    assert_eq!(reasons(&reader), ["PermissionsNotChecked"], "{reader:#?}");
    let text = report::text(&reader);
    assert!(
        text.ends_with("\n0 errors, 0 warnings, 1 infos\n"),
        "{text}"
    );
    // The operator's, which lacks a permission: one finding.
    let operator = of(&["get", "update"]).await;
    assert_eq!(reasons(&operator), ["PermissionMissing"]);
    let text = report::text(&operator);
    let lease = "leases.coordination.k8s.io named harvester-load-balancer in namespace kube-system";
    for right in ["get services, ", &format!("update {lease}\n")] {
        assert!(text.contains(right), "{right:?} is not in {text}");
    }
    assert!(
        text.ends_with("\n0 errors, 1 warnings, 0 infos\n"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn ops_2_objects_that_cannot_be_decoded_are_named() {
    let server = well();
    let mut odd = served_lb("odd", "10.0.0.9");
    odd["spec"]["listeners"] = json!([{"name": "a", "port": "x"}]);
    server.add(LBS, odd);
    let outcome = checked(&server).await;
    assert_eq!(
        (outcome.code(), reasons(&outcome)),
        (1, vec!["ObjectUndecodable"])
    );
    let text = report::text(&outcome);
    assert!(text.contains("ERROR LoadBalancer n/odd"), "{text}");
    assert!(text.contains("spec.listeners[0].port"), "{text}");
    // A Service of another owner is of no concern.
    let server = well();
    server.add(
        SERVICES,
        json!({"metadata": {"namespace": "n", "name": "x"}, "spec": 7}),
    );
    assert_eq!(checked(&server).await.code(), 0);
}
