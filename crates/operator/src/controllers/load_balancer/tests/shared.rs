//! What is read live before a shared address changes hands, or before its Service loses ports.

use super::*;
use crate::controllers::live;

const GROUP: &str = "/api/v1/namespaces/n/services/g";

/// A load balancer whose status names 10.0.0.2, the address of `g`.
fn member(version: u64) -> Value {
    let mut lb = named("vm");
    lb["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "g" });
    lb["metadata"]["resourceVersion"] = version.to_string().into();
    lb
}

/// The Service of `g`, which this load balancer owns too.
fn service_of_group(owner: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "n", "name": "g", "uid": "u-g", "resourceVersion": "6",
            "labels": { keys::LABEL_SERVICELB: "true" },
            "ownerReferences": [{
                "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
                "name": "x", "uid": owner,
            }],
        },
        "spec": {"type": "LoadBalancer", "loadBalancerIP": "10.0.0.2"},
    })
}

#[tokio::test]
async fn shr_5_a_record_is_taken_from_one_that_may_not_share_it_as_it_is_now() {
    let server = FakeApiServer::default();
    let ctx = leader(&server, pool(&json!({})), &member(5));
    let mut record = record("10.0.0.2", 3, "Bound", "u-a");
    record["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "g" });
    let Allocation::Valid { record, .. } = Allocation::decoded(&object(record)) else {
        panic!("it can be read");
    };
    for (now, seen, may_pass) in [(5, Some(5), true), (6, Some(5), false), (5, None, false)] {
        server.put(LB, member(now));
        let seen = seen.map(|version| object(member(version)["metadata"].clone()));
        let left = live::ensure_left(&ctx, &record, seen.as_ref()).await;
        assert_eq!(left.is_ok(), may_pass, "{now} {seen:?}");
    }
    // It names another one by now, whatever was seen.
    let mut other = member(7);
    other["metadata"]["annotations"] = json!({});
    server.put(LB, other);
    live::ensure_left(&ctx, &record, None).await.unwrap();
}

#[tokio::test]
async fn shr_3_the_slice_of_a_member_is_read_live_once_in_a_term() {
    let server = FakeApiServer::default();
    let ctx = leader(&server, pool(&json!({})), &named("vm"));
    serves(&ctx, &server);
    // An earlier leader has written it, and the watch is behind.
    let mut slice = server.get(SLICE).unwrap();
    slice["metadata"]["resourceVersion"] = "8".into();
    server.put(SLICE, slice);
    let old = live::ensure_slice_caught_up(&ctx, &key()).await;
    assert!(matches!(old, Err(WriteError::Conflict(_))), "{old:?}");
    for _ in 0..2 {
        live::ensure_slice_caught_up(&ctx, &key()).await.unwrap();
    }
    assert_eq!(server.reads(), [SLICE, SLICE]);
}

/// The EndpointSlice names a port of the group that another load balancer may have by now.
#[tokio::test]
async fn shr_7_the_slice_of_one_that_has_left_with_a_refused_spec_goes() {
    // The Service may be that of an older copy.
    for (owner_now, is_gone) in [("u-b", true), ("u-a", false)] {
        let server = FakeApiServer::default();
        let mut lb = named("vm");
        lb["spec"]["listeners"] = json!([]);
        lb["status"] = json!({});
        server.put(LB, lb.clone());
        let ctx = leader(&server, pool(&json!({})), &lb);
        serves(&ctx, &server);
        ctx.index.stores.services.forget(&key(), Version(99));
        let mut slice = server.get(SLICE).unwrap();
        slice["metadata"]["labels"][keys::LABEL_SERVICE_NAME] = "g".into();
        slice["metadata"]["resourceVersion"] = "9".into();
        server.put(SLICE, slice.clone());
        let slices = &ctx.index.stores.slices;
        slices.written(&key(), Version(9), object::<EndpointSlice>(slice));
        let known = cached::service(Ok(object(service_of_group("u-b")))).unwrap();
        let group = Key::new("n", "g");
        ctx.index.stores.services.written(&group, Version(6), known);
        let mut now = service_of_group(owner_now);
        now["metadata"]["resourceVersion"] = "7".into();
        server.put(GROUP, now);
        let _ = reconcile(&ctx, &key()).await;
        assert_eq!(server.get(SLICE).is_none(), is_gone, "{owner_now}");
    }
}
