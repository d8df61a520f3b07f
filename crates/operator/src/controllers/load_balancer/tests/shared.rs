//! What is read live before a shared address changes hands, or before its Service loses ports.

use std::slice;

use super::*;
use crate::controllers::live;
use futures::FutureExt;
use harvester_lb_core::sharing::telling::Shared;
use tokio::time::Duration;

pub(super) const GROUP: &str = "/api/v1/namespaces/n/services/g";

/// The record of 10.0.0.2, which is the address of `g`.
pub(super) fn record_of_group() -> Value {
    let mut record = record("10.0.0.2", 3, "Bound", "u-g");
    record["spec"]["owner"]["name"] = "g".into();
    record
}

/// The stores have `g` and its record.
pub(super) fn has_group(ctx: &Context, workload: &str) {
    let mut primary = named(workload);
    primary["metadata"]["name"] = "g".into();
    primary["metadata"]["uid"] = "u-g".into();
    let (group, primary) = (Key::new("n", "g"), Lb::valid(object(primary)));
    let change = ctx.index.stores.lbs.written(&group, Version(5), primary);
    ctx.index.lb_changed(&group, &change.unwrap());
    knows(ctx, 3, &record_of_group());
}

/// A load balancer whose status names 10.0.0.2, the address of `g`.
pub(super) fn member(version: u64) -> Value {
    let mut lb = named("vm");
    lb["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "g" });
    lb["metadata"]["resourceVersion"] = version.to_string().into();
    lb
}

/// The Service of `g`, which this load balancer owns too.
pub(super) fn service_of_group(owner: &str) -> Value {
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
    assert_eq!(server.reads(), [SLICE]);
}

/// The EndpointSlice of `a` is one of the Service of `g`, which the one of this uid owned by an old copy, and another one owns now.
pub(super) fn has_slice_of_group(ctx: &Context, server: &FakeApiServer, known: &str, now: &str) {
    serves(ctx, server);
    ctx.index.stores.services.forget(&key(), Version(99));
    let mut slice = server.get(SLICE).unwrap();
    slice["metadata"]["labels"][keys::LABEL_SERVICE_NAME] = "g".into();
    slice["metadata"]["resourceVersion"] = "9".into();
    server.put(SLICE, slice.clone());
    let slices = &ctx.index.stores.slices;
    slices.written(&key(), Version(9), object::<EndpointSlice>(slice));
    let known = cached::service(Ok(object(service_of_group(known)))).unwrap();
    let group = Key::new("n", "g");
    ctx.index.stores.services.written(&group, Version(6), known);
    let mut now = service_of_group(now);
    now["metadata"]["resourceVersion"] = "7".into();
    server.put(GROUP, now);
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
        has_slice_of_group(&ctx, &server, "u-b", owner_now);
        let _ = reconcile(&ctx, &key()).await;
        assert_eq!(server.get(SLICE).is_none(), is_gone, "{owner_now}");
    }
}

/// The status of one that shares the address of `g`.
pub(super) fn told(mut lb: Value) -> Value {
    let told = Shared::Secondary("g".to_owned()).condition("10.0.0.2");
    lb["status"]["conditions"] = json!([
        {"type": "AddressShared", "status": "True", "reason": told.reason, "message": told.message},
    ]);
    lb
}

/// A new leader may have the status of a member before the record and the Service of its group. It may know what the address was before.
#[tokio::test]
async fn shr_4_the_slice_of_a_member_whose_record_is_not_seen_yet_stays() {
    for has_old_copy in [false, true] {
        for is_recorded in [true, false] {
            let server = FakeApiServer::default();
            let lb = told(member(5));
            server.put(LB, lb.clone());
            let ctx = leader(&server, pool(&json!({})), &lb);
            serves(&ctx, &server);
            ctx.index.stores.services.forget(&key(), Version(99));
            if has_old_copy {
                knows(&ctx, 2, &record("10.0.0.2", 2, "Released", "u-old"));
            }
            if is_recorded {
                server.put(RECORD, record_of_group());
            } else if has_old_copy {
                server.put(RECORD, record("10.0.0.2", 2, "Released", "u-old"));
            }
            let outcome = reconcile(&ctx, &key()).await;
            let is_kept = server.get(SLICE).is_some();
            assert_eq!(is_kept, is_recorded, "{has_old_copy} {outcome:?}");
        }
    }
}

