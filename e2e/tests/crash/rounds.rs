//! Repeatedly killed with SIGKILL during creates and deletes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::garbage;
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::lives::live;
use harvester_lb_e2e::metrics_snapshot::{MetricsSnapshot, leader};
use harvester_lb_e2e::quiet::{audited_with_waiting, reset};
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::seeds::Rounds;
use harvester_lb_e2e::supervised::Supervised;
use harvester_lb_e2e::world::QUICK_LEASE;
use harvester_lb_fixtures::{for_everybody, part, subnet};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::plan::{self, Mode, Round};

/// Rounds of each test in the soak.
const SOAK: u64 = 200;
const NODES: [&str; 2] = ["node1", "node2"];
/// In addition to those of a quick Lease.
const FLAGS: [&str; 3] = [
    "--threadiness=16",
    "--loglevel=info",
    "--backend-metrics-limit=0",
];

/// 507 addresses.
pub fn pool() -> Value {
    open(&[subnet("10.80.0.0/24"), subnet("10.80.1.0/24")])
}

/// A pool for all namespaces.
fn open(ranges: &[Value]) -> Value {
    json!({"ranges": ranges, "selector": for_everybody()})
}

pub async fn alc_8_killed_amid_creations_and_deletions(world: Arc<World>) -> anyhow::Result<()> {
    play_all(&world, Mode::Random).await
}

pub async fn alc_8_killed_amid_creations_undone_within_50_ms(
    world: Arc<World>,
) -> anyhow::Result<()> {
    play_all(&world, Mode::Brief).await
}

pub async fn alc_1_killed_amid_names_that_come_back_under_new_uids(
    world: Arc<World>,
) -> anyhow::Result<()> {
    play_all(&world, Mode::Again).await
}

/// Totals of the rounds of a test.
#[derive(Debug, Default)]
struct Sum {
    rounds: usize,
    kills: usize,
    made: usize,
    /// LoadBalancers that waited for a full pool at the end of a round, and number of rounds with such.
    waiting: usize,
    rounds_with_waiting: usize,
    worked: Duration,
    calmed: Duration,
}

struct Stage {
    world: Arc<World>,
    mode: Mode,
    history: HistoryChecker,
    sum: Sum,
    _fake_kube_vip: FakeKubeVip,
}

async fn play_all(world: &Arc<World>, mode: Mode) -> anyhow::Result<()> {
    let mut stage = Stage::set(world, mode).await?;
    let rounds = Rounds::from_env(mode.seed(), SOAK);
    let mut outcome = Ok(());
    for seed in rounds.seeds() {
        let round = plan::round(mode, seed);
        let played = stage.play(&round).await;
        outcome = played.with_context(|| format!("round {seed}; again: {}", rounds.again(seed)));
        if let Err(error) = &outcome {
            // Printed at once, although the test's result repeats it: the other tests may take hours.
            eprintln!("  WRONG in {error:#}");
            break;
        }
    }
    let sum = &stage.sum;
    eprintln!(
        "{}: {} runs from seed {}, {} kills, {} load balancers made, {} addresses given, {} waited at the end of {} runs; worked {:.0?}, calmed down in {:.0?}; found wrong: {}",
        mode.name(),
        sum.rounds,
        rounds.first,
        sum.kills,
        sum.made,
        stage.history.given(),
        sum.waiting,
        sum.rounds_with_waiting,
        sum.worked,
        sum.calmed,
        u8::from(outcome.is_err())
    );
    outcome?;
    reset(world).await
}

impl Stage {
    async fn set(world: &Arc<World>, mode: Mode) -> anyhow::Result<Self> {
        reset(world).await?;
        garbage::is_collected(world).await?;
        let ns = mode.name();
        world.namespace(ns).await?;
        let wide = open(&[subnet("10.80.0.0/22")]);
        world.pool(&format!("{ns}-wide"), wide).await?;
        let last = format!("10.82.0.{}", mode.tight() + 1);
        let tight = part("10.82.0.0/24", "10.82.0.2", &last);
        world.pool(&format!("{ns}-tight"), open(&[tight])).await?;
        world
            .fake_vmi(ns, "vm", json!({"app": "web"}), Some("10.81.0.1"))
            .await?;
        Ok(Self {
            world: Arc::clone(world),
            mode,
            history: HistoryChecker::start(&world.client()),
            sum: Sum::default(),
            _fake_kube_vip: FakeKubeVip::start(&world.client()),
        })
    }

