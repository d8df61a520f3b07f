//! Features of later versions that this version lacks (IPA-9): built-in DHCP leases.
//! This module alone decides which objects the operator leaves alone because of them.
//!
//! The decision depends on the objects only, so every process decides alike. Of such a load balancer nothing is created,
//! changed or released, except the readiness of its endpoints and its conditions (decision 0011).

use std::collections::BTreeSet;
use std::fmt;

use harvester_lb_api::keys;
use harvester_lb_api::meta::annotation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Annotations of a load balancer that request a missing feature, with any value. Those of kube-vip (KVA-1) are not among
/// them: they are ignored, and the load balancer is served.
const OF_LOAD_BALANCERS: [&str; 1] = [keys::ANNOTATION_DHCP_HARDWARE_ADDRESS];

/// Why this version leaves a load balancer alone (IPA-9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// It has this annotation: key and value.
    Annotation(&'static str, String),
    /// It has a DHCP lease: the name of the IPAllocation.
    Lease(String),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key, value) => write!(
                f,
                "this version does not support the annotation {key} (its value is {value:?})"
            ),
            Self::Lease(record) => write!(
                f,
                "this version does not support the lease of IPAllocation {record}"
            ),
        }?;
        f.write_str("; nothing of the load balancer is created, changed or released")
    }
}

/// Index of the objects that use a missing feature (IPA-9), updated from the watches. Empty on most clusters.
#[derive(Debug, Default)]
pub struct Index {
    /// Uids of load balancers with a DHCP lease.
    leases: BTreeSet<String>,
}

impl Index {
    /// Updates whether the IPAllocation of this name exists. Returns the uid of the affected load balancer, if it is a new or
    /// deleted DHCP lease.
    pub fn set_record<'a>(&mut self, name: &'a str, present: bool) -> Option<&'a str> {
        let uid = name.strip_prefix(keys::LEASE_RECORD_PREFIX)?;
        let news = if present {
            self.leases.insert(uid.to_owned())
        } else {
            self.leases.remove(uid)
        };
        news.then_some(uid)
    }

    /// Why this version leaves a load balancer, existing or just deleted, alone; `None` if it does not (IPA-9).
    pub fn of_lb(&self, meta: &ObjectMeta) -> Option<Unsupported> {
        let asked = OF_LOAD_BALANCERS
            .iter()
            .find_map(|name| annotation(meta, name).map(|value| (*name, value.to_owned())));
        if let Some((name, value)) = asked {
            return Some(Unsupported::Annotation(name, value));
        }
        let uid = meta.uid.as_deref().unwrap_or_default();
        self.leases
            .contains(uid)
            .then(|| Unsupported::Lease(format!("{}{uid}", keys::LEASE_RECORD_PREFIX)))
    }
}

#[cfg(test)]
mod tests;
