//! The validity of the spec of a load balancer, as far as it is certain (sections 9 and 10).

use std::collections::BTreeSet;

use harvester_lb_api::loadbalancer::{HealthCheck, Listener};
use harvester_lb_api::{Ipam, WorkloadType, keys};
use harvester_lb_object::is_dns_label;

use crate::meta::{annotation, requested};
use crate::objects::Lb;

/// Condition reasons of an invalid spec: its address and endpoints stay as they are (BE-6, ALC-10).
pub(crate) const REFUSED: [&str; 5] = [
    "InvalidListener",
    "InvalidSelector",
    "InvalidHealthCheck",
    "InvalidRequestedAddress",
    "InvalidHardwareAddress",
];

/// Validity of a spec, as far as it is known without the operator's validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// Certainly valid.
    Valid,
    /// Of VM type without a listener (WV-1): certainly invalid.
    WithoutListeners,
    /// It requests something that is no address, or an address although its own comes by DHCP (REQ-1): certainly invalid.
    BadRequest,
    /// Valid or not.
    Unknown,
}

impl Spec {
    /// The validity of the spec of a load balancer.
    pub(crate) fn of(lb: &Lb<'_>) -> Self {
        let spec = &lb.object.spec;
        let is_bad = match requested(lb.object) {
            None => false,
            Some(Err(())) => true,
            Some(Ok(_)) => spec.address_source() == Ipam::Dhcp,
        };
        // Its text is for the operator to judge (DHC-1).
        let has_hardware = annotation(&lb.object.metadata, keys::ANNOTATION_DHCP_HARDWARE_ADDRESS);
        let without_other_faults = if is_bad {
            Self::BadRequest
        } else if has_hardware.is_some() {
            Self::Unknown
        } else {
            Self::Valid
        };
        if spec.workload() == WorkloadType::Cluster {
            return without_other_faults;
        }
        let listeners = spec.listeners.as_deref().unwrap_or_default();
        let selector = spec.backend_server_selector.iter().flatten();
        if listeners.is_empty() {
            Self::WithoutListeners
        } else if are_plain(listeners)
            && selector
                .map(|(_, values)| values)
                .all(|values| !values.is_empty())
            && spec.health_check.as_ref().is_none_or(is_plain)
        {
            without_other_faults
        } else {
            Self::Unknown
        }
    }
}

/// Whether the names and ports of the listeners are valid in a Service, and unique.
fn are_plain(listeners: &[Listener]) -> bool {
    let mut names = BTreeSet::new();
    let mut ports = BTreeSet::new();
    listeners.iter().all(|listener| {
        let name = listener.name.as_deref().unwrap_or_default();
        let letters = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let is_port = |port: i64| (1..=65_535).contains(&port);
        letters
            && (1..=15).contains(&name.len())
            && name.bytes().any(|b| b.is_ascii_lowercase())
            && names.insert(name)
            && matches!(&*listener.protocol, "TCP" | "UDP")
            && is_port(listener.port)
            && is_port(listener.backend_port)
            && ports.insert((&*listener.protocol, listener.port))
    })
}

/// Whether a Service of its own can have the names of these listeners (section 8.2).
pub(crate) fn are_usable(listeners: &[Listener]) -> bool {
    let names = listeners.iter().map(|it| it.name.as_deref());
    let is_usable = |name: &str| is_dns_label(name) || listeners.len() == 1 && name.is_empty();
    names.map(Option::unwrap_or_default).all(is_usable)
}

/// Whether port and numbers of a health check are in range.
fn is_plain(check: &HealthCheck) -> bool {
    let numbers = [
        check.success_threshold,
        check.failure_threshold,
        check.period_seconds,
        check.timeout_seconds,
    ];
    let is_plain = |most: i64, number: Option<i64>| number.is_none_or(|n| (0..=most).contains(&n));
    is_plain(65_535, check.port) && numbers.into_iter().all(|number| is_plain(3_600, number))
}
