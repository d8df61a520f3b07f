//! Addresses that must be reachable, and addresses that must not.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, Phase, condition};
use harvester_lb_e2e::read::{allocated, endpoints, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_fixtures::{self as fixtures, quick_check, with};
use harvester_lb_testkit::{Traffic, Vm, eventually};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

use crate::operator::{restarted, shared};

/// All tests.
pub fn all() -> Vec<Test> {
    tests![
        a_listener_dies_and_comes_back,
        eps_2_without_a_ready_backend_nothing_reaches_the_node,
        be_3_machines_come_go_and_change,
        rec_4_what_is_deleted_by_hand_comes_back,
        hc_3_a_killed_operator_is_not_missed,
        rel_3_a_deleted_load_balancer_stops_serving,
        rel_4_another_pool_another_address,
        shr_4_no_request_fails_while_others_join_and_leave,
        ports_of_both_protocols,
        hc_6_what_connect_itself_answers_changes_no_verdict,
    ]
}

fn vm_spec(pool: &str, app: &str) -> serde_json::Value {
    let more = json!({"ipPool": pool, "healthCheck": quick_check()});
    with(fixtures::vm_spec(app), more)
}

/// The addresses 192.168.100.`from` to `to` for one test, and for no example in docs/examples: pools do not overlap (PV-3).
fn lan(from: u8, to: u8) -> serde_json::Value {
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
async fn silent(world: &World, vip: Ipv4Addr, port: u16) -> anyhow::Result<()> {
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

async fn released(world: &World, address: Ipv4Addr) -> anyhow::Result<()> {
    eventually(&format!("{address} is released"), SOON, || async {
        let record = world.records().get(&address.to_string()).await?;
        Ok((record.spec.phase == Phase::Released).then_some(()))
    })
    .await
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

/// Three load balancers on one address. While others join, leave and fall out, no request to a port that none of that concerns
/// fails; and that the first one is deleted changes nothing for the rest (SHR-4, SHR-5).
async fn shr_4_no_request_fails_while_others_join_and_leave(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "share";
    let (_vms, vip) = serve(&world, ns, 185, &["s1"]).await?;
    let mut machines = Vec::new();
    for app in ["s2", "s3"] {
        machines.push(world.vm(ns, app, &[("app", app)], 8080).await?);
    }
    let joins = |name: &str, app: &str, port: u16| {
        let listeners = json!([fixtures::listener("own", "TCP", port.into(), 8080)]);
        let spec = with(vm_spec(ns, app), json!({ "listeners": listeners }));
        let primary = json!({ "loadbalancer.harvesterhci.io/primary-load-balancer": ns });
        let meta = json!({"namespace": ns, "name": name, "annotations": primary});
        world.lb_with(meta, spec)
    };
    let steady = Duration::from_millis(25);
    let first = Traffic::start(&world.cluster, vip, 80, steady);
    joins("share-b", "s2", 81).await?;
    world.lb_reason(ns, "share-b", "Ready").await?;
    world.answered_by(vip, 81, &["s2"]).await?;
    let second = Traffic::start(&world.cluster, vip, 81, steady);
    let uid = world.services(ns).get(ns).await?.metadata.uid;
    for round in 0..3 {
        joins("share-c", "s3", 82).await?;
        world.answered_by(vip, 82, &["s3"]).await?;
        // It wants a port of another one, and falls out.
        let taken = json!([fixtures::listener("own", "TCP", 81, 8080)]);
        let edit = json!({"spec": {"listeners": taken}});
        world.merge(&world.lbs(ns), "share-c", edit).await?;
        world.lb_reason(ns, "share-c", "PortConflict").await?;
        silent(&world, vip, 82).await?;
        world.delete_lb(ns, "share-c").await?;
        world.gone(&world.lbs(ns), "share-c").await?;
        ensure!(
            first.failures_since(Instant::now()).is_empty(),
            "round {round}"
        );
    }
    joins("share-c", "s3", 82).await?;
    world.answered_by(vip, 82, &["s3"]).await?;
    let failures = first.into_failures().await;
    ensure!(failures.is_empty(), "of the primary: {failures:?}");
    // The primary goes.
    let third = Traffic::start(&world.cluster, vip, 82, steady);
    world.delete_lb(ns, ns).await?;
    silent(&world, vip, 80).await?;
    world
        .lb_until(ns, "share-b", "it holds the address", |lb| {
            let status = lb.status.as_ref();
            let all = status.and_then(|s| s.conditions.as_deref());
            condition::find(all.unwrap_or_default(), "AddressShared")
                .is_some_and(|c| c.reason.as_deref() == Some("Holder"))
        })
        .await?;
    // The next holder goes too.
    let failures = second.into_failures().await;
    ensure!(failures.is_empty(), "of the second: {failures:?}");
    world.delete_lb(ns, "share-b").await?;
    silent(&world, vip, 81).await?;
    let failures = third.into_failures().await;
    ensure!(failures.is_empty(), "of the third: {failures:?}");
    let now = world.services(ns).get(ns).await?;
    ensure!(now.metadata.uid == uid, "another Service");
    // A namespace that is deleted takes everything with it.
    world.delete_lb(ns, "share-c").await?;
    silent(&world, vip, 82).await?;
    released(&world, vip).await
}
