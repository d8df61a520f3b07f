//! Owns the tour: requests, a virtual machine that fails and recovers, metrics, IPAllocations, deletion.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::{Stream, StreamExt, TryStreamExt};
use harvester_lb_api::ipallocation::Phase;
use harvester_lb_e2e::read::endpoints;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::{Record, Traffic, Vm, eventually};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::scene::{BACKEND_PORT, NAME, NAMESPACE, NODE, POOL, PORT, Scene, show};
use crate::screen::{Screen, seconds};

/// Requests of one measurement of the distribution.
const REQUESTS: usize = 300;
/// Longest time to detect a failed machine: two consecutive checks with a second between, and a margin.
const DETECTION: Duration = Duration::from_secs(10);
/// Time after the write of the EndpointSlice from which no request may fail: kube-proxy writes its rules once a second.
const KUBE_PROXY_DELAY: Duration = Duration::from_secs(2);
/// Time for which requests are observed after that.
const WATCHED: Duration = Duration::from_secs(3);
/// Time between two requests of the client.
const INTERVAL: Duration = Duration::from_millis(20);

/// Shows what a LoadBalancer does, to its end.
pub(crate) async fn run(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    let [_, vm, ..] = &scene.vms[..] else {
        bail!("there is no second machine");
    };
    spread(screen, scene).await.context("requests")?;
    fail(screen, scene, vm).await.context("a failing machine")?;
    come_back(screen, scene, vm)
        .await
        .context("a machine that comes back")?;
    figures(screen, scene).await.context("metrics")?;
    records(screen, scene).await.context("records")?;
    deletion(screen, scene).await.context("deletion")?;
    ensure!(scene.operator.is_running(), "the operator has ended");
    Ok(())
}

async fn spread(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    screen.step("Requests through the load balancer");
    screen.say(&format!(
        "{REQUESTS} requests from the client to {}:{PORT}, by the machine that answered:",
        scene.vip
    ));
    let answers = all_answered(scene).await?;
    screen.bars(&scene.names(), &answers);
    for name in scene.names() {
        let count = answers.get(name).copied().unwrap_or(0);
        // A third each, at random; a deviation of half of that is more than chance.
        ensure!(
            count > REQUESTS / 6,
            "{name} answered {count} of {REQUESTS} requests"
        );
    }
    screen.proven(format!(
        "{REQUESTS} requests are spread over {} machines, none failed",
        scene.vms.len()
    ));
    Ok(())
}

async fn all_answered(scene: &Scene) -> anyhow::Result<BTreeMap<String, usize>> {
    let tally = scene.burst(REQUESTS).await;
    if let Some(failure) = tally.failures.first() {
        let count = tally.failures.len();
        bail!("{count} of {REQUESTS} requests failed: {}", failure.error);
    }
    Ok(tally.by_body)
}

