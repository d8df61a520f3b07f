//! A lease on another network of the hosts, which a load balancer names (DHC-1, KVA-2).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::{IPAllocation, LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_testkit::{Dhcp, VLAN_INTERFACE, vlan};
use kube::ResourceExt;
use serde_json::json;

use harvester_lb_e2e::leases::operator::{served, start_operator, unserved};
use harvester_lb_e2e::leases::{
    NODE, address, counter, delete, given_back, lease, leased_spec, no_record, phase, record_until,
    set, start_with,
};

const NS: &str = "network";
const INTERFACE: &str = "kube-vip.io/serviceInterface";

/// Connects the host of the DHCP server to the network.
fn connect_server(world: &World) -> anyhow::Result<()> {
    let (interface, address) = (VLAN_INTERFACE, vlan(1));
    let lan = world.cluster.netns("lan")?;
    let peer = format!("type veth peer name gw-vlan netns {}", lan.name());
    world.cluster.ip(
        "gw",
        &format!(
            "link add {interface} {peer}
addr add {address}/24 dev {interface}
link set {interface} up"
        ),
    )?;
    let bridge = format!("br-{VLAN_INTERFACE}");
    lan.ip(&format!(
        "link set gw-vlan master {bridge}\nlink set gw-vlan up\n"
    ))
}

async fn asking(world: &World, name: &str, interface: &str) -> anyhow::Result<LoadBalancer> {
    let metadata = json!({
        "namespace": NS, "name": name, "annotations": { INTERFACE: interface },
    });
    world.lb_with(metadata, leased_spec()).await
}

/// The one of the LAN has no server here.
pub async fn dhc_1_a_lease_on_another_network_of_the_hosts(
    world: Arc<World>,
) -> anyhow::Result<()> {
    set(&world, NS).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(NS, "vm", labels, Some("10.81.0.1")).await?;
    let _kube_vip = FakeKubeVip::start(&world.client());
    connect_server(&world)?;
    let (first, last) = (vlan(201), vlan(203));
    let there = format!("--interface={VLAN_INTERFACE}");
    let flags = [there.as_str(), "--except-interface=eth0"];
    let server = Dhcp::dnsmasq_with(&world.cluster, first, last, &flags).await?;
    // It keeps the leases of earlier tests.
    let held = || {
        let mut all = server.held();
        all.retain(|it| (first..=last).contains(it));
        all
    };
    let allowed = format!("--service-interfaces={VLAN_INTERFACE}");
    let operator = start_operator(&world, NODE, "operator", &[&allowed]).await?;
    let process = start_with(&world, NODE, "builtin", "dhcp", &[&allowed]).await?;

    let lb = asking(&world, "web", VLAN_INTERFACE).await?;
    let record = phase(&world, &lb, Phase::Bound).await?;
    let (had, leased) = (address(&record)?, lease(&record));
    ensure!((first..=last).contains(&had), "{had}");
    ensure!(leased.interface == VLAN_INTERFACE, "{leased:?}");
    ensure!(leased.server == Some(vlan(1).to_string()), "{leased:?}");
    ensure!(held() == [had], "{}", server.leases());
    served(&world, &lb, had).await?;
    let service = world.services(NS).get("web").await?;
    let named = service.annotations().get(INTERFACE);
    ensure!(named.is_some_and(|it| it == VLAN_INTERFACE), "{named:?}");
    let up = format!("harvester_lb_dhcp_interface_up{{interface=\"{VLAN_INTERFACE}\"}}");
    ensure!(counter(&world, &up).await? > 0.5);

    // KVA-2: one that is not allowed counts for nothing.
    let other = asking(&world, "other", "mgmt0").await?;
    let record = phase(&world, &other, Phase::Pending).await?;
    ensure!(lease(&record).interface == "eth0", "{record:?}");
    // Without the annotation it moves.
    let none = json!({"metadata": {"annotations": { INTERFACE: null }}});
    world.merge(&world.lbs(NS), "web", none).await?;
    let is_moved =
        |it: &IPAllocation| it.spec.phase == Phase::Pending && lease(it).interface == "eth0";
    record_until(&world, &lb, "a lease wanted on eth0", is_moved).await?;
    given_back(&server, had).await?;
    unserved(&world, &lb).await?;
    for lb in [&lb, &other] {
        delete(&world, lb).await?;
        no_record(&world, lb).await?;
    }
    ensure!(held().is_empty(), "{}", server.leases());
    process.kill9()?;
    operator.kill9()?;
    world
        .cluster
        .ip("gw", &format!("link del {VLAN_INTERFACE}"))
}
