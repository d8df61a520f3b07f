//! The task that keeps certificates and registration as they must be. It decides whenever something that it watches
//! changes, and when time has passed; every write is decided again from a live read of the Secrets.
//!
//! The registration is written only while this replica can answer, and what does not name its Service yet only once that
//! has a ready endpoint, so that the API server is never sent to a webhook that is not there. It is not written at all while
//! `uninstall-webhook` is at work, after it ([`crate::webhook::uninstallation`]), or once this process is ending.
//!
//! A Secret that somebody else writes each time is written with a back-off: the Go operator's webhook may run meanwhile, or
//! a replica whose clock is months ahead, to which every certificate has expired. The registration is kept up meanwhile, and
//! while a Secret cannot be written for want of a permission, unless the API server would refuse what serves.
//!
//! Nothing is written before all that is watched has been listed. The stored certificate serves as soon as it is known.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_controller_kit::backoff::Backoff;
use jiff::Timestamp;
use rustls::sign::CertifiedKey;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::webhook::certificates::{Action, Known, Lifetimes, Machine, Plan};
use crate::webhook::desired::Desired;
use crate::webhook::endpoints::Endpoints;
use crate::webhook::metrics::Metrics;
use crate::webhook::registration::{Extent, ReadError, Registration};
use crate::webhook::restores::Restores;
use crate::webhook::secrets::{SecretError, Secrets};
use crate::webhook::stored::Stored;
use crate::webhook::tls::Serving;
use crate::webhook::uninstallation::Uninstallation;

/// First interval of the checks whether lists have ended, on which readiness depends too. Each ends once; afterwards nothing is
/// checked in intervals.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest interval of these checks: a list may fail for as long as a permission is missing.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Longest time without a decision: the wall clock may be set, or the machine suspended.
const LONGEST: Duration = Duration::from_mins(10);
/// Back-off after a Secret could not be written or read.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(10),
};

/// Back-off of consecutive writes of one Secret.
const WRITES: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(10),
};
/// Time without a write of a Secret after which the next one counts as the first. Writes that are planned are days apart.
const FORGET: Duration = WRITES.cap;

/// Why what was decided was not done.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Registration(#[from] ReadError),
}

impl KeepError {
    /// Whether another replica was first.
    const fn is_conflict(&self) -> bool {
        matches!(self, Self::Secret(error) if error.is_conflict())
    }

    /// Whether the API server answers and does not allow it.
    const fn is_refusal(&self) -> bool {
        match self {
            Self::Secret(error) => error.is_refusal(),
            Self::Registration(error) => error.is_refusal(),
        }
    }
}

