//! VM type with a shared address (SHR-3 to SHR-7): which ports the Service and the EndpointSlice of each load balancer have.
//!
//! The Service is written under the key of the group's name alone. A secondary writes its EndpointSlice.

use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::backends::Backend;
use crate::cached;
use crate::desired::{self, DesiredPort, Ownership};
use crate::kube_vip_annotations::{self, Source};
use crate::merge_patch::difference;
use crate::plan::goal::Address;
use crate::plan::keep;
use crate::plan::outline::{OnFailure, Plan, ServiceOf};
use crate::plan::report::Report;
use crate::plan::step::{Guard, Guarded, Next, Probes, Step, Write};
use crate::plan::view::{Objects, Primary, Secondary, Sharing, View};
use crate::sharing::group;
use crate::sharing::naming::{self, shared_name};
use crate::sharing::next_write::{Fields, NextWrite, Wanted};
use crate::sharing::refusals::Change;
use crate::sharing::service::{self, Others, Part};
use crate::sharing::snapshot::served;
use crate::sharing::telling;
use crate::spec::VmSpec;
use crate::status::{self, Readiness};
use harvester_lb_object::Key;

/// What the Service is to have of a load balancer.
pub(super) enum OfService {
    /// It is written under its key: the load balancer, and its ports there.
    Own(Part, Vec<DesiredPort>),
    /// It is written under the key of the group.
    Group,
}

/// The ports of the EndpointSlice and of the Service.
pub(super) struct Layout {
    /// Name of the Service of the EndpointSlice.
    of: String,
    slice: Vec<DesiredPort>,
    pub(super) service: OfService,
    /// When to look again.
    pub(super) again_in: Option<Duration>,
}

impl Layout {
    /// For a load balancer with these ports.
    pub(super) fn of(view: &View<'_>, vm: &VmSpec) -> Self {
        let of = view.objects.key.name.to_string();
        let own = || vm.ports.iter().map(DesiredPort::of_listener).collect();
        match &view.sharing {
            Sharing::Alone => Self {
                of,
                slice: own(),
                service: OfService::Own(own_part(view), own()),
                again_in: None,
            },
            Sharing::Primary(primary) => Self::of_primary(of, view, vm, primary),
            Sharing::Secondary(with) => {
                let has = group::slice_names(with.group, view.objects.slice);
                let named = |port| DesiredPort::named(port, shared_name(served(port)));
                // SHR-2: until the EndpointSlice of one that had the port is gone, this one would get a part of its traffic.
                let is_free = |port: &DesiredPort| {
                    has.contains(&*port.name) || !with.elsewhere.contains(&port.name)
                };
                Self {
                    of: with.group.to_owned(),
                    slice: vm.ports.iter().map(named).filter(is_free).collect(),
                    service: OfService::Group,
                    again_in: None,
                }
            }
        }
    }

    fn of_primary(of: String, view: &View<'_>, vm: &VmSpec, primary: &Primary) -> Self {
        // One that has shared its address goes on with those names if it cannot have its own.
        let is_shared = !primary.others.secondaries.is_empty() || vm.unusable_name.is_some();
        let wanted = service::wanted_names(&vm.ports, is_shared);
        let names = naming::next(&wanted, &primary.names, primary.now);
        let ports = vm.ports.iter().filter_map(|port| {
            let name = names.service.get(&served(port))?;
            Some(DesiredPort::named(port, name.clone()))
        });
        let service = OfService::Own(own_part(view), ports.collect());
        let mut slice: Vec<DesiredPort> = Vec::new();
        let both = |port| {
            let key = served(port);
            let is_wanted = |name: &&String| wanted.get(&key) == Some(*name);
            let all = names.slice.get(&key).into_iter().flatten();
            let (new, old): (Vec<_>, Vec<_>) = all.partition(is_wanted);
            (port, new, old)
        };
        let both: Vec<_> = vm.ports.iter().map(both).collect();
        let has = group::slice_names(&of, view.objects.slice);
        let is_free = |name: &str| has.contains(name) || !primary.others.has_elsewhere(name, &of);
        // A listener may have the name that another port gets: the API server admits each once.
        let news = both.iter().map(|(port, new, _)| (port, new));
        for (port, names) in news.chain(both.iter().map(|(port, _, old)| (port, old))) {
            for name in names.iter().filter(|name| is_free(name)) {
                if slice.iter().all(|it| it.name != **name) {
                    slice.push(DesiredPort::named(port, (*name).clone()));
                }
            }
        }
        Self {
            of,
            slice,
            service,
            again_in: names.again_in,
        }
    }

