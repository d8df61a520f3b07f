//! The engine's hooks for metrics.

use std::time::Duration;

use crate::ProbeResult;

/// Observes probes. The engine calls it from its tasks, outside its lock; an implementation must be quick and must not
/// block.
///
/// Every method does nothing by default, and `()` is an observer that does nothing.
pub trait Observer: Send + Sync + 'static {
    /// A probe ended after `duration`. Probes whose target was removed or restarted meanwhile are
    /// not reported.
    fn probe(&self, result: ProbeResult, duration: Duration) {
        let _ = (result, duration);
    }

    /// A probe starts `lag` after it was due. More than a few tens of milliseconds means that the machine or the limit
    /// of connects in flight is too small.
    fn lag(&self, lag: Duration) {
        let _ = lag;
    }

    /// The verdict on a target changed to `ready`.
    fn verdict_changed(&self, ready: bool) {
        let _ = ready;
    }
}

impl Observer for () {}
