//! The candidate: the loop around [`decide`], which owns the Lease object.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_api::meta;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Leadership, Observed, Settings, Step, decide};
use crate::stamp::{Restored, Stamp};
use crate::writer::{WriteError, bounded};

/// Why the loop of a candidate ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It was stopped.
    Stopped,
    /// It was leader and could not renew in time, or another process took over.
    Lost,
}

struct Seen {
    lease: Lease,
    at: Instant,
}

/// A candidate for the Lease.
pub struct Candidate {
    api: Api<Lease>,
    settings: Settings,
    /// Of the current term.
    leadership: Arc<Leadership>,
    seen: Option<Seen>,
    /// Another holder was observed since this flag was last read.
    another: bool,
    /// The newest copy of the Lease that was observed.
    known: Stamp,
    /// Set when the Lease was read in an older copy than `known`.
    restored: Option<Restored>,
}

impl Candidate {
    /// A candidate that is not leader yet.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            settings,
            leadership: Arc::default(),
            seen: None,
            another: false,
            known: Stamp::default(),
            restored: None,
        }
    }

    /// Waits until this process is leader in a new term, or `stop` is called. No work of the previous term may be
    /// running. Calls `another` each time another holder was observed before this process became leader.
    ///
    /// Errors, here as in [`Candidate::hold`]: the Lease has an older resource version than before, which a restored
    /// backup causes (RUN-3). A watch does not show that by itself: one that resumes from a version in the future is
    /// silent.
    pub async fn acquire(
        &mut self,
        term: Arc<Leadership>,
        stop: &CancellationToken,
        another: impl Fn(),
    ) -> Result<Option<()>, Restored> {
        self.leadership = term;
        while !stop.is_cancelled() {
            let won = self.try_once(false).await;
            self.check_restored()?;
            if std::mem::take(&mut self.another) {
                another();
            }
            if won {
                info!(identity = self.settings.identity, "became leader");
                return Ok(Some(()));
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(jittered(self.settings.retry)) => {}
            }
        }
        Ok(None)
    }

    /// Renews the Lease until a renewal fails, which ends the term, or until `stop` is called. The fence closes by
    /// itself at the renew deadline, even if this task does not run, and does not open again.
    pub async fn hold(&mut self, stop: &CancellationToken) -> Result<End, Restored> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(End::Stopped),
                () = tokio::time::sleep(self.settings.retry) => {}
            }
            if self.leadership.is_leader() {
                self.try_once(true).await;
            }
            self.check_restored()?;
            if !self.leadership.is_leader() {
                self.leadership.end();
                warn!(identity = self.settings.identity, "leadership lost");
                return Ok(End::Lost);
            }
        }
    }

    /// Ends the term if the resource version of the Lease has gone backwards.
    fn check_restored(&mut self) -> Result<(), Restored> {
        match self.restored.take() {
            None => Ok(()),
            Some(restored) => {
                self.leadership.end();
                Err(restored)
            }
        }
    }

    /// Releases the Lease, so that a successor need not wait.
    pub async fn release(&mut self) {
        let was_leader = self.leadership.is_leader();
        self.leadership.end();
        let Some(seen) = self.seen.take().filter(|_| was_leader) else {
            return;
        };
        let mut lease = seen.lease;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        match bounded(self.api.replace(
            &self.settings.name,
            &kube::api::PostParams::default(),
            &lease,
        ))
        .await
        {
            Ok(_) => info!("Lease released"),
            Err(error) => warn!(%error, "Lease not released; it expires by itself"),
        }
    }

    /// One attempt. Returns whether this process is leader after it.
    async fn try_once(&mut self, leading: bool) -> bool {
        // The deadline counts from before the request, because the record may be written at any time after.
        let started = Instant::now();
        // A request must not outlive the claim that it renews.
        let limit = self.settings.renew_deadline / 2;
        match tokio::time::timeout(limit, self.step(leading)).await {
            Ok(Ok(true)) => {
                self.leadership
                    .renewed(started + self.settings.renew_deadline);
                self.leadership.is_leader()
            }
            Ok(Ok(false)) => {
                if leading {
                    self.leadership.end();
                }
                false
            }
            Ok(Err(error)) => {
                // The copy may be stale; read it again before the next decision.
                warn!(%error, "Lease not read or written, will retry");
                false
            }
            Err(_) => {
                warn!(?limit, "Lease request timed out, will retry");
                false
            }
        }
    }

    /// Returns whether it wrote our record; if not, this process is not leader.
    async fn step(&mut self, leading: bool) -> Result<bool, WriteError> {
        // A holder that still has its own copy renews without a read: one write per renewal.
        if !leading || self.seen.is_none() {
            self.read().await?;
        }
        let observed = self.seen.as_ref().map(observe);
        let step = decide(observed.as_ref(), &self.settings.identity, leading);
        debug!(?step, "Lease step");
        let params = kube::api::PostParams::default();
        let written = match step {
            Step::Wait | Step::Lose => return Ok(false),
            Step::Create => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        namespace: Some(self.settings.namespace.clone()),
                        name: Some(self.settings.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(self.record(None)),
                };
                bounded(self.api.create(&params, &lease)).await
            }
            Step::Renew | Step::TakeOver => {
                let Some(seen) = &self.seen else {
                    return Ok(false);
                };
                let mut lease = seen.lease.clone();
                lease.spec = Some(self.record(lease.spec.as_ref()));
                bounded(self.api.replace(&self.settings.name, &params, &lease)).await
            }
        };
        match written {
            Ok(lease) => {
                self.known = Stamp::of(&lease.metadata);
                self.seen = Some(Seen {
                    lease,
                    at: Instant::now(),
                });
                Ok(true)
            }
            Err(error) if error.is_stale() => {
                // Another process was faster, or the record was edited: read it again.
                self.read().await?;
                let observed = self.seen.as_ref().map(observe);
                match decide(observed.as_ref(), &self.settings.identity, leading) {
                    Step::Renew => Err(WriteError::Conflict("the record was edited".to_owned())),
                    _ => Ok(false),
                }
            }
            Err(other) => {
                self.seen = self.seen.take().filter(|_| !leading);
                Err(other)
            }
        }
    }

    async fn read(&mut self) -> Result<(), WriteError> {
        let lease = bounded(self.api.get_opt(&self.settings.name)).await?;
        let now = Instant::now();
        if let Some(lease) = &lease {
            let is = Stamp::of(&lease.metadata);
            let key = meta::key(&lease.metadata);
            match Restored::proven("Lease", &key, self.known, is) {
                None => self.known = is,
                restored => self.restored = restored,
            }
        }
        let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        self.another |= holder.is_some_and(|h| !h.is_empty() && h != self.settings.identity);
        self.seen = match (lease, self.seen.take()) {
            (None, _) => None,
            (Some(lease), Some(seen)) if same_record(&lease, &seen.lease) => {
                Some(Seen { lease, at: seen.at })
            }
            (Some(lease), _) => Some(Seen { lease, at: now }),
        };
        Ok(())
    }

    fn record(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let same_holder =
            before.and_then(|b| b.holder_identity.as_deref()) == Some(&*self.settings.identity);
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
            acquire_time: before
                .filter(|_| same_holder)
                .and_then(|b| b.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(
                before.and_then(|b| b.lease_transitions).unwrap_or(0)
                    + i32::from(before.is_some() && !same_holder),
            ),
            ..before.cloned().unwrap_or_default()
        }
    }
}

fn observe(seen: &Seen) -> Observed {
    let spec = seen.lease.spec.as_ref();
    Observed {
        holder: spec
            .and_then(|s| s.holder_identity.clone())
            .unwrap_or_default(),
        duration: Duration::from_secs(
            spec.and_then(|s| s.lease_duration_seconds)
                .and_then(|s| u64::try_from(s).ok())
                .unwrap_or(0),
        ),
        unchanged_for: seen.at.elapsed(),
    }
}

fn same_record(a: &Lease, b: &Lease) -> bool {
    a.metadata.uid == b.metadata.uid && a.spec == b.spec
}

/// Candidates that started together must not try together.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(1.0 + 0.2 * fastrand::f64())
}
