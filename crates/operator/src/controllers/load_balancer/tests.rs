mod checks;
mod converted;
mod detail_conditions;
mod executor;
mod moves;
mod owned_objects;
mod shared;
mod shared_anew;
mod stale;
mod unwritable;

use super::*;

use harvester_lb_api::{IPAllocation, IPPool, keys};
use harvester_lb_core::cached::{self, Allocation, Lb, Pool};
use harvester_lb_object::Version;
use http::Method;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::fake::{self, FakeApiServer};
use crate::index::leader_state::LeaderState;
use crate::timings::Timings;

const LB: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/n/loadbalancers/a";
const RECORD: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/10.0.0.2";
const SERVICE: &str = "/api/v1/namespaces/n/services/a";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices/a";

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn key() -> Key {
    Key::new("n", "a")
}

/// A load balancer whose status names 10.0.0.2 of pool `p`.
fn named(workload: &str) -> Value {
    json!({
        "metadata": {"namespace": "n", "name": "a", "uid": "u-a", "resourceVersion": "5"},
        "spec": {
            "workloadType": workload, "ipPool": "p", "backendServerSelector": {"app": ["x"]},
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
        },
        "status": {
            "address": "10.0.0.2",
            "allocatedAddress": {"ip": "10.0.0.2", "ipPool": "p", "mask": "255.255.255.0", "gateway": "10.0.0.1"},
        },
    })
}

fn pool(annotations: &Value) -> Pool {
    Pool::valid(object::<IPPool>(json!({
        "metadata": {"name": "p", "resourceVersion": "4", "annotations": annotations},
        "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]},
    })))
}

/// A leader's context that knows this pool and this load balancer.
fn leader(server: &FakeApiServer, pool: Pool, lb: &Value) -> Context {
    leader_with(server.client(), pool, lb)
}

/// The same with another client.
fn leader_with(client: Client, pool: Pool, lb: &Value) -> Context {
    let ctx = fake::context(client, &Timings::default(), true);
    let name = Key::new("", "p");
    ctx.index.stores.pools.written(&name, Version(4), pool);
    ctx.index
        .stores
        .lbs
        .written(&key(), Version(5), Lb::valid(object(lb.clone())));
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    ctx
}

/// Its Service, which shows no address, and its EndpointSlice.
fn serves(ctx: &Context, server: &FakeApiServer) {
    let metadata = |version: &str| {
        json!({
            "namespace": "n", "name": "a", "uid": "u-of-a", "resourceVersion": version,
            "labels": {
                keys::LABEL_SERVICELB: "true", "kubernetes.io/service-name": "a",
                "endpointslice.kubernetes.io/managed-by": "harvester-load-balancer",
            },
            "ownerReferences": [{
                "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
                "name": "a", "uid": "u-a",
            }],
        })
    };
    let service = json!({"metadata": metadata("6"), "spec": {"type": "LoadBalancer"}});
    let slice =
        json!({"metadata": metadata("7"), "addressType": "IPv4", "endpoints": [], "ports": []});
    server.put(SERVICE, service.clone());
    server.put(SLICE, slice.clone());
    let service = cached::service(Ok(object(service))).unwrap();
    ctx.index
        .stores
        .services
        .written(&key(), Version(6), service);
    let slice = cached::slice(Ok(object::<EndpointSlice>(slice))).unwrap();
    ctx.index.stores.slices.written(&key(), Version(7), slice);
}

#[tokio::test]
async fn exc_1_nothing_is_taken_down_of_one_whose_address_a_withheld_pool_may_have() {
    let excluding = || pool(&json!({ keys::ANNOTATION_EXCLUDE: "10.0.0.x" }));
    let undecodable = || Pool {
        spec: Err("spec.ranges: not a list".to_owned()),
        ..pool(&json!({}))
    };
    for (workload, pool, reason) in [
        ("vm", excluding(), "InvalidExclude"),
        ("cluster", excluding(), "InvalidExclude"),
        ("vm", undecodable(), "PoolInvalid"),
        ("cluster", undecodable(), "PoolInvalid"),
    ] {
        let (server, lb) = (FakeApiServer::default(), named(workload));
        server.put(LB, lb.clone());
        let ctx = leader(&server, pool, &lb);
        if workload == "vm" {
            serves(&ctx, &server);
        }
        reconcile(&ctx, &key()).await.unwrap();
        let writes = server.writes();
        let own = |(method, path, _): &(Method, String, Value)| {
            *method == Method::PATCH && (path == LB || path == SLICE)
        };
        assert!(writes.iter().all(own), "{workload}, {reason}: {writes:?}");
        let after = server.get(LB).unwrap();
        assert_eq!(after["status"]["conditions"][0]["reason"], reason);
        assert_eq!(
            after["status"]["allocatedAddress"],
            lb["status"]["allocatedAddress"]
        );
        assert_eq!(after["status"]["address"], "10.0.0.2");
    }
}

