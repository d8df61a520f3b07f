//! VM type with an address: the status commits it, then the EndpointSlice, then the Service has it, so that no address is
//! announced without endpoints (IPA-6, REC-3).

use std::net::IpAddr;

use harvester_lb_api::{LoadBalancer, keys, meta};
use harvester_lb_ipam::{Phase, addr};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use crate::cached;
use crate::desired::{ADDRESS_TYPE, DesiredPort, Ownership};
use crate::kube_vip_annotations::Source;
use crate::plan::goal::{Address, Origin};
use crate::plan::health::{CheckSource, Health, Paced};
use crate::plan::keep;
use crate::plan::outline::{OnFailure, Plan, ServiceOf};
use crate::plan::report::{self, Report};
use crate::plan::share::{self, Layout, OfService};
use crate::plan::step::{Guard, Guarded, Kind, Next, SeenLease, Step, Write};
use crate::plan::take_down;
use crate::plan::view::{Sharing, View};
use crate::sharing::next_write::{Fields, NextWrite, Wanted};
use crate::sharing::refusals::Change;
use crate::spec::VmSpec;

/// The plan of a load balancer of VM type with this address.
pub(super) fn plan<'a>(view: &View<'_>, vm: &'a VmSpec, address: &'a Address) -> Plan<'a> {
    let owner = view.objects.service_owner();
    let secondary = match &view.sharing {
        Sharing::Secondary(secondary) => Some(secondary),
        Sharing::Alone | Sharing::Primary(_) => None,
    };
    let mut plan = match (owner, secondary) {
        (_, Some(with)) if with.is_name_taken => {
            take_down::group_name_taken(view, vm, address, with.group)
        }
        (Some(Ownership::Ours), Some(with)) => return share::leave_own_service(view, vm, with),
        (Some(Ownership::Foreign), None) => take_down::name_taken(view, vm, address, Kind::Service),
        _ if view.has_foreign_slice => {
            take_down::name_taken(view, vm, address, Kind::EndpointSlice)
        }
        _ => own_objects(view, vm, address),
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

/// Health checks, EndpointSlice, Service.
fn own_objects<'a>(view: &View<'_>, vm: &'a VmSpec, address: &'a Address) -> Plan<'a> {
    if let Some(present) = view
        .objects
        .slice
        .filter(|it| it.address_type != ADDRESS_TYPE)
    {
        return remake_slice(view, present);
    }
    if let Some(contested) = share::contested(view, vm, address) {
        return contested;
    }
    if let Some(ends) = end_other_address(view, vm, address) {
        return ends;
    }
    let layout = Layout::of(view, vm);
    let health = Health::of(view, CheckSource::from(vm.check));
    let build = |backends: &[_]| layout.slice(view, backends);
    let paced = Paced::of(view, &health, vm.check.is_some(), build);
    let verdicts = report::verdicts(&health, &paced);
    let mut steps = vec![Step::HealthChecks(health.probes.clone()).into()];
    let is_committed = commits(view.lb, address);
    steps.extend(slice_step(view, paced.slice, paced.patch, is_committed));
    let write =
        |owners: &[_], ports: &[_], fields| service_step(view, (owners, ports), address, fields);
    let (mut changes, mut refused) = (None, None);
    // The other fields of one that cannot be decoded are unknown and must not be overwritten.
    let service = match (&layout.service, &view.sharing) {
        (OfService::Group, _) => ServiceOf::Group,
        _ if view.objects.is_service_undecodable() => ServiceOf::None,
        (OfService::Own(part, ports), Sharing::Primary(with)) => {
            let fields = fields(view, address);
            let wanted = Wanted {
                primary: Some((part, &**ports)),
                others: &with.others,
                present: view.objects.service.map(|it| &**it),
                fields: fields.as_deref(),
            };
            let next = wanted.next_write(write);
            let tried: &[Change] = match &next {
                NextWrite::Some(_, its) => its,
                NextWrite::Settled(_) | NextWrite::Wait => &[],
            };
            refused = wanted.refused_of_primary(tried);
            match next {
                NextWrite::Some(step, its) => {
                    steps.push(step);
                    changes = Some(its);
                }
                NextWrite::Settled(pending) => changes = Some(pending),
                NextWrite::Wait => {}
            }
            ServiceOf::Own
        }
        (OfService::Own(part, ports), _) => {
            steps.extend(write(&[part.owner()], ports, Fields::Desired));
            ServiceOf::Own
        }
    };
    let report = Report::Served {
        vm,
        address,
        served: health.served(paced.backends),
        refused,
    };
    Plan {
        verdicts,
        service,
        changes,
        postponed: [paced.postponed, layout.again_in]
            .into_iter()
            .flatten()
            .min(),
        ..Plan::new(steps, OnFailure::ReportRefusal, report)
    }
}

