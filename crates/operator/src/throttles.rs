//! Throttles of the operator's own writes: pool statuses, EndpointSlices and detail conditions. The rate limits of deletions,
//! messages and Events are in the submodules.

pub mod history_deletions;
pub mod node_events;
pub mod waiting_messages;

use std::time::Duration;

use harvester_lb_controller_kit::throttle::{Settings, Throttle};
use harvester_lb_ipam::PoolName;
use harvester_lb_object::Key;
use harvester_lb_prober::GATHER;

use crate::timings::Timings;

/// The pause after a write of a pool's status, as a multiple of the write's duration: a large pool takes at most a twentieth
/// of the API server's time (POOL-3). So do the interim writes of all pools together while their addresses keep changing, as
/// long as no change waits for more than the longest pause.
const PAUSE_FACTOR: u32 = 20;
/// Debounce: a pool's status is written 200 ms after its last change. In a burst changes are a few milliseconds apart, more
/// while the API server stalls, and such a delay of a single change does not matter.
const QUIET: Duration = Duration::from_millis(200);
/// The debounce as a multiple of the duration of the pool's last write: the write of another large pool, during which no address
/// is allocated or released, takes about as long.
const QUIET_FACTOR: u32 = 2;
/// Debounce delay of a change before an interim write. A thousand load balancers are created or deleted in less, so they are
/// one burst.
const HOLD: Duration = Duration::from_secs(10);

/// The throttle of pool status writes (POOL-3). A pool that has become empty or full is written without debounce: its burst
/// is over.
pub fn of_pool_statuses(timings: &Timings) -> Throttle<PoolName> {
    Throttle::new(Settings {
        debounce: QUIET,
        debounce_factor: QUIET_FACTOR,
        max_delay: HOLD,
        min_interval: timings.pool_status_interval,
        pause_factor: PAUSE_FACTOR,
        max_pause: timings.pool_status_max_pause,
    })
}

/// The throttle of EndpointSlice writes because of changed verdicts.
///
/// The prober gathers the changes of a load balancer for [`GATHER`]. The API server may apply a write at its start or just
/// before its end, so the next write starts [`GATHER`] after its end. A write is noted both at its start and at its end, so
/// that a change that arrives during a write waits as well.
pub fn of_slices() -> Throttle<Key> {
    Throttle::new(Settings {
        min_interval: GATHER,
        ..Settings::default()
    })
}

/// The throttle of status writes that change only detail conditions.
pub fn of_details(timings: &Timings) -> Throttle<Key> {
    Throttle::new(Settings {
        min_interval: timings.detail_interval,
        ..Settings::default()
    })
}

#[cfg(test)]
mod tests;
