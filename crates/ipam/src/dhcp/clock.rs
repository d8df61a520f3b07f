//! The two clocks of the machine, as arguments. Owns the conversion between them.

use core::time::Duration;

use crate::types::Micros;

/// The time of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since an origin that the caller chooses, such as its start. Never goes back, and is never set.
    pub mono: Duration,
    /// Time since the Unix epoch. May be set at any time, in either direction.
    pub wall: Micros,
}

impl Now {
    /// The wall time of a monotonic time, if the wall clock is not set in between.
    pub(super) fn wall_at(self, mono: Duration) -> Micros {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let later = micros(mono.saturating_sub(self.mono));
        let earlier = micros(self.mono.saturating_sub(mono));
        Micros(self.wall.0.saturating_add(later).saturating_sub(earlier))
    }

    /// The monotonic time of a wall time, if the wall clock is not set in between; at least 0.
    pub(super) fn mono_at(self, wall: Micros) -> Duration {
        let span = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        let later = span(wall.0.saturating_sub(self.wall.0));
        let earlier = span(self.wall.0.saturating_sub(wall.0));
        self.mono.saturating_add(later).saturating_sub(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_and_monotonic_times_convert_into_each_other() {
        let now = Now {
            mono: Duration::from_secs(100),
            wall: Micros(1_770_000_000_000_000),
        };
        for seconds in [0, 1, 99, 100, 101, 1 << 31] {
            let mono = Duration::from_secs(seconds);
            assert_eq!(now.mono_at(now.wall_at(mono)), mono);
        }
        assert_eq!(now.wall_at(now.mono), now.wall);
        assert_eq!(now.mono_at(Micros::MIN), Duration::ZERO);
        assert_eq!(now.mono_at(Micros(0)), Duration::ZERO);
        assert_eq!(now.wall_at(Duration::MAX).0, i64::MAX);
        assert!(now.mono_at(Micros(i64::MAX)) > Duration::from_secs(1 << 42));
    }
}
