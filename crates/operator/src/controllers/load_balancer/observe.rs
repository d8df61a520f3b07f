//! Observation of a load balancer: its case and its backends. Nothing is written here.

use harvester_lb_api::LoadBalancer;
use harvester_lb_core::backends::DiscoveredBackends;
use harvester_lb_core::cached::Lb;
use harvester_lb_core::spec::VmSpec;
use harvester_lb_core::unsupported::Unsupported;
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tracing::debug;

use crate::context::Context;

/// The case of an existing load balancer.
pub enum Observed<'a> {
    /// It cannot be decoded; its metadata and the error.
    Invalid(&'a ObjectMeta, &'a str),
    /// It has a deletionTimestamp.
    Deleting(&'a LoadBalancer),
    /// This version leaves it alone, for this reason (IPA-9).
    Unsupported(&'a LoadBalancer, Unsupported),
    /// Any other; it is served if its spec is valid.
    Usual(&'a LoadBalancer),
}

/// Determines the case of a load balancer.
pub fn observe<'a>(ctx: &Context, key: &Key, lb: &'a Lb) -> Observed<'a> {
    match lb {
        Lb::Invalid(meta, why) => Observed::Invalid(meta, why),
        Lb::Valid(lb) if lb.metadata.deletion_timestamp.is_some() => Observed::Deleting(lb),
        Lb::Valid(lb) => match ctx.index.unsupported(key, &lb.metadata) {
            Some(why) => Observed::Unsupported(lb, why),
            None => Observed::Usual(lb),
        },
    }
}

/// Discovers the backends of a load balancer, without those whose address is refused (BE-1, BE-2, BE-8).
pub fn find_backends(ctx: &Context, key: &Key, vm: &VmSpec) -> DiscoveredBackends {
    let mut found = DiscoveredBackends::default();
    let vmis = &ctx.index.stores.vmis;
    vmis.visit_namespace(&key.namespace, |name, vmi| {
        found.add_if_selected(&vm.selector, name, vmi);
    });
    found.apply_address_rules(|address| ctx.index.address_verdict(address));
    for refused in &found.refused {
        // Only the log names the holder; the tenant's condition must not name another tenant's object.
        debug!(lb = %key, vmi = %refused.name, address = %refused.address, why = ?refused.why, "backend address refused");
    }
    found
}
