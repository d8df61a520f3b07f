use super::*;

use harvester_lb_core::cached::Allocation;
use harvester_lb_fixtures::{manual_release, pool, record, stored, subnet};
use harvester_lb_object::Version;
use http::Method;

use crate::fake::{self, FakeApiServer};
use crate::index::leader_state::LeaderState;
use crate::timings::Timings;

const POOL: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools/p";
const RECORD: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/172.20.1.5";
const WISH: &str = "/metadata/annotations/loadbalancer.harvesterhci.io~1manuallyReleaseIP";

/// The leader, with a pool that requests the release of 172.20.1.5 from the deleted shop/gone.
fn leader() -> (FakeApiServer, Context) {
    let server = FakeApiServer::default();
    let held = record("172.20.1.5", "p", "Bound", ("shop", "gone", "u-gone"));
    let held = stored(held, "u-record", 3);
    let mut asks = stored(pool("p", &[subnet("172.20.1.0/29")]), "u-pool", 7);
    json_patch::merge(&mut asks, &manual_release("172.20.1.5", "shop/gone"));
    server.put(RECORD, held.clone());
    server.put(POOL, asks.clone());
    let ctx = fake::context(server.client(), &Timings::default(), true);
    let key = Key::new("", "p");
    let stored = Pool::valid(serde_json::from_value(asks).unwrap());
    ctx.index.stores.pools.written(&key, Version(7), stored);
    let record = Allocation::decoded(&serde_json::from_value(held).unwrap());
    let record_key = Key::new("", "172.20.1.5");
    ctx.index
        .stores
        .allocations
        .written(&record_key, Version(3), record);
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    (server, ctx)
}

#[tokio::test]
async fn run_1_a_release_by_hand_that_is_refused_delays_no_status() {
    let (server, ctx) = leader();
    let name = PoolName::from("p");
    server.refuse(Method::PATCH, "ipallocations");
    let outcome = write_now(&ctx, &name).await;
    assert!(
        matches!(outcome, Err(WriteError::Refused(_))),
        "it is tried again: {outcome:?}"
    );
    assert_eq!(
        ctx.refused_writes.all(),
        [("IPAllocation".to_owned(), Key::new("", "172.20.1.5"))]
    );
    let pool = server.get(POOL).unwrap();
    assert_eq!(pool["status"]["total"], 5);
    assert_eq!(pool["status"]["allocated"]["172.20.1.5"], "shop/gone");
    assert!(pool.pointer(WISH).is_some(), "the wish stays: {pool}");

    server.admit();
    let outcome = write_now(&ctx, &name).await;
    assert!(matches!(outcome, Ok(Requeue::AwaitChange)), "{outcome:?}");
    assert_eq!(server.get(RECORD).unwrap()["spec"]["phase"], "Released");
    let pool = server.get(POOL).unwrap();
    assert_eq!(
        pool["status"]["allocatedHistory"]["172.20.1.5"],
        "shop/gone"
    );
    assert!(pool.pointer(WISH).is_none(), "it is dealt with: {pool}");
    assert!(ctx.refused_writes.all().is_empty());
}

/// The store does not have the Service, because its watch is behind.
#[tokio::test]
async fn ipa_3_a_release_by_hand_spares_what_only_the_current_service_shows() {
    let (server, ctx) = leader();
    let service = serde_json::json!({
        "metadata": {
            "namespace": "shop", "name": "gone", "uid": "u-s", "resourceVersion": "40",
            "labels": { harvester_lb_api::keys::LABEL_SERVICELB: "true" },
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "172.20.1.5"}]}},
    });
    server.put("/api/v1/namespaces/shop/services/gone", service);
    write_now(&ctx, &PoolName::from("p")).await.unwrap();
    assert_eq!(server.get(RECORD).unwrap()["spec"]["phase"], "Bound");
}
