//! From probe results to a verdict: the counters of one target (contract 8.5, HC-1).
//!
//! Pure; owns nothing but two counters and the verdict. A fault of our own machine is no result
//! and is never passed in.

/// Counters and verdict of one target: 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threshold {
    successes: u32,
    failures: u32,
    ready: bool,
}

impl Threshold {
    /// Fresh counters and the verdict to start from: the present `ready` of the endpoint (EPS-1),
    /// or the last verdict when a probe restarts (HC-2).
    pub(crate) const fn new(ready: bool) -> Self {
        Self {
            successes: 0,
            failures: 0,
            ready,
        }
    }

    /// The present verdict.
    pub(crate) const fn ready(&self) -> bool {
        self.ready
    }

    /// Counts one probe result; `success_threshold` and `failure_threshold` are in probes, and 0
    /// counts as 1.
    ///
    /// A success clears the failures and the other way round. The counter that reaches its
    /// threshold sets the verdict and starts again from 0. `Some(ready)` only when the verdict is
    /// another than before (HC-5: a repeated result leads to no write).
    pub(crate) const fn step(
        &mut self,
        success: bool,
        success_threshold: u32,
        failure_threshold: u32,
    ) -> Option<bool> {
        let (counter, other, threshold) = if success {
            (&mut self.successes, &mut self.failures, success_threshold)
        } else {
            (&mut self.failures, &mut self.successes, failure_threshold)
        };
        *other = 0;
        *counter = counter.saturating_add(1);
        if *counter < threshold {
            return None;
        }
        *counter = 0;
        if self.ready == success {
            return None;
        }
        self.ready = success;
        Some(success)
    }
}

#[cfg(test)]
mod tests;
