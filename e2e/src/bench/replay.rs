//! The baseline of the rows about LoadBalancers of cluster type: the requests of the operator and of the driver, sent
//! by a bare client over the same number of connections, with the same watches open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use harvester_lb_api::{IPAllocation, LoadBalancer};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::driver::{
    NAMESPACE, Watches, address, clean, clients, cluster_lb, count_until, cpu_seconds, create_lb,
    delete_lb, pool, pool_says, replay_record, replay_release, replay_status, spread,
};
use super::event_writer::EventWriter;
use super::pool_status::PoolStatus;
use super::sample::Sample;
use super::took::Took;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::World;

/// Allocatable addresses of the pool.
const TOTAL: i64 = 65_533;
/// The time that an operator is idle before a measurement.
const REST: Duration = Duration::from_millis(2_500);

/// What the driver has done, for the workers to continue with.
type Done<T> = Arc<tokio::sync::Mutex<UnboundedReceiver<T>>>;

async fn next<T>(done: &Done<T>) -> anyhow::Result<T> {
    done.lock()
        .await
        .recv()
        .await
        .context("the driver has ended")
}

/// A bare client's connections, and the objects that it created.
struct Bare {
    driver: Vec<Client>,
    hands: Vec<Client>,
    status: Arc<PoolStatus>,
    /// By the name of the LoadBalancer.
    records: Arc<Mutex<HashMap<String, IPAllocation>>>,
    sample: Sample,
    events: u64,
}

/// Creates this number of LoadBalancers, and deletes them. The pool's status is written as often as the operator wrote
/// it in `like`, and the last time as soon as the last IPAllocation is written: it cannot be known earlier.
pub(crate) async fn replay(
    world: &Arc<World>,
    count: usize,
    delete: bool,
    like: &Took,
) -> anyhow::Result<Took> {
    pool(world, "bench", "10.60.0.0/16").await?;
    let bare = Bare {
        driver: clients(world).await?,
        hands: clients(world).await?,
        status: PoolStatus::first(world.client(), "bench", TOTAL).await?,
        records: Arc::default(),
        sample: like.sample.clone(),
        events: like.events,
    };
    let watches = Watches::open(&world.client());
    tokio::time::sleep(REST).await;
    let apiserver = world.cluster.process("kube-apiserver")?.pid();
    let mut took = Took::default();

    let cpu = cpu_seconds(apiserver)?;
    let served = count_until(&world.client(), count, |lb| allocated(lb).is_some());
    bare.status.expect(count, like.create_pool_writes);
    let started = Instant::now();
    let events = bare.make(world.client(), count).await?;
    took.create = served.await??.duration_since(started).as_secs_f64();
    bare.status.last().await?;
    took.create_cpu = cpu_seconds(apiserver)? - cpu;
    events.end().await?;
    tokio::time::sleep(REST).await;

    if delete {
        let cpu = cpu_seconds(apiserver)?;
        bare.status.expect(count, like.delete_pool_writes);
        // Seen in a watch, as with the operator.
        let free = pool_says(world, 0);
        let started = Instant::now();
        let last = bare.delete(count).await?;
        bare.status.last().await?;
        let free = free.await??;
        took.delete = free.duration_since(started).as_secs_f64();
        took.after_last = free.saturating_duration_since(last).as_secs_f64();
        took.delete_cpu = cpu_seconds(apiserver)? - cpu;
    }
    drop(watches);
    clean(world).await?;
    Ok(took)
}

impl Bare {
    /// The Events may still be written when it returns.
    async fn make(&self, client: Client, count: usize) -> anyhow::Result<EventWriter> {
        let events = EventWriter::start(client, self.events);
        let (sender, receiver) = unbounded_channel::<LoadBalancer>();
        let receiver: Done<LoadBalancer> = Arc::new(tokio::sync::Mutex::new(receiver));
        let making = spread(&self.driver, count, move |client, number| {
            let sender = sender.clone();
            async move {
                let lb = create_lb(&client, &cluster_lb(&format!("lb-{number}"))?).await?;
                let _ = sender.send(lb);
                Ok(())
            }
        });
        let (status, records) = (Arc::clone(&self.status), Arc::clone(&self.records));
        let (sample, given) = (self.sample.clone(), events.sender());
        let handling = spread(&self.hands, count, move |client, number| {
            let (receiver, sample) = (Arc::clone(&receiver), sample.clone());
            let given = given.clone();
            let (status, records) = (Arc::clone(&status), Arc::clone(&records));
            async move {
                let lb = next(&receiver).await?;
                let ip = address(number);
                let record = replay_record(&client, &lb, &ip).await?;
                let name = lb.metadata.name.clone().unwrap_or_default();
                let version = lb.metadata.resource_version.as_deref();
                replay_status(&client, &name, version, sample.with(&ip)?).await?;
                status.bound(&ip, &format!("{NAMESPACE}/{name}"));
                let _ = given.send((lb, ip));
                records.lock().insert(name, record);
                Ok(())
            }
        });
        tokio::try_join!(making, handling)?;
        Ok(events)
    }

    /// Returns when the last delete was answered.
    async fn delete(&self, count: usize) -> anyhow::Result<Instant> {
        let (sender, receiver) = unbounded_channel::<String>();
        let receiver: Done<String> = Arc::new(tokio::sync::Mutex::new(receiver));
        let deleting = async {
            spread(&self.driver, count, move |client, number| {
                let sender = sender.clone();
                async move {
                    let name = format!("lb-{number}");
                    delete_lb(&client, &name).await?;
                    let _ = sender.send(name);
                    Ok(())
                }
            })
            .await?;
            Ok(Instant::now())
        };
        let (status, records) = (Arc::clone(&self.status), Arc::clone(&self.records));
        let releasing = spread(&self.hands, count, move |client, _| {
            let receiver = Arc::clone(&receiver);
            let (status, records) = (Arc::clone(&status), Arc::clone(&records));
            async move {
                let name = next(&receiver).await?;
                let record = records.lock().remove(&name).context("no record")?;
                replay_release(&client, &record).await?;
                status.released(&record.spec.address);
                Ok(())
            }
        });
        let (last, _) = tokio::try_join!(deleting, releasing)?;
        Ok(last)
    }
}
