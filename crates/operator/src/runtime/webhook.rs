//! Start and orderly shutdown of the webhook: its port, its watches, the task that keeps its certificates and registration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use harvester_lb_controller_kit::admin::{self, Readiness};
use harvester_lb_controller_kit::client::{self, Clients};
use harvester_lb_controller_kit::events::Events;
use harvester_lb_controller_kit::listen::listen_on_all;
use harvester_lb_controller_kit::preflight;
use harvester_lb_controller_kit::watch_health;
use jiff::Timestamp;
use kube::Client;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::args::{Args, WebhookArgs};
use crate::runtime::webhook::watches::Watches;
use crate::runtime::{process_metrics, restore_check, signals};
use crate::timings::Timings;
use crate::webhook::certificates::Lifetimes;
use crate::webhook::connections::Connections;
use crate::webhook::endpoints::Endpoints;
use crate::webhook::facts::Facts;
use crate::webhook::keeper::{Keeper, Parts};
use crate::webhook::live_reads::LiveReads;
use crate::webhook::metrics::Metrics;
use crate::webhook::permissions::Permissions;
use crate::webhook::registration::Registration;
use crate::webhook::reviews::Reviews;
use crate::webhook::secrets::Secrets;
use crate::webhook::server::{self, Shutdown};
use crate::webhook::stored::Stored;
use crate::webhook::tls::{self, Serving};
use crate::webhook_names::Names;

mod watches;

/// Interval at which the gauge of connections is set.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// Progress of the start, for `/readyz`.
struct Progress {
    facts: Facts,
    serving: Arc<Serving>,
    /// Missing kinds and permissions.
    missing: RwLock<Vec<String>>,
    /// Whether the registration waits for a ready endpoint of the Service.
    waits_for_endpoint: Arc<AtomicBool>,
    stored: Stored,
    watches: watch_health::Watches,
    stop: CancellationToken,
}

impl Progress {
    /// Whether this replica can answer, apart from its certificate.
    fn can_answer(&self) -> bool {
        self.facts.unsynced_for_conversion().is_empty() && !self.stop.is_cancelled()
    }
}

impl Progress {
    /// What keeps the registration from being kept up, if that is `uninstall-webhook`.
    fn uninstalled(&self) -> Option<String> {
        let (stored, now) = (&self.stored, Timestamp::now().as_second());
        let time = |until: i64| Timestamp::from_second(until).unwrap_or(Timestamp::MAX);
        if let Some(until) = stored.uninstalled_until(now).map(time) {
            return Some(format!(
                "uninstall-webhook in progress until {until}: nothing is registered"
            ));
        }
        if stored.is_uninstalled() {
            let text = "uninstall-webhook has removed the authority, nothing is registered until there is one again";
            return Some(text.to_owned());
        }
        let until = stored.missed_until(now).map(time)?;
        Some(format!(
            "authority and registration are gone, as after uninstall-webhook: nothing is registered until {until}"
        ))
    }
}

impl Readiness for Progress {
    /// Ready once it can convert (CNV-1): other rules wait for their lists by themselves.
    fn waiting_for(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .facts
            .unsynced_for_conversion()
            .into_iter()
            .map(|kind| format!("{kind} are being listed"))
            .collect();
        if !self.serving.is_set() {
            lines.push("there is no certificate yet".to_owned());
        }
        if self.stop.is_cancelled() {
            lines.push("this process is ending".to_owned());
        }
        lines
    }

    fn remarks(&self) -> Vec<String> {
        let unsynced = self.facts.unsynced_besides().into_iter();
        let mut lines: Vec<String> = unsynced
            .chain(self.stored.unsynced())
            .map(|kind| format!("{kind} are being listed"))
            .collect();
        lines.extend(self.watches.failing());
        lines.extend(self.missing.read().iter().cloned());
        if self.waits_for_endpoint.load(Ordering::Relaxed) {
            lines.push("the registration waits for a ready endpoint of the Service".to_owned());
        }
        lines.extend(self.uninstalled());
        lines
    }
}

