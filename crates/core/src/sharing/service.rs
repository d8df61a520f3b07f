//! The Service of a group: its owners, its ports and their names (SHR-3, SHR-4).
//!
//! A load balancer joins by its EndpointSlice: its ports are carried once that has them, and no other EndpointSlice of the Service has:
//! what somebody has left would get a part of the traffic (SHR-2). It leaves in the reverse order. While the
//! primary is alone its ports have the names of its listeners. They get those of a shared Service before the first port of another
//! one is added, since the API server demands that each of several ports has a name, and no two the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::group::{self, Role};
use super::index::service_of;
use super::naming::{self, Stored, shared_name};
use super::ports::Served;
use super::refusals::Refusals;
use super::snapshot::{Party, Snapshot, served};
use crate::desired::DesiredPort;
use crate::spec::Port;
use crate::time;

/// The part of one load balancer in the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Name of the load balancer.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it owns the Service already.
    pub is_owner: bool,
    /// Its ports that the Service has already.
    pub carried: Vec<DesiredPort>,
    /// Its ports that are to be added.
    pub added: Vec<DesiredPort>,
}

impl Part {
    /// Name and uid.
    pub fn owner(&self) -> (String, String) {
        (self.name.clone(), self.uid.clone())
    }
}

/// Names and uids of the owners of a Service.
pub type Owners = Vec<(String, String)>;

/// A primary that is served, and its ports.
pub type ServedPrimary<'a> = Option<(&'a Part, &'a [DesiredPort])>;

/// What the Service of a group has besides the ports that the primary serves now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// The part of the primary, if it stays as it is (BE-6) or gets none of its ports (SHR-2).
    pub primary: Option<Part>,
    /// The parts of the others, by age.
    pub secondaries: Vec<Part>,
    /// Name and uid of the one that is to own the record (SHR-5).
    pub holder: Option<(String, String)>,
    /// Name and uid of the oldest of the others that is to get its first port.
    pub next: Option<(String, String)>,
    /// The names of ports in all EndpointSlices of the Service, or that are about to be, and whose they are. One that is to go may still be
    /// there.
    pub slices: BTreeMap<String, BTreeSet<String>>,
    /// What the API server refuses of the Service, and the present time on that clock.
    pub refusals: Option<Arc<(Refusals, Duration)>>,
}

impl Others {
    /// From the roles of a group. `is_primary_kept`: the primary stays as it is for now, whatever its spec says.
    pub fn of(group: &Snapshot<'_>, is_primary_kept: bool) -> Self {
        let mut others = Self::default();
        let (mut secondaries, mut waiting) = (Vec::new(), Vec::new());
        for (party, ports) in group.parties() {
            let meta = party.lb.meta();
            let name = meta.name.as_deref().unwrap_or_default();
            let is_primary = name == &*group.key.name;
            match group.roles.get(name) {
                Some(Role::PortConflict(_)) if is_primary => {
                    others.primary = Some(bare(party));
                }
                Some(Role::Member { .. }) if is_primary && (is_primary_kept || ports.is_none()) => {
                    others.primary = Some(part(group, party, None));
                }
                Some(Role::Member { .. }) if is_primary => {}
                Some(Role::Member { .. }) => {
                    let part = part(group, party, ports);
                    if part.is_owner || !part.carried.is_empty() || !part.added.is_empty() {
                        secondaries.push(((time::created(meta), name), part));
                    } else {
                        waiting.push(((time::created(meta), name), (part.name, part.uid)));
                    }
                }
                _ => {}
            }
        }
        secondaries.sort_by(|a, b| a.0.cmp(&b.0));
        others.secondaries = secondaries.into_iter().map(|(_, part)| part).collect();
        others.next = waiting.into_iter().min().map(|(_, next)| next);
        others.slices = named_ports(group);
        others.refusals.clone_from(&group.refusals);
        others.holder = group.holder().map(|meta| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            (text(&meta.name), text(&meta.uid))
        });
        others
    }

    /// SHR-2: whether the EndpointSlice of another load balancer than this one has a port of this name, whose traffic it would get, or is
    /// about to.
    pub fn has_elsewhere(&self, name: &str, lb: &str) -> bool {
        let mut owners = self.slices.get(name).into_iter().flatten();
        owners.any(|owner| owner != lb)
    }
}

