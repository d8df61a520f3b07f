//! Backends that fail, come, go and change under traffic, and an operator that is killed meanwhile. Once is enough: what
//! kube-proxy and kube-vip make of it is in [`crate::vips`].

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, condition};
use harvester_lb_e2e::read::endpoints;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_testkit::{Traffic, eventually};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

use crate::operator::{restarted, shared};
use crate::vips::{answered_by, released, serve, silent, vm_spec};

/// All tests.
pub fn all() -> Vec<Test> {
    tests![
        a_listener_dies_and_comes_back,
        be_3_machines_come_go_and_change,
        hc_3_a_killed_operator_is_not_missed,
        rel_3_a_deleted_load_balancer_stops_serving,
        hc_6_what_connect_itself_answers_changes_no_verdict,
    ]
}

/// The endpoint of a machine.
fn endpoint(slice: &EndpointSlice, name: &str) -> Option<Endpoint> {
    let named = |e: &&Endpoint| e.target_ref.as_ref().and_then(|t| t.name.as_deref()) == Some(name);
    slice.endpoints.iter().find(named).cloned()
}

/// Waits for status and message of the condition BackendsHealthy.
async fn health_is(world: &World, ns: &str, status: &str, message: &str) -> anyhow::Result<()> {
    let what = format!("BackendsHealthy is {status}: {message}");
    let is_so = |lb: &LoadBalancer| {
        let status_of_lb = lb.status.as_ref();
        let all = status_of_lb.and_then(|s| s.conditions.as_deref());
        let told = condition::find(all.unwrap_or_default(), "BackendsHealthy");
        told.is_some_and(|c| c.status == status && c.message.as_deref() == Some(message))
    };
    world.lb_until(ns, ns, &what, is_so).await.map(drop)
}

async fn a_listener_dies_and_comes_back(world: Arc<World>) -> anyhow::Result<()> {
    // kube-proxy's delay is measured.
    let _alone = restarted(&world).await?;
    let ns = "listener";
    let (vms, vip) = serve(&world, ns, 200, &["l1", "l2"]).await?;
    let traffic = Traffic::start(&world.cluster, vip, 80, Duration::from_millis(50));
    vms[0].close(8080).await;
    world
        .ready_endpoints(ns, ns, &[&vms[1].address().to_string()])
        .await?;
    let written = Instant::now();
    // kube-proxy writes its rules once a second, so failures may end up to two seconds after the write of the
    // EndpointSlice.
    let settled = written + Duration::from_secs(2);
    eventually("enough requests after the switch", SOON, || async {
        let after = traffic.records().iter().filter(|r| r.at > settled).count();
        Ok((after >= 20).then_some(()))
    })
    .await?;
    let late = traffic.failures_since(settled);
    ensure!(late.is_empty(), "failed from 2 s after the write: {late:?}");
    for record in traffic.records().into_iter().filter(|r| r.at > settled) {
        ensure!(
            record.outcome == Ok("l2".to_owned()),
            "answered by {:?}",
            record.outcome
        );
    }
    let out = "1 of 2; l1: connection refused";
    health_is(&world, ns, "False", out).await?;
    let told = format!("BackendUnhealthy: {out}");
    world.event(ns, "LoadBalancer", ns, &told).await?;
    vms[0].listen(8080)?;
    answered_by(&world, vip, &["l1", "l2"]).await?;
    traffic.stop().await;
    health_is(&world, ns, "True", "2 of 2").await?;
    let told = "BackendHealthy: 2 of 2";
    world.event(ns, "LoadBalancer", ns, told).await
}

async fn be_3_machines_come_go_and_change(world: Arc<World>) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "machines";
    let (vms, vip) = serve(&world, ns, 165, &["m1", "m2"]).await?;

    // A third one starts.
    let third = world.vm(ns, "m3", &[("app", ns)], 8080).await?;
    answered_by(&world, vip, &["m1", "m2", "m3"]).await?;

    // Relabelled, so that it no longer matches.
    let relabel = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    world.merge(&world.vmis(ns), "m1", relabel("other")).await?;
    answered_by(&world, vip, &["m2", "m3"]).await?;
    world.merge(&world.vmis(ns), "m1", relabel(ns)).await?;
    answered_by(&world, vip, &["m1", "m2", "m3"]).await?;

    // Migrated: uid and address stay, so its endpoint does. A later change that is observed proves that this one was.
    let before = world.slices(ns).get(ns).await?;
    let migrated = json!({"status": {"nodeName": "node2", "migrationState": {"completed": true}}});
    world.merge(&world.vmis(ns), "m2", migrated).await?;
    vms[0].set_address(Ipv4Addr::new(192, 168, 100, 190))?;
    let moved =
        json!({"status": {"interfaces": [{"name": "default", "ipAddress": "192.168.100.190"}]}});
    world.merge(&world.vmis(ns), "m1", moved).await?;
    let (m2, m3) = (vms[1].address().to_string(), third.address().to_string());
    let after = world
        .ready_endpoints(ns, ns, &["192.168.100.190", &m2, &m3])
        .await?;
    ensure!(
        endpoint(&before, "m2") == endpoint(&after, "m2"),
        "the migrated one is as it was"
    );
    answered_by(&world, vip, &["m1", "m2", "m3"]).await?;

    // Restarted: a new uid is a new endpoint.
    let old = world.vmis(ns).get("m3").await?.metadata.uid;
    world
        .vmis(ns)
        .delete("m3", &DeleteParams::default())
        .await?;
    answered_by(&world, vip, &["m1", "m2"]).await?;
    world
        .cluster
        .apply(&third.vmi_manifest(ns, &[("app", ns)]))
        .await?;
    answered_by(&world, vip, &["m1", "m2", "m3"]).await?;
    let slice = world.slices(ns).get(ns).await?;
    let uid = endpoint(&slice, "m3")
        .and_then(|e| e.target_ref)
        .and_then(|t| t.uid);
    ensure!(
        uid.is_some() && uid != old,
        "the endpoint names the new machine"
    );
    Ok(())
}

