//! The end of one of two replicas under requests: orderly, and by SIGKILL.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{Replica, answers, endpoints};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::cluster_spec;
use tokio::time::Instant;

use crate::load::{DENSE, Load};
use crate::stage::{bare, finish};

async fn two(world: &World) -> anyhow::Result<[Replica; 2]> {
    bare(world).await?;
    endpoints(world, &["node1", "node2"]).await?;
    let replicas = [
        Replica::spawn(world, "node1", "").await?,
        Replica::spawn(world, "node2", "").await?,
    ];
    for replica in &replicas {
        replica.ready().await?;
        replica.registered().await?;
    }
    answers(world).await?;
    if world
        .cluster
        .get("v1", "Namespace", None, "ends")
        .await?
        .is_none()
    {
        world.namespace("ends").await?;
    }
    world.lb("ends", "a", cluster_spec()).await?;
    Ok(replicas)
}

/// Both replicas are asked.
async fn warm(replicas: &[Replica; 2]) -> anyhow::Result<()> {
    for replica in replicas {
        harvester_lb_testkit::eventually("it is asked", SOON, || async {
            let connections = replica.metric("harvester_lb_webhook_connections").await?;
            Ok((connections >= 1.0).then_some(()))
        })
        .await?;
    }
    Ok(())
}

pub async fn section_1_one_of_two_replicas_ends(world: Arc<World>) -> anyhow::Result<()> {
    let replicas = two(&world).await?;
    let load = Load::start(&world, "ends", "a", DENSE).await?;
    warm(&replicas).await?;
    let start = Instant::now();
    let [first, second] = &replicas;
    first.process.term()?;
    harvester_lb_testkit::eventually("it says so", SOON, || async {
        let (code, _) = first.get("/readyz").await?;
        Ok((code == 503).then_some(()))
    })
    .await?;
    // The endpoint is gone a while later: until then the API server still connects to it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    endpoints(&world, &["node2"]).await?;
    let status = first.process.wait(SOON).await?;
    ensure!(status.success(), "{status}: {}", first.process.tail());
    let took = start.elapsed();
    ensure!(
        took >= Duration::from_secs(10),
        "it answered for {took:?} only"
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    load.no_failure_since(start)?;
    eprintln!("{} requests, ended after {took:?}", load.requests());
    ensure!(load.requests() > 500);
    drop(load);
    world.delete_lb("ends", "a").await?;
    finish(&world, &[second]).await
}

pub async fn section_1_one_of_two_replicas_is_killed(world: Arc<World>) -> anyhow::Result<()> {
    let replicas = two(&world).await?;
    let load = Load::start(&world, "ends", "a", DENSE).await?;
    warm(&replicas).await?;
    let [first, second] = &replicas;
    first.process.kill9()?;
    endpoints(&world, &["node2"]).await?;
    // The API server learns of the change by its watch.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (gone, before) = (Instant::now(), load.requests());
    tokio::time::sleep(Duration::from_secs(10)).await;
    load.no_failure_since(gone)?;
    let asked = load.requests() - before;
    eprintln!("{asked} requests since its endpoint is gone");
    ensure!(asked > 300, "{asked} requests");
    drop(load);
    world.delete_lb("ends", "a").await?;
    finish(&world, &[second]).await
}
