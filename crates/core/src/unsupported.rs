//! Objects of later versions that this version cannot read (IPA-9): the record of a DHCP lease. One that somebody has edited, so that it
//! cannot be read or names another load balancer, counts as one. This module alone decides which load balancers the operator leaves
//! alone because of them.
//!
//! The decision depends on the objects only, so every process decides alike. Of such a load balancer nothing is created,
//! changed or released, except the readiness of its endpoints and its conditions (decision 0011).

use std::fmt;

use harvester_lb_ipam::Uid;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::Allocation;
use crate::dhcp::record;
use crate::spec;

/// Why this version leaves a load balancer alone (IPA-9): its lease cannot be read, or names another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The name of the IPAllocation.
    record: String,
    /// What is wrong with it.
    why: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, why } = self;
        write!(
            f,
            "the lease in IPAllocation {record} cannot be read: {why}; nothing of the load balancer is created, changed or released"
        )
    }
}

/// The name of the IPAllocation on which it depends whether a load balancer is left alone.
pub fn record_of(meta: &ObjectMeta) -> String {
    record::name(&Uid::new(meta.uid.as_deref().unwrap_or_default()))
}

/// Why this version leaves a load balancer, existing or just deleted, alone; `None` if it does not. `stored`: the IPAllocation of the
/// name [`record_of`].
pub fn of_lb(meta: &ObjectMeta, stored: Option<&Allocation>) -> Option<Unsupported> {
    let why = match stored? {
        Allocation::UnreadableLease(why) => why.clone(),
        Allocation::Lease(record) => record.spec.check_owner(&spec::owner(meta)).err()?,
        _ => return None,
    };
    let record = record_of(meta);
    Some(Unsupported { record, why })
}

#[cfg(test)]
mod tests;
