//! Who leads: one Lease, one holder.
//!
//! [`decide`] is pure. It follows the rules of client-go: whether the holder is alive is judged by the time since its
//! record was last seen to change, on this process's own monotonic clock, never by comparing the clocks of two
//! machines. The loop around it owns the Lease object and a deadline; the deadline is the fence of every write, so a
//! process that was paused past it writes nothing when it wakes up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::{Api, Client};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::writer::{Fence, WriteError, bounded};

/// Name, identity and times of a candidate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who this process is. Unique to the process, or to the pod: a process with the identity of the holder is its
    /// successor in the same pod and takes over at once.
    pub identity: String,
    /// How long a record stands without renewal.
    pub duration: Duration,
    /// For how long the holder works on after its last renewal; shorter than the duration.
    pub renew_deadline: Duration,
    /// Time between two tries.
    pub retry: Duration,
}

impl Settings {
    /// Checks that the times fit each other.
    pub fn check(&self) -> Result<(), String> {
        if self.renew_deadline >= self.duration {
            return Err(format!(
                "the Lease's renew deadline ({:?}) must be shorter than its duration ({:?})",
                self.renew_deadline, self.duration
            ));
        }
        if self.retry.is_zero() || self.retry * 2 > self.renew_deadline {
            return Err(format!(
                "the Lease's retry period ({:?}) must be above zero and at most half of its renew deadline ({:?})",
                self.retry, self.renew_deadline
            ));
        }
        Ok(())
    }
}

/// What is known of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Holder in the record; empty once it was given up.
    pub holder: String,
    /// Duration in the record.
    pub duration: Duration,
    /// Time since the record was last seen to change.
    pub unchanged_for: Duration,
}

/// What a candidate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no Lease: make it.
    Create,
    /// Write our own record again.
    Renew,
    /// Replace the record of a holder that is gone.
    TakeOver,
    /// Somebody else leads.
    Wait,
}

/// The next step of a candidate. `leading` says whether it holds the Lease by its own knowledge.
///
/// A record that names this identity although this process has never led was written by a dead predecessor in the
/// same pod and is taken over at once. Any other holder is given the duration of its own record (a Go holder writes
/// 45 s) from the moment that the record was seen.
pub fn decide(observed: Option<&Observed>, identity: &str, leading: bool) -> Step {
    let Some(lease) = observed else {
        return Step::Create;
    };
    if lease.holder == identity {
        return if leading { Step::Renew } else { Step::TakeOver };
    }
    if lease.holder.is_empty() || lease.unchanged_for >= lease.duration {
        return Step::TakeOver;
    }
    Step::Wait
}

/// The right to write, as long as it lasts.
#[derive(Debug, Default)]
pub struct Leadership {
    until: RwLock<Option<Instant>>,
}

impl Leadership {
    /// Whether this process leads at this moment.
    pub fn is_leader(&self) -> bool {
        self.until
            .read()
            .is_some_and(|until| Instant::now() < until)
    }

    fn extend(&self, until: Instant) {
        *self.until.write() = Some(until);
    }

    fn end(&self) {
        *self.until.write() = None;
    }
}

impl Fence for Leadership {
    fn is_open(&self) -> bool {
        self.is_leader()
    }
}

/// Why the candidate's loop ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to stop.
    Stopped,
    /// It led and could not renew in time, or somebody else took over.
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
    leadership: Arc<Leadership>,
    seen: Option<Seen>,
}

