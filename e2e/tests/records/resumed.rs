//! A leader is stopped during a burst of work, the next one works on the same objects, and the first one is resumed
//! while the next still works; repeated with the roles swapped (section 1, IPA-5).
//!
//! `HLB_SEED`, `HLB_ROUNDS` and `HLB_SOAK` as in the crash tests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_audit::Report;
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::garbage;
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::lives::{Life, Step, below, live, member};
use harvester_lb_e2e::metrics_snapshot::{MetricsSnapshot, leader};
use harvester_lb_e2e::quiet::{audited_with_waiting, reset};
use harvester_lb_e2e::seeds::Rounds;
use harvester_lb_e2e::supervised::Supervised;
use harvester_lb_e2e::world::QUICK_LEASE;
use harvester_lb_fixtures::{cluster_spec, part, vm_spec, with};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::stage::{pool, set};

const NS: &str = "resumed";
const NODES: [&str; 2] = ["node1", "node2"];
/// The seed of the one round in the test: the next leader is still at work when the first one is resumed. Rounds in the
/// soak.
const TEST: u64 = 1;
const SOAK: u64 = 100;
/// Names of cluster type, and of VM type.
const CLUSTER: usize = 400;
const VM: usize = 24;
/// Groups that share an address, the even ones of VM type; their members.
const GROUPS: usize = 8;
const MEMBERS: u8 = 3;
/// Addresses: about as many as names at the end of a round, so that some wait in the middle and take freed ones.
const ADDRESSES: usize = 250;

/// The plan of a round, derived from its seed.
struct Round {
    /// Before the leader is stopped, and while it is.
    first: Vec<Life>,
    /// Once the next one is leader.
    second: Vec<Life>,
    /// From the beginning until the leader is stopped.
    stop: Duration,
    /// From the start of the next term until the first one is resumed.
    resume: Duration,
}

impl Round {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut lives = |within| {
            let alone = (0..CLUSTER + VM).map(|n| life(&mut rng, n, within));
            let mut lives = alone.collect::<Vec<_>>();
            for group in 0..GROUPS {
                lives.extend((0..MEMBERS).map(|n| member_life(&mut rng, (group, n), within)));
            }
            lives
        };
        Self {
            first: lives(300),
            second: lives(1_500),
            stop: Duration::from_millis(150) + below(&mut rng, 600),
            resume: below(&mut rng, 1_200),
        }
    }
}

fn life(rng: &mut fastrand::Rng, number: usize, within: u64) -> Life {
    let (kind, spec) = if number < CLUSTER {
        ('c', cluster_spec())
    } else {
        ('v', vm_spec("web"))
    };
    Life {
        name: format!("{kind}{number}"),
        spec: with(spec, json!({"ipPool": NS})),
        annotations: json!({}),
        steps: steps(rng, within),
    }
}

/// Of a member of a group; the first one has its name.
fn member_life(rng: &mut fastrand::Rng, (group, number): (usize, u8), within: u64) -> Life {
    let mut life = member(&format!("g{group}"), number, group.is_multiple_of(2));
    life.spec["ipPool"] = json!(NS);
    life.steps = steps(rng, within);
    life
}

fn steps(rng: &mut fastrand::Rng, within: u64) -> Vec<Step> {
    let begin = Step::Wait(below(rng, within));
    let soon = Step::Wait(below(rng, 300));
    match rng.u8(0..5) {
        0 | 1 => vec![begin, Step::Create],
        2 => vec![begin, Step::Delete],
        3 => vec![begin, Step::Create, soon, Step::Delete],
        _ => vec![begin, Step::Delete, soon, Step::Create],
    }
}

/// Totals of the rounds.
#[derive(Default)]
struct Sum {
    rounds: usize,
    made: usize,
    /// Length of the stopped operator's queue, minimum and maximum.
    queued: Vec<usize>,
    /// Writes of the next leader after the first one was resumed.
    late: u64,
}

