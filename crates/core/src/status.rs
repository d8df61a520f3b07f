//! The status of a load balancer and the Events of its changes (section 9). Pure.

use std::net::IpAddr;

use harvester_lb_api::condition::{self, Condition, ConditionStatus, READY};
use harvester_lb_api::meta::finalizers_without;
use harvester_lb_api::{AllocatedAddress, LoadBalancer, keys};
use harvester_lb_ipam::addr;

use crate::details::{self, DetailCondition};
use crate::merge_patch::difference;
use crate::wording::{self, MESSAGE_LIMIT};

pub use crate::event_draft::EventDraft;
pub use crate::reasons::*;

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

/// A condition besides `Ready`. It is present only while there is something to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraCondition {
    /// Its type.
    pub type_: &'static str,
    /// Whether its status is True.
    pub holds: bool,
    /// Its reason; the type, where there is only one.
    pub reason: &'static str,
    /// Its message; `None` removes the condition.
    pub message: Option<String>,
}

impl ExtraCondition {
    /// One whose status is True, with its type as reason; a message of `None` removes it.
    pub const fn new(type_: &'static str, message: Option<String>) -> Self {
        Self {
            type_,
            holds: true,
            reason: type_,
            message,
        }
    }

    /// One whose status is False, for this reason; a message of `None` removes it.
    pub const fn denied(
        type_: &'static str,
        reason: &'static str,
        message: Option<String>,
    ) -> Self {
        Self {
            type_,
            holds: false,
            reason,
            message,
        }
    }
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
    /// Detail conditions. A type that is not in the list is left as it is.
    pub details: Vec<DetailCondition>,
    /// Whether the readiness of a backend has changed in the EndpointSlice, which the detail conditions are to say even if
    /// none is stored yet.
    pub verdicts_changed: bool,
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
            details: Vec::new(),
            verdicts_changed: false,
        }
    }
}

/// The write of a status.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusWrite {
    /// None: the stored status is as desired, or its detail conditions may stay as they are.
    None,
    /// More than the detail conditions changes: write this load balancer at once. It includes the detail conditions.
    Now(Box<LoadBalancer>),
    /// Only detail conditions change: write this load balancer when the pace of such writes allows it.
    Paced(Box<LoadBalancer>),
}

/// Decides on the write of a status; `now` as for [`apply`] (REC-5).
///
/// Detail conditions never cause a write of their own for a load balancer that has none of them, unless a verdict has
/// changed: an earlier version or the Go operator wrote its status, and an upgrade must not write every load balancer (OPS-2).
pub fn decide(lb: &LoadBalancer, update: &StatusUpdate, now: &str) -> StatusWrite {
    let mut wanted = Box::new(apply(lb, update, now));
    let is_due = difference(lb, &*wanted).is_some();
    let may_add = is_due || update.verdicts_changed || details::any_stored(conditions(lb));
    if !may_add {
        return StatusWrite::None;
    }
    let all = wanted.status.get_or_insert_default();
    let all = all.conditions.get_or_insert_default();
    let before = (!is_due).then(|| all.clone());
    details::apply(all, &update.details, now);
    match before {
        None => StatusWrite::Now(wanted),
        Some(before) if before == *all => StatusWrite::None,
        Some(_) => StatusWrite::Paced(wanted),
    }
}

/// The desired load balancer: with the updated status, its detail conditions apart, and without legacy finalizers (FIN-2).
/// `now` is RFC 3339 and is used for conditions that change. A stored message that differs only in wording stays, see
/// [`wording::set`].
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
    let first_checks = readiness
        .first_checks
        .then(|| "no backend has a health check result yet".to_owned());
    let first_checks = ExtraCondition::new(FIRST_HEALTH_CHECKS, first_checks);
    for extra in update.extras.iter().chain([&first_checks]) {
        match &extra.message {
            Some(message) => {
                let status = if extra.holds {
                    ConditionStatus::True
                } else {
                    ConditionStatus::False
                };
                let message = limited(message);
                wording::set(conditions, extra.type_, status, extra.reason, message, now);
            }
            None => condition::clear(conditions, extra.type_),
        }
    }
    lb
}

/// `status.allocatedAddress.ip`.
pub fn allocated(lb: &LoadBalancer) -> Option<&str> {
    let status = lb.status.as_ref()?;
    status.allocated_address.as_ref()?.ip.as_deref()
}

/// The address in `status.allocatedAddress`; `None` also if the text is none.
pub fn allocated_addr(lb: &LoadBalancer) -> Option<IpAddr> {
    allocated(lb).and_then(addr::parse)
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
        if now.type_ == FIRST_HEALTH_CHECKS || details::is_detail(&now.type_) {
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
        if now.type_ == ADDRESS_SHARED && holds(now) {
            event_drafts.push(EventDraft {
                warning: false,
                reason: ADDRESS_SHARED.to_owned(),
                text: now.message.clone().unwrap_or_default(),
            });
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
        Some(WAITING_FOR_EXTERNAL_IP | WAITING_FOR_PRIMARY) => true,
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