    /// The EndpointSlice with these backends.
    pub(super) fn slice(&self, view: &View<'_>, backends: &[(Backend, bool)]) -> EndpointSlice {
        let present = view.objects.slice;
        desired::shared_endpoint_slice(view.lb, &self.of, present, &self.slice, backends)
    }
}

/// SHR-2: of the ports of a shared Service that an EndpointSlice gets; `None` if it gets none. Two load balancers may each be about to
/// write the same one, as neither has seen it in the other one's yet.
pub(super) fn offer(view: &View<'_>, wanted: &EndpointSlice) -> Option<Guard> {
    let key = view.objects.key;
    let group = match &view.sharing {
        Sharing::Alone => return None,
        Sharing::Primary(_) => key.clone(),
        Sharing::Secondary(with) => Key::new(&key.namespace, with.group),
    };
    let has = group::slice_names(&group.name, view.objects.slice);
    let names = group::slice_names(&group.name, Some(wanted));
    let new: Vec<String> = names.difference(&has).map(|&name| name.into()).collect();
    (!new.is_empty()).then_some(Guard::Unoffered(group, new))
}

/// The part of the load balancer of a view.
fn own_part(view: &View<'_>) -> Part {
    let meta = &view.lb.metadata;
    Part {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        ..Part::default()
    }
}

/// Creates or patches the Service; `None` if it is as desired. `desired`: its address, and its annotations for kube-vip (KVA-1).
pub(super) fn write_service(
    objects: &Objects<'_>,
    owners: &[(String, String)],
    ports: &[DesiredPort],
    (address, annotations): (&str, &Source),
    fields: Fields,
) -> Option<Step> {
    let present = objects.service.map(|service| &**service);
    let mut wanted = desired::shared_service(objects.key, present, owners, ports, address);
    if let Some(kept) = present.filter(|_| fields == Fields::Present) {
        let asked = cached::asked_address(kept).map(str::to_owned);
        wanted.spec.get_or_insert_default().load_balancer_ip = asked;
    } else {
        kube_vip_annotations::copy(&mut wanted.metadata, annotations);
    }
    Some(Step::Service(match present {
        None => Write::Create(Box::new(wanted)),
        Some(present) => Write::Patch(present.metadata.clone(), difference(present, &wanted)?),
    }))
}

/// What a write changes of address and annotations for kube-vip, as text; `None` if nothing, or if there is no Service yet.
pub(super) fn fields(objects: &Objects<'_>, address: &str, annotations: &Source) -> Option<String> {
    let present = objects.service.map(|service| &**service)?;
    let mut wanted = present.clone();
    kube_vip_annotations::copy(&mut wanted.metadata, annotations);
    let spec = wanted.spec.get_or_insert_default();
    spec.load_balancer_ip = Some(address.to_owned());
    Some(difference(present, &wanted)?.to_string())
}

/// SHR-7: a load balancer with a Service of its own joins another one: that Service goes first. The event of the deletion brings the
/// load balancer back; until then its endpoints follow, as a finalizer may hold the Service.
pub(super) fn leave_own_service<'a>(
    view: &View<'_>,
    vm: &VmSpec,
    with: &Secondary<'_>,
) -> Plan<'a> {
    let Some(from) = view.objects.deletable_service() else {
        return keep::while_service_goes(view, vm);
    };
    let delete = Guarded {
        guards: vec![
            Guard::Unchanged,
            Guard::Exists(with.holder.clone()),
            Guard::AllCaughtUp(view.objects.other_owners()),
        ],
        step: Step::Service(Write::Delete(from.clone())),
    };
    Plan::new(vec![delete], OnFailure::Stop, Report::None(Next::Resync))
}

