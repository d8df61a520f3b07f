//! Validation of a LoadBalancer spec (VAL-1): finds every [`Violation`]. Pure: depends on the API types only.
//!
//! The order is that of the admission rules: WV-1; WV-2 to WV-4 for each listener; names, protocols and WV-5 for each
//! listener; the selector; WV-6; WV-7; REQ-1; DHC-1; SHR-1. Pools are in [`pools`] and [`pool_index`].

mod intervals;
pub mod pool_index;
pub mod pools;
mod tuples;
mod violation;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{HealthCheck, Ipam, Listener, LoadBalancer, WorkloadType, keys};
use harvester_lb_ipam::dhcp::HardwareAddress;
use harvester_lb_object::is_dns_label;

pub use self::violation::{Consumer, Severity, Violation};
use crate::sharing::membership;
use crate::spec_annotations::{self, RequestedAddress};

/// Parses `port` or `backendPort` of the listener at `index` (WV-5).
///
/// # Errors
/// [`Violation::PortOutOfRange`]: the value is not 1 to 65535.
pub fn port(index: usize, field: &'static str, value: i64) -> Result<u16, Violation> {
    let port = u16::try_from(value).ok().filter(|port| *port != 0);
    port.ok_or(Violation::PortOutOfRange {
        index,
        field,
        value,
    })
}

/// Parses the protocol of the listener at `index`: `TCP`, `UDP` or `SCTP`, case-sensitive. Empty means `TCP`.
///
/// # Errors
/// [`Violation::UnknownProtocol`]: any other value (section 8.2).
pub fn protocol(index: usize, value: &str) -> Result<&'static str, Violation> {
    let known = ["TCP", "UDP", "SCTP"].into_iter().find(|p| *p == value);
    known
        .or_else(|| value.is_empty().then_some("TCP"))
        .ok_or_else(|| Violation::UnknownProtocol {
            index,
            value: value.to_owned(),
        })
}

/// Every violation of the rules for a single load balancer, in the order of the rules (VAL-1). Listeners and health check of
/// cluster type are ignored (REC-1).
pub fn validate(lb: &LoadBalancer) -> Vec<Violation> {
    let mut found = Vec::new();
    if lb.spec.workload() == WorkloadType::Vm {
        of_vm_type(lb, &mut found);
    }
    found.extend(requested_address(lb));
    found.extend(hardware_address(lb));
    found.extend(membership::fault_of(lb).map(Violation::SharedAddress));
    found
}

/// REQ-1.
fn requested_address(lb: &LoadBalancer) -> Option<Violation> {
    let is_dhcp = lb.spec.address_source() == Ipam::Dhcp;
    let (value, problem) = match spec_annotations::requested_address(&lb.metadata) {
        RequestedAddress::Invalid(text) => (
            spec_annotations::shown(text),
            "it must be an IP address, such as 10.0.0.9; or remove the annotation",
        ),
        RequestedAddress::Of(addr) if is_dhcp => (
            addr.to_string(),
            "only an address of a pool can be requested, and spec.ipam is dhcp; remove the annotation",
        ),
        RequestedAddress::None | RequestedAddress::Of(_) => return None,
    };
    Some(Violation::RequestedAddress { value, problem })
}

/// DHC-1: only what the DHCP process uses is looked at.
fn hardware_address(lb: &LoadBalancer) -> Option<Violation> {
    let is_leased =
        lb.spec.address_source() == Ipam::Dhcp && lb.spec.workload() == WorkloadType::Vm;
    let text = annotation(&lb.metadata, keys::ANNOTATION_DHCP_HARDWARE_ADDRESS);
    let text = text.filter(|_| is_leased)?;
    let problem = HardwareAddress::parse(text).err()?;
    let value = spec_annotations::shown(text);
    Some(Violation::HardwareAddress { value, problem })
}

