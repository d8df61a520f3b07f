//! The status of a load balancer and the Events of its changes (section 9). Pure.

use harvester_lb_api::condition::{self, Condition, ConditionStatus, READY};
use harvester_lb_api::meta::finalizers_without;
use harvester_lb_api::{AllocatedAddress, LoadBalancer, keys};

use crate::wording::{self, MESSAGE_LIMIT};

/// The condition `Ready` of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Its reason. [`READY_REASON`] means status True, any other False.
    pub reason: &'static str,
    /// Its message; empty when ready. It is cut to 1,024 bytes when it is stored.
    pub message: String,
    /// Whether it is not ready because no health check has a verdict yet: sets [`FIRST_HEALTH_CHECKS`].
    pub first_checks: bool,
}

/// Reason: ready.
pub const READY_REASON: &str = "Ready";
/// Reason: the Service has no ingress address yet (REC-2).
pub const WAITING_FOR_EXTERNAL_IP: &str = "WaitingForExternalIP";
/// Reason: the selector is empty or matches nothing (BE-1).
pub const NO_BACKEND: &str = "NoBackend";
/// Reason: no matching virtual machine has a usable address (BE-2, BE-8).
pub const BACKENDS_WITHOUT_IP: &str = "BackendsWithoutIP";
/// Reason: no backend is ready (HC-4, BE-5).
pub const BACKENDS_UNHEALTHY: &str = "BackendsUnhealthy";
/// Reason: a Service or EndpointSlice of the load balancer's name has another owner (SVC-1).
pub const NAME_CONFLICT: &str = "NameConflict";
/// Reason: the API server rejects an object.
pub const API_ERROR: &str = "ApiError";
/// Reason: the object needs a feature of a later version (IPA-9).
pub const UNSUPPORTED_ANNOTATION: &str = "UnsupportedAnnotation";
/// Reason: the LoadBalancer cannot be decoded.
pub const INVALID_OBJECT: &str = "InvalidObject";

/// Condition: the address is no longer in the ranges of its pool (IPA-7).
pub const ADDRESS_OUT_OF_POOL: &str = "AddressOutOfPool";
/// Condition: the load balancer may not have the address that its status named (IPA-2, ALC-7).
pub const ADDRESS_LOST: &str = "AddressLost";
/// Condition: more backends match than an EndpointSlice can have, see [`crate::backends::MAX_BACKENDS`].
pub const BACKENDS_LEFT_OUT: &str = "BackendsLeftOut";
/// Condition: [`BACKENDS_UNHEALTHY`] is a start-up step and no failure, because no health check has had a verdict. It is
/// stored, so that after a restart the operator knows whether the Event of a failure was sent already.
pub const FIRST_HEALTH_CHECKS: &str = "FirstHealthChecks";
/// Condition: the health check's port is not the backend port of a TCP listener (HC-7).
pub const HEALTH_CHECK_PORT_MISMATCH: &str = "HealthCheckPortMismatch";

/// Condition: virtual machines are left out because of the address that they report (BE-8).
pub const BACKEND_ADDRESS_REFUSED: &str = "BackendAddressRefused";
/// Condition: virtual machines of another namespace report the same address (BE-8).
pub const BACKEND_ADDRESS_SHARED: &str = "BackendAddressShared";
/// Conditions of which each new message causes an Event, because it names other virtual machines.
const EVENT_PER_MESSAGE: [&str; 2] = [BACKEND_ADDRESS_REFUSED, BACKEND_ADDRESS_SHARED];

impl Readiness {
    /// Ready.
    pub fn ready() -> Self {
        Self {
            reason: READY_REASON,
            message: String::new(),
            first_checks: false,
        }
    }

    /// Not ready, with the reason and message of the condition.
    pub fn not(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            first_checks: false,
        }
    }

    /// Not ready, because no health check has a verdict yet.
    pub fn first_checks(message: impl Into<String>) -> Self {
        Self {
            first_checks: true,
            ..Self::not(BACKENDS_UNHEALTHY, message)
        }
    }

    /// Whether the condition is True.
    pub fn is_ready(&self) -> bool {
        self.reason == READY_REASON
    }
}

/// The update of one status field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FieldUpdate<T> {
    /// Leave the field as it is.
    #[default]
    Unchanged,
    /// Set the field; `None` removes it.
    Set(Option<T>),
}

/// A condition besides `Ready`. It is either True, with its type as the reason, or absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraCondition {
    /// Its type.
    pub type_: &'static str,
    /// Its message; `None` removes the condition.
    pub message: Option<String>,
}

/// The changes to the status of a load balancer.
#[derive(Clone, Debug)]
pub struct StatusUpdate {
    /// The condition `Ready`.
    pub readiness: Readiness,
    /// `status.allocatedAddress`.
    pub allocated: FieldUpdate<AllocatedAddress>,
    /// `status.address`.
    pub address: FieldUpdate<String>,
    /// `status.backendServers`.
    pub backend_servers: FieldUpdate<Vec<String>>,
    /// Conditions besides `Ready`. A type that is not in the list is left as it is.
    pub extras: Vec<ExtraCondition>,
}

