//! Owns how many results in a row make a probe succeed or fail. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

/// When a probe runs, and how its results count; Kubernetes' defaults where the Pod says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) delay: Duration,
    pub(crate) period: Duration,
    pub(crate) timeout: Duration,
}

impl Timing {
    pub(crate) fn of(probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, default: u32| {
            let value = value.and_then(|v| u32::try_from(v).ok());
            Duration::from_secs(value.unwrap_or(default).into())
        };
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
        }
    }
}

/// Results in a row.
#[derive(Debug)]
pub(crate) struct Threshold {
    success: i32,
    failure: i32,
    last: Option<bool>,
    streak: i32,
}

impl Threshold {
    pub(crate) fn of(probe: &Probe) -> Self {
        Self {
            success: probe.success_threshold.unwrap_or(1),
            failure: probe.failure_threshold.unwrap_or(3),
            last: None,
            streak: 0,
        }
    }

    /// Counts a result; the verdict, once enough of them agree.
    pub(crate) fn count(&mut self, success: bool) -> Option<bool> {
        if self.last != Some(success) {
            self.last = Some(success);
            self.streak = 0;
        }
        self.streak = self.streak.saturating_add(1);
        let enough = if success { self.success } else { self.failure };
        (self.streak >= enough).then_some(success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_results_in_a_row() {
        let mut threshold = Threshold::of(&Probe {
            success_threshold: Some(2),
            ..Probe::default()
        });
        let verdicts: Vec<_> = [
            true, false, true, true, false, false, true, false, false, false,
        ]
        .map(|result| threshold.count(result))
        .into();
        let mut expected = vec![None; 10];
        expected[3] = Some(true);
        expected[9] = Some(false);
        assert_eq!(verdicts, expected);
        assert_eq!(threshold.count(false), Some(false));
    }
}
