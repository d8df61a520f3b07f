//! Leases of the DHCP process: what a thousand of them cost, how fast one is there, and whether kills change any.
//!
//! The server is Kea, on the same machine. Its leases are short, so that a round of renewals is measured within minutes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt, pin_mut};
use harvester_lb_api::{IPAllocation, LoadBalancer, Phase};
use harvester_lb_fixtures::{vm_spec, with};
use harvester_lb_testkit::{Dhcp, Process, eventually};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::JoinHandle;

use super::driver::{
    AS_SHIPPED, LIMIT, NAMESPACE, at_rest, clients, cpu_seconds, create_lb, seen, spread,
};
use super::report::{Report, Row};
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::world::{SOON, World};

const NODE: &str = "node1";
/// The node of the operator.
const OPERATOR: &str = "node2";
const LEASES: usize = 1_000;
/// Leases of the process that is killed.
const FEW: usize = 20;
const KILLS: usize = 100;
/// Longest time from a start to a kill, in milliseconds. Within it the process becomes leader, and some clients ask.
const LONGEST_LIFE: u64 = 2_000;
/// Load balancers whose lease is timed, a few at a time.
const TIMED: usize = 300;
/// Duration of the ARP probe, in milliseconds.
const PROBE: f64 = 1_000.0;
/// Lifetime of a lease. It is renewed after half of it.
const LIFETIME: Duration = Duration::from_mins(4);
const SUBNET: &str = "10.77.0.0/16";
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 10);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 77, 9, 250);

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let subnet = json!({"subnet": SUBNET});
    let server = Dhcp::kea_with(&world.cluster, FIRST, LAST, LIFETIME, &subnet).await?;
    let process = start(world).await?;
    // Its start is over.
    tokio::time::sleep(LIFETIME / 24).await;
    let alone = process.rss_kib()?;
    create(world, 0, FEW).await?;
    let process = killed(world, report, &server, process).await?;
    create(world, FEW, LEASES).await?;
    held(world, report, &process, alone).await?;
    timed(world, report).await?;
    process.end().await
}

/// Starts the DHCP process as shipped.
async fn start(world: &World) -> anyhow::Result<Arc<Process>> {
    let flags = [
        "--dhcp-mode=builtin",
        "--dhcp-interface=eth0",
        "--admin-address=[::]:8081",
    ];
    let process = world.spawn_dhcp(NODE, &flags, AS_SHIPPED)?;
    process
        .ready(SOON, || async {
            let ready = world.get(NODE, "/readyz").await;
            Ok(ready.is_ok_and(|(code, _)| code == 200))
        })
        .await?;
    Ok(process)
}

fn lb(number: usize) -> anyhow::Result<LoadBalancer> {
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": NAMESPACE, "name": format!("lb-{number}")},
        "spec": with(vm_spec("none"), json!({"ipam": "dhcp"})),
    }))?)
}

fn is_bound(record: &IPAllocation) -> bool {
    record.spec.phase == Phase::Bound
}

/// Creates load balancers up to this number, and waits until all have a lease.
async fn create(world: &World, from: usize, to: usize) -> anyhow::Result<()> {
    let all = seen(world.records(), to, is_bound);
    spread(&clients(world).await?, to - from, move |client, number| async move {
        create_lb(&client, &lb(from + number)?).await.map(|_| ())
    })
    .await?;
    all.await??;
    Ok(())
}

/// The addresses of all leases that are bound, by the name of the record.
async fn addresses(world: &World) -> anyhow::Result<BTreeMap<String, String>> {
    let records = world.records().list(&ListParams::default()).await?;
    let bound = records.items.into_iter().filter(is_bound);
    Ok(bound
        .map(|record| {
            let name = record.metadata.name.unwrap_or_default();
            (name, record.spec.address)
        })
        .collect())
}

/// Kills the process again and again, at any time after its start.
async fn killed(
    world: &World,
    report: &mut Report,
    server: &Dhcp,
    process: Arc<Process>,
) -> anyhow::Result<Arc<Process>> {
    let before = addresses(world).await?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut process = process;
    let mut changed = 0_u32;
    for _ in 0..KILLS {
        process.kill9()?;
        process = start(world).await?;
        tokio::time::sleep(Duration::from_millis(random.u64(..LONGEST_LIFE))).await;
        let now = addresses(world).await?;
        let differ = before
            .iter()
            .filter(|(name, had)| now.get(*name) != Some(had));
        changed += u32::try_from(differ.count())?;
    }
    let all = eventually("all are confirmed", SOON, || async {
        let figures = MetricsSnapshot::read(world, NODE).await?;
        let renewed = figures.sum("harvester_lb_dhcp_lease_events_total", |series| {
            series.label("event") == "renewed"
        });
        ensure!(renewed + 0.5 > f64::from(u32::try_from(FEW)?), "{renewed}");
        Ok(Some(addresses(world).await?))
    })
    .await?;
    let differ = before
        .iter()
        .filter(|(name, had)| all.get(*name) != Some(had));
    changed += u32::try_from(differ.count())?;
    let at_server = server.held().len();
    ensure!(at_server == FEW, "the server has {at_server} leases");
    report.row(
        Row::one(
            "100 kills of the DHCP process with 20 leases: addresses lost or changed",
            "",
            changed.into(),
        )
        .at_most(0.0)
        .note(format!("the server has {at_server} leases afterwards")),
    );
    Ok(process)
}

