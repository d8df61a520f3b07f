//! Parsing of a LoadBalancer spec into checked types. Pure. The rules are in [`validation`].
//!
//! A load balancer that does not pass is refused as a whole: it gets no new address, and the address, Service and
//! EndpointSlice that it had before the edit stay (ALC-10, BE-6).

use std::fmt;
use std::sync::Arc;

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{Ipam, LoadBalancer, WorkloadType, keys};
use harvester_lb_ipam::{Owner, PoolName, Request, Requirement, StatusAddress, Workload};
use harvester_lb_prober::HealthCheck;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::backends::Selector;
use crate::reasons::{API_ERROR, INVALID_HARDWARE_ADDRESS, INVALID_REQUESTED_ADDRESS};
use crate::sharing::told::was_of_another;
use crate::spec_annotations::{RequestedAddress, requested_address};
use crate::time;
use crate::validation::{self, Consumer, Severity, Violation};

/// A checked listener (WV-2, WV-3, WV-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; may be empty if it is the only listener.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'static str,
    /// Port of the Service, 1 to 65535.
    pub port: u16,
    /// Port of the backends, 1 to 65535. Several listeners may share one (WV-4).
    pub backend_port: u16,
}

/// The checked spec of a load balancer of VM type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    /// Its listeners in the order of the spec; at least one (WV-1).
    pub ports: Vec<Port>,
    /// The selector of its backends (BE-1).
    pub selector: Selector,
    /// Its health check; `None` if it is off (section 8.5).
    pub check: Option<HealthCheck>,
    /// Set if the port of the health check is not the backend port of a TCP listener (WV-6). The load balancer is served
    /// as it is (HC-7), because that port may answer.
    pub mismatch: Option<Violation>,
    /// Set if a Service of its own cannot have the names of its ports (section 8.2). One that is shared has other names (SHR-3).
    pub unusable_name: Option<Violation>,
}

/// The source of a load balancer's address, `spec.ipam`.
#[derive(Clone, Debug)]
pub enum Source {
    /// An IPPool; the request to the ledger.
    Pool(Box<Request>),
    /// DHCP by kube-vip (OPS-3).
    Dhcp,
}

/// A load balancer that passed validation.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The source of its address.
    pub source: Source,
    /// The spec of VM type; `None` for cluster type, which gets an address only (REC-1).
    pub vm: Option<VmSpec>,
}

/// Why a load balancer cannot be served: at least one violation that the operator refuses, in the order of the rules
/// (VAL-1). The text starts with the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    first: Violation,
    further: Vec<Violation>,
}

impl Refusal {
    /// Number of violations besides the first in the text. Users correct them one by one anyway.
    const SHOWN: usize = 3;

    /// The refusal, if the operator refuses any of these violations.
    fn by(violations: Vec<Violation>) -> Option<Self> {
        let mut refused = violations
            .into_iter()
            .filter(|v| v.severity(Consumer::Operator) == Severity::Refuse);
        Some(Self {
            first: refused.next()?,
            further: refused.collect(),
        })
    }

    /// The first violation in the order of the rules.
    pub const fn first(&self) -> &Violation {
        &self.first
    }

    /// The reason of the condition `Ready`, from the first violation (section 9).
    pub const fn reason(&self) -> &'static str {
        match self.first {
            Violation::SelectorWithoutValues(_) => "InvalidSelector",
            Violation::CheckPortOutOfRange(_) => "InvalidHealthCheck",
            Violation::RequestedAddress { .. } => INVALID_REQUESTED_ADDRESS,
            Violation::HardwareAddress { .. } => INVALID_HARDWARE_ADDRESS,
            Violation::UnusableName { .. } => API_ERROR,
            _ => "InvalidListener",
        }
    }
}

impl From<Violation> for Refusal {
    fn from(first: Violation) -> Self {
        Self {
            first,
            further: Vec::new(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        for violation in self.further.iter().take(Self::SHOWN) {
            write!(f, "; {violation}")?;
        }
        match self.further.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Validates and parses a load balancer (VAL-1).
///
/// # Errors
/// The violations that the operator refuses.
pub fn check(lb: &LoadBalancer) -> Result<Checked, Refusal> {
    let violations = validation::validate(lb);
    let find = |is_it: fn(&Violation) -> bool| violations.iter().find(|v| is_it(v)).cloned();
    let mismatch = find(|v| matches!(v, Violation::CheckPortMismatch { .. }));
    let unusable_name = find(|v| matches!(v, Violation::UnusableName { .. }));
    if let Some(refusal) = Refusal::by(violations) {
        return Err(refusal);
    }
    let vm = match lb.spec.workload() {
        WorkloadType::Cluster => None,
        WorkloadType::Vm => Some(VmSpec {
            mismatch,
            unusable_name,
            ..vm_spec(lb)?
        }),
    };
    let source = match lb.spec.address_source() {
        Ipam::Dhcp => Source::Dhcp,
        Ipam::Pool => Source::Pool(Box::new(request(lb))),
    };
    Ok(Checked { source, vm })
}

/// The request of a load balancer to the ledger (section 5, ALC-7). `spec.ipam` is not looked at.
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
        // An address that was shared is another one's (SHR-3).
        status: allocated.filter(|_| !was_of_another(lb)).and_then(|a| {
            let addr = harvester_lb_ipam::addr::parse(a.ip.as_deref()?)?;
            // 0.0.0.0 stands for DHCP.
            (!addr.is_unspecified()).then(|| StatusAddress {
                pool: pool_name(a.ip_pool.as_deref()),
                addr,
            })
        }),
        requested: match requested_address(meta) {
            RequestedAddress::Of(addr) => Some(addr),
            RequestedAddress::None | RequestedAddress::Invalid(_) => None,
        },
    }
}

/// The owner that IPAllocations of a load balancer name: namespace, name and uid.
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

/// The requirement for the selection of a pool (section 5).
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

/// Parses a validated spec of VM type.
fn vm_spec(lb: &LoadBalancer) -> Result<VmSpec, Violation> {
    let spec = &lb.spec;
    let listeners = spec.listeners.as_deref().unwrap_or_default();
    let ports = listeners.iter().enumerate().map(|(index, listener)| {
        Ok(Port {
            name: listener.name.clone().unwrap_or_default(),
            protocol: validation::protocol(index, &listener.protocol)?,
            port: validation::port(index, "port", listener.port)?,
            backend_port: validation::port(index, "backendPort", listener.backend_port)?,
        })
    });
    let selector = Selector::new(spec.backend_server_selector.as_ref())
        .map_err(Violation::SelectorWithoutValues)?;
    Ok(VmSpec {
        ports: ports.collect::<Result<_, Violation>>()?,
        selector,
        check: health_check(lb)?,
        mismatch: None,
        unusable_name: None,
    })
}

/// The health check of a load balancer with the defaults filled in (WV-7); `None` if it is off: absent, or port 0.
///
/// # Errors
/// [`Violation::CheckPortOutOfRange`]: its port is not 0 to 65535.
pub fn health_check(lb: &LoadBalancer) -> Result<Option<HealthCheck>, Violation> {
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
    .map_err(|e| Violation::CheckPortOutOfRange(e.0))
}

#[cfg(test)]
mod tests;