/// The names of ports in all EndpointSlices of the Service of a group, or that are about to be, and whose they are.
pub fn named_ports(group: &Snapshot<'_>) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let of_parties = group
        .parties()
        .filter_map(|(party, _)| Some((party.lb.meta(), party.slice?)));
    let left = group.left.iter().map(|slice| (&slice.metadata, *slice));
    for (meta, slice) in of_parties.chain(left) {
        let owner = meta.name.as_deref().unwrap_or_default();
        for name in group::slice_names(&group.key.name, Some(slice)) {
            let owners = all.entry(name.to_owned()).or_default();
            owners.insert(owner.to_owned());
        }
    }
    for (name, owner) in &group.offers {
        let owners = all.entry(name.clone()).or_default();
        owners.insert(owner.clone());
    }
    all
}

/// The same names, of others than this load balancer.
pub fn elsewhere(group: &Snapshot<'_>, lb: &str) -> BTreeSet<String> {
    let mut named = named_ports(group);
    named.retain(|_, owners| owners.iter().any(|owner| owner != lb));
    named.into_keys().collect()
}

/// The load balancers that may have waited for these ports while another one was about to get them: the members that want one, and for
/// the Service that of the group's name, if an EndpointSlice has one.
pub fn waiting<'a>(group: &'a Snapshot<'_>, lb: &str, ports: &[String]) -> BTreeSet<&'a str> {
    let mut waiting = BTreeSet::new();
    for (party, wanted) in group.parties() {
        let name = party.lb.meta().name.as_deref().unwrap_or_default();
        let is_member = matches!(group.roles.get(name), Some(Role::Member { .. }));
        let mut wanted = wanted
            .into_iter()
            .flatten()
            .map(|it| shared_name(served(it)));
        if is_member && wanted.any(|it| ports.contains(&it)) {
            waiting.insert(name);
        }
        let has = group::slice_names(&group.key.name, party.slice);
        if *name != *lb && ports.iter().any(|port| has.contains(&**port)) {
            waiting.insert(&group.key.name);
        }
    }
    waiting.remove(lb);
    waiting
}

/// The part of a load balancer that has none of its ports.
fn bare(party: &Party<'_>) -> Part {
    let meta = party.lb.meta();
    Part {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        is_owner: true,
        ..Part::default()
    }
}

/// The part of a load balancer with these ports, as far as its EndpointSlice has them. `None`: what it has now.
fn part(group: &Snapshot<'_>, party: &Party<'_>, ports: Option<&[Port]>) -> Part {
    let mut part = bare(party);
    part.is_owner = group::is_owner(group.service, &part.uid);
    let Some(ports) = ports else {
        if group.service.is_none() {
            // Nothing is made for those alone that stay as they are (BE-6).
            if part.name != *group.key.name && is_any_served(group) {
                part.carried = named_by_slice(&group.key.name, party.slice);
            }
            return part;
        }
        let carried = group::carried(group.service, party.slice);
        let all = service_ports(group.service);
        part.carried = all
            .filter_map(|port| Some((DesiredPort::stored(port)?, port)))
            .filter(|(port, _)| carried.contains(&port.served()))
            .map(|(port, _)| port)
            .collect();
        return part;
    };
    let present: BTreeSet<Served> = service_ports(group.service)
        .filter_map(|port| Some(DesiredPort::stored(port)?.served()))
        .collect();
    let names = group::slice_names(&group.key.name, party.slice);
    for port in ports {
        let port = DesiredPort::named(port, shared_name(served(port)));
        if !names.contains(&*port.name) {
            continue;
        }
        if present.contains(&port.served()) {
            part.carried.push(port);
        } else {
            part.added.push(port);
        }
    }
    part
}

