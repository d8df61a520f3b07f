//! The DHCP process of a release: the Pods of its Deployment, on the network of the nodes, with the rights that the chart gives them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::Phase;
use harvester_lb_e2e::World;
use harvester_lb_e2e::leases::{
    EARLY, address, confirmed, delete, dnsmasq_with, given_back, held, no_record, phase,
};
use harvester_lb_fixtures::{quick_check, vm_spec, with};
use harvester_lb_testkit::{PodRunner, PodRunnerOptions, Traffic, eventually, lan};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::bare::bare;
use crate::helm::{NAMESPACE, RELEASE, chart, deploys, helm_does};
use crate::release::{
    REPOSITORY, SOON, TAG, WAIT, deployments, image, nodes, none_failed, serves, values,
};

/// Name of the Deployment.
const DHCP: &str = "harvester-lb-dhcp";
/// Name of the leader's Lease.
const LEASE: &str = "harvester-load-balancer-dhcp";
/// Namespace, load balancer and label of what is served.
const SERVED: &str = "chart-dhcp";
/// What the DHCP server leases.
const RANGE: RangeInclusive<u8> = 206..=209;
/// `dhcp.adminPort`.
const ADMIN_PORT: u16 = 8082;

/// The node whose Pod of the DHCP process has the Lease.
async fn leader(world: &World) -> anyhow::Result<String> {
    let leases: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    let spec = leases.get(LEASE).await?.spec;
    let holder = spec.and_then(|s| s.holder_identity).unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/name={DHCP}"));
    let list = pods.list(&ours).await?;
    let is_holder = |pod: &&Pod| pod.uid().is_some_and(|uid| holder.ends_with(&uid));
    let pod = list.iter().find(is_holder);
    let pod = pod.with_context(|| format!("{holder:?} is none of the Pods"))?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    node.context("it is on no node")
}

/// Waits until there is a Pod of the DHCP process on each node, which is ready.
async fn runs_on_both(world: &World) -> anyhow::Result<()> {
    eventually("a DHCP process on each node", SOON, || async {
        let found = deployments(world).get(DHCP).await?;
        let status = found.status.unwrap_or_default();
        ensure!(status.available_replicas == Some(2), "{status:?}");
        let nodes = nodes(world, DHCP).await?;
        let both = BTreeSet::from(["node1".to_owned(), "node2".to_owned()]);
        ensure!(nodes == both, "{nodes:?}");
        Ok(Some(()))
    })
    .await
}

/// The admin port is not on the interfaces of the hosts.
fn is_for_the_host_alone(world: &World, host: Ipv4Addr) -> anyhow::Result<()> {
    let address = SocketAddr::from((host, ADMIN_PORT));
    let client = world.cluster.netns("client")?;
    let opened = client.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)))?;
    let error = opened.err().with_context(|| format!("{address} is open"))?;
    ensure!(error.kind() == ErrorKind::ConnectionRefused, "{error}");
    Ok(())
}

pub async fn chart_leases_by_a_process_of_its_own(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    let runner = PodRunner::start(&world.cluster, PodRunnerOptions::default()).await?;
    runner.add_image(&format!("{REPOSITORY}:{TAG}"), image(&world)?);
    let lived = life(&world, &runner).await;
    runner.stop().await;
    lived
}

async fn life(world: &World, runner: &PodRunner) -> anyhow::Result<()> {
    let ns = SERVED;
    let builtin = values(json!({"dhcpMode": "builtin", "dhcp": {"enabled": true}}));
    deploys(world, "install", &chart(), &builtin, &WAIT).await?;
    serves(world, 2).await?;
    runs_on_both(world).await?;
    for host in [lan(11), lan(12)] {
        is_for_the_host_alone(world, host)?;
    }

    let server = dnsmasq_with(world, &RANGE, &[EARLY]).await?;
    world.namespace(ns).await?;
    let _vm = world.vm(ns, "d1", &[("app", ns)], 8080).await?;
    let spec = json!({"ipam": "dhcp", "healthCheck": quick_check()});
    let lb = world.lb(ns, ns, with(vm_spec(ns), spec)).await?;
    world.lb_reason(ns, ns, "Ready").await?;
    let record = phase(world, &lb, Phase::Bound).await?;
    let vip: Ipv4Addr = address(&record)?;
    ensure!(held(&server, &RANGE) == [vip], "{}", server.leases());
    world.answered_by(vip, 80, &["d1"]).await?;

    // The other one takes over, and renews.
    let traffic = Traffic::start(&world.cluster, vip, 80, Duration::from_millis(50));
    let first = leader(world).await?;
    runner.drain(&first, SOON).await?;
    eventually("the other one leads", SOON, || async {
        let now = leader(world).await?;
        ensure!(now != first, "it is still the one on {now}");
        Ok(Some(()))
    })
    .await?;
    let before = phase(world, &lb, Phase::Bound).await?;
    confirmed(world, &lb, &before).await?;
    ensure!(held(&server, &RANGE) == [vip], "{}", server.leases());
    runner.uncordon(&first).await?;
    serves(world, 2).await?;
    runs_on_both(world).await?;
    none_failed(traffic).await?;

    delete(world, &lb).await?;
    no_record(world, &lb).await?;
    given_back(&server, vip).await?;
    ensure!(held(&server, &RANGE).is_empty(), "{}", server.leases());
    helm_does(world, &["uninstall", RELEASE, WAIT[0], WAIT[1]]).await?;
    let gone = deployments(world).get_opt(DHCP).await?;
    ensure!(gone.is_none(), "the Deployment is still there");
    let kinds = "serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";
    let all = ["get", kinds, "-o=name", "--all-namespaces"];
    let all = world.cluster.kubectl(&all).await?;
    ensure!(!all.contains("harvester-lb"), "{all}");
    Ok(())
}