impl StatusUpdate {
    /// Changes the condition `Ready` and nothing else.
    pub fn only(readiness: Readiness) -> Self {
        Self {
            readiness,
            allocated: FieldUpdate::Unchanged,
            address: FieldUpdate::Unchanged,
            backend_servers: FieldUpdate::Unchanged,
            extras: Vec::new(),
        }
    }
}

/// The desired load balancer: with the updated status and without legacy finalizers (FIN-2). `now` is RFC 3339 and is used
/// for conditions that change. A stored message that differs only in wording stays, see [`wording::set`].
pub fn apply(lb: &LoadBalancer, update: &StatusUpdate, now: &str) -> LoadBalancer {
    let mut lb = lb.clone();
    if let Some(kept) = finalizers_without(&lb.metadata, &keys::LEGACY_FINALIZERS) {
        lb.metadata.finalizers = (!kept.is_empty()).then_some(kept);
    }
    let status = lb.status.get_or_insert_default();
    set(&mut status.allocated_address, &update.allocated);
    set(&mut status.address, &update.address);
    set(&mut status.backend_servers, &update.backend_servers);
    let conditions = status.conditions.get_or_insert_default();
    let readiness = &update.readiness;
    let verdict = if readiness.is_ready() {
        ConditionStatus::True
    } else {
        ConditionStatus::False
    };
    let message = limited(&readiness.message);
    wording::set(conditions, READY, verdict, readiness.reason, message, now);
    let first_checks = ExtraCondition {
        type_: FIRST_HEALTH_CHECKS,
        message: readiness
            .first_checks
            .then(|| "no backend has a health check result yet".to_owned()),
    };
    for extra in update.extras.iter().chain([&first_checks]) {
        match &extra.message {
            Some(message) => wording::set(
                conditions,
                extra.type_,
                ConditionStatus::True,
                extra.type_,
                limited(message),
                now,
            ),
            None => condition::clear(conditions, extra.type_),
        }
    }
    lb
}

/// The stored conditions of a load balancer.
pub fn conditions(lb: &LoadBalancer) -> &[Condition] {
    let status = lb.status.as_ref();
    status
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default()
}

fn limited(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_LIMIT)]
}

fn set<T: Clone + PartialEq>(field: &mut Option<T>, to: &FieldUpdate<T>) {
    if let FieldUpdate::Set(value) = to
        && field != value
    {
        field.clone_from(value);
    }
}

/// An Event about a change of conditions, not sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDraft {
    /// Type `Warning` if true, else `Normal`.
    pub warning: bool,
    /// Its reason: that of the condition.
    pub reason: String,
    /// Its message.
    pub text: String,
}

/// The Events of a change from the stored conditions `before` to `after`: one for each failure and each recovery
/// (section 9).
///
/// The first `Ready` causes none. Waiting for the external address or for the first health checks is a start-up step and
/// causes none for a new load balancer, a Warning for one that was ready, and counts as the recovery from any other
/// failure.
pub fn event_drafts(before: Option<&[Condition]>, after: &[Condition]) -> Vec<EventDraft> {
    let before = before.unwrap_or_default();
    let holds = |c: &Condition| c.status == ConditionStatus::True.as_str();
    let mut event_drafts = Vec::new();
    for now in after {
        if now.type_ == FIRST_HEALTH_CHECKS {
            continue;
        }
        let was = condition::find(before, &now.type_);
        let (was_step, step) = (was.is_some_and(|w| is_step(w, before)), is_step(now, after));
        let same = |w: &Condition| {
            w.status == now.status
                && w.reason == now.reason
                && was_step == step
                && (w.message == now.message || !EVENT_PER_MESSAGE.contains(&&*now.type_))
        };
        if was.is_some_and(same) {
            continue;
        }
        let reason = now.reason.clone().unwrap_or_default();
        let refused_before = was.is_some_and(|w| !holds(w) && !was_step);
        let good = now.type_ == READY && (holds(now) || step);
        let draft = if good && refused_before {
            // The Go operator writes no reasons.
            let text = match was.and_then(|w| w.reason.as_deref()) {
                Some(was) => format!("no longer {was}"),
                None => "ready again".to_owned(),
            };
            EventDraft {
                warning: false,
                reason,
                text,
            }
        } else if good && (holds(now) || was.is_none_or(|w| !holds(w))) {
            continue;
        } else {
            EventDraft {
                warning: true,
                reason,
                text: now.message.clone().unwrap_or_default(),
            }
        };
        event_drafts.push(draft);
    }
    event_drafts
}

/// Whether a condition, one of `all`, is a start-up step of every new load balancer.
fn is_step(condition: &Condition, all: &[Condition]) -> bool {
    match condition.reason.as_deref() {
        Some(WAITING_FOR_EXTERNAL_IP) => true,
        Some(BACKENDS_UNHEALTHY) => condition::find(all, FIRST_HEALTH_CHECKS).is_some(),
        _ => false,
    }
}

/// Whether the stored conditions say that health checks had verdicts and no backend is healthy. A status of a version
/// without [`FIRST_HEALTH_CHECKS`] counts as that, with any message.
pub fn was_unhealthy(conditions: &[Condition]) -> bool {
    condition::find(conditions, READY)
        .is_some_and(|c| c.reason.as_deref() == Some(BACKENDS_UNHEALTHY) && !is_step(c, conditions))
}

#[cfg(test)]
mod tests;
