//! The API server stands still, or is gone and comes back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::quiet::quiet;
use harvester_lb_e2e::stage::{OTHERS, Stage, cluster, until_taken};
use harvester_lb_testkit::{Process, eventually};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// For how long the API server is away.
const AWAY: Duration = Duration::from_secs(20);
/// A Lease that outlives that.
const PATIENT: [&str; 2] = ["--lease-duration=60s", "--lease-renew-deadline=45s"];

/// Load balancers that come and go, each until the API server has taken it.
fn work(stage: &Stage) -> JoinHandle<anyhow::Result<()>> {
    let (world, ns) = (Arc::clone(&stage.world), stage.ns);
    tokio::spawn(async move {
        for n in 0..OTHERS {
            let name = format!("new{n}");
            until_taken("create", || cluster(&world, ns, &name)).await?;
            let name = format!("old{n}");
            until_taken("delete", || async { world.delete_lb(ns, &name).await }).await?;
        }
        Ok(())
    })
}

/// Waits until a new load balancer is served.
async fn serves(stage: &Stage) -> anyhow::Result<()> {
    let (world, ns) = (&stage.world, stage.ns);
    until_taken("create", || cluster(world, ns, "after")).await?;
    world.lb_address(ns, "after").await.map(|_| ())
}

/// Looks whether all is well, and ends the operator. How often that had ended by itself.
async fn judge(stage: Stage) -> anyhow::Result<usize> {
    let (load_balancers, restarts) = stage.judge().await?;
    // The probed one and the one that came after.
    ensure!(load_balancers == OTHERS + 2, "{load_balancers}");
    Ok(restarts)
}

async fn healthy(world: &World) -> anyhow::Result<()> {
    eventually(
        "the API server is ready",
        Duration::from_secs(90),
        || async {
            let ready = world.bed.kubectl(&["get", "--raw", "/readyz"]).await?;
            Ok((ready == "ok").then_some(()))
        },
    )
    .await
}

pub async fn alc_8_api_server_stands_still(world: Arc<World>) -> anyhow::Result<()> {
    let stage = Stage::set(&world, "still", &PATIENT, &[]).await?;
    let apiserver = world.bed.process("kube-apiserver")?;
    let work = work(&stage);
    tokio::time::sleep(Duration::from_millis(300)).await;
    apiserver.stop()?;
    let probed = away(&stage).await?;
    apiserver.cont()?;
    healthy(&world).await?;
    let began = Instant::now();
    serves(&stage).await?;
    let took = began.elapsed();
    work.await??;
    ensure!(judge(stage).await? == 0, "it was not to end");
    eprintln!(
        "the API server stood still for {AWAY:?}: {probed} probes meanwhile, served {took:.1?} after its return"
    );
    Ok(())
}

/// Waits for as long as the API server is to be away. Probes go on meanwhile.
async fn away(stage: &Stage) -> anyhow::Result<f64> {
    let before = stage.probes().await?;
    tokio::time::sleep(AWAY).await;
    let probed = stage.probes().await? - before;
    // One each second.
    ensure!(
        probed >= AWAY.as_secs_f64() - 3.0,
        "{probed} probes in {AWAY:?}"
    );
    Ok(probed)
}

pub async fn section_1_leadership_is_lost_without_api_server(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let stage = Stage::set(&world, "lost", &[], &[("POD_UID", "lost")]).await?;
    let apiserver = world.bed.process("kube-apiserver")?;
    let operator = stage.operator.process().await;
    let work = work(&stage);
    tokio::time::sleep(Duration::from_millis(300)).await;
    apiserver.stop()?;
    let began = Instant::now();
    let ended = operator.wait(Duration::from_secs(30)).await?;
    let after = began.elapsed();
    ensure!(ended.code().is_some_and(|code| code != 0), "{ended}");
    tokio::time::sleep(AWAY.saturating_sub(began.elapsed())).await;
    apiserver.cont()?;
    healthy(&world).await?;
    let began = Instant::now();
    serves(&stage).await?;
    let took = began.elapsed();
    work.await??;
    quiet(&world, "node1").await?;
    ensure!(judge(stage).await? == 1, "it was to end once");
    eprintln!(
        "without its API server it ended after {after:.1?} ({ended}), and served {took:.1?} after its return"
    );
    Ok(())
}

pub async fn alc_8_api_server_is_killed(world: Arc<World>) -> anyhow::Result<()> {
    let stage = Stage::set(&world, "killed", &PATIENT, &[]).await?;
    let apiserver = world.bed.process("kube-apiserver")?;
    let command = std::fs::read(format!("/proc/{}/cmdline", apiserver.pid()))?;
    let command = String::from_utf8(command)?;
    let work = work(&stage);
    tokio::time::sleep(Duration::from_millis(300)).await;
    apiserver.kill9()?;
    let probed = away(&stage).await?;
    // It is the bed's from here on.
    std::mem::forget(start_again(&world, &command)?);
    healthy(&world).await?;
    let began = Instant::now();
    serves(&stage).await?;
    let took = began.elapsed();
    work.await??;
    ensure!(judge(stage).await? == 0, "it was not to end");
    eprintln!(
        "the API server was gone for {AWAY:?}: {probed} probes meanwhile, served {took:.1?} after its return"
    );
    Ok(())
}

/// Starts a program of the control plane from its command line.
fn start_again(world: &World, command: &str) -> anyhow::Result<Arc<Process>> {
    let mut words = command.split_terminator('\0');
    let program = words.next().context("no command line")?;
    let args: Vec<&str> = words.collect();
    world
        .bed
        .spawn("cp", program, &args, &[], "kube-apiserver-again")
}
