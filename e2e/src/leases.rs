//! Shared by the tests of DHCP leases: the DHCP process, records of leases, lease files of the servers.

pub mod filter;
pub mod host;
pub mod operator;

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{DhcpLease, IPAllocation, LoadBalancer, Phase};
use harvester_lb_fixtures::{vm_spec, with};
use harvester_lb_testkit::proxy::Proxy;
use harvester_lb_testkit::{Dhcp, Process, eventually, lan};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::metrics_snapshot::MetricsSnapshot;
use crate::quiet::reset;
use crate::seeds::soaks;
use crate::world::{QUICK_LEASE, SOON, TEST_TIMINGS, World, repository};

/// The node whose network the DHCP process uses.
pub const NODE: &str = "node1";
/// Flags of dnsmasq: T1 is after 4 s.
pub const EARLY: &str = "--dhcp-option=58,4";

/// An empty cluster and a namespace.
pub async fn set(world: &World, ns: &str) -> anyhow::Result<()> {
    reset(world).await?;
    world.namespace(ns).await
}

/// The user of the DHCP process.
pub const USER: &str = "system:serviceaccount:harvester-system:harvester-lb-dhcp";

/// A kubeconfig with the permissions of the example, and no more.
async fn account(world: &World) -> anyhow::Result<PathBuf> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harvester-system"},
    });
    world.cluster.apply(&namespace).await?;
    let roles = repository().join("docs/examples/rbac-dhcp.yaml");
    let roles = std::fs::read_to_string(roles)?;
    world.cluster.apply_yaml(&roles).await?;
    let (ns, name) = ("harvester-system", "harvester-lb-dhcp");
    world.cluster.service_account_kubeconfig(ns, name).await
}

/// Starts the DHCP process, and waits until it is ready.
pub async fn start(world: &World, mode: &str) -> anyhow::Result<Arc<Process>> {
    start_as(world, NODE, mode, "dhcp").await
}

/// Starts the DHCP process on a node, in a Pod of this uid. One with the uid of the leader that was killed takes its Lease over
/// at once.
pub async fn start_as(
    world: &World,
    node: &str,
    mode: &str,
    uid: &str,
) -> anyhow::Result<Arc<Process>> {
    start_with(world, node, mode, uid, &[]).await
}

/// The same with further flags.
pub async fn start_with(
    world: &World,
    node: &str,
    mode: &str,
    uid: &str,
    further: &[&str],
) -> anyhow::Result<Arc<Process>> {
    let kubeconfig = account(world).await?;
    start_for(world, &kubeconfig, node, mode, uid, further).await
}

/// Starts the DHCP process with this proxy between it and the API server.
pub async fn start_behind(world: &World, proxy: &Proxy) -> anyhow::Result<Arc<Process>> {
    let kubeconfig = proxy.kubeconfig_via(&account(world).await?)?;
    start_for(world, &kubeconfig, NODE, "builtin", "dhcp", &[]).await
}

/// As in its Pod, it is root and may do nothing but open packet sockets.
async fn start_for(
    world: &World,
    kubeconfig: &Path,
    node: &str,
    mode: &str,
    uid: &str,
    further: &[&str],
) -> anyhow::Result<Arc<Process>> {
    let kubeconfig = kubeconfig.to_str().context("the kubeconfig's path")?;
    let binary = world.binary().to_str().context("the binary's path")?;
    let mode = format!("--dhcp-mode={mode}");
    let mut flags = vec![
        "--bounding-set=-all,+net_raw",
        "--no-new-privs",
        binary,
        "dhcp",
        &mode,
        "--dhcp-interface=eth0",
        "--admin-address=[::]:8081",
    ];
    flags.extend(QUICK_LEASE);
    flags.extend(further);
    let env = [
        ("KUBECONFIG", kubeconfig),
        ("LOGLEVEL", "info,harvester_load_balancer=debug"),
        ("HLB_TIMINGS", TEST_TIMINGS),
        ("POD_UID", uid),
    ];
    let log = format!("dhcp-{node}");
    let process = world.cluster.spawn(node, "setpriv", &flags, &env, &log)?;
    process
        .ready(SOON, || async {
            let ready = world.get(node, "/readyz").await;
            Ok(ready.is_ok_and(|(code, _)| code == 200))
        })
        .await?;
    Ok(process)
}

/// The spec of a load balancer with a lease.
pub fn leased_spec() -> Value {
    with(vm_spec("web"), json!({"ipam": "dhcp"}))
}

