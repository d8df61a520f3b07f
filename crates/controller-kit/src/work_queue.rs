//! A queue of one kind of work with its workers, like client-go's rate-limiting queue: which keys are due, and when a
//! key is requeued after a reconcile.

use std::fmt::Display;
use std::hash::Hash;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::backoff::{Backoff, Failures};
use crate::queue::Queue;
use crate::writer::WriteError;

/// When an object is reconciled again, if no change comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Only after a change.
    AwaitChange,
    /// Periodically, in case a change is missed: [`RetryPolicy::resync`].
    Resync,
    /// After this time, because something in progress will take that long. Counts neither as a success nor as a
    /// failure.
    After(Duration),
    /// The object cannot be served, and no change will announce when it can: by the back-off of refusals.
    Backoff,
}

impl Requeue {
    /// The one of two that comes first. A time that something in progress takes is shorter than the others.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::After(one), _) | (_, Self::After(one)) => Self::After(one),
            (Self::Backoff, _) | (_, Self::Backoff) => Self::Backoff,
            (Self::Resync, _) | (_, Self::Resync) => Self::Resync,
            (Self::AwaitChange, Self::AwaitChange) => Self::AwaitChange,
        }
    }
}

/// The times of requeues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Longest time between two reconciles of an object that waits for something. The actual time is random, at least
    /// two thirds of it, so that objects that began to wait together are not reconciled together (RUN-4).
    pub resync: Duration,
    /// For refusals of the API server, and for objects that cannot be served as they are.
    pub refused: Backoff,
    /// For failures because the API server was unavailable, and for repeated conflicts.
    pub unavailable: Backoff,
}

/// Observes reconciles, for the metrics.
pub trait ReconcileObserver: Send + Sync {
    /// A reconcile of an object of this kind ended. A conflict is not a failure.
    fn reconciled(&self, kind: &'static str, took: Duration, failed: bool);
}

/// A queue of keys of one kind of work.
#[derive(Debug)]
pub struct WorkQueue<K> {
    kind: &'static str,
    policy: RetryPolicy,
    queue: Queue<K>,
    failures: Failures<K>,
}

impl<K: Clone + Display + Eq + Hash + Ord> WorkQueue<K> {
    /// An empty queue; `kind` is its name in metrics and logs.
    pub fn new(kind: &'static str, policy: RetryPolicy) -> Self {
        Self {
            kind,
            policy,
            queue: Queue::default(),
            failures: Failures::default(),
        }
    }

    /// The name of the kind of work in metrics and logs.
    pub const fn kind(&self) -> &'static str {
        self.kind
    }

    /// The key is due now.
    pub fn add(&self, key: K) {
        self.queue.add(key);
    }

