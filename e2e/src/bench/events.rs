//! The effects of single events: a freed address, a new pool, an irrelevant change of a VirtualMachineInstance.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_fixtures::part;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use super::driver::{
    NAMESPACE, at_rest, clean, clients, cluster_lb, count_until, create_lb, operator, pool, spread,
};
use super::machine::{machines, vm_lb};
use super::report::{Report, Row};
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::world::World;

const NODE: &str = "node1";
/// LoadBalancers that wait for one address, one after the other.
const WAITING: usize = 8;
/// LoadBalancers created before their pool, half of which can be served.
const EARLY: usize = 20;
const MANY: usize = 500;
/// Waiting LoadBalancers that are enqueued by a change of their pool.
const ENQUEUED: usize = 200;
/// Creation times have a resolution of a second: an object created this much later is younger.
const YOUNGER: Duration = Duration::from_millis(1_100);

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let operator = operator(world, NODE).await?;
    freed(world, report).await?;
    before_their_pool(world, report).await?;
    enqueued(world, report).await?;
    unimportant(world, report).await?;
    operator.end().await
}

/// LoadBalancers wait for an address, which one after the other frees.
async fn freed(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    // One address.
    pool(world, "bench", "10.60.0.0/30").await?;
    create_lb(&world.client(), &cluster_lb("waiter-holder")?).await?;
    world.lb_address(NAMESPACE, "waiter-holder").await?;
    for number in 0..WAITING {
        create_lb(&world.client(), &cluster_lb(&format!("waiter-{number}"))?).await?;
        tokio::time::sleep(YOUNGER).await;
    }
    for number in 0..WAITING {
        let name = format!("waiter-{number}");
        world.lb_reason(NAMESPACE, &name, "NoAvailableIP").await?;
    }
    let mut holder = "waiter-holder".to_owned();
    let mut took = Vec::new();
    let mut out_of_turn = 0.0;
    for number in 0..WAITING {
        at_rest(world, NODE).await?;
        let before = holder.clone();
        let served = count_until(&world.client(), 1, move |lb| {
            lb.metadata.name.as_deref() != Some(&before) && allocated(lb).is_some()
        });
        let started = Instant::now();
        world.delete_lb(NAMESPACE, &holder).await?;
        took.push(served.await??.duration_since(started).as_secs_f64() * 1e3);
        holder = served_names(world).await?.pop().unwrap_or_default();
        if holder != format!("waiter-{number}") {
            out_of_turn += 1.0;
        }
    }
    let slowest = took.iter().copied().fold(0.0, f64::max);
    report.row(
        Row::of(
            "waiting LB after an address is freed, from the delete",
            "ms",
            took,
        )
        .at_most(200.0)
        .note(format!("the slowest of {WAITING} {slowest:.0} ms")),
    );
    report.row(Row::one("... served although an older one waits", "", out_of_turn).at_most(0.0));
    clean(world).await
}

/// Names of the LoadBalancers that have an address.
async fn served_names(world: &World) -> anyhow::Result<Vec<String>> {
    let all = world.lbs(NAMESPACE).list(&ListParams::default()).await?;
    let served = all.iter().filter(|lb| allocated(lb).is_some());
    Ok(served.map(ResourceExt::name_any).collect())
}

/// LoadBalancers are created before their pool, which has room for half of them.
async fn before_their_pool(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let driver = clients(world).await?;
    for age in ["older", "younger"] {
        spread(&driver, EARLY / 2, move |client, number| async move {
            create_lb(&client, &cluster_lb(&format!("{age}-{number}"))?)
                .await
                .map(|_| ())
        })
        .await?;
        tokio::time::sleep(YOUNGER).await;
    }
    for lb in world.lbs(NAMESPACE).list(&ListParams::default()).await? {
        let name = lb.name_any();
        world.lb_reason(NAMESPACE, &name, "PoolNotFound").await?;
    }
    at_rest(world, NODE).await?;
    let served = count_until(&world.client(), EARLY / 2, |lb| allocated(lb).is_some());
    let range = part("10.60.0.0/24", "10.60.0.11", "10.60.0.20");
    let started = Instant::now();
    world.pool("bench", json!({"ranges": [range]})).await?;
    let took = served.await??.duration_since(started);
    let younger = served_names(world).await?;
    let younger = younger.iter().filter(|n| n.starts_with("younger")).count();
    report.row(
        Row::one(
            "20 LBs made before their pool of 10 addresses, to the tenth served",
            "ms",
            took.as_secs_f64() * 1e3,
        )
        .at_most(200.0),
    );
    report.row(
        Row::one(
            "... served although an older one waits",
            "",
            f64::from(u32::try_from(younger)?),
        )
        .at_most(0.0),
    );
    clean(world).await
}

