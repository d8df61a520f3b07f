//! A fault run: one operator behind one proxy, with one fault after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::audit::audit;
use harvester_lb_e2e::lives::{create, member};
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::lines;
use harvester_lb_e2e::stage::{NODE, Stage};
use harvester_lb_e2e::world::PATIENT_LEASE;
use harvester_lb_testkit::proxy::{Fault, Frequency, Match, Proxy, Rule};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::churn::{Churn, GROUP};
use super::gauge::{Gauge, Readiness};

/// Everything must be consistent this long after the end of the faults.
const LIMIT: Duration = Duration::from_secs(10);
/// Pause between two polls.
const LOOK: Duration = Duration::from_millis(200);
/// Lines of the operator's log that tell why not.
const TOLD: usize = 120;
/// Time of churn before the faults begin, so that some work is half done at that moment.
const RUN_UP: Duration = Duration::from_millis(500);

/// An operator behind a proxy.
pub struct FaultRun {
    stage: Stage,
    pub proxy: Proxy,
    readiness: Readiness,
    rounds: AtomicUsize,
}

impl FaultRun {
    /// Creates the setup and waits until everything is idle.
    pub async fn open(world: &Arc<World>, ns: &'static str) -> anyhow::Result<Self> {
        let proxy = Proxy::start(&world.cluster).await?;
        let kubeconfig = proxy.kubeconfig("admin")?;
        let kubeconfig = kubeconfig.to_str().context("the path is no text")?;
        let stage = Stage::set(world, ns, &PATIENT_LEASE, &[("KUBECONFIG", kubeconfig)]).await?;
        // The second member causes the change of the port names (SHR-4), so that those of the churn join without its pauses.
        for number in 0..2 {
            let member = member(GROUP, number, true);
            create(&world.lbs(ns), &member).await?;
            world.lb_reason(ns, &member.name, "Ready").await?;
        }
        let readiness = Readiness::start(&world.client(), ns);
        Ok(Self {
            stage,
            proxy,
            readiness,
            rounds: AtomicUsize::new(0),
        })
    }

    /// Runs faults that are rules. Watches are cut at the beginning, so that the rules apply to them too.
    pub async fn endure(
        &self,
        name: &str,
        time: Duration,
        faults: Vec<(Match, Frequency, Fault)>,
    ) -> anyhow::Result<()> {
        let begins = |proxy: &Proxy| -> Vec<Rule> {
            let rules = faults.into_iter();
            let rules =
                rules.map(|(matching, frequency, fault)| proxy.rule(matching, frequency, fault));
            let rules = rules.collect();
            proxy.cut_watches(&Match::any());
            rules
        };
        self.endure_with(name, time, begins, |_, rules| {
            rules.iter().map(Rule::hits).sum()
        })
        .await
    }

    /// Runs the faults between `begins` and `ends` for the given time, with churn. Then everything must be consistent
    /// within ten seconds, and health checks must not have been affected. `ends` returns the number of requests that
    /// were hit.
    pub async fn endure_with<T>(
        &self,
        name: &str,
        time: Duration,
        begins: impl FnOnce(&Proxy) -> T,
        ends: impl FnOnce(&Proxy, T) -> u64,
    ) -> anyhow::Result<()> {
        let world = &self.stage.world;
        let operator = self.stage.operator.process().await;
        let mut gauge = Gauge::begin(world, &operator).await?;
        let round = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        let churn = Churn::start(world, self.stage.ns, round);
        sleep(RUN_UP).await;
        let faults = begins(&self.proxy);
        let until = Instant::now() + time;
        while Instant::now() < until {
            sleep(LOOK).await;
            gauge.look().await?;
        }
        let work = churn.end().await?;
        let hits = ends(&self.proxy, faults);
        let health = Instant::now();
        let took = self
            .converged(&mut gauge, health)
            .await
            .with_context(|| format!("after {name}"))?;
        let seen = gauge.end().await.with_context(|| name.to_owned())?;
        ensure!(hits > 0, "{name}: no request was hit");
        self.readiness
            .unchanged()
            .await
            .with_context(|| name.to_owned())?;
        ensure!(
            self.stage.operator.restarts() == 0,
            "{name}: the operator ended"
        );
        eprintln!("  {name}: all well after {took:.1?}; {hits} requests hit, {work}; {seen}");
        Ok(())
    }

    /// Waits until everything is consistent: the operator is leader and idle, and the audit has no findings. Only a
    /// pool's status may be behind because of its pause (POOL-3).
    async fn converged(&self, gauge: &mut Gauge, since: Instant) -> anyhow::Result<Duration> {
        let world = &self.stage.world;
        loop {
            gauge.look().await?;
            let what = if idle(world).await {
                let mut report = audit(world).await?;
                report.findings.retain(|finding| !finding.is_of_a_pool());
                let well = report.findings.is_empty() && report.waiting.is_empty();
                if well && idle(world).await {
                    return Ok(since.elapsed());
                }
                format!("{:#?} {:?}", lines(&report), report.waiting)
            } else {
                "the operator is not idle".to_owned()
            };
            if since.elapsed() > LIMIT {
                let told = self.stage.operator.process().await.last_lines(TOLD);
                bail!("all is not well within {LIMIT:?}: {what}; the operator's log:\n{told}");
            }
            sleep(LOOK / 2).await;
        }
    }

    /// Checks once more that everything is consistent, including the pool's status, and that no address was ever
    /// allocated twice.
    pub async fn close(self) -> anyhow::Result<()> {
        // The status of an edited pool is written at once, so that the test need not wait for the pause (POOL-3).
        let world = &self.stage.world;
        let edit = json!({"spec": {"selector": {"priority": 1}}});
        world.merge(&world.pools(), self.stage.ns, edit).await?;
        let (_, restarts) = self.stage.judge().await?;
        ensure!(restarts == 0, "the operator ended");
        Ok(())
    }
}

async fn idle(world: &World) -> bool {
    let figures = MetricsSnapshot::read(world, NODE).await;
    figures.is_ok_and(|f| f.is_leader() && f.idle())
}
