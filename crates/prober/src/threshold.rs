//! From probe results to a verdict: the counters of one target (contract 8.5, HC-1).
//!
//! Pure; owns nothing but three counters and the verdict. A fault of our own machine is no result:
//! it moves neither of the counters that make a verdict, and is only counted by itself (HC-6).

/// Counters and verdict of one target: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threshold {
    successes: u32,
    failures: u32,
    /// Own faults since the last result.
    own_faults: u32,
    ready: bool,
}

impl Threshold {
    /// Fresh counters and the verdict to start from: the present `ready` of the endpoint (EPS-1),
    /// or the last verdict when a probe restarts (HC-2).
    pub(crate) const fn new(ready: bool) -> Self {
        Self {
            successes: 0,
            failures: 0,
            own_faults: 0,
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
        self.own_faults = 0;
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

    /// Counts a probe that told nothing because the fault was ours: the verdict stays. Whether there were so many in a row,
    /// without any result, as failures change a verdict (0 counts as 1): the verdict is then of the past (HC-6).
    pub(crate) const fn own_fault(&mut self, failure_threshold: u32) -> bool {
        self.own_faults = self.own_faults.saturating_add(1);
        self.own_faults >= failure_threshold
    }
}

#[cfg(test)]
mod tests;
