//! 10,000 load balancers: memory, start, failover, deletion.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_api::Phase;
use harvester_lb_testkit::{Process, eventually};
use kube::ResourceExt;
use kube::api::ListParams;
use tokio::task::JoinHandle;

use super::driver::{
    AS_SHIPPED, LIMIT, NAMESPACE, at_rest, clients, cluster_lb, count_until, create_lb, delete_lb,
    operator, pool, pool_says, seen, spread,
};
use super::lists::lists;
use super::report::{Report, Row};
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::World;

const COUNT: usize = 10_000;
const STARTS: usize = 5;
const NODE: &str = "node1";
const OTHER: &str = "node2";
/// The pod identity of the operator on the first node.
pub(crate) const POD: (&str, &str) = ("POD_UID", "bench");

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let first = operator(world, NODE).await?;
    report.row(Row::one("RSS idle", "MiB", mib(&first)?).at_most(30.0));
    pool(world, "bench", "10.60.0.0/16").await?;
    let done = count_until(&world.client(), COUNT, |lb| allocated(lb).is_some());
    let driver = clients(world).await?;
    spread(&driver, COUNT, |client, number| async move {
        create_lb(&client, &cluster_lb(&format!("lb-{number}"))?)
            .await
            .map(|_| ())
    })
    .await?;
    done.await??;
    at_rest(world, NODE).await?;
    report.row(Row::one("RSS with 10,000 cluster-type LBs", "MiB", mib(&first)?).at_most(120.0));
    kill(&first).await?;

    let env = [AS_SHIPPED, &[POD]].concat();
    let started = Instant::now();
    let second = world.spawn_operator(NODE, &[], &env)?;
    // The previous operator was of another pod: its Lease has to expire.
    looked_at(world, NODE, COUNT).await?;
    report.row(
        Row::one(
            "start after kill -9 of another pod, 10,000 LBs, to each looked at",
            "s",
            started.elapsed().as_secs_f64(),
        )
        .note("the other's Lease of 15 s runs out first"),
    );

    let (third, starts) = restarts(world, second, &env).await?;
    let (looked, written) = starts.iter().map(|it| (it.looked, it.written)).unzip();
    report.row(
        Row::of(
            "start with 10,000 LBs, Lease free, to each looked at",
            "s",
            looked,
        )
        .limits(starts.iter().map(|it| it.listed).collect())
        .at_most(3.0)
        .note("limit: lists of the same by a bare client"),
    );
    report.row(
        Row::of(
            "restart in the same pod with 10,000 LBs, to the first write",
            "s",
            written,
        )
        .at_most(3.0),
    );
    at_rest(world, NODE).await?;
    report.row(Row::one("RSS after that", "MiB", mib(&third)?).at_most(120.0));

    let standby = world.start_operator_with(OTHER, &[], AS_SHIPPED).await?;
    let started = Instant::now();
    third.kill9()?;
    let written = next_write(world, "failed-over").await?;
    let took = written.await??.duration_since(started);
    report.row(
        Row::one(
            "failover: leader killed to the next one's first write, Lease 15 s",
            "s",
            took.as_secs_f64(),
        )
        .at_most(17.0),
    );
    at_rest(world, OTHER).await?;
    deleted_at_once(world, COUNT + STARTS + 1, report).await?;
    kill(&standby).await
}

/// What a start took, in seconds.
struct Start {
    /// To the first write.
    written: f64,
    /// Until each LoadBalancer was reconciled once.
    looked: f64,
    /// What a bare client took for the same lists right before it.
    listed: f64,
}

/// Kills and starts the operator several times in the same pod, because single starts scatter by a factor of two.
async fn restarts(
    world: &Arc<World>,
    mut operator: Arc<Process>,
    env: &[(&str, &str)],
) -> anyhow::Result<(Arc<Process>, Vec<Start>)> {
    let mut starts = Vec::new();
    for round in 0..STARTS {
        at_rest(world, NODE).await?;
        kill(&operator).await?;
        let listed = lists(&world.client()).await?;
        let started = Instant::now();
        operator = world.spawn_operator(NODE, &[], env)?;
        let written = next_write(world, &format!("restarted-{round}")).await?;
        looked_at(world, NODE, COUNT + round + 1).await?;
        let looked = started.elapsed().as_secs_f64();
        let written = written.await??.duration_since(started).as_secs_f64();
        starts.push(Start {
            written,
            looked,
            listed,
        });
    }
    Ok((operator, starts))
}

/// All are deleted at once: most of the released IPAllocations exceed the history that is kept, and their deletion must
/// not delay the pool's status (POOL-5).
async fn deleted_at_once(
    world: &Arc<World>,
    count: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let released = seen(world.records(), count, |record| {
        record.spec.phase == Phase::Released
    });
    let free = pool_says(world, 0);
    let lbs = world.lbs(NAMESPACE);
    let listed = lbs.list_metadata(&ListParams::default()).await?;
    let names: Vec<String> = listed.iter().map(ResourceExt::name_any).collect();
    let names = Arc::new(names);
    spread(&clients(world).await?, count, move |client, number| {
        let name = names.get(number).cloned().unwrap_or_default();
        async move { delete_lb(&client, &name).await }
    })
    .await?;
    let (released, free) = (released.await??, free.await??);
    let took = free.saturating_duration_since(released).as_secs_f64();
    let row = Row::one(
        "10,000 LBs deleted at once, last release to the pool's status right",
        "s",
        took,
    );
    report.row(row.at_most(10.0));
    Ok(())
}

/// Without a leader, creates a LoadBalancer for which the next leader has to write an IPAllocation, and waits for that.
async fn next_write(
    world: &World,
    name: &str,
) -> anyhow::Result<JoinHandle<anyhow::Result<Instant>>> {
    create_lb(&world.client(), &cluster_lb(name)?).await?;
    let name = name.to_owned();
    Ok(seen(world.records(), 1, move |record| {
        record.spec.owner.name == name
    }))
}

/// Kills an operator and waits for its exit.
pub(crate) async fn kill(operator: &Process) -> anyhow::Result<()> {
    operator.kill9()?;
    operator.wait(LIMIT).await?;
    Ok(())
}

/// Waits until every LoadBalancer was reconciled once.
pub(crate) async fn looked_at(world: &World, node: &str, count: usize) -> anyhow::Result<()> {
    let count = f64::from(u32::try_from(count)?);
    eventually(&format!("{node} has looked at all"), LIMIT, || async {
        let figures = MetricsSnapshot::read(world, node).await?;
        let done = figures.sum("harvester_lb_reconcile_duration_seconds_count", |s| {
            s.label("kind") == "LoadBalancer"
        });
        Ok((done >= count && figures.idle()).then_some(()))
    })
    .await
}

/// Resident memory of a process.
pub(crate) fn mib(process: &Process) -> anyhow::Result<f64> {
    // Memory of a burst is returned soon afterwards.
    std::thread::sleep(Duration::from_secs(1));
    Ok(f64::from(u32::try_from(process.rss_kib()?)?) / 1024.0)
}
