//! The two clocks of the DHCP clients. Owns the origin of the monotonic one, and the detection of a wall clock that was set.

use std::time::{Duration, Instant};

use harvester_lb_ipam::dhcp::Now;

use crate::clock;

/// The clocks may drift apart by that between two looks, a second apart, without the wall clock having been set: NTP slews
/// by half a millisecond a second.
const TOLERANCE: i64 = 250_000;

/// The clocks of one port.
#[derive(Debug)]
pub struct Clocks {
    origin: Instant,
    /// Wall time less monotonic time at the last look, in microseconds.
    offset: i64,
}

impl Default for Clocks {
    fn default() -> Self {
        let mut clocks = Self {
            origin: Instant::now(),
            offset: 0,
        };
        clocks.offset = offset(clocks.now());
        clocks
    }
}

impl Clocks {
    /// The present time.
    pub fn now(&self) -> Now {
        Now {
            mono: self.origin.elapsed(),
            wall: clock::now(),
        }
    }

    /// When a monotonic time is, for a timer.
    pub fn instant(&self, mono: Duration) -> Option<Instant> {
        self.origin.checked_add(mono)
    }

    /// Whether the wall clock was set since the last look.
    pub fn was_set(&mut self, now: Now) -> bool {
        let before = std::mem::replace(&mut self.offset, offset(now));
        self.offset.saturating_sub(before).saturating_abs() > TOLERANCE
    }
}

fn offset(now: Now) -> i64 {
    let mono = i64::try_from(now.mono.as_micros()).unwrap_or(i64::MAX);
    now.wall.0.saturating_sub(mono)
}

#[cfg(test)]
mod tests {
    use harvester_lb_ipam::Micros;

    use super::*;

    #[test]
    fn dhc_3_a_wall_clock_that_was_set_is_noticed_once() {
        let mut clocks = Clocks::default();
        let start = clocks.now();
        let at = |seconds: u64, set: i64| Now {
            mono: start.mono + Duration::from_secs(seconds),
            wall: Micros(start.wall.0 + i64::try_from(seconds).unwrap() * 1_000_000 + set),
        };
        assert!(!clocks.was_set(at(1, 0)));
        // Slewed, for hours.
        assert!((2..1_000).all(|n| !clocks.was_set(at(n, i64::try_from(n).unwrap() * 500))));
        assert!(clocks.was_set(at(1_001, 3_600_000_000)));
        assert!(!clocks.was_set(at(1_002, 3_600_000_000)));
        assert!(clocks.was_set(at(1_003, -1_000_000)));
    }
}
