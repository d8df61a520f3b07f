//! Load balancers that share an address (SHR-1 to SHR-8).

use std::collections::BTreeSet;

use harvester_lb_api::{Condition, Ipam, Listener, LoadBalancer, WorkloadType, keys};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::finding::{Finding, describe, first_few, must};
use crate::meta::{annotation, announced, asked, is_ours, requested};
use crate::objects::{Bound, Lb, Objects};
use crate::spec::REFUSED;
use crate::{announcement, backends, details, kinds};

/// Reasons of a load balancer that does not share the address that it asks for.
const REFUSALS: [&str; 5] = [
    "InvalidPrimary",
    "NameConflict",
    "PrimaryNotFound",
    "WaitingForPrimary",
    "PortConflict",
];

/// The part of a load balancer in sharing an address, as its status says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// None, and it asks for none.
    None,
    /// Its address is that of the group that it names.
    Secondary,
    /// It asks for the address of another one, has none, and this is the reason.
    Refused(&'a str),
    /// The same, and it is served at an address of its own.
    Apart(&'a str),
    /// Others share the address of an earlier one of its name.
    NameTaken,
}

/// The value of the annotation by which a load balancer asks for the address of another one.
pub(crate) fn primary(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, keys::ANNOTATION_PRIMARY)
}

/// The group whose address a record has: that in its annotation, else the name of its owner.
pub(crate) fn group_of(record: &Bound<'_>) -> Key {
    let name = record.group.unwrap_or(&record.owner.name);
    Key::new(&record.owner.namespace, name)
}

/// Whether load balancers of other names own a Service.
pub(crate) fn is_shared(meta: &ObjectMeta) -> bool {
    let mut owners = owners(meta);
    is_ours(meta) && owners.any(|(name, _)| Some(name) != meta.name.as_deref())
}

/// Name and uid of the load balancers that own an object.
fn owners(meta: &ObjectMeta) -> impl Iterator<Item = (&str, &str)> {
    let owners = meta.owner_references.iter().flatten();
    let owners = owners.filter(|owner| owner.kind == "LoadBalancer");
    owners.map(|owner| (&*owner.name, &*owner.uid))
}

/// Determines the part of a load balancer.
pub(crate) fn part<'a>(objects: &Objects<'_>, lb: &Lb<'a>, reason: &'a str) -> Part<'a> {
    // Also of one that asks for another one's address, or its own.
    let is_taken = reason == "NameConflict" && lb.given.is_empty();
    if is_taken && lives_without_primary(objects, &lb.key) {
        return Part::NameTaken;
    }
    let Some(named) = primary(&lb.object.metadata) else {
        return Part::None;
    };
    let shared = lb.condition("AddressShared");
    let role = shared
        .and_then(|it| it.reason.as_deref())
        .unwrap_or_default();
    let is_true = shared.is_some_and(|it| it.status == "True");
    if is_true && ["Secondary", "Holder"].contains(&role) && *lb.key.name != *named {
        Part::Secondary
    } else if lb.given.is_empty() && REFUSALS.contains(&reason) {
        Part::Refused(reason)
    } else if shared.is_some() && !is_true {
        Part::Apart(role)
    } else {
        Part::None
    }
}

/// Whether a group has its address although there is no load balancer of its name (SHR-5).
fn lives_without_primary(objects: &Objects<'_>, group: &Key) -> bool {
    let mut all = objects.bound.iter();
    all.any(|record| record.group.is_some() && group_of(record) == *group)
}

/// The name of a group, and its key.
fn named<'a>(lb: &Lb<'a>) -> (&'a str, Key) {
    let name = primary(&lb.object.metadata).unwrap_or_default();
    (name, Key::new(&lb.key.namespace, name))
}