    /// The key is due after a delay, or sooner if another caller adds it sooner.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.queue.add_after(key, delay);
    }

    /// Waits for the next due key. `None` once the queue is closed. The caller must call [`WorkQueue::done`].
    pub async fn next(&self) -> Option<K> {
        self.queue.next().await
    }

    /// The worker is done with the key. If it was added meanwhile it is due again, else the outcome decides.
    pub fn done(&self, key: &K, outcome: &Result<Requeue, WriteError>) {
        match self.delay(key, outcome) {
            Some(Duration::ZERO) => self.queue.add(key.clone()),
            Some(delay) => self.queue.add_after(key.clone(), delay),
            None => {}
        }
        self.queue.done(key);
    }

    /// Whether a worker has the key.
    pub fn is_working(&self, key: &K) -> bool {
        self.queue.is_working(key)
    }

    /// Forgets the failures of a key: its object is gone.
    pub fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    /// Number of due keys that wait for a worker.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Number of keys that are failing.
    pub fn failing(&self) -> usize {
        self.failures.len()
    }

    /// Closes the queue: every present and future [`WorkQueue::next`] returns `None`.
    pub fn close(&self) {
        self.queue.close();
    }

    /// Whether the queue is closed.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Waits until the queue is closed.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }

    /// One worker: reconciles due keys one by one until the queue is closed.
    pub async fn work<F>(&self, observer: &dyn ReconcileObserver, reconcile: impl Fn(K) -> F)
    where
        F: Future<Output = Result<Requeue, WriteError>>,
    {
        while let Some(key) = self.next().await {
            let started = Instant::now();
            // Boxed: the state of a reconcile is large, and most workers are idle.
            let outcome = Box::pin(reconcile(key.clone())).await;
            let failed = outcome.as_ref().is_err_and(|error| !error.is_stale());
            observer.reconciled(self.kind, started.elapsed(), failed);
            self.done(&key, &outcome);
        }
    }

    /// The delay of the requeue; `None` if only a change causes a reconcile.
    fn delay(&self, key: &K, outcome: &Result<Requeue, WriteError>) -> Option<Duration> {
        let RetryPolicy {
            resync,
            refused,
            unavailable,
        } = self.policy;
        let (kind, object) = (self.kind, key);
        match outcome {
            Ok(Requeue::AwaitChange) => {
                self.failures.forget(key);
                None
            }
            Ok(Requeue::Resync) => {
                self.failures.forget(key);
                let delay = resync.mul_f64((2.0 + fastrand::f64()) / 3.0);
                Some(delay.min(resync))
            }
            Ok(Requeue::After(delay)) => Some(*delay),
            Ok(Requeue::Backoff) => Some(self.failures.failed(key.clone(), refused)),
            // The Lease may be renewed late, and then the work is still due; if it is lost, the queue ends with the
            // term.
            Err(WriteError::Fenced) => Some(unavailable.base),
            // The newer copy is cached by now: retry at once, unless conflicts repeat.
            Err(error) if error.is_stale() => {
                debug!(kind, %object, %error, "conflict, retrying");
                let delay = self.failures.failed(key.clone(), unavailable);
                Some(if delay <= unavailable.base {
                    Duration::ZERO
                } else {
                    delay
                })
            }
            Err(error) => {
                let backoff = if error.is_refusal() {
                    refused
                } else {
                    unavailable
                };
                let delay = self.failures.failed(key.clone(), backoff);
                let retry_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                warn!(kind, %object, %error, retry_in_ms, "reconcile failed, will retry");
                Some(delay)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        resync: Duration::from_secs(30),
        refused: Backoff {
            base: Duration::from_secs(1),
            cap: Duration::from_mins(1),
        },
        unavailable: Backoff {
            base: Duration::from_secs(1),
            cap: Duration::from_secs(5),
        },
    };

    fn queue() -> WorkQueue<&'static str> {
        WorkQueue::new("LoadBalancer", POLICY)
    }

    #[test]
    fn rel_4_of_two_requeues_the_sooner_counts() {
        use Requeue::{AwaitChange, Backoff, Resync};
        let after = |seconds| Requeue::After(Duration::from_secs(seconds));
        let sorted = [after(1), after(3), Backoff, Resync, AwaitChange];
        for (at, sooner) in sorted.into_iter().enumerate() {
            for later in &sorted[at..] {
                assert_eq!(sooner.sooner(*later), sooner, "{later:?}");
                assert_eq!(later.sooner(sooner), sooner, "{later:?}");
            }
        }
    }

    #[test]
    fn run_4_a_resync_comes_after_at_most_30_s() {
        let queue = queue();
        for _ in 0..100 {
            let delay = queue.delay(&"a", &Ok(Requeue::Resync)).unwrap();
            let bounds = Duration::from_secs(20)..=Duration::from_secs(30);
            assert!(bounds.contains(&delay), "{delay:?}");
        }
    }

    #[test]
    fn pool_3_a_pause_between_two_writes_is_no_success() {
        let queue = queue();
        let refused = Err(WriteError::Refused("no".into()));
        let pause = Duration::from_millis(300);
        for _ in 0..20 {
            queue.delay(&"p", &refused);
            let paused = queue.delay(&"p", &Ok(Requeue::After(pause)));
            assert_eq!(paused, Some(pause));
        }
        assert!(queue.delay(&"p", &refused) >= Some(POLICY.refused.cap / 2));
        assert_eq!(queue.delay(&"p", &Ok(Requeue::AwaitChange)), None);
        assert!(queue.delay(&"p", &refused) <= Some(POLICY.refused.base));
    }

    /// The delay after many failures of a kind.
    fn after_many(outcome: &Result<Requeue, WriteError>) -> Duration {
        let queue = queue();
        let delays = (0..20).map(|_| queue.delay(&"a", outcome));
        delays.last().flatten().unwrap()
    }

    #[test]
    fn alc_8_what_the_api_server_failed_to_do_is_done_soon_after_its_return() {
        let error = |of: fn(String) -> WriteError| Err(of("m".to_owned()));
        for outcome in [
            error(WriteError::Unavailable),
            error(WriteError::Conflict),
            error(WriteError::AlreadyExists),
            error(WriteError::NotFound),
            Err(WriteError::Fenced),
        ] {
            assert!(
                after_many(&outcome) <= POLICY.unavailable.cap,
                "{outcome:?}"
            );
        }
        // An object's own fault waits longer (section 9).
        for outcome in [error(WriteError::Refused), Ok(Requeue::Backoff)] {
            assert!(
                after_many(&outcome) >= POLICY.refused.cap / 2,
                "{outcome:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_done_again_until_it_succeeds() {
        #[derive(Default)]
        struct Seen(parking_lot::Mutex<Vec<(&'static str, bool)>>);
        impl ReconcileObserver for Seen {
            fn reconciled(&self, kind: &'static str, _: Duration, failed: bool) {
                self.0.lock().push((kind, failed));
            }
        }
        let (queue, seen) = (queue(), Seen::default());
        queue.add("a");
        queue
            .work(&seen, |_| {
                let tries = seen.0.lock().len();
                let queue = &queue;
                async move {
                    match tries {
                        0 => Err(WriteError::Unavailable("away".into())),
                        1 => Err(WriteError::Conflict("newer".into())),
                        2 => Ok(Requeue::Backoff),
                        _ => {
                            queue.close();
                            Ok(Requeue::AwaitChange)
                        }
                    }
                }
            })
            .await;
        let expected = [true, false, false, false].map(|failed| ("LoadBalancer", failed));
        assert_eq!(*seen.0.lock(), expected);
        assert_eq!(queue.failing(), 0);
    }
}