pub async fn ipa_5_leaders_stopped_and_resumed_amid_their_work(
    world: Arc<World>,
) -> anyhow::Result<()> {
    set(&world, NS).await?;
    garbage::is_collected(&world).await?;
    let end = format!("10.75.0.{}", ADDRESSES + 1);
    let range = part("10.75.0.0/23", "10.75.0.2", &end);
    pool(&world, NS, &[range]).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(NS, "vm", labels, Some("10.81.0.1")).await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    let history = HistoryChecker::start(&world.client());
    // Both have the host name of this machine.
    let operators =
        NODES.map(|node| Ok((node, Supervised::start(&world, node, &QUICK_LEASE, &[])?)));
    let operators = operators.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let rounds = Rounds::from_env(TEST, SOAK);
    let mut sum = Sum::default();
    let mut outcome = Ok(());
    for seed in rounds.seeds() {
        let round = Round::new(seed);
        let played = play(&world, &operators, &history, round, &mut sum).await;
        outcome = played.with_context(|| format!("round {seed}; again: {}", rounds.again(seed)));
        if let Err(error) = &outcome {
            // Printed at once, although the test's result repeats it: the other tests may take hours.
            eprintln!("  WRONG in {error:#}");
            break;
        }
    }
    eprintln!(
        "resumed: {} runs from seed {}, {} load balancers made, {} addresses given, {:?} in the queue when stopped, {} writes of the next leader after the first one was back; found wrong: {}",
        sum.rounds,
        rounds.first,
        sum.made,
        history.given(),
        sum.queued,
        sum.late,
        u8::from(outcome.is_err())
    );
    outcome?;
    ensure!(
        sum.late > 0,
        "the next leader was never at work when the first one came back"
    );
    for (_, operator) in operators {
        operator.finish().await?;
    }
    reset(&world).await
}

async fn play(
    world: &Arc<World>,
    operators: &[(&'static str, Supervised)],
    history: &HistoryChecker,
    round: Round,
    sum: &mut Sum,
) -> anyhow::Result<()> {
    let old_node = leader(world, &NODES).await?;
    let of = |node: &str, is: bool| {
        let found = operators.iter().find(|(n, _)| (*n == node) == is);
        found.context("no operator")
    };
    let (_, supervised) = of(old_node, true)?;
    let (new_node, _) = of(old_node, false)?;
    let old = supervised.process().await;

    let first = begin(world, round.first);
    // The times are under test.
    tokio::time::sleep(round.stop).await;
    let queued = depth(&MetricsSnapshot::read(world, old_node).await?);
    old.stop()?;
    let stopped = Instant::now();
    leader(world, &[new_node]).await?;
    let led = stopped.elapsed();
    let second = begin(world, round.second);
    tokio::time::sleep(round.resume).await;
    let before = MetricsSnapshot::read(world, new_node).await?;
    old.cont()?;
    sum.made += first.await?? + second.await??;

    let (leads, found) = audited(world).await?;
    let findings = history.findings(world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    ensure!(
        supervised.restarts() == 0 && old.is_running(),
        "the one that was stopped ended"
    );
    let after = MetricsSnapshot::read(world, new_node).await?;
    let writes: u64 = after.writes_since(&before).values().sum();
    if leads != *new_node {
        eprintln!("  {new_node} has not renewed its Lease in time, {leads} leads again");
    }
    eprintln!(
        "  {old_node} stopped after {:.1?} with {queued} in its queue; {new_node} led {led:.1?} later, had {} in its queue when the other was resumed, and wrote {writes} times after that; {} held, {} waiting",
        round.stop,
        depth(&before),
        found.bound,
        found.waiting.len()
    );
    sum.rounds += 1;
    sum.queued.push(queued);
    sum.late += writes;
    Ok(())
}

/// Audits the objects with the figures of the one that leads at the end. On a busy machine a leader may not renew a Lease of 3 s in
/// time, and the other takes it over.
async fn audited(world: &World) -> anyhow::Result<(&'static str, Report)> {
    let leads = leader(world, &NODES).await?;
    let outcome = audited_with_waiting(world, leads, &[NS]).await;
    if outcome.is_err() {
        let now = leader(world, &NODES).await?;
        if now != leads {
            return Ok((now, audited_with_waiting(world, now, &[NS]).await?));
        }
    }
    Ok((leads, outcome?))
}

fn begin(world: &Arc<World>, lives: Vec<Life>) -> JoinHandle<anyhow::Result<usize>> {
    let world = Arc::clone(world);
    tokio::spawn(async move { live(&world, NS, lives).await })
}

/// Number of LoadBalancers that are due.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count"
)]
fn depth(figures: &MetricsSnapshot) -> usize {
    figures.sum("harvester_lb_queue_depth", |s| {
        s.label("kind") == "LoadBalancer"
    }) as usize
}
