//! What the faults must not affect: health checks and their verdicts, and the operator's memory.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use futures::{StreamExt, pin_mut};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::Steady;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::stage::{NODE, PROBED};
use harvester_lb_testkit::{Process, eventually};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Memory limit of the operator, in KiB. Without faults, with as many objects, it uses a fifth of it.
const MEMORY: u64 = 128 * 1024;

/// Longest time without a successful health check. There is one each second; a machine under load may delay some of
/// them, and the metrics are read only now and then.
const GAP: Duration = Duration::from_secs(6);

/// Reads the operator's metrics repeatedly.
pub struct Gauge {
    world: Arc<World>,
    operator: Arc<Process>,
    begun: Instant,
    before: Probes,
    last: Probes,
    last_change: Instant,
    /// Longest time without a successful health check.
    gap: Duration,
    memory: u64,
    peak: u64,
}

/// Counts of health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Probes {
    success: f64,
    refused: f64,
    other: f64,
    flips: f64,
}

impl Probes {
    async fn read(world: &World) -> anyhow::Result<Self> {
        let figures = MetricsSnapshot::read(world, NODE).await?;
        let with = |wanted: &dyn Fn(&str) -> bool| {
            figures.sum("harvester_lb_probes_total", |s| wanted(s.label("result")))
        };
        Ok(Self {
            success: with(&|r| r == "success"),
            refused: with(&|r| r == "refused"),
            other: with(&|r| r != "success" && r != "refused"),
            flips: figures.sum("harvester_lb_probe_verdict_changes_total", |_| true),
        })
    }
}

/// The observations.
pub struct Seen {
    probes: f64,
    gap: Duration,
    time: Duration,
    memory: [u64; 3],
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, peak, after] = self.memory.map(|kib| kib / 1024);
        write!(
            f,
            "{} health checks in {:.1?}, {:.1?} apart at most; memory {before} MiB before, {peak} at most, {after} after",
            self.probes, self.time, self.gap
        )
    }
}

impl Gauge {
    pub async fn begin(world: &Arc<World>, operator: &Arc<Process>) -> anyhow::Result<Self> {
        let (probes, memory, now) = (
            Probes::read(world).await?,
            operator.rss_kib()?,
            Instant::now(),
        );
        Ok(Self {
            world: Arc::clone(world),
            operator: Arc::clone(operator),
            begun: now,
            before: probes,
            last: probes,
            last_change: now,
            gap: Duration::ZERO,
            memory,
            peak: memory,
        })
    }

    /// Reads the metrics once.
    pub async fn look(&mut self) -> anyhow::Result<()> {
        let now = Probes::read(&self.world).await?;
        self.gap = self.gap.max(self.last_change.elapsed());
        if now.success > self.last.success {
            self.last_change = Instant::now();
        }
        self.last = now;
        let memory = self.operator.rss_kib()?;
        self.peak = self.peak.max(memory);
        Ok(())
    }

    /// Reads the metrics for the last time, and checks that nothing was affected.
    pub async fn end(mut self) -> anyhow::Result<Seen> {
        self.look().await?;
        let time = self.begun.elapsed();
        // One per second to each of the two backends.
        let wanted = time.as_secs_f64();
        let allowed = 0.8 * wanted - 2.0..1.2 * wanted + 2.0;
        for (what, count) in [
            ("succeeded", self.last.success - self.before.success),
            ("were refused", self.last.refused - self.before.refused),
        ] {
            ensure!(
                allowed.contains(&count),
                "{count} health checks {what} in {time:?}"
            );
        }
        ensure!(
            self.gap <= GAP,
            "no health check succeeded for {:.1?}",
            self.gap
        );
        ensure!(
            self.last.other <= self.before.other,
            "health checks with other results: {:?}, before {:?}",
            self.last,
            self.before
        );
        ensure!(
            self.last.flips <= self.before.flips,
            "a verdict changed: {:?}, before {:?}",
            self.last,
            self.before
        );
        let after = self.operator.rss_kib()?;
        ensure!(self.peak < MEMORY, "{} KiB of memory", self.peak);
        Ok(Seen {
            probes: self.last.success - self.before.success,
            gap: self.gap,
            time,
            memory: [self.memory, self.peak, after],
        })
    }
}

/// Addresses, and whether each is ready.
type Endpoints = Vec<(String, bool)>;

/// Watches the EndpointSlice of the probed LoadBalancer, and records its endpoints.
pub struct Readiness {
    api: Api<EndpointSlice>,
    /// The recorded states, in order, without repetitions; `None`: it was deleted.
    recorded: Arc<Mutex<Vec<Option<Endpoints>>>>,
    task: JoinHandle<()>,
}

impl Drop for Readiness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Readiness {
    pub fn start(client: &Client, ns: &str) -> Self {
        let recorded: Arc<Mutex<Vec<_>>> = Arc::default();
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), ns);
        let task = tokio::spawn(follow(api.clone(), Arc::clone(&recorded)));
        Self {
            api,
            recorded,
            task,
        }
    }

    /// Checks that the endpoints have not changed: one ready, one not.
    pub async fn unchanged(&self) -> anyhow::Result<()> {
        let now = endpoints(&self.api.get(PROBED).await?);
        let mut ready: Vec<bool> = now.iter().map(|(_, ready)| *ready).collect();
        ready.sort_unstable();
        ensure!(ready == [false, true], "{now:?}");
        eventually(
            "the EndpointSlice has been seen",
            Duration::from_secs(10),
            || async {
                let recorded = self.recorded.lock();
                Ok((recorded.last() == Some(&Some(now.clone()))).then_some(()))
            },
        )
        .await?;
        let recorded = self.recorded.lock();
        ensure!(recorded.len() == 1, "the EndpointSlice said {recorded:#?}");
        Ok(())
    }
}

fn endpoints(slice: &EndpointSlice) -> Endpoints {
    let ready = |e: &k8s_openapi::api::discovery::v1::Endpoint| {
        e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true)
    };
    let all = slice.endpoints.iter();
    all.map(|e| (e.addresses.join(","), ready(e))).collect()
}

async fn follow(api: Api<EndpointSlice>, recorded: Arc<Mutex<Vec<Option<Endpoints>>>>) {
    let one = watcher::Config::default().fields(&format!("metadata.name={PROBED}"));
    let stream = watch(api, one).backoff(Steady);
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        let now = match event {
            Ok(Event::Apply(slice) | Event::InitApply(slice)) => Some(endpoints(&slice)),
            Ok(Event::Delete(_)) => None,
            _ => continue,
        };
        let mut recorded = recorded.lock();
        if recorded.last() != Some(&now) {
            recorded.push(now);
        }
    }
}
