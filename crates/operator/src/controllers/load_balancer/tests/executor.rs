//! Steps that fail or turn out to be unnecessary while a plan is applied.

use std::time::Duration;

use futures::FutureExt;
use harvester_lb_api::condition;
use harvester_lb_core::cached::{Vmi, VmiState};
use harvester_lb_core::status;
use harvester_lb_fixtures::endpoint;
use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::*;

const SERVICES: &str = "/api/v1/namespaces/n/services";

/// Records a changed copy of an object at the API server and in the store of Services.
fn service_is(ctx: &Context, server: &FakeApiServer, version: u64, service: &Value) {
    let mut service = service.clone();
    service["metadata"]["resourceVersion"] = version.to_string().into();
    server.put(SERVICE, service.clone());
    let service = cached::service(Ok(object::<Service>(service))).unwrap();
    let services = &ctx.index.stores.services;
    services.written(&key(), Version(version), service);
}

/// A Service of another owner, announced from a node.
fn foreign(node: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "n", "name": "a", "uid": "u-foreign",
            "annotations": { keys::ANNOTATION_KUBE_VIP_HOST: node },
        },
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}},
    })
}

/// A leader with a served load balancer that has an IPAllocation and one machine, which its EndpointSlice names as ready.
fn served() -> (FakeApiServer, Context) {
    let lb = named("vm");
    let (server, ctx) = leader_with_record(&lb, &lb);
    serves(&ctx, &server);
    machine(&ctx, true);
    (server, ctx)
}

/// The machine appears, or is going.
fn machine(ctx: &Context, is_there: bool) {
    let vmi = Vmi {
        uid: "u-vm1".to_owned(),
        labels: [("app".to_owned(), "x".to_owned())].into(),
        deleting: !is_there,
        address: Some([10, 1, 0, 1].into()),
        state: VmiState::Running,
        finalizers_to_keep: None,
    };
    let version = Version(if is_there { 1 } else { 2 });
    let vmis = &ctx.index.stores.vmis;
    vmis.written(&Key::new("n", "vm1"), version, vmi);
}

