//! Start and orderly shutdown of the DHCP process: its watches, its Lease, one term of leadership after another.
//!
//! Only the leader has clients. At the end of a term, and of the process, nothing is given back: the next leader continues
//! with the recorded leases (DHC-2).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use harvester_lb_api::keys::DHCP_LEASE_NAME;
use harvester_lb_controller_kit::admin::{self, Readiness};
use harvester_lb_controller_kit::client::{self, Clients};
use harvester_lb_controller_kit::events::Events;
use harvester_lb_controller_kit::lease::{Candidate, End, Leadership};
use harvester_lb_controller_kit::watch;
use harvester_lb_controller_kit::writer::Writer;
use harvester_lb_core::cached;
use harvester_lb_core::dhcp::claim::{Interfaces, LbView, ServiceView};
use harvester_lb_core::dhcp::default_route;
use parking_lot::RwLock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::args::{Args, DhcpArgs};
use crate::dhcp::context::{Context, Process, Settings};
use crate::dhcp::index::{LeaseKey, RecordView, Stores};
use crate::dhcp::metrics::Metrics;
use crate::dhcp::permissions::REQUIRED;
use crate::dhcp::upkeep;
use crate::runtime::dhcp::current::Current;
use crate::runtime::{preflight, process_metrics, remarks, restore_check, signals};

mod clients;
mod current;

/// Concurrent reconciles. One mostly waits for the API server; after a start each of some thousand leases costs one read.
const WORKERS: usize = 16;
/// Where the kernel lists the routes of the process's network namespace.
const ROUTES: &str = "/proc/net/route";

/// Progress of the start, for `/readyz`.
struct Progress {
    missing: Arc<RwLock<Vec<String>>>,
    stores: Arc<Stores>,
    current: RwLock<Option<Arc<Current>>>,
}

impl Readiness for Progress {
    /// Ready once everything has been listed, on a standby too (OPS-1).
    fn waiting_for(&self) -> Vec<String> {
        let missing = self.missing.read();
        if !missing.is_empty() {
            return missing.clone();
        }
        let unsynced = self.stores.unsynced().into_iter();
        unsynced
            .map(|kind| format!("{kind} are being listed"))
            .collect()
    }

    fn remarks(&self) -> Vec<String> {
        let Some(ctx) = self.current.read().as_ref().map(|it| it.get()) else {
            return Vec::new();
        };
        remarks(&ctx.metrics.client.watches, &ctx.refused_writes.all())
    }
}

/// Runs the DHCP process until SIGTERM or SIGINT.
pub async fn run(args: &Args, dhcp: &DhcpArgs) -> anyhow::Result<()> {
    let host = nix::unistd::gethostname().context("cannot read the host name")?;
    let lease = dhcp
        .lease
        .settings(DHCP_LEASE_NAME, &host.to_string_lossy());
    lease.check().map_err(|why| anyhow!(why))?;
    let settings = settings(args, dhcp)?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = lease.identity,
        mode = ?settings.mode,
        interface = settings.interfaces.default,
        "DHCP process starting"
    );

    let stop = CancellationToken::new();
    tokio::spawn(signals(stop.clone()));
    let metrics = Arc::new(Metrics::new()?);
    let registry = metrics.registry();
    registry.register(Box::new(process_metrics::ProcessMetrics::new()?))?;
    let progress = Arc::new(Progress {
        missing: Arc::new(RwLock::new(vec![
            "kinds and permissions are being checked".to_owned(),
        ])),
        stores: Arc::default(),
        current: RwLock::default(),
    });
    let (listener, address) = admin::bind(dhcp.admin_address).await?;
    info!(%address, "admin port listening");
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    // The admin port stays up during the shutdown.
    let admin_stop = CancellationToken::new();
    tasks.spawn(admin::serve(
        listener,
        registry.clone(),
        Arc::clone(&progress) as Arc<dyn Readiness>,
        admin_stop.clone(),
    ));

    let clients = client::connect(Arc::new(metrics.client.clone())).await?;
    let pause = settings.timings.preflight_pause;
    let permitted = preflight(&clients.write, REQUIRED, &progress.missing, pause, &stop);
    if permitted.await.is_none() {
        return Ok(());
    }
    let (events, events_task) = Events::new(
        clients.write.clone(),
        DHCP_LEASE_NAME,
        lease.identity.clone(),
    );
    tasks.spawn(async {
        events_task.await;
        Ok(())
    });
    let process = Process {
        settings,
        stores: Arc::clone(&progress.stores),
        writer: Writer::new(clients.write.clone(), Arc::new(Leadership::default())),
        events: events.clone(),
        metrics: Arc::clone(&metrics),
    };
    let current = Arc::new(Current::new(&process));
    registry.register(Box::new(clients::ClientGauge::new(&current)?))?;
    *progress.current.write() = Some(Arc::clone(&current));
    spawn_watches(&current, &process, &clients, &mut tasks);
    let interval = process.settings.timings.restore_check;
    let records = Arc::clone(&process.stores.records);
    let check = restore_check::run(clients.write.clone(), records, interval);
    tasks.spawn(async move { Err(check.await.into()) });

    let mut candidate = Candidate::new(clients.write.clone(), lease);
    let outcome = tokio::select! {
        outcome = work(&current, &process, &mut candidate, &stop) => outcome,
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            other => Err(anyhow!("a task ended: {other:?}")),
        },
    };
    candidate.release().await;
    admin_stop.cancel();
    info!("ended");
    outcome
}