/// The primary goes after the status of one that joins says that it shares the address, and before the Service has its ports.
#[tokio::test]
async fn shr_5_one_that_joins_keeps_the_address_of_a_primary_that_goes_amid() {
    let service = |ctx: &Context, server: &FakeApiServer| {
        let mut service = service_of_group("u-g");
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
        service["spec"]["ports"] = ports;
        server.put(GROUP, service.clone());
        let service = cached::service(Ok(object(service))).unwrap();
        let group = Key::new("n", "g");
        ctx.index
            .stores
            .services
            .written(&group, Version(6), service);
    };
    // Who is told, and who only asks.
    for (lb, is_kept) in [(told(member(5)), true), (member(5), false)] {
        let server = FakeApiServer::default();
        let mut lb = lb;
        lb["spec"]["listeners"][0]["port"] = 81.into();
        if !is_kept {
            lb["status"] = json!({});
        }
        server.put(LB, lb.clone());
        server.put(RECORD, record_of_group());
        let ctx = leader(&server, pool(&json!({})), &lb);
        knows(&ctx, 3, &record_of_group());
        service(&ctx, &server);
        let group = Key::new("n", "g");
        for key in [key(), group.clone(), key(), group] {
            let _ = reconcile(&ctx, &key).await;
        }
        let after = server.get(LB).unwrap();
        let named = after["status"]["allocatedAddress"]["ip"] == "10.0.0.2";
        let owner = &server.get(RECORD).unwrap()["spec"];
        assert_eq!(named, is_kept, "{after}");
        assert_eq!(owner["owner"]["uid"] == "u-a", is_kept, "{owner}");
        assert_eq!(server.get(GROUP).is_some(), is_kept);
    }
}

/// The watch of a new leader has yet to bring what an earlier leader has told one that joins.
#[tokio::test]
async fn shr_5_the_address_of_a_deleted_primary_is_not_released_before_who_names_it_is_read() {
    let server = FakeApiServer::default();
    let mut old = member(5);
    old["spec"]["listeners"][0]["port"] = 81.into();
    old["status"] = json!({});
    let mut now = told(member(6));
    now["spec"]["listeners"][0]["port"] = 81.into();
    server.put(LB, now);
    server.put(RECORD, record_of_group());
    server.put(GROUP, service_of_group("u-g"));
    let ctx = leader(&server, pool(&json!({})), &old);
    knows(&ctx, 3, &record_of_group());
    let known = cached::service(Ok(object(service_of_group("u-g")))).unwrap();
    let group = Key::new("n", "g");
    ctx.index.stores.services.written(&group, Version(6), known);
    for _ in 0..3 {
        let _ = reconcile(&ctx, &group).await;
    }
    assert!(server.get(GROUP).is_some());
    let spec = &server.get(RECORD).unwrap()["spec"];
    assert_eq!(
        (&spec["phase"], &spec["owner"]["uid"]),
        (&json!("Bound"), &json!("u-a"))
    );
}

/// The garbage collector has deleted the EndpointSlice of one that is gone, which the watch has yet to bring.
#[tokio::test]
async fn shr_2_the_ports_of_one_that_is_gone_are_not_offered_again() {
    let server = FakeApiServer::default();
    let mut lb = told(member(5));
    lb["spec"]["listeners"][0]["port"] = 81.into();
    server.put(RECORD, record_of_group());
    let refusing = server.clone();
    let client = fake::client(move |request| {
        let is_slice = request.method != Method::GET && request.path.contains("/endpointslices");
        std::future::ready(if is_slice {
            fake::failure(503, "ServiceUnavailable")
        } else {
            refusing.answer(request)
        })
    });
    let ctx = leader_with(client, pool(&json!({})), &lb);
    has_group(&ctx, "vm");
    // It was served in this term.
    ctx.index.set_verified(&key());
    for _ in 0..2 {
        let _ = reconcile(&ctx, &key()).await;
    }
    assert!(ctx.index.stores.lbs.get(&key()).is_none());
    let offers = ctx.index.group(&Key::new("n", "g")).map(|it| it.offers);
    assert!(offers.is_none_or(|it| it.is_empty()));
}

/// A load balancer of the name of a group is created anew, and a new leader has not seen the record that the others keep.
#[tokio::test]
async fn shr_5_one_of_the_name_gets_no_other_address_while_the_record_of_the_group_is_not_seen() {
    for has_old_copy in [false, true] {
        let server = FakeApiServer::default();
        let mut later = named("vm");
        later["metadata"]["name"] = "g".into();
        later["metadata"]["uid"] = "u-later".into();
        later["status"] = json!({});
        let path = LB.replace("loadbalancers/a", "loadbalancers/g");
        server.put(&path, later.clone());
        let mut other = told(member(5));
        other["spec"]["listeners"][0]["port"] = 81.into();
        server.put(LB, other.clone());
        server.put(RECORD, record_of_group());
        let ctx = leader(&server, pool(&json!({})), &other);
        let group = Key::new("n", "g");
        let lbs = &ctx.index.stores.lbs;
        let change = lbs.written(&group, Version(5), Lb::valid(object(later)));
        ctx.index.lb_changed(&group, &change.unwrap());
        if has_old_copy {
            knows(&ctx, 2, &record("10.0.0.2", 2, "Released", "u-old"));
        }
        let outcome = reconcile(&ctx, &group).await;
        let Err(WriteError::Conflict(why)) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(why.contains("IPAllocation"), "{why}");
        // From here on the record is known: it is the other one's, and no other one is made.
        let of_record = server.writes().iter().all(|(_, path, _)| path == RECORD);
        assert!(of_record, "{:?}", server.writes());
        let _ = reconcile(&ctx, &group).await;
        let owner = &server.get(RECORD).unwrap()["spec"]["owner"]["uid"];
        assert_eq!(owner, "u-a", "{has_old_copy}");
        let mut writes = server.writes().into_iter();
        let is_other = |path: &str| path.contains("/ipallocations") && path != RECORD;
        assert!(
            !writes.any(|(_, path, _)| is_other(&path)),
            "{has_old_copy}"
        );
    }
}

