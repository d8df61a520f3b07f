//! Addresses that must be reachable, and addresses that must not.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::Phase;
use harvester_lb_e2e::read::{allocated, endpoints, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_fixtures::{self as fixtures, quick_check, with};
use harvester_lb_testkit::{Vm, eventually};
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

use crate::operator::shared;

/// All tests. Their outcome depends on the mode of kube-proxy or on who announces an address.
pub fn all() -> Vec<Test> {
    tests![
        eps_2_without_a_ready_backend_nothing_reaches_the_node,
        rec_4_what_is_deleted_by_hand_comes_back,
        rel_4_another_pool_another_address,
        ports_of_both_protocols,
    ]
}

pub fn vm_spec(pool: &str, app: &str) -> serde_json::Value {
    let more = json!({"ipPool": pool, "healthCheck": quick_check()});
    with(fixtures::vm_spec(app), more)
}

/// The addresses 192.168.100.`from` to `to` for one test, and for no example in docs/examples: pools do not overlap (PV-3).
pub fn lan(from: u8, to: u8) -> serde_json::Value {
    json!({
        "subnet": "192.168.100.0/24", "gateway": "192.168.100.1",
        "rangeStart": format!("192.168.100.{from}"), "rangeEnd": format!("192.168.100.{to}"),
    })
}

/// A namespace with a pool, in which a LoadBalancer of the same name serves machines with the label `app: NS`. The
/// names differ from test to test because kube-vip's elections identify a Service by its name alone.
pub async fn serve(
    world: &World,
    ns: &str,
    from: u8,
    vms: &[&str],
) -> anyhow::Result<(Vec<Vm>, Ipv4Addr)> {
    world.namespace(ns).await?;
    world.pool_for(ns, ns, &[lan(from, from + 3)]).await?;
    let mut machines = Vec::new();
    for name in vms {
        machines.push(world.vm(ns, name, &[("app", ns)], 8080).await?);
    }
    world.lb(ns, ns, vm_spec(ns, ns)).await?;
    let lb = world.lb_reason(ns, ns, "Ready").await?;
    let vip: Ipv4Addr = allocated(&lb).context("no address")?.parse()?;
    answered_by(world, vip, vms).await?;
    Ok((machines, vip))
}

/// Waits until these machines, and no others, answer at an address.
pub async fn answered_by(world: &World, vip: Ipv4Addr, names: &[&str]) -> anyhow::Result<()> {
    world.answered_by(vip, 80, names).await
}

/// Waits until an address no longer answers.
pub async fn silent(world: &World, vip: Ipv4Addr, port: u16) -> anyhow::Result<()> {
    eventually(&format!("{vip}:{port} is silent"), SOON, || async {
        Ok(world
            .cluster
            .client_get(vip, port)
            .await
            .is_err()
            .then_some(()))
    })
    .await
}

pub async fn released(world: &World, address: Ipv4Addr) -> anyhow::Result<()> {
    eventually(&format!("{address} is released"), SOON, || async {
        let record = world.records().get(&address.to_string()).await?;
        Ok((record.spec.phase == Phase::Released).then_some(()))
    })
    .await
}

async fn eps_2_without_a_ready_backend_nothing_reaches_the_node(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "standin";
    // Must never be reached through the address.
    let node1 = world.cluster.serve("node1", 80, "node1")?;
    let node2 = world.cluster.serve("node2", 80, "node2")?;
    let (vms, vip) = serve(&world, ns, 205, &["d1"]).await?;

    vms[0].close(8080).await;
    let slice = world.ready_endpoints(ns, ns, &["10.52.0.255"]).await?;
    ensure!(endpoints(&slice, false) == [vms[0].address().to_string()]);
    let lb = world.lb_reason(ns, ns, "BackendsUnhealthy").await?;
    let servers = lb.status.context("no status")?.backend_servers;
    ensure!(
        servers == Some(vec![vms[0].address().to_string()]),
        "HC-4: {servers:?}"
    );
    silent(&world, vip, 80).await?;
    let tally = world.cluster.client_burst(vip, 80, 10, 5).await;
    ensure!(tally.by_body.is_empty(), "answered by {:?}", tally.by_body);

    vms[0].listen(8080)?;
    world.lb_reason(ns, ns, "Ready").await?;
    answered_by(&world, vip, &["d1"]).await?;

    world
        .vmis(ns)
        .delete("d1", &DeleteParams::default())
        .await?;
    let slice = world.ready_endpoints(ns, ns, &["10.52.0.255"]).await?;
    ensure!(endpoints(&slice, false).is_empty(), "the machine is gone");
    world.lb_reason(ns, ns, "NoBackend").await?;
    silent(&world, vip, 80).await?;
    node1.close().await;
    node2.close().await;
    Ok(())
}

async fn rec_4_what_is_deleted_by_hand_comes_back(world: Arc<World>) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "restore";
    let (_vms, vip) = serve(&world, ns, 170, &["r1"]).await?;
    world
        .services(ns)
        .delete(ns, &DeleteParams::default())
        .await?;
    answered_by(&world, vip, &["r1"]).await?;
    world
        .slices(ns)
        .delete(ns, &DeleteParams::default())
        .await?;
    answered_by(&world, vip, &["r1"]).await?;
    let elsewhere = json!({"spec": {"loadBalancerIP": "192.168.100.249"}});
    world.merge(&world.services(ns), ns, elsewhere).await?;
    let wanted = Some(vip.to_string());
    eventually("the Service's address is restored", SOON, || async {
        let spec = world.services(ns).get(ns).await?.spec;
        Ok((spec.and_then(|s| s.load_balancer_ip) == wanted).then_some(()))
    })
    .await?;
    answered_by(&world, vip, &["r1"]).await?;
    world.lb_reason(ns, ns, "Ready").await?;
    Ok(())
}