fn of_vm_type(lb: &LoadBalancer, found: &mut Vec<Violation>) {
    let listeners = lb.spec.listeners.as_deref().unwrap_or_default();
    if listeners.is_empty() {
        found.push(Violation::NoListener);
    }
    unique(listeners, found);
    for (index, listener) in listeners.iter().enumerate() {
        let name = listener.name.as_deref().unwrap_or_default();
        found.extend(
            name_problem(name, listeners.len()).map(|problem| Violation::UnusableName {
                index,
                value: spec_annotations::shown(name),
                problem,
            }),
        );
        found.extend(protocol(index, &listener.protocol).err());
        found.extend(port(index, "port", listener.port).err());
        found.extend(port(index, "backendPort", listener.backend_port).err());
    }
    let selector = lb.spec.backend_server_selector.iter().flatten();
    let valueless = selector.filter(|(_, values)| values.is_empty());
    found.extend(
        valueless
            .take(1)
            .map(|(key, _)| Violation::SelectorWithoutValues(key.clone())),
    );
    if let Some(check) = &lb.spec.health_check {
        health_check(listeners, check, found);
    }
}

/// Why a port of a Service with so many ports cannot have this name (section 8.2). The API server would refuse the Service, and the
/// EndpointSlice with all that has changed in it.
fn name_problem(name: &str, ports: usize) -> Option<&'static str> {
    if name.is_empty() {
        return (ports > 1).then_some("each of several listeners needs a name");
    }
    (!is_dns_label(name)).then_some(
        "it must be at most 63 lower case letters, digits and hyphens, with no hyphen at either end",
    )
}

/// WV-2, WV-3 and WV-4 for each listener.
fn unique(listeners: &[Listener], found: &mut Vec<Violation>) {
    let (mut names, mut ports) = (HashSet::new(), HashSet::new());
    let mut backend_ports = HashMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        let name = listener.name.as_deref().unwrap_or_default();
        let protocol = match &*listener.protocol {
            "" => "TCP",
            other => other,
        };
        if !names.insert(name) {
            found.push(Violation::DuplicateName {
                index,
                value: name.to_owned(),
            });
        }
        if !ports.insert((protocol, listener.port)) {
            found.push(Violation::DuplicatePort {
                index,
                protocol: protocol.to_owned(),
                port: listener.port,
            });
        }
        let other = *backend_ports
            .entry((protocol, listener.backend_port))
            .or_insert(index);
        if other != index {
            found.push(Violation::DuplicateBackendPort {
                index,
                other,
                protocol: protocol.to_owned(),
                backend_port: listener.backend_port,
            });
        }
    }
}

/// WV-6 and WV-7. Port 0 turns the health check off.
fn health_check(listeners: &[Listener], check: &HealthCheck, found: &mut Vec<Violation>) {
    let raw = check.port.unwrap_or(0);
    if raw == 0 {
        return;
    }
    let Ok(port) = u16::try_from(raw) else {
        found.push(Violation::CheckPortOutOfRange(raw));
        return;
    };
    let mismatch = check_port(port, listeners);
    if mismatch.is_some() {
        found.extend(mismatch);
        return;
    }
    for (field, value) in [
        ("successThreshold", check.success_threshold),
        ("failureThreshold", check.failure_threshold),
        ("periodSeconds", check.period_seconds),
        ("timeoutSeconds", check.timeout_seconds),
    ] {
        let value = value.unwrap_or(0);
        if value <= 0 {
            found.push(Violation::CheckNumber { field, value });
        }
    }
}

/// WV-6: a health check port that is not the backend port of a TCP listener.
fn check_port(port: u16, listeners: &[Listener]) -> Option<Violation> {
    let tcp = listeners
        .iter()
        .filter(|listener| matches!(&*listener.protocol, "" | "TCP"));
    let backend_ports: BTreeSet<i64> = tcp.map(|listener| listener.backend_port).collect();
    (!backend_ports.contains(&i64::from(port))).then_some(Violation::CheckPortMismatch {
        port,
        backend_ports,
    })
}

/// The violations of an update: changes of immutable fields (WV-8, WV-9). An absent field has its default.
pub fn validate_update(before: &LoadBalancer, after: &LoadBalancer) -> Vec<Violation> {
    let ipam = |lb: &LoadBalancer| match lb.spec.address_source() {
        Ipam::Pool => "pool",
        Ipam::Dhcp => "dhcp",
    };
    let workload = |lb: &LoadBalancer| match lb.spec.workload() {
        WorkloadType::Vm => "vm",
        WorkloadType::Cluster => "cluster",
    };
    [
        ("ipam", ipam(before), ipam(after)),
        ("workloadType", workload(before), workload(after)),
    ]
    .into_iter()
    .filter(|(_, before, after)| before != after)
    .map(|(field, before, after)| Violation::Immutable {
        field,
        before,
        after,
    })
    .collect()
}
