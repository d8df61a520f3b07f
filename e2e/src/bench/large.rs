//! 60,000 LoadBalancers in four pools: whether the cost of one grows with their number. Memory, start and creation, the
//! latter two compared with the same requests of a bare client at the same sizes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use harvester_lb_api::LoadBalancer;
use harvester_lb_testkit::Process;
use kube::Api;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;

use super::cluster::rounds;
use super::driver::{
    AS_SHIPPED, NAMESPACE, Watches, at_rest, clients, cluster_lb, create_lb, operator, pool,
    replay_record, replay_status, seen_within, spread,
};
use super::event_writer::{EventWriter, written};
use super::lists::lists;
use super::plane;
use super::pool_status::PoolStatus;
use super::report::{Report, Row, say};
use super::sample::Sample;
use super::scale::{POD, kill, looked_at, mib};
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::World;

const NODE: &str = "node1";
const POOLS: usize = 4;
/// Number of LoadBalancers, unless the environment variable is set.
const COUNT: usize = 60_000;
const COUNT_VARIABLE: &str = "HLB_BENCH_LARGE";
/// Rounds with a sixtieth of them.
const ROUNDS: usize = 3;
/// Starts with a sixth and with all, because single starts scatter.
const STARTS: usize = 3;
/// Timeout for creating all of them.
const LIMIT: Duration = Duration::from_mins(30);
/// Allocatable addresses of each pool.
const TOTAL: i64 = 65_533;

/// Seconds to create all, and of each start with a sixth and with all; Events and statuses of pools that were written for
/// each part.
#[derive(Debug, Default)]
struct Took {
    all: f64,
    start_some: Vec<f64>,
    start_all: Vec<f64>,
    events: [u64; 3],
    statuses: [u64; 3],
}

impl Took {
    /// Seconds of the starts after a part of the creation; `None` if there are none.
    fn starts(&mut self, part: usize) -> Option<&mut Vec<f64>> {
        match part {
            0 => None,
            1 => Some(&mut self.start_some),
            _ => Some(&mut self.start_all),
        }
    }

    /// Each start with all, in times of what it takes with a sixth.
    fn start_ratios(&self) -> Vec<f64> {
        let pairs = self.start_all.iter().zip(&self.start_some);
        pairs.map(|(all, some)| all / some / 6.0).collect()
    }
}

/// The rows. The operator and the bare client get a control plane without history each, as what is left of 60,000 objects
/// slows an API server down; that of the rounds with a sixtieth, where they alternate, is `world`.
pub(crate) async fn run(world: Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let count = match std::env::var(COUNT_VARIABLE) {
        Ok(text) => text.parse().context(COUNT_VARIABLE)?,
        Err(_) => COUNT,
    };
    let (some, some_bare) = rounds(&world, count / 60, ROUNDS, false).await?;
    let of_some = some.iter().zip(&some_bare);
    // Each ends before the next one starts.
    drop(world);
    let world = plane::fresh(false).await?;
    let (ours, rss, sample) = with_operator(&world, count).await?;
    say(&format!("  the operator: {ours:?}"));
    drop(world);
    let world = plane::fresh(false).await?;
    let bare = by_bare_client(&world, count, &ours, &sample).await?;
    say(&format!("  the bare client: {bare:?}"));
    drop(world);

    let name = |what: &str| format!("{count} cluster-type LBs in four pools: {what}");
    report.row(Row::one(&name("RSS"), "MiB", rss).at_most(350.0));
    report.row(
        Row::one(
            &name("creation over its replay, limit: of a sixtieth"),
            "x",
            ours.all / bare.all,
        )
        .limits(of_some.map(|(a, b)| a.create / b.create).collect())
        .at_most_times(1.2)
        .note(format!(
            "{:.0} s, the bare client {:.0} s",
            ours.all, bare.all
        )),
    );
    report.row(
        Row::of(
            &name("start for each, in times of what it takes with a sixth"),
            "",
            ours.start_ratios(),
        )
        .limits(bare.start_ratios())
        .at_most_times(1.2)
        .note(format!(
            "{} s with all; limit: lists of the same by a bare client",
            seconds(&ours.start_all)
        )),
    );
    Ok(())
}

fn seconds(all: &[f64]) -> String {
    let all: Vec<String> = all.iter().map(|s| format!("{s:.1}")).collect();
    all.join(", ")
}

/// The numbers of LoadBalancers after each part of the creation.
fn parts(count: usize) -> [usize; 3] {
    [count / 60, count / 6, count]
}

async fn pools(world: &World) -> anyhow::Result<()> {
    for number in 0..POOLS {
        let subnet = format!("10.{}.0.0/16", 60 + number);
        pool(world, &pool_name(number), &subnet).await?;
    }
    Ok(())
}

fn pool_name(number: usize) -> String {
    format!("large-{}", number % POOLS)
}

fn lb(number: usize) -> anyhow::Result<LoadBalancer> {
    let mut lb = cluster_lb(&format!("lb-{number}"))?;
    lb.spec.ip_pool = Some(pool_name(number));
    Ok(lb)
}

