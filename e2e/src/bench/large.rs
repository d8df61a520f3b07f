//! 60,000 LoadBalancers in four pools: whether the cost of one grows with their number. Memory, start and creation, the
//! latter two compared with the same requests of a bare client at the same sizes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use harvester_lb_api::LoadBalancer;
use harvester_lb_testkit::Process;
use kube::Api;
use tokio::sync::mpsc::unbounded_channel;

use super::cluster::rounds;
use super::driver::{
    AS_SHIPPED, NAMESPACE, Watches, at_rest, clean, clients, cluster_lb, create_lb, operator, pool,
    replay_record, replay_status, seen_within, spread,
};
use super::event_writer::{EventWriter, written};
use super::lists::lists;
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
/// Timeout for creating all of them.
const LIMIT: Duration = Duration::from_mins(30);

/// Seconds to create all, and to start with a sixth and with all; Events that were written for each part.
#[derive(Debug, Default)]
struct Took {
    all: f64,
    start_some: f64,
    start_all: f64,
    events: [u64; 3],
}

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let count = match std::env::var(COUNT_VARIABLE) {
        Ok(text) => text.parse().context(COUNT_VARIABLE)?,
        Err(_) => COUNT,
    };
    let (some, some_bare) = rounds(world, count / 60, ROUNDS, false).await?;
    let of_some = some.iter().zip(&some_bare);
    pools(world).await?;
    let (ours, rss, sample) = with_operator(world, count).await?;
    say(&format!("  the operator: {ours:?}"));
    clean(world).await?;
    let bare = by_bare_client(world, count, &ours, &sample).await?;
    say(&format!("  the bare client: {bare:?}"));
    clean(world).await?;

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
    let start = |took: &Took| took.start_all / took.start_some / 6.0;
    report.row(
        Row::one(
            &name("start for each, in times of what it takes with a sixth"),
            "",
            start(&ours),
        )
        .limits(vec![start(&bare)])
        .at_most_times(1.2)
        .note(format!(
            "{:.1} s with all; limit: lists of the same by a bare client",
            ours.start_all
        )),
    );
    Ok(())
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
    let env = [AS_SHIPPED, &[POD]].concat();
    let mut process: Arc<Process> = operator(world, NODE).await?;
    let mut took = Took::default();
    let mut made = 0;
    for (part, upto) in parts(count).into_iter().enumerate() {
        let before = MetricsSnapshot::read(world, NODE).await?;
        let started = Instant::now();
        let lbs: Api<LoadBalancer> = Api::namespaced(world.client(), NAMESPACE);
        let served = seen_within(lbs, upto, LIMIT, |lb| allocated(lb).is_some());
        let driver = clients(world).await?;
        spread(&driver, upto - made, move |client, number| async move {
            create_lb(&client, &lb(made + number)?).await.map(|_| ())
        })
        .await?;
        took.all += served.await??.duration_since(started).as_secs_f64();
        made = upto;
        at_rest(world, NODE).await?;
        took.events[part] = written(&MetricsSnapshot::read(world, NODE).await?, &before);
        if upto > count / 60 {
            // The first of these kills leaves a Lease of another pod.
            kill(&process).await?;
            let before = world.spawn_operator(NODE, &[], &env)?;
            looked_at(world, NODE, made).await?;
            at_rest(world, NODE).await?;
            kill(&before).await?;
            let started = Instant::now();
            let again = world.spawn_operator(NODE, &[], &env)?;
            looked_at(world, NODE, made).await?;
            let seconds = started.elapsed().as_secs_f64();
            if upto == count {
                took.start_all = seconds;
            } else {
                took.start_some = seconds;
            }
            at_rest(world, NODE).await?;
            process = again;
        }
    }
    let rss = mib(&process)?;
    let sample = Sample::take(world, "lb-0").await?;
    process.end().await?;
    Ok((took, rss, sample))
}

async fn by_bare_client(
    world: &Arc<World>,
    count: usize,
    ours: &Took,
    sample: &Sample,
) -> anyhow::Result<Took> {
    pools(world).await?;
    let watches = Watches::open(&world.client());
    let (driver, hands) = (clients(world).await?, clients(world).await?);
    let mut took = Took::default();
    let mut made = 0;
    for (part, upto) in parts(count).into_iter().enumerate() {
        let started = Instant::now();
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
        let handling = spread(&hands, upto - made, move |client, _| {
            let (receiver, sample) = (Arc::clone(&receiver), sample.clone());
            let given = given.clone();
            async move {
                let made = receiver.lock().await.recv().await;
                let (number, lb) = made.context("the driver has ended")?;
                let (pool, rest) = (60 + number % POOLS, number / POOLS);
                let ip = format!("10.{pool}.{}.{}", 1 + rest / 250, 1 + rest % 250);
                replay_record(&client, &lb, &ip).await?;
                let name = lb.metadata.name.clone().unwrap_or_default();
                let version = lb.metadata.resource_version.as_deref();
                replay_status(&client, &name, version, sample.with(&ip)?).await?;
                let _ = given.send((lb, ip));
                Ok(())
            }
        });
        tokio::try_join!(making, handling)?;
        took.all += started.elapsed().as_secs_f64();
        events.end().await?;
        made = upto;
        let listed = lists(&world.client()).await?;
        if upto == count {
            took.start_all = listed;
        } else {
            took.start_some = listed;
        }
    }
    drop(watches);
    Ok(took)
}
