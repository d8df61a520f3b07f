//! The detail conditions of a load balancer: `AddressAllocated`, `Announced` and `BackendsHealthy`. They say which part of it
//! works, beside `Ready`, which summarizes it. Pure.
//!
//! Each depends on the state of the objects alone, and none names a node, so a failover of kube-vip changes none of them. The
//! causes in the message of `BackendsHealthy` change with a verdict only: of a backend that stays unhealthy the stored cause
//! stays, see [`backends_healthy`].
//!
//! A difference in them alone is no reason for a write at once, see [`crate::status::decide`].

use harvester_lb_api::condition::{self, Condition, ConditionStatus};
use harvester_lb_prober::{ProbeResult, TargetView};

use crate::backends::Backend;
use crate::cached::VmiState;
use crate::reasons::{BACKENDS_UNHEALTHY, FIRST_HEALTH_CHECKS, WAITING_FOR_EXTERNAL_IP};
use crate::wording::{self, MESSAGE_LIMIT, SEPARATOR};

/// Condition: the load balancer has an address.
pub const ADDRESS_ALLOCATED: &str = "AddressAllocated";
/// Condition: kube-vip announces the address. VM type only.
pub const ANNOUNCED: &str = "Announced";
/// Condition: every backend takes traffic. VM type only. `Unknown` while that is not known of some backends: before the first
/// results, and while this host cannot start health checks (HC-6).
pub const BACKENDS_HEALTHY: &str = "BackendsHealthy";
/// Reason of [`BACKENDS_HEALTHY`]: some backends are unhealthy, others are healthy.
pub const SOME_BACKENDS_UNHEALTHY: &str = "SomeBackendsUnhealthy";
/// Reason of [`BACKENDS_HEALTHY`]: this host cannot start the health checks of some backends (HC-6).
pub const HEALTH_CHECKS_STALE: &str = "HealthChecksStale";

/// All detail conditions.
pub const DETAILS: [&str; 3] = [ADDRESS_ALLOCATED, ANNOUNCED, BACKENDS_HEALTHY];

/// Number of backends that a message names at most.
pub const NAMED: usize = 5;
/// Longest name of a backend in a message, in bytes: [`NAMED`] of them with their causes fit into [`MESSAGE_LIMIT`].
const NAME_LIMIT: usize = 120;

/// The value of a detail condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailCondition {
    /// Its type, one of [`DETAILS`].
    pub type_: &'static str,
    /// Status, reason and message; `None` removes the condition.
    pub value: Option<(ConditionStatus, &'static str, String)>,
}

impl DetailCondition {
    const fn none(type_: &'static str) -> Self {
        Self { type_, value: None }
    }

    fn new(
        type_: &'static str,
        status: ConditionStatus,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_,
            value: Some((status, reason, message.into())),
        }
    }
}

/// `AddressAllocated` of a load balancer with an address of a pool.
pub fn allocated_from_pool(address: &str, pool: &str) -> DetailCondition {
    let message = format!("{address} of pool {pool}");
    DetailCondition::new(
        ADDRESS_ALLOCATED,
        ConditionStatus::True,
        ADDRESS_ALLOCATED,
        message,
    )
}

/// `AddressAllocated` of a load balancer of VM type whose address kube-vip obtains by DHCP (OPS-3). `leased`: the ingress
/// address of its Service.
pub fn allocated_by_dhcp(leased: Option<&str>) -> DetailCondition {
    match leased {
        Some(address) => DetailCondition::new(
            ADDRESS_ALLOCATED,
            ConditionStatus::True,
            ADDRESS_ALLOCATED,
            format!("{address} by DHCP"),
        ),
        None => DetailCondition::new(
            ADDRESS_ALLOCATED,
            ConditionStatus::False,
            WAITING_FOR_EXTERNAL_IP,
            "waiting for kube-vip to obtain an address by DHCP",
        ),
    }
}

/// `AddressAllocated` of a load balancer of cluster type whose guest obtains the address by DHCP (REC-1). The guest may write
/// any address, so the message names none.
pub fn allocated_by_guest() -> DetailCondition {
    DetailCondition::new(
        ADDRESS_ALLOCATED,
        ConditionStatus::True,
        ADDRESS_ALLOCATED,
        "the guest cluster obtains an address by DHCP",
    )
}