/// Whether any load balancer of the group is served with the ports in its spec, or would be if those that stay as they are had none of
/// them: the primary, whose address it is all the same.
fn is_any_served(group: &Snapshot<'_>) -> bool {
    group.parties().any(|(party, ports)| {
        let name = party.lb.meta().name.as_deref().unwrap_or_default();
        let is_primary = *name == *group.key.name;
        ports.is_some()
            && match group.roles.get(name) {
                Some(Role::Member { .. }) => true,
                Some(Role::PortConflict(_)) => is_primary,
                _ => false,
            }
    })
}

/// The ports that an EndpointSlice has under their names in a shared Service, with its targets.
fn named_by_slice(group: &str, slice: Option<&EndpointSlice>) -> Vec<DesiredPort> {
    let slice = slice.filter(|slice| service_of(slice) == Some(group));
    let ports = slice.into_iter().flat_map(|it| it.ports.iter().flatten());
    let ports = ports.filter_map(|port| {
        let name = port.name.clone()?;
        let served = naming::port_of(&name)?;
        Some(DesiredPort {
            name,
            protocol: served.protocol,
            port: served.port,
            target: IntOrString::Int(port.port?),
        })
    });
    ports.collect()
}

fn service_ports(service: Option<&Service>) -> impl Iterator<Item = &ServicePort> {
    let spec = service.and_then(|service| service.spec.as_ref());
    spec.into_iter()
        .flat_map(|spec| spec.ports.iter().flatten())
}

/// The names that the ports of the primary have: each is that of its listener, that of a shared Service, or the one that the Service
/// has.
pub fn stored_names(
    group: &str,
    ports: &[Port],
    service: Option<&Service>,
    slice: Option<&EndpointSlice>,
) -> Stored {
    let of_service: BTreeMap<Served, String> = service_ports(service)
        .filter_map(DesiredPort::stored)
        .map(|port| (port.served(), port.name))
        .collect();
    let of_slice = group::slice_names(group, slice);
    let mut stored = Stored::default();
    for port in ports {
        let key = served(port);
        let name = of_service.get(&key);
        if let Some(name) = name {
            stored.service.insert(key, name.clone());
        }
        let shared = shared_name(key);
        let known = [Some(&port.name), Some(&shared), name]
            .into_iter()
            .flatten();
        let known = known.filter(|name| of_slice.contains(&***name)).cloned();
        stored.slice.insert(key, known.collect());
    }
    stored
}

/// Whether the names of a primary that is alone are still those of a shared Service somewhere.
pub fn are_shared(ports: &[Port], stored: &Stored) -> bool {
    ports.iter().any(|port| {
        let key = served(port);
        let shared = shared_name(key);
        port.name != shared
            && (stored.service.get(&key) == Some(&shared)
                || stored
                    .slice
                    .get(&key)
                    .is_some_and(|it| it.contains(&shared)))
    })
}

/// The names that the ports of the primary should have.
pub fn wanted_names(ports: &[Port], is_shared: bool) -> BTreeMap<Served, String> {
    let wanted = |port: &Port| {
        let key = served(port);
        let name = if is_shared {
            shared_name(key)
        } else {
            port.name.clone()
        };
        (key, name)
    };
    ports.iter().map(wanted).collect()
}