async fn fail(screen: &mut Screen, scene: &Scene, vm: &Vm) -> anyhow::Result<()> {
    let name = vm.name();
    screen.step(&format!("{name} stops answering"));
    screen.say(&format!(
        "The client goes on, a request every {} ms. The program on {name} is ended.",
        INTERVAL.as_millis()
    ));
    screen.say("Health checks: every second, a machine is out after two failures in a row.");
    let address = vm.address().to_string();
    let mut slices = pin!(changes(scene).await?);
    let traffic = Traffic::start(&scene.world.cluster, scene.vip, PORT, INTERVAL);
    sleep(Duration::from_secs(1)).await;
    let closed = Instant::now();
    vm.close(BACKEND_PORT).await;
    let written = until(&mut slices, &format!("{name} is not ready"), |slice| {
        endpoints(slice, false).contains(&&*address)
    })
    .await?;
    sleep_until(written + KUBE_PROXY_DELAY + WATCHED).await;
    let records = traffic.stop().await;

    let effective_at = written + KUBE_PROXY_DELAY;
    let (before, after): (Vec<&Record>, Vec<&Record>) =
        records.iter().partition(|r| r.at < effective_at);
    let failed = |all: &[&Record]| all.iter().filter(|r| r.outcome.is_err()).count();
    let last = before.iter().rfind(|r| r.outcome.is_err());
    let last = last.map_or_else(
        || "none".to_owned(),
        |r| {
            let gone_on = r.at.saturating_duration_since(written);
            format!("{} after the write", seconds(gone_on))
        },
    );
    screen.block(&format!(
        "detected and written to the EndpointSlice   after {}\n\
         requests sent up to 2 s after the write     {}, failed: {}\n\
         the last one that failed                    {last}\n\
         requests sent from 2 s after the write      {}, failed: {}",
        seconds(written - closed),
        before.len(),
        failed(&before),
        after.len(),
        failed(&after),
    ));
    ensure!(after.len() > 20, "only {} requests were sent", after.len());
    if let Some(late) = after.iter().find(|r| r.outcome.is_err()) {
        let at = seconds(late.at - written);
        bail!("a request failed {at} after the write: {:?}", late.outcome);
    }
    show(
        screen,
        &scene.world,
        &[
            "get",
            "endpointslice",
            NAME,
            "-o",
            "custom-columns=MACHINES:.endpoints[*].targetRef.name,READY:.endpoints[*].conditions.ready",
        ],
    )
    .await?;
    let answers = all_answered(scene).await?;
    screen.bars(&scene.names(), &answers);
    ensure!(!answers.contains_key(name), "{name} still gets requests");
    screen.proven(format!(
        "a failed machine was out after {}; from 2 s after the write no request failed",
        seconds(written - closed)
    ));
    Ok(())
}

async fn come_back(screen: &mut Screen, scene: &Scene, vm: &Vm) -> anyhow::Result<()> {
    let name = vm.name();
    screen.step(&format!("{name} answers again"));
    let address = vm.address().to_string();
    let mut slices = pin!(changes(scene).await?);
    let opened = Instant::now();
    vm.listen(BACKEND_PORT)?;
    let written = until(&mut slices, &format!("{name} is ready"), |slice| {
        endpoints(slice, true).contains(&&*address)
    })
    .await?;
    scene.reached(&scene.names()).await?;
    screen.bars(&scene.names(), &all_answered(scene).await?);
    screen.proven(format!(
        "a machine that answers again was back after {}",
        seconds(written - opened)
    ));
    Ok(())
}

/// Collects the changes of the LoadBalancer's EndpointSlice from now on.
async fn changes(
    scene: &Scene,
) -> anyhow::Result<impl Stream<Item = kube::Result<WatchEvent<EndpointSlice>>>> {
    let slices = scene.world.slices(NAMESPACE);
    let now = slices.get(NAME).await?.metadata.resource_version;
    let only = WatchParams::default().fields(&format!("metadata.name={NAME}"));
    Ok(slices.watch(&only, &now.unwrap_or_default()).await?.boxed())
}

/// Waits until `wanted` holds for the EndpointSlice; returns when that was seen.
async fn until(
    changes: &mut (impl Stream<Item = kube::Result<WatchEvent<EndpointSlice>>> + Unpin),
    what: &str,
    wanted: impl Fn(&EndpointSlice) -> bool,
) -> anyhow::Result<Instant> {
    let seen = async {
        while let Some(event) = changes.try_next().await? {
            if let WatchEvent::Modified(slice) = event
                && wanted(&slice)
            {
                return Ok(Instant::now());
            }
        }
        bail!("the watch of the EndpointSlice ended")
    };
    timeout(DETECTION, seen)
        .await
        .with_context(|| format!("EndpointSlice {NAME}: {what}: not within {DETECTION:?}"))?
}

async fn figures(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    screen.step("The operator's metrics");
    let (code, text) = scene.world.get(NODE, "/metrics").await?;
    ensure!(code == 200, "the answer is {code}");
    let families = [
        "ippool_addresses{",
        "load_balancers{",
        "backends{",
        "backend_up{",
        "probes_total{",
        "leader ",
    ];
    let shown: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| {
            families.iter().any(|family| {
                line.strip_prefix("harvester_lb_")
                    .is_some_and(|rest| rest.starts_with(family))
            })
        })
        .filter_map(|line| line.rsplit_once(' '))
        // Results that no health check has had yet.
        .filter(|(name, value)| !(name.contains("probes_total") && *value == "0"))
        .collect();
    let width = shown.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = shown
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value:>6}"))
        .collect();
    screen.command(
        "curl http://<node>:8081/metrics | grep ...",
        &lines.join("\n"),
    );
    let up = shown
        .iter()
        .filter(|(name, value)| name.contains("backend_up{") && *value == "1")
        .count();
    ensure!(
        up == scene.vms.len(),
        "the metrics have {up} backends that are up"
    );
    screen.proven("the metrics name each backend, and that all are up");
    scraped(screen, scene).await
}