/// Runs the webhook until SIGTERM or SIGINT.
pub async fn run(args: &Args, webhook: &WebhookArgs) -> anyhow::Result<()> {
    let names = webhook.place.names()?;
    let port = webhook.port(|name| std::env::var(name).ok())?;
    let timings = args.timings();
    info!(
        version = env!("CARGO_PKG_VERSION"),
        dns_name = names.dns_name(),
        "webhook starting"
    );

    let stop = CancellationToken::new();
    tokio::spawn(signals(stop.clone()));
    let metrics = Arc::new(Metrics::new()?);
    let process = process_metrics::ProcessMetrics::new()?;
    metrics.registry().register(Box::new(process))?;
    let stored = Stored::new(names.clone());
    let progress = Arc::new(Progress {
        facts: Facts::new(args.interfaces()),
        serving: Arc::default(),
        missing: RwLock::default(),
        waits_for_endpoint: Arc::default(),
        stored: stored.clone(),
        watches: metrics.client.watches.clone(),
        stop: stop.clone(),
    });
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let (listener, address) = admin::bind(webhook.admin_address).await?;
    info!(%address, "admin port listening");
    // The admin port stays up during the shutdown.
    let admin_stop = CancellationToken::new();
    tasks.spawn(admin::serve(
        listener,
        metrics.registry(),
        Arc::clone(&progress) as Arc<dyn Readiness>,
        admin_stop.clone(),
    ));
    let listener = listen_on_all(port)
        .with_context(|| format!("the port {port} for the API server cannot be bound"))?;
    let address = listener.local_addr()?;
    info!(%address, "webhook port listening");

    let clients = client::connect(Arc::new(metrics.client.clone())).await?;
    let identity = nix::unistd::gethostname().unwrap_or_default();
    let (events, events_task) = Events::new(
        clients.write.clone(),
        "harvester-load-balancer-webhook",
        identity.to_string_lossy().into_owned(),
    );
    tasks.spawn(async {
        events_task.await;
        Ok(())
    });
    tasks.spawn(report_missing(
        clients.write.clone(),
        names,
        Arc::clone(&progress),
        timings.preflight_pause,
    ));

    let changed = Arc::new(Notify::new());
    let mut watches = Watches::new(clients.clone(), &timings, Arc::clone(&metrics), &mut tasks);
    watches.facts(&progress.facts);
    watches.stored(&stored, &changed);
    let allocations = Arc::clone(&progress.facts.allocations);
    let check = restore_check::run(clients.write.clone(), allocations, timings.restore_check);
    tasks.spawn(async move { Err(check.await.into()) });

    let (connections, shutdown) = (Arc::new(Connections::default()), Shutdown::default());
    let live_reads = LiveReads::new(clients.write.clone());
    let tls = tls::config(Arc::clone(&progress.serving))?;
    let serving = tokio::spawn(server::serve(
        listener,
        TlsAcceptor::from(Arc::new(tls)),
        Arc::new(Reviews::new(
            progress.facts.clone(),
            live_reads,
            Arc::clone(&metrics),
        )),
        Arc::clone(&connections),
        shutdown.clone(),
    ));
    tasks.spawn(count_connections(connections, Arc::clone(&metrics)));
    let keeper = keeper(
        &clients, stored, &progress, &metrics, changed, &events, &timings,
    );
    let keeping = tokio::spawn(keeper.run(stop.clone()));

    let outcome = tokio::select! {
        () = stop.cancelled() => Ok(()),
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            other => Err(anyhow::anyhow!("a task ended: {other:?}")),
        },
    };
    // After an error nothing can be trusted to be current: the process ends at once, and the next one starts afresh.
    if outcome.is_ok() {
        info!("shutting down; still answering requests");
        shutdown.leaving.cancel();
        // It has the same token: nothing is registered any more.
        let _ = keeping.await;
        tokio::time::sleep(timings.webhook_leave).await;
        shutdown.stopped.cancel();
        let _ = serving.await;
        let _ = tokio::time::timeout(timings.events_limit, events.written()).await;
        info!("ended");
    }
    admin_stop.cancel();
    outcome
}

