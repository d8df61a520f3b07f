//! What single events cause: a freed address, a pool that appears, a machine that changes and does not matter, a
//! listener that dies behind many load balancers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_testkit::{Farm, Fault, eventually};
use kube::api::ListParams;
use serde_json::json;

use super::driver::{
    LIMIT, NAMESPACE, clean, clients, cluster_lb, count_until, create_lb, pool, spread,
};
use super::machine::{machines, vm_lb};
use super::report::Report;
use crate::announcer::Announcer;
use crate::figures::Figures;
use crate::quiet::quiet;
use crate::world::{World, allocated, ready};

const NODE: &str = "node1";
const MANY: usize = 500;
const PROBED: usize = 50;
const BEHIND_EACH: usize = 100;

/// The rows.
pub async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let operator = world.start_operator(NODE).await?;
    freed(world, report).await?;
    before_their_pool(world, report).await?;
    unimportant(world, report).await?;
    dead_listener(world, report).await?;
    operator.term()?;
    operator.wait(Duration::from_secs(20)).await?;
    Ok(())
}

/// A load balancer waits for an address, and one is freed.
async fn freed(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    pool(world, "bench", "10.60.0.0/30").await?;
    create_lb(&world.client(), &cluster_lb("holder")?).await?;
    world.lb_address(NAMESPACE, "holder").await?;
    create_lb(&world.client(), &cluster_lb("waiter")?).await?;
    world
        .lb_reason(NAMESPACE, "waiter", "NoAvailableIP")
        .await?;
    let served = count_until(&world.client(), 1, |lb| {
        lb.metadata.name.as_deref() == Some("waiter") && allocated(lb).is_some()
    });
    let started = Instant::now();
    world.delete_lb(NAMESPACE, "holder").await?;
    let took = served.await??.duration_since(started);
    report.figure(
        "waiting LB after an address is freed",
        "ms",
        took.as_secs_f64() * 1e3,
    );
    clean(world).await
}

/// Load balancers are made before their pool.
async fn before_their_pool(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let driver = clients(world).await?;
    spread(&driver, 20, |client, number| async move {
        create_lb(&client, &cluster_lb(&format!("early-{number}"))?)
            .await
            .map(|_| ())
    })
    .await?;
    for number in 0..20 {
        world
            .lb_reason(NAMESPACE, &format!("early-{number}"), "PoolNotFound")
            .await?;
    }
    let served = count_until(&world.client(), 20, |lb| allocated(lb).is_some());
    let started = Instant::now();
    pool(world, "bench", "10.60.0.0/24").await?;
    let took = served.await??.duration_since(started);
    report.figure(
        "20 LBs made before their pool, all served",
        "ms",
        took.as_secs_f64() * 1e3,
    );
    clean(world).await
}

/// A machine is annotated that 500 load balancers select; then nothing happens at all.
async fn unimportant(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    pool(world, "bench", "10.60.0.0/16").await?;
    machines(world, 1, |_| "shared".to_owned()).await?;
    let announcer = Announcer::start(&world.client());
    let done = count_until(&world.client(), MANY, |lb| {
        ready(lb).is_some_and(|(s, ..)| s == "True")
    });
    let driver = clients(world).await?;
    spread(&driver, MANY, |client, number| async move {
        create_lb(&client, &vm_lb(&format!("lb-{number}"), "shared")?)
            .await
            .map(|_| ())
    })
    .await?;
    done.await??;
    quiet(world, NODE).await?;
    let before = Figures::read(world, NODE).await?;
    for number in 0..50 {
        let patch = json!({"metadata": {"annotations": {"note": number.to_string()}}});
        world.merge(&world.vmis(NAMESPACE), "vm-0", patch).await?;
    }
    quiet(world, NODE).await?;
    let after = Figures::read(world, NODE).await?;
    report.figure(
        "one VMI annotated 50 times, 500 VM LBs select it: writes",
        "",
        writes(&after) - writes(&before),
    );

    let before = Figures::read(world, NODE).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = Figures::read(world, NODE).await?;
    report.figure(
        "500 LBs at rest for 60 s: writes but the Lease",
        "",
        writes(&after) - writes(&before),
    );
    let lists = |f: &Figures| {
        f.sum("harvester_lb_api_requests_total", |s| {
            s.label("verb") == "list"
        })
    };
    report.figure(
        "500 LBs at rest for 60 s: lists",
        "",
        lists(&after) - lists(&before),
    );
    drop(announcer);
    clean(world).await
}

fn writes(figures: &Figures) -> f64 {
    figures.sum("harvester_lb_api_requests_total", |s| {
        matches!(s.label("verb"), "create" | "patch" | "delete" | "update")
            && s.label("resource") != "leases"
    })
}

/// A listener dies behind 50 load balancers with 100 backends each.
async fn dead_listener(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let farm = Farm::start(&world.bed, &[8080])?;
    pool(world, "bench", "10.60.0.0/16").await?;
    machines(world, PROBED * BEHIND_EACH, |n| {
        format!("app-{}", n / BEHIND_EACH)
    })
    .await?;
    let announcer = Announcer::start(&world.client());
    let done = count_until(&world.client(), PROBED, |lb| {
        ready(lb).is_some_and(|(s, ..)| s == "True")
    });
    let driver = clients(world).await?;
    spread(&driver, PROBED, |client, number| async move {
        let mut lb = vm_lb(&format!("lb-{number}"), &format!("app-{number}"))?;
        lb.spec.health_check = serde_json::from_value(json!({"port": 8080}))?;
        create_lb(&client, &lb).await.map(|_| ())
    })
    .await?;
    done.await??;
    // All backends, not just the first of each.
    ready_endpoints(world, PROBED * BEHIND_EACH).await?;
    let before = Figures::read(world, NODE).await?;
    let started = Instant::now();
    farm.fault(Fault::Refuse, "10.99.0.0-10.99.255.255")?;
    // The stand-in of each slice is ready.
    ready_endpoints(world, PROBED).await?;
    let took = started.elapsed();
    let after = Figures::read(world, NODE).await?;
    report.figure(
        "listener killed to not-ready in every slice, 50 LBs x 100 backends",
        "s",
        took.as_secs_f64(),
    );
    let slices = |f: &Figures| {
        f.sum("harvester_lb_api_requests_total", |s| {
            s.label("resource") == "endpointslices" && s.label("verb") == "patch"
        })
    };
    report.figure(
        "slice writes for that, per LB",
        "",
        (slices(&after) - slices(&before)) / f64::from(u32::try_from(PROBED)?),
    );
    drop(announcer);
    clean(world).await
}

async fn ready_endpoints(world: &Arc<World>, count: usize) -> anyhow::Result<()> {
    eventually(&format!("{count} ready endpoints"), LIMIT, || async {
        let all = world.slices(NAMESPACE).list(&ListParams::default()).await?;
        let ready = all
            .iter()
            .flat_map(|s| &s.endpoints)
            .filter(|e| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true))
            .count();
        Ok((ready == count).then_some(()))
    })
    .await
}
