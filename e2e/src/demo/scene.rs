//! Owns the common setup of tour and shell: the test cluster, the operator, three virtual machines, a pool and a
//! LoadBalancer.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::prometheus::{Prometheus, documented_alerts, rules};
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::world::repository;
use harvester_lb_testkit::{Process, Tally, TestClusterOptions, Vm};

use crate::screen::{Screen, seconds};

/// Namespace of the example's LoadBalancer.
pub(crate) const NAMESPACE: &str = "default";
/// Name of the example's LoadBalancer, and so of its Service and its EndpointSlice.
pub(crate) const NAME: &str = "web";
/// Name of the example's pool.
pub(crate) const POOL: &str = "demo";
/// Port of the example's LoadBalancer.
pub(crate) const PORT: u16 = 80;
/// Port of the example's virtual machines.
pub(crate) const BACKEND_PORT: u16 = 8080;
/// Node on which the operator runs.
pub(crate) const NODE: &str = "node1";

/// A test cluster with a working LoadBalancer.
pub(crate) struct Scene {
    // Dropped in this order: programs before the test cluster that they run in.
    pub(crate) operator: Arc<Process>,
    pub(crate) prometheus: Prometheus,
    pub(crate) vms: Vec<Vm>,
    pub(crate) world: World,
    pub(crate) vip: Ipv4Addr,
}

impl Scene {
    /// Starts everything and shows the progress.
    pub(crate) async fn start(screen: &mut Screen) -> anyhow::Result<Self> {
        screen.step("A control plane, two nodes, the operator");
        let (world, operator, prometheus) = programs(screen).await?;
        screen.step("Three virtual machines");
        let vms = machines(screen, &world).await?;
        screen.step("A pool and a load balancer, from YAML");
        let vip = load_balancer(screen, &world).await?;
        let scene = Self {
            operator,
            prometheus,
            vms,
            world,
            vip,
        };
        scene.reached(&scene.names()).await?;
        screen.proven(format!(
            "{vip} answers a client outside of the cluster, from each of the {} machines",
            scene.vms.len()
        ));
        Ok(scene)
    }

    /// Names of the virtual machines.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.vms.iter().map(Vm::name).collect()
    }

    /// Requests from the client through the LoadBalancer, several at a time.
    pub(crate) async fn burst(&self, count: usize) -> Tally {
        let cluster = &self.world.cluster;
        cluster.client_burst(self.vip, PORT, count, 6).await
    }

    /// Waits until requests are answered by exactly these machines, and none fails.
    ///
    /// kube-vip announces a new address at once, and kube-proxy follows within two seconds.
    pub(crate) async fn reached(&self, names: &[&str]) -> anyhow::Result<()> {
        self.world.answered_by(self.vip, PORT, names).await
    }
}

async fn programs(screen: &mut Screen) -> anyhow::Result<(World, Arc<Process>, Prometheus)> {
    screen.say("etcd, kube-apiserver, kube-controller-manager;");
    screen.say("each node with kube-proxy and kube-vip; a client on the network.");
    let began = Instant::now();
    let world = World::start(TestClusterOptions::default()).await?;
    screen.say(&format!("Running after {}.", seconds(began.elapsed())));
    let began = Instant::now();
    screen.log = Some(world.cluster.folder().join(format!("operator-{NODE}.log")));
    // With the intervals of a real cluster, not those of a test.
    let operator = world
        .start_operator_with(NODE, &[], &[("HLB_TIMINGS", "")])
        .await?;
    screen.say(&format!(
        "The operator is ready after {}, its log is a file.",
        seconds(began.elapsed())
    ));
    let alerts = rules(&documented_alerts()?, false);
    let prometheus = Prometheus::start(&world, &[NODE], &alerts).await?;
    screen.say(&format!(
        "Prometheus scrapes it each second: http://{}",
        prometheus.address()
    ));
    show(
        screen,
        &world,
        &[
            "get",
            "nodes",
            "-o",
            "custom-columns=NODE:.metadata.name,ADDRESS:.status.addresses[0].address",
        ],
    )
    .await?;
    Ok((world, operator, prometheus))
}

async fn machines(screen: &mut Screen, world: &World) -> anyhow::Result<Vec<Vm>> {
    screen.say("Each answers HTTP with its own name.");
    let mut vms = Vec::new();
    for name in ["vm1", "vm2", "vm3"] {
        let vm = world.vm(NAMESPACE, name, &[("app", "web")], BACKEND_PORT);
        vms.push(vm.await?);
    }
    show(
        screen,
        world,
        &[
            "get",
            "vmi",
            "-o",
            "custom-columns=VMI:.metadata.name,PHASE:.status.phase,ADDRESS:.status.interfaces[0].ipAddress,APP:.metadata.labels.app",
        ],
    )
    .await?;
    Ok(vms)
}

async fn load_balancer(screen: &mut Screen, world: &World) -> anyhow::Result<Ipv4Addr> {
    let mut began = Instant::now();
    for file in ["demo-pool.yaml", "demo-loadbalancer.yaml"] {
        let path = examples().join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        began = Instant::now();
        world.cluster.apply_yaml(&text).await?;
        screen.command(&format!("kubectl apply -f docs/examples/{file}"), &text);
    }
    let lb = world.lb_reason(NAMESPACE, NAME, "Ready").await?;
    let (status, ..) = ready(&lb).context("the load balancer has no condition")?;
    ensure!(status == "True", "condition Ready is {status}");
    let vip = allocated(&lb).context("the load balancer has no address")?;
    screen.proven(format!(
        "the load balancer has the address {vip} and is Ready, {} after it was made",
        seconds(began.elapsed())
    ));
    for args in [
        &["get", "lb"][..],
        &["get", "service", NAME],
        &["get", "endpointslice", NAME],
    ] {
        show(screen, world, args).await?;
    }
    vip.parse().context("the address of the load balancer")
}

/// Runs kubectl and shows what it prints.
pub(crate) async fn show(screen: &Screen, world: &World, args: &[&str]) -> anyhow::Result<()> {
    let output = tokio::time::timeout(Duration::from_secs(20), world.cluster.kubectl(args))
        .await
        .context("kubectl does not come to an end")??;
    // The output format is of no interest to the reader.
    let shown: Vec<&str> = args
        .iter()
        .map(|a| a.split_once('=').map_or(*a, |(columns, _)| columns))
        .collect();
    screen.command(&format!("kubectl {}", shown.join(" ")), &output);
    Ok(())
}

fn examples() -> PathBuf {
    repository().join("docs/examples")
}