/// A record of the load balancer's name.
fn record(address: &str, version: u64, phase: &str, uid: &str) -> Value {
    json!({
        "metadata": {"name": address, "uid": format!("u-{address}"), "resourceVersion": version.to_string()},
        "spec": {
            "address": address, "pool": "p", "phase": phase,
            "owner": {"namespace": "n", "name": "a", "uid": uid},
        },
    })
}

fn knows(ctx: &Context, version: u64, record: &Value) {
    let key = Key::new("", record["metadata"]["name"].as_str().unwrap());
    let record = Allocation::decoded(&object::<IPAllocation>(record.clone()));
    ctx.index.observe_record(&key.name, &record);
    let stores = &ctx.index.stores;
    stores.allocations.written(&key, Version(version), record);
}

/// A leader whose store has this copy of the load balancer, of which `now` is stored, and its Bound record of 10.0.0.2.
fn leader_with_record(copy: &Value, now: &Value) -> (FakeApiServer, Context) {
    let server = FakeApiServer::default();
    let ctx = leader(&server, pool(&json!({})), copy);
    has_record(&server, &ctx, now);
    (server, ctx)
}

/// The API server has this load balancer, and both have the record of its address.
fn has_record(server: &FakeApiServer, ctx: &Context, lb: &Value) {
    let bound = record("10.0.0.2", 8, "Bound", "u-a");
    server.put(LB, lb.clone());
    server.put(RECORD, bound.clone());
    knows(ctx, 8, &bound);
}

/// As after a standby with a stale watch: the ledger has a record of an earlier load balancer of the name that belongs to
/// this one by now, and a late write has created an extra one.
#[tokio::test]
async fn ipa_7_an_old_copy_of_a_record_takes_no_address_away() {
    let (server, lb) = (FakeApiServer::default(), named("cluster"));
    let (before, further) = (
        record("10.0.0.2", 3, "Bound", "u-earlier"),
        record("10.0.0.3", 8, "Bound", "u-a"),
    );
    server.put(LB, lb.clone());
    server.put(RECORD, record("10.0.0.2", 9, "Bound", "u-a"));
    let path = RECORD.replace("10.0.0.2", "10.0.0.3");
    server.put(&path, further.clone());
    let ctx = leader(&server, pool(&json!({})), &lb);
    knows(&ctx, 3, &before);
    knows(&ctx, 8, &further);
    reconcile(&ctx, &key()).await.unwrap();
    let after = server.get(LB).unwrap();
    assert_eq!(after["status"]["allocatedAddress"]["ip"], "10.0.0.2");
    assert_eq!(server.get(&path).unwrap()["spec"]["phase"], "Released");
    assert_eq!(server.get(RECORD).unwrap()["spec"]["phase"], "Bound");
}

/// As after a restart between record and status, and an edit of `ipPool` to a pool that cannot confirm what the status names.
#[tokio::test]
async fn rel_4_a_record_of_another_pool_goes_while_a_withheld_pool_cannot_tell() {
    let (server, lb) = (FakeApiServer::default(), named("cluster"));
    server.put(LB, lb.clone());
    let mut other = record("10.0.0.3", 8, "Bound", "u-a");
    other["spec"]["pool"] = "q".into();
    let path = RECORD.replace("10.0.0.2", "10.0.0.3");
    server.put(&path, other.clone());
    let excluding = pool(&json!({ keys::ANNOTATION_EXCLUDE: "10.0.0.x" }));
    let ctx = leader(&server, excluding, &lb);
    knows(&ctx, 8, &other);
    reconcile(&ctx, &key()).await.unwrap();
    let after = server.get(LB).unwrap();
    assert_eq!(after["status"]["conditions"][0]["reason"], "InvalidExclude");
    assert_eq!(after["status"]["allocatedAddress"]["ip"], "10.0.0.2");
    assert_eq!(server.get(&path).unwrap()["spec"]["phase"], "Released");
}

/// As on a new leader whose watch was dead: the load balancer has given the address up meanwhile.
#[tokio::test]
async fn ipa_6_an_address_of_an_old_copy_of_the_status_is_not_served() {
    let server = FakeApiServer::default();
    let mut now = named("vm");
    now["metadata"]["resourceVersion"] = "9".into();
    now["spec"]["ipPool"] = "missing".into();
    now["status"] = json!({});
    server.put(LB, now);
    let released = record("10.0.0.2", 8, "Released", "u-a");
    server.put(RECORD, released.clone());
    let ctx = leader(&server, pool(&json!({})), &named("vm"));
    knows(&ctx, 8, &released);
    let outcome = reconcile(&ctx, &key()).await;
    assert!(
        matches!(outcome, Err(WriteError::Conflict(_))),
        "{outcome:?}"
    );
    assert_eq!(server.writes(), []);
    // The next reconcile sees the current object.
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(server.get(RECORD).unwrap()["spec"]["phase"], "Released");
    let after = server.get(LB).unwrap();
    assert_eq!(after["status"]["conditions"][0]["reason"], "PoolNotFound");
}
