//! The Events about the address of a load balancer, single backends, and the node that announces it. Pure.
//!
//! A load balancer without any ready backend is the matter of its condition `Ready`, and so are its Events
//! ([`crate::status::event_drafts`]).

use harvester_lb_api::condition::{self, Condition, ConditionStatus};
use harvester_lb_api::{LoadBalancer, keys};

use crate::details::{self, BACKENDS_HEALTHY, SOME_BACKENDS_UNHEALTHY};
use crate::event_draft::EventDraft;
use crate::status;

/// Reason: the load balancer was given an address.
pub const ADDRESS_ALLOCATED: &str = details::ADDRESS_ALLOCATED;
/// Reason: a backend takes no traffic any more, others do.
pub const BACKEND_UNHEALTHY: &str = "BackendUnhealthy";
/// Reason: a backend takes traffic again.
pub const BACKEND_HEALTHY: &str = "BackendHealthy";
/// Reason: another node announces the address.
pub const ANNOUNCING_NODE_CHANGED: &str = "AnnouncingNodeChanged";

/// The Events of a status write about the address and single backends, from the load balancer before and after it. A status of
/// an earlier version has no `BackendsHealthy`, and the first one causes no Event.
pub fn event_drafts(before: &LoadBalancer, after: &LoadBalancer) -> Vec<EventDraft> {
    fn health(lb: &LoadBalancer) -> Option<&Condition> {
        condition::find(status::conditions(lb), BACKENDS_HEALTHY)
    }
    let backends = match (health(before), health(after)) {
        (Some(before), Some(after)) => backend_event(before, after),
        _ => None,
    };
    address_event(before, after)
        .into_iter()
        .chain(backends)
        .collect()
}

/// The Event that kube-vip announces the address from another node.
pub fn announcing_node_changed(before: &str, now: &str) -> EventDraft {
    EventDraft {
        warning: false,
        reason: ANNOUNCING_NODE_CHANGED.to_owned(),
        text: format!("kube-vip announces the address from node {now}, before from {before}"),
    }
}

/// The Event of a new address: of a pool, or by DHCP (OPS-3).
fn address_event(before: &LoadBalancer, after: &LoadBalancer) -> Option<EventDraft> {
    let (address, pool) = address(after)?;
    let previous = self::address(before).map(|(address, _)| address);
    if previous == Some(address) {
        return None;
    }
    let from = match pool {
        Some(pool) => format!("{address} of pool {pool}"),
        None => format!("{address} by DHCP"),
    };
    let instead = previous.map_or_else(String::new, |p| format!(", instead of {p}"));
    Some(EventDraft {
        warning: false,
        reason: ADDRESS_ALLOCATED.to_owned(),
        text: from + &instead,
    })
}

/// The address in a status, and its pool; `None` for the pool: by DHCP.
fn address(lb: &LoadBalancer) -> Option<(&str, Option<&str>)> {
    let status = lb.status.as_ref()?;
    let allocated = status.allocated_address.as_ref()?;
    match allocated.ip.as_deref()? {
        "" => None,
        keys::DHCP_ADDRESS => {
            let leased = status.address.as_deref().filter(|a| !a.is_empty());
            Some((leased?, None))
        }
        ip => Some((ip, Some(allocated.ip_pool.as_deref().unwrap_or_default()))),
    }
}

/// The Event of a backend that is out, or back, while others are healthy.
fn backend_event(before: &Condition, after: &Condition) -> Option<EventDraft> {
    let is_partial = |c: &Condition| c.reason.as_deref() == Some(SOME_BACKENDS_UNHEALTHY);
    let message = |c: &Condition| c.message.clone().unwrap_or_default();
    let (was, now) = (message(before), message(after));
    let (was_up, was_all) = details::counts(&was)?;
    let (up, all) = details::counts(&now)?;
    let draft = |warning, reason: &str| EventDraft {
        warning,
        reason: reason.to_owned(),
        text: now.clone(),
    };
    let is_all_healthy = after.status == ConditionStatus::True.as_str();
    if is_partial(after) && (!is_failed(before) || up < was_up) {
        return Some(draft(true, BACKEND_UNHEALTHY));
    }
    if is_partial(before) && (is_all_healthy || (is_partial(after) && up > was_up)) {
        return Some(draft(false, BACKEND_HEALTHY));
    }
    // One is out and another one is back.
    let is_swapped = is_partial(before) && is_partial(after) && (was_up, was_all) == (up, all);
    (is_swapped && was != now).then(|| draft(true, BACKEND_UNHEALTHY))
}

fn is_failed(condition: &Condition) -> bool {
    condition.status == ConditionStatus::False.as_str()
}

#[cfg(test)]
mod tests;