/// SHR-3, SHR-5, SHR-8: checks a load balancer with the address of its group.
pub(crate) fn shares(objects: &Objects<'_>, lb: &Lb<'_>, ready: &Condition) -> Result<(), Finding> {
    let (name, group) = named(lb);
    let record = objects.bound.iter().find(|it| it.address == lb.given);
    let record = record.filter(|record| group_of(record) == group);
    let Some(record) = record else {
        let text = format!("shares {}, which is not the address of {name}", lb.given);
        let kind = &kinds::ADDRESS_MISMATCH;
        return Err(Finding::new(kind, "SHR-3", lb.object(), text));
    };
    let own = objects.bound_of(&lb.key).find(|own| own.group.is_none());
    must!(
        "SHR-7",
        IP_ALLOCATION_UNUSED,
        lb,
        own.is_none(),
        "shares {}, and has an IPAllocation of its own",
        lb.given
    );
    let spec = &lb.object.spec;
    must!(
        "SHR-1",
        CONDITION_MISMATCH,
        lb,
        !name.contains('/')
            && spec.address_source() == Ipam::Pool
            && requested(lb.object).is_none(),
        "shares {}, which its spec or another annotation forbids",
        lb.given
    );
    if let Some(holder) = objects.lbs.get(&record.owner) {
        must!(
            "SHR-1",
            CONDITION_MISMATCH,
            lb,
            holder.object.spec.workload() == spec.workload(),
            "shares the address of LoadBalancer {}, which is of another type",
            holder.key
        );
    }
    let role = lb
        .condition("AddressShared")
        .and_then(|it| it.reason.as_deref());
    let holds = record.uid == lb.uid;
    must!(
        "SHR-5",
        CONDITION_MISMATCH,
        lb,
        (role == Some("Holder")) == holds,
        "owns the IPAllocation of {}: {holds}; the condition AddressShared has the reason {role:?}",
        lb.given
    );
    let service = objects.services.get(&lb.key);
    must!(
        "SHR-7",
        UNEXPECTED_SERVICE,
        lb,
        !service.is_some_and(|it| is_ours(&it.metadata)) || objects.unknown.owned.contains(&lb.key),
        "shares {}, and has a Service of its own",
        lb.given
    );
    if spec.workload() == WorkloadType::Cluster {
        return details::of_cluster(lb);
    }
    let unknown = &objects.unknown.owned;
    if unknown.contains(&lb.key) || unknown.contains(&group) {
        return Ok(());
    }
    // BE-7: what the primary has as of another type has no Service.
    if ready.reason.as_deref() == Some("AddressFamilyMismatch") && lb.given.contains(':') {
        return backends::check_kept_endpoints(objects, lb);
    }
    with_service(objects, lb, ready, &group)
}

/// SHR-3: the Service of the group has the ports of one of its load balancers, whose EndpointSlice belongs to it.
fn with_service(
    objects: &Objects<'_>,
    lb: &Lb<'_>,
    ready: &Condition,
    group: &Key,
) -> Result<(), Finding> {
    let slice = objects.slices.get(&lb.key);
    if slice.is_some_and(|slice| !is_ours(&slice.metadata)) {
        return Ok(());
    }
    let service = objects.services.get(group);
    if service.is_some_and(|it| !is_ours(&it.metadata)) {
        must!(
            "SVC-1",
            CONDITION_MISMATCH,
            lb,
            ready.reason.as_deref() == Some("NameConflict"),
            "shares {}, Service {group} is somebody else's, and the condition Ready is {}",
            lb.given,
            describe(ready)
        );
        must!(
            "SVC-1",
            FOREIGN_SERVICE_WITH_ENDPOINT_SLICE,
            lb,
            slice.is_none(),
            "has an EndpointSlice of Service {group}, which is somebody else's"
        );
        return Ok(());
    }
    let Some(service) = service.filter(|it| is_ours(&it.metadata)) else {
        let text = format!("shares {}, and there is no Service {group}", lb.given);
        let kind = &kinds::SERVICE_MISSING;
        return Err(Finding::new(kind, "SHR-3", lb.object(), text));
    };
    must!(
        "SHR-3",
        SERVICE_ADDRESS_MISMATCH,
        lb,
        asked(service) == lb.given,
        "shares {}, and spec.loadBalancerIP of Service {group} is {:?}",
        lb.given,
        asked(service)
    );
    must!(
        "SHR-3",
        SERVICE_MISMATCH,
        lb,
        owners(&service.metadata).any(|(_, uid)| uid == lb.uid),
        "is no owner of Service {group}"
    );
    let lacking: Vec<String> = ports(lb.object)
        .filter(|port| !has_port(service, port))
        .map(|port| format!("{}-{}", port.port, protocol(port)))
        .collect();
    must!(
        "SHR-3",
        SERVICE_MISMATCH,
        lb,
        lacking.is_empty(),
        "Service {group} lacks its ports {}",
        first_few(&lacking)
    );
    let Some(slice) = slice else {
        let text = "has no EndpointSlice".to_owned();
        let kind = &kinds::ENDPOINT_SLICE_MISSING;
        return Err(Finding::new(kind, "SHR-3", lb.object(), text));
    };
    let of = service_of(slice);
    let mut its = port_names(slice);
    let wanted: BTreeSet<String> = ports(lb.object).map(shared_name).collect();
    must!(
        "SHR-3",
        ENDPOINTS_MISMATCH,
        lb,
        of == Some(&*group.name) && its.all(|name| wanted.contains(name)),
        "its EndpointSlice is of Service {of:?}, or has other ports than {}",
        first_few(&wanted.iter().collect::<Vec<_>>())
    );
    announcement::check(objects, lb, service, lb.given)?;
    let announced = announced(service);
    details::of_served(lb, lb.given, announced, false)?;
    backends::check(objects, lb, ready, slice, !announced.is_empty())
}

