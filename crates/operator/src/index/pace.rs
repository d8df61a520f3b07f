//! When the status of a pool is written (POOL-3): late, coalesced, and once more when a burst is over.
//!
//! A change waits for a moment without another one, so that a burst of allocations or releases is told of at its end and
//! not somewhere in it, with the pause after that write before its end can be told. A burst that does not end is told of
//! in between. A pool of which nothing is held, or nothing is free, can go no further: its burst is over, and that is told
//! without waiting to see it.

use std::collections::HashMap;
use std::time::Duration;

use harvester_lb_ipam::PoolName;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

/// A write is followed by a pause of so many times its own duration, so that large maps take at most a twentieth of
/// the API server's time (POOL-3).
const PACE_FACTOR: u32 = 20;
/// So long nothing must have changed. Within a burst changes are a few milliseconds apart, more when the API server stops
/// to take breath; and nobody minds that a single change is told of so much later.
const QUIET: Duration = Duration::from_millis(200);
/// The status lacks no change for longer than this for want of quiet. A thousand load balancers come or go in less, so
/// that they are one burst.
const HOLD: Duration = Duration::from_secs(10);

/// What is to be told of a pool, and when that may be.
#[derive(Debug, Default)]
struct Pace {
    /// Not before this, by the last write.
    next: Option<Instant>,
    /// The first and the last change that the status lacks.
    changed: Option<(Instant, Instant)>,
    /// After the last change nothing of the pool is held, or nothing is free.
    settled: bool,
    /// Somebody waits for an answer: nothing is waited for.
    asked: bool,
}

impl Pace {
    fn due_in(&self, now: Instant) -> Duration {
        if self.asked {
            return Duration::ZERO;
        }
        let quiet = self
            .changed
            .filter(|_| !self.settled)
            .map(|(first, last)| (last + QUIET).min(first + HOLD));
        let due = self.next.max(quiet);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }
}

/// When the statuses of all pools may be written.
#[derive(Debug)]
pub struct Pacer {
    /// Shortest time between two writes of a pool's status (POOL-3).
    pace: Duration,
    /// Longest pause after a write.
    limit: Duration,
    pools: Mutex<HashMap<PoolName, Pace, FxBuildHasher>>,
}

impl Pacer {
    /// Nothing is known of any pool; between two writes of one is at least the time `pace`, and after each a pause of
    /// `limit` at most.
    pub fn new(pace: Duration, limit: Duration) -> Self {
        Self {
            pace,
            limit,
            pools: Mutex::default(),
        }
    }

    /// Something has changed that the pool's status tells of. Settled: nothing of the pool is held now, or nothing is free.
    /// Answers how long to wait with the write, as far as can be said now.
    pub fn changed(&self, pool: &PoolName, settled: bool) -> Duration {
        let now = Instant::now();
        self.with(pool, |pace| {
            let first = pace.changed.map_or(now, |(first, _)| first);
            pace.changed = Some((first, now));
            pace.settled = settled;
            pace.due_in(now)
        })
    }

    /// Whoever has edited a pool is answered at once.
    pub fn asked(&self, pool: &PoolName) {
        self.with(pool, |pace| pace.asked = true);
    }

    /// Time until the pool's status may be written; zero if it may be now.
    pub fn due_in(&self, pool: &PoolName) -> Duration {
        let pools = self.pools.lock();
        pools
            .get(pool)
            .map_or(Duration::ZERO, |pace| pace.due_in(Instant::now()))
    }

    /// The status is about to be decided: it tells of all changes until now.
    pub fn deciding(&self, pool: &PoolName) {
        self.with(pool, |pace| {
            pace.changed = None;
            pace.asked = false;
        });
    }

    /// A write has ended, which took so long.
    pub fn wrote(&self, pool: &PoolName, took: Duration) {
        let pause = (took * PACE_FACTOR).max(self.pace).min(self.limit);
        // A try that failed says nothing about the maps, and does not shorten the pause after one that did not.
        self.with(pool, |pace| {
            pace.next = pace.next.max(Some(Instant::now() + pause));
        });
    }

    /// The pool is gone.
    pub fn forget(&self, pool: &PoolName) {
        self.pools.lock().remove(pool);
    }

