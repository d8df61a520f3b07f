//! The workers: one loop for each kind of work, which takes what is due and decides when a failure is tried again.

use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_controller_kit::backoff::Failures;
use harvester_lb_controller_kit::queue::Queue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_ipam::PoolName;
use harvester_lb_object::Key;
use harvester_lb_prober::Edges;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::hub::Hub;
use crate::reconcile::Next;
use crate::timings::Timings;
use crate::{guests, history, legacy, pools, reconcile, tell};

/// Workers for pools; a write of a large map takes its time.
const POOL_WORKERS: usize = 2;
/// Workers that take finalizers of old off: after a swap every virtual machine has one, and a webhook of KubeVirt may be
/// slow to admit the change.
const LEGACY_WORKERS: usize = 4;

/// Starts all workers; they end when the queues are closed.
pub fn spawn(hub: &Arc<Hub>, workers: usize, set: &mut JoinSet<()>) {
    for _ in 0..workers {
        let hub = Arc::clone(hub);
        set.spawn(async move {
            while let Some(key) = hub.queues.lbs.next().await {
                // On the heap: the state of a reconcile is large, and most workers have none.
                let work = Box::pin(reconcile::reconcile(&hub, &key));
                let outcome = timed(&hub, "LoadBalancer", work).await;
                if let Some(delay) = lb_again(&hub, &key, &outcome) {
                    hub.queues.lbs.add_after(key.clone(), delay);
                }
                hub.queues.lbs.done(&key);
            }
        });
    }
    for _ in 0..POOL_WORKERS {
        let hub = Arc::clone(hub);
        set.spawn(async move {
            while let Some(name) = hub.queues.pools.next().await {
                let outcome = timed(&hub, "IPPool", pools::reconcile(&hub, &name)).await;
                if let Some(delay) = pool_again(&hub, &name, &outcome) {
                    hub.queues.pools.add_after(name.clone(), delay);
                }
                hub.queues.pools.done(&name);
            }
        });
    }
    let guests_hub = Arc::clone(hub);
    set.spawn(async move {
        let hub = guests_hub;
        drain(hub.timings, &hub.queues.guests, |cluster| {
            let hub = &hub;
            async move { timed(hub, "GuestCluster", guests::reconcile(hub, &cluster)).await }
        })
        .await;
    });
    let tell_hub = Arc::clone(hub);
    set.spawn(async move {
        let queue = &tell_hub.queues.tell;
        while let Some(()) = queue.next().await {
            if let Some(delay) = tell::pass(&tell_hub) {
                queue.add_after((), delay);
            }
            queue.done(&());
        }
    });
    let history_hub = Arc::clone(hub);
    set.spawn(async move {
        let hub = history_hub;
        drain(hub.timings, &hub.queues.history, |()| {
            let hub = &hub;
            async move { timed(hub, "History", history::reconcile(hub)).await }
        })
        .await;
    });
    for _ in 0..LEGACY_WORKERS {
        let hub = Arc::clone(hub);
        set.spawn(async move {
            drain(hub.timings, &hub.queues.legacy, |(kind, key)| {
                let hub = &hub;
                async move { timed(hub, "LegacyFinalizer", legacy::reconcile(hub, kind, &key)).await }
            })
            .await;
        });
    }
}

/// Queues load balancers whose verdicts have changed, until the health checks end. What changes while nobody follows is
/// told to the next who does.
pub async fn follow_verdicts(hub: &Hub, edges: &mut Edges) {
    while let Some(groups) = edges.next().await {
        for group in groups {
            if let Some((namespace, name)) = group.split_once('/') {
                hub.queues.lbs.add(Key::new(namespace, name));
            }
        }
    }
}

/// When to look at a load balancer again, if no event comes first; `None` if only an event calls for it.
pub fn lb_again(hub: &Hub, key: &Key, outcome: &Result<Next, WriteError>) -> Option<Duration> {
    let delay = match outcome {
        Ok(Next::Event) => None,
        Ok(Next::Recheck) => Some(hub.timings.recheck_in(fastrand::f64())),
        Ok(Next::After(delay)) => Some(*delay),
        outcome => {
            let (failures, timings) = (&hub.lb_failures, &hub.timings);
            return Some(retry(failures, timings, key, outcome, "LoadBalancer"));
        }
    };
    hub.lb_failures.forget(key);
    delay
}

/// When to look at a pool again, as for a load balancer.
pub fn pool_again(
    hub: &Hub,
    name: &PoolName,
    outcome: &Result<Next, WriteError>,
) -> Option<Duration> {
    pool_delay(&hub.pool_failures, &hub.timings, name, outcome)
}

