//! The queue of one kind of work and the loop of its workers, as client-go's rate-limiting queue: what is due, and when it
//! is looked at again after a reconcile.

use std::fmt::Display;
use std::hash::Hash;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::backoff::{Backoff, Failures};
use crate::queue::Queue;
use crate::writer::WriteError;

/// When an object is looked at again, if no change of it comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Only a change calls for it.
    AwaitChange,
    /// Now and then, should a change ever be missed: [`RetryPolicy::resync`].
    Resync,
    /// After this time: what is under way is not done by then. Counts neither as a success nor as a failure.
    After(Duration),
    /// It cannot be served, and nothing tells when it can: by the back-off of what is refused.
    Backoff,
}

/// When work is done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Longest time between two looks at an object that waits for something. At least two thirds of it pass, by chance, so
    /// that those that began to wait together do not come back together (RUN-4).
    pub resync: Duration,
    /// What the API server refuses, or what cannot be served as it is.
    pub refused: Backoff,
    /// What failed because the API server was unavailable or held another copy.
    pub unavailable: Backoff,
}

/// Told of each reconcile, for the metrics.
pub trait ReconcileObserver: Send + Sync {
    /// A reconcile of an object of this kind ended. A conflict is no failure.
    fn reconciled(&self, kind: &'static str, took: Duration, failed: bool);
}

/// Keys of one kind of work.
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

    /// Its name in metrics and logs.
    pub const fn kind(&self) -> &'static str {
        self.kind
    }

    /// The key is due now.
    pub fn add(&self, key: K) {
        self.queue.add(key);
    }

    /// The key is due after a delay, or sooner if something else asks for it sooner.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.queue.add_after(key, delay);
    }

    /// The next key that is due; waits for one. `None` once the queue is closed. The caller owes a [`WorkQueue::done`].
    pub async fn next(&self) -> Option<K> {
        self.queue.next().await
    }

    /// The worker is done with the key. If it was added meanwhile it is due again, else when the outcome says so.
    pub fn done(&self, key: &K, outcome: &Result<Requeue, WriteError>) {
        match self.delay(key, outcome) {
            Some(Duration::ZERO) => self.queue.add(key.clone()),
            Some(delay) => self.queue.add_after(key.clone(), delay),
            None => {}
        }
        self.queue.done(key);
    }

    /// Forgets the failures of a key: it is gone.
    pub fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    /// Number of keys that are due and wait for a worker.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Number of keys that are failing.
    pub fn failing(&self) -> usize {
        self.failures.len()
    }

    /// Ends the queue: every present and future [`WorkQueue::next`] answers `None`.
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

    /// One worker: reconciles what is due, one key after the other, until the queue is closed.
    pub async fn work<F>(&self, observer: &dyn ReconcileObserver, reconcile: impl Fn(K) -> F)
    where
        F: Future<Output = Result<Requeue, WriteError>>,
    {
        while let Some(key) = self.next().await {
            let started = Instant::now();
            // On the heap: the state of a reconcile is large, and most workers have none.
            let outcome = Box::pin(reconcile(key.clone())).await;
            let failed = outcome.as_ref().is_err_and(|error| !error.is_stale());
            observer.reconciled(self.kind, started.elapsed(), failed);
            self.done(&key, &outcome);
        }
    }

    /// When to look at the key again; `None` if only a change calls for it.
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
            // The Lease may be renewed late, and then the work is still owed; if it is lost, the queue goes with it.
            Err(WriteError::Fenced) => Some(unavailable.base),
            // The newer copy is known by now: at once, unless that goes on.
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
        // What is the object's own fault waits longer (section 9).
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
