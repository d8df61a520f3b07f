//! Settings of the engine.

/// Most connects in flight, regardless of the file limit. At 8,000 probes a second it holds two seconds of probes that
/// all wait for their timeout; each one costs a socket and about 1 KiB of task.
pub const MAX_IN_FLIGHT: usize = 16_384;

/// The usual soft limit of open files of a process.
const USUAL_FILE_LIMIT: u64 = 1024;

/// Settings of [`Prober::start`](crate::Prober::start).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most connects in flight; 0 counts as 1. Probes beyond it start late, which
    /// [`Observer::lag`](crate::Observer::lag) shows; they never fail because of it.
    pub max_in_flight: usize,
}

impl Settings {
    /// Settings for a process that may open `soft_limit` files (the soft `RLIMIT_NOFILE`): probes use at most 80 % of
    /// them and at most [`MAX_IN_FLIGHT`], but at least one.
    pub fn for_file_limit(soft_limit: u64) -> Self {
        let share = usize::try_from(soft_limit - soft_limit.div_ceil(5)).unwrap_or(MAX_IN_FLIGHT);
        Self {
            max_in_flight: share.clamp(1, MAX_IN_FLIGHT),
        }
    }
}

impl Default for Settings {
    /// For the usual limit of 1024 open files: 819 connects in flight.
    fn default() -> Self {
        Self::for_file_limit(USUAL_FILE_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hc_5_in_flight_bound_is_80_percent_of_the_files_at_most_16384() {
        let bound = |limit| Settings::for_file_limit(limit).max_in_flight;
        assert_eq!(bound(0), 1);
        assert_eq!(bound(1), 1);
        assert_eq!(bound(10), 8);
        assert_eq!(bound(1024), 819);
        assert_eq!(bound(20_480), 16_384);
        assert_eq!(bound(1 << 20), 16_384);
        assert_eq!(bound(u64::MAX), 16_384);
        assert_eq!(Settings::default().max_in_flight, 819);
    }
}