fn reason(server: &FakeApiServer) -> String {
    let lb: harvester_lb_api::LoadBalancer = object(server.get(LB).unwrap());
    let ready = condition::find(status::conditions(&lb), "Ready").unwrap();
    ready.reason.clone().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn rel_4_a_service_whose_change_is_refused_goes_on_serving() {
    let (server, ctx) = served();
    reconcile(&ctx, &key()).await.unwrap();
    let mut service = server.get(SERVICE).unwrap();
    service["status"]["loadBalancer"]["ingress"] = json!([{"ip": "10.0.0.2"}]);
    service_is(&ctx, &server, 1_000, &service);
    reconcile(&ctx, &key()).await.unwrap();

    // It moves to another pool, and nobody may change Services.
    let other = Pool::valid(object::<IPPool>(json!({
        "metadata": {"name": "q", "resourceVersion": "4"},
        "spec": {"ranges": [{"subnet": "10.0.1.0/24"}]},
    })));
    let pools = &ctx.index.stores.pools;
    pools.written(&Key::new("", "q"), Version(4), other);
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    let mut lb = server.get(LB).unwrap();
    lb["spec"]["ipPool"] = "q".into();
    lb["metadata"]["resourceVersion"] = "1000".into();
    server.put(LB, lb.clone());
    let lbs = &ctx.index.stores.lbs;
    lbs.written(&key(), Version(1_000), Lb::valid(object(lb)));
    server.refuse(Method::PATCH, "services");
    for _ in 0..5 {
        let next = reconcile(&ctx, &key()).await.unwrap();
        assert_eq!((next, &*reason(&server)), (Requeue::Backoff, "ApiError"));
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    assert_eq!(
        server.get(SERVICE).unwrap()["spec"]["loadBalancerIP"],
        "10.0.0.2"
    );
    // The time of kube-vip begins with the request that reaches it.
    server.admit();
    let next = reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(next, Requeue::After(Duration::from_secs(3)));
}

/// As in a term that begins amid a move: it does not know that the Service was deleted.
#[tokio::test(start_paused = true)]
async fn rel_4_a_service_that_was_in_deletion_before_is_not_looked_at_again_and_again() {
    let (server, ctx) = served();
    reconcile(&ctx, &key()).await.unwrap();
    let further = record("10.0.0.3", 9, "Bound", "u-a");
    server.put(&RECORD.replace("10.0.0.2", "10.0.0.3"), further.clone());
    knows(&ctx, 9, &further);
    let mut held = server.get(SERVICE).unwrap();
    held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    held["status"]["loadBalancer"]["ingress"] = json!([{"ip": "10.0.0.3"}]);
    service_is(&ctx, &server, 1_000, &held);
    let first = reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(first, Requeue::After(Duration::from_secs(3)));
    tokio::time::advance(Duration::from_secs(3)).await;
    reconcile(&ctx, &key()).await.unwrap();
    let next = reconcile(&ctx, &key()).await.unwrap();
    assert!(!matches!(next, Requeue::After(_)), "{next:?}");
    let is_deletion = |(method, ..): &(Method, String, Value)| *method == Method::DELETE;
    assert!(!server.writes().iter().any(is_deletion));
}

#[tokio::test]
async fn svc_1_a_name_conflict_whose_cleanup_is_refused_is_reported() {
    let (server, ctx) = served();
    service_is(&ctx, &server, 1_000, &foreign("node1"));
    server.refuse(Method::DELETE, "endpointslices");
    let next = reconcile(&ctx, &key()).await.unwrap();
    assert_eq!((next, &*reason(&server)), (Requeue::Backoff, "ApiError"));
    server.admit();
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(
        (server.get(SLICE), &*reason(&server)),
        (None, "NameConflict")
    );
}

#[tokio::test]
async fn section_9_the_node_of_a_foreign_service_is_no_news() {
    let (server, ctx) = served();
    for (version, node) in [(1_000, "node1"), (1_001, "node2")] {
        service_is(&ctx, &server, version, &foreign(node));
        reconcile(&ctx, &key()).await.unwrap();
    }
    assert_eq!(ctx.index.set_announcing_node(&key(), "node3"), None);
}

/// The store does not have it, because the watch selects by our label.
#[tokio::test]
async fn svc_1_a_foreign_endpoint_slice_is_found_by_the_creation_of_ours() {
    let (server, ctx) = served();
    let slices = &ctx.index.stores.slices;
    slices.forget(&key(), Version(7));
    let foreign = json!({
        "metadata": {"namespace": "n", "name": "a", "uid": "u-foreign", "resourceVersion": "900"},
        "addressType": "IPv4", "endpoints": [],
    });
    server.put(SLICE, foreign.clone());
    let next = reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(
        (next, &*reason(&server)),
        (Requeue::Backoff, "NameConflict")
    );
    assert_eq!(server.get(SLICE), Some(foreign));
    // No traffic to endpoints of others.
    assert_eq!(server.get(SERVICE), None);
    let is_service = |(_, path, _): &(Method, String, Value)| path.starts_with(SERVICES);
    let writes = server.writes();
    let of_services: Vec<_> = writes.iter().filter(|it| is_service(it)).collect();
    assert_eq!(of_services.len(), 1, "{of_services:?}");
}

#[tokio::test]
async fn alc_10_the_condition_is_written_though_the_endpoints_cannot_be() {
    let (server, ctx) = served();
    reconcile(&ctx, &key()).await.unwrap();
    let mut lb = server.get(LB).unwrap();
    lb["spec"]["listeners"] = json!([]);
    lb["metadata"]["resourceVersion"] = "1000".into();
    server.put(LB, lb.clone());
    let lbs = &ctx.index.stores.lbs;
    lbs.written(&key(), Version(1_000), Lb::valid(object(lb)));
    machine(&ctx, false);
    server.refuse(Method::PATCH, "endpointslices");
    let outcome = reconcile(&ctx, &key()).await;
    assert!(
        matches!(outcome, Err(WriteError::Refused(_))),
        "{outcome:?}"
    );
    assert_eq!(reason(&server), "InvalidListener");
}

/// A changed verdict that has to wait brings its load balancer back by itself.
#[tokio::test(start_paused = true)]
async fn hc_1_a_postponed_verdict_is_written_when_its_time_comes() {
    let (server, ctx) = served();
    let mut lb = server.get(LB).unwrap();
    lb["spec"]["healthCheck"] = json!({"port": 8080});
    lb["metadata"]["resourceVersion"] = "1000".into();
    server.put(LB, lb.clone());
    let lbs = &ctx.index.stores.lbs;
    lbs.written(&key(), Version(1_000), Lb::valid(object(lb)));
    reconcile(&ctx, &key()).await.unwrap();
    // The EndpointSlice says that it is ready, the health check that it is not.
    let mut slice = server.get(SLICE).unwrap();
    slice["endpoints"] = json!([endpoint("10.1.0.1", "n", "vm1", "u-vm1")]);
    slice["metadata"]["resourceVersion"] = "2000".into();
    server.put(SLICE, slice.clone());
    let slice = cached::slice(Ok(object::<EndpointSlice>(slice))).unwrap();
    ctx.index
        .stores
        .slices
        .written(&key(), Version(2_000), slice);
    ctx.slice_throttle
        .wrote(&key(), Duration::ZERO, Instant::now());
    server.writes();
    let due = || {
        let due = ctx.index.queues.lbs.next().now_or_never().flatten();
        if let Some(key) = &due {
            ctx.index.queues.lbs.done(key, &Ok(Requeue::AwaitChange));
        }
        due
    };
    while due().is_some() {}
    reconcile(&ctx, &key()).await.unwrap();
    let of_slices = |(_, path, _): &(Method, String, Value)| path == SLICE;
    assert!(!server.writes().iter().any(of_slices));
    assert_eq!(due(), None);
    tokio::time::advance(Duration::from_millis(250)).await;
    let next = tokio::time::timeout(Duration::from_secs(1), ctx.index.queues.lbs.next()).await;
    assert_eq!(next.unwrap(), Some(key()));
    reconcile(&ctx, &key()).await.unwrap();
    assert!(server.writes().iter().any(of_slices));
}
