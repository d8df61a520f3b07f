//! LoadBalancers of cluster type, created and deleted: by the operator, and the same requests by a bare client.

use std::sync::Arc;
use std::time::Instant;

use super::driver::{
    at_rest, clean, clients, cluster_lb, count_until, cpu_seconds, create_lb, delete_lb, operator,
    pool, pool_says, spread,
};
use super::event_writer;
use super::replay::replay;
use super::report::{Report, Row, say};
use super::sample::Sample;
use super::took::Took;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::World;

const COUNT: usize = 1_000;
/// Rounds of the operator and of the bare client, alternating.
const ROUNDS: usize = 5;
const NODE: &str = "node1";

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let (operator, bare) = rounds(world, COUNT, ROUNDS, true).await?;
    let count = f64::from(u32::try_from(COUNT)?);
    let of = |all: &[Took], what: fn(&Took) -> f64| all.iter().map(what).collect::<Vec<f64>>();
    let cpu = |all: &[Took], what: fn(&Took) -> f64| {
        all.iter()
            .map(|t| what(t) * 1e3 / count)
            .collect::<Vec<f64>>()
    };
    let row = "1,000 cluster-type LBs over 16 connections, first create to last address";
    report.row(
        Row::of(row, "s", of(&operator, |t| t.create))
            .limits(of(&bare, |t| t.create))
            .at_most_times(1.5),
    );
    let last = operator.last().cloned().unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let per_lb = |writes: fn(&Took) -> u64| {
        operator
            .iter()
            .map(|t| writes(t) as f64 / count)
            .collect::<Vec<f64>>()
    };
    report.row(
        Row::of(
            "writes per cluster-type LB, pool's status and Events left out",
            "",
            per_lb(|t| t.create_writes),
        )
        .at_most(2.0)
        .note(format!(
            "{} of the pool's status for all",
            last.create_pool_writes
        )),
    );
    report.row(
        Row::of(
            "writes per deleted cluster-type LB, pool's status and Events left out",
            "",
            per_lb(|t| t.delete_writes),
        )
        .note(format!(
            "{} of the pool's status for all",
            last.delete_pool_writes
        )),
    );
    report.row(
        Row::of(
            "conflicts with ourselves",
            "",
            of(&operator, |t| t.conflicts),
        )
        .at_most(0.0),
    );
    report.row(
        Row::of(
            "deletion of 1,000, last delete to pool all free",
            "s",
            of(&operator, |t| t.after_last),
        )
        .limits(of(&bare, |t| t.after_last))
        .at_most(0.1)
        .note("the limit knows which delete is the last"),
    );
    report.row(
        Row::of(
            "deletion of 1,000, first delete to pool all free",
            "s",
            of(&operator, |t| t.delete),
        )
        .limits(of(&bare, |t| t.delete))
        .at_most_times(1.15),
    );
    report.row(
        Row::of(
            "API server CPU per LB made",
            "ms",
            cpu(&operator, |t| t.create_cpu),
        )
        .limits(cpu(&bare, |t| t.create_cpu)),
    );
    report.row(
        Row::of(
            "API server CPU per LB deleted",
            "ms",
            cpu(&operator, |t| t.delete_cpu),
        )
        .limits(cpu(&bare, |t| t.delete_cpu)),
    );
    Ok(())
}

/// Alternating rounds of the operator and of the bare client, on the same API server. The bare client writes the pool's
/// status as often as the operator did, and after a first, uncounted round both have the same history.
pub(crate) async fn rounds(
    world: &Arc<World>,
    count: usize,
    rounds: usize,
    delete: bool,
) -> anyhow::Result<(Vec<Took>, Vec<Took>)> {
    let mut sample = with_operator(world, count.min(300), delete).await?;
    let (mut operator, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // The second one has an API server with more history; so the order alternates.
        if round % 2 == 0 {
            sample = with_operator(world, count, delete).await?;
            bare.push(replay(world, count, delete, &sample).await?);
        } else {
            bare.push(replay(world, count, delete, &sample).await?);
            sample = with_operator(world, count, delete).await?;
        }
        operator.push(sample.clone());
        if let (Some(ours), Some(bare)) = (operator.last(), bare.last()) {
            say(&format!(
                "  round {} with {count}: {:.1} s, the bare client {:.1} s; {:.1} and {:.1} s of the API server's CPU",
                round + 1,
                ours.create,
                bare.create,
                ours.create_cpu,
                bare.create_cpu
            ));
        }
    }
    Ok((operator, bare))
}

/// The operator, driven by a bare client.
async fn with_operator(world: &Arc<World>, count: usize, delete: bool) -> anyhow::Result<Took> {
    pool(world, "bench", "10.60.0.0/16").await?;
    let operator = operator(world, NODE).await?;
    let driver = clients(world).await?;
    let apiserver = world.cluster.process("kube-apiserver")?.pid();
    let mut took = Took::default();
    let start = MetricsSnapshot::read(world, NODE).await?;

    let cpu = cpu_seconds(apiserver)?;
    let served = count_until(&world.client(), count, |lb| allocated(lb).is_some());
    let told = pool_says(world, i64::try_from(count)?);
    let started = Instant::now();
    spread(&driver, count, |client, number| async move {
        create_lb(&client, &cluster_lb(&format!("lb-{number}"))?)
            .await
            .map(|_| ())
    })
    .await?;
    took.create = served.await??.duration_since(started).as_secs_f64();
    told.await??;
    took.create_cpu = cpu_seconds(apiserver)? - cpu;
    // Until the pool's status may be written again.
    at_rest(world, NODE).await?;
    let made = MetricsSnapshot::read(world, NODE).await?;
    (took.create_writes, took.create_pool_writes) = writes(&made, &start)?;

    took.events = event_writer::written(&made, &start);
    took.sample = Sample::take(world, "lb-0").await?;

    if delete {
        let cpu = cpu_seconds(apiserver)?;
        let free = pool_says(world, 0);
        let started = Instant::now();
        spread(&driver, count, |client, number| async move {
            delete_lb(&client, &format!("lb-{number}")).await
        })
        .await?;
        let last = Instant::now();
        let free = free.await??;
        took.delete = free.duration_since(started).as_secs_f64();
        took.after_last = free.saturating_duration_since(last).as_secs_f64();
        took.delete_cpu = cpu_seconds(apiserver)? - cpu;
        at_rest(world, NODE).await?;
        let deleted = MetricsSnapshot::read(world, NODE).await?;
        (took.delete_writes, took.delete_pool_writes) = writes(&deleted, &made)?;
    }
    let conflicts = |f: &MetricsSnapshot| {
        f.sum("harvester_lb_write_conflicts_total", |_| true)
            + f.sum("harvester_lb_allocation_conflicts_total", |_| true)
    };
    took.conflicts = conflicts(&MetricsSnapshot::read(world, NODE).await?) - conflicts(&start);
    operator.end().await?;
    clean(world).await?;
    Ok(took)
}

/// Writes of the operator: of the pool's status, and all others except its Lease and Events.
fn writes(now: &MetricsSnapshot, before: &MetricsSnapshot) -> anyhow::Result<(u64, usize)> {
    let mut all = now.writes_since(before);
    all.retain(|what, _| !what.ends_with(" leases") && !what.ends_with(" events"));
    let pools = all.remove("patch ippools").unwrap_or(0);
    Ok((all.values().sum(), usize::try_from(pools)?))
}