fn ports(lb: &LoadBalancer) -> impl Iterator<Item = &Listener> {
    lb.spec.listeners.iter().flatten()
}

fn protocol(listener: &Listener) -> &str {
    if listener.protocol.is_empty() {
        "TCP"
    } else {
        &listener.protocol
    }
}

/// The name of the Service of an EndpointSlice.
fn service_of(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    labels.get(keys::LABEL_SERVICE_NAME).map(|name| &**name)
}

fn port_names(slice: &EndpointSlice) -> impl Iterator<Item = &str> {
    let ports = slice.ports.iter().flatten();
    ports.map(|port| port.name.as_deref().unwrap_or_default())
}

/// The name that the port of a listener has in a shared Service.
fn shared_name(listener: &Listener) -> String {
    format!("{}-{}", listener.port, protocol(listener).to_lowercase())
}

/// Whether a Service has the port of a listener, under any name.
fn carries(service: &Service, listener: &Listener) -> bool {
    let spec = service.spec.as_ref();
    let mut all = spec
        .into_iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    all.any(|port| {
        i64::from(port.port) == listener.port
            && port.protocol.as_deref().unwrap_or("TCP") == protocol(listener)
    })
}

/// Whether a shared Service has the port of a listener, under its name there.
fn has_port(service: &Service, listener: &Listener) -> bool {
    let spec = service.spec.as_ref();
    let mut all = spec
        .into_iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    let name = format!("{}-{}", listener.port, protocol(listener).to_lowercase());
    all.any(|port| i64::from(port.port) == listener.port && port.name.as_deref() == Some(&*name))
}

/// SHR-1, SHR-2, SHR-7: the reason why a load balancer does not share the address that it asks for.
pub(crate) fn is_refused(objects: &Objects<'_>, lb: &Lb<'_>, reason: &str) -> Result<(), Finding> {
    let (name, group) = named(lb);
    let unknown = &objects.unknown.lbs;
    if unknown.contains(&group) {
        return Ok(());
    }
    let present = objects.lbs.get(&group);
    let lives = present.is_some() || lives_without_primary(objects, &group);
    let holds = match reason {
        "PrimaryNotFound" => !lives,
        "WaitingForPrimary" => lives,
        "PortConflict" => lives && wants_a_port_of_another(objects, lb, &group),
        "InvalidPrimary" => may_not(objects, lb, name, &group),
        // SVC-1: the Service of the group is somebody else's.
        "NameConflict" => {
            let service = objects.services.get(&group);
            lives && service.is_some_and(|it| !is_ours(&it.metadata))
        }
        _ => false,
    };
    must!(
        "SHR-1",
        CONDITION_MISMATCH,
        lb,
        holds,
        "does not share the address of {name:?}, and the reason is {reason}, which does not hold"
    );
    Ok(())
}

/// SHR-2: whether another load balancer of a group has one of its ports.
pub(crate) fn wants_a_port_of_another(objects: &Objects<'_>, lb: &Lb<'_>, group: &Key) -> bool {
    let of_group = |other: &&Lb<'_>| {
        let names = primary(&other.object.metadata).is_some_and(|name| *name == *group.name);
        other.key.namespace == group.namespace
            && other.key != lb.key
            && (other.key == *group || names)
    };
    let others = || objects.lbs.values().filter(of_group);
    let service = objects.services.get(group);
    // What another one's EndpointSlice has is its own, whether the Service has that port or not.
    let kept: BTreeSet<&str> = others()
        .filter_map(|other| objects.slices.get(&other.key))
        .filter(|slice| service_of(slice) == Some(&*group.name))
        .flat_map(|slice| port_names(slice))
        .collect();
    let is_kept = |port: &Listener| kept.contains(&*shared_name(port));
    // One whose spec is refused goes on with the ports that it had, alone under the names of its listeners (BE-6).
    let carried = |port: &Listener| service.is_some_and(|service| carries(service, port));
    others().any(|other| {
        let other: BTreeSet<(i64, &str)> = ports(other.object)
            .map(|port| (port.port, protocol(port)))
            .collect();
        ports(lb.object).any(|port| other.contains(&(port.port, protocol(port))))
    }) || ports(lb.object).any(|port| carried(port) || is_kept(port))
}

