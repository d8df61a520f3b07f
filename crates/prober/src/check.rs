//! Target port, period and thresholds of a probe: the values of a LoadBalancer's `healthCheck`, validated.
//!
//! Owns the defaults of section 8.5 of the rules and the upper bounds for hostile values.

use std::{num::NonZeroU16, time::Duration};

/// Default of `successThreshold`, in probes.
const SUCCESS: u32 = 1;
/// Default of `failureThreshold`, in probes.
const FAILURE: u32 = 3;
/// Default of `periodSeconds`.
const PERIOD: u32 = 5;
/// Default of `timeoutSeconds`.
const TIMEOUT: u32 = 3;

/// One day. A longer period checks nothing, and the bound keeps arithmetic on times far from overflow.
const MAX_PERIOD: u32 = 86_400;
/// The kernel gives up a connect after about two minutes by itself, so a longer timeout would never take effect; the
/// bound also limits how long one dead target can hold a slot.
const MAX_TIMEOUT: u32 = 120;

/// An enabled health check, with every value in its range.
///
/// Made by [`HealthCheck::new`] from the raw numbers of an object. Two checks are equal exactly when a change from one
/// to the other needs no restart of the probes (HC-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    port: NonZeroU16,
    success: u32,
    failure: u32,
    period: u32,
    timeout: u32,
}

/// The port of a health check is not a TCP port (0 to 65535, where 0 means "off").
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("health check port {0} is not between 0 and 65535")]
pub struct PortOutOfRange(
    /// The value as given.
    pub i64,
);

impl HealthCheck {
    /// Validates the raw values of `spec.healthCheck` (rules, section 8.5).
    ///
    /// `Ok(None)` when the port is absent or 0: the check is off. Thresholds count probes, period and timeout count
    /// seconds. Absent, 0 and negative values (which the schema rejects, but an old object may hold) become the
    /// defaults: success 1, failure 3, period 5 s, timeout 3 s. Values too large are lowered to the bound instead of
    /// rejected, since the object was admitted long ago and a slow check is better than none: period one day, timeout
    /// 120 s, thresholds `u32::MAX`. A timeout longer than the period is allowed; it delays the next probe.
    ///
    /// # Errors
    /// [`PortOutOfRange`] when the port is negative or above 65535.
    pub fn new(
        port: Option<i64>,
        success: Option<i64>,
        failure: Option<i64>,
        period_seconds: Option<i64>,
        timeout_seconds: Option<i64>,
    ) -> Result<Option<Self>, PortOutOfRange> {
        let raw = port.unwrap_or(0);
        let port = u16::try_from(raw).map_err(|_| PortOutOfRange(raw))?;
        Ok(NonZeroU16::new(port).map(|port| Self {
            port,
            success: in_range(success, SUCCESS, u32::MAX),
            failure: in_range(failure, FAILURE, u32::MAX),
            period: in_range(period_seconds, PERIOD, MAX_PERIOD),
            timeout: in_range(timeout_seconds, TIMEOUT, MAX_TIMEOUT),
        }))
    }

    /// A check of this port with the defaults: success 1, failure 3, period 5 s, timeout 3 s.
    pub const fn with_defaults(port: NonZeroU16) -> Self {
        Self {
            port,
            success: SUCCESS,
            failure: FAILURE,
            period: PERIOD,
            timeout: TIMEOUT,
        }
    }

    /// The TCP port to connect to, 1 to 65535.
    pub const fn port(&self) -> u16 {
        self.port.get()
    }

    /// Consecutive successes that make a target ready, at least 1.
    pub const fn success_threshold(&self) -> u32 {
        self.success
    }

    /// Consecutive failures that make a target not ready, at least 1.
    pub const fn failure_threshold(&self) -> u32 {
        self.failure
    }

    /// Time between two probes of a target, 1 s to 1 day.
    pub const fn period(&self) -> Duration {
        Duration::from_secs(self.period as u64)
    }

    /// Timeout of a connect, 1 s to 120 s.
    pub const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout as u64)
    }
}

/// `raw` if it is at least 1, lowered to `max`; else `default`.
fn in_range(raw: Option<i64>, default: u32, max: u32) -> u32 {
    match raw {
        Some(value) if value >= 1 => u32::try_from(value).unwrap_or(max).min(max),
        _ => default,
    }
}

#[cfg(test)]
mod tests;
