//! How far apart the writes of one EndpointSlice are that changed verdicts cause.
//!
//! The prober gathers the changes of a load balancer for [`GATHER`]. The write that follows takes its time, less or more;
//! so what has changed since waits for its turn after that write, and not after the change.

use std::collections::HashMap;

use harvester_lb_controller_kit::Key;
use harvester_lb_prober::GATHER;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::time::{Duration, Instant};

/// Which EndpointSlices were written within the last [`GATHER`].
#[derive(Debug, Default)]
pub struct Spacing(Mutex<HashMap<Key, Instant, FxBuildHasher>>);

impl Spacing {
    /// A write has ended.
    pub fn wrote(&self, key: &Key) {
        let now = Instant::now();
        let mut written = self.0.lock();
        written.retain(|_, at| now.duration_since(*at) < GATHER);
        written.insert(key.clone(), now);
    }

    /// Time until changed verdicts may cause the next; zero if they may now.
    pub fn due_in(&self, key: &Key) -> Duration {
        let since = self.0.lock().get(key).map(Instant::elapsed);
        since.map_or(Duration::ZERO, |since| GATHER.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_of_one_slice_are_apart_and_those_of_others_are_not_waited_for() {
        let (spacing, a, b) = (Spacing::default(), Key::new("n", "a"), Key::new("n", "b"));
        assert_eq!(spacing.due_in(&a), Duration::ZERO);
        spacing.wrote(&a);
        assert_eq!(spacing.due_in(&a), GATHER);
        assert_eq!(spacing.due_in(&b), Duration::ZERO);
        tokio::time::advance(GATHER / 2).await;
        assert_eq!(spacing.due_in(&a), GATHER / 2);
        tokio::time::advance(GATHER / 2).await;
        assert_eq!(spacing.due_in(&a), Duration::ZERO);
        spacing.wrote(&b);
        assert_eq!(spacing.0.lock().len(), 1, "what is over is forgotten");
    }
}
