//! VM type with an address: the status commits it, then the EndpointSlice, then the Service has it, so that no address is
//! announced without endpoints (IPA-6, REC-3).

use harvester_lb_api::LoadBalancer;

use crate::desired::{self, Ownership};
use crate::merge_patch::difference;
use crate::plan::goal::Address;
use crate::plan::health::{CheckSource, Health, Paced};
use crate::plan::outline::{OnFailure, Plan};
use crate::plan::report::{self, Report};
use crate::plan::step::{Guard, Guarded, Kind, Next, Step, Write};
use crate::plan::take_down;
use crate::plan::view::View;
use crate::spec::VmSpec;

/// The plan of a load balancer of VM type with this address.
pub(super) fn plan<'a>(view: &View<'_>, vm: &'a VmSpec, address: &'a Address) -> Plan<'a> {
    let mut plan = match view.objects.service_owner() {
        Some(Ownership::Foreign) => take_down::name_taken(view, vm, address, Kind::Service),
        // IPA-9: found at the beginning of the next look.
        Some(Ownership::Shared) => look_again(format!(
            "Service {} belongs to several load balancers",
            view.objects.key
        )),
        Some(Ownership::Ours) | None if view.has_foreign_slice => {
            take_down::name_taken(view, vm, address, Kind::EndpointSlice)
        }
        Some(Ownership::Ours) | None => own_objects(view, vm, address),
    };
    if !commits(view.lb, address) {
        let update = report::commitment(view, vm, address);
        plan.steps.insert(0, Step::Commit(Box::new(update)).into());
    }
    plan.extra_records.clone_from(&address.extra_records);
    plan
}

/// Whether the status names the address already. Mask and gateway commit nothing: if only they change, the last status write
/// carries them (ALC-9).
fn commits(lb: &LoadBalancer, address: &Address) -> bool {
    let before = lb.status.as_ref();
    let before = before.and_then(|s| s.allocated_address.as_ref());
    before.and_then(|a| a.ip.as_ref()) == address.allocated.ip.as_ref()
}

fn look_again<'a>(why: String) -> Plan<'a> {
    Plan::new(Vec::new(), OnFailure::Stop, Report::None(Next::Again(why)))
}

/// Health checks, EndpointSlice, Service.
fn own_objects<'a>(view: &View<'_>, vm: &'a VmSpec, address: &'a Address) -> Plan<'a> {
    let health = Health::of(view, CheckSource::from(vm.check));
    let build =
        |backends: &[_]| desired::endpoint_slice(view.lb, view.objects.slice, &vm.ports, backends);
    let paced = Paced::of(view, &health, vm.check.is_some(), build);
    let verdicts = report::verdicts(&health, &paced);
    let postponed = paced.postponed;
    let report = Report::Served {
        vm,
        address,
        served: health.served(paced.backends.clone()),
    };

    let mut steps = vec![Step::HealthChecks(health.probes).into()];
    steps.extend(slice_steps(view, vm, paced));
    // The other fields of one that cannot be decoded are unknown and must not be overwritten.
    if !view.objects.is_service_undecodable() {
        steps.extend(service_step(view, vm, address));
    }
    Plan {
        verdicts,
        postponed,
        ..Plan::new(steps, OnFailure::ReportRefusal, report)
    }
}

/// Creates or patches the EndpointSlice.
fn slice_steps(view: &View<'_>, vm: &VmSpec, paced: Paced) -> Vec<Guarded> {
    let create = |slice| guarded(Step::Slice(Write::Create(Box::new(slice))));
    match (view.objects.slice, paced.patch) {
        (None, _) => vec![create(paced.slice)],
        (Some(_), None) => Vec::new(),
        // The field is immutable.
        (Some(present), Some(_)) if present.address_type != paced.slice.address_type => {
            let delete = Step::Slice(Write::Delete(present.metadata.clone()));
            let new = desired::endpoint_slice(view.lb, None, &vm.ports, &paced.backends);
            vec![guarded(delete), create(new)]
        }
        (Some(present), Some(patch)) => {
            let from = present.metadata.clone();
            vec![guarded(Step::Slice(Write::Patch(from, patch)))]
        }
    }
}

/// Creates or patches the Service, or deletes it if it is to be recreated.
fn service_step(view: &View<'_>, vm: &VmSpec, address: &Address) -> Option<Guarded> {
    let present = view.objects.service.map(|service| &**service);
    if view.recreate_in.is_some_and(|left| left.is_zero())
        && let Some(from) = view.objects.deletable_service()
    {
        return Some(Step::Service(Write::Delete(from.clone())).into());
    }
    let wanted = desired::service(view.lb, present, &vm.ports, &address.load_balancer_ip);
    let write = match present {
        None => Write::Create(Box::new(wanted)),
        Some(present) => Write::Patch(present.metadata.clone(), difference(present, &wanted)?),
    };
    Some(guarded(Step::Service(write)))
}

/// A step that acts on what the load balancer's copy says.
fn guarded(step: Step) -> Guarded {
    Guarded {
        guards: vec![Guard::CaughtUp],
        step,
    }
}
