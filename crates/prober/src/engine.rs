//! The engine: drives the pure parts with tokio.
//!
//! Tasks, all on the runtime in which the prober was started:
//! - one timer task, which starts the probes that are due (`engine/run.rs`);
//! - one task per connect in flight, at most [`Settings::max_in_flight`] of them.
//!
//! They share the state in `engine/shared.rs`: one mutex, held for map and tree operations only, never across an await,
//! a spawn, an abort or a call of the observer. There are no queues. Due probes wait in the timetable (bounded by the
//! targets), verdict changes in a set (bounded by the groups), and two [`Notify`] with one permit each wake the timer
//! task and the consumer of the verdict changes.

mod run;
mod shared;

use std::{net::IpAddr, sync::Arc};

use crate::{
    Connector, GroupId, HealthCheck, Observer, Settings, Snapshot, Target, TargetView,
    TcpConnector, registry,
};
use shared::Shared;

/// A running prober. Clones share it; when the last one is dropped, it shuts down.
///
/// No method waits for I/O or for a probe (HC-5).
#[derive(Clone, Debug)]
pub struct Prober {
    owner: Arc<Owner>,
}

/// The receiving end of verdict changes, for one consumer.
#[derive(Debug)]
pub struct VerdictChanges {
    shared: Arc<Shared>,
}

/// Ends the tasks when the last handle is dropped; the tasks themselves hold only the shared state.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
}

impl Prober {
    /// Starts a prober that makes real TCP connections.
    ///
    /// # Panics
    /// Outside a tokio runtime with time and I/O enabled, as [`tokio::spawn`] does.
    pub fn start(settings: Settings, observer: Arc<dyn Observer>) -> (Self, VerdictChanges) {
        Self::start_with(settings, observer, TcpConnector)
    }

    /// Starts a prober that connects with `connector`.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled, as [`tokio::spawn`] does.
    pub fn start_with<C: Connector>(
        settings: Settings,
        observer: Arc<dyn Observer>,
        connector: C,
    ) -> (Self, VerdictChanges) {
        let shared = Arc::new(Shared::new(settings, observer));
        tokio::spawn(run::timer(Arc::clone(&shared), Arc::new(connector)));
        let changes = VerdictChanges {
            shared: Arc::clone(&shared),
        };
        (
            Self {
                owner: Arc::new(Owner { shared }),
            },
            changes,
        )
    }

    /// Replaces the targets of `group`, probed by `check`. Idempotent.
    ///
    /// - A target (id and address) that is in the group already keeps its verdict, counters and place in the timetable;
    ///   its `ready` is ignored.
    /// - If the check differs from that of the last call, all targets restart with fresh counters and keep their
    ///   verdicts (HC-2).
    /// - A new target starts from its `ready` (EPS-1, HC-3); its first probe comes one period later.
    /// - A target that is no longer listed is not probed any more, and its probe in flight is aborted (HC-2).
    ///
    /// Of a target listed twice the first counts. An empty list leaves an empty group. After the shutdown nothing
    /// happens.
    pub fn set_group(
        &self,
        group: impl Into<GroupId>,
        check: HealthCheck,
        mut targets: Vec<Target>,
    ) {
        let group = group.into();
        registry::in_order(&mut targets);
        let shared = self.shared();
        let now = shared.now();
        shared.change(|registry, cancelled| {
            registry.set_group(now, &group, check, targets, cancelled);
        });
    }

    /// Removes `group`: its probes stop, and an undelivered verdict change of it is dropped (HC-2). Returns whether it
    /// was known.
    pub fn remove_group(&self, group: &str) -> bool {
        let mut known = false;
        self.shared().change(|registry, cancelled| {
            known = registry.remove_group(group, cancelled);
        });
        known
    }

    /// Removes all groups, as [`Prober::remove_group`] does with one.
    pub fn clear(&self) {
        self.shared().change(|registry, cancelled| {
            for group in registry.groups() {
                registry.remove_group(&group, cancelled);
            }
        });
    }

    /// The groups, unordered.
    pub fn groups(&self) -> Vec<GroupId> {
        self.shared().state.lock().registry.groups()
    }

    /// The verdict on a target; `None` if it is not probed.
    pub fn verdict(&self, group: &str, id: &str, addr: IpAddr) -> Option<bool> {
        self.shared().state.lock().registry.verdict(group, id, addr)
    }

    /// The targets of a group with their verdicts, ordered by address and id; `None` if the group
    /// is not known.
    pub fn group(&self, group: &str) -> Option<Vec<TargetView>> {
        self.shared().state.lock().registry.group(group)
    }

    /// The check by which a group is probed; `None` if the group is not known.
    pub fn check(&self, group: &str) -> Option<HealthCheck> {
        self.shared().state.lock().registry.check(group)
    }

    /// Statistics of the whole prober; constant time.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.shared().state.lock();
        state.registry.snapshot(state.slots.taken())
    }

    /// Number of targets.
    pub fn len(&self) -> usize {
        self.snapshot().targets
    }

    /// Whether there is no target.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stops all probes, removes all groups and ends the stream of verdict changes. Does not wait for the tasks; they
    /// end within milliseconds. Later calls change nothing.
    pub fn shutdown(&self) {
        self.shared().shutdown();
    }

    fn shared(&self) -> &Shared {
        &self.owner.shared
    }
}

impl VerdictChanges {
    /// Waits for groups with changed verdicts, or with verdicts that became stale or fresh (HC-6) or were confirmed for the
    /// first time.
    ///
    /// A group is delivered once for all changes within [`GATHER`](crate::GATHER) of the first; the consumer reads its
    /// verdicts then, and sees at least the change that caused the delivery. A consumer may be as slow as it likes:
    /// changes add up to one delivery per group. `None` after the shutdown. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<GroupId>> {
        let shared = &self.shared;
        loop {
            let deadline = {
                let mut state = shared.state.lock();
                if state.closed {
                    return None;
                }
                let groups = state.registry.changes.take(shared.now());
                if !groups.is_empty() {
                    return Some(groups);
                }
                state.registry.changes.next_deadline()
            };
            shared.wait(deadline, &shared.dirty).await;
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.shutdown();
    }
}

#[cfg(test)]
mod tests;
