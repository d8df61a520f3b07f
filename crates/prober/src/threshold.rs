//! From probe results to a verdict: the counters of one target (rules, section 8.5, HC-1).
//!
//! Pure; owns only three counters and the verdict. An own fault is not a result: it moves neither of the counters that
//! make a verdict, and has a counter for itself (HC-6).

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
    /// Fresh counters and the initial verdict: the current `ready` of the endpoint (EPS-1), or the last verdict when a
    /// probe restarts (HC-2).
    pub(crate) const fn new(ready: bool) -> Self {
        Self {
            successes: 0,
            failures: 0,
            own_faults: 0,
            ready,
        }
    }

    /// The current verdict.
    pub(crate) const fn ready(&self) -> bool {
        self.ready
    }

    /// Counts one probe result; `success_threshold` and `failure_threshold` are in probes, and 0 counts as 1.
    ///
    /// A success resets the failures and vice versa. The counter that reaches its threshold sets the verdict and
    /// restarts from
    /// 0. `Some(ready)` only when the verdict changes (HC-5: a repeated result causes no write).
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

    /// Whether the last [`Threshold::step`] reached its threshold, with a new verdict or the same.
    pub(crate) const fn is_judged(&self) -> bool {
        self.successes == 0 && self.failures == 0
    }

    /// Counts an own fault: the verdict stays. Returns whether there were as many of them in a row, without any result,
    /// as failures change a verdict (0 counts as 1): the verdict is then stale (HC-6).
    pub(crate) const fn own_fault(&mut self, failure_threshold: u32) -> bool {
        self.own_faults = self.own_faults.saturating_add(1);
        self.own_faults >= failure_threshold
    }
}

#[cfg(test)]
mod tests;