/// What Prometheus has scraped so far.
async fn scraped(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for query in [
        "harvester_lb_load_balancer_ready",
        "min_over_time(harvester_lb_backends{state=\"ready\"}[5m])",
        "sum(increase(harvester_lb_probe_verdict_changes_total[5m]))",
    ] {
        let values = scene.prometheus.query(query).await?;
        let (_, value) = values
            .first()
            .with_context(|| format!("Prometheus has no value of {query}"))?;
        lines.push(format!("{query}  {value:.0}"));
    }
    screen.command("the same, by queries to Prometheus", &lines.join("\n"));
    let ready = scene
        .prometheus
        .query("harvester_lb_load_balancer_ready == 1");
    ensure!(
        !ready.await?.is_empty(),
        "Prometheus has no ready load balancer"
    );
    screen.proven("Prometheus scrapes the operator and evaluates the alerts of docs/metrics.md");
    Ok(())
}

async fn records(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    screen.step("The pool and its records");
    let vip = scene.vip.to_string();
    let pool = scene
        .world
        .pool_until(POOL, "the address in its map", |pool| {
            let held = pool.status.as_ref().and_then(|s| s.allocated.as_ref());
            held.is_some_and(|map| map.contains_key(&vip))
        })
        .await?;
    show_pool(screen, scene).await?;
    show(screen, &scene.world, &["get", "ipalloc"]).await?;
    let status = pool.status.unwrap_or_default();
    ensure!(
        (status.total, status.available) == (10, 9),
        "of {} addresses {} are free",
        status.total,
        status.available
    );
    let record = scene.world.records().get(&vip).await?.spec;
    ensure!(
        record.phase == Phase::Bound && record.owner.name == NAME,
        "the record is {record:?}"
    );
    screen.proven(format!("{vip} has a record of its own, Bound to {NAME}"));
    Ok(())
}

async fn show_pool(screen: &Screen, scene: &Scene) -> anyhow::Result<()> {
    let columns = "custom-columns=POOL:.metadata.name,TOTAL:.status.total,AVAILABLE:.status.available,HELD:.status.allocated,HISTORY:.status.allocatedHistory";
    show(
        screen,
        &scene.world,
        &["get", "ippool", POOL, "-o", columns],
    )
    .await
}

async fn deletion(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    screen.step("The load balancer is deleted");
    let world = &scene.world;
    let vip = scene.vip.to_string();
    let began = Instant::now();
    world.delete_lb(NAMESPACE, NAME).await?;
    world.gone(&world.lbs(NAMESPACE), NAME).await?;
    world.gone(&world.services(NAMESPACE), NAME).await?;
    world.gone(&world.slices(NAMESPACE), NAME).await?;
    screen.proven(format!(
        "Service and EndpointSlice are gone {} after the deletion",
        seconds(began.elapsed())
    ));
    eventually(&format!("record {vip}: phase Released"), SOON, || async {
        let record = world.records().get(&vip).await?.spec;
        ensure!(record.phase == Phase::Released, "it is {:?}", record.phase);
        Ok(Some(()))
    })
    .await?;
    world
        .pool_until(POOL, "all addresses available", |pool| {
            pool.status.as_ref().is_some_and(|s| s.available == s.total)
        })
        .await?;
    show(screen, world, &["get", "ipalloc"]).await?;
    show_pool(screen, scene).await?;
    screen.proven(format!(
        "the record of {vip} is Released, and the pool has all addresses again"
    ));
    eventually(&format!("{vip} does not answer"), SOON, || async {
        let answer = world.cluster.client_get(scene.vip, PORT).await;
        Ok(answer.is_err().then_some(()))
    })
    .await?;
    screen.proven(format!("{vip} answers no more"));
    Ok(())
}
