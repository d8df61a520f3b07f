//! Moves of a Service to another address: a kube-vip that follows, and one that ignores the change (REL-4).

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;

use super::*;

/// The pool of the load balancer's second address.
fn other_pool() -> Pool {
    Pool::valid(object::<IPPool>(json!({
        "metadata": {"name": "q", "resourceVersion": "4"},
        "spec": {"ranges": [{"subnet": "10.0.1.0/24"}]},
    })))
}

/// Puts a changed object at the API server, with the next resource version. Returns both.
fn changed(
    server: &FakeApiServer,
    path: &str,
    change: impl FnOnce(&mut Value),
) -> (Value, Version) {
    let mut object = server.get(path).unwrap();
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let version = version.parse::<u64>().unwrap() + 1;
    object["metadata"]["resourceVersion"] = version.to_string().into();
    change(&mut object);
    server.put(path, object.clone());
    (object, Version(version))
}

/// The Service, with this uid, shows an address in its ingress.
fn shows(ctx: &Context, server: &FakeApiServer, uid: &str, address: &str) {
    let (service, version) = changed(server, SERVICE, |service| {
        service["metadata"]["uid"] = uid.into();
        service["status"]["loadBalancer"]["ingress"] = json!([{"ip": address}]);
    });
    let service = cached::service(Ok(object::<Service>(service))).unwrap();
    let services = &ctx.index.stores.services;
    let change = services.written(&key(), version, service);
    ctx.index.service_changed(&key(), &change.unwrap());
}

/// The user names a pool.
fn names_pool(ctx: &Context, server: &FakeApiServer, pool: &str) {
    let (lb, version) = changed(server, LB, |lb| lb["spec"]["ipPool"] = pool.into());
    let lb = Lb::valid(object(lb));
    ctx.index.stores.lbs.written(&key(), version, lb);
}

/// The `spec.loadBalancerIP` of the Service; empty if there is no Service.
fn asked(server: &FakeApiServer) -> String {
    let service = server.get(SERVICE).unwrap_or_default();
    let address = service["spec"]["loadBalancerIP"].as_str();
    address.unwrap_or_default().to_owned()
}

/// Reconciles, and returns the requeue.
async fn next(ctx: &Context) -> Requeue {
    reconcile(ctx, &key()).await.unwrap()
}

const fn seconds(seconds: u64) -> Requeue {
    Requeue::After(Duration::from_secs(seconds))
}

/// A load balancer that is served at 10.0.0.2 of pool `p`, on a leader that knows the pool `q` too.
fn served() -> (FakeApiServer, Context) {
    let server = FakeApiServer::default();
    let ctx = served_by(server.client(), &server);
    (server, ctx)
}

/// The leader of [`served`] with this client of the API server.
fn served_by(client: Client, server: &FakeApiServer) -> Context {
    let lb = named("vm");
    let ctx = leader_with(client, pool(&json!({})), &lb);
    has_record(server, &ctx, &lb);
    let stores = &ctx.index.stores;
    stores
        .pools
        .written(&Key::new("", "q"), Version(4), other_pool());
    serves(&ctx, server);
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    ctx
}

#[tokio::test(start_paused = true)]
async fn rel_4_a_service_whose_changed_address_is_ignored_is_recreated() {
    let (server, ctx) = served();
    next(&ctx).await;
    shows(&ctx, &server, "u-1", "10.0.0.2");
    next(&ctx).await;

    // Nothing is known about kube-vip.
    names_pool(&ctx, &server, "q");
    assert_eq!(next(&ctx).await, seconds(3));
    let moved = asked(&server);
    assert!(moved.starts_with("10.0.1."), "{moved}");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(next(&ctx).await, seconds(1));
    assert_eq!(asked(&server), moved);
    tokio::time::advance(Duration::from_secs(1)).await;
    next(&ctx).await;
    assert_eq!(asked(&server), "");
    let bound = |address: &str| {
        let path = RECORD.replace("10.0.0.2", address);
        server.get(&path).unwrap()["spec"]["phase"] == "Bound"
    };
    assert!(bound("10.0.0.2") && bound(&moved));
    // Until the watch delivers the deletion there is nothing to do.
    server.writes();
    assert!(!matches!(next(&ctx).await, Requeue::After(_)));
    assert_eq!(server.writes(), []);
    let services = &ctx.index.stores.services;
    let change = services.forget(&key(), Version(1_000));
    ctx.index.service_changed(&key(), &change.unwrap());
    next(&ctx).await;
    assert_eq!(asked(&server), moved);
    tokio::time::advance(Duration::from_secs(1)).await;
    shows(&ctx, &server, "u-2", &moved);
    next(&ctx).await;
    assert!(!bound("10.0.0.2") && bound(&moved));

    // It has ignored a change.
    names_pool(&ctx, &server, "p");
    assert_eq!(next(&ctx).await, seconds(1));
    assert_eq!(asked(&server), "10.0.0.2");
    tokio::time::advance(Duration::from_millis(300)).await;
    shows(&ctx, &server, "u-2", "10.0.0.2");
    next(&ctx).await;

    // It has followed one.
    names_pool(&ctx, &server, "q");
    assert_eq!(next(&ctx).await, seconds(8));

    // The next term knows nothing.
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    assert_eq!(next(&ctx).await, seconds(3));
}

/// Its deletion waits for a finalizer of another program.
#[tokio::test(start_paused = true)]
async fn rel_4_a_service_that_is_held_in_deletion_is_not_waited_for() {
    let (server, ctx) = served();
    next(&ctx).await;
    shows(&ctx, &server, "u-1", "10.0.0.2");
    names_pool(&ctx, &server, "q");
    assert_eq!(next(&ctx).await, seconds(3));
    let mut held = server.get(SERVICE).unwrap();
    tokio::time::advance(Duration::from_secs(3)).await;
    next(&ctx).await;
    assert_eq!(server.get(SERVICE), None);
    held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    held["metadata"]["resourceVersion"] = "5000".into();
    server.put(SERVICE, held.clone());
    let held = cached::service(Ok(object::<Service>(held))).unwrap();
    let services = &ctx.index.stores.services;
    services.written(&key(), Version(5000), held);
    assert!(!matches!(next(&ctx).await, Requeue::After(_)));
}

/// It announces a changed address before this process has read the answer to the change.
#[tokio::test(start_paused = true)]
async fn rel_4_a_kube_vip_that_is_faster_than_the_answer_has_followed() {
    let server = FakeApiServer::default();
    let slow = server.clone();
    let client = fake::client(move |request| {
        let is_change = request.method == Method::PATCH && request.path == SERVICE;
        let answer = slow.answer(request);
        async move {
            if is_change {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer
        }
    });
    let ctx = served_by(client, &server);
    next(&ctx).await;
    shows(&ctx, &server, "u-1", "10.0.0.2");
    next(&ctx).await;
    names_pool(&ctx, &server, "q");
    let kube_vip = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let moved = asked(&server);
        assert!(moved.starts_with("10.0.1."), "{moved}");
        shows(&ctx, &server, "u-1", &moved);
    };
    tokio::join!(next(&ctx), kube_vip);
    names_pool(&ctx, &server, "p");
    assert_eq!(next(&ctx).await, seconds(8));
}