async fn rel_4_another_pool_another_address(world: Arc<World>) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "moved";
    let (_vms, old) = serve(&world, ns, 230, &["v1"]).await?;
    world
        .pool_for("nobody", "moved-to", &[lan(235, 236)])
        .await?;
    world
        .merge(&world.lbs(ns), ns, json!({"spec": {"ipPool": "moved-to"}}))
        .await?;
    let changed = Instant::now();
    let new = Ipv4Addr::new(192, 168, 100, 235);
    answered_by(&world, new, &["v1"]).await?;
    // Versions of kube-vip differ in it (HLB_KUBE_VIP).
    println!("answers at the new address after {:.1?}", changed.elapsed());
    silent(&world, old, 80).await?;
    released(&world, old).await?;
    let lb = world
        .lb_until(ns, ns, "ready at the new address", |lb| {
            ready(lb).is_some_and(|(status, ..)| status == "True")
                && lb
                    .status
                    .as_ref()
                    .is_some_and(|s| s.address == Some(new.to_string()))
        })
        .await?;
    ensure!(allocated(&lb) == Some(new.to_string()));
    Ok(())
}

async fn ports_of_both_protocols(world: Arc<World>) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "ports";
    world.namespace(ns).await?;
    world.pool_for(ns, ns, &[lan(237, 239)]).await?;
    let vm = world.vm(ns, "p1", &[("app", ns)], 8080).await?;
    vm.listen(9090)?;
    vm.listen_udp(5353)?;
    let mut spec = vm_spec(ns, ns);
    spec["listeners"] = json!([
        {"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080},
        {"name": "admin", "port": 9000, "protocol": "TCP", "backendPort": 9090},
        {"name": "dns", "port": 53, "protocol": "UDP", "backendPort": 5353},
    ]);
    world.lb(ns, ns, spec).await?;
    let lb = world.lb_reason(ns, ns, "Ready").await?;
    let vip: Ipv4Addr = allocated(&lb).context("no address")?.parse()?;
    answered_by(&world, vip, &["p1"]).await?;
    eventually("the second port", SOON, || async {
        Ok((world.cluster.client_get(vip, 9000).await? == "p1").then_some(()))
    })
    .await?;
    eventually("the UDP port", SOON, || async {
        Ok((world.cluster.client_udp(vip, 53, "hello").await? == "p1 hello").then_some(()))
    })
    .await
}
