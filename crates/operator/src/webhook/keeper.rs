//! The task that keeps certificates and registration as they must be. It decides whenever something that it watches
//! changes, and when time has passed; every write is decided again from a live read of the Secrets.
//!
//! The registration is written only while this replica can answer, so that the API server is never sent to a webhook that
//! is not there, and not at all once `uninstall-webhook` has begun or this process is ending.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_controller_kit::backoff::Backoff;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::webhook::certificates::{Action, Known, Lifetimes, Machine, Plan};
use crate::webhook::desired::Desired;
use crate::webhook::metrics::Metrics;
use crate::webhook::registration::Registration;
use crate::webhook::secrets::{SecretError, Secrets};
use crate::webhook::stored::Stored;
use crate::webhook::tls::Serving;

/// Interval of the checks whether this replica has become ready. Readiness follows from several lists, each of which ends
/// once; afterwards nothing is checked in intervals.
const READY_PAUSE: Duration = Duration::from_millis(50);
/// Longest time without a decision: the wall clock may be set, or the machine suspended.
const LONGEST: Duration = Duration::from_mins(10);
/// Back-off after a Secret could not be written or read.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(10),
};

/// The task.
pub struct Keeper {
    stored: Stored,
    secrets: Secrets,
    registration: Registration,
    machine: Machine,
    serving: Arc<Serving>,
    metrics: Arc<Metrics>,
    /// Something that is watched has changed.
    changed: Arc<Notify>,
    /// Whether this replica can answer, apart from its certificate.
    is_ready: Box<dyn Fn() -> bool + Send + Sync>,
    is_uninstalled: bool,
    failures: u32,
}

/// What the task works with.
pub struct Parts {
    /// The stores of the objects that it writes.
    pub stored: Stored,
    /// Writes of the Secrets.
    pub secrets: Secrets,
    /// Writes of the registration.
    pub registration: Registration,
    /// The certificate that is served.
    pub serving: Arc<Serving>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Notified when something that is watched has changed.
    pub changed: Arc<Notify>,
    /// Whether this replica can answer, apart from its certificate.
    pub is_ready: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Keeper {
    /// The task, not started.
    pub fn new(parts: Parts, lifetimes: Lifetimes) -> Self {
        let dns_name = parts.stored.names.dns_name();
        Self {
            stored: parts.stored,
            secrets: parts.secrets,
            registration: parts.registration,
            machine: Machine::new(lifetimes, dns_name),
            serving: parts.serving,
            metrics: parts.metrics,
            changed: parts.changed,
            is_ready: parts.is_ready,
            is_uninstalled: false,
            failures: 0,
        }
    }

    /// Runs until `stop`. A write that is under way then is given up: it may still land, and says nothing wrong.
    pub async fn run(mut self, stop: CancellationToken) {
        let work = async {
            while !self.stored.unsynced().is_empty() {
                tokio::time::sleep(READY_PAUSE).await;
            }
            loop {
                let changed = Arc::clone(&self.changed);
                let next = self.round().await;
                tokio::select! {
                    () = changed.notified() => {}
                    () = tokio::time::sleep_until(next) => {}
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Decides and acts once. Returns when to decide again at the latest.
    async fn round(&mut self) -> Instant {
        self.notice_uninstallation();
        let now = Timestamp::now().as_second();
        let plan = self.plan(now);
        if let Some(action) = &plan.action
            && !self.is_uninstalled
        {
            return match self.act(action, now).await {
                Ok(()) => {
                    self.failures = 0;
                    Instant::now()
                }
                Err(error) if error.is_conflict() => Instant::now(),
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    warn!(%error, "certificates not kept up, will retry");
                    Instant::now() + BACKOFF.delay(self.failures, fastrand::f64())
                }
            };
        }
        let until = u64::try_from(plan.again_at.saturating_sub(now)).unwrap_or_default();
        let next = Instant::now() + Duration::from_secs(until).min(LONGEST);
        if self.is_uninstalled || !self.serving.is_set() {
            return next;
        }
        if !(self.is_ready)() {
            return next.min(Instant::now() + READY_PAUSE);
        }
        let desired = Desired::new(self.stored.names.clone(), &plan.bundle);
        if !self.registration.is_right(&desired) {
            // The bundle of a replica that is behind would undo that of another one.
            if let Err(error) = self.secrets.refresh().await {
                self.failures = self.failures.saturating_add(1);
                warn!(%error, "registration not checked, will retry");
                return Instant::now() + BACKOFF.delay(self.failures, fastrand::f64());
            }
            if self.plan(now).bundle != plan.bundle {
                return Instant::now();
            }
        }
        let due = self.registration.ensure(&desired).await;
        due.map_or(next, |due| next.min(due))
    }

    /// Decides from the stores, and serves with the certificate that they have.
    fn plan(&mut self, now: i64) -> Plan {
        let authority = self.stored.authority.get(&self.stored.authority_key());
        let authority = authority.map(|secret| secret.authority());
        let leaf = self.stored.leaf.get(&self.stored.leaf_key());
        let leaf = leaf.map(|secret| secret.pair());
        let bundles = self.stored.bundles();
        let mut plan = self.machine.plan(
            now,
            Known {
                authority: authority.as_ref(),
                leaf: leaf.as_ref(),
                bundles: &bundles,
            },
        );
        if let Some(key) = plan.serve.take()
            && self.serving.set(key)
        {
            info!("serving with a new certificate");
        }
        let [authority, leaf] = plan.expiry;
        self.metrics.expires("authority", authority);
        self.metrics.expires("serving", leaf);
        plan
    }

    /// Decides again from a live read, and does what is still to be done.
    async fn act(&mut self, action: &Action, now: i64) -> Result<(), SecretError> {
        self.secrets.refresh().await?;
        let plan = self.plan(now);
        let Some(again) = &plan.action else {
            return Ok(());
        };
        if std::mem::discriminant(again) != std::mem::discriminant(action) {
            return Ok(());
        }
        self.secrets.apply(again, now).await?;
        let (certificate, reason) = match again {
            Action::NewAuthority { reason, .. } => ("authority", *reason),
            Action::NewLeaf { reason } => ("serving", *reason),
            Action::Prune { .. } => {
                info!("previous authorities removed from the bundle");
                return Ok(());
            }
        };
        self.metrics.issued.with_label_values(&[certificate]).inc();
        info!(certificate, reason, "certificate made");
        Ok(())
    }

    fn notice_uninstallation(&mut self) {
        let authority = self.stored.authority.get(&self.stored.authority_key());
        if !self.is_uninstalled && authority.is_some_and(|secret| secret.is_uninstalled()) {
            info!("uninstall-webhook has begun, nothing is registered any more");
            self.is_uninstalled = true;
        }
    }
}
