use super::*;

use std::collections::BTreeSet;

use futures::FutureExt;
use harvester_lb_core::cached::Pool;
use harvester_lb_fixtures::{cluster_spec, load_balancer, pool, stored, with};
use harvester_lb_object::{Key, Version};
use serde_json::json;

use crate::controllers::load_balancer;
use crate::fake::{self, FakeApiServer};
use crate::index::leader_state::LeaderState;
use crate::timings::Timings;

/// Waiting load balancers: the burst, and as many as are queued in two seconds more.
const WAITING: usize = 400;

fn set_pool(ctx: &Context, version: u64, ranges: &[serde_json::Value]) {
    let object = stored(pool("p", ranges), "u-pool", version);
    let object = Pool::valid(serde_json::from_value(object).unwrap());
    let key = Key::new("", "p");
    let pools = &ctx.index.stores.pools;
    let change = pools.written(&key, Version(version), object).unwrap();
    ctx.index.pool_changed(&key, &change);
}

/// Takes what is queued, without work.
fn taken(ctx: &Context) -> BTreeSet<Key> {
    let queue = &ctx.index.queues.lbs;
    let mut all = BTreeSet::new();
    while let Some(key) = queue.next().now_or_never().flatten() {
        queue.done(&key, &Ok(Requeue::AwaitChange));
        all.insert(key);
    }
    all
}

/// Passes until the next one is due later, or not at all.
fn passes(ctx: &Context) -> Requeue {
    loop {
        match reconcile(ctx) {
            Requeue::After(Duration::ZERO) => {}
            next => return next,
        }
    }
}

/// A leader with load balancers that wait for a pool without addresses.
async fn waiting() -> Context {
    let server = FakeApiServer::default();
    let ctx = fake::context(server.client(), &Timings::default(), true);
    let spec = with(cluster_spec(), json!({"ipPool": "p"}));
    for number in 0..WAITING {
        let (name, uid) = (format!("lb-{number}"), format!("u-{number}"));
        let lb = stored(load_balancer("n", &name, &uid, &spec), &uid, 5);
        let path =
            format!("/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/n/loadbalancers/{name}");
        server.put(&path, lb.clone());
        let lb = cached::Lb::valid(serde_json::from_value(lb).unwrap());
        let lbs = &ctx.index.stores.lbs;
        lbs.written(&Key::new("n", &name), Version(5), lb);
    }
    ctx.index
        .become_leader(|| LeaderState::from_stores(&ctx.index.stores));
    set_pool(&ctx, 7, &[]);
    for number in 0..WAITING {
        let key = Key::new("n", format!("lb-{number}"));
        Box::pin(load_balancer::reconcile(&ctx, &key))
            .await
            .unwrap();
    }
    passes(&ctx);
    taken(&ctx);
    // The bucket fills.
    tokio::time::advance(Duration::from_secs(10)).await;
    ctx
}

#[tokio::test(start_paused = true)]
async fn sel_7_messages_of_200_are_queued_at_once_and_100_a_second_more() {
    let ctx = waiting().await;
    // The pool is deleted: each waits for another reason.
    let key = Key::new("", "p");
    let change = ctx.index.stores.pools.forget(&key, Version(7)).unwrap();
    ctx.index.pool_changed(&key, &change);
    let mut queued = BTreeSet::new();
    let mut at_a_time = Vec::new();
    let started = tokio::time::Instant::now();
    loop {
        let next = passes(&ctx);
        let now = taken(&ctx);
        at_a_time.push(now.len());
        assert!(queued.is_disjoint(&now), "each once");
        queued.extend(now);
        match next {
            Requeue::After(delay) => tokio::time::advance(delay).await,
            next => {
                assert_eq!(next, Requeue::AwaitChange);
                break;
            }
        }
    }
    assert_eq!(at_a_time[0], 200);
    assert!(at_a_time[1..].iter().all(|number| *number <= 1));
    assert_eq!(queued.len(), WAITING);
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    // Without a change there is nothing to do.
    tokio::time::advance(Duration::from_millis(10)).await;
    assert_eq!(reconcile(&ctx), Requeue::AwaitChange);
}
