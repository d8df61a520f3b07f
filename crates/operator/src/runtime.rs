//! Start and orderly shutdown of the controllers.
//!
//! There are two Tokio runtimes: one for watches, reconciles, the Lease and the admin port, another for health checks, so
//! that neither delays the other.

pub mod dhcp;
pub mod gauges;
pub mod leading;
pub mod process_metrics;
mod restore_check;
pub mod term;
pub mod webhook;
pub mod workers;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use harvester_lb_controller_kit::admin::{self, Readiness};
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::client::{self, Clients};
use harvester_lb_controller_kit::events::Events;
use harvester_lb_controller_kit::lease::{Candidate, End, Leadership};
use harvester_lb_controller_kit::preflight::{self, RequiredPermission};
use harvester_lb_controller_kit::telemetry;
use harvester_lb_controller_kit::watch;
use harvester_lb_controller_kit::watch_health::Watches;
use harvester_lb_controller_kit::writer::Writer;
use harvester_lb_core::cached::{self, Allocation, Lb, Pool, Vm, Vmi};
use harvester_lb_object::Key;
use harvester_lb_prober::{Prober, Settings, VerdictChanges};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parking_lot::RwLock;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::args::Args;
use crate::context;
use crate::index::Index;
use crate::index::stores::Stores;
use crate::metrics::{Metrics, ProbeMetrics};
use crate::permissions;
use crate::runtime::term::CurrentTerm;

/// Maximum number of objects that `/readyz` names; the metrics count all.
const REMARKS: usize = 20;

/// Starts logging and the main runtime, and runs a program on it.
pub fn block_on<T>(
    args: &Args,
    program: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    telemetry::init(&args.loglevel)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("main")
        .enable_all()
        .build()
        .context("the main runtime cannot be started")?;
    let outcome = runtime.block_on(program);
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Progress of the start, for `/readyz`.
#[derive(Default)]
struct Progress {
    missing: RwLock<Vec<String>>,
    current: RwLock<Option<Arc<CurrentTerm>>>,
}

impl Readiness for Progress {
    /// Ready once everything has been listed, on a standby too (OPS-1).
    fn waiting_for(&self) -> Vec<String> {
        let missing = self.missing.read();
        if !missing.is_empty() {
            return missing.clone();
        }
        match &*self.current.read() {
            None => vec!["kinds and permissions are being checked".to_owned()],
            Some(current) => current
                .context()
                .index
                .stores
                .unsynced()
                .into_iter()
                .map(|kind| format!("{kind} are being listed"))
                .collect(),
        }
    }

    /// The watches that are failing, and the first objects, by kind and name, that the API server refuses to write (RUN-1).
    fn remarks(&self) -> Vec<String> {
        let Some(ctx) = self.current.read().as_ref().map(|it| it.context()) else {
            return Vec::new();
        };
        remarks(&ctx.metrics.client.watches, &ctx.refused_writes.all())
    }
}

/// The watches that are failing (RUN-2), and the first objects, by kind and name, that the API server refuses to write (RUN-1), one a
/// line.
fn remarks(watches: &Watches, refused: &[(String, Key)]) -> Vec<String> {
    let mut lines = watches.failing();
    let first = refused.iter().take(REMARKS);
    lines.extend(first.map(|(kind, key)| format!("the API server refuses to write {kind} {key}")));
    if refused.len() > REMARKS {
        lines.push(format!("and {} more", refused.len() - REMARKS));
    }
    lines
}

/// Runs the controllers until SIGTERM or SIGINT.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let host = nix::unistd::gethostname().context("cannot read the host name")?;
    let lease = args.lease(&host.to_string_lossy());
    lease.check().map_err(|why| anyhow::anyhow!(why))?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = lease.identity,
        "starting"
    );

    let stop = CancellationToken::new();
    tokio::spawn(signals(stop.clone()));
    let metrics = Arc::new(Metrics::new()?);
    let progress = Arc::new(Progress::default());
    let (listener, address) = admin::bind(args.admin_address).await?;
    info!(%address, "admin port listening");
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    // The admin port stays up during the shutdown.
    let admin_stop = CancellationToken::new();
    tasks.spawn(admin::serve(
        listener,
        metrics.registry(),
        Arc::clone(&progress) as Arc<dyn Readiness>,
        admin_stop.clone(),
    ));

    let clients = client::connect(Arc::new(metrics.client.clone())).await?;
    let timings = args.timings();
    let (missing, pause) = (&progress.missing, timings.preflight_pause);
    let permitted = preflight(&clients.write, permissions::REQUIRED, missing, pause, &stop);
    if permitted.await.is_none() {
        return Ok(());
    }

    let (probe_runtime, prober, verdicts) = start_prober(&metrics)?;
    let (events, events_task) = Events::new(
        clients.write.clone(),
        harvester_lb_api::keys::MANAGER,
        lease.identity.clone(),
    );
    tasks.spawn(async {
        events_task.await;
        Ok(())
    });
    let leadership = Arc::new(Leadership::default());
    let index = Index::new(Stores::default(), prober.clone(), args.settings(), &timings);
    let ctx = context::Context::new(
        index,
        Writer::new(clients.write.clone(), Arc::clone(&leadership) as _),
        events.under(Arc::clone(&leadership) as _),
        prober.clone(),
        Arc::clone(&metrics),
        leadership,
        timings,
    );
    let current = Arc::new(CurrentTerm::new(ctx));
    let gauges = gauges::Gauges::new(&current, args.backend_metrics_limit)?;
    metrics.registry().register(Box::new(gauges))?;
    let process = process_metrics::ProcessMetrics::new()?;
    metrics.registry().register(Box::new(process))?;
    *progress.current.write() = Some(Arc::clone(&current));
    spawn_watches(&current, &clients, &mut tasks);
    let allocations = Arc::clone(&current.context().index.stores.allocations);
    let check = restore_check::run(clients.write.clone(), allocations, timings.restore_check);
    tasks.spawn(async move { Err(check.await.into()) });

    let mut candidate = Candidate::new(clients.write.clone(), lease);
    let outcome = tokio::select! {
        outcome = work(&current, args.workers(), verdicts, &mut candidate, &stop) => outcome,
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            other => Err(anyhow::anyhow!("a task ended: {other:?}")),
        },
    };
    prober.shutdown();
    candidate.release().await;
    admin_stop.cancel();
    probe_runtime.shutdown_background();
    outcome
}

