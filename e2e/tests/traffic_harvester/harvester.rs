//! Harvester's definitions and the webhook; one node announces all addresses, from a bridge, and drops what is sent to ports
//! that no Service has.

use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{keys, meta};
use harvester_lb_e2e::definitions::Definitions;
use harvester_lb_e2e::quiet::quiet;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, reviewed, tests};
use harvester_lb_fixtures::{cluster_spec, subnet};
use harvester_lb_testkit::{DataPath, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::operator::{restarted, shared};
use crate::vips::{answered_by, serve};

/// All tests.
pub fn all() -> Vec<Test> {
    tests![
        one_failover_moves_every_address_and_writes_no_load_balancer,
        ports_that_no_service_has_do_not_reach_the_node,
    ]
}

/// The one after all others.
pub fn last() -> Vec<Test> {
    tests![
        section_10_every_write_was_reviewed,
        api_1_the_definitions_are_harvester_s_to_the_end,
    ]
}

/// Before all tests.
pub fn definitions_and_webhook(
    world: Arc<World>,
) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> {
    Box::pin(async move {
        Definitions::of_harvester().apply(&world).await?;
        reviewed::start(world).await
    })
}

/// The node that announces the address of a Service.
pub async fn announcing_node(world: &World, ns: &str, name: &str) -> anyhow::Result<String> {
    let service = world.services(ns).get(name).await?;
    let node = meta::annotation(&service.metadata, keys::ANNOTATION_KUBE_VIP_HOST);
    node.map(ToOwned::to_owned)
        .context("no node announces the address")
}

/// The resource version of a LoadBalancer.
async fn version(world: &World, ns: &str) -> anyhow::Result<Option<String>> {
    Ok(world.lbs(ns).get(ns).await?.metadata.resource_version)
}

/// The addresses of an interface of a node, as `ip` shows them.
pub fn addresses_on(world: &World, node: &str, interface: &str) -> anyhow::Result<String> {
    let show = ["-o", "-4", "address", "show", "dev", interface];
    world.cluster.netns(node)?.output("ip", &show)
}

/// Whether a node has an address on its bridge.
fn has_on_bridge(world: &World, node: &str, vip: Ipv4Addr) -> anyhow::Result<bool> {
    let bridge = DataPath::HARVESTER.bridge.context("no bridge")?;
    let addresses = addresses_on(world, node, bridge)?;
    Ok(addresses.contains(&format!("{vip}/32")))
}

async fn one_failover_moves_every_address_and_writes_no_load_balancer(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _alone = restarted(&world).await?;
    let mut served = Vec::new();
    for (ns, from, vm) in [("bridged-a", 150, "b1"), ("bridged-b", 155, "b2")] {
        let (vms, vip) = serve(&world, ns, from, &[vm]).await?;
        served.push((ns, vm, vip, vms));
    }
    quiet(&world, "node1").await?;
    let mut versions = Vec::new();
    for (ns, ..) in &served {
        versions.push(version(&world, ns).await?);
    }
    let leases: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    let lease = leases.get("plndr-svcs-lock").await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    let holder = holder.context("nobody holds kube-vip's Lease")?;
    for (ns, _, vip, ..) in &served {
        let node = announcing_node(&world, ns, ns).await?;
        ensure!(
            node == holder && has_on_bridge(&world, &node, *vip)?,
            "{node}"
        );
    }

    let kube_vip = world.cluster.process(&format!("kube-vip-{holder}"))?;
    kube_vip.term()?;
    kube_vip.wait(SOON).await?;
    for ((ns, vm, vip, _), before) in served.iter().zip(&versions) {
        eventually("another node announces it", SOON, || async {
            let node = announcing_node(&world, ns, ns).await?;
            Ok((node != holder && has_on_bridge(&world, &node, *vip)?).then_some(()))
        })
        .await?;
        answered_by(&world, *vip, &[*vm]).await?;
        ensure!(!has_on_bridge(&world, &holder, *vip)?, "{vip} on both");
        let after = version(&world, ns).await?;
        ensure!(after == *before, "LoadBalancer {ns} was written");
    }
    let number = holder.strip_prefix("node").and_then(|n| n.parse().ok());
    world
        .cluster
        .start_kube_vip(number.context("not a node")?)?;
    Ok(())
}

async fn ports_that_no_service_has_do_not_reach_the_node(world: Arc<World>) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let mut servers = Vec::new();
    for node in world.cluster.nodes() {
        servers.push(world.cluster.serve(&node, 8082, &node)?);
    }
    let (_vms, vip) = serve(&world, "unused-port", 160, &["u1"]).await?;
    let seen = world.cluster.client_get(vip, 8082).await;
    ensure!(seen.is_err(), "answered by {seen:?}");
    for server in servers {
        server.close().await;
    }
    Ok(())
}

/// The webhook was asked about what the tests wrote, and has always answered. What it refuses fails the test that writes it.
async fn section_10_every_write_was_reviewed(world: Arc<World>) -> anyhow::Result<()> {
    // So that there is a write of each kind, also if this test runs alone.
    let ns = "reviewed";
    world.namespace(ns).await?;
    world.pool_for(ns, ns, &[subnet("10.119.0.0/24")]).await?;
    world.lb(ns, ns, cluster_spec()).await?;
    reviewed::webhook()?.answered_all(&world).await
}

async fn api_1_the_definitions_are_harvester_s_to_the_end(world: Arc<World>) -> anyhow::Result<()> {
    Definitions::of_harvester().are_stored(&world).await
}
