//! What is known of a load balancer before anything is decided about it: which kind of case it is, and the virtual machines
//! behind it. Nothing is written here.

use harvester_lb_api::LoadBalancer;
use harvester_lb_core::backends::Found;
use harvester_lb_core::cached::Lb;
use harvester_lb_core::spec::VmSpec;
use harvester_lb_core::unsupported::Unsupported;
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tracing::debug;

use crate::context::Context;

/// Which case a load balancer that exists is.
pub enum Observed<'a> {
    /// It cannot be decoded, for this reason.
    Invalid(&'a ObjectMeta, &'a str),
    /// It is being deleted.
    Deleting(&'a LoadBalancer),
    /// It is not this version's to touch (IPA-9).
    Unsupported(&'a LoadBalancer, Unsupported),
    /// It is to be served, if its spec can be.
    Usual(&'a LoadBalancer),
}

/// Tells the cases apart.
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

/// The virtual machines behind a load balancer, less those whose address is refused (BE-1, BE-2, BE-8).
pub fn find_backends(ctx: &Context, key: &Key, vm: &VmSpec) -> Found {
    let mut found = Found::default();
    let vmis = &ctx.index.stores.vmis;
    vmis.visit_namespace(&key.namespace, |name, vmi| {
        found.look_at(&vm.selector, name, vmi);
    });
    found.judge(|address| ctx.index.standing(address));
    for refused in &found.refused {
        // Whose address it is goes to the log alone; the tenant's condition does not name another's object.
        debug!(lb = %key, vmi = %refused.name, address = %refused.address, why = ?refused.why, "an address is not usable as a backend's");
    }
    found
}