/// Creates a load balancer with a lease.
pub async fn leased(world: &World, ns: &str, name: &str) -> anyhow::Result<LoadBalancer> {
    world.lb(ns, name, leased_spec()).await
}

/// The name of the record of a load balancer.
pub fn record_name(lb: &LoadBalancer) -> String {
    format!("dhcp-{}", lb.metadata.uid.clone().unwrap_or_default())
}

/// Waits until the record of a load balancer is as wanted.
pub async fn record_until(
    world: &World,
    lb: &LoadBalancer,
    what: &str,
    wanted: impl Fn(&IPAllocation) -> bool,
) -> anyhow::Result<IPAllocation> {
    let name = record_name(lb);
    eventually(&format!("record {name}: {what}"), SOON, || async {
        let found = world.records().get_opt(&name).await?;
        let found = found.context("there is none")?;
        ensure!(wanted(&found), "it is {:?}", found.spec);
        Ok(Some(found))
    })
    .await
}

/// Waits until the record is in a phase.
pub async fn phase(world: &World, lb: &LoadBalancer, phase: Phase) -> anyhow::Result<IPAllocation> {
    record_until(world, lb, &format!("{phase:?}"), |r| r.spec.phase == phase).await
}

/// Waits until the load balancer has a lease, and answers its address.
pub async fn bound(world: &World, lb: &LoadBalancer) -> anyhow::Result<Ipv4Addr> {
    address(&phase(world, lb, Phase::Bound).await?)
}

/// Waits until a lease is confirmed: it ends later than the given one. Its address stays meanwhile.
pub async fn confirmed(
    world: &World,
    lb: &LoadBalancer,
    before: &IPAllocation,
) -> anyhow::Result<()> {
    let is_kept = |record: &IPAllocation| {
        record.spec.phase == Phase::Bound && record.spec.address == before.spec.address
    };
    let record = record_until(world, lb, "confirmed", |record| {
        !is_kept(record) || lease(record).expires_at > lease(before).expires_at
    })
    .await?;
    ensure!(
        is_kept(&record),
        "{:?} after {:?}",
        record.spec,
        before.spec
    );
    Ok(())
}

/// The address of a record.
pub fn address(record: &IPAllocation) -> anyhow::Result<Ipv4Addr> {
    Ok(record.spec.address.parse()?)
}

/// The lease of a record.
pub fn lease(record: &IPAllocation) -> DhcpLease {
    record.spec.lease.clone().unwrap_or_default()
}

/// Waits until a load balancer has no record.
pub async fn no_record(world: &World, lb: &LoadBalancer) -> anyhow::Result<()> {
    let name = record_name(lb);
    eventually(&format!("no record {name}"), SOON, || async {
        let found = world.records().get_opt(&name).await?;
        ensure!(found.is_none(), "it is {:?}", found.map(|r| r.spec));
        Ok(Some(()))
    })
    .await
}

/// The addresses of a test's range that the server has as leased, each as often as it is there. The servers keep the leases of
/// earlier tests.
pub fn held(server: &Dhcp, range: &RangeInclusive<u8>) -> Vec<Ipv4Addr> {
    let mut held = server.held();
    held.retain(|address| (lan(*range.start())..=lan(*range.end())).contains(address));
    held
}

/// Waits until the server has no lease of an address.
pub async fn given_back(server: &Dhcp, address: Ipv4Addr) -> anyhow::Result<()> {
    eventually(&format!("{address} given back"), SOON, || async {
        ensure!(!server.held().contains(&address), "{}", server.leases());
        Ok(Some(()))
    })
    .await
}

/// dnsmasq with this range.
pub async fn dnsmasq(world: &World, range: &RangeInclusive<u8>) -> anyhow::Result<Dhcp> {
    Dhcp::dnsmasq(&world.cluster, lan(*range.start()), lan(*range.end())).await
}

/// The same with further flags.
pub async fn dnsmasq_with(
    world: &World,
    range: &RangeInclusive<u8>,
    flags: &[&str],
) -> anyhow::Result<Dhcp> {
    let (first, last) = (lan(*range.start()), lan(*range.end()));
    Dhcp::dnsmasq_with(&world.cluster, first, last, flags).await
}

/// Kea with this range, and leases that are renewed within seconds.
pub async fn kea(world: &World, range: &RangeInclusive<u8>) -> anyhow::Result<Dhcp> {
    let (first, last) = (lan(*range.start()), lan(*range.end()));
    Dhcp::kea(&world.cluster, first, last, SHORT).await
}

