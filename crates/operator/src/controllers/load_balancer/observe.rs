//! Observation of a load balancer: its case, and the copies and verdicts that its plan is decided from. Nothing is written here.

use std::sync::Arc;

use harvester_lb_api::{LoadBalancer, WorkloadType};
use harvester_lb_core::backends::DiscoveredBackends;
use harvester_lb_core::cached::{CachedService, Lb};
use harvester_lb_core::desired;
use harvester_lb_core::kube_vip_annotations::Wanted;
use harvester_lb_core::plan::{Checks, Goal, Objects, View};
use harvester_lb_core::spec::VmSpec;
use harvester_lb_core::unsupported::Unsupported;
use harvester_lb_object::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use tracing::debug;

use crate::context::Context;
use crate::controllers::load_balancer::standing::{self, Standing};

/// The case of an existing load balancer.
pub enum Case<'a> {
    /// It cannot be decoded; its metadata and the error.
    Invalid(&'a ObjectMeta, &'a str),
    /// It has a deletionTimestamp.
    Deleting(&'a LoadBalancer),
    /// This version leaves it alone, for this reason (IPA-9).
    Unsupported(&'a LoadBalancer, Unsupported),
    /// Any other; it is served if its spec is valid.
    Usual(&'a LoadBalancer, Standing),
}

/// Determines the case of a load balancer.
pub fn case<'a>(ctx: &Context, key: &Key, lb: &'a Lb) -> Case<'a> {
    match lb {
        Lb::Invalid(meta, why) => Case::Invalid(meta, why),
        Lb::Valid(lb) if lb.metadata.deletion_timestamp.is_some() => Case::Deleting(lb),
        Lb::Valid(lb) => match ctx.index.stores.unsupported(&lb.metadata) {
            Some(why) => Case::Unsupported(lb, why),
            None => Case::Usual(lb, standing::standing(ctx, key, lb)),
        },
    }
}

/// The stored copies of the objects of a load balancer's name.
pub struct Stored {
    /// The Service, by any owner.
    pub service: Option<Arc<CachedService>>,
    slice: Option<Arc<EndpointSlice>>,
}

impl Stored {
    /// Takes them from the stores.
    pub fn of(ctx: &Context, key: &Key) -> Self {
        Self {
            service: ctx.index.stores.services.get(key),
            slice: ctx.index.stores.slices.get(key),
        }
    }

    /// As the input of a plan.
    pub fn objects<'a>(&'a self, key: &'a Key) -> Objects<'a> {
        Objects {
            key,
            service: self.service.as_deref(),
            slice: self.slice.as_deref(),
        }
    }
}

/// The view of a load balancer with this goal.
pub fn view<'a>(
    ctx: &Context,
    lb: &'a LoadBalancer,
    objects: Objects<'a>,
    goal: &Goal,
) -> View<'a> {
    let key = objects.key;
    // One of cluster type has no Service.
    let annotations = match lb.spec.workload() {
        WorkloadType::Vm => Wanted::of(&lb.metadata, &ctx.index.settings.interfaces),
        WorkloadType::Cluster => Wanted::default(),
    };
    let mut view = View {
        annotations,
        ..View::of(lb, objects)
    };
    match goal {
        Goal::Serve(vm, _) => view.found = selected(ctx, key, vm),
        Goal::Keep(_) => view.found = served(ctx, key, objects.slice),
        Goal::AddressOnly(_) | Goal::Wait(..) => return view,
    }
    let group = key.to_string();
    view.checks = Checks {
        check: ctx.prober.check(&group),
        targets: ctx.prober.group(&group).unwrap_or_default(),
    };
    view.verdict_pause = ctx.slice_throttle.due_in(key, Instant::now());
    view
}

/// The backends that a load balancer selects, without those whose address is refused (BE-1, BE-2, BE-8).
fn selected(ctx: &Context, key: &Key, vm: &VmSpec) -> DiscoveredBackends {
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

/// The backends in an EndpointSlice that are still there, at an address that they may have (BE-6).
fn served(ctx: &Context, key: &Key, slice: Option<&EndpointSlice>) -> DiscoveredBackends {
    let mut found = DiscoveredBackends::default();
    for endpoint in slice.into_iter().flat_map(desired::backends) {
        let name = Key::new(&key.namespace, &endpoint.name);
        let vmi = ctx.index.stores.vmis.get(&name);
        found.retain_endpoint(endpoint, vmi.as_deref());
    }
    found.apply_address_rules(|address| ctx.index.address_verdict(address));
    found
}