/// What a thousand leases cost in one round of renewals.
async fn held(
    world: &World,
    report: &mut Report,
    process: &Process,
    alone: u64,
) -> anyhow::Result<()> {
    // What was done for the creation is done.
    tokio::time::sleep(LIFETIME / 24).await;
    let renewed = |figures: &MetricsSnapshot| {
        figures.sum("harvester_lb_dhcp_lease_events_total", |series| {
            series.label("event") == "renewed"
        })
    };
    let before = renewed(&MetricsSnapshot::read(world, NODE).await?);
    let (began, used) = (Instant::now(), cpu_seconds(process.pid())?);
    tokio::time::sleep(LIFETIME / 2).await;
    let used = cpu_seconds(process.pid())? - used;
    let took = began.elapsed().as_secs_f64();
    let renewals = renewed(&MetricsSnapshot::read(world, NODE).await?) - before;
    ensure!(
        renewals > 0.9 * f64::from(u32::try_from(LEASES)?),
        "{renewals} renewals"
    );
    report.row(
        Row::one(
            "1,000 leases of four minutes: CPU of the process, of one core",
            "%",
            used / took * 100.0,
        )
        .at_most(1.0)
        .note(format!("{renewals:.0} renewals in {took:.0} s")),
    );
    let more = process.rss_kib()?.saturating_sub(alone);
    report.row(
        Row::one(
            "... resident memory over that of the process without leases",
            "MiB",
            f64::from(u32::try_from(more)?) / 1_024.0,
        )
        .at_most(16.0)
        .note(format!("{alone} KiB without")),
    );
    Ok(())
}

/// When each object was seen as wanted for the first time, by the name of its load balancer.
struct Seen {
    at: Arc<Mutex<BTreeMap<String, Instant>>>,
    task: JoinHandle<()>,
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    /// Watches from now on. `wanted`: the load balancer of an object that is as wanted.
    fn watch<K>(api: Api<K>, wanted: impl Fn(K) -> Option<String> + Send + 'static) -> Self
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let at: Arc<Mutex<BTreeMap<String, Instant>>> = Arc::default();
        let known = Arc::clone(&at);
        let task = tokio::spawn(async move {
            let stream = watcher(api, watcher::Config::default());
            pin_mut!(stream);
            while let Some(event) = stream.next().await {
                if let Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event
                    && let Some(name) = wanted(object)
                {
                    known.lock().entry(name).or_insert_with(Instant::now);
                }
            }
        });
        Self { at, task }
    }

    /// Waits for one of them.
    async fn at(&self, name: &str) -> anyhow::Result<Instant> {
        eventually(&format!("lease of {name}"), LIMIT, || async {
            Ok(self.at.lock().get(name).copied())
        })
        .await
    }
}

/// Creates load balancers, four at a time, and takes the time until each is seen, in milliseconds; sorted.
async fn until_seen(world: &World, from: usize, seen: Seen) -> anyhow::Result<Vec<f64>> {
    let seen = Arc::new(seen);
    seen.at("lb-0").await?;
    let took: Arc<Mutex<Vec<f64>>> = Arc::default();
    let some: Vec<Client> = clients(world).await?.into_iter().take(4).collect();
    let all = Arc::clone(&took);
    spread(&some, TIMED, move |client, number| {
        let (all, seen) = (Arc::clone(&all), Arc::clone(&seen));
        async move {
            let lb = lb(from + number)?;
            let name = lb.metadata.name.clone().context("no name")?;
            let began = Instant::now();
            create_lb(&client, &lb).await?;
            let at = seen.at(&name).await?;
            let took = at.duration_since(began).as_secs_f64() * 1e3 - PROBE;
            all.lock().push(took);
            Ok(())
        }
    })
    .await?;
    let mut took = took.lock().clone();
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// How fast a lease is there, beside those of the other load balancers; then with an operator, until the Service
/// has it.
async fn timed(world: &World, report: &mut Report) -> anyhow::Result<()> {
    let note = "without the second of the ARP probe; the server's time included";
    let mut rows = |what: &str, took: Vec<f64>| {
        let slow = took.get(TIMED * 99 / 100 - 1).copied().unwrap_or(f64::NAN);
        report.row(Row::of(what, "ms", took).at_most(150.0).note(note));
        report.row(Row::one("... 99 of 100 within", "ms", slow).at_most(150.0));
    };
    let bound = Seen::watch(world.records(), |record| {
        is_bound(&record).then_some(record.spec.owner.name)
    });
    let took = until_seen(world, LEASES, bound).await?;
    rows("LB made beside 1,000 leases, until it has one", took);

    let mode = ["--dhcp-mode=builtin"];
    let operator = world
        .start_operator_with(OPERATOR, &mode, AS_SHIPPED)
        .await?;
    at_rest(world, OPERATOR).await?;
    let service = Seen::watch(world.services(NAMESPACE), |service| {
        service.spec?.load_balancer_ip.and(service.metadata.name)
    });
    let took = until_seen(world, LEASES + TIMED, service).await?;
    rows(
        "... with the operator, until its Service has the address",
        took,
    );
    operator.end().await
}