fn pool_delay(
    failures: &Failures<PoolName>,
    timings: &Timings,
    name: &PoolName,
    outcome: &Result<Next, WriteError>,
) -> Option<Duration> {
    match outcome {
        Ok(Next::Event | Next::Recheck) => {
            failures.forget(name);
            None
        }
        // Its pace does not allow the write yet; what failed before has not succeeded by that.
        Ok(Next::After(delay)) => Some(*delay),
        outcome => Some(retry(failures, timings, name, outcome, "IPPool")),
    }
}

/// Works through a queue of rare things; what failed comes back after [`Timings::retry_away_cap`], what was refused after
/// [`Timings::rare_refused`].
async fn drain<K, F>(timings: Timings, queue: &Queue<K>, work: impl Fn(K) -> F)
where
    K: Clone + Eq + Hash + Ord,
    F: Future<Output = Result<Next, WriteError>>,
{
    while let Some(key) = queue.next().await {
        match work(key.clone()).await {
            Ok(Next::Event | Next::Recheck) => {}
            Ok(Next::After(delay)) => queue.add_after(key.clone(), delay),
            Ok(Next::Backoff) => queue.add_after(key.clone(), timings.retry_away_cap),
            Err(error) => {
                warn!(%error, "trying again in a while");
                let delay = if error.is_refusal() {
                    timings.rare_refused
                } else {
                    timings.retry_away_cap
                };
                queue.add_after(key.clone(), delay);
            }
        }
        queue.done(&key);
    }
}

async fn timed<T>(
    hub: &Hub,
    kind: &str,
    work: impl Future<Output = Result<T, WriteError>>,
) -> Result<T, WriteError> {
    let started = Instant::now();
    let outcome = work.await;
    hub.metrics
        .reconcile_duration
        .with_label_values(&[kind])
        .observe(started.elapsed().as_secs_f64());
    if outcome.as_ref().is_err_and(|e| !e.is_stale()) {
        hub.metrics
            .reconcile_errors
            .with_label_values(&[kind])
            .inc();
    }
    outcome
}

/// When to try again what did not work. A copy that was old has been read anew by now: at once, unless that goes on.
fn retry<K: Clone + Eq + Hash + Display>(
    failures: &Failures<K>,
    timings: &Timings,
    key: &K,
    outcome: &Result<Next, WriteError>,
    kind: &str,
) -> Duration {
    match outcome {
        Ok(_) => failures.failed(key.clone()),
        // The Lease may be renewed late, and then the work is still owed; if it is lost, the queue goes with it.
        Err(WriteError::Fenced) => timings.retry,
        Err(error) if error.is_stale() => {
            debug!(kind, object = %key, %error, "deciding again");
            let delay = failures.failed_with(key.clone(), timings.backoff_away());
            if delay <= timings.retry {
                Duration::ZERO
            } else {
                delay
            }
        }
        Err(error) => {
            let backoff = if error.is_refusal() {
                timings.backoff()
            } else {
                timings.backoff_away()
            };
            let delay = failures.failed_with(key.clone(), backoff);
            warn!(kind, object = %key, %error, retry_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), "not done yet");
            delay
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_3_a_pause_between_two_writes_is_no_success() {
        let timings = Timings::default();
        let (failures, name) = (Failures::new(timings.backoff()), PoolName::from("p"));
        let pool_delay = |outcome: &_| pool_delay(&failures, &timings, &name, outcome);
        let refused = Err(WriteError::Refused("no".into()));
        let pause = Duration::from_millis(300);
        for _ in 0..20 {
            pool_delay(&refused);
            assert_eq!(pool_delay(&Ok(Next::After(pause))), Some(pause));
        }
        assert!(pool_delay(&refused) >= Some(timings.retry_cap / 2));
        assert_eq!(pool_delay(&Ok(Next::Event)), None);
        assert!(pool_delay(&refused) <= Some(timings.retry));
    }

    /// The delay after many failures of a kind.
    fn after_many(outcome: &Result<Next, WriteError>) -> Duration {
        let timings = Timings::default();
        let failures = Failures::new(timings.backoff());
        (0..20)
            .map(|_| retry(&failures, &timings, &"a", outcome, "LoadBalancer"))
            .last()
            .unwrap()
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
                after_many(&outcome) <= Timings::default().retry_away_cap,
                "{outcome:?}"
            );
        }
        // What is the object's own fault waits longer (section 9).
        for outcome in [error(WriteError::Refused), Ok(Next::Backoff)] {
            assert!(
                after_many(&outcome) >= Timings::default().retry_cap / 2,
                "{outcome:?}"
            );
        }
    }
}
