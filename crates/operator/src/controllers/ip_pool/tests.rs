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

/// A reconcile that began before the load balancer was deleted may still create its Service.
#[tokio::test]
async fn ipa_3_a_release_by_hand_waits_for_a_reconcile_of_the_holder() {
    let (server, ctx) = leader();
    let key = Key::new("shop", "gone");
    ctx.index.queues.lbs.add(key.clone());
    assert_eq!(ctx.index.queues.lbs.next().await.as_ref(), Some(&key));
    let outcome = write_now(&ctx, &PoolName::from("p")).await;
    assert!(
        matches!(outcome, Err(WriteError::Conflict(_))),
        "{outcome:?}"
    );
    assert_eq!(server.get(RECORD).unwrap()["spec"]["phase"], "Bound");
    let done = Ok(Requeue::AwaitChange);
    ctx.index.queues.lbs.done(&key, &done);
    let _ = write_now(&ctx, &PoolName::from("p")).await;
    assert_eq!(server.get(RECORD).unwrap()["spec"]["phase"], "Released");
}

/// The leader with the pools a, b and c without a status, on an API server whose answers to writes of pools take `took`.
fn leader_of_pools(took: Duration) -> (FakeApiServer, Context) {
    let server = FakeApiServer::default();
    let slow = server.clone();
    let client = fake::client(move |request| {
        let server = slow.clone();
        async move {
            if request.method == Method::PATCH {
                tokio::time::sleep(took).await;
            }
            server.answer(request)
        }
    });
    let ctx = fake::context(client, &Timings::default(), true);
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        let subnet = subnet(&format!("172.20.{number}.0/24"));
        let made = stored(pool(name, &[subnet]), &format!("u-{name}"), 7);
        server.put(&pool_path(name), made.clone());
        let key = Key::new("", name);
        let made = Pool::valid(serde_json::from_value(made).unwrap());
        ctx.index.stores.pools.written(&key, Version(7), made);
    }
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    // That all pools are empty is no burst.
    ctx.index.counts();
    (server, ctx)
}

fn pool_path(name: &str) -> String {
    format!("/apis/loadbalancer.harvesterhci.io/v1beta1/ippools/{name}")
}

/// A pool whose addresses keep changing waits for the pause after the interim write of another, counted from its end and by
/// what it really took; one that is edited does not.
#[tokio::test(start_paused = true)]
async fn pool_3_an_interim_write_delays_the_next_by_what_it_took() {
    let (server, ctx) = leader_of_pools(Duration::from_millis(300));
    let [a, b, c] = ["a", "b", "c"].map(PoolName::from);
    let change = |pool: &PoolName| {
        let throttle = &ctx.index.pool_throttle;
        throttle.changed(pool, false, Instant::now())
    };
    for pool in [&a, &b, &c] {
        change(pool);
    }
    let early = reconcile(&ctx, &a).await.unwrap();
    assert_eq!(early, Requeue::After(Duration::from_millis(200)));
    tokio::time::advance(Duration::from_secs(10)).await;
    for pool in [&a, &b, &c] {
        assert_eq!(change(pool), Duration::ZERO);
    }
    let started = Instant::now();
    assert_eq!(reconcile(&ctx, &a).await.unwrap(), Requeue::AwaitChange);
    assert_eq!(started.elapsed(), Duration::from_millis(300));
    assert_eq!(server.get(&pool_path("a")).unwrap()["status"]["total"], 253);

    // The others come again after 19 times that, when their bursts still go on.
    let before = Duration::from_millis(19 * 300 - 100);
    tokio::time::advance(before).await;
    for pool in [&b, &c] {
        change(pool);
    }
    let Requeue::After(delay) = reconcile(&ctx, &b).await.unwrap() else {
        panic!("b is due");
    };
    let rest = delay.as_millis();
    assert!((100..=105).contains(&rest), "{delay:?}");
    ctx.index.pool_throttle.urgent(&c);
    assert_eq!(reconcile(&ctx, &c).await.unwrap(), Requeue::AwaitChange);
    assert_eq!(server.get(&pool_path("c")).unwrap()["status"]["total"], 253);
    // The edit is no interim write: b waits no longer for it.
    change(&b);
    assert_eq!(reconcile(&ctx, &b).await.unwrap(), Requeue::AwaitChange);
    assert_eq!(server.get(&pool_path("b")).unwrap()["status"]["total"], 253);
}

/// The interim write of a pool whose status is right, or that the API server refuses at once, delays no other.
#[tokio::test(start_paused = true)]
async fn pool_3_a_turn_without_a_write_delays_no_other_pool() {
    for case in ["no difference", "refused", "gone"] {
        let (server, ctx) = leader_of_pools(Duration::ZERO);
        let [a, b] = ["a", "b"].map(PoolName::from);
        let throttle = &ctx.index.pool_throttle;
        if case == "no difference" {
            write_now(&ctx, &a).await.unwrap();
        }
        for pool in [&a, &b] {
            throttle.changed(pool, false, Instant::now());
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        for pool in [&a, &b] {
            let delay = throttle.changed(pool, false, Instant::now());
            assert_eq!(delay, Duration::ZERO, "{case}");
        }
        match case {
            "refused" => server.refuse(Method::PATCH, "ippools/a"),
            "gone" => {
                let key = Key::new("", "a");
                ctx.index.stores.pools.forget(&key, Version(7));
            }
            _ => {}
        }
        let refused = reconcile(&ctx, &a).await.is_err();
        assert_eq!(refused, case == "refused");
        assert_eq!(reconcile(&ctx, &b).await.unwrap(), Requeue::AwaitChange);
        let b = server.get(&pool_path("b")).unwrap();
        assert_eq!(b["status"]["total"], 253, "{case}");
    }
}
