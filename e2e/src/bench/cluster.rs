//! 1,000 load balancers of cluster type: made, and deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use harvester_lb_api::{IPAllocation, LoadBalancer};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::driver::{
    NAMESPACE, Watches, address, clean, clients, cluster_lb, count_until, cpu_seconds, create_lb,
    pool, ready_status, replay_record, replay_status, spread,
};
use super::report::Report;
use crate::figures::Figures;
use crate::world::{World, allocated};

const COUNT: usize = 1_000;
const NODE: &str = "node1";

/// What making and deleting took.
struct Took {
    create: Duration,
    delete: Duration,
    apiserver: f64,
}

/// The rows.
pub async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let limit = replay(world, COUNT).await?;
    let operator = world.start_operator(NODE).await?;
    let before = Figures::read(world, NODE).await?;
    let took = with_operator(world, COUNT).await?;
    let after = Figures::read(world, NODE).await?;
    let count = f64::from(u32::try_from(COUNT)?);
    let secs = |d: Duration| d.as_secs_f64();
    report.against(
        "1,000 cluster-type LBs, first create to last address",
        "s",
        secs(took.create),
        secs(limit.create),
    );
    report.against(
        "deletion of 1,000, first delete to pool all free",
        "s",
        secs(took.delete),
        secs(limit.delete),
    );
    report.against(
        "API server CPU for both, per LB",
        "ms",
        took.apiserver * 1e3 / count,
        limit.apiserver * 1e3 / count,
    );
    let written = |f: &Figures, verb: &str, resource: &str| {
        f.sum("harvester_lb_api_requests_total", |s| {
            s.label("verb") == verb && s.label("resource") == resource
        })
    };
    let grown = |verb: &str, resource: &str| {
        written(&after, verb, resource) - written(&before, verb, resource)
    };
    let creating = grown("create", "ipallocations") + grown("patch", "loadbalancers");
    report.figure(
        "writes per cluster-type LB, pool status left out",
        "",
        creating / count,
    );
    report.figure(
        "writes per deleted LB, pool status left out",
        "",
        grown("patch", "ipallocations") / count,
    );
    report.figure("writes of the pool's status", "", grown("patch", "ippools"));
    let conflicts = |f: &Figures| {
        f.sum("harvester_lb_write_conflicts_total", |_| true)
            + f.sum("harvester_lb_allocation_conflicts_total", |_| true)
    };
    report.figure(
        "conflicts with ourselves",
        "",
        conflicts(&after) - conflicts(&before),
    );
    operator.term()?;
    operator.wait(Duration::from_secs(20)).await?;
    clean(world).await
}

/// The same requests by a bare client.
async fn replay(world: &Arc<World>, count: usize) -> anyhow::Result<Took> {
    pool(world, "bench", "10.60.0.0/16").await?;
    let (driver, hands) = (clients(world).await?, clients(world).await?);
    let _watches = Watches::open(&world.client());
    let apiserver = world.bed.process("kube-apiserver")?.pid();
    let cpu = cpu_seconds(apiserver)?;

    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<LoadBalancer>();
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let started = Instant::now();
    let making = spread(&driver, count, move |client, number| {
        let sender = sender.clone();
        async move {
            let lb = create_lb(&client, &cluster_lb(&format!("lb-{number}"))?).await?;
            let _ = sender.send(lb);
            Ok(())
        }
    });
    let handling = spread(&hands, count, move |client, number| {
        let receiver = Arc::clone(&receiver);
        async move {
            let Some(lb) = receiver.lock().await.recv().await else {
                return Ok(());
            };
            let ip = address(number);
            replay_record(&client, &lb, &ip).await?;
            let name = lb.metadata.name.as_deref().unwrap_or_default();
            replay_status(
                &client,
                name,
                lb.metadata.resource_version.as_deref(),
                ready_status(&ip),
            )
            .await?;
            Ok(())
        }
    });
    let (made, handled) = tokio::join!(making, handling);
    made?;
    handled?;
    let create = started.elapsed();

    let started = Instant::now();
    let deleting = spread(&driver, count, |client, number| async move {
        let api: Api<LoadBalancer> = Api::namespaced(client, NAMESPACE);
        api.delete(&format!("lb-{number}"), &DeleteParams::default())
            .await?;
        Ok(())
    });
    let releasing = spread(&hands, count, |client, number| async move {
        let api: Api<IPAllocation> = Api::all(client);
        let patch =
            json!({"spec": {"phase": "Released", "releasedAt": "2026-01-01T00:00:00.000000Z"}});
        api.patch(
            &address(number),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await?;
        Ok(())
    });
    let (deleted, released) = tokio::join!(deleting, releasing);
    deleted?;
    released?;
    let delete = started.elapsed();
    let apiserver = cpu_seconds(apiserver)? - cpu;
    clean(world).await?;
    Ok(Took {
        create,
        delete,
        apiserver,
    })
}

/// The operator, driven by the same client.
async fn with_operator(world: &Arc<World>, count: usize) -> anyhow::Result<Took> {
    pool(world, "bench", "10.60.0.0/16").await?;
    world
        .pool_until("bench", "a status", |p| p.status.is_some())
        .await?;
    let driver = clients(world).await?;
    let apiserver = world.bed.process("kube-apiserver")?.pid();
    let cpu = cpu_seconds(apiserver)?;
    let done = count_until(&world.client(), count, |lb| allocated(lb).is_some());
    let started = Instant::now();
    spread(&driver, count, |client, number| async move {
        create_lb(&client, &cluster_lb(&format!("lb-{number}"))?)
            .await
            .map(|_| ())
    })
    .await?;
    let create = done.await??.duration_since(started);

    let started = Instant::now();
    spread(&driver, count, |client, number| async move {
        let api: Api<LoadBalancer> = Api::namespaced(client, NAMESPACE);
        api.delete(&format!("lb-{number}"), &DeleteParams::default())
            .await?;
        Ok(())
    })
    .await?;
    let pool = world
        .pool_until("bench", "all free", |p| {
            p.status.as_ref().is_some_and(|s| {
                s.available == s.total
                    && s.allocated
                        .as_ref()
                        .is_none_or(std::collections::BTreeMap::is_empty)
            })
        })
        .await?;
    ensure!(pool.status.is_some());
    let delete = started.elapsed();
    let apiserver = cpu_seconds(apiserver)? - cpu;
    Ok(Took {
        create,
        delete,
        apiserver,
    })
}
