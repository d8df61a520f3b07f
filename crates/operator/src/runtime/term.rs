//! The context of the current term, for parts that outlive terms: watches, metrics, `/readyz`.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::context::Context;

/// The context of the current term. A term starts when the previous one ends, so it includes the time as a standby (RUN-5).
pub struct CurrentTerm(RwLock<Arc<Context>>);

impl CurrentTerm {
    /// The first term of a process.
    pub fn new(ctx: Context) -> Self {
        Self(RwLock::new(Arc::new(ctx)))
    }

    /// The current context. A watch updates its store before it calls this, so that a term that starts in between reads the
    /// change from the store.
    pub fn context(&self) -> Arc<Context> {
        Arc::clone(&self.0.read())
    }

    /// Ends the current term and starts the next.
    pub fn next_term(&self) {
        let mut current = self.0.write();
        current.index.end_term();
        *current = Arc::new(current.next_term());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::index::queues::{LegacyKind, LegacyObject};
    use harvester_lb_controller_kit::work_queue::Requeue;
    use harvester_lb_ipam::{Ledger, Settings};
    use harvester_lb_object::Key;
    use harvester_lb_prober::{HealthCheck, Target};

    use crate::fake;
    use crate::index::leader_state::LeaderState;
    use crate::timings::Timings;

    fn current() -> CurrentTerm {
        let nobody = fake::client(|_| std::future::pending());
        CurrentTerm::new(fake::first(nobody, &Timings::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn run_5_a_term_leaves_stores_and_health_checks_and_nothing_else() {
        let current = current();
        let (old, key) = (current.context(), Key::new("n", "a"));
        old.index
            .become_leader(|| LeaderState::new(Ledger::new(Settings::default())));
        old.index.queues.lbs.add(key.clone());
        old.index.queues.legacy.add_after(
            LegacyObject {
                kind: LegacyKind::Vm,
                key: key.clone(),
            },
            Duration::from_secs(5),
        );
        old.index.queues.lbs.done(&key, &Ok(Requeue::Backoff));
        let now = tokio::time::Instant::now();
        old.slice_throttle.wrote(&key, Duration::ZERO, now);
        let check = HealthCheck::new(Some(80), None, None, None, None);
        let target = Target::new("uid", [10, 0, 0, 1].into(), true);
        let check = check.unwrap().unwrap();
        old.prober.set_group("n/a", check, vec![target]);

        current.next_term();
        let new = current.context();
        assert!(Arc::ptr_eq(&old.index.stores.lbs, &new.index.stores.lbs));
        assert_eq!(
            new.prober.verdict("n/a", "uid", [10, 0, 0, 1].into()),
            Some(true)
        );
        assert!(!new.index.is_leader());
        assert_eq!(new.index.queues.lbs.depth(), 0);
        assert!(new.index.queues.lbs.failing() == 0);
        assert!(new.slice_throttle.due_in(&key, now).is_zero());
        assert!(!Arc::ptr_eq(&old.leadership, &new.leadership));
        // Work in progress of the old term finds no leader state and no queues, and may not write.
        assert!(!old.index.is_leader());
        old.index.queues.lbs.add(key);
        assert_eq!(old.index.queues.lbs.next().await, None);
        assert_eq!(old.index.queues.legacy.next().await, None);
    }
}
