//! Stale copies of the stores: of a new leader whose watch of a kind was dead, or of a watch that another is ahead of.

use std::time::Duration;

use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::watch;
use harvester_lb_core::plan::Waiting;
use harvester_lb_core::status::Readiness;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;

use super::*;
use crate::controllers::live;

fn is_deletion((method, ..): &(Method, String, Value)) -> bool {
    *method == Method::DELETE
}

fn is_conflict(outcome: &Result<Requeue, WriteError>) -> bool {
    matches!(outcome, Err(WriteError::Conflict(_)))
}

/// As on a new leader whose watch of load balancers was dead: this one named a pool that does not exist, and has been
/// corrected and served meanwhile.
#[tokio::test]
async fn rel_4_an_old_copy_takes_no_serving_service_down() {
    for workload in ["vm", "cluster"] {
        let (mut copy, mut now) = (named(workload), named("vm"));
        now["metadata"]["resourceVersion"] = "9".into();
        if workload == "vm" {
            copy["spec"]["ipPool"] = "missing".into();
        }
        let (server, ctx) = leader_with_record(&copy, &now);
        serves(&ctx, &server);
        let outcome = reconcile(&ctx, &key()).await;
        assert!(is_conflict(&outcome), "{outcome:?}");
        assert_eq!(server.writes(), [], "{workload}");
        // The next reconcile sees the current object.
        reconcile(&ctx, &key()).await.unwrap();
        assert!(!server.writes().iter().any(is_deletion), "{workload}");
    }
}

#[tokio::test]
async fn rel_4_the_current_copy_takes_the_service_down() {
    let mut lb = named("vm");
    lb["spec"]["ipPool"] = "missing".into();
    let (server, ctx) = leader_with_record(&lb, &lb);
    serves(&ctx, &server);
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!((server.get(SERVICE), server.get(SLICE)), (None, None));
    let after = server.get(LB).unwrap();
    assert_eq!(after["status"]["conditions"][0]["reason"], "PoolNotFound");
}

/// As on a new leader whose watch of Services was dead: the foreign Service has been deleted, and ours created.
#[tokio::test]
async fn svc_1_an_old_copy_of_a_foreign_service_takes_no_endpoints_away() {
    let lb = named("vm");
    let (server, ctx) = leader_with_record(&lb, &lb);
    serves(&ctx, &server);
    let mut ours = server.get(SERVICE).unwrap();
    ours["metadata"]["resourceVersion"] = "12".into();
    server.put(SERVICE, ours);
    let foreign = json!({
        "metadata": {"namespace": "n", "name": "a", "uid": "u-s", "resourceVersion": "7"},
        "spec": {"type": "ClusterIP"},
    });
    let foreign = cached::service(Ok(object(foreign))).unwrap();
    let services = &ctx.index.stores.services;
    services.written(&key(), Version(7), foreign);
    let outcome = reconcile(&ctx, &key()).await;
    assert!(is_conflict(&outcome), "{outcome:?}");
    assert_eq!(server.writes(), []);
    reconcile(&ctx, &key()).await.unwrap();
    assert!(server.get(SLICE).is_some());
}

/// The load balancer has moved to a pool that was created just before; the watch of pools is behind.
#[tokio::test]
async fn rel_4_a_pool_that_is_not_seen_yet_takes_no_service_down() {
    let mut lb = named("vm");
    lb["spec"]["ipPool"] = "q".into();
    let (server, ctx) = leader_with_record(&lb, &lb);
    server.put(
        "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools/q",
        json!({
            "metadata": {"name": "q", "uid": "u-q", "resourceVersion": "9"},
            "spec": {"ranges": [{"subnet": "10.0.1.0/24"}]},
        }),
    );
    serves(&ctx, &server);
    let outcome = reconcile(&ctx, &key()).await;
    assert!(is_conflict(&outcome), "{outcome:?}");
    assert_eq!(server.writes(), []);
    // The next reconcile knows the pool, and moves the Service.
    reconcile(&ctx, &key()).await.unwrap();
    assert!(!server.writes().iter().any(is_deletion));
    let address = &server.get(SERVICE).unwrap()["spec"]["loadBalancerIP"];
    assert!(address.as_str().unwrap().starts_with("10.0.1."));
}