/// SHR-2: a primary that gets none of its ports. The Service loses them first; the address is still the primary's. `None` if it gets
/// them.
pub(super) fn contested<'a>(
    view: &View<'_>,
    vm: &'a VmSpec,
    address: &'a Address,
) -> Option<Plan<'a>> {
    let Sharing::Primary(primary) = &view.sharing else {
        return None;
    };
    let why = primary.contested.as_ref()?;
    let message = telling::port_of_secondary(&view.objects.key.name, why);
    let readiness = Readiness::not(status::PORT_CONFLICT, message);
    let mut steps = vec![Guarded {
        guards: vec![Guard::CaughtUp],
        step: Step::HealthChecks(Probes::End),
    }];
    let ip = &address.load_balancer_ip;
    let others = of_others(
        &view.objects,
        &primary.others,
        &primary.members,
        ip,
        &Source::Own(view.annotations.clone()),
    );
    let (step, changes) = others;
    steps.extend(step);
    let slice = view.objects.deletable_slice();
    steps.extend(slice.map(|from| Guarded {
        guards: vec![Guard::Unchanged],
        step: Step::Slice(Write::Delete(from.clone())),
    }));
    let report = Report::Contested {
        vm,
        address,
        readiness,
    };
    // It moves with the address as any other (REL-4).
    let service = if view.objects.is_service_undecodable() {
        ServiceOf::None
    } else {
        ServiceOf::Own
    };
    Some(Plan {
        service,
        changes,
        ..Plan::new(steps, OnFailure::ReportRefusal, report)
    })
}

/// The Service of load balancers whose primary does not serve its ports now: it is gone, its spec is refused, or it is being deleted.
/// With [`Plan::changes`].
fn of_others(
    objects: &Objects<'_>,
    others: &Others,
    members: &[Key],
    address: &str,
    annotations: &Source,
) -> (Option<Guarded>, Option<Vec<Change>>) {
    // Without our label, and after the primary, those who share it are its only mark (SVC-1).
    let is_theirs = others.secondaries.iter().any(|it| it.is_owner);
    let is_foreign = objects.service_owner() == Some(Ownership::Foreign) && !is_theirs;
    if is_foreign || objects.is_service_undecodable() {
        return (None, None);
    }
    let all = members.iter().cloned().chain(objects.other_owners());
    let all: Vec<Key> = all.collect();
    let write = |owners: &[_], ports: &[_], fields| {
        let step = write_service(objects, owners, ports, (address, annotations), fields)?;
        let guards = vec![Guard::AllCaughtUp(all.clone())];
        Some(Guarded { guards, step })
    };
    let fields = fields(objects, address, annotations);
    let wanted = Wanted {
        primary: None,
        others,
        present: objects.service.map(|it| &**it),
        fields: fields.as_deref(),
    };
    match wanted.next_write(write) {
        NextWrite::Some(step, changes) => (Some(step), Some(changes)),
        NextWrite::Settled(pending) => (None, Some(pending)),
        NextWrite::Wait => (None, None),
    }
}

/// The Service of load balancers whose primary does not serve its ports now, as a plan of its own. `leaves`: the primary is gone, and its EndpointSlice follows.
pub fn without_primary(
    objects: &Objects<'_>,
    others: &Others,
    members: &[Key],
    address: &str,
    annotations: &Source,
    leaves: bool,
) -> Plan<'static> {
    let (service, changes) = of_others(objects, others, members, address, annotations);
    let slice = objects.deletable_slice().filter(|_| leaves);
    let slice = slice.map(|from| Step::Slice(Write::Delete(from.clone())).into());
    let checks = leaves.then(|| Step::HealthChecks(Probes::End).into());
    let steps = checks.into_iter().chain(service).chain(slice).collect();
    Plan {
        changes,
        ..Plan::new(steps, OnFailure::Stop, Report::None(Next::AwaitChange))
    }
}
