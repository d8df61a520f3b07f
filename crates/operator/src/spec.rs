//! From what a user wrote to types that cannot be wrong. Pure.
//!
//! A load balancer that does not get past this module is refused as a whole and nothing is done about it: no address
//! is taken for it, and what it had before an edit broke it keeps working as it was.

use std::collections::HashSet;
use std::sync::Arc;

use harvester_lb_api::{Ipam, LoadBalancer, WorkloadType, keys};
use harvester_lb_ipam::{Owner, PoolName, Request, Requirement, StatusAddress, Workload};
use harvester_lb_prober::HealthCheck;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::backends::Selector;
use crate::objects::annotation;
use crate::time;

/// A port that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; may be empty if it is the only one.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'static str,
    /// Port at the address.
    pub port: u16,
    /// Port of the backends.
    pub backend_port: u16,
}

/// What a load balancer of VM type serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    /// At least one.
    pub ports: Vec<Port>,
    /// Its backends.
    pub selector: Selector,
    /// Its health check, if it is on.
    pub check: Option<HealthCheck>,
}

impl VmSpec {
    /// Says that the health check's port is the backend port of no TCP listener (WV-6). Such a check is served as it is
    /// (HC-7): the port may well answer, and an object may be older than the rule.
    pub fn check_port_mismatch(&self) -> Option<String> {
        let port = self.check?.port();
        let tcp = self.ports.iter().filter(|p| p.protocol == "TCP");
        let mut backend_ports: Vec<u16> = tcp.map(|p| p.backend_port).collect();
        backend_ports.sort_unstable();
        backend_ports.dedup();
        if backend_ports.binary_search(&port).is_ok() {
            return None;
        }
        let shown: Vec<String> = backend_ports.iter().take(8).map(u16::to_string).collect();
        let rest = match backend_ports.len().saturating_sub(shown.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let theirs = if shown.is_empty() {
            "there is no TCP listener".to_owned()
        } else {
            format!("the TCP listeners have {}{rest}", shown.join(", "))
        };
        Some(format!(
            "spec.healthCheck.port {port} is not the backendPort of a TCP listener: {theirs}; the health check uses {port}"
        ))
    }
}

/// Where the address comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// An IPPool; what the ledger needs to know.
    Pool(Box<Request>),
    /// DHCP, done by kube-vip (OPS-3).
    Dhcp,
}

/// A load balancer that can be served.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Where its address comes from.
    pub source: Source,
    /// What is served here; `None` for cluster type, whose guest serves by itself (REC-1).
    pub vm: Option<VmSpec>,
}

/// Why a load balancer cannot be served as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// BE-1.
    #[error(
        "spec.backendServerSelector[{0:?}] has no values: give it at least one, or remove the key"
    )]
    SelectorWithoutValues(String),
    /// WV-1.
    #[error("spec.listeners is empty: a load balancer of workload type vm needs at least one")]
    NoListener,
    /// WV-5.
    #[error("spec.listeners[{index}].{field} is {value}: it must be 1 to 65535")]
    PortOutOfRange {
        /// Which listener.
        index: usize,
        /// Which of its ports.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// What a Service can carry.
    #[error("spec.listeners[{index}].protocol is {value:?}: it must be TCP, UDP or SCTP")]
    UnknownProtocol {
        /// Which listener.
        index: usize,
        /// The value.
        value: String,
    },
    /// WV-2.
    #[error("spec.listeners[{index}].name is {value:?}, as another listener's: names must differ")]
    NameTwice {
        /// Which listener.
        index: usize,
        /// The value.
        value: String,
    },
    /// WV-3.
    #[error("spec.listeners[{index}] serves {protocol} {port}, as another listener does")]
    PortTwice {
        /// Which listener.
        index: usize,
        /// Its protocol.
        protocol: &'static str,
        /// Its port.
        port: u16,
    },
    /// 8.5.
    #[error("spec.healthCheck.port is {0}: it must be 0 (off) to 65535")]
    CheckPortOutOfRange(i64),
}

impl SpecError {
    /// The condition's reason (section 9).
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::SelectorWithoutValues(_) => "InvalidSelector",
            Self::CheckPortOutOfRange(_) => "InvalidHealthCheck",
            _ => "InvalidListener",
        }
    }
}

/// Checks a load balancer.
pub fn check(lb: &LoadBalancer) -> Result<Checked, SpecError> {
    let vm = match lb.spec.workload() {
        WorkloadType::Cluster => None,
        WorkloadType::Vm => Some(vm_spec(lb)?),
    };
    let source = match lb.spec.address_source() {
        Ipam::Dhcp => Source::Dhcp,
        Ipam::Pool => Source::Pool(Box::new(request(lb))),
    };
    Ok(Checked { source, vm })
}

