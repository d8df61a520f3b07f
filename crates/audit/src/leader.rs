//! The process that holds the Lease.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

/// Seconds after which an expired Lease counts as such: the clocks of two machines differ.
const CLOCK_SKEW: i64 = 5;

/// The holder of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// A process of this operator, with its identity.
    This(String),
    /// A process of the Go operator, with its identity.
    Go(String),
    /// None, or one that does not renew the Lease any more.
    None,
}

impl Leader {
    /// The holder of a Lease. The identity of this operator is host name, `_` and a suffix; that of the Go operator is a
    /// host name, which has no `_` (section 1).
    pub fn of(lease: Option<&Lease>, now: Timestamp) -> Self {
        let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else {
            return Self::None;
        };
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let renewed = spec.renew_time.as_ref().map(|time| time.0.as_second());
        let duration = i64::from(spec.lease_duration_seconds.unwrap_or(0)) + CLOCK_SKEW;
        let is_valid = renewed.is_some_and(|renewed| now.as_second() - renewed <= duration);
        if holder.is_empty() || !is_valid {
            Self::None
        } else if holder.contains('_') {
            Self::This(holder)
        } else {
            Self::Go(holder)
        }
    }
}
