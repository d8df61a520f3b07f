//! Back-off after a failure: exponential, capped, jittered, reset on success.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;

/// An exponential back-off. Pure: the jitter is an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub base: Duration,
    /// No delay is longer, jitter included.
    pub cap: Duration,
}

impl Backoff {
    /// The delay after `failures` consecutive failures (1 is the first): the base, doubled each time. `jitter` in 0.0
    /// ..= 1.0 scales its upper half, so that keys that failed together do not retry together.
    pub fn delay(self, failures: u32, jitter: f64) -> Duration {
        let doubled = self
            .base
            .checked_mul(
                1_u32
                    .checked_shl(failures.saturating_sub(1))
                    .unwrap_or(u32::MAX),
            )
            .unwrap_or(self.cap);
        let full = doubled.min(self.cap);
        full / 2 + (full / 2).mul_f64(jitter.clamp(0.0, 1.0))
    }
}

/// Consecutive failures by key; drives the back-off. Holds only keys that are failing.
#[derive(Debug)]
pub struct Failures<K> {
    /// The back-off that applies, and the number of consecutive failures.
    counts: Mutex<HashMap<K, (Backoff, u32), FxBuildHasher>>,
}

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Self {
            counts: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash> Failures<K> {
    /// Counts a failure of the key and returns the delay, by the back-off of its cause. A different cause restarts the
    /// count: a long outage says nothing about a refusal.
    pub fn failed(&self, key: K, backoff: Backoff) -> Duration {
        let mut counts = self.counts.lock();
        let (counted, count) = counts.entry(key).or_insert((backoff, 0));
        *count = if *counted == backoff {
            count.saturating_add(1)
        } else {
            1
        };
        *counted = backoff;
        backoff.delay(*count, fastrand::f64())
    }

    /// Resets the key: it succeeded, or it was deleted.
    pub fn forget(&self, key: &K) {
        self.counts.lock().remove(key);
    }

    /// Number of keys that are failing.
    pub fn len(&self) -> usize {
        self.counts.lock().len()
    }

    /// Whether no key is failing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        base: Duration::from_secs(1),
        cap: Duration::from_mins(1),
    };

    #[test]
    fn doubles_up_to_the_cap() {
        let seconds: Vec<u64> = (1..=8).map(|n| BACKOFF.delay(n, 1.0).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        for failures in [0, 9, 31, 32, 33, 64, 1_000, u32::MAX] {
            assert!(BACKOFF.delay(failures, 1.0) <= BACKOFF.cap, "{failures}");
            assert!(
                BACKOFF.delay(failures, 0.0) >= BACKOFF.base / 2,
                "{failures}"
            );
        }
    }

    #[test]
    fn jitter_stays_between_half_and_whole() {
        assert_eq!(BACKOFF.delay(3, 0.0), Duration::from_secs(2));
        assert_eq!(BACKOFF.delay(3, 0.5), Duration::from_secs(3));
        assert_eq!(BACKOFF.delay(3, 7.0), Duration::from_secs(4));
    }

    #[test]
    fn another_cause_is_counted_anew() {
        let short = Backoff {
            cap: Duration::from_secs(5),
            ..BACKOFF
        };
        let failures = Failures::default();
        for _ in 0..20 {
            assert!(failures.failed("a", short) <= short.cap);
        }
        assert!(
            failures.failed("a", BACKOFF) <= BACKOFF.base,
            "the first of its kind"
        );
        for _ in 0..20 {
            failures.failed("a", BACKOFF);
        }
        assert!(failures.failed("a", BACKOFF) >= BACKOFF.cap / 2);
    }

    #[test]
    fn success_forgets() {
        let failures = Failures::default();
        for _ in 0..5 {
            failures.failed("a", BACKOFF);
        }
        assert_eq!(failures.len(), 1);
        failures.forget(&"a");
        assert!(failures.is_empty());
        assert!(failures.failed("a", BACKOFF) <= Duration::from_secs(1));
    }
}