/// Owners and ports of the Service: those of the primary, as it serves them, and of the others. A port is not added before all ports
/// that are there have the names of a shared Service, and the EndpointSlice of one that had it before is gone (SHR-2). `primary`: `None` if
/// it serves none now. `present`: the Service, whose ports keep their places: another order would be a write of its
/// own, and kube-vip would announce the address anew. If there is no port yet, it keeps those that it has, since it must have one: it
/// belongs to those whose ports come next, so that who has left may delete its EndpointSlice. `changes`: whether the load balancer of
/// this name gets the ports that the Service lacks, and its targets; else its ports keep those that they have.
pub fn assemble(
    primary: ServedPrimary<'_>,
    others: &Others,
    present: Option<&Service>,
    changes: impl Fn(&str) -> bool,
) -> (Owners, Vec<DesiredPort>) {
    let (mut owners, mut ports) = (Vec::new(), Vec::new());
    let mut may_add = true;
    let places: BTreeMap<Served, (usize, IntOrString)> = service_ports(present)
        .filter_map(DesiredPort::stored)
        .zip(0..)
        .map(|(port, place)| (port.served(), (place, port.target)))
        .collect();
    let kept = |port: &DesiredPort, part: &Part| {
        let mut port = port.clone();
        if let Some((_, target)) = places.get(&port.served()).filter(|_| !changes(&part.name)) {
            port.target = target.clone();
        }
        port
    };
    if let Some((part, its)) = primary {
        may_add = its
            .iter()
            .all(|port| port.name == shared_name(port.served()));
        let may_be = |port: &&DesiredPort| {
            let is_free = present.is_none() || !others.has_elsewhere(&port.name, &part.name);
            places.contains_key(&port.served()) || (is_free && changes(&part.name))
        };
        owners.push(part.owner());
        ports = its.iter().filter(may_be).map(|it| kept(it, part)).collect();
    } else if let Some(part) = &others.primary {
        owners.push(part.owner());
        ports.extend(part.carried.iter().cloned());
    }
    for part in &others.secondaries {
        ports.extend(part.carried.iter().map(|it| kept(it, part)));
    }
    // The names of a primary that stays as it is cannot change.
    may_add &= ports.iter().all(|port| !port.name.is_empty());
    for part in &others.secondaries {
        let mut is_owner = part.is_owner || !part.carried.is_empty();
        for port in part.added.iter().filter(|_| may_add && changes(&part.name)) {
            let is_free = !others.has_elsewhere(&port.name, &part.name);
            if is_free && ports.iter().all(|it| it.name != port.name) {
                ports.push(port.clone());
                is_owner = true;
            }
        }
        if is_owner {
            owners.push(part.owner());
        }
    }
    if ports.is_empty() {
        ports = service_ports(present)
            .filter_map(DesiredPort::stored)
            .collect();
        if owners.is_empty() {
            let refused = || others.secondaries.first().map(Part::owner);
            owners.extend(others.next.clone().or_else(refused));
        }
    }
    ports.sort_by_key(|port| {
        places
            .get(&port.served())
            .map_or(usize::MAX, |(place, _)| *place)
    });
    (owners, ports)
}

/// Whether the Service carries a port of a load balancer that shares it: those that it has just got follow soon.
pub fn carries(service: Option<&Service>, slice: Option<&EndpointSlice>, ports: &[Port]) -> bool {
    let carried = group::carried(service, slice);
    ports.iter().any(|port| carried.contains(&served(port)))
}

/// Whether the EndpointSlice of a load balancer that shares a Service lacks a port that no other one has any more. `named`: see
/// [`named_ports`].
pub fn may_add(
    group: &str,
    slice: Option<&EndpointSlice>,
    ports: &[Port],
    named: &BTreeMap<String, BTreeSet<String>>,
) -> bool {
    let is_of = slice.is_some_and(|slice| service_of(slice) == Some(group));
    let has = group::slice_names(group, slice);
    let mut names = ports.iter().map(|port| shared_name(served(port)));
    is_of && names.any(|name| !has.contains(&*name) && !named.contains_key(&name))
}

/// Whether the Service has another port under one of the names that the ports of a load balancer get: its EndpointSlice would get the
/// traffic of that port.
pub fn has_name_of(service: &Service, ports: &[Port]) -> bool {
    let mut all = service_ports(Some(service)).filter_map(DesiredPort::stored);
    all.any(|port| {
        let mut its = ports.iter().map(served);
        its.any(|it| shared_name(it) == port.name && it != port.served())
    })
}

impl DesiredPort {
    /// Protocol and port.
    pub const fn served(&self) -> Served {
        Served {
            port: self.port,
            protocol: self.protocol,
        }
    }

    /// The port of a listener, under this name.
    pub fn named(port: &Port, name: String) -> Self {
        Self {
            name,
            protocol: port.protocol,
            port: port.port,
            target: IntOrString::Int(i32::from(port.backend_port)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