/// Its deletion is seen, its creation with another uid not yet. The Service and EndpointSlice are those of the later one.
#[tokio::test]
async fn rel_3_the_objects_of_a_recreated_one_are_not_deleted() {
    for ipam in ["dhcp", "pool"] {
        let server = FakeApiServer::default();
        let lb = |uid: &str, version: &str| {
            let mut lb = named("vm");
            lb["spec"]["ipam"] = ipam.into();
            lb["metadata"]["uid"] = uid.into();
            lb["metadata"]["resourceVersion"] = version.into();
            lb
        };
        server.put(LB, lb("u-a", "9"));
        let ctx = leader(&server, pool(&json!({})), &lb("u-earlier", "5"));
        serves(&ctx, &server);
        let change = ctx.index.stores.lbs.forget(&key(), Version(5));
        ctx.index.lb_changed(&key(), &change.unwrap());
        let next = reconcile(&ctx, &key()).await.unwrap();
        assert_eq!((next, server.writes()), (Requeue::Resync, vec![]), "{ipam}");
    }
}

/// As on a new leader whose watch of load balancers was dead: the copy is refused, and a later one of its name is served.
#[tokio::test]
async fn ipa_3_an_old_refused_copy_releases_nothing_of_a_recreated_one() {
    let (mut copy, mut now) = (named("vm"), named("vm"));
    now["metadata"]["resourceVersion"] = "9".into();
    copy["metadata"]["uid"] = "u-earlier".into();
    copy["spec"]["listeners"] = json!([]);
    copy["status"] = json!({});
    let (server, ctx) = leader_with_record(&copy, &now);
    let earlier = record("10.0.0.3", 7, "Bound", "u-earlier");
    server.put(&RECORD.replace("10.0.0.2", "10.0.0.3"), earlier.clone());
    knows(&ctx, 7, &earlier);
    let outcome = reconcile(&ctx, &key()).await;
    assert!(is_conflict(&outcome), "{outcome:?}");
    assert_eq!(server.get(RECORD).unwrap()["spec"]["phase"], "Bound");
}

/// A late write, or one of an earlier leader, has made the Service show an address that the load balancer has left.
#[tokio::test]
async fn ipa_3_what_only_the_current_service_shows_is_not_released() {
    for workload in ["vm", "cluster"] {
        let (server, lb) = (FakeApiServer::default(), named(workload));
        let (bound, extra) = (
            record("10.0.0.2", 8, "Bound", "u-a"),
            record("10.0.0.3", 9, "Bound", "u-a"),
        );
        let path = RECORD.replace("10.0.0.2", "10.0.0.3");
        server.put(LB, lb.clone());
        server.put(RECORD, bound.clone());
        server.put(&path, extra.clone());
        let ctx = leader(&server, pool(&json!({})), &lb);
        knows(&ctx, 8, &bound);
        if workload == "vm" {
            serves(&ctx, &server);
        }
        reconcile(&ctx, &key()).await.unwrap();
        knows(&ctx, 9, &extra);
        // The watch has passed the Service's version, so the store does not take what a live read returns.
        let other: Service = object(json!({
            "metadata": {"namespace": "n", "name": "other", "resourceVersion": "5000"},
        }));
        let services = &ctx.index.stores.services;
        let event = Event::Apply(DecodeGuard(Ok(other)));
        let _ = watch::deliver(event, services, &cached::service, &|_, _| {});
        let mut service = server.get(SERVICE).unwrap_or_else(|| {
            json!({"metadata": {
                "namespace": "n", "name": "a", "uid": "u-s",
                "labels": { keys::LABEL_SERVICELB: "true" },
            }})
        });
        service["metadata"]["resourceVersion"] = "4000".into();
        service["status"]["loadBalancer"]["ingress"] = json!([{"ip": "10.0.0.3"}]);
        server.put(SERVICE, service);
        reconcile(&ctx, &key()).await.unwrap();
        assert_eq!(
            server.get(&path).unwrap()["spec"]["phase"],
            "Bound",
            "{workload}"
        );
    }
}