/// The API server may still do the write of a status whose answer was lost, and the status would name an address of somebody else.
#[tokio::test(start_paused = true)]
async fn ipa_6_the_address_of_a_join_that_was_not_answered_is_not_released_yet() {
    for workload in ["vm", "cluster"] {
        for has_changed in [true, false] {
            let server = FakeApiServer::default();
            let mut joiner = named(workload);
            joiner["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "g" });
            joiner["status"] = json!({});
            joiner["spec"]["listeners"][0]["port"] = 81.into();
            server.put(LB, joiner.clone());
            server.put(RECORD, record_of_group());
            let silent = server.clone();
            let client = fake::client(move |request| {
                let is_lost = request.method == Method::PATCH && request.path == LB;
                std::future::ready(if is_lost {
                    fake::failure(503, "ServiceUnavailable")
                } else {
                    silent.answer(request)
                })
            });
            let ctx = leader_with(client, pool(&json!({})), &joiner);
            has_group(&ctx, workload);
            let lbs = &ctx.index.stores.lbs;
            let outcome = reconcile(&ctx, &key()).await;
            assert!(
                matches!(outcome, Err(WriteError::Unavailable(_))),
                "{outcome:?}"
            );
            let addr = "10.0.0.2".parse().unwrap();
            assert!(!ctx.index.begin_release(addr), "{workload}");
            if has_changed {
                // It was done, and the index does not know yet.
                let mut named = joiner.clone();
                named["status"] = json!({"allocatedAddress": {"ip": "10.0.0.2"}});
                lbs.written(&key(), Version(400), Lb::valid(object(named)));
                assert!(!ctx.index.begin_release(addr), "{workload}");
                lbs.written(&key(), Version(500), Lb::valid(object(joiner)));
            } else {
                tokio::time::advance(Duration::from_secs(76)).await;
            }
            assert!(ctx.index.begin_release(addr), "{workload} {has_changed}");
        }
    }
}

/// The back-off of a load balancer whose EndpointSlice cannot be written is not ended by the offer of its ports that ends with the attempt.
#[tokio::test(start_paused = true)]
async fn shr_2_a_failed_write_of_the_slice_is_not_tried_again_at_once() {
    for (code, reason) in [(403, "Forbidden"), (503, "ServiceUnavailable")] {
        let server = FakeApiServer::default();
        let mut lb = member(5);
        lb["spec"]["listeners"][0]["port"] = 81.into();
        lb["spec"]["listeners"][0]["name"] = "own".into();
        server.put(LB, lb.clone());
        server.put(RECORD, record_of_group());
        let failing = server.clone();
        let client = fake::client(move |request| {
            let is_slice =
                request.method != Method::GET && request.path.contains("/endpointslices");
            std::future::ready(if is_slice {
                fake::failure(code, reason)
            } else {
                failing.answer(request)
            })
        });
        let ctx = leader_with(client, pool(&json!({})), &lb);
        has_group(&ctx, "vm");
        let queued = || {
            let next = || ctx.index.queues.lbs.next().now_or_never().flatten();
            std::iter::from_fn(next).collect::<Vec<Key>>()
        };
        for key in queued() {
            ctx.index.queues.lbs.done(&key, &Ok(Requeue::AwaitChange));
        }
        let outcome = reconcile(&ctx, &key()).await;
        let names = outcome.is_err() || !matches!(outcome, Ok(Requeue::AwaitChange));
        assert!(names, "{code}: {outcome:?}");
        assert_eq!(queued(), [], "{code}");
        // The group is reconciled for another reason.
        let group = Key::new("n", "g");
        ctx.index.queues.lbs.add(group.clone());
        assert_eq!(queued(), slice::from_ref(&group));
        let offered = ctx.index.group(&group).unwrap().offers;
        ctx.index.queues.lbs.done(&group, &Ok(Requeue::AwaitChange));
        assert_eq!(offered.is_empty(), code == 403, "{offered:?}");
        tokio::time::advance(Duration::from_secs(76)).await;
        tokio::task::yield_now().await;
        let due = if code == 403 {
            vec![]
        } else {
            vec![group.clone()]
        };
        assert_eq!(queued(), due, "{code}");
        assert!(ctx.index.group(&group).unwrap().offers.is_empty());
    }
}
