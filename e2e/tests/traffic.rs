//! Real traffic: clients in a network of their own reach virtual machines through kube-vip and kube-proxy.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::world::{SOON, allocated, endpoints, ready};
use harvester_lb_e2e::{World, run, tests};
use harvester_lb_testkit::{BedOptions, Traffic, eventually};
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

fn main() -> ExitCode {
    run(
        BedOptions::default(),
        &[],
        4,
        |world| {
            Box::pin(async move {
                // The process lives as long as the bed.
                std::mem::forget(world.start_operator("node1").await?);
                Ok(())
            })
        },
        tests![a_listener_dies_and_comes_back,],
    )
}

fn vm_spec(pool: &str, app: &str) -> serde_json::Value {
    json!({
        "ipPool": pool,
        "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
        "backendServerSelector": {"app": [app]},
        "healthCheck": {
            "port": 8080, "successThreshold": 1, "failureThreshold": 2, "periodSeconds": 1, "timeoutSeconds": 1
        },
    })
}

/// The addresses 192.168.100.`from` to `to` for one test.
fn lan(from: u8, to: u8) -> serde_json::Value {
    json!({
        "subnet": "192.168.100.0/24", "gateway": "192.168.100.1",
        "rangeStart": format!("192.168.100.{from}"), "rangeEnd": format!("192.168.100.{to}"),
    })
}

/// Which machines answer, over 40 requests.
async fn answers(world: &World, vip: Ipv4Addr) -> anyhow::Result<BTreeSet<String>> {
    let tally = world.bed.client_burst(vip, 80, 40, 4).await;
    ensure!(
        tally.failures.is_empty(),
        "requests failed: {:?}",
        tally.failures
    );
    Ok(tally.by_body.into_keys().collect())
}

async fn answered_by(world: &World, vip: Ipv4Addr, names: &[&str]) -> anyhow::Result<()> {
    let wanted: BTreeSet<String> = names.iter().map(|n| (*n).to_owned()).collect();
    eventually(&format!("{vip} is answered by {names:?}"), SOON, || async {
        let seen = answers(world, vip).await?;
        ensure!(seen == wanted, "answered by {seen:?}");
        Ok(Some(()))
    })
    .await
}

async fn a_listener_dies_and_comes_back(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "listener";
    world.namespace(ns).await?;
    world.pool_for(ns, "listener", &[lan(200, 202)]).await?;
    let vm1 = world.vm(ns, "l1", &[("app", "l")], 8080).await?;
    let _vm2 = world.vm(ns, "l2", &[("app", "l")], 8080).await?;
    world.lb(ns, "web", vm_spec("listener", "l")).await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;
    let vip: Ipv4Addr = allocated(&lb).context("no address")?.parse()?;
    answered_by(&world, vip, &["l1", "l2"]).await?;

    let traffic = Traffic::start(&world.bed, vip, 80, Duration::from_millis(50));
    vm1.close(8080).await;
    let l2 = _vm2.address().to_string();
    world.ready_endpoints(ns, "web", &[&l2]).await?;
    let written = Instant::now();
    tokio::time::sleep_until(written + Duration::from_secs(4)).await;
    // kube-proxy writes its rules once a second.
    let late = traffic.failures_since(written + Duration::from_secs(2));
    ensure!(late.is_empty(), "failed from 2 s after the write: {late:?}");
    vm1.listen(8080)?;
    answered_by(&world, vip, &["l1", "l2"]).await?;
    traffic.stop().await;
    Ok(())
}
