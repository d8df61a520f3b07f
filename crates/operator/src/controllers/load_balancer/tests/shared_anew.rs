//! Load balancers that share an address, by old copies: at the start of a term, and while a Service or an answer is missing. And who is
//! woken.

use std::slice;

use super::shared::{
    has_group, has_slice_of_group, member, record_of_group, service_of_group, told,
};
use super::*;
use crate::controllers::takeover;
use harvester_lb_core::sharing::telling::Shared;

/// The record of an address that is that of `g`, of a load balancer that is gone: `g` was gone before it.
fn record_of_earlier(address: &str) -> Value {
    let mut record = record(address, 3, "Bound", "u-x");
    record["spec"]["owner"]["name"] = "x".into();
    record["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "g" });
    record
}

/// Others shared an address of `g`, a load balancer of that name was created again and got an address, and all that a new leader has of
/// the record of the shared one is an old copy.
#[tokio::test]
async fn ipa_7_an_old_copy_of_the_record_of_a_group_takes_no_address_from_one_of_its_name() {
    // The address that was shared, that of the load balancer, and whether the record is as it was.
    for (shared, own, is_shared) in [
        ("10.0.0.2", "10.0.0.2", false),
        ("10.0.0.3", "10.0.0.2", false),
        ("10.0.0.2", "10.0.0.2", true),
    ] {
        let server = FakeApiServer::default();
        let mut later = named("vm");
        later["metadata"]["name"] = "g".into();
        later["metadata"]["uid"] = "u-later".into();
        let path = LB.replace("loadbalancers/a", "loadbalancers/g");
        server.put(&path, later.clone());
        let mut other = told(member(5));
        other["spec"]["listeners"][0]["port"] = 81.into();
        other["status"]["allocatedAddress"]["ip"] = shared.into();
        other["status"]["conditions"][0]["message"] = Shared::Secondary("g".to_owned())
            .condition(shared)
            .message
            .into();
        server.put(LB, other.clone());
        let mut own_record = record(own, 9, "Bound", "u-later");
        own_record["spec"]["owner"]["name"] = "g".into();
        let of = |address: &str| RECORD.replace("10.0.0.2", address);
        let mut released = record_of_earlier(shared);
        released["metadata"]["resourceVersion"] = "9".into();
        released["spec"]["phase"] = "Released".into();
        server.put(&of(shared), released);
        server.put(&of(own), own_record.clone());
        if is_shared {
            server.put(&of(shared), record_of_earlier(shared));
        }
        let ctx = leader(&server, pool(&json!({})), &other);
        let group = Key::new("n", "g");
        let lbs = &ctx.index.stores.lbs;
        let change = lbs.written(&group, Version(5), Lb::valid(object(later)));
        ctx.index.lb_changed(&group, &change.unwrap());
        knows(&ctx, 3, &record_of_earlier(shared));
        if own != shared {
            knows(&ctx, 9, &own_record);
            // Its Service is an old copy, too.
            let mut service = service_of_group("u-a");
            service["spec"]["loadBalancerIP"] = shared.into();
            let service = cached::service(Ok(object(service))).unwrap();
            let services = &ctx.index.stores.services;
            services.written(&group, Version(6), service);
        }
        let first = reconcile(&ctx, &group).await;
        if is_shared {
            let after = server.get(&path).unwrap();
            assert_eq!(after["status"]["conditions"][0]["reason"], "NameConflict");
            assert!(after["status"].get("allocatedAddress").is_none(), "{after}");
            continue;
        }
        let Err(WriteError::Conflict(why)) = &first else {
            panic!("{shared}: {first:?}");
        };
        assert!(why.contains(&format!("IPAllocation {shared}")), "{why}");
        assert_eq!(server.writes(), [], "{shared}");
        let _ = reconcile(&ctx, &group).await;
        let after = server.get(&path).unwrap();
        assert_eq!(after["status"]["allocatedAddress"]["ip"], own, "{after}");
        assert_eq!(server.get(&of(own)).unwrap()["spec"]["phase"], "Bound");
    }
}

/// A load balancer is told at the start of a term that another one keeps its address, unless that follows from an old copy.
#[tokio::test]
async fn ipa_2_who_keeps_its_address_is_not_told_that_it_is_lost() {
    for is_lost in [false, true] {
        let server = FakeApiServer::default();
        let lb = named("vm");
        server.put(LB, lb.clone());
        let mut earlier = record("10.0.0.2", 3, "Bound", "u-x");
        earlier["spec"]["owner"]["name"] = "x".into();
        server.put(RECORD, record("10.0.0.2", 9, "Bound", "u-a"));
        let x = LB.replace("loadbalancers/a", "loadbalancers/x");
        if is_lost {
            server.put(RECORD, earlier.clone());
            let mut holder = lb.clone();
            holder["metadata"]["name"] = "x".into();
            holder["metadata"]["uid"] = "u-x".into();
            server.put(&x, holder);
        }
        let ctx = leader(&server, pool(&json!({})), &lb);
        knows(&ctx, 3, &earlier);
        takeover::run(&ctx, &takeover::CatchUp::default())
            .await
            .unwrap();
        ctx.events.written().await;
        let told = server.events().into_iter();
        let told: Vec<Value> = told.filter(|it| it["reason"] == "AddressLost").collect();
        assert_eq!(told.len(), usize::from(is_lost), "{told:?}");
    }
}

/// What an earlier leader has written last, and the watches have yet to bring.
#[tokio::test]
async fn shr_5_a_term_begins_with_the_copies_of_now() {
    let server = FakeApiServer::default();
    let ctx = leader(&server, pool(&json!({})), &member(5));
    serves(&ctx, &server);
    knows(&ctx, 3, &record_of_group());
    let pools = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools/p";
    let newer = |path: &str| {
        let mut object = server.get(path).unwrap();
        object["metadata"]["resourceVersion"] = "9".into();
        server.put(path, object);
    };
    server.put(LB, member(9));
    server.put(SERVICE, server.get(SERVICE).unwrap());
    server.put(RECORD, record("10.0.0.2", 9, "Bound", "u-a"));
    server.put(
        pools,
        json!({"metadata": {"name": "p", "resourceVersion": "9"}, "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]}}),
    );
    newer(SERVICE);
    newer(SLICE);
    let catch_up = takeover::CatchUp::default();
    // One list fails: the next attempt makes that one, and no other.
    server.refuse(Method::GET, "/endpointslices");
    takeover::run(&ctx, &catch_up).await.unwrap_err();
    server.reads();
    server.admit();
    takeover::run(&ctx, &catch_up).await.unwrap();
    assert_eq!(
        server.reads(),
        ["/apis/discovery.k8s.io/v1/endpointslices", SLICE]
    );
    let stores = &ctx.index.stores;
    let (ours, named) = (key(), |name: &str| Key::new("", name));
    let versions = [
        stores.lbs.version(&ours),
        stores.services.version(&ours),
        stores.slices.version(&ours),
        stores.allocations.version(&named("10.0.0.2")),
        stores.pools.version(&named("p")),
    ];
    assert_eq!(versions, [Version(9); 5]);
}

/// A secondary whose spec is refused by now, and by an old copy the Service has none of its ports.
#[tokio::test]
async fn alc_10_one_that_is_refused_keeps_its_address_while_the_service_is_not_seen() {
    let server = FakeApiServer::default();
    let mut lb = told(member(5));
    lb["spec"]["listeners"] = json!([]);
    server.put(LB, lb.clone());
    let ctx = leader(&server, pool(&json!({})), &lb);
    has_group(&ctx, "vm");
    has_slice_of_group(&ctx, &server, "u-g", "u-a");
    let outcome = reconcile(&ctx, &key()).await;
    assert!(
        matches!(outcome, Err(WriteError::Conflict(_))),
        "{outcome:?}"
    );
    let after = server.get(LB).unwrap();
    assert_eq!(
        after["status"]["allocatedAddress"]["ip"], "10.0.0.2",
        "{after}"
    );
    assert!(server.get(SLICE).is_some());
}

/// Just before the load balancer of the name was deleted its address was moved, and both records were handed over.
#[tokio::test]
async fn ipa_6_a_record_that_was_handed_over_and_is_not_the_address_is_left() {
    let server = FakeApiServer::default();
    let ctx = leader(&server, pool(&json!({})), &told(member(5)));
    let mut owned = ["10.0.0.2", "10.0.0.3"].map(record_of_earlier);
    for record in &mut owned {
        record["spec"]["owner"] = json!({"namespace": "n", "name": "a", "uid": "u-a"});
        knows(&ctx, 3, record);
    }
    let known = cached::service(Ok(object(service_of_group("u-a")))).unwrap();
    let key = Key::new("n", "g");
    ctx.index.stores.services.written(&key, Version(6), known);
    let group = group::Group::of(&ctx, &key).unwrap();
    let snapshot = group.snapshot();
    let main = snapshot.record.unwrap();
    let left = group.left_records(main);
    let addrs = |records: &[_]| {
        let all = records
            .iter()
            .map(|it: &harvester_lb_ipam::Record| it.spec.addr.to_string());
        all.collect::<Vec<_>>()
    };
    assert_eq!(addrs(slice::from_ref(main)), ["10.0.0.2"]);
    assert_eq!(addrs(&left), ["10.0.0.3"]);
}

/// Whether the reconcile of the group wakes the load balancer.
fn wakes(ctx: &Context, group: &Key) -> bool {
    // Those that have not acted on their role yet are woken once.
    for _ in 0..2 {
        fake::due(&ctx.index);
        upkeep::wake(ctx, &group::Group::of(ctx, group).unwrap());
    }
    fake::due(&ctx.index).contains(&key())
}

/// One with an address of its own waits until a port of the group has another name.
#[tokio::test]
async fn shr_7_who_waits_for_the_name_of_a_port_joins_once_that_is_free() {
    let server = FakeApiServer::default();
    let mut lb = member(5);
    lb["spec"]["listeners"][0]["port"] = 81.into();
    lb["status"]["allocatedAddress"]["ip"] = "10.0.0.3".into();
    lb["status"]["conditions"] = json!([
        {"type": "AddressShared", "status": "False", "reason": "WaitingForPrimary", "message": "10.0.0.3 is served meanwhile"},
    ]);
    let ctx = leader(&server, pool(&json!({})), &lb);
    has_group(&ctx, "vm");
    let change = ctx
        .index
        .stores
        .lbs
        .written(&key(), Version(6), Lb::valid(object(lb)));
    ctx.index.lb_changed(&key(), &change.unwrap());
    let group = Key::new("n", "g");
    let is_woken = |version: u64, name: &str| {
        let mut service = service_of_group("u-g");
        service["spec"]["ports"] = json!([{"name": name, "port": 80, "protocol": "TCP"}]);
        let service = cached::service(Ok(object(service))).unwrap();
        ctx.index
            .stores
            .services
            .written(&group, Version(version), service);
        wakes(&ctx, &group)
    };
    assert!(!is_woken(6, "81-tcp"));
    assert!(is_woken(7, "http"));
}

/// One that waits for its ports names another pool by now, and the API server refuses the Service without them.
#[tokio::test]
async fn shr_7_one_that_leaves_is_not_woken_without_end() {
    for (pool_name, is_woken) in [("p", true), ("q", false)] {
        let server = FakeApiServer::default();
        let mut lb = told(member(5));
        lb["spec"]["listeners"][0]["port"] = 81.into();
        lb["spec"]["ipPool"] = pool_name.into();
        lb["status"]["conditions"].as_array_mut().unwrap().push(json!(
            {"type": "Ready", "status": "False", "reason": "WaitingForPrimary", "message": "its ports are to come"}
        ));
        let ctx = leader(&server, pool(&json!({})), &lb);
        has_group(&ctx, "vm");
        let stores = &ctx.index.stores;
        let change = stores
            .lbs
            .written(&key(), Version(6), Lb::valid(object(lb)));
        ctx.index.lb_changed(&key(), &change.unwrap());
        serves(&ctx, &server);
        stores.services.forget(&key(), Version(99));
        let mut slice = server.get(SLICE).unwrap();
        slice["metadata"]["labels"][keys::LABEL_SERVICE_NAME] = "g".into();
        slice["metadata"]["resourceVersion"] = "9".into();
        slice["ports"] = json!([{"name": "81-tcp", "port": 8080, "protocol": "TCP"}]);
        stores
            .slices
            .written(&key(), Version(9), object::<EndpointSlice>(slice));
        let mut service = service_of_group("u-a");
        service["spec"]["ports"] = json!([{"name": "81-tcp", "port": 81, "protocol": "TCP"}]);
        let service = cached::service(Ok(object(service))).unwrap();
        let group = Key::new("n", "g");
        stores.services.written(&group, Version(6), service);
        assert_eq!(wakes(&ctx, &group), is_woken, "{pool_name}");
    }
}