/// The settings of the flags. Without `--dhcp-interface` that of the default route counts.
fn settings(args: &Args, dhcp: &DhcpArgs) -> anyhow::Result<Settings> {
    let default = if let Some(interface) = &dhcp.dhcp_interface {
        interface.clone()
    } else {
        let routes =
            std::fs::read_to_string(ROUTES).with_context(|| format!("{ROUTES} cannot be read"))?;
        let interface = default_route::interface(&routes).context(
            "this host has no IPv4 default route: set --dhcp-interface to the interface of the leases",
        )?;
        interface.to_owned()
    };
    Ok(Settings {
        mode: args.mode(),
        interfaces: Interfaces {
            default,
            is_chosen: dhcp.dhcp_interface.is_some(),
            allowed: args.interfaces(),
        },
        limit: dhcp.dhcp_lease_limit,
        timings: args.timings(),
    })
}

fn spawn_watches(
    current: &Arc<Current>,
    process: &Process,
    clients: &Clients,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) {
    let mut numbers = 0..;
    macro_rules! watch {
        ($kind:literal, $store:ident, $convert:expr, $handler:ident) => {{
            let current = Arc::clone(current);
            let number = numbers.next().unwrap_or_default();
            let watching = watch::run(
                clients.watch.clone(),
                watch::config(number, process.settings.timings.watch, None),
                Arc::clone(&process.stores.$store),
                $convert,
                move |key, change| current.get().index.$handler(key, &change),
                process.metrics.client.watch($kind, None),
            );
            tasks.spawn(async move { Err(watching.await.into()) });
        }};
    }
    watch!(
        "LoadBalancer",
        lbs,
        |decoded| Some(LbView::from_watch(decoded)),
        lb_changed
    );
    watch!(
        "Service",
        services,
        |decoded| ServiceView::from_watch(&cached::service(decoded)?),
        service_changed
    );
    watch!(
        "IPAllocation",
        records,
        RecordView::from_watch,
        record_changed
    );
}

/// Waits for the stores, then runs one term after another until `stop` is cancelled (RUN-5).
async fn work(
    current: &Current,
    process: &Process,
    candidate: &mut Candidate,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    while !process.stores.unsynced().is_empty() {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
    info!("stores synced");
    loop {
        let acquired = candidate.acquire(current.leadership(), stop, || {});
        if acquired.await?.is_none() {
            return Ok(());
        }
        match lead(&current.get(), candidate, stop).await? {
            End::Stopped => return Ok(()),
            End::Lost => current.next_term(process),
        }
    }
}

/// One term.
///
/// # Errors
/// A task of this process ended unexpectedly.
async fn lead(
    ctx: &Arc<Context>,
    candidate: &mut Candidate,
    stop: &CancellationToken,
) -> anyhow::Result<End> {
    ctx.index.begin_term();
    ctx.metrics.leader.set(1);
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let ctx = Arc::clone(ctx);
        workers.spawn(async move {
            let ctx = &*ctx;
            let reconcile = |LeaseKey(owner)| async move { upkeep::reconcile(ctx, &owner).await };
            ctx.index.due.work(&ctx.metrics.reconciles, reconcile).await;
        });
    }
    let end = tokio::select! {
        end = candidate.hold(stop) => end?,
        ended = workers.join_next() => bail!("a worker ended: {ended:?}"),
    };
    // Requests in flight end; the Lease is still this process's if it was stopped.
    ctx.index.due.close();
    let finish = async { while workers.join_next().await.is_some() {} };
    let limit = ctx.settings.timings.drain_limit;
    if tokio::time::timeout(limit, finish).await.is_err() {
        warn!("API server does not answer, cancelling requests in flight");
        workers.shutdown().await;
    }
    ctx.ports.end().await;
    ctx.metrics.no_interfaces();
    ctx.metrics.leader.set(0);
    if end == End::Stopped {
        let written = ctx.notices.written();
        if tokio::time::timeout(ctx.settings.timings.events_limit, written)
            .await
            .is_err()
        {
            warn!("Event flush timed out; the records say the same");
        }
    }
    info!("term ended");
    Ok(end)
}