impl Candidate {
    /// A candidate that does not lead yet.
    pub fn new(client: Client, settings: Settings, leadership: Arc<Leadership>) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            settings,
            leadership,
            seen: None,
        }
    }

    /// Waits until this process leads, or is asked to stop.
    pub async fn acquire(&mut self, stop: &CancellationToken) -> Option<()> {
        loop {
            if self.try_once(false).await {
                info!(identity = self.settings.identity, "leading");
                return Some(());
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(jittered(self.settings.retry)) => {}
            }
        }
    }

    /// Renews the Lease until that fails or `stop` is called. The fence closes by itself at the renew deadline, also
    /// if this task is not run.
    pub async fn hold(&mut self, stop: &CancellationToken) -> End {
        loop {
            tokio::select! {
                () = stop.cancelled() => return End::Stopped,
                () = tokio::time::sleep(self.settings.retry) => {}
            }
            self.try_once(true).await;
            if !self.leadership.is_leader() {
                self.leadership.end();
                warn!(identity = self.settings.identity, "leadership is lost");
                return End::Lost;
            }
        }
    }

    /// Gives the Lease up, so that a successor need not wait.
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
            Ok(_) => info!("the Lease is given up"),
            Err(error) => warn!(%error, "the Lease could not be given up; it runs out by itself"),
        }
    }

    /// One try; answers whether it wrote our record.
    async fn try_once(&mut self, leading: bool) -> bool {
        // The deadline counts from before the request: the record may be written at any time after.
        let started = Instant::now();
        // A request must not outlive the claim that it renews.
        let limit = self.settings.renew_deadline / 2;
        match tokio::time::timeout(limit, self.step(leading)).await {
            Ok(Ok(true)) => {
                self.leadership
                    .extend(started + self.settings.renew_deadline);
                true
            }
            Ok(Ok(false)) => {
                if leading {
                    self.leadership.end();
                }
                false
            }
            Ok(Err(error)) => {
                // The copy may be stale; read it again before the next decision.
                warn!(%error, "the Lease could not be written");
                false
            }
            Err(_) => {
                warn!(?limit, "the API server did not answer about the Lease");
                false
            }
        }
    }

    async fn step(&mut self, leading: bool) -> Result<bool, WriteError> {
        // A holder that still has its own copy renews without a read: one write for each renewal.
        if !leading || self.seen.is_none() {
            self.read().await?;
        }
        let observed = self.seen.as_ref().map(observe);
        let step = decide(observed.as_ref(), &self.settings.identity, leading);
        debug!(?step, "Lease");
        let params = kube::api::PostParams::default();
        let written = match step {
            Step::Wait => return Ok(false),
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
                self.seen = Some(Seen {
                    lease,
                    at: Instant::now(),
                });
                Ok(true)
            }
            Err(error) if error.is_stale() => {
                // Somebody was faster, or edited the record: look again.
                self.read().await?;
                let observed = self.seen.as_ref().map(observe);
                let ours = observed.is_none_or(|o| o.holder == self.settings.identity);
                if leading && ours {
                    return Err(WriteError::Conflict("the record was edited".to_owned()));
                }
                Ok(false)
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

/// Candidates that were started together must not try together.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(1.0 + 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holder: &str, duration: u64, unchanged_for: u64) -> Observed {
        Observed {
            holder: holder.to_owned(),
            duration: Duration::from_secs(duration),
            unchanged_for: Duration::from_secs(unchanged_for),
        }
    }

    #[test]
    fn section_1_next_step() {
        let cases = [
            (None, false, Step::Create, "no Lease"),
            (
                None,
                true,
                Step::Create,
                "the Lease was deleted under its holder",
            ),
            (Some(seen("", 1, 0)), false, Step::TakeOver, "given up"),
            (
                Some(seen("other_1", 45, 0)),
                false,
                Step::Wait,
                "a Go holder just renewed",
            ),
            (
                Some(seen("other_1", 45, 44)),
                false,
                Step::Wait,
                "its 45 s are honoured",
            ),
            (
                Some(seen("other_1", 45, 45)),
                false,
                Step::TakeOver,
                "its 45 s are over",
            ),
            (
                Some(seen("other_1", 15, 15)),
                false,
                Step::TakeOver,
                "its 15 s are over",
            ),
            (Some(seen("me", 15, 0)), true, Step::Renew, "our own record"),
            (
                Some(seen("me", 15, 0)),
                false,
                Step::TakeOver,
                "a dead predecessor in this pod",
            ),
            (
                Some(seen("other_1", 15, 0)),
                true,
                Step::Wait,
                "somebody else took over",
            ),
            (
                Some(seen("other_1", 0, 0)),
                false,
                Step::TakeOver,
                "a record without a duration",
            ),
        ];
        for (observed, leading, expected, what) in cases {
            assert_eq!(decide(observed.as_ref(), "me", leading), expected, "{what}");
        }
    }

    #[test]
    fn times_must_fit() {
        let settings = |duration, renew_deadline, retry| Settings {
            namespace: "n".into(),
            name: "n".into(),
            identity: "i".into(),
            duration: Duration::from_secs(duration),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry: Duration::from_secs(retry),
        };
        assert!(settings(15, 10, 2).check().is_ok());
        assert!(settings(10, 10, 2).check().is_err());
        assert!(settings(15, 10, 0).check().is_err());
        assert!(settings(15, 10, 6).check().is_err());
    }

    #[test]
    fn the_fence_closes_by_itself() {
        let leadership = Leadership::default();
        assert!(!leadership.is_open());
        leadership.extend(Instant::now() + Duration::from_secs(60));
        assert!(leadership.is_open());
        leadership.extend(Instant::now());
        assert!(!leadership.is_open());
        leadership.extend(Instant::now() + Duration::from_secs(60));
        leadership.end();
        assert!(!leadership.is_open());
    }
}
