//! What a load balancer's status says (section 9). Pure.

use harvester_lb_api::condition::{self, Condition, ConditionStatus, READY};
use harvester_lb_api::meta::finalizers_without;
use harvester_lb_api::{AllocatedAddress, LoadBalancer, keys};

use crate::wording::{self, MESSAGE_LIMIT};

/// Whether the load balancer does what it is for, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The reason of the condition.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
    /// Whether that is so because the first health checks are under way: [`FIRST_HEALTH_CHECKS`].
    pub first_checks: bool,
}

/// Reason of a load balancer that works.
pub const READY_REASON: &str = "Ready";
/// The Service has no external address yet.
pub const WAITING_FOR_EXTERNAL_IP: &str = "WaitingForExternalIP";
/// The selector is empty or matches nothing.
pub const NO_BACKEND: &str = "NoBackend";
/// What matches has no address.
pub const BACKENDS_WITHOUT_IP: &str = "BackendsWithoutIP";
/// Every backend fails its health check.
pub const BACKENDS_UNHEALTHY: &str = "BackendsUnhealthy";
/// An object of the load balancer's name is somebody else's.
pub const NAME_CONFLICT: &str = "NameConflict";
/// The API server refuses an object.
pub const API_ERROR: &str = "ApiError";
/// It asks for what only a later version can do (IPA-9).
pub const UNSUPPORTED_ANNOTATION: &str = "UnsupportedAnnotation";
/// The object cannot be decoded.
pub const INVALID_OBJECT: &str = "InvalidObject";

/// Condition: the address is no longer one of its pool (IPA-7).
pub const ADDRESS_OUT_OF_POOL: &str = "AddressOutOfPool";
/// Condition: an address that the status named belongs to somebody else (IPA-2, ALC-7).
pub const ADDRESS_LOST: &str = "AddressLost";
/// Condition: more backends match than one EndpointSlice takes.
pub const BACKENDS_LEFT_OUT: &str = "BackendsLeftOut";
/// Condition: [`BACKENDS_UNHEALTHY`] is no fault yet but a step on the way, because no backend was ever judged. It is stored, so
/// that the next process knows whether the refusal was told already.
pub const FIRST_HEALTH_CHECKS: &str = "FirstHealthChecks";
/// Condition: the health check's port is the backend port of no TCP listener (HC-7).
pub const HEALTH_CHECK_PORT_MISMATCH: &str = "HealthCheckPortMismatch";

/// Condition: virtual machines are left out because of the address that they report (BE-8).
pub const BACKEND_ADDRESS_REFUSED: &str = "BackendAddressRefused";
/// Condition: virtual machines of another namespace report the same address (BE-8).
pub const BACKEND_ADDRESS_SHARED: &str = "BackendAddressShared";
/// Conditions of which each new message is an Event too: it names other virtual machines.
const TELLING: [&str; 2] = [BACKEND_ADDRESS_REFUSED, BACKEND_ADDRESS_SHARED];

impl Readiness {
    /// All good.
    pub fn ready() -> Self {
        Self {
            reason: READY_REASON,
            message: String::new(),
            first_checks: false,
        }
    }

    /// Not ready.
    pub fn not(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            first_checks: false,
        }
    }

    /// Not ready before any backend was judged.
    pub fn first_checks(message: impl Into<String>) -> Self {
        Self {
            first_checks: true,
            ..Self::not(BACKENDS_UNHEALTHY, message)
        }
    }

    /// Whether it is ready.
    pub fn is_ready(&self) -> bool {
        self.reason == READY_REASON
    }
}

/// A field of the status: left as it is, or set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FieldUpdate<T> {
    /// As it is.
    #[default]
    Unchanged,
    /// To this; `None` takes it out.
    Set(Option<T>),
}

/// A further condition: present with a message, its type being the reason as well, or absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraCondition {
    /// The type.
    pub type_: &'static str,
    /// The message, if the condition holds.
    pub message: Option<String>,
}

/// What there is to say about a load balancer.
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
    /// Further conditions.
    pub extras: Vec<ExtraCondition>,
}

impl StatusUpdate {
    /// A report that changes the readiness and nothing else.
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

/// The load balancer as it should be stored: its status as reported, and without finalizers of old (FIN-2).
pub fn apply(lb: &LoadBalancer, report: &StatusUpdate, now: &str) -> LoadBalancer {
    let mut lb = lb.clone();
    if let Some(kept) = finalizers_without(&lb.metadata, &keys::LEGACY_FINALIZERS) {
        lb.metadata.finalizers = (!kept.is_empty()).then_some(kept);
    }
    let status = lb.status.get_or_insert_default();
    set(&mut status.allocated_address, &report.allocated);
    set(&mut status.address, &report.address);
    set(&mut status.backend_servers, &report.backend_servers);
    let conditions = status.conditions.get_or_insert_default();
    let readiness = &report.readiness;
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
    for extra in report.extras.iter().chain([&first_checks]) {
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

/// The conditions that are stored.
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

/// An Event that a change of the conditions calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDraft {
    /// Whether it is trouble.
    pub warning: bool,
    /// Its reason.
    pub reason: String,
    /// Its text.
    pub text: String,
}

/// The Events that a change of the conditions calls for (section 9): a refusal and a recovery, once for each change.
///
/// The first `Ready` is none. Waiting for the external address or for the first health checks is a step on the way at
/// first, a refusal for what was ready before, and a recovery from any other refusal.
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
                && (w.message == now.message || !TELLING.contains(&&*now.type_))
        };
        if was.is_some_and(same) {
            continue;
        }
        let reason = now.reason.clone().unwrap_or_default();
        let refused_before = was.is_some_and(|w| !holds(w) && !was_step);
        let good = now.type_ == READY && (holds(now) || step);
        let draft = if good && refused_before {
            // The Go operator gives no reasons.
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

/// Whether a condition, one of `all`, is a step on the way to being ready, which every new load balancer takes.
fn is_step(condition: &Condition, all: &[Condition]) -> bool {
    match condition.reason.as_deref() {
        Some(WAITING_FOR_EXTERNAL_IP) => true,
        Some(BACKENDS_UNHEALTHY) => condition::find(all, FIRST_HEALTH_CHECKS).is_some(),
        _ => false,
    }
}

/// Whether stored conditions say that the backends were judged and none is healthy. A status from before there was
/// [`FIRST_HEALTH_CHECKS`] counts as that, whatever its text.
pub fn was_judged_unhealthy(conditions: &[Condition]) -> bool {
    condition::find(conditions, READY)
        .is_some_and(|c| c.reason.as_deref() == Some(BACKENDS_UNHEALTHY) && !is_step(c, conditions))
}

#[cfg(test)]
mod tests;