async fn with_operator(world: &Arc<World>, count: usize) -> anyhow::Result<(Took, f64, Sample)> {
    pools(world).await?;
    let env = [AS_SHIPPED, &[POD]].concat();
    let mut process: Arc<Process> = operator(world, NODE).await?;
    let mut took = Took::default();
    let mut made = 0;
    for (part, upto) in parts(count).into_iter().enumerate() {
        let before = MetricsSnapshot::read(world, NODE).await?;
        let started = Instant::now();
        let served = all_served(world, upto);
        let driver = clients(world).await?;
        spread(&driver, upto - made, move |client, number| async move {
            create_lb(&client, &lb(made + number)?).await.map(|_| ())
        })
        .await?;
        took.all += served.await??.duration_since(started).as_secs_f64();
        made = upto;
        at_rest(world, NODE).await?;
        let after = MetricsSnapshot::read(world, NODE).await?;
        took.events[part] = written(&after, &before);
        let writes = after.writes_since(&before);
        took.statuses[part] = writes.get("patch ippools").copied().unwrap_or_default();
        if let Some(starts) = took.starts(part) {
            // The first of these kills leaves a Lease of another pod.
            kill(&process).await?;
            process = world.spawn_operator(NODE, &[], &env)?;
            looked_at(world, NODE, made).await?;
            for _ in 0..STARTS {
                at_rest(world, NODE).await?;
                kill(&process).await?;
                let started = Instant::now();
                process = world.spawn_operator(NODE, &[], &env)?;
                looked_at(world, NODE, made).await?;
                starts.push(started.elapsed().as_secs_f64());
            }
            at_rest(world, NODE).await?;
        }
    }
    let rss = mib(&process)?;
    let sample = Sample::take(world, "lb-0").await?;
    process.end().await?;
    Ok((took, rss, sample))
}

/// Watches until this many LoadBalancers have an address; returns when the last of them was seen.
fn all_served(world: &World, count: usize) -> JoinHandle<anyhow::Result<Instant>> {
    let lbs: Api<LoadBalancer> = Api::namespaced(world.client(), NAMESPACE);
    seen_within(lbs, count, LIMIT, |lb| allocated(lb).is_some())
}

/// The same requests. The statuses of the pools are written as often as the operator wrote them in each part, evenly spread,
/// and once more after the last IPAllocation.
async fn by_bare_client(
    world: &Arc<World>,
    count: usize,
    ours: &Took,
    sample: &Sample,
) -> anyhow::Result<Took> {
    pools(world).await?;
    let mut statuses = Vec::new();
    for number in 0..POOLS {
        statuses.push(PoolStatus::first(world.client(), &pool_name(number), TOTAL).await?);
    }
    let statuses: Arc<[Arc<PoolStatus>]> = statuses.into();
    let watches = Watches::open(&world.client());
    let (driver, hands) = (clients(world).await?, clients(world).await?);
    let mut took = Took::default();
    let mut made = 0;
    for (part, upto) in parts(count).into_iter().enumerate() {
        for (number, status) in statuses.iter().enumerate() {
            let writes = usize::try_from(ours.statuses[part])?;
            status.expect((upto - made) / POOLS, (writes + number) / POOLS);
        }
        let started = Instant::now();
        let served = all_served(world, upto);
        let events = EventWriter::start(world.client(), ours.events[part]);
        let (sender, receiver) = unbounded_channel::<(usize, LoadBalancer)>();
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let making = spread(&driver, upto - made, move |client, number| {
            let sender = sender.clone();
            async move {
                let number = made + number;
                let _ = sender.send((number, create_lb(&client, &lb(number)?).await?));
                Ok(())
            }
        });
        let (sample, given) = (sample.clone(), events.sender());
        let of_pools = Arc::clone(&statuses);
        let handling = spread(&hands, upto - made, move |client, _| {
            let (receiver, sample) = (Arc::clone(&receiver), sample.clone());
            let (of_pools, given) = (Arc::clone(&of_pools), given.clone());
            async move {
                let made = receiver.lock().await.recv().await;
                let (number, lb) = made.context("the driver has ended")?;
                let (pool, rest) = (60 + number % POOLS, number / POOLS);
                let ip = format!("10.{pool}.{}.{}", 1 + rest / 250, 1 + rest % 250);
                replay_record(&client, &lb, &ip).await?;
                let name = lb.metadata.name.clone().unwrap_or_default();
                let version = lb.metadata.resource_version.as_deref();
                replay_status(&client, &name, version, sample.with(&ip)?).await?;
                of_pools[number % POOLS].bound(&ip, &format!("{NAMESPACE}/{name}"));
                let _ = given.send((lb, ip));
                Ok(())
            }
        });
        tokio::try_join!(making, handling)?;
        took.all += served.await??.duration_since(started).as_secs_f64();
        for status in statuses.iter() {
            status.last().await?;
        }
        took.statuses[part] = ours.statuses[part];
        events.end().await?;
        took.events[part] = ours.events[part];
        made = upto;
        if let Some(starts) = took.starts(part) {
            for _ in 0..STARTS {
                starts.push(lists(&world.client()).await?);
            }
        }
    }
    drop(watches);
    Ok(took)
}
