//! How far apart the writes of one EndpointSlice are that changed verdicts cause. Pure: the time is an argument.
//!
//! The prober gathers the changes of a load balancer for [`GATHER`]. The write that follows takes its time, less or more,
//! and the API server may have it at once or just before it answers; so the next one begins so long after its end. A
//! change that is handed over while a write is on its way waits for its turn as well.

use std::collections::HashMap;

use harvester_lb_object::Key;
use harvester_lb_prober::GATHER;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::time::{Duration, Instant};

/// Which EndpointSlices were written within the last [`GATHER`].
#[derive(Debug, Default)]
pub struct Spacing(Mutex<HashMap<Key, Instant, FxBuildHasher>>);

impl Spacing {
    /// A write begins, or has ended, whatever its outcome: one that was not answered may have been done.
    pub fn mark(&self, key: &Key, now: Instant) {
        let mut marked = self.0.lock();
        marked.retain(|_, at| now.saturating_duration_since(*at) < GATHER);
        marked.insert(key.clone(), now);
    }

    /// Time until changed verdicts may cause the next write; zero if they may now.
    pub fn due_in(&self, key: &Key, now: Instant) -> Duration {
        let marked = self.0.lock().get(key).copied();
        marked.map_or(Duration::ZERO, |at| {
            GATHER.saturating_sub(now.saturating_duration_since(at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_one_slice_are_apart_and_those_of_others_are_not_waited_for() {
        let (spacing, a, b) = (Spacing::default(), Key::new("n", "a"), Key::new("n", "b"));
        let start = Instant::now();
        assert_eq!(spacing.due_in(&a, start), Duration::ZERO);
        spacing.mark(&a, start);
        assert_eq!(spacing.due_in(&a, start), GATHER);
        assert_eq!(spacing.due_in(&b, start), Duration::ZERO);
        assert_eq!(spacing.due_in(&a, start + GATHER / 2), GATHER / 2);
        assert_eq!(spacing.due_in(&a, start + GATHER), Duration::ZERO);
        spacing.mark(&b, start + GATHER);
        assert_eq!(spacing.0.lock().len(), 1, "what is over is forgotten");
    }

    #[test]
    fn a_write_on_its_way_counts_from_its_end() {
        let (spacing, key) = (Spacing::default(), Key::new("n", "a"));
        let start = Instant::now();
        spacing.mark(&key, start);
        let end = start + GATHER / 2;
        spacing.mark(&key, end);
        assert_eq!(spacing.due_in(&key, start + GATHER), GATHER / 2);
        assert_eq!(spacing.due_in(&key, end + GATHER), Duration::ZERO);
    }

    /// Plays a worker that is asked to write at any time, whose writes take any time and are done somewhere in it;
    /// answers when each was done.
    fn play(rng: &mut fastrand::Rng) -> Vec<Instant> {
        let ms = Duration::from_millis;
        let (spacing, key) = (Spacing::default(), Key::new("n", "a"));
        let mut now = Instant::now();
        let mut done = Vec::new();
        for _ in 0..200 {
            now += ms(rng.u64(0..120));
            // The worker comes back when its turn has come, and asks again.
            loop {
                let wait = spacing.due_in(&key, now);
                if wait.is_zero() {
                    break;
                }
                now += wait;
            }
            spacing.mark(&key, now);
            let took = rng.u64(0..400);
            done.push(now + ms(rng.u64(0..=took)));
            now += ms(took);
            spacing.mark(&key, now);
        }
        done
    }

    #[test]
    fn never_two_writes_within_the_time_of_gathering() {
        for seed in 0..200 {
            let done = play(&mut fastrand::Rng::with_seed(seed));
            for pair in done.windows(2) {
                assert!(pair[1].duration_since(pair[0]) >= GATHER, "seed {seed}");
            }
        }
    }
}
