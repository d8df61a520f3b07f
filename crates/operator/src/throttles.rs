//! How far apart the operator's own writes are where changes come faster than they are to be written: statuses of pools and
//! EndpointSlices.

use std::time::Duration;

use harvester_lb_controller_kit::throttle::{Settings, Throttle};
use harvester_lb_ipam::PoolName;
use harvester_lb_object::Key;
use harvester_lb_prober::GATHER;

use crate::timings::Timings;

/// The pause after a write of a pool's status is so many times as long as that, so that large maps take at most a twentieth of
/// the API server's time (POOL-3).
const PAUSE_FACTOR: u32 = 20;
/// Nothing of a pool must have changed for so long. Within a burst changes are a few milliseconds apart, more when the API
/// server stops to take breath; and nobody minds that a single change is told of so much later.
const QUIET: Duration = Duration::from_millis(200);
/// The status of a pool lacks no change for longer than this for want of quiet. A thousand load balancers come or go in less,
/// so that they are one burst.
const HOLD: Duration = Duration::from_secs(10);

/// When the status of each pool may be written (POOL-3). A pool of which nothing is held, or nothing is free, can go no further:
/// its burst is over.
pub fn of_pool_statuses(timings: &Timings) -> Throttle<PoolName> {
    Throttle::new(Settings {
        debounce: QUIET,
        max_delay: HOLD,
        min_interval: timings.pool_pace,
        pause_factor: PAUSE_FACTOR,
        max_pause: timings.pool_pace_limit,
    })
}

/// When changed verdicts may cause the next write of each EndpointSlice.
///
/// The prober gathers the changes of a load balancer for [`GATHER`]. The write that follows takes its time, less or more, and
/// the API server may have it at once or just before it answers; so the next one begins so long after its end. A change that is
/// handed over while a write is on its way waits for its turn as well: it counts as written when it begins and when it ends.
pub fn of_slices() -> Throttle<Key> {
    Throttle::new(Settings {
        min_interval: GATHER,
        ..Settings::default()
    })
}

#[cfg(test)]
mod tests;