/// What the ledger needs to know of a load balancer that takes its address from a pool.
pub fn request(lb: &LoadBalancer) -> Request {
    let meta = &lb.metadata;
    let spec = &lb.spec;
    let allocated = lb
        .status
        .as_ref()
        .and_then(|s| s.allocated_address.as_ref());
    Request {
        owner: owner(meta),
        created: time::created(meta),
        pool: pool_name(spec.ip_pool.as_deref()),
        requirement: requirement(meta),
        workload: match spec.workload() {
            WorkloadType::Vm => Workload::Vm,
            WorkloadType::Cluster => Workload::Cluster,
        },
        status: allocated.and_then(|a| {
            let addr = harvester_lb_ipam::addr::parse(a.ip.as_deref()?)?;
            // 0.0.0.0 stands for DHCP and is nobody's address.
            (!addr.is_unspecified()).then(|| StatusAddress {
                pool: pool_name(a.ip_pool.as_deref()),
                addr,
            })
        }),
    }
}

/// Who a load balancer is in the ledger.
pub fn owner(meta: &ObjectMeta) -> Owner {
    Owner::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default(),
    )
}

fn pool_name(name: Option<&str>) -> Option<PoolName> {
    name.filter(|n| !n.is_empty()).map(Arc::from)
}

/// The requirement of section 5.
fn requirement(meta: &ObjectMeta) -> Requirement {
    let value = |key| annotation(meta, key).unwrap_or_default().to_owned();
    let namespace = match annotation(meta, keys::ANNOTATION_NAMESPACE) {
        Some(namespace) if !namespace.is_empty() => namespace.to_owned(),
        _ => meta.namespace.clone().unwrap_or_default(),
    };
    Requirement {
        network: value(keys::ANNOTATION_NETWORK),
        project: value(keys::ANNOTATION_PROJECT),
        namespace,
        cluster: value(keys::ANNOTATION_CLUSTER),
    }
}

fn vm_spec(lb: &LoadBalancer) -> Result<VmSpec, SpecError> {
    let spec = &lb.spec;
    let listeners = spec.listeners.as_deref().unwrap_or_default();
    if listeners.is_empty() {
        return Err(SpecError::NoListener);
    }
    let mut names = HashSet::new();
    let mut served = HashSet::new();
    let mut ports = Vec::with_capacity(listeners.len());
    for (index, listener) in listeners.iter().enumerate() {
        let number = |field, value: i64| {
            u16::try_from(value)
                .ok()
                .filter(|p| *p != 0)
                .ok_or(SpecError::PortOutOfRange {
                    index,
                    field,
                    value,
                })
        };
        let port = Port {
            name: listener.name.clone().unwrap_or_default(),
            protocol: protocol(&listener.protocol).ok_or_else(|| SpecError::UnknownProtocol {
                index,
                value: listener.protocol.clone(),
            })?,
            port: number("port", listener.port)?,
            backend_port: number("backendPort", listener.backend_port)?,
        };
        if !names.insert(port.name.clone()) {
            return Err(SpecError::NameTwice {
                index,
                value: port.name,
            });
        }
        if !served.insert((port.protocol, port.port)) {
            return Err(SpecError::PortTwice {
                index,
                protocol: port.protocol,
                port: port.port,
            });
        }
        ports.push(port);
    }
    let selector = Selector::new(spec.backend_server_selector.as_ref())
        .map_err(SpecError::SelectorWithoutValues)?;
    Ok(VmSpec {
        ports,
        selector,
        check: health_check(lb)?,
    })
}

/// The health check of a load balancer; `None` if it is off.
pub fn health_check(lb: &LoadBalancer) -> Result<Option<HealthCheck>, SpecError> {
    let Some(c) = &lb.spec.health_check else {
        return Ok(None);
    };
    HealthCheck::new(
        c.port,
        c.success_threshold,
        c.failure_threshold,
        c.period_seconds,
        c.timeout_seconds,
    )
    .map_err(|e| SpecError::CheckPortOutOfRange(e.0))
}

fn protocol(text: &str) -> Option<&'static str> {
    ["TCP", "UDP", "SCTP"]
        .into_iter()
        .find(|p| *p == text)
        .or_else(|| text.is_empty().then_some("TCP"))
}

#[cfg(test)]
mod tests;