/// The detail conditions of a load balancer that waits for an address, for this reason of its condition `Ready`: nothing is
/// announced and no backend is checked.
pub fn waiting(reason: &'static str) -> Vec<DetailCondition> {
    vec![
        DetailCondition::new(
            ADDRESS_ALLOCATED,
            ConditionStatus::False,
            reason,
            "no address; the condition Ready says why",
        ),
        DetailCondition::none(ANNOUNCED),
        DetailCondition::none(BACKENDS_HEALTHY),
    ]
}

/// The detail conditions of a load balancer of cluster type (REC-1).
pub fn of_cluster(allocated: DetailCondition) -> Vec<DetailCondition> {
    vec![
        allocated,
        DetailCondition::none(ANNOUNCED),
        DetailCondition::none(BACKENDS_HEALTHY),
    ]
}

/// `Announced` of a load balancer of VM type. `external`: the ingress address of its Service; `wanted`: the
/// `spec.loadBalancerIP` of its Service; `is_other`: the ingress address is one that the load balancer is to leave (REL-4).
pub fn announced(external: Option<&str>, wanted: &str, is_other: bool) -> DetailCondition {
    let waits = |message: String| {
        DetailCondition::new(
            ANNOUNCED,
            ConditionStatus::False,
            WAITING_FOR_EXTERNAL_IP,
            message,
        )
    };
    match external {
        None => waits(format!("waiting for kube-vip to announce {wanted}")),
        Some(other) if is_other => waits(format!(
            "waiting for kube-vip to announce {wanted}; it still announces {other}"
        )),
        Some(address) => DetailCondition::new(
            ANNOUNCED,
            ConditionStatus::True,
            ANNOUNCED,
            address.to_owned(),
        ),
    }
}

/// `Announced` and `BackendsHealthy` of a load balancer that cannot have a Service, for this reason of its condition `Ready`
/// (SVC-1).
pub fn without_service(reason: &'static str) -> Vec<DetailCondition> {
    vec![
        DetailCondition::new(
            ANNOUNCED,
            ConditionStatus::False,
            reason,
            "no Service; the condition Ready says why",
        ),
        DetailCondition::none(BACKENDS_HEALTHY),
    ]
}

/// `BackendsHealthy` of a load balancer that has no endpoints now.
pub const fn without_endpoints() -> DetailCondition {
    DetailCondition::none(BACKENDS_HEALTHY)
}

/// Why a backend takes no traffic, or why that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its virtual machine is paused while another one is ready, or terminated (BE-5).
    State(VmiState),
    /// Its health check failed like this when it reached the failure threshold (HC-1).
    CheckFailed(ProbeResult),
    /// No health check has reached a threshold yet.
    NotChecked,
    /// This host cannot start its health checks, so its verdict is stale (HC-6).
    Stale,
}

/// Texts of failed health checks.
const FAILURES: [&str; 5] = [
    "connection refused",
    "timed out",
    "host unreachable",
    "connection error",
    "health check failed",
];

impl Cause {
    /// The text in the message.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::State(VmiState::Succeeded) => "Succeeded",
            Self::State(VmiState::Failed) => "Failed",
            Self::State(VmiState::Paused | VmiState::Running) => "paused",
            Self::CheckFailed(ProbeResult::Refused) => FAILURES[0],
            Self::CheckFailed(ProbeResult::Timeout) => FAILURES[1],
            Self::CheckFailed(ProbeResult::Unreachable) => FAILURES[2],
            Self::CheckFailed(ProbeResult::Error) => FAILURES[3],
            Self::CheckFailed(ProbeResult::Success | ProbeResult::OwnFault(_)) => FAILURES[4],
            Self::NotChecked => "no health check result yet",
            Self::Stale => "its health checks cannot be started",
        }
    }
}

/// A backend with its readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendHealth<'a> {
    /// Name of the VirtualMachineInstance.
    pub name: &'a str,
    /// Whether its endpoint is ready.
    pub ready: bool,
    /// Why not, or why that is not known; `None` if it is known to be healthy.
    pub cause: Option<Cause>,
}

impl<'a> BackendHealth<'a> {
    /// The health of a backend whose endpoint has this `ready`; `target`: its health check, if it has one.
    pub fn new(backend: &'a Backend, ready: bool, target: Option<&TargetView>) -> Self {
        let cause = match backend.state {
            state if state.has_terminated() => Some(Cause::State(state)),
            VmiState::Paused if !ready => Some(Cause::State(VmiState::Paused)),
            _ if target.is_some_and(|t| t.stale) => Some(Cause::Stale),
            _ if ready => None,
            _ => match target.and_then(|t| t.failure) {
                Some(failure) => Some(Cause::CheckFailed(failure)),
                None => Some(Cause::NotChecked),
            },
        };
        Self {
            name: &backend.name,
            ready,
            cause,
        }
    }
}

