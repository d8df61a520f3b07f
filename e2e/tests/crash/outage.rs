//! The API server stands still, or is gone and comes back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::announcer::Announcer;
use harvester_lb_e2e::figures::Figures;
use harvester_lb_e2e::quiet::{audited, quiet, wipe};
use harvester_lb_e2e::supervised::Supervised;
use harvester_lb_e2e::witness::Witness;
use harvester_lb_testkit::{Process, Vm, eventually};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::rounds::pool;

/// For how long the API server is away.
const AWAY: Duration = Duration::from_secs(20);
/// A Lease that outlives that.
const PATIENT: [&str; 2] = ["--lease-duration=60s", "--lease-renew-deadline=45s"];

struct Stage {
    world: Arc<World>,
    ns: &'static str,
    witness: Witness,
    operator: Supervised,
    _announcer: Announcer,
    _vm: Vm,
}

impl Stage {
    /// A probed load balancer and thirty others, at rest.
    async fn set(
        world: &Arc<World>,
        ns: &'static str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        wipe(world).await?;
        world.namespace(ns).await?;
        world.pool(ns, pool()).await?;
        let vm = world
            .vm(ns, &format!("{ns}vm"), &[("app", "web")], 8080)
            .await?;
        let announcer = Announcer::start(&world.client());
        let witness = Witness::start(&world.client());
        let operator = Supervised::start(world, "node1", flags, env)?;
        let probed = json!({
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
            "backendServerSelector": {"app": ["web"]},
            "healthCheck": {
                "port": 8080, "successThreshold": 1, "failureThreshold": 2, "periodSeconds": 1, "timeoutSeconds": 1
            },
        });
        world.lb(ns, "probed", probed).await?;
        for n in 0..30 {
            cluster(world, ns, &format!("old{n}")).await?;
        }
        world.lb_reason(ns, "probed", "Ready").await?;
        audited(world, "node1", &[ns]).await?;
        Ok(Self {
            world: Arc::clone(world),
            ns,
            witness,
            operator,
            _announcer: announcer,
            _vm: vm,
        })
    }

    /// Load balancers that come and go, each until the API server has taken it.
    fn work(&self) -> JoinHandle<anyhow::Result<()>> {
        let (world, ns) = (Arc::clone(&self.world), self.ns);
        tokio::spawn(async move {
            for n in 0..30 {
                let name = format!("new{n}");
                until_taken("create", || cluster(&world, ns, &name)).await?;
                let name = format!("old{n}");
                until_taken("delete", || async { world.delete_lb(ns, &name).await }).await?;
            }
            Ok(())
        })
    }

    async fn probes(&self) -> anyhow::Result<f64> {
        let figures = Figures::read(&self.world, "node1").await?;
        Ok(figures.sum("harvester_lb_probes_total", |s| {
            s.label("result") == "success"
        }))
    }

    /// Waits until a new load balancer is served.
    async fn serves(&self) -> anyhow::Result<()> {
        until_taken("create", || cluster(&self.world, self.ns, "after")).await?;
        self.world.lb_address(self.ns, "after").await.map(|_| ())
    }

    /// Looks whether all is well, and ends the operator. How often that had ended by itself.
    async fn judge(self) -> anyhow::Result<usize> {
        let found = audited(&self.world, "node1", &[self.ns]).await?;
        ensure!(found.load_balancers == 32, "{found:?}");
        let wrongs = self.witness.wrongs(&self.world).await?;
        ensure!(wrongs.is_empty(), "{wrongs:#?}");
        let restarts = self.operator.restarts();
        self.operator.finish().await?;
        Ok(restarts)
    }
}

async fn cluster(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    let spec = json!({"workloadType": "cluster"});
    world.lb(ns, name, spec).await.map(|_| ())
}

/// Asks until the API server has done it, now or when it was asked before.
async fn until_taken<F, Fut>(what: &str, ask: F) -> anyhow::Result<()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    eventually(what, Duration::from_secs(90), || async {
        let asked = tokio::time::timeout(Duration::from_secs(5), ask()).await?;
        match asked {
            Err(error)
                if error.downcast_ref::<kube::Error>().is_some_and(|e| {
                    matches!(e, kube::Error::Api(s) if s.is_already_exists() || s.is_not_found())
                }) =>
            {
                Ok(Some(()))
            }
            other => other.map(Some),
        }
    })
    .await
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
    let work = stage.work();
    tokio::time::sleep(Duration::from_millis(300)).await;
    apiserver.stop()?;
    let probed = away(&stage).await?;
    apiserver.cont()?;
    healthy(&world).await?;
    let began = Instant::now();
    stage.serves().await?;
    let took = began.elapsed();
    work.await??;
    ensure!(stage.judge().await? == 0, "it was not to end");
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
    let work = stage.work();
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
    stage.serves().await?;
    let took = began.elapsed();
    work.await??;
    quiet(&world, "node1").await?;
    ensure!(stage.judge().await? == 1, "it was to end once");
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
    let work = stage.work();
    tokio::time::sleep(Duration::from_millis(300)).await;
    apiserver.kill9()?;
    let probed = away(&stage).await?;
    // It is the bed's from here on.
    std::mem::forget(start_again(&world, &command)?);
    healthy(&world).await?;
    let began = Instant::now();
    stage.serves().await?;
    let took = began.elapsed();
    work.await??;
    ensure!(stage.judge().await? == 0, "it was not to end");
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
