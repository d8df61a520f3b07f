//! Deletion of a Service and an EndpointSlice that are no longer wanted, the Service first. Deletions do not wait: the event of
//! each brings the load balancer back.

use crate::backends::DiscoveredBackends;
use crate::details;
use crate::plan::goal::{self, Address, Waiting};
use crate::plan::outline::{OnFailure, Plan};
use crate::plan::report::{self, Report};
use crate::plan::step::{Guard, Guarded, Kind, Next, Probes, Step, Write};
use crate::plan::view::{Objects, View};
use crate::readiness;
use crate::sharing::telling;
use crate::spec::VmSpec;
use crate::status::{self, FieldUpdate, Readiness, StatusUpdate};
use harvester_lb_object::Key;

/// No address. Service and EndpointSlice are deleted before the old address is released (REL-4).
pub(super) fn waiting<'a>(view: &View<'_>, vm: Option<&VmSpec>, waiting: &Waiting) -> Plan<'a> {
    let mut extras = readiness::extras(
        waiting.address_conflict.as_ref(),
        None,
        &DiscoveredBackends::default(),
    );
    extras.push(readiness::port_mismatch(vm));
    extras.push(view.annotations.condition());
    // For cluster type the guest writes `status.address` (REC-1).
    let is_vm = vm.is_some();
    let status = StatusUpdate {
        details: details::waiting(waiting.readiness.reason),
        verdicts_changed: false,
        readiness: waiting.readiness.clone(),
        // With DHCP it says so, also while there is no lease (DHC-1).
        allocated: FieldUpdate::Set(waiting.lease.as_ref().map(|_| goal::by_dhcp())),
        address: if is_vm {
            FieldUpdate::Set(None)
        } else {
            FieldUpdate::Unchanged
        },
        backend_servers: if is_vm {
            FieldUpdate::Set(None)
        } else {
            FieldUpdate::Unchanged
        },
        extras,
    };
    let steps = if waiting.is_name_taken {
        vec![Step::HealthChecks(Probes::End).into()]
    } else {
        let lease = waiting.lease.iter().cloned().map(Guard::LeaseUnchanged);
        let pool: Vec<_> = waiting
            .pool
            .iter()
            .cloned()
            .map(Guard::PoolUnchanged)
            .collect();
        // A stale copy of the load balancer, or of the pool from which it gets no address, must not decide on deletions: no write with
        // its resource version precedes them (REL-4).
        let guards = [Guard::Unchanged].into_iter().chain(pool.clone());
        let mut steps = deletions(&view.objects, guards.chain(lease).collect());
        // Without a deletion, the resource version of the status verifies the load balancer, and nothing yet the pool for which its
        // address is lost (IPA-7).
        if let Some(first) = steps.first_mut()
            && first.guards.is_empty()
            && status::allocated(view.lb).is_some()
        {
            first.guards = pool;
        }
        steps
    };
    Plan {
        extra_records: waiting.extra_records.clone(),
        ..Plan::new(steps, OnFailure::Stop, Report::fixed(status, Next::Resync))
    }
}

/// Cluster type: the address, its own or a shared one (SHR-8), and nothing else (REC-1). A Service or EndpointSlice exists only if it was of VM type before, with
/// this uid (despite WV-9) or an earlier one.
pub(super) fn address_only<'a>(view: &View<'_>, address: &Address) -> Plan<'a> {
    let present = view.lb.status.as_ref().and_then(|s| s.address.as_deref());
    let is_free = present.unwrap_or_default().is_empty();
    let mut extras = report::extras(address, &DiscoveredBackends::default());
    extras.push(readiness::port_mismatch(None));
    extras.push(view.annotations.condition());
    let allocated = if address.is_by_dhcp() {
        details::allocated_by_guest()
    } else {
        report::allocated(address, None)
    };
    let status = StatusUpdate {
        details: details::of_cluster(allocated),
        verdicts_changed: false,
        readiness: Readiness::ready(),
        address: if !address.is_by_dhcp() && is_free {
            FieldUpdate::Set(Some(address.load_balancer_ip.clone()))
        } else {
            FieldUpdate::Unchanged
        },
        backend_servers: FieldUpdate::Unchanged,
        extras,
        allocated: FieldUpdate::Set(Some(address.allocated.clone())),
    };
    let steps = deletions(&view.objects, vec![Guard::Unchanged]);
    Plan {
        extra_records: address.extra_records.clone(),
        ..Plan::new(
            steps,
            OnFailure::Stop,
            Report::fixed(status, Next::AwaitChange),
        )
    }
}

/// An object of the name has another owner and is not written (SVC-1). Our other object is deleted: an EndpointSlice would send
/// the traffic of a foreign Service to our backends.
pub(super) fn name_taken<'a>(
    view: &View<'_>,
    vm: &'a VmSpec,
    address: &'a Address,
    kind: Kind,
) -> Plan<'a> {
    let guards = if view.objects.is_service_undecodable() {
        Vec::new()
    } else {
        vec![Guard::Foreign(kind)]
    };
    let message = format!(
        "{kind} {} exists and is not this load balancer's: rename the load balancer, or delete the {kind}",
        view.objects.key
    );
    without_service(view, vm, address, guards, message)
}

/// The same of one whose address is that of a group, if somebody else has a Service of the group's name.
pub(super) fn group_name_taken<'a>(
    view: &View<'_>,
    vm: &'a VmSpec,
    address: &'a Address,
    group: &str,
) -> Plan<'a> {
    let group = Key::new(&view.objects.key.namespace, group);
    let message = telling::group_name_taken(&group.name);
    let guards = vec![Guard::CaughtUp, Guard::LeftGroup(group)];
    without_service(view, vm, address, guards, message)
}

/// The address stays, without Service and EndpointSlice.
fn without_service<'a>(
    view: &View<'_>,
    vm: &'a VmSpec,
    address: &'a Address,
    guards: Vec<Guard>,
    message: String,
) -> Plan<'a> {
    let steps = deletions(&view.objects, guards);
    let readiness = Readiness::not(status::NAME_CONFLICT, message);
    let status = report::without_service(view, vm, address, readiness);
    let report = Report::Taken {
        vm,
        address,
        status: Box::new(status),
    };
    Plan::new(steps, OnFailure::ReportRefusal, report)
}

/// Ends the health checks, then deletes what is there. `guards`: checked once, if there is anything to delete.
pub(super) fn deletions(objects: &Objects<'_>, mut guards: Vec<Guard>) -> Vec<Guarded> {
    let service = objects.deletable_service();
    // SHR-5: nobody else may share the address of a Service that goes.
    let others = objects.other_owners();
    if service.is_some() && !others.is_empty() {
        guards.push(Guard::AllCaughtUp(others));
    }
    let slice = objects.deletable_slice();
    let is_anything = service.is_some() || slice.is_some();
    let first = Guarded {
        guards: if is_anything { guards } else { Vec::new() },
        step: Step::HealthChecks(Probes::End),
    };
    let service = service.map(|from| Step::Service(Write::Delete(from.clone())).into());
    let slice = slice.map(|from| Step::Slice(Write::Delete(from.clone())).into());
    [Some(first), service, slice]
        .into_iter()
        .flatten()
        .collect()
}
