//! Which watches of a process are failing, since when and with which error, for `/readyz` and the metrics. The store of a
//! watch that fails stands still while the process goes on: a permission that is taken away later must not go unnoticed.
//!
//! A watch is failing from its first error until it is established again: a list is complete, an event has come, or the API
//! server has accepted its request. That last one is seen at the client, since nothing else happens on a quiet kind: the
//! bookmarks that a watch receives are not passed on. If the error came by a watch that was accepted, the next acceptance
//! proves nothing; the one after it does, to which a watch without an error leads within its time limit.

use std::fmt::Write;
use std::sync::Arc;

use axum::http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};

use crate::client::is_watch;

/// Most characters of an error that `/readyz` shows: enough for the user, the verb and the kind of a refusal.
const SHOWN: usize = 400;

/// The watches of a process.
#[derive(Clone, Debug, Default)]
pub struct Watches(Arc<Mutex<Vec<WatchHealth>>>);

impl Watches {
    /// Adds a watch; `what` names its kind, or the one object that it is about. `errors` counts its errors, `failing` the watches
    /// of its kind that are failing.
    pub fn add(&self, what: String, errors: IntCounter, failing: IntGauge) -> WatchHealth {
        let health = WatchHealth(Arc::new(Inner {
            what,
            errors,
            failing,
            failure: Mutex::default(),
        }));
        self.0.lock().push(health.clone());
        health
    }

    /// One line for each watch that is failing.
    pub fn failing(&self) -> Vec<String> {
        let all = self.0.lock();
        all.iter().filter_map(WatchHealth::line).collect()
    }
}

/// Whether one watch is failing (RUN-2).
#[derive(Clone, Debug)]
pub struct WatchHealth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    what: String,
    errors: IntCounter,
    failing: IntGauge,
    failure: Mutex<Option<Failure>>,
}

#[derive(Debug)]
struct Failure {
    /// The time of the first error.
    since: Timestamp,
    /// The last error.
    error: String,
    /// It came by a watch that had been accepted, and none has been accepted since.
    was_accepted: bool,
}

impl WatchHealth {
    /// It had this error; `was_accepted` if it came by a watch that had been accepted.
    pub fn failed(&self, error: &str, was_accepted: bool) {
        self.0.errors.inc();
        let mut failure = self.0.failure.lock();
        if failure.is_none() {
            self.0.failing.inc();
        }
        let since = failure.as_ref().map_or_else(Timestamp::now, |it| it.since);
        *failure = Some(Failure {
            since,
            error: shortened(error),
            was_accepted,
        });
    }

    /// The API server has accepted its request.
    fn accepted(&self) {
        if let Some(failure) = &mut *self.0.failure.lock()
            && failure.was_accepted
        {
            failure.was_accepted = false;
            return;
        }
        self.established();
    }

    /// It is established.
    pub fn established(&self) {
        if self.0.failure.lock().take().is_some() {
            self.0.failing.dec();
        }
    }

    /// The client for the watch: as `client`, and sees when the API server accepts its request.
    #[must_use]
    pub fn observing(&self, client: Client) -> Client {
        let (health, namespace) = (self.clone(), client.default_namespace().to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, health) = (client.clone(), health.clone());
            async move {
                let watches = is_watch(request.uri().query().unwrap_or_default());
                let answer: Response<Body> = client.send(request).await?;
                if watches && answer.status().is_success() {
                    health.accepted();
                }
                Ok::<_, kube::Error>(answer)
            }
        });
        Client::new(service, namespace)
    }

    /// What `/readyz` says of it, while it is failing.
    fn line(&self) -> Option<String> {
        let failure = self.0.failure.lock();
        let Failure { since, error, .. } = failure.as_ref()?;
        let mut line = format!("the watch of {} has been failing since ", self.0.what);
        let _ = write!(line, "{}: {error}", since.strftime("%Y-%m-%dT%H:%M:%SZ"));
        Some(line)
    }
}

/// An error in one line that is not too long.
fn shortened(error: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut text: String = error.chars().take(SHOWN).map(clean).collect();
    if error.chars().nth(SHOWN).is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watches() -> (Watches, WatchHealth, IntCounter, IntGauge) {
        let watches = Watches::default();
        let errors = IntCounter::new("errors", "h").unwrap();
        let failing = IntGauge::new("failing", "h").unwrap();
        let health = watches.add("Node".to_owned(), errors.clone(), failing.clone());
        (watches, health, errors, failing)
    }

    #[test]
    fn run_2_a_watch_is_failing_from_its_first_error_until_it_is_established() {
        let (watches, health, errors, failing) = watches();
        let another = watches.add("Secret ns/a".to_owned(), errors.clone(), failing.clone());
        health.established();
        assert_eq!((watches.failing(), failing.get()), (vec![], 0));

        health.failed("reset", false);
        let since = health.0.failure.lock().as_ref().unwrap().since;
        health.failed("nodes is forbidden:\nUser \"u\"", false);
        another.failed(&"x".repeat(1_000), false);
        let lines = watches.failing();
        let of_node = lines[0].strip_prefix("the watch of Node has been failing since ");
        let (time, error) = of_node.unwrap().split_once(": ").unwrap();
        assert_eq!(
            time.parse::<Timestamp>().unwrap().as_second(),
            since.as_second()
        );
        assert_eq!(error, "nodes is forbidden: User \"u\"");
        assert!(lines[1].starts_with("the watch of Secret ns/a has"));
        assert!(lines[1].chars().count() < SHOWN + 100 && lines[1].ends_with("x…"));
        assert_eq!((lines.len(), failing.get(), errors.get()), (2, 2, 3));

        health.established();
        health.established();
        another.established();
        assert_eq!((watches.failing(), failing.get()), (vec![], 0));
        assert_eq!(errors.get(), 3);
    }
}
