//! Owns the tour of leased addresses: the DHCP process leases the address of a load balancer, renews it, is killed and keeps it, and
//! gives it back (DHC-1, DHC-2, DHC-4).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use harvester_lb_api::{IPAllocation, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_testkit::{Dhcp, Process, TestClusterOptions, Traffic, eventually, lan};
use tokio::time::Instant;

use crate::scene::{BACKEND_PORT, NAMESPACE, NODE, PORT, show};
use crate::screen::{Screen, seconds};

/// The example, and the name of its load balancer.
const EXAMPLE: (&str, &str) = ("loadbalancer-dhcp.yaml", "hello-dhcp");
/// Node of the DHCP process.
const DHCP_NODE: &str = "node2";
/// How long the server leases an address: short, so that a renewal can be shown.
const LEASE: Duration = Duration::from_secs(16);
/// Time between two requests of the client.
const INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for a renewal after a kill: the first REQUEST is up to 10 s late.
const RENEWAL: Duration = Duration::from_secs(40);

/// Shows the life of a lease.
pub(crate) async fn run(screen: &mut Screen) -> anyhow::Result<()> {
    screen.step("A control plane, two nodes, a DHCP server");
    screen.say("kube-vip and kube-proxy on each node; Kea on the network, which leases for 16 s.");
    let world = World::start(TestClusterOptions::default()).await?;
    screen.log = Some(world.cluster.folder().join(format!("operator-{NODE}.log")));
    let server = Dhcp::kea(&world.cluster, lan(200), lan(219), LEASE).await?;
    screen.step("The operator, and the DHCP process");
    let flags = ["--dhcp-mode=builtin"];
    screen.say(&format!("harvester-load-balancer {}", flags[0]));
    screen.say(&format!("harvester-load-balancer dhcp {}", flags[0]));
    let env = [("HLB_TIMINGS", "")];
    let operator = world.start_operator_with(NODE, &flags, &env).await?;
    let process = world.spawn_dhcp(DHCP_NODE, &flags, &env)?;

    let (vip, record) = lease(screen, &world, &server).await?;
    let process = keeps(screen, &world, &server, (vip, &record), process).await?;
    gives_back(screen, &world, &server, vip).await?;
    ensure!(
        operator.is_running() && process.is_running(),
        "one of them has ended"
    );
    Ok(())
}

/// The name of the record, once there is one.
async fn lease(
    screen: &mut Screen,
    world: &World,
    server: &Dhcp,
) -> anyhow::Result<(Ipv4Addr, String)> {
    let (file, name) = EXAMPLE;
    screen.step("A virtual machine, and a load balancer with `ipam: dhcp`");
    let vm = world.vm(NAMESPACE, "vm1", &[("app", "web")], BACKEND_PORT);
    // It listens until the demo ends.
    std::mem::forget(vm.await?);
    let path = repository().join("docs/examples").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let began = Instant::now();
    world.cluster.apply_yaml(&text).await?;
    screen.command(&format!("kubectl apply -f docs/examples/{file}"), &text);
    let uid = world.lbs(NAMESPACE).get(name).await?.metadata.uid;
    let record = format!("dhcp-{}", uid.unwrap_or_default());
    eventually("there is a lease", SOON, || async {
        let found = world.records().get_opt(&record).await?;
        let is_bound = found.is_some_and(|it| it.spec.phase == Phase::Bound);
        Ok(is_bound.then_some(()))
    })
    .await?;
    let took = began.elapsed();
    let lb = world.lb_reason(NAMESPACE, name, "Ready").await?;
    ensure!(
        allocated(&lb).as_deref() == Some("0.0.0.0"),
        "{:?}",
        lb.status
    );
    let vip = lb.status.and_then(|status| status.address);
    let vip: Ipv4Addr = vip.context("no address")?.parse()?;
    for args in [
        &["get", "lb"][..],
        &["get", "service", name],
        &["get", "ipalloc", &record],
    ] {
        show(screen, world, args).await?;
    }
    ensure!(
        server.leases().contains(&vip.to_string()),
        "the server has no lease"
    );
    world.answered_by(vip, PORT, &["vm1"]).await?;
    screen.proven(format!(
        "{vip} was leased after {}, one second of it for the ARP probe, and answers a client",
        seconds(took)
    ));
    Ok((vip, record))
}

/// Kills the DHCP process while requests go on, and waits until the next one has renewed the lease.
async fn keeps(
    screen: &mut Screen,
    world: &World,
    server: &Dhcp,
    (vip, record): (Ipv4Addr, &str),
    process: Arc<Process>,
) -> anyhow::Result<Arc<Process>> {
    screen.step("The DHCP process is killed, and started again");
    screen.say(&format!(
        "The client goes on, a request to {vip}:{PORT} every {} ms.",
        INTERVAL.as_millis()
    ));
    let traffic = Traffic::start(&world.cluster, vip, PORT, INTERVAL);
    let before = expiry(&world.records().get(record).await?);
    process.kill9()?;
    process.wait(SOON).await?;
    let process = world.spawn_dhcp(DHCP_NODE, &["--dhcp-mode=builtin"], &[("HLB_TIMINGS", "")])?;
    eventually("the lease is renewed", RENEWAL, || async {
        let now = world.records().get(record).await?;
        ensure!(now.spec.phase == Phase::Bound, "{:?}", now.spec);
        ensure!(now.spec.address == vip.to_string(), "{:?}", now.spec);
        Ok((expiry(&now) > before).then_some(()))
    })
    .await?;
    let failures = traffic.into_failures().await;
    if let Some(first) = failures.first() {
        bail!("{} requests failed: {:?}", failures.len(), first.outcome);
    }
    show(
        screen,
        world,
        &[
            "get",
            "ipalloc",
            record,
            "-o",
            "custom-columns=ADDRESS:.spec.address,PHASE:.spec.phase,SERVER:.spec.lease.server,EXPIRES:.spec.lease.expiresAt",
        ],
    )
    .await?;
    let rows = server.leases();
    let others = rows
        .lines()
        .skip(1)
        .filter(|row| !row.starts_with(&format!("{vip},")));
    ensure!(others.count() == 0, "the server has another lease:\n{rows}");
    screen.proven(format!(
        "the next process has renewed the lease of {vip}; no request failed, and the server has no second lease"
    ));
    Ok(process)
}

/// When the lease of a record expires: RFC 3339, which sorts by time.
fn expiry(record: &IPAllocation) -> Option<String> {
    record.spec.lease.as_ref()?.expires_at.clone()
}

async fn gives_back(
    screen: &mut Screen,
    world: &World,
    server: &Dhcp,
    vip: Ipv4Addr,
) -> anyhow::Result<()> {
    screen.step("The load balancer is deleted");
    let (_, name) = EXAMPLE;
    world.delete_lb(NAMESPACE, name).await?;
    world.gone(&world.services(NAMESPACE), name).await?;
    eventually("the lease is given back", SOON, || async {
        let left = world
            .records()
            .list(&kube::api::ListParams::default())
            .await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await?;
    // Kea appends a row for each change; a lifetime of 0 is the end of a lease.
    let rows = server.leases();
    let last = rows.lines().last().unwrap_or_default();
    screen.command("tail -n 1 kea-leases.csv", last);
    let lifetime = last.split(',').nth(3);
    ensure!(
        last.starts_with(&format!("{vip},")) && lifetime == Some("0"),
        "the server still has the lease:\n{rows}"
    );
    screen.proven(format!(
        "the Service is gone, and {vip} is free on the DHCP server"
    ));
    Ok(())
}