/// The task that keeps certificates and registration.
fn keeper(
    clients: &Clients,
    stored: Stored,
    progress: &Arc<Progress>,
    metrics: &Arc<Metrics>,
    changed: Arc<Notify>,
    events: &Events,
    timings: &Timings,
) -> Keeper {
    let lifetimes = Lifetimes {
        authority: timings.webhook_authority_life,
        leaf: timings.webhook_certificate_life,
        settle: timings.webhook_settle,
        retain: timings.webhook_retain,
    };
    let client = || clients.write.clone();
    let ready = Arc::clone(progress);
    let parts = Parts {
        secrets: Secrets::new(client(), stored.clone(), lifetimes),
        registration: Registration::new(
            client(),
            stored.clone(),
            Arc::clone(metrics),
            events.clone(),
            timings,
        ),
        endpoints: Endpoints::new(
            client(),
            &stored.names,
            Arc::clone(&progress.waits_for_endpoint),
        ),
        stored,
        serving: Arc::clone(&progress.serving),
        metrics: Arc::clone(metrics),
        changed,
        is_ready: Box::new(move || ready.can_answer()),
    };
    Keeper::new(parts, lifetimes)
}

/// Reports missing kinds and permissions until there are none. Then it waits: the end of a task ends the process.
async fn report_missing(
    client: Client,
    names: Names,
    progress: Arc<Progress>,
    pause: Duration,
) -> anyhow::Result<()> {
    let permissions = Permissions::new(&names);
    let mut said = Vec::new();
    loop {
        match preflight::check(&client, &permissions.required()).await {
            Ok(missing) => {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                for what in missing.iter().filter(|what| !said.contains(*what)) {
                    warn!(
                        what,
                        "kind or permission missing, what depends on it does not work"
                    );
                }
                said.clone_from(&missing);
                *progress.missing.write() = missing;
                if said.is_empty() {
                    return std::future::pending().await;
                }
            }
            Err(error) => warn!(%error, "kinds and permissions not checked, will retry"),
        }
        tokio::time::sleep(pause).await;
    }
}

async fn count_connections(
    connections: Arc<Connections>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<()> {
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    loop {
        let open = u64::try_from(connections.len()).unwrap_or(u64::MAX);
        metrics.connections.set(count(open));
        metrics.evicted.set(count(connections.evicted()));
        tokio::time::sleep(GAUGE_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use harvester_lb_controller_kit::Stamp;
    use serde_json::json;

    use super::*;
    use crate::webhook::stored::StoredSecret;
    use crate::webhook_names::ANNOTATION_UNINSTALLED;

    #[test]
    fn section_1_readyz_says_that_uninstall_webhook_is_at_work() {
        let progress = Progress {
            facts: Facts::default(),
            serving: Arc::default(),
            missing: RwLock::default(),
            waits_for_endpoint: Arc::default(),
            stored: Stored::new(Names {
                namespace: "ns".to_owned(),
                service: "svc".to_owned(),
            }),
            watches: watch_health::Watches::default(),
            stop: CancellationToken::new(),
        };
        let said = |minutes: i64| {
            let at = Timestamp::now() - jiff::SignedDuration::from_mins(minutes);
            let version = (100 - minutes).to_string();
            let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(json!({
                "metadata": {
                    "name": "svc-ca", "namespace": "ns", "resourceVersion": version,
                    "annotations": {ANNOTATION_UNINSTALLED: at.to_string()},
                },
            }))
            .unwrap();
            let (store, key) = (&progress.stored.authority, progress.stored.authority_key());
            let stamp = Stamp::of(&secret.metadata);
            store.written(&key, stamp, StoredSecret::of(Ok(secret)));
            let remarks = progress.remarks();
            remarks
                .iter()
                .any(|line| line.contains("uninstall-webhook in progress until"))
        };
        let count = progress.remarks().len();
        let last = || progress.remarks().last().cloned().unwrap_or_default();
        assert!(!said(11));
        assert!(said(9));
        assert!(said(0));
        // The Secret goes at the end, and its mark with it.
        let (store, key) = (&progress.stored.authority, progress.stored.authority_key());
        let gone = store.forget(&key, store.version(&key)).unwrap();
        assert_eq!(progress.remarks().len(), count);
        let until = Timestamp::now().as_second() + 60;
        progress.stored.has_missed_until(Some(until));
        let said = last();
        assert!(
            said.contains("are gone, as after uninstall-webhook"),
            "{said}"
        );
        progress.stored.authority_changed(&gone);
        let said = last();
        assert!(said.contains("has removed the authority"), "{said}");
    }
}
