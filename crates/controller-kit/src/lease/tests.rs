use std::sync::Arc;

use axum::http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

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
            Step::Lose,
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
            Step::Lose,
            "somebody else took over",
        ),
        (
            Some(seen("other_1", 15, 60)),
            true,
            Step::Lose,
            "somebody else took over, and is gone",
        ),
        (
            Some(seen("", 1, 60)),
            true,
            Step::Lose,
            "somebody else took over, and gave up",
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
        duration: Duration::from_millis(duration),
        retry: Duration::from_millis(retry),
        ..settings(Duration::from_millis(renew_deadline))
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

/// An API server with at most one Lease.
#[derive(Default)]
struct Server {
    away: bool,
    /// The Lease; null if there is none.
    lease: Value,
    /// If set, the next renewal fails and this is the Lease afterwards.
    meanwhile: Option<Value>,
}

impl Server {
    fn with(lease: Value) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            lease,
            ..Self::default()
        }))
    }

    fn answer(&mut self, method: &Method, body: &[u8]) -> std::io::Result<Response<Body>> {
        let away = || std::io::Error::other("away");
        if self.away {
            return Err(away());
        }
        if *method != Method::GET {
            if let Some(lease) = self.meanwhile.take() {
                self.lease = lease;
                return Err(away());
            }
            self.lease = serde_json::from_slice(body).unwrap();
        }
        let (code, answer) = if self.lease.is_null() {
            let status = json!({"status": "Failure", "reason": "NotFound", "code": 404});
            (404, status)
        } else {
            (200, self.lease.clone())
        };
        let answer = Response::new(Body::from(answer.to_string().into_bytes()));
        let (mut head, body) = answer.into_parts();
        head.status = StatusCode::from_u16(code).unwrap();
        Ok(Response::from_parts(head, body))
    }
}

fn settings(renew_deadline: Duration) -> Settings {
    Settings {
        namespace: "n".into(),
        name: "l".into(),
        identity: "me".into(),
        duration: Duration::from_secs(1),
        renew_deadline,
        retry: Duration::from_millis(20),
    }
}

/// A candidate for the Lease of a server, with the identity `me`.
fn candidate(server: &Arc<Mutex<Server>>, renew_deadline: Duration) -> Candidate {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            server.lock().answer(&head.method, &body)
        }
    });
    Candidate::new(Client::new(service, "default"), settings(renew_deadline))
}

fn lease(holder: &str) -> Value {
    json!({
        "metadata": {"name": "l", "namespace": "n", "uid": "u"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 1},
    })
}

#[tokio::test]
async fn run_5_a_process_leads_for_one_term_after_another() {
    let server = Server::with(lease(""));
    let mut candidate = candidate(&server, Duration::from_millis(300));
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
        // The callback runs only if another holder was observed.
        assert_eq!(others.get().min(1), expected);
        assert_eq!(server.lock().lease["spec"]["holderIdentity"], "me");
        server.lock().away = true;
        assert_eq!(candidate.hold(&stop).await, Ok(End::Lost));
        terms.push(term);
        assert!(terms.iter().all(|term| !term.is_leader()));
    }
}

/// A renewal fails, the process is frozen for an unknown time and then finds a record that is not its own: another may
/// have been leader meanwhile, whether it has released the Lease or not.
#[tokio::test]
async fn run_5_who_may_have_lost_the_lease_to_another_does_not_go_on() {
    for meanwhile in [lease("other"), lease(""), Value::Null] {
        let server = Server::with(lease(""));
        // By its own clock no time passes.
        let mut candidate = candidate(&server, Duration::from_hours(1));
        let stop = CancellationToken::new();
        let term = Arc::new(Leadership::default());
        let won = candidate.acquire(Arc::clone(&term), &stop, || {}).await;
        assert_eq!(won, Ok(Some(())));
        server.lock().meanwhile = Some(meanwhile.clone());
        let limit = Duration::from_secs(10);
        let end = tokio::time::timeout(limit, candidate.hold(&stop)).await;
        assert_eq!(end, Ok(Ok(End::Lost)), "{meanwhile}");
        assert!(!term.is_leader());
        assert_eq!(server.lock().lease, meanwhile, "it was not written again");
        // In a new term it may lead again.
        if meanwhile != lease("other") {
            let term = Arc::new(Leadership::default());
            let won = candidate.acquire(Arc::clone(&term), &stop, || {}).await;
            assert_eq!(won, Ok(Some(())));
            assert!(term.is_leader());
        }
    }
}

#[tokio::test]
async fn run_3_a_lease_that_was_restored_ends_whoever_knew_it() {
    let at = |version: &str| {
        let mut lease = lease("other");
        lease["metadata"]["resourceVersion"] = version.into();
        lease["spec"]["leaseDurationSeconds"] = 600.into();
        lease
    };
    let server = Server::with(at("50"));
    let mut candidate = candidate(&server, Duration::from_millis(300));
    let stop = CancellationToken::new();
    // Called once another holder was observed: at version 50.
    let restored = || server.lock().lease = at("40");
    let ended = candidate.acquire(Arc::default(), &stop, restored).await;
    let error = ended.unwrap_err().to_string();
    assert!(
        error.contains("Lease n/l is at version 40 and was at 50"),
        "{error}"
    );
}

#[test]
fn run_5_a_term_goes_forward_only() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let held = Term::Until(at(10));
    let cases = [
        // Time of the renewal, its expiry, and the result.
        (Term::Ahead, 1, 10, held, "won"),
        (Term::Ahead, 10, 10, Term::Ahead, "won too late to begin"),
        (held, 9, 19, Term::Until(at(19)), "renewed in time"),
        (held, 10, 19, Term::Over, "run out when that was known"),
        (held, 600, 610, Term::Over, "frozen"),
        (Term::Over, 1, 19, Term::Over, "lost before"),
    ];
    for (term, now, until, expected, what) in cases {
        assert_eq!(term.renewed(at(now), at(until)), expected, "{what}");
    }
    assert!(!Term::Ahead.holds(at(0)) && !Term::Over.holds(at(0)));
    assert!(held.holds(at(9)) && !held.holds(at(10)));
}

/// Renewals at any time, with any delay, and losses: a term that was held and lost is never held again.
#[test]
fn run_5_a_term_once_lost_never_goes_on() {
    let (mut held, mut lost) = (0, 0);
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut term, mut now) = (Term::default(), Instant::now());
        let (mut has_held, mut is_lost) = (false, false);
        for _ in 0..20 {
            let asked = now;
            now += Duration::from_secs(rng.u64(0..8));
            has_held |= term.holds(asked);
            is_lost |= has_held && !term.holds(now);
            match rng.u8(..12) {
                0 => term = Term::Over,
                _ => term = term.renewed(now, asked + Duration::from_secs(10)),
            }
            assert!(!(is_lost && term.holds(now)), "seed {seed}");
        }
        held += u32::from(has_held);
        lost += u32::from(is_lost);
    }
    assert!(held > 1_000 && lost > 100, "{held} {lost}");
}