/// SHR-1, SHR-7: whether a load balancer may not share the address of a group.
fn may_not(objects: &Objects<'_>, lb: &Lb<'_>, name: &str, group: &Key) -> bool {
    let spec = &lb.object.spec;
    let own = name.is_empty()
        || name.contains('/')
        || *name == *lb.key.name
        || spec.address_source() == Ipam::Dhcp
        || requested(lb.object).is_some();
    let of = objects
        .bound
        .iter()
        .find(|record| group_of(record) == *group);
    // A later one of the name, beside those that share the address of an earlier one, is none of the group (SHR-6).
    let is_primary = |lb: &&Lb<'_>| of.is_none_or(|of| of.group.is_none() || of.uid == lb.uid);
    let present = objects.lbs.get(group).filter(is_primary);
    let holder = of.and_then(|record| objects.lbs.get(&record.owner));
    let pool = spec.ip_pool.as_deref().filter(|it| !it.is_empty());
    let differs = |other: &Lb<'_>| other.object.spec.workload() != spec.workload();
    let is_named = objects.lbs.values().any(|other| {
        other.key.namespace == lb.key.namespace
            && primary(&other.object.metadata).is_some_and(|it| *it == *lb.key.name)
    });
    own || is_named
        || present.is_some_and(|it| primary(&it.object.metadata).is_some())
        || present.is_some_and(|it| it.object.spec.address_source() == Ipam::Dhcp)
        || present.or(holder).is_some_and(differs)
        || (spec.workload() == WorkloadType::Vm && of.is_some_and(|of| of.address.contains(':')))
        || pool.is_some_and(|pool| {
            let named = present.and_then(|it| it.object.spec.ip_pool.as_deref());
            of.is_some_and(|of| of.pool != pool) || named.is_some_and(|it| it != pool)
        })
}

/// The ports of the load balancers that share a Service, besides the primary's.
pub(crate) struct Others<'a> {
    /// Those of their specs.
    pub(crate) ports: Vec<&'a Listener>,
    /// Whether a Service may have further ones: of one whose spec is refused it has those of an earlier spec (BE-6).
    pub(crate) may_be_more: bool,
}

/// The ports of all load balancers but the primary that a Service carries, as it names them; `None` if there are none.
pub(crate) fn ports_of_others<'a>(
    objects: &Objects<'a>,
    service: &Service,
    primary: &Key,
) -> Option<Others<'a>> {
    let others = owners(&service.metadata).filter(|(name, _)| **name != *primary.name);
    let keys: Vec<Key> = others
        .map(|(name, _)| Key::new(&primary.namespace, name))
        .collect();
    let is_refused = |lb: &&Lb<'_>| {
        let ready = lb.condition("Ready").and_then(|it| it.reason.as_deref());
        ready.is_some_and(|reason| REFUSED.contains(&reason))
    };
    let lbs = keys.iter().filter_map(|key| objects.lbs.get(key));
    let (refused, served): (Vec<_>, Vec<_>) = lbs.partition(is_refused);
    let ports = served
        .iter()
        .flat_map(|lb| lb.object.spec.listeners.iter().flatten());
    (!keys.is_empty()).then(|| Others {
        ports: ports.collect(),
        may_be_more: !refused.is_empty(),
    })
}

/// Whether others share the address of a load balancer: they own its Service. Of cluster type, which has none, their status tells it.
pub(crate) fn has_others(objects: &Objects<'_>, lb: &Lb<'_>) -> bool {
    let service = objects.services.get(&lb.key);
    let shares = |other: &Lb<'_>| {
        named(other).1 == lb.key
            && other.given == lb.given
            && part(objects, other, "") == Part::Secondary
    };
    service.is_some_and(|it| ports_of_others(objects, it, &lb.key).is_some())
        || lb.object.spec.workload() == WorkloadType::Cluster && objects.lbs.values().any(shares)
}

/// As text: each port of a Service with its target, in the order of the numbers.
pub(crate) fn as_shared<'a>(listeners: impl Iterator<Item = &'a Listener>) -> Vec<String> {
    let mut all: Vec<String> = listeners
        .map(|port| {
            let protocol = protocol(port);
            let name = format!("{}-{}", port.port, protocol.to_lowercase());
            format!("{name} {}/{protocol} to {}", port.port, port.backend_port)
        })
        .collect();
    all.sort();
    all
}

/// Ready of a load balancer that does not share the address that it asks for, and has none of its own.
pub(crate) fn waits(lb: &Lb<'_>, ready: &Condition) -> Result<(), Finding> {
    must!(
        "SHR-1",
        ADDRESS_WITHOUT_IP_ALLOCATION,
        lb,
        lb.given.is_empty() && ready.status == "False",
        "has address {}, and the condition Ready is {}",
        lb.given,
        describe(ready)
    );
    details::of_waiting(lb, ready)
}