/// A lease of a DHCP server may be an address that the load balancer once had from a pool.
#[tokio::test]
async fn rel_4_a_released_record_is_no_address_to_leave() {
    let (server, mut lb) = (FakeApiServer::default(), named("vm"));
    lb["spec"]["ipam"] = "dhcp".into();
    lb["status"]["allocatedAddress"] = json!({"ip": "0.0.0.0"});
    server.put(LB, lb.clone());
    let timings = Timings {
        move_limit: Duration::ZERO,
        ..Timings::default()
    };
    let ctx = fake::context(server.client(), &timings, true);
    let stored = Lb::valid(object(lb));
    ctx.index.stores.lbs.written(&key(), Version(5), stored);
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    knows(&ctx, 8, &record("10.0.0.2", 8, "Released", "u-a"));
    serves(&ctx, &server);
    let mut service = server.get(SERVICE).unwrap();
    service["spec"]["loadBalancerIP"] = "0.0.0.0".into();
    service["status"]["loadBalancer"]["ingress"] = json!([{"ip": "10.0.0.2"}]);
    service["metadata"]["resourceVersion"] = "12".into();
    server.put(SERVICE, service.clone());
    let service = cached::service(Ok(object(service))).unwrap();
    let services = &ctx.index.stores.services;
    services.written(&key(), Version(12), service);
    reconcile(&ctx, &key()).await.unwrap();
    assert!(!server.writes().iter().any(is_deletion));
}