/// LoadBalancers wait for a pool that does not exist; it is created and has an address for one of them.
async fn enqueued(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let driver = clients(world).await?;
    let of_reason = |count: usize, reason: &'static str| {
        count_until(&world.client(), count, move |lb| {
            ready(lb).is_some_and(|(_, why, _)| why == reason)
        })
    };
    let missing = of_reason(ENQUEUED, "PoolNotFound");
    spread(&driver, ENQUEUED, |client, number| async move {
        create_lb(&client, &cluster_lb(&format!("waiter-{number}"))?)
            .await
            .map(|_| ())
    })
    .await?;
    missing.await??;
    at_rest(world, NODE).await?;
    let enqueued = of_reason(ENQUEUED - 1, "NoAvailableIP");
    let started = Instant::now();
    pool(world, "bench", "10.60.0.0/30").await?;
    let took = enqueued.await??.duration_since(started);
    report.row(
        Row::one(
            "200 wait for a pool that appears and has one address, to the last one told",
            "s",
            took.as_secs_f64(),
        )
        .at_most(2.0),
    );
    clean(world).await
}

/// A VirtualMachineInstance selected by 500 LoadBalancers is annotated; then, with 500 more of cluster type, nothing
/// happens at all.
async fn unimportant(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    pool(world, "bench", "10.60.0.0/16").await?;
    machines(world, 1, |_| "shared".to_owned()).await?;
    let fake_kube_vip = FakeKubeVip::start(&world.client());
    let done = count_until(&world.client(), 2 * MANY, |lb| {
        ready(lb).is_some_and(|(s, ..)| s == "True")
    });
    let driver = clients(world).await?;
    spread(&driver, MANY, |client, number| async move {
        create_lb(&client, &vm_lb(&format!("vm-lb-{number}"), "shared")?).await?;
        create_lb(&client, &cluster_lb(&format!("cluster-lb-{number}"))?).await?;
        Ok(())
    })
    .await?;
    done.await??;
    at_rest(world, NODE).await?;
    let before = MetricsSnapshot::read(world, NODE).await?;
    for number in 0..50 {
        let patch = json!({"metadata": {"annotations": {"note": number.to_string()}}});
        world.merge(&world.vmis(NAMESPACE), "vm-0", patch).await?;
    }
    at_rest(world, NODE).await?;
    let after = MetricsSnapshot::read(world, NODE).await?;
    report.row(
        Row::one(
            "one VMI annotated 50 times, 500 VM LBs select it: writes",
            "",
            writes(&after) - writes(&before),
        )
        .at_most(0.0),
    );

    let before = MetricsSnapshot::read(world, NODE).await?;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let after = MetricsSnapshot::read(world, NODE).await?;
    let lists = |f: &MetricsSnapshot| {
        f.sum("harvester_lb_api_requests_total", |s| {
            s.label("verb") == "list"
        })
    };
    report.row(
        Row::one(
            "1,000 LBs at rest for 60 s: writes but the Lease",
            "",
            writes(&after) - writes(&before),
        )
        .at_most(0.0),
    );
    report.row(
        Row::one(
            "1,000 LBs at rest for 60 s: lists",
            "",
            lists(&after) - lists(&before),
        )
        // That of each minute, which shows a restore of etcd (RUN-3).
        .at_most(1.0),
    );
    drop(fake_kube_vip);
    clean(world).await
}

fn writes(figures: &MetricsSnapshot) -> f64 {
    figures.sum("harvester_lb_api_requests_total", |s| {
        matches!(s.label("verb"), "create" | "patch" | "delete" | "update")
            && s.label("resource") != "leases"
    })
}
