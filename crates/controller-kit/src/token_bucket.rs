//! A rate limit with a burst. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket that holds `burst` tokens and gains one per interval.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// The burst, as the time in which the bucket refills.
    burst: Duration,
    /// Time between two tokens in the long run.
    interval: Duration,
    /// When the bucket is full again; `None` before the first token is taken.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// `burst` tokens, at least one, may be taken at once; in the long run one per `interval`.
    pub fn new(burst: u32, interval: Duration) -> Self {
        Self {
            burst: interval.saturating_mul(burst.max(1)),
            interval,
            full_at: None,
        }
    }

    /// Time until the next token is available; zero if one is available now.
    pub fn due_in(&self, now: Instant) -> Duration {
        let full_in = self.full_at.map_or(Duration::ZERO, |full_at| {
            full_at.saturating_duration_since(now)
        });
        (full_in + self.interval).saturating_sub(self.burst)
    }

    /// Takes a token. Taking one that is not available yet delays the next one by as much.
    pub fn take(&mut self, now: Instant) {
        let from = self.full_at.map_or(now, |full_at| full_at.max(now));
        self.full_at = Some(from + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Takes every token as soon as it is available; returns the number taken until then.
    fn taken(bucket: &mut TokenBucket, start: Instant, during: Duration) -> u32 {
        let (mut now, mut taken) = (start, 0);
        while now < start + during {
            match bucket.due_in(now) {
                Duration::ZERO => {
                    bucket.take(now);
                    taken += 1;
                }
                wait => now += wait,
            }
        }
        taken
    }

    #[test]
    fn a_burst_and_then_one_each_interval() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(200, 10 * MS);
        assert_eq!(taken(&mut bucket, start, MS), 200);
        assert_eq!(bucket.due_in(start), 10 * MS);
        assert_eq!(bucket.due_in(start + 4 * MS), 6 * MS);
        let mut bucket = TokenBucket::new(200, 10 * MS);
        assert_eq!(taken(&mut bucket, start, 1_000 * MS), 200 + 99);
    }

    #[test]
    fn what_was_not_taken_is_not_saved_beyond_the_burst() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(3, 10 * MS);
        assert_eq!(taken(&mut bucket, start, MS), 3);
        assert_eq!(taken(&mut bucket, start + 15 * MS, MS), 1);
        assert_eq!(taken(&mut bucket, start + 10_000 * MS, MS), 3);
    }

    #[test]
    fn a_burst_of_none_is_one() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(0, 10 * MS);
        assert_eq!(taken(&mut bucket, start, 100 * MS), 10);
    }

    #[test]
    fn no_span_has_more_than_its_share() {
        let start = Instant::now();
        for seed in 0..100 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut bucket = TokenBucket::new(5, 10 * MS);
            let (mut now, mut taken) = (start, Vec::new());
            for _ in 0..300 {
                now += MS * rng.u32(0..30);
                if bucket.due_in(now).is_zero() {
                    bucket.take(now);
                    taken.push(now);
                }
            }
            for (first, from) in taken.iter().enumerate() {
                for (count, to) in (1u32..).zip(&taken[first..]) {
                    let span = to.duration_since(*from);
                    assert!(10 * MS * count.saturating_sub(5) <= span, "seed {seed}");
                }
            }
        }
    }
}
