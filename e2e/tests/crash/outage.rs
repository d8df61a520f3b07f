//! The API server is stopped, or killed and restarted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_e2e::World;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::{audited, quiet, reset};
use harvester_lb_e2e::read::endpoints;
use harvester_lb_e2e::stage::{NODE, OTHERS, PROBED, Stage, cluster, until_accepted};
use harvester_lb_e2e::supervised::Supervised;
use harvester_lb_e2e::world::{PATIENT_LEASE, QUICK_LEASE, SOON};
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::eventually;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Duration of the outage.
const OUTAGE: Duration = Duration::from_secs(6);
/// Traffic to a backend that died meanwhile ends this long after the API server's return (RUN-5).
const BACK: Duration = Duration::from_secs(10);

/// Creates and deletes LoadBalancers, each until the API server has accepted it.
fn work(stage: &Stage) -> JoinHandle<anyhow::Result<()>> {
    let (world, ns) = (Arc::clone(&stage.world), stage.ns);
    tokio::spawn(async move {
        for n in 0..OTHERS {
            let name = format!("new{n}");
            until_accepted("create", || cluster(&world, ns, &name)).await?;
            let name = format!("old{n}");
            until_accepted("delete", || async { world.delete_lb(ns, &name).await }).await?;
        }
        Ok(())
    })
}

/// Starts [`work`], and waits until a third of it is done.
async fn started(stage: &Stage) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
    let work = work(stage);
    let name = format!("new{}", OTHERS / 3);
    let world = &stage.world;
    world
        .lb_until(stage.ns, &name, "is created", |_| true)
        .await?;
    Ok(work)
}

/// Waits until a new LoadBalancer is served.
async fn serves(stage: &Stage) -> anyhow::Result<()> {
    let (world, ns) = (&stage.world, stage.ns);
    until_accepted("create", || cluster(world, ns, "after")).await?;
    world.lb_address(ns, "after").await.map(|_| ())
}

/// Checks everything, and ends the operator. Returns how often that had ended by itself.
async fn judge(stage: Stage) -> anyhow::Result<usize> {
    let (load_balancers, restarts) = stage.judge().await?;
    // The probed one and the one that came later.
    ensure!(load_balancers == OTHERS + 2, "{load_balancers}");
    Ok(restarts)
}

async fn healthy(world: &World) -> anyhow::Result<()> {
    eventually(
        "the API server is ready",
        Duration::from_secs(90),
        || async {
            let ready = world.cluster.kubectl(&["get", "--raw", "/readyz"]).await?;
            Ok((ready == "ok").then_some(()))
        },
    )
    .await
}

pub async fn alc_8_api_server_stands_still(world: Arc<World>) -> anyhow::Result<()> {
    let stage = Stage::set(&world, "still", &PATIENT_LEASE, &[]).await?;
    let apiserver = world.cluster.process("kube-apiserver")?;
    let work = started(&stage).await?;
    apiserver.stop()?;
    let probed = during_outage(&stage).await?;
    apiserver.cont()?;
    healthy(&world).await?;
    let began = Instant::now();
    serves(&stage).await?;
    let took = began.elapsed();
    work.await??;
    ensure!(judge(stage).await? == 0, "it was not to end");
    eprintln!(
        "the API server stood still for {OUTAGE:?}: {probed} probes meanwhile, served {took:.1?} after its return"
    );
    Ok(())
}

/// Waits for the duration of the outage. Probes continue meanwhile.
async fn during_outage(stage: &Stage) -> anyhow::Result<f64> {
    let before = stage.probes().await?;
    tokio::time::sleep(OUTAGE).await;
    let probed = stage.probes().await? - before;
    // One per second.
    ensure!(
        probed >= OUTAGE.as_secs_f64() - 3.0,
        "{probed} probes in {OUTAGE:?}"
    );
    Ok(probed)
}