/// `BackendsHealthy` of a load balancer with at least one backend. `is_checked`: it has a health check. `before`: its stored
/// conditions.
///
/// The message names the first [`NAMED`] backends that are not known to be healthy, each with its cause. The stored cause of a
/// health check that failed stays while that backend fails or has no result in this process: after a restart, and when it
/// fails in another way, the message is the same.
pub fn backends_healthy(
    backends: &[BackendHealth<'_>],
    is_checked: bool,
    before: &[Condition],
) -> DetailCondition {
    let stored = condition::find(before, BACKENDS_HEALTHY).and_then(|c| c.message.as_deref());
    let healthy = backends.iter().filter(|b| b.ready).count();
    let mut message = format!("{healthy} of {}", backends.len());
    if !is_checked {
        message = message + SEPARATOR + "there is no health check";
    }
    let concerned: Vec<(&BackendHealth<'_>, Cause)> = backends
        .iter()
        .filter_map(|backend| Some((backend, backend.cause?)))
        .collect();
    let (mut is_stale, mut has_failed) = (false, false);
    for (at, (backend, cause)) in concerned.iter().enumerate() {
        let name = wording::shortened(backend.name, NAME_LIMIT);
        let mut text = cause.as_str();
        if matches!(cause, Cause::CheckFailed(_) | Cause::NotChecked)
            && let Some(stored) = stored.and_then(|stored| stored_failure(stored, &name))
        {
            text = stored;
        }
        is_stale |= *cause == Cause::Stale;
        has_failed |= *cause != Cause::Stale && text != Cause::NotChecked.as_str();
        if at < NAMED {
            message = message + SEPARATOR + &name + NAME_END + text;
        }
    }
    if concerned.len() > NAMED {
        message = format!("{message}{SEPARATOR}and {} more", concerned.len() - NAMED);
    }
    let (status, reason) = if is_stale {
        (ConditionStatus::Unknown, HEALTH_CHECKS_STALE)
    } else if has_failed && healthy == 0 {
        (ConditionStatus::False, BACKENDS_UNHEALTHY)
    } else if has_failed {
        (ConditionStatus::False, SOME_BACKENDS_UNHEALTHY)
    } else if concerned.is_empty() {
        (ConditionStatus::True, BACKENDS_HEALTHY)
    } else {
        (ConditionStatus::Unknown, FIRST_HEALTH_CHECKS)
    };
    DetailCondition::new(BACKENDS_HEALTHY, status, reason, message)
}

/// `BackendsHealthy` of a load balancer without a backend, for this reason and message of its condition `Ready`.
pub fn no_backends(reason: &'static str, message: &str) -> DetailCondition {
    DetailCondition::new(BACKENDS_HEALTHY, ConditionStatus::False, reason, message)
}

/// Separates the name of a backend from its cause.
const NAME_END: &str = ": ";

/// The cause of a backend in a stored message, if its health check failed.
fn stored_failure<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let mut parts = message.split(SEPARATOR);
    let cause = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix(NAME_END))?;
    FAILURES.contains(&cause).then_some(cause)
}

/// The number of healthy backends and of all of them, in a message.
pub fn counts(message: &str) -> Option<(usize, usize)> {
    let head = message.split(SEPARATOR).next()?;
    let (healthy, all) = head.split_once(" of ")?;
    Some((healthy.parse().ok()?, all.parse().ok()?))
}

/// Sets or removes detail conditions. `now` is RFC 3339, for those that change. A stored message that differs only in wording
/// stays.
pub fn apply(conditions: &mut Vec<Condition>, details: &[DetailCondition], now: &str) {
    for detail in details {
        match &detail.value {
            Some((status, reason, message)) => {
                let message = &message[..message.floor_char_boundary(MESSAGE_LIMIT)];
                wording::set(conditions, detail.type_, *status, reason, message, now);
            }
            None => condition::clear(conditions, detail.type_),
        }
    }
}

/// Whether any detail condition is stored. An earlier version wrote none.
pub fn any_stored(conditions: &[Condition]) -> bool {
    conditions.iter().any(|c| is_detail(&c.type_))
}

/// Whether this is the type of a detail condition.
pub fn is_detail(type_: &str) -> bool {
    DETAILS.contains(&type_)
}

#[cfg(test)]
mod tests;