/// The task.
pub struct Keeper {
    stored: Stored,
    secrets: Secrets,
    registration: Registration,
    endpoints: Endpoints,
    machine: Machine,
    serving: Arc<Serving>,
    metrics: Arc<Metrics>,
    /// Something that is watched has changed.
    changed: Arc<Notify>,
    /// Whether this replica can answer, apart from its certificate.
    is_ready: Box<dyn Fn() -> bool + Send + Sync>,
    uninstallation: Uninstallation,
    /// The writes of the two Secrets: that of the authority, that of the serving certificate.
    writes: [Restores; 2],
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
    /// The endpoints of its Service.
    pub endpoints: Endpoints,
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
            endpoints: parts.endpoints,
            machine: Machine::new(lifetimes, dns_name),
            serving: parts.serving,
            metrics: parts.metrics,
            changed: parts.changed,
            is_ready: parts.is_ready,
            uninstallation: Uninstallation::default(),
            writes: [Restores::forgotten_after(FORGET, WRITES); 2],
            failures: 0,
        }
    }

    /// Runs until `stop`. A write that is under way then is given up: it may still land, and says nothing wrong.
    pub async fn run(mut self, stop: CancellationToken) {
        let work = async {
            self.begin().await;
            loop {
                let was_ready = (self.is_ready)();
                let next = self.round().await;
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = holds(&self.is_ready), if !was_ready => {}
                    () = tokio::time::sleep_until(next) => {}
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Waits until everything is listed, without which nothing may be written: serves meanwhile. One missing permission would
    /// otherwise leave a replica without the certificate that is stored.
    async fn begin(&mut self) {
        let (stored, changed) = (self.stored.clone(), Arc::clone(&self.changed));
        let is_listed = || stored.unsynced().is_empty();
        while !is_listed() {
            self.serve_stored();
            tokio::select! {
                () = changed.notified() => {}
                () = holds(is_listed) => {}
            }
        }
    }

    /// Serves with the certificate that is stored.
    fn serve_stored(&self) {
        let leaf = self.stored.leaf.get(&self.stored.leaf_key());
        let now = Timestamp::now().as_second();
        self.serve(leaf.and_then(|leaf| self.machine.usable(&leaf.pair(), now)));
    }

    fn serve(&self, key: Option<CertifiedKey>) {
        if key.is_some_and(|key| self.serving.set(key)) {
            info!("serving with a new certificate");
        }
    }

    /// Decides and acts once. Returns when to decide again at the latest.
    async fn round(&mut self) -> Instant {
        let now = Timestamp::now().as_second();
        let is_uninstalled = self.is_uninstalled(now);
        let plan = self.plan(now);
        let desired = Desired::new(self.stored.names.clone(), &plan.bundle);
        self.registration.show(&desired);
        let again_at = plan.again_at.min(self.uninstallation.again_at());
        let until = u64::try_from(again_at.saturating_sub(now)).unwrap_or_default();
        let mut next = Instant::now() + Duration::from_secs(until).min(LONGEST);
        if let Some(action) = &plan.action
            && !is_uninstalled
        {
            match self.keep_secrets(action, now).await {
                ControlFlow::Break(at) => return at,
                ControlFlow::Continue(at) => next = next.min(at),
            }
        }
        if is_uninstalled || !self.serving.is_set() || plan.bundle.is_empty() {
            self.endpoints.not_needed();
            return next;
        }
        if !(self.is_ready)() {
            return next;
        }
        let (extent, look_at) = self.extent(&desired).await;
        let next = look_at.map_or(next, |at| next.min(at));
        if !self.registration.is_right(&desired, extent) {
            // The bundle of a replica that is behind would undo that of another one.
            if let Err(error) = self.secrets.refresh().await {
                warn!(%error, "registration not checked, will retry");
                return self.failed();
            }
            if plan.action.is_none() {
                self.failures = 0;
            }
            if self.is_uninstalled(now) || self.plan(now).bundle != plan.bundle {
                return Instant::now();
            }
        }
        let due = self.registration.ensure(&desired, extent).await;
        due.map_or(next, |due| next.min(due))
    }

    /// Does what is to be done to the Secrets, if it is due. Returns when to decide again; nothing else is to be done before
    /// in the case of a break.
    async fn keep_secrets(&mut self, action: &Action, now: i64) -> ControlFlow<Instant, Instant> {
        let due = self.writes[secret_of(action)].due_at(Instant::now());
        if due > Instant::now() {
            return ControlFlow::Continue(due);
        }
        let Err(error) = self.act(action, now).await else {
            self.failures = 0;
            return ControlFlow::Break(Instant::now());
        };
        let again_at = self.failed();
        // Another replica was faster: what it wrote is noticed before the time is over.
        if !error.is_conflict() || self.failures > 1 {
            warn!(%error, "certificates not kept up, will retry");
        }
        if !error.is_refusal() {
            return ControlFlow::Break(again_at);
        }
        // It waits like a write that somebody undoes.
        let writes = &mut self.writes[secret_of(action)];
        writes.written(Instant::now(), fastrand::f64());
        ControlFlow::Continue(writes.due_at(Instant::now()))
    }

    /// Counts a failure. Returns when to try again.
    fn failed(&mut self) -> Instant {
        self.failures = self.failures.saturating_add(1);
        Instant::now() + BACKOFF.delay(self.failures, fastrand::f64())
    }

    /// Which objects of the registration may be written, and when to look again if that is not all that must be.
    async fn extent(&mut self, desired: &Desired) -> (Extent, Option<Instant>) {
        if !self.registration.is_to_begin(desired) {
            self.endpoints.not_needed();
            return (Extent::Named, None);
        }
        match self.endpoints.wait().await {
            None => (Extent::All, None),
            Some(at) => (Extent::Named, Some(at)),
        }
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
        self.serve(plan.serve.take());
        let [authority, leaf] = plan.expiry;
        self.metrics.expires("authority", authority);
        self.metrics.expires("serving", leaf);
        plan
    }

    /// Decides again from a live read, and does what is still to be done.
    async fn act(&mut self, action: &Action, now: i64) -> Result<(), KeepError> {
        self.secrets.refresh().await?;
        if self.uninstallation.may_be_missed(&self.stored) {
            self.registration.refresh().await?;
        }
        // What `uninstall-webhook` has removed is not made again.
        if self.is_uninstalled(now) {
            return Ok(());
        }
        let plan = self.plan(now);
        let Some(again) = &plan.action else {
            return Ok(());
        };
        if std::mem::discriminant(again) != std::mem::discriminant(action) {
            return Ok(());
        }
        self.secrets.apply(again, now).await?;
        self.writes[secret_of(again)].written(Instant::now(), fastrand::f64());
        let (certificate, reason) = match again {
            Action::NewAuthority { reason, .. } => ("authority", *reason),
            Action::NewLeaf { reason } => ("serving", *reason),
            Action::SetPrevious { reason, .. } => {
                info!(reason, "previous authorities changed");
                return Ok(());
            }
        };
        self.metrics.issued.with_label_values(&[certificate]).inc();
        info!(certificate, reason, "certificate made");
        Ok(())
    }

    /// Whether the registration must not be kept up.
    fn is_uninstalled(&mut self, now: i64) -> bool {
        let is_serving = self.serving.is_set();
        self.uninstallation
            .is_under_way(&self.stored, is_serving, now)
    }
}

/// Waits until something holds that nothing notifies of.
async fn holds(it: impl Fn() -> bool) {
    let mut pause = FIRST_PAUSE;
    while !it() {
        tokio::time::sleep(pause).await;
        pause = LAST_PAUSE.min(2 * pause);
    }
}

/// Place of the Secret that an action writes.
fn secret_of(action: &Action) -> usize {
    usize::from(!action.is_of_authority())
}

#[cfg(test)]
mod tests;