/// Held in deletion by another program's finalizer; its record is deleted by hand.
#[tokio::test]
async fn fin_2_one_that_is_held_in_deletion_keeps_an_address_without_a_record() {
    let (server, mut lb) = (FakeApiServer::default(), named("cluster"));
    lb["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    lb["metadata"]["finalizers"] = json!(["example.com/held"]);
    server.put(LB, lb.clone());
    let ctx = leader(&server, pool(&json!({})), &lb);
    knows(&ctx, 8, &record("10.0.0.2", 8, "Bound", "u-a"));
    let before = ctx.index.pool_size("p");
    ctx.index.forget_record("10.0.0.2", Version(9));
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(ctx.index.pool_size("p"), before);
}

/// The record is there, the status does not name its address yet, and the record cannot be written.
#[tokio::test]
async fn run_1_a_refused_write_of_a_record_is_shown() {
    let mut lb = named("cluster");
    lb["status"] = json!({});
    let (server, ctx) = leader_with_record(&lb, &lb);
    server.refuse(Method::PATCH, "ipallocations");
    let next = reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(next, Requeue::Backoff);
    let after = server.get(LB).unwrap();
    assert_eq!(after["status"]["conditions"][0]["reason"], "ApiError");
}

/// As [`rel_4_a_pool_that_is_not_seen_yet_takes_no_service_down`], but the watch delivers the pool after the decision.
#[tokio::test]
async fn rel_4_a_pool_that_is_seen_after_the_decision_takes_no_service_down() {
    let (server, mut lb) = (FakeApiServer::default(), named("vm"));
    lb["spec"]["ipPool"] = "q".into();
    let q = json!({
        "metadata": {"name": "q", "uid": "u-q", "resourceVersion": "9"},
        "spec": {"ranges": [{"subnet": "10.0.1.0/24"}]},
    });
    server.put(LB, lb.clone());
    server.put(
        "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools/q",
        q.clone(),
    );
    let ctx = leader(&server, pool(&json!({})), &lb);
    serves(&ctx, &server);
    let lb: harvester_lb_api::LoadBalancer = object(lb);
    let seen = live::seen_pool(&ctx, &spec::request(&lb)).unwrap();
    let q: IPPool = object(q);
    let stamp = harvester_lb_controller_kit::Stamp::of(&q.metadata);
    let pools = &ctx.index.stores.pools;
    pools.written(&Key::new("", "q"), stamp, Pool::valid(q));
    let waiting = Waiting {
        readiness: Readiness::not("PoolNotFound", "why"),
        address_conflict: None,
        extra_records: Vec::new(),
        lease: None,
        pool: Some(seen),
        is_name_taken: false,
    };
    let vm = spec::check(&lb).unwrap().vm.map(Box::new);
    let outcome = walk::walk(&ctx, &key(), &lb, &Goal::Wait(vm, waiting), &key()).await;
    assert!(
        matches!(outcome, Err(WriteError::Conflict(_))),
        "{outcome:?}"
    );
    assert_eq!(server.writes(), []);
}

/// Neither the creation nor the Service of the later load balancer is seen, and the record is still the earlier one's.
#[tokio::test]
async fn rel_3_a_service_that_only_a_live_read_finds_may_be_a_later_ones() {
    let server = FakeApiServer::default();
    let lb = |uid: &str, version: &str| {
        let mut lb = named("vm");
        lb["metadata"]["uid"] = uid.into();
        lb["metadata"]["resourceVersion"] = version.into();
        lb
    };
    server.put(LB, lb("u-a", "9"));
    let ctx = leader(&server, pool(&json!({})), &lb("u-earlier", "5"));
    // The objects are at the API server, and in another process's stores.
    let other = leader(&server, pool(&json!({})), &lb("u-a", "5"));
    serves(&other, &server);
    let earlier = record("10.0.0.2", 4, "Bound", "u-earlier");
    server.put(RECORD, record("10.0.0.2", 8, "Bound", "u-a"));
    knows(&ctx, 4, &earlier);
    let change = ctx.index.stores.lbs.forget(&key(), Version(5));
    ctx.index.lb_changed(&key(), &change.unwrap());
    for _ in 0..2 {
        let _ = reconcile(&ctx, &key()).await;
        assert_eq!(server.writes(), []);
    }
}

/// Its record is there, but its status does not name it yet: the record is written again, once (IPA-5).
#[tokio::test]
async fn ipa_5_a_record_that_the_status_does_not_name_yet_is_written_once() {
    let mut lb = named("cluster");
    lb["status"] = json!({});
    let (server, ctx) = leader_with_record(&lb, &lb);
    reconcile(&ctx, &key()).await.unwrap();
    let writes = server.writes();
    let of_records = writes.iter().filter(|(_, path, _)| path == RECORD).count();
    assert_eq!(of_records, 1, "{writes:?}");
}

/// Its status is written with the resource version of the copy, which is therefore current.
#[tokio::test]
async fn ipa_6_a_creation_reads_nothing_live_and_a_new_term_reads_once() {
    let (server, mut lb) = (FakeApiServer::default(), named("vm"));
    lb["status"] = json!({});
    server.put(LB, lb.clone());
    let ctx = leader(&server, pool(&json!({})), &lb);
    reconcile(&ctx, &key()).await.unwrap();
    assert!(server.get(SERVICE).is_some());
    assert_eq!(server.reads(), Vec::<String>::new());
    // Another term: it is read before the Service is corrected, and not again after that.
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    for (version, reads) in [(2000, vec![LB.to_owned()]), (3000, vec![])] {
        let mut service = server.get(SERVICE).unwrap();
        service["metadata"]["resourceVersion"] = version.to_string().into();
        service["spec"]["selector"] = json!({"app": "z"});
        server.put(SERVICE, service.clone());
        let service = cached::service(Ok(object(service))).unwrap();
        let services = &ctx.index.stores.services;
        services.written(&key(), Version(version), service);
        reconcile(&ctx, &key()).await.unwrap();
        assert_eq!(server.reads(), reads, "{version}");
        let corrected = server.get(SERVICE).unwrap();
        assert_eq!(corrected["spec"]["selector"], Value::Null);
    }
    let change = ctx.index.stores.lbs.forget(&key(), Version(5000));
    ctx.index.lb_changed(&key(), &change.unwrap());
    assert!(!ctx.index.is_verified(&key()));
}

/// The load balancer has been changed since; what it needs is not known.
#[tokio::test]
async fn ipa_6_nothing_is_released_from_an_old_copy() {
    let (server, lb) = (FakeApiServer::default(), named("cluster"));
    let mut now = lb.clone();
    now["metadata"]["resourceVersion"] = "9".into();
    server.put(LB, now);
    let (bound, extra) = (
        record("10.0.0.2", 7, "Bound", "u-a"),
        record("10.0.0.3", 8, "Bound", "u-a"),
    );
    let path = RECORD.replace("10.0.0.2", "10.0.0.3");
    server.put(RECORD, bound.clone());
    server.put(&path, extra.clone());
    let ctx = leader(&server, pool(&json!({})), &lb);
    knows(&ctx, 7, &bound);
    knows(&ctx, 8, &extra);
    let records = ctx.index.record("10.0.0.3".parse().unwrap());
    let lb = object(lb);
    let records = records.into_iter().collect();
    let outcome = release::release_extra_records(&ctx, &key(), &lb, records).await;
    assert!(
        matches!(outcome, Err(WriteError::Conflict(_))),
        "{outcome:?}"
    );
    assert_eq!(server.writes(), []);
}

/// The Service asked for 10.0.0.2, then 10.0.0.3, and asks for 10.0.0.4 now: kube-vip may still get to 10.0.0.3.
#[tokio::test]
async fn rel_4_nothing_is_released_while_kube_vip_announces_an_earlier_address() {
    for is_stored in [true, false] {
        let (server, lb) = (FakeApiServer::default(), named("vm"));
        server.put(LB, lb.clone());
        let path = RECORD.replace("10.0.0.2", "10.0.0.3");
        let left = record("10.0.0.3", 8, "Bound", "u-a");
        server.put(&path, left.clone());
        let ctx = leader(&server, pool(&json!({})), &lb);
        knows(&ctx, 7, &record("10.0.0.2", 7, "Bound", "u-a"));
        knows(&ctx, 8, &left);
        serves(&ctx, &server);
        let shows = |address: &str, version: u32| {
            let mut service = server.get(SERVICE).unwrap();
            service["metadata"]["resourceVersion"] = version.to_string().into();
            service["spec"]["loadBalancerIP"] = "10.0.0.4".into();
            service["status"] = json!({"loadBalancer": {"ingress": [{"ip": address}]}});
            service
        };
        let stores = |service: &Value, version| {
            let service = cached::service(Ok(object(service.clone()))).unwrap();
            let change = ctx.index.stores.services.written(&key(), version, service);
            ctx.index.service_changed(&key(), &change.unwrap());
        };
        let lb = object(lb);
        let release = async || {
            let records = ctx.index.record("10.0.0.3".parse().unwrap());
            let records = records.into_iter().collect();
            release::release_extra_records(&ctx, &key(), &lb, records).await
        };
        let behind = shows("10.0.0.2", 11);
        server.put(SERVICE, behind.clone());
        let before = if is_stored {
            &behind
        } else {
            &shows("10.0.0.4", 10)
        };
        stores(before, Version(if is_stored { 11 } else { 10 }));
        release().await.unwrap();
        assert_eq!(server.writes(), [], "{is_stored}");

        let done = shows("10.0.0.4", 12);
        server.put(SERVICE, done.clone());
        stores(&done, Version(12));
        release().await.unwrap();
        let phase = &server.get(&path).unwrap()["spec"]["phase"];
        assert_eq!(phase, "Released", "{is_stored}");
    }
}
