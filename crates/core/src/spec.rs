//! From what a user wrote to types that cannot be wrong. Pure. What may be written is said in [`validation`].
//!
//! A load balancer that does not get past this module is refused as a whole and nothing is done about it: no address
//! is taken for it, and what it had before an edit broke it keeps working as it was.

use std::fmt;
use std::sync::Arc;

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{Ipam, LoadBalancer, WorkloadType, keys};
use harvester_lb_ipam::{Owner, PoolName, Request, Requirement, StatusAddress, Workload};
use harvester_lb_prober::HealthCheck;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::backends::Selector;
use crate::time;
use crate::validation::{self, Consumer, Severity, Violation};

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
    /// Says that the port of the health check is the backend port of no TCP listener (WV-6). It is served as it is (HC-7):
    /// the port may well answer.
    pub mismatch: Option<Violation>,
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

/// Why a load balancer cannot be served as it is: the violations that stand in the way, at least one, in the order of the
/// rules (VAL-1). As a text the first leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    first: Violation,
    further: Vec<Violation>,
}

impl Refusal {
    /// Violations besides the first that the text names; a user corrects them one after the other anyway.
    const SHOWN: usize = 3;

    /// The refusal by what was found, if anything of that stands in the way.
    fn by(violations: Vec<Violation>) -> Option<Self> {
        let mut refused = violations
            .into_iter()
            .filter(|v| v.severity(Consumer::Operator) == Severity::Refuse);
        Some(Self {
            first: refused.next()?,
            further: refused.collect(),
        })
    }

    /// The violation that leads.
    pub const fn first(&self) -> &Violation {
        &self.first
    }

    /// The condition's reason (section 9).
    pub const fn reason(&self) -> &'static str {
        match self.first {
            Violation::SelectorWithoutValues(_) => "InvalidSelector",
            Violation::CheckPortOutOfRange(_) => "InvalidHealthCheck",
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

/// Checks a load balancer.
///
/// # Errors
/// Something in it keeps it from being served.
pub fn check(lb: &LoadBalancer) -> Result<Checked, Refusal> {
    let violations = validation::validate(lb);
    let mismatch = violations
        .iter()
        .find(|v| matches!(v, Violation::CheckPortMismatch { .. }))
        .cloned();
    if let Some(refusal) = Refusal::by(violations) {
        return Err(refusal);
    }
    let vm = match lb.spec.workload() {
        WorkloadType::Cluster => None,
        WorkloadType::Vm => Some(vm_spec(lb, mismatch)?),
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

/// Reads what has passed validation.
fn vm_spec(lb: &LoadBalancer, mismatch: Option<Violation>) -> Result<VmSpec, Violation> {
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
        mismatch,
    })
}

/// The health check of a load balancer; `None` if it is off.
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