/// Waits for the stores, then runs one leadership term after another until `stop` is cancelled (RUN-5). All work of a term
/// has ended before the Lease is requested again.
async fn work(
    current: &CurrentTerm,
    workers: usize,
    mut verdicts: VerdictChanges,
    candidate: &mut Candidate,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    while !current.context().index.stores.unsynced().is_empty() {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
    info!("stores synced");
    loop {
        let ctx = current.context();
        let another = || {
            if !ctx.prober.is_empty() {
                info!(
                    "another process is leader, health checks stopped and their verdicts dropped"
                );
            }
            ctx.prober.clear();
        };
        let term = Arc::clone(&ctx.leadership);
        if candidate.acquire(term, stop, another).await?.is_none() {
            return Ok(());
        }
        match leading::lead(&ctx, workers, &mut verdicts, candidate, stop).await? {
            End::Stopped => return Ok(()),
            End::Lost => current.next_term(),
        }
    }
}

/// Waits until kinds and permissions are there; reports in `lines` what is missing. `None`: stopped before.
async fn preflight(
    client: &Client,
    required: &[RequiredPermission<'_>],
    lines: &RwLock<Vec<String>>,
    pause: Duration,
    stop: &CancellationToken,
) -> Option<()> {
    let mut said = Vec::new();
    loop {
        match preflight::check(client, required).await {
            Ok(missing) if missing.is_empty() => {
                lines.write().clear();
                return Some(());
            }
            Ok(missing) => {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                if said != missing {
                    for what in &missing {
                        error!(what, "required kind or permission missing");
                    }
                    said.clone_from(&missing);
                }
                *lines.write() = missing;
            }
            Err(error) => {
                warn!(%error, "kinds and permissions not checked, will retry");
                *lines.write() = vec![error.to_string()];
            }
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Starts the prober on its own runtime, with limits that fit the process's file descriptor limit.
fn start_prober(metrics: &Arc<Metrics>) -> anyhow::Result<(Runtime, Prober, VerdictChanges)> {
    let files = raise_file_limit();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("probes")
        .enable_all()
        .build()
        .context("the prober's runtime cannot be started")?;
    let guard = runtime.enter();
    let (prober, verdicts) = Prober::start(
        Settings::for_file_limit(files),
        Arc::new(ProbeMetrics::new(metrics)),
    );
    drop(guard);
    Ok((runtime, prober, verdicts))
}

fn raise_file_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1024;
    };
    let limit = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        hard
    } else {
        soft
    };
    debug!(limit, "open file limit");
    limit
}

fn spawn_watches(
    current: &Arc<CurrentTerm>,
    clients: &Clients,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) {
    let ctx = current.context();
    let mut numbers = 0..;
    macro_rules! watch {
        ($kind:literal, $store:ident, $selector:expr, $convert:expr, $handler:ident) => {{
            let handler_current = Arc::clone(current);
            let watching = watch::run(
                clients.watch.clone(),
                watch::config(
                    numbers.next().unwrap_or_default(),
                    ctx.timings.watch,
                    $selector,
                ),
                Arc::clone(&ctx.index.stores.$store),
                $convert,
                move |key, change| handler_current.context().index.$handler(key, &change),
                ctx.metrics.client.watch($kind, None),
            );
            tasks.spawn(async move { Err(watching.await.into()) });
        }};
    }
    watch!(
        "LoadBalancer",
        lbs,
        None,
        |d| Some(Lb::from_watch(d)),
        lb_changed
    );
    watch!(
        "IPPool",
        pools,
        None,
        |d| Some(Pool::from_watch(d)),
        pool_changed
    );
    watch!(
        "IPAllocation",
        allocations,
        None,
        |d| Some(Allocation::from_watch(d)),
        allocation_changed
    );
    watch!("Service", services, None, cached::service, service_changed);
    watch!(
        "EndpointSlice",
        slices,
        <EndpointSlice as CachedResource<Index>>::SELECTOR,
        cached::slice,
        slice_changed
    );
    watch!(
        "VirtualMachineInstance",
        vmis,
        None,
        |d| Some(Vmi::from_watch(d)),
        vmi_changed
    );
    watch!(
        "VirtualMachine",
        vms,
        None,
        |d| Some(Vm::from_watch(d)),
        vm_changed
    );
    watch!("Node", nodes, None, cached::node, node_changed);
}

async fn signals(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        error!("signal handlers not installed");
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
}

#[cfg(test)]
mod tests;
