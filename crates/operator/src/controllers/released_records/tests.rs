use super::*;

use harvester_lb_core::cached::{Allocation, Pool};
use harvester_lb_fixtures::{part, pool, record, stored};
use harvester_lb_object::{Key, Version};
use http::Method;

use crate::fake::{self, FakeApiServer};
use crate::index::leader_state::LeaderState;
use crate::timings::Timings;

fn path(address: &str) -> String {
    format!("/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/{address}")
}

/// A leader with Released IPAllocations of these addresses, outside the ranges of every pool.
fn leader(addresses: &[&str]) -> (FakeApiServer, Context) {
    let server = FakeApiServer::default();
    let ctx = fake::context(server.client(), &Timings::default(), true);
    let ranges = [part("172.20.1.0/24", "172.20.1.2", "172.20.1.3")];
    let ours = stored(pool("p", &ranges), "u-pool", 2);
    let ours = Pool::valid(serde_json::from_value(ours).unwrap());
    let pools = &ctx.index.stores.pools;
    pools.written(&Key::new("", "p"), Version(2), ours);
    for address in addresses {
        let old = record(address, "p", "Released", ("shop", "gone", "u-gone"));
        let old = stored(old, &format!("u-{address}"), 3);
        server.put(&path(address), old.clone());
        let old = Allocation::decoded(&serde_json::from_value(old).unwrap());
        let allocations = &ctx.index.stores.allocations;
        allocations.written(&Key::new("", address), Version(3), old);
    }
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    (server, ctx)
}

/// A refused deletion is counted and logged, tried again after the longest back-off, and blocks no other.
#[tokio::test(start_paused = true)]
async fn pool_5_refused_deletions_are_counted() {
    let addresses = ["172.20.1.10", "172.20.1.11", "172.20.1.12"];
    let (server, ctx) = leader(&addresses);
    let refused = &ctx.metrics.history_deletions_refused;
    server.refuse(Method::DELETE, "172.20.1.11");
    let next = reconcile(&ctx).await.unwrap();
    assert_eq!(next, Requeue::After(Duration::ZERO));
    assert_eq!(refused.get(), 1);
    let left = addresses.map(|address| server.get(&path(address)).is_some());
    assert_eq!(left, [false, true, false]);

    // Until then it costs no request.
    server.writes();
    let cap = ctx.timings.retry_cap;
    let next = reconcile(&ctx).await.unwrap();
    assert_eq!(next, Requeue::After(cap));
    assert_eq!((server.writes(), refused.get()), (vec![], 1));

    tokio::time::advance(cap).await;
    reconcile(&ctx).await.unwrap();
    assert_eq!(refused.get(), 2);
    server.admit();
    tokio::time::advance(cap).await;
    reconcile(&ctx).await.unwrap();
    assert_eq!(server.get(&path("172.20.1.11")), None);
    assert_eq!(reconcile(&ctx).await.unwrap(), Requeue::AwaitChange);
    assert_eq!(refused.get(), 2);
}

/// One that a finalizer holds is not forgotten: its address would be offered, and could not be allocated.
#[tokio::test(start_paused = true)]
async fn pool_5_one_that_a_finalizer_holds_stays_known() {
    let addresses = ["172.20.1.10", "172.20.1.11"];
    let (server, ctx) = leader(&addresses);
    let mut held = server.get(&path(addresses[0])).unwrap();
    held["metadata"]["finalizers"] = serde_json::json!(["example.com/audit"]);
    server.put(&path(addresses[0]), held);
    reconcile(&ctx).await.unwrap();
    let left = addresses.map(|address| ctx.index.record(address.parse().unwrap()).is_some());
    assert_eq!(left, [true, false]);
    // It is tried again after the longest back-off.
    assert_eq!(server.writes().len(), 2);
    let cap = ctx.timings.retry_cap;
    assert_eq!(reconcile(&ctx).await.unwrap(), Requeue::After(cap));
    assert_eq!(server.writes(), vec![]);
}
