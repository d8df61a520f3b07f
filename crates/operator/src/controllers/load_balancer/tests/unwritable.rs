//! A load balancer whose IPAllocation the API server refuses to write, which existed or not, or whose finalizers it refuses to
//! remove.

use std::time::Duration;

use futures::FutureExt;
use harvester_lb_core::cached::{Vmi, VmiState};
use harvester_lb_fixtures::endpoint;

use super::*;

/// Its virtual machines, which its endpoints name.
const MACHINES: [(&str, [u8; 4]); 2] = [("vm1", [10, 1, 0, 1]), ("vm2", [10, 1, 0, 2])];

fn vmi(name: &str, at: [u8; 4]) -> Vmi {
    Vmi {
        uid: format!("u-{name}"),
        labels: [("app".to_owned(), "x".to_owned())].into(),
        deleting: false,
        address: Some(at.into()),
        state: VmiState::Running,
        finalizers_to_keep: None,
    }
}

/// A leader with this load balancer, which is served and has no IPAllocation.
fn served(server: &FakeApiServer, lb: &Value) -> Context {
    server.put(LB, lb.clone());
    let ctx = leader(server, pool(&json!({})), lb);
    serves(&ctx, server);
    let mut slice = server.get(SLICE).unwrap();
    slice["metadata"]["resourceVersion"] = "8".into();
    let endpoints = MACHINES.map(|(name, at)| {
        let at = std::net::Ipv4Addr::from(at).to_string();
        endpoint(&at, "n", name, &format!("u-{name}"))
    });
    slice["endpoints"] = endpoints.to_vec().into();
    server.put(SLICE, slice.clone());
    let slice = cached::slice(Ok(object::<EndpointSlice>(slice))).unwrap();
    ctx.index.stores.slices.written(&key(), Version(8), slice);
    for (name, at) in MACHINES {
        let vmis = &ctx.index.stores.vmis;
        vmis.written(&Key::new("n", name), Version(1), vmi(name, at));
    }
    ctx
}

/// One of the machines is deleted, which queues the load balancer.
fn machine_is_deleted(ctx: &Context) {
    while ctx.index.queues.lbs.next().now_or_never().is_some() {
        ctx.index.queues.lbs.done(&key(), &Ok(Requeue::AwaitChange));
    }
    let gone = Key::new("n", "vm1");
    let change = ctx.index.stores.vmis.forget(&gone, Version(1)).unwrap();
    ctx.index.vmi_changed(&gone, &change);
    let due = ctx.index.queues.lbs.next().now_or_never().flatten();
    assert_eq!(due, Some(key()));
}

/// Names of the machines with a ready endpoint.
fn ready(server: &FakeApiServer) -> Vec<String> {
    let slice = server.get(SLICE).unwrap();
    let all = slice["endpoints"].as_array().unwrap().iter();
    let ready = all.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    ready
        .filter_map(|endpoint| Some(endpoint["targetRef"]["name"].as_str()?.to_owned()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn be_6_endpoints_follow_while_the_record_cannot_be_written() {
    for (released, method) in [(false, Method::POST), (true, Method::PATCH)] {
        let server = FakeApiServer::default();
        let ctx = served(&server, &named("vm"));
        if released {
            let record = record("10.0.0.2", 3, "Released", "u-a");
            server.put(RECORD, record.clone());
            knows(&ctx, 3, &record);
        }
        server.refuse(method, "ipallocations");
        let next = reconcile(&ctx, &key()).await.unwrap();
        assert_eq!(next, Requeue::Backoff);
        let lb = server.get(LB).unwrap();
        let condition = &lb["status"]["conditions"][0];
        assert_eq!(condition["reason"], "ApiError", "{condition}");
        assert_eq!(lb["status"]["address"], "10.0.0.2");
        assert_eq!(ready(&server), ["vm1", "vm2"]);
        assert!(server.get(SERVICE).is_some());

        machine_is_deleted(&ctx);
        assert_eq!(reconcile(&ctx, &key()).await.unwrap(), Requeue::Backoff);
        assert_eq!(ready(&server), ["vm2"]);
        let writes = server.writes().into_iter().map(|(_, path, _)| path);
        let of_service = writes.filter(|path| path == SERVICE).count();
        assert_eq!(of_service, 0, "nothing else is written");

        // Once the record can be written it is served as before.
        server.admit();
        tokio::time::advance(Duration::from_secs(10)).await;
        reconcile(&ctx, &key()).await.unwrap();
        let record = server.get(RECORD).unwrap();
        assert_eq!(record["spec"]["phase"], "Bound");
        assert_eq!(record["spec"]["owner"]["uid"], "u-a");
        assert_eq!(ready(&server), ["vm2"]);
    }
}

/// The Go operator's finalizers hold it in deletion as those of any other program do, while they cannot be removed.
#[tokio::test(start_paused = true)]
async fn be_6_endpoints_follow_while_a_finalizer_of_the_go_operator_cannot_be_removed() {
    let server = FakeApiServer::default();
    let mut lb = named("vm");
    lb["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    lb["metadata"]["finalizers"] = keys::LEGACY_FINALIZERS.to_vec().into();
    let ctx = served(&server, &lb);
    server.refuse(Method::PATCH, "loadbalancers");
    let refused = reconcile(&ctx, &key()).await;
    assert!(
        matches!(refused, Err(WriteError::Refused(_))),
        "{refused:?}"
    );
    assert_eq!(ready(&server), ["vm1", "vm2"]);

    machine_is_deleted(&ctx);
    assert!(reconcile(&ctx, &key()).await.is_err());
    assert_eq!(ready(&server), ["vm2"]);

    server.admit();
    reconcile(&ctx, &key()).await.unwrap();
    assert!(server.get(LB).unwrap()["metadata"]["finalizers"].is_null());
    let of_service = |(_, path, _): &(Method, String, Value)| path == SERVICE;
    assert_eq!(
        server.writes().iter().filter(|it| of_service(it)).count(),
        0
    );
}