    async fn play(&mut self, round: &Round) -> anyhow::Result<()> {
        let (world, ns) = (Arc::clone(&self.world), self.mode.name());
        let before = self.addresses().await?;
        let nodes = if round.standby {
            &NODES[..]
        } else {
            &NODES[..1]
        };
        let operators = operators(&world, nodes, round)?;
        let began = Instant::now();
        let work = {
            let (world, lives) = (Arc::clone(&world), round.lives.clone());
            tokio::spawn(async move { live(&world, ns, lives).await })
        };
        for (lived, downtime) in &round.kills {
            // The time of the kill is under test; there is no condition to wait for.
            tokio::time::sleep(*lived).await;
            let target = if is_leader(&world, NODES[1]).await {
                operators.last()
            } else {
                operators.first()
            };
            target.context("no operator")?.kill9(*downtime).await?;
        }
        self.sum.made += work.await??;
        let worked = began.elapsed();
        let over = Instant::now();
        let pools = ["wide", "tight"].map(|pool| format!("{ns}-{pool}"));
        let leader = leader(&world, nodes).await?;
        let found =
            audited_with_waiting(&world, leader, &pools.each_ref().map(String::as_str)).await?;
        let findings = self.history.findings(&world).await?;
        ensure!(findings.is_empty(), "{findings:#?}");
        // The same object has the same address.
        let after = self.addresses().await?;
        for (uid, (name, ip)) in &before {
            if let (Some(ip), Some((_, now))) = (ip, after.get(uid)) {
                ensure!(Some(ip) == now.as_ref(), "{name} had {ip}, now {now:?}");
            }
        }
        let calmed = over.elapsed();
        eprintln!(
            "  {} kills{}{}: {} load balancers, {} waiting, {} addresses held, {} remembered; worked {worked:.1?}, calmed down in {calmed:.1?}; ended by itself {} times",
            round.kills.len(),
            if round.standby { ", a standby" } else { "" },
            if round.same_pod { ", same pod" } else { "" },
            found.load_balancers,
            found.waiting.len(),
            found.bound,
            found.released,
            operators.iter().map(Supervised::restarts).sum::<usize>(),
        );
        for operator in operators {
            if round.orderly {
                let status = operator.end().await?;
                ensure!(status.success(), "after SIGTERM: {status}");
            } else {
                operator.finish().await?;
            }
        }
        self.sum.rounds += 1;
        self.sum.kills += round.kills.len();
        self.sum.waiting += found.waiting.len();
        self.sum.rounds_with_waiting += usize::from(!found.waiting.is_empty());
        self.sum.worked += worked;
        self.sum.calmed += calmed;
        Ok(())
    }

    /// Name and address of each load balancer, by uid. Not of those that share an address or request one: theirs may change.
    async fn addresses(&self) -> anyhow::Result<BTreeMap<String, (String, Option<String>)>> {
        let all = self.world.lbs(self.mode.name());
        let all = all.list(&ListParams::default()).await?;
        let plain = all.iter().filter(|lb| lb.annotations().is_empty());
        let addresses = plain.map(|lb| {
            let uid = lb.uid().unwrap_or_default();
            (uid, (lb.name_any(), allocated(lb)))
        });
        Ok(addresses.collect())
    }
}

/// Starts one operator on each node.
fn operators(world: &Arc<World>, nodes: &[&str], round: &Round) -> anyhow::Result<Vec<Supervised>> {
    let flags = [&QUICK_LEASE[..], &FLAGS].concat();
    let start = |node: &&str| {
        let env: &[(&str, &str)] = if round.same_pod {
            &[("POD_UID", node)]
        } else {
            &[]
        };
        Supervised::start(world, node, &flags, env)
    };
    nodes.iter().map(start).collect()
}

/// Whether the operator on a node is leader, as far as known without waiting.
async fn is_leader(world: &World, node: &str) -> bool {
    MetricsSnapshot::read(world, node)
        .await
        .is_ok_and(|f| f.is_leader())
}