pub async fn run_5_what_died_while_nobody_led_gets_no_traffic(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let stage = Stage::set(&world, "lost-lease", &QUICK_LEASE, &[]).await?;
    let (ns, up) = (stage.ns, stage.up.address().to_string());
    let apiserver = world.cluster.process("kube-apiserver")?;
    let work = started(&stage).await?;
    apiserver.stop()?;
    let began = Instant::now();
    let probed = during_outage(&stage).await?;
    let figures = MetricsSnapshot::read(&world, NODE).await?;
    ensure!(!figures.is_leader(), "it leads without an API server");
    // Health checks still run, and one backend less answers them.
    stage.up.close(8080).await;
    eventually("the backend is found dead", SOON, || async {
        let figures = MetricsSnapshot::read(&world, NODE).await?;
        let up = figures.sum("harvester_lb_probe_targets", |s| s.label("verdict") == "up");
        ensure!(up < 0.5, "{up} targets are up");
        Ok(Some(()))
    })
    .await?;
    let was_unavailable = began.elapsed();
    apiserver.cont()?;
    healthy(&world).await?;
    let began = Instant::now();
    eventually("it gets no traffic", BACK, || async {
        let slice = world.slices(ns).get(PROBED).await?;
        let ready = endpoints(&slice, true);
        ensure!(!ready.contains(&&*up), "{ready:?}");
        Ok(Some(()))
    })
    .await?;
    let took = began.elapsed();
    stage.up.listen(8080)?;
    world.lb_reason(ns, PROBED, "Ready").await?;
    serves(&stage).await?;
    work.await??;
    quiet(&world, NODE).await?;
    ensure!(judge(stage).await? == 0, "it was not to end");
    eprintln!(
        "without an API server for {was_unavailable:.1?} it led no more and probed {probed} times; what had died was out {took:.1?} after the return"
    );
    Ok(())
}

pub async fn alc_8_api_server_is_killed(world: Arc<World>) -> anyhow::Result<()> {
    let stage = Stage::set(&world, "killed", &PATIENT_LEASE, &[]).await?;
    let work = started(&stage).await?;
    let apiserver = world.cluster.kill("kube-apiserver")?;
    let probed = during_outage(&stage).await?;
    world.cluster.restart(&apiserver)?;
    healthy(&world).await?;
    let began = Instant::now();
    serves(&stage).await?;
    let took = began.elapsed();
    work.await??;
    ensure!(judge(stage).await? == 0, "it was not to end");
    eprintln!(
        "the API server was gone for {OUTAGE:?}: {probed} probes meanwhile, served {took:.1?} after its return"
    );
    Ok(())
}

pub async fn run_3_a_restored_etcd_is_noticed(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "restored";
    reset(&world).await?;
    world.namespace(ns).await?;
    world.pool_for(ns, ns, &[subnet("10.82.0.0/24")]).await?;
    let operator = Supervised::start(&world, NODE, &QUICK_LEASE, &[])?;
    for n in 0..10 {
        let name = format!("kept{n}");
        until_accepted("create", || cluster(&world, ns, &name)).await?;
    }
    audited(&world, NODE, &[ns]).await?;

    let data = world.cluster.folder().join("etcd");
    let backup = world.cluster.folder().join("etcd-backup");
    let etcd = world.cluster.kill("etcd")?;
    copy(&data, &backup).await?;
    world.cluster.restart(&etcd)?;
    healthy(&world).await?;
    // Objects that the backup does not contain.
    for n in 0..10 {
        let name = format!("later{n}");
        until_accepted("create", || cluster(&world, ns, &name)).await?;
        until_accepted("delete", || async {
            world.delete_lb(ns, &format!("kept{n}")).await
        })
        .await?;
    }
    audited(&world, NODE, &[ns]).await?;
    let ended = operator.restarts();

    // Programs with a cache have to be restarted; the operator does that by itself.
    let manager = world.cluster.kill("kube-controller-manager")?;
    let apiserver = world.cluster.kill("kube-apiserver")?;
    let etcd = world.cluster.kill("etcd")?;
    std::fs::remove_dir_all(&data)?;
    std::fs::rename(&backup, &data)?;
    world.cluster.restart(&etcd)?;
    world.cluster.restart(&apiserver)?;
    healthy(&world).await?;
    let began = Instant::now();
    world.cluster.restart(&manager)?;
    eventually("the operator has ended", SOON, || async {
        Ok((operator.restarts() > ended).then_some(()))
    })
    .await?;
    let took = began.elapsed();
    let log = std::fs::read_to_string(world.operator_log(NODE))?;
    ensure!(log.contains("was restored from a backup"), "{log}");
    // Those in the backup exist with their addresses, and work continues.
    until_accepted("create", || cluster(&world, ns, "after")).await?;
    world.lb_address(ns, "after").await?;
    let found = audited(&world, NODE, &[ns]).await?;
    ensure!(found.load_balancers == 11, "{found:?}");
    ensure!(operator.restarts() == ended + 1, "it was to end once");
    operator.finish().await?;
    eprintln!("with an etcd of before it ended {took:.1?} after the return, and went on afresh");
    Ok(())
}

/// Copies a folder recursively.
async fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut copy = tokio::process::Command::new("cp");
    let done = copy.arg("-a").args([from, to]).status().await?;
    ensure!(done.success(), "cp: {done}");
    Ok(())
}