    fn with<T>(&self, pool: &PoolName, work: impl FnOnce(&mut Pace) -> T) -> T {
        work(self.pools.lock().entry(pool.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Duration = Duration::from_secs(1);
    const PACE_LIMIT: Duration = Duration::from_mins(1);
    const MS: Duration = Duration::from_millis(1);

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn pool_3_a_single_change_is_told_of_after_a_moment() {
        let (pacer, pool) = (Pacer::new(PACE, PACE_LIMIT), PoolName::from("p"));
        assert_eq!(
            pacer.due_in(&pool),
            Duration::ZERO,
            "nothing is known of it"
        );
        assert_eq!(pacer.changed(&pool, false), QUIET);
        pass(QUIET).await;
        assert_eq!(pacer.due_in(&pool), Duration::ZERO);
        pacer.deciding(&pool);
        pacer.wrote(&pool, MS);
        assert_eq!(pacer.changed(&pool, false), PACE);
        pass(PACE.saturating_sub(MS)).await;
        assert_eq!(pacer.due_in(&pool), MS);
    }

    #[tokio::test(start_paused = true)]
    async fn pool_3_a_burst_is_told_of_at_its_end() {
        let (pacer, pool) = (Pacer::new(PACE, PACE_LIMIT), PoolName::from("p"));
        for _ in 0..50 {
            pacer.changed(&pool, false);
            pass(QUIET / 2).await;
            assert!(pacer.due_in(&pool) > Duration::ZERO);
        }
        pass(QUIET / 2).await;
        assert_eq!(pacer.due_in(&pool), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn pool_3_a_pool_that_is_empty_or_full_has_no_burst() {
        let (pacer, pool) = (Pacer::new(PACE, PACE_LIMIT), PoolName::from("p"));
        pacer.changed(&pool, false);
        assert_eq!(pacer.changed(&pool, true), Duration::ZERO);
        assert_eq!(pacer.changed(&pool, false), QUIET, "it goes on after all");
        assert_eq!(pacer.changed(&pool, true), Duration::ZERO);
        pacer.deciding(&pool);
        pacer.wrote(&pool, MS);
        assert_eq!(pacer.changed(&pool, true), PACE, "the pause is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn pool_3_a_burst_without_an_end_is_told_of_in_between() {
        let (pacer, pool) = (Pacer::new(PACE, PACE_LIMIT), PoolName::from("p"));
        let mut writes = 0;
        for _ in 0..2_500 {
            pacer.changed(&pool, false);
            if pacer.due_in(&pool).is_zero() {
                pacer.deciding(&pool);
                pacer.wrote(&pool, MS);
                writes += 1;
            }
            pass(10 * MS).await;
        }
        assert_eq!(writes, 2, "25 s, every 10 s");
    }

    #[tokio::test(start_paused = true)]
    async fn pool_3_what_changes_during_a_write_waits_for_the_pause_after_it() {
        let (pacer, pool) = (Pacer::new(PACE, PACE_LIMIT), PoolName::from("p"));
        pacer.changed(&pool, false);
        pacer.deciding(&pool);
        pass(100 * MS).await;
        assert_eq!(
            pacer.changed(&pool, false),
            QUIET,
            "the write has not ended yet"
        );
        pacer.wrote(&pool, 100 * MS);
        assert_eq!(
            pacer.due_in(&pool),
            Duration::from_secs(2),
            "20 times 0.1 s"
        );
        pass(Duration::from_secs(2)).await;
        assert_eq!(pacer.due_in(&pool), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn pool_3_a_pause_has_an_end_and_whoever_asks_waits_for_none() {
        let (pacer, pool) = (Pacer::new(PACE, PACE_LIMIT), PoolName::from("p"));
        pacer.wrote(&pool, Duration::from_secs(15));
        assert_eq!(pacer.due_in(&pool), PACE_LIMIT);
        pacer.asked(&pool);
        assert_eq!(pacer.changed(&pool, false), Duration::ZERO);
        pacer.deciding(&pool);
        assert_eq!(pacer.due_in(&pool), PACE_LIMIT);
        pacer.wrote(&pool, Duration::ZERO);
        assert_eq!(pacer.due_in(&pool), PACE_LIMIT, "a failed try");
        pacer.forget(&pool);
        assert_eq!(pacer.due_in(&pool), Duration::ZERO);
    }
}