/// The same with leases of this lifetime, which are renewed after these seconds, T1 and T2.
pub async fn kea_renewed(
    world: &World,
    range: &RangeInclusive<u8>,
    lifetime: Duration,
    (t1, t2): (u8, u8),
) -> anyhow::Result<Dhcp> {
    let (first, last) = (lan(*range.start()), lan(*range.end()));
    let times = json!({"renew-timer": t1, "rebind-timer": t2});
    Dhcp::kea_with(&world.cluster, first, last, lifetime, &times).await
}

/// Lifetime of Kea's leases.
const SHORT: Duration = Duration::from_secs(16);

/// Lifetime of the leases of [`lasting`]: that of dnsmasq.
pub const LIFETIME: Duration = Duration::from_mins(2);

/// A server of a kind with this range, and leases that outlast a test; with the times of renewal in seconds, T1 and T2, or without.
pub async fn lasting(
    world: &World,
    kind: &str,
    range: &RangeInclusive<u8>,
    times: Option<(u8, u8)>,
) -> anyhow::Result<Dhcp> {
    if kind == "dnsmasq" {
        let flags = times.map(|(t1, t2)| {
            [("58", t1), ("59", t2)].map(|(option, time)| format!("--dhcp-option={option},{time}"))
        });
        let flags: Vec<&str> = flags.iter().flatten().map(String::as_str).collect();
        return dnsmasq_with(world, range, &flags).await;
    }
    if let Some(times) = times {
        return kea_renewed(world, range, LIFETIME, times).await;
    }
    let (first, last) = (lan(*range.start()), lan(*range.end()));
    Dhcp::kea(&world.cluster, first, last, LIFETIME).await
}

/// The kinds of servers.
pub const SERVERS: [&str; 2] = ["dnsmasq", "kea"];

/// How many kinds a test takes that is long: both in the soak.
pub fn kinds() -> usize {
    if soaks() { 2 } else { 1 }
}

/// A server of a kind with this range.
pub async fn server_of(
    world: &World,
    kind: &str,
    range: &RangeInclusive<u8>,
) -> anyhow::Result<Dhcp> {
    match kind {
        "kea" => kea(world, range).await,
        _ => dnsmasq(world, range).await,
    }
}

/// Namespace and name.
fn names(lb: &LoadBalancer) -> (&str, &str) {
    let (ns, name) = (&lb.metadata.namespace, &lb.metadata.name);
    let (ns, name) = (ns.as_deref(), name.as_deref());
    (ns.unwrap_or_default(), name.unwrap_or_default())
}

/// A Service as the operator makes it, with this address.
pub async fn serve(
    world: &World,
    lb: &LoadBalancer,
    address: &str,
    annotations: Value,
) -> anyhow::Result<()> {
    let (ns, name) = (&lb.metadata.namespace, &lb.metadata.name);
    let service: Service = serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": ns, "annotations": annotations,
            "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerIP": address,
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    }))?;
    let ns = ns.as_deref().unwrap_or_default();
    world
        .services(ns)
        .create(&PostParams::default(), &service)
        .await?;
    Ok(())
}

/// Deletes the Service of a load balancer.
pub async fn unserve(world: &World, lb: &LoadBalancer) -> anyhow::Result<()> {
    let (ns, name) = names(lb);
    world
        .services(ns)
        .delete(name, &DeleteParams::default())
        .await?;
    Ok(())
}

/// Deletes a load balancer.
pub async fn delete(world: &World, lb: &LoadBalancer) -> anyhow::Result<()> {
    let (ns, name) = names(lb);
    world.delete_lb(ns, name).await
}

/// Clients of the DHCP process on a node that are in a state.
pub async fn clients(world: &World, node: &str, state: &str) -> anyhow::Result<f64> {
    let figures = MetricsSnapshot::read(world, node).await?;
    Ok(figures.sum("harvester_lb_dhcp_clients", |series| {
        series.label("state") == state
    }))
}

/// Waits until so many clients of the DHCP process on a node are in a state.
pub async fn in_state(world: &World, node: &str, state: &str, count: u8) -> anyhow::Result<()> {
    let what = format!("{count} clients {state} on {node}");
    eventually(&what, SOON, || async {
        let found = clients(world, node, state).await?;
        ensure!(found + 0.5 > f64::from(count), "there are {found}");
        Ok(Some(()))
    })
    .await
}

/// A counter of the DHCP process.
pub async fn counter(world: &World, series: &str) -> anyhow::Result<f64> {
    let value = world.metric(NODE, series).await?;
    value.with_context(|| format!("no series {series}"))
}
