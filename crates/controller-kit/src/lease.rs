//! Who leads: one Lease, one holder.
//!
//! [`decide`] is pure. It follows the rules of client-go: whether the holder is alive is judged by the time since its
//! record was last seen to change, on this process's own monotonic clock, never by comparing the clocks of two
//! machines. The loop around it owns the Lease object and a deadline; the deadline is the fence of every write, so a
//! process that was paused past it writes nothing when it wakes up.
//!
//! A process may lead, lose the Lease and lead again (RUN-5). Each term has a [`Leadership`] of its own, which is won once
//! and over for good when it is lost: what was decided in one term is never written in another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_api::meta;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::{Api, Client};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::stamp::{Restored, Stamp};
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
    /// How long a record stands without renewal. Whole seconds, for that is how a Lease stores it.
    pub duration: Duration,
    /// For how long the holder works on after its last renewal; shorter than the duration.
    pub renew_deadline: Duration,
    /// Time between two tries.
    pub retry: Duration,
}

impl Settings {
    /// Checks that the times fit each other, and that the Lease can hold its duration. The other two times are this
    /// process's own and may be of any fineness.
    pub fn check(&self) -> Result<(), String> {
        if self.duration.subsec_nanos() != 0 || i32::try_from(self.duration.as_secs()).is_err() {
            return Err(format!(
                "the Lease's duration ({:?}) must be whole seconds, at most {}: a Lease stores it so, and others go by what it stores",
                self.duration,
                i32::MAX
            ));
        }
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

/// How far a term has come.
#[derive(Clone, Copy, Debug, Default)]
enum Term {
    /// The Lease is not held yet.
    #[default]
    Ahead,
    /// It is held until then, if it is not renewed before.
    Until(Instant),
    /// It was lost or given up.
    Over,
}

/// The right to write for one term, as long as it lasts.
#[derive(Debug, Default)]
pub struct Leadership(RwLock<Term>);

impl Leadership {
    /// Whether this process leads at this moment, in this term.
    pub fn is_leader(&self) -> bool {
        matches!(*self.0.read(), Term::Until(until) if Instant::now() < until)
    }

    fn extend(&self, until: Instant) {
        let mut term = self.0.write();
        if !matches!(*term, Term::Over) {
            *term = Term::Until(until);
        }
    }

    fn end(&self) {
        *self.0.write() = Term::Over;
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
    /// Of the present term.
    leadership: Arc<Leadership>,
    seen: Option<Seen>,
    /// Since that was last asked, the record has named somebody else.
    another: bool,
    /// Which copy of the Lease was known last.
    known: Stamp,
    /// It was read in an older copy than that.
    restored: Option<Restored>,
}

impl Candidate {
    /// A candidate that does not lead yet.
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

    /// Waits until this process leads in a new term, or is asked to stop. Nothing of the term before may be under way.
    /// `another` is called whenever somebody else was seen to hold the Lease, before this process leads.
    ///
    /// An error, here as in [`Candidate::hold`]: the Lease has an older version than it had, which a restored backup gives it
    /// (RUN-3). A watch does not show that by itself: one that goes on from a version that is yet to come is silent.
    pub async fn acquire(
        &mut self,
        term: Arc<Leadership>,
        stop: &CancellationToken,
        another: impl Fn(),
    ) -> Result<Option<()>, Restored> {
        self.leadership = term;
        while !stop.is_cancelled() {
            let won = self.try_once(false).await;
            self.look_back()?;
            if std::mem::take(&mut self.another) {
                another();
            }
            if won {
                info!(identity = self.settings.identity, "leading");
                return Ok(Some(()));
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(jittered(self.settings.retry)) => {}
            }
        }
        Ok(None)
    }

    /// Renews the Lease until that fails, which is the end of the term, or `stop` is called. The fence closes by itself at
    /// the renew deadline, also if this task is not run.
    pub async fn hold(&mut self, stop: &CancellationToken) -> Result<End, Restored> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(End::Stopped),
                () = tokio::time::sleep(self.settings.retry) => {}
            }
            self.try_once(true).await;
            self.look_back()?;
            if !self.leadership.is_leader() {
                self.leadership.end();
                warn!(identity = self.settings.identity, "leadership is lost");
                return Ok(End::Lost);
            }
        }
    }

