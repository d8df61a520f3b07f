//! 60,000 LoadBalancers in four pools: whether the cost of one grows with their number. Memory, start and creation, the
//! latter two compared with the same requests of a bare client at the same sizes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use harvester_lb_api::LoadBalancer;
use harvester_lb_testkit::Process;
use kube::Api;
use tokio::sync::mpsc::unbounded_channel;

use super::driver::{
    AS_SHIPPED, NAMESPACE, Watches, at_rest, clean, clients, cluster_lb, create_lb, operator, pool,
    replay_record, replay_status, seen_within, spread,
};
use super::lists::lists;
use super::report::{Report, Row, say};
use super::sample::Sample;
use super::scale::{POD, kill, looked_at, mib};
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::World;

const NODE: &str = "node1";
const POOLS: usize = 4;
/// Number of LoadBalancers, unless the environment variable is set.
const COUNT: usize = 60_000;
const COUNT_VARIABLE: &str = "HLB_BENCH_LARGE";
/// Timeout for creating all of them.
const LIMIT: Duration = Duration::from_mins(30);

/// Seconds to create the first sixtieth and all, and to start with a sixth and with all.
#[derive(Debug, Default)]
struct Took {
    first: f64,
    all: f64,
    start_some: f64,
    start_all: f64,
}

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let count = match std::env::var(COUNT_VARIABLE) {
        Ok(text) => text.parse().context(COUNT_VARIABLE)?,
        Err(_) => COUNT,
    };
    for number in 0..POOLS {
        let subnet = format!("10.{}.0.0/16", 60 + number);
        pool(world, &pool_name(number), &subnet).await?;
    }
    let (ours, rss, sample) = with_operator(world, count).await?;
    say(&format!("  the operator: {ours:?}"));
    clean(world).await?;
    let bare = by_bare_client(world, count, &sample).await?;
    say(&format!("  the bare client: {bare:?}"));
    clean(world).await?;

    let name = |what: &str| format!("{count} cluster-type LBs in four pools: {what}");
    report.row(Row::one(&name("RSS"), "MiB", rss).at_most(350.0));
    let creation = |took: &Took| took.all / took.first / 60.0;
    report.row(
        Row::one(
            &name("creation of one, in times of what it takes while there are a sixtieth"),
            "",
            creation(&ours),
        )
        .limits(vec![creation(&bare)])
        .at_most_times(1.2)
        .note("limit: the same requests of a bare client"),
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
    for upto in [count / 60, count / 6, count] {
        let started = Instant::now();
        let lbs: Api<LoadBalancer> = Api::namespaced(world.client(), NAMESPACE);
        let served = seen_within(lbs, upto, LIMIT, |lb| allocated(lb).is_some());
        let driver = clients(world).await?;
        spread(&driver, upto - made, move |client, number| async move {
            create_lb(&client, &lb(made + number)?).await.map(|_| ())
        })
        .await?;
        let seconds = served.await??.duration_since(started).as_secs_f64();
        if made == 0 {
            took.first = seconds;
        }
        took.all += seconds;
        made = upto;
        at_rest(world, NODE).await?;
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

async fn by_bare_client(world: &Arc<World>, count: usize, sample: &Sample) -> anyhow::Result<Took> {
    for number in 0..POOLS {
        let subnet = format!("10.{}.0.0/16", 60 + number);
        pool(world, &pool_name(number), &subnet).await?;
    }
    let watches = Watches::open(&world.client());
    let (driver, hands) = (clients(world).await?, clients(world).await?);
    let mut took = Took::default();
    let mut made = 0;
    for upto in [count / 60, count / 6, count] {
        let started = Instant::now();
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
        let sample = sample.clone();
        let handling = spread(&hands, upto - made, move |client, _| {
            let (receiver, sample) = (Arc::clone(&receiver), sample.clone());
            async move {
                let made = receiver.lock().await.recv().await;
                let (number, lb) = made.context("the driver has ended")?;
                let (pool, rest) = (60 + number % POOLS, number / POOLS);
                let ip = format!("10.{pool}.{}.{}", 1 + rest / 250, 1 + rest % 250);
                replay_record(&client, &lb, &ip).await?;
                let name = lb.metadata.name.clone().unwrap_or_default();
                let version = lb.metadata.resource_version.as_deref();
                replay_status(&client, &name, version, sample.with(&ip)?).await?;
                Ok(())
            }
        });
        tokio::try_join!(making, handling)?;
        let seconds = started.elapsed().as_secs_f64();
        if made == 0 {
            took.first = seconds;
        }
        took.all += seconds;
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
