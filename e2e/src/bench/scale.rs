//! 10,000 load balancers: memory, start, failover.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_testkit::{Process, eventually};

use super::driver::{LIMIT, clean, clients, cluster_lb, count_until, create_lb, pool, spread};
use super::report::Report;
use crate::figures::Figures;
use crate::quiet::quiet;
use crate::world::{World, allocated};

const COUNT: usize = 10_000;
const NODE: &str = "node1";
const OTHER: &str = "node2";

/// The rows.
pub async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let operator = world.start_operator(NODE).await?;
    quiet(world, NODE).await?;
    report.figure("RSS idle", "MiB", mib(&operator)?);
    pool(world, "bench", "10.60.0.0/16").await?;
    let done = count_until(&world.client(), COUNT, |lb| allocated(lb).is_some());
    let driver = clients(world).await?;
    let started = Instant::now();
    spread(&driver, COUNT, |client, number| async move {
        create_lb(&client, &cluster_lb(&format!("lb-{number}"))?)
            .await
            .map(|_| ())
    })
    .await?;
    let took = done.await??.duration_since(started);
    report.figure(
        "10,000 cluster-type LBs, first create to last address",
        "s",
        took.as_secs_f64(),
    );
    quiet(world, NODE).await?;
    report.figure("RSS with 10,000 cluster-type LBs", "MiB", mib(&operator)?);

    operator.kill9()?;
    operator.wait(LIMIT).await?;
    let uid = [("POD_UID", "bench")];
    let first = world.start_operator_with(NODE, &[], &uid).await?;
    leads(world, NODE).await?;
    first.kill9()?;
    first.wait(LIMIT).await?;
    let started = Instant::now();
    let again = world.spawn_operator(NODE, &[], &uid)?;
    leads(world, NODE).await?;
    let led = started.elapsed();
    quiet_queue(world, NODE).await?;
    report.figure(
        "restart in the same pod with 10,000 LBs, to leading",
        "s",
        led.as_secs_f64(),
    );
    report.figure(
        "start with 10,000 LBs, to all of them looked at",
        "s",
        started.elapsed().as_secs_f64(),
    );
    report.figure("RSS after that", "MiB", mib(&again)?);

    let standby = world.start_operator(OTHER).await?;
    let started = Instant::now();
    again.kill9()?;
    leads(world, OTHER).await?;
    report.figure(
        "failover: leader killed to the next one leading (Lease 15 s)",
        "s",
        started.elapsed().as_secs_f64(),
    );
    again.wait(LIMIT).await?;
    standby.term()?;
    standby.wait(LIMIT).await?;
    clean(world).await
}

async fn leads(world: &World, node: &str) -> anyhow::Result<()> {
    eventually(&format!("{node} leads"), LIMIT, || async {
        Ok(Figures::read(world, node).await?.leads().then_some(()))
    })
    .await
}

/// Waits until every load balancer was looked at once.
async fn quiet_queue(world: &World, node: &str) -> anyhow::Result<()> {
    eventually(&format!("{node} has looked at all"), LIMIT, || async {
        let figures = Figures::read(world, node).await?;
        let done = figures.sum("harvester_lb_reconcile_duration_seconds_count", |s| {
            s.label("kind") == "LoadBalancer"
        });
        Ok((done >= 10_000.0 && figures.idle()).then_some(()))
    })
    .await
}

fn mib(process: &Process) -> anyhow::Result<f64> {
    // Memory that a burst has left behind is given back soon after.
    std::thread::sleep(Duration::from_secs(1));
    Ok(f64::from(u32::try_from(process.rss_kib()?)?) / 1024.0)
}
