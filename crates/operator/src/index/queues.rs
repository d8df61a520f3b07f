//! The work queues of the controllers.

use std::fmt;

use harvester_lb_controller_kit::backoff::Backoff;
use harvester_lb_controller_kit::work_queue::{RetryPolicy, WorkQueue};
use harvester_lb_ipam::PoolName;
use harvester_lb_object::Key;

use crate::timings::Timings;

/// The only key of a controller that does not work by object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Singleton;

impl fmt::Display for Singleton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all")
    }
}

/// A kind that may carry a finalizer of the Go operator (FIN-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LegacyKind {
    /// VirtualMachine.
    Vm,
    /// VirtualMachineInstance.
    Vmi,
}

/// An object that carries a finalizer of the Go operator (FIN-1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LegacyObject {
    /// Its kind.
    pub kind: LegacyKind,
    /// Its namespace and name.
    pub key: Key,
}

impl fmt::Display for LegacyObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            LegacyKind::Vm => "VirtualMachine",
            LegacyKind::Vmi => "VirtualMachineInstance",
        };
        write!(f, "{kind} {}", self.key)
    }
}

/// The work queues, one for each controller.
#[derive(Debug)]
pub struct Queues {
    /// Load balancers, existing or deleted.
    pub lbs: WorkQueue<Key>,
    /// Pools.
    pub pools: WorkQueue<PoolName>,
    /// Guest clusters: namespace and name.
    pub guest_clusters: WorkQueue<Key>,
    /// Queued if there may be excess history (POOL-5).
    pub history: WorkQueue<Singleton>,
    /// Queued if messages of waiting load balancers may be outdated (SEL-7).
    pub waiting_messages: WorkQueue<Singleton>,
    /// Objects with legacy finalizers (FIN-1).
    pub legacy: WorkQueue<LegacyObject>,
}

impl Queues {
    /// Empty queues.
    pub fn new(timings: &Timings) -> Self {
        let policy = RetryPolicy {
            resync: timings.recheck,
            refused: timings.backoff(),
            unavailable: timings.backoff_unavailable(),
        };
        let fixed = |delay| Backoff {
            base: delay,
            cap: delay,
        };
        // Few keys, whose reconcile may write many objects; a missing permission is granted late.
        let rare = RetryPolicy {
            refused: fixed(timings.rare_refused),
            unavailable: fixed(timings.retry_unavailable_cap),
            ..policy
        };
        // After a swap there are thousands, which must not keep an API server busy that is overloaded: nobody waits for one but
        // who deletes a virtual machine.
        let many = RetryPolicy {
            unavailable: timings.backoff(),
            ..policy
        };
        Self {
            lbs: WorkQueue::new("LoadBalancer", policy),
            pools: WorkQueue::new("IPPool", policy),
            guest_clusters: WorkQueue::new("GuestCluster", rare),
            history: WorkQueue::new("History", rare),
            waiting_messages: WorkQueue::new("WaitingMessage", rare),
            legacy: WorkQueue::new("LegacyFinalizer", many),
        }
    }

    /// Closes all queues, which ends the idle workers.
    pub fn close(&self) {
        self.lbs.close();
        self.guest_clusters.close();
        self.history.close();
        self.waiting_messages.close();
        self.legacy.close();
        self.pools.close();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use harvester_lb_controller_kit::writer::WriteError;
    use tokio::time::Instant;

    use super::*;

    /// After a swap every virtual machine has such a finalizer: requests that fail must become few.
    #[tokio::test(start_paused = true)]
    async fn fin_1_the_pauses_of_a_removal_that_goes_on_failing_grow() {
        let object = || LegacyObject {
            kind: LegacyKind::Vm,
            key: Key::new("n", "vm"),
        };
        for error in [WriteError::Refused, WriteError::Unavailable] {
            let timings = Timings::default();
            let queue = Queues::new(&timings).legacy;
            queue.add(object());
            let mut pauses = Vec::new();
            for _ in 0..10 {
                let began = Instant::now();
                let due = queue.next().await.unwrap();
                pauses.push(began.elapsed());
                queue.done(&due, &Err(error("no".to_owned())));
            }
            assert!(pauses[1] <= Duration::from_secs(2), "{pauses:?}");
            // It is named in /readyz as long as it is tried again each few minutes.
            let last = timings.retry_cap / 2..=timings.retry_cap + Duration::from_secs(1);
            assert!(last.contains(&pauses[9]), "{pauses:?}");
        }
    }
}