async fn hc_3_a_killed_operator_is_not_missed(world: Arc<World>) -> anyhow::Result<()> {
    let mut operator = restarted(&world).await?;
    let ns = "killed";
    let (_vms, vip) = serve(&world, ns, 175, &["k1", "k2"]).await?;
    let before = world.slices(ns).get(ns).await?;
    let traffic = Traffic::start(&world.cluster, vip, 80, Duration::from_millis(50));
    operator.restart(&world).await?;
    eventually("the new operator leads", SOON, || async {
        Ok((world.metric("node1", "harvester_lb_leader").await? == Some(1.0)).then_some(()))
    })
    .await?;
    // It has reconciled everything once it probes.
    eventually("the new operator probes", SOON, || async {
        let series = "harvester_lb_probes_total{result=\"success\"}";
        let probes = world.metric("node1", series).await?;
        Ok(probes.filter(|p| *p >= 4.0).map(|_| ()))
    })
    .await?;
    let after = world.slices(ns).get(ns).await?;
    ensure!(
        before.endpoints == after.endpoints,
        "the endpoints are as they were"
    );
    let failed = traffic.into_failures().await;
    ensure!(failed.is_empty(), "requests failed: {failed:?}");
    Ok(())
}

async fn rel_3_a_deleted_load_balancer_stops_serving(world: Arc<World>) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "deleted";
    let (_vms, vip) = serve(&world, ns, 180, &["x1"]).await?;
    world.delete_lb(ns, ns).await?;
    world.gone(&world.services(ns), ns).await?;
    world.gone(&world.slices(ns), ns).await?;
    silent(&world, vip, 80).await?;
    released(&world, vip).await?;
    // The LoadBalancer of that name gets it again.
    world.lb(ns, ns, vm_spec(ns, ns)).await?;
    ensure!(world.lb_address(ns, ns).await? == vip.to_string(), "ALC-2");
    answered_by(&world, vip, &["x1"]).await
}

/// The same error twice: from a route of this host, and from a missing ARP answer.
async fn hc_6_what_connect_itself_answers_changes_no_verdict(
    world: Arc<World>,
) -> anyhow::Result<()> {
    // Exclusive: it checks the sums over all targets.
    let _operator = restarted(&world).await?;
    let ns = "own-fault";
    let (vms, _vip) = serve(&world, ns, 245, &["o1"]).await?;
    let address = vms[0].address().to_string();
    let is = async |series: &str, what: &str, wanted: fn(f64) -> bool| {
        eventually(&format!("{series} is {what}"), SOON, || async {
            let now = world.metric("node1", series).await?.context("no series")?;
            ensure!(wanted(now), "it is {now}");
            Ok(Some(()))
        })
        .await
    };
    let unknown = "harvester_lb_probe_targets_unknown";
    let unreachable = "harvester_lb_probes_total{result=\"unreachable\"}";
    is(unreachable, "0", |n| n < 0.5).await?;

    world
        .cluster
        .ip("node1", &format!("route add unreachable {address}/32"))?;
    is(unknown, "1", |n| (0.5..1.5).contains(&n)).await?;
    let stale = "1 of 1; o1: its health checks cannot be started";
    health_is(&world, ns, "Unknown", stale).await?;
    is(
        "harvester_lb_probes_total{result=\"own_network\"}",
        "as many as would be failures, and more",
        |n| n >= 5.0,
    )
    .await?;
    let slice = world.slices(ns).get(ns).await?;
    ensure!(endpoints(&slice, true) == [&*address], "the verdict stays");
    is(unreachable, "0", |n| n < 0.5).await?;

    world
        .cluster
        .ip("node1", &format!("route del unreachable {address}/32"))?;
    is(unknown, "0", |n| n < 0.5).await?;
    health_is(&world, ns, "True", "1 of 1").await?;
    // ARP gives up after three seconds: within the timeout, so that its error ends the check.
    let patient = json!({"spec": {"healthCheck": {"timeoutSeconds": 8}}});
    world.merge(&world.lbs(ns), ns, patient).await?;
    vms[0].set_link(false)?;
    // Otherwise the kernel trusts for up to 45 s more what it knows of the neighbour, and does not ask.
    let forget = format!("neigh flush to {address}");
    world.cluster.ip("node1", &forget)?;
    world.ready_endpoints(ns, ns, &["10.52.0.255"]).await?;
    is(unreachable, "above 0", |n| n > 0.0).await?;
    is(unknown, "0", |n| n < 0.5).await?;
    health_is(&world, ns, "False", "0 of 1; o1: host unreachable").await
}