    /// Ends the term if the record has run backwards.
    fn look_back(&mut self) -> Result<(), Restored> {
        match self.restored.take() {
            None => Ok(()),
            Some(restored) => {
                self.leadership.end();
                Err(restored)
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
                self.known = Stamp::of(&lease.metadata);
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
            duration: Duration::from_millis(duration),
            renew_deadline: Duration::from_millis(renew_deadline),
            retry: Duration::from_millis(retry),
        };
        assert!(settings(15_000, 10_000, 2_000).check().is_ok());
        assert!(settings(10_000, 10_000, 2_000).check().is_err());
        assert!(settings(15_000, 10_000, 0).check().is_err());
        assert!(settings(15_000, 10_000, 6_000).check().is_err());
        // Only the duration is stored, in whole seconds.
        assert!(settings(3_000, 2_500, 500).check().is_ok());
        for refused in [1_500, 999, 15_001, (1 << 31) * 1_000] {
            let error = settings(refused, 500, 200).check().unwrap_err();
            assert!(error.contains("whole seconds"), "{error}");
        }
    }

    #[test]
    fn the_fence_closes_by_itself() {
        let leadership = Leadership::default();
        assert!(!leadership.is_open());
        leadership.extend(Instant::now() + Duration::from_mins(1));
        assert!(leadership.is_open());
        leadership.extend(Instant::now());
        assert!(!leadership.is_open());
        leadership.extend(Instant::now() + Duration::from_mins(1));
        assert!(
            leadership.is_open(),
            "renewed late, before anybody else led"
        );
    }

    /// An API server with one Lease, that can be away.
    #[derive(Default)]
    struct Server {
        away: bool,
        lease: serde_json::Value,
    }

    fn client(server: &Arc<parking_lot::Mutex<Server>>) -> Client {
        use axum::http::{Method, Request, Response};
        use kube::client::Body;
        let server = Arc::clone(server);
        Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let server = Arc::clone(&server);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect_bytes().await.unwrap();
                    let mut server = server.lock();
                    if server.away {
                        return Err(std::io::Error::other("away"));
                    }
                    if head.method == Method::PUT {
                        server.lease = serde_json::from_slice(&body).unwrap();
                    }
                    Ok(Response::new(Body::from(
                        server.lease.to_string().into_bytes(),
                    )))
                }
            }),
            "default",
        )
    }

    #[tokio::test]
    async fn run_5_a_process_leads_for_one_term_after_another() {
        let lease = |holder: &str| {
            serde_json::json!({
                "metadata": {"name": "l", "namespace": "n", "uid": "u"},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 1},
            })
        };
        let server = Arc::new(parking_lot::Mutex::new(Server {
            away: false,
            lease: lease(""),
        }));
        let settings = Settings {
            namespace: "n".into(),
            name: "l".into(),
            identity: "me".into(),
            duration: Duration::from_secs(1),
            renew_deadline: Duration::from_millis(300),
            retry: Duration::from_millis(20),
        };
        let mut candidate = Candidate::new(client(&server), settings);
        let stop = CancellationToken::new();
        let others = std::cell::Cell::new(0);
        let mut terms = Vec::new();
        for (holder, expected) in [(None, 0), (None, 0), (Some("other"), 1), (None, 0)] {
            if let Some(holder) = holder {
                server.lock().lease = lease(holder);
            }
            server.lock().away = false;
            others.set(0);
            let term = Arc::new(Leadership::default());
            let seen = || others.set(others.get() + 1);
            candidate
                .acquire(Arc::clone(&term), &stop, seen)
                .await
                .unwrap();
            assert!(term.is_leader());
            // Only who has seen another holder is told so.
            assert_eq!(others.get().min(1), expected);
            assert_eq!(server.lock().lease["spec"]["holderIdentity"], "me");
            server.lock().away = true;
            assert_eq!(candidate.hold(&stop).await, Ok(End::Lost));
            terms.push(term);
            assert!(terms.iter().all(|term| !term.is_leader()));
        }
    }

    #[tokio::test]
    async fn run_3_a_lease_that_was_restored_ends_whoever_knew_it() {
        let lease = |version: &str| {
            serde_json::json!({
                "metadata": {"name": "l", "namespace": "n", "uid": "u", "resourceVersion": version},
                "spec": {"holderIdentity": "other", "leaseDurationSeconds": 600},
            })
        };
        let server = Arc::new(parking_lot::Mutex::new(Server {
            away: false,
            lease: lease("50"),
        }));
        let settings = Settings {
            namespace: "n".into(),
            name: "l".into(),
            identity: "me".into(),
            duration: Duration::from_secs(1),
            renew_deadline: Duration::from_millis(300),
            retry: Duration::from_millis(20),
        };
        let mut candidate = Candidate::new(client(&server), settings);
        let stop = CancellationToken::new();
        let restored = {
            let server = Arc::clone(&server);
            // Called once somebody else was seen: at version 50.
            move || server.lock().lease = lease("40")
        };
        let ended = candidate.acquire(Arc::default(), &stop, restored).await;
        let error = ended.unwrap_err().to_string();
        assert!(
            error.contains("Lease n/l is at version 40 and was at 50"),
            "{error}"
        );
    }

    #[test]
    fn run_5_a_term_that_is_over_never_begins_again() {
        let leadership = Leadership::default();
        leadership.extend(Instant::now() + Duration::from_mins(1));
        leadership.end();
        assert!(!leadership.is_open());
        leadership.extend(Instant::now() + Duration::from_mins(1));
        assert!(!leadership.is_open());
    }
}