/// DHC-3, DHC-6: a Service with another address than that of the lease, or with a leased one that kube-vip's client is to follow, goes,
/// and is made anew by the event of that. The address may be somebody else's by now, so kube-vip is not left to find out about a change.
/// `None` if there is none.
fn end_other_address<'a>(view: &View<'_>, vm: &VmSpec, address: &Address) -> Option<Plan<'a>> {
    let present = view.objects.service?;
    let asked = cached::asked_address(present);
    let (lease, is_wrong) = match &address.origin {
        Origin::Pool => return None,
        Origin::Lease(lease) => (lease, asked != Some(&*address.load_balancer_ip)),
        Origin::KubeVip { seen, .. } => {
            let lease = seen.as_ref()?;
            let asked = asked.and_then(addr::parse);
            let is_leased = |ip| is_leased(present, address, lease, ip);
            (lease, asked.is_some_and(is_leased))
        }
    };
    if !is_wrong {
        return None;
    }
    let Some(from) = view.objects.deletable_service() else {
        let is_in_deletion = present.metadata.deletion_timestamp.is_some();
        // A finalizer holds it: it must not become one of another address.
        return is_in_deletion.then(|| keep::while_service_goes(view, vm));
    };
    let delete = Guarded {
        guards: vec![Guard::CaughtUp, Guard::LeaseUnchanged(lease.clone())],
        step: Step::Service(Write::Delete(from.clone())),
    };
    let report = Report::None(Next::Resync);
    Some(Plan::new(vec![delete], OnFailure::Stop, report))
}

/// Whether the DHCP process has leased the address for which this Service asks, although kube-vip's client is to work for it now. Its record
/// may be gone; what a pool has is not leased, and kube-vip's own Service, which somebody has edited, keeps its lease (OPS-3).
fn is_leased(present: &Service, address: &Address, lease: &SeenLease, ip: IpAddr) -> bool {
    let mut of_pools = address.extra_records.iter();
    let is_of_pool = of_pools.any(|it| it.spec.addr == ip && it.spec.phase == Phase::Bound);
    let has = |key| meta::annotation(&present.metadata, key).is_some();
    let is_kube_vips =
        has(keys::ANNOTATION_KUBE_VIP_REQUESTED_IP) || has(keys::ANNOTATION_KUBE_VIP_HARDWARE);
    let may_be_leased = lease.version.is_some() || !is_kube_vips;
    !ip.is_unspecified() && !is_of_pool && may_be_leased
}

/// Deletes an EndpointSlice of another address type, since the field is immutable. The event of the deletion brings the load
/// balancer back.
fn remake_slice<'a>(view: &View<'_>, present: &EndpointSlice) -> Plan<'a> {
    let is_in_deletion = present.metadata.deletion_timestamp.is_some();
    let delete = Step::Slice(Write::Delete(present.metadata.clone()));
    let (steps, next) = if is_in_deletion {
        (Vec::new(), Next::Resync)
    } else {
        let key = view.objects.key;
        let why = format!("EndpointSlice {key} had a wrong address type");
        (vec![guarded(delete)], Next::Again(why))
    };
    Plan::new(steps, OnFailure::Stop, Report::None(next))
}

/// Creates or patches the EndpointSlice. `is_committed`: the status names the address already, so that no write of it comes first.
fn slice_step(
    view: &View<'_>,
    wanted: EndpointSlice,
    patch: Option<Value>,
    is_committed: bool,
) -> Option<Guarded> {
    let offer = share::offer(view, &wanted);
    let write = match view.objects.slice {
        None => Write::Create(Box::new(wanted)),
        Some(present) => Write::Patch(present.metadata.clone(), patch?),
    };
    let mut step = guarded(Step::Slice(write));
    if view.objects.slice.is_none() && is_committed && offer.is_some() {
        // It may be gone because the load balancer is, which the watch has yet to bring: its ports are somebody else's then (SHR-2).
        step.guards = vec![Guard::Unchanged];
    }
    step.guards.extend(offer);
    Some(step)
}

/// The annotations for kube-vip that the Service gets.
fn annotations(view: &View<'_>, address: &Address) -> Source {
    Source::Own(view.annotations.clone().handing(address.handed()))
}

/// What of the Service is to change besides owners and ports: see [`What::Fields`](crate::sharing::refusals::What::Fields).
fn fields(view: &View<'_>, address: &Address) -> Option<String> {
    let annotations = annotations(view, address);
    share::fields(&view.objects, &address.load_balancer_ip, &annotations)
}

/// Creates or patches the Service with these owners and ports; `None` if it is as desired.
fn service_step(
    view: &View<'_>,
    (owners, ports): (&[(String, String)], &[DesiredPort]),
    address: &Address,
    fields: Fields,
) -> Option<Guarded> {
    let annotations = annotations(view, address);
    let desired = (&*address.load_balancer_ip, &annotations);
    let step = share::write_service(&view.objects, owners, ports, desired, fields)?;
    let mut step = guarded(step);
    if view.objects.service.is_none() {
        // The lease may have been lost meanwhile (DHC-3).
        let lease = address.lease().cloned().map(Guard::LeaseUnchanged);
        step.guards.extend(lease);
    }
    if let Sharing::Primary(primary) = &view.sharing {
        let members = primary.members.iter().cloned();
        let all = members.chain(view.objects.other_owners()).collect();
        step.guards.push(Guard::AllCaughtUp(all));
    }
    Some(step)
}

/// A step that acts on what the load balancer's copy says.
fn guarded(step: Step) -> Guarded {
    Guarded {
        guards: vec![Guard::CaughtUp],
        step,
    }
}
