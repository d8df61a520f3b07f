//! When an object that somebody else changes again and again is written again: with a back-off, so that two writers that
//! disagree do not write without end. Pure: the time and the jitter are arguments.

use std::time::Duration;

use harvester_lb_controller_kit::backoff::Backoff;
use tokio::time::Instant;

/// Time without a restore of the registration after which the next one counts as the first.
const FORGET: Duration = Duration::from_mins(10);

/// The writes of one object.
#[derive(Clone, Copy, Debug)]
pub struct Restores {
    backoff: Backoff,
    /// Time without a write after which the next one counts as the first.
    forget: Duration,
    /// Consecutive writes, and the time of the last one.
    last: Option<(u32, Instant)>,
    allowed_at: Option<Instant>,
}

impl Restores {
    /// None yet.
    pub const fn new(backoff: Backoff) -> Self {
        Self::forgotten_after(FORGET, backoff)
    }

    /// None yet; after this time without a write the next one counts as the first.
    pub const fn forgotten_after(forget: Duration, backoff: Backoff) -> Self {
        Self {
            backoff,
            forget,
            last: None,
            allowed_at: None,
        }
    }

    /// When the object may be written; `now` or earlier: at once.
    pub fn due_at(&self, now: Instant) -> Instant {
        self.allowed_at.unwrap_or(now)
    }

    /// It was written, or the write counts like one: the next one waits. `jitter` is between 0 and 1.
    pub fn written(&mut self, now: Instant, jitter: f64) {
        let count = match self.last {
            Some((count, at)) if now.duration_since(at) < self.forget => count.saturating_add(1),
            _ => 1,
        };
        self.last = Some((count, now));
        self.allowed_at = Some(now + self.backoff.delay(count, jitter));
    }

    /// Somebody else was faster: the next write waits, and this one does not count.
    pub fn lost(&mut self, now: Instant, jitter: f64) {
        self.allowed_at = Some(now + self.backoff.delay(1, jitter));
    }

    /// Forgets all writes.
    pub const fn reset(&mut self) {
        self.last = None;
        self.allowed_at = None;
    }

    /// Number of consecutive writes.
    pub fn count(&self) -> u32 {
        self.last.map_or(0, |(count, _)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_1_a_write_that_lost_a_race_waits_and_does_not_count() {
        let mut writes = Restores::new(Backoff {
            base: Duration::from_secs(1),
            cap: Duration::from_mins(1),
        });
        let now = Instant::now();
        for _ in 0..10 {
            writes.lost(now, 1.0);
            assert_eq!(writes.due_at(now), now + Duration::from_secs(1));
            assert_eq!(writes.count(), 0);
        }
        writes.written(now, 1.0);
        writes.written(now, 1.0);
        assert_eq!(writes.due_at(now), now + Duration::from_secs(2));
        writes.reset();
        assert_eq!((writes.due_at(now), writes.count()), (now, 0));
    }

    #[test]
    fn section_1_two_controllers_that_disagree_write_less_and_less() {
        let backoff = Backoff {
            base: Duration::from_secs(1),
            cap: Duration::from_mins(1),
        };
        let mut restores = Restores::new(backoff);
        let start = Instant::now();
        let mut now = start;
        assert_eq!(restores.due_at(now), now, "the first is restored at once");
        let mut writes = 0;
        // The other one undoes each write at once.
        while now < start + Duration::from_hours(1) {
            now = restores.due_at(now).max(now);
            restores.written(now, 1.0);
            writes += 1;
        }
        assert!((60..=70).contains(&writes), "{writes}");
        assert!(restores.count() >= 60);
        // A change long after is restored at once, and the next soon after.
        now += Duration::from_mins(11);
        assert!(restores.due_at(now) <= now);
        restores.written(now, 1.0);
        assert_eq!(restores.count(), 1);
        assert_eq!(restores.due_at(now), now + Duration::from_secs(1));
    }
}
