//! The state of a group: who shares its address, who owns the record, and who is refused and why (SHR-1, SHR-2, SHR-5 to SHR-7). A
//! function of the stored objects, so that every process decides alike, whatever was interrupted.

use std::collections::{BTreeMap, BTreeSet};

use harvester_lb_api::WorkloadType;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::index::service_of;
use super::membership::{self, Candidate, Group, HeldBy, NotAMember};
use super::naming::{self, shared_name};
use super::ports::{self, Claimant, Contested, PROTOCOLS, Served};
use crate::cached::is_lb;

/// A load balancer of the group's name, or one that names the group.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// What counts of it.
    pub candidate: Candidate<'a>,
    /// Its ports; `None`: those that the Service carries for it, as its spec is refused or unreadable, or it is being deleted.
    /// Such a load balancer stays what it is, and does not join.
    pub ports: Option<BTreeSet<Served>>,
    /// Its EndpointSlice.
    pub slice: Option<&'a EndpointSlice>,
    /// Whether its status says that it shares an address of which the group has the record, and its spec can be served.
    pub is_told: bool,
    /// Whether its status names an address of which the group has a record. While the primary moves there are two (REL-4).
    pub names_record: bool,
}

/// The stored objects of a group.
#[derive(Clone, Debug, Default)]
pub struct Stored<'a> {
    /// Its name.
    pub name: &'a str,
    /// The load balancer of its name, if that exists, and all that name it.
    pub lbs: Vec<Wish<'a>>,
    /// The Service of its name.
    pub service: Option<&'a Service>,
    /// The record of its address, if it has one.
    pub record: Option<Held<'a>>,
}

/// The record of a group's address.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// The owner.
    pub by: HeldBy<'a>,
    /// The pool of the address.
    pub pool: &'a str,
    /// Whether it is an IPv6 address.
    pub is_ipv6: bool,
}

/// What a load balancer is in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It serves on the address. `is_holder`: and owns the record.
    Member {
        /// Whether it owns the record, or is to own it.
        is_holder: bool,
    },
    /// Others share the address of an earlier load balancer of its name (SHR-6).
    NameTaken,
    /// It may not share the address.
    Refused(NotAMember),
    /// One of its ports is another one's.
    PortConflict(Contested),
}

/// The role of each load balancer, by name.
pub fn roles(stored: &Stored<'_>) -> BTreeMap<String, Role> {
    let mut group = group(stored);
    let mut is_taken = is_name_taken(stored, &group);
    if is_taken {
        // It is not the primary of those that share the address of an earlier one: its type and its pool do not count.
        let without = Group {
            primary: None,
            ..group.clone()
        };
        // Nor is its name taken if the one that still owns the record may not share the address any more.
        let mut others = stored.lbs.iter();
        is_taken = others.any(|it| {
            it.candidate.name != stored.name
                && is_present(stored, it)
                && (it.ports.is_none()
                    || membership::join(&it.candidate, stored.name, &without).is_ok())
        });
        if is_taken {
            group = without;
        }
    }
    let mut roles = BTreeMap::new();
    let mut accepted = Vec::new();
    for wish in &stored.lbs {
        let lb = &wish.candidate;
        let is_primary = lb.name == stored.name;
        let role = if is_primary {
            is_taken.then_some(Role::NameTaken)
        } else if wish.ports.is_none() {
            None
        } else {
            membership::join(lb, stored.name, &group)
                .err()
                .map(Role::Refused)
        };
        let stays = wish.ports.is_none() && role.is_none();
        if stays && !is_present(stored, wish) {
            continue;
        }
        match role {
            Some(role) => {
                roles.insert(lb.name.to_owned(), role);
            }
            None => accepted.push(wish),
        }
    }
    let all_carried: BTreeSet<Served> = accepted
        .iter()
        .flat_map(|wish| served(stored, wish))
        .collect();
    let claimants: Vec<Claimant> = accepted
        .iter()
        .map(|wish| {
            let mut carried = served(stored, wish);
            // Its EndpointSlice was deleted by hand: the Service still has its ports.
            if wish.slice.is_none() && is_owner(stored.service, wish.candidate.uid) {
                let its: BTreeSet<Served> = wish.ports.iter().flatten().copied().collect();
                let all = service_ports(stored.service);
                let free = all.difference(&all_carried);
                carried.extend(free.filter(|port| its.contains(port)));
            }
            Claimant {
                name: wish.candidate.name.to_owned(),
                is_primary: wish.candidate.name == stored.name,
                created: wish.candidate.created,
                ports: wish.ports.clone().unwrap_or_else(|| carried.clone()),
                offered: offered(stored.name, wish),
                carried,
            }
        })
        .collect();
    let kept = kept(stored, &accepted);
    let lost = ports::settle_beside(claimants, &kept);
    // The address is the primary's whether it gets its ports or not.
    let may_hold = accepted.iter().zip(&lost);
    let may_hold = may_hold.filter(|(it, lost)| lost.is_none() || it.candidate.name == stored.name);
    let may_hold = may_hold.map(|(wish, _)| (&wish.candidate, is_present(stored, wish)));
    let may_hold: Vec<_> = may_hold.collect();
    let held_by = stored.record.map(|held| held.by);
    let holder = membership::holder(stored.name, &may_hold, held_by).map(|it| it.name);
    for (wish, lost) in accepted.iter().zip(lost) {
        let name = wish.candidate.name;
        let is_holder = holder == Some(name);
        let role = lost.map_or(Role::Member { is_holder }, Role::PortConflict);
        roles.insert(name.to_owned(), role);
    }
    roles
}

/// Whether others share the address of an earlier load balancer of the name (SHR-6). Without a record, as it was deleted by hand, the
/// owners of the Service tell whose it is; of cluster type the status.
fn is_name_taken(stored: &Stored<'_>, group: &Group<'_>) -> bool {
    let Some(lb) = &group.primary else {
        return false;
    };
    if let Some(held) = stored.record {
        return membership::is_name_taken(lb, group, held.by);
    }
    let is_its = match lb.workload {
        WorkloadType::Vm => is_owner(stored.service, lb.uid),
        WorkloadType::Cluster => lb.names_address,
    };
    !group.members.is_empty() && !is_its
}

/// The load balancer that is to own the record of the group's address (SHR-5); `None` if nobody shares it.
pub fn holder<'a>(name: &str, roles: &'a BTreeMap<String, Role>) -> Option<&'a str> {
    let mut all = roles.iter();
    all.find_map(|(lb, role)| match role {
        Role::Member { is_holder: true } => Some(&**lb),
        Role::PortConflict(_) if lb == name => Some(&**lb),
        _ => None,
    })
}

/// Whether the record is one that an earlier primary has left, and nobody shares its address: the present one adopts it or not as if
/// it were alone (ALC-1, BE-7).
pub fn is_left(stored: &Stored<'_>, roles: &BTreeMap<String, Role>) -> bool {
    let is_taken = matches!(roles.get(stored.name), Some(Role::NameTaken));
    let is_of_earlier =
        |(held, lb): (Held<'_>, &Candidate<'_>)| membership::is_of_earlier(lb, held.by);
    !is_taken
        && stored
            .record
            .zip(primary(stored))
            .is_some_and(is_of_earlier)
}

/// Whether the primary has yet to name the address in its status, and nobody shares it: it may never do so, if its spec is refused
/// first. Until then nobody joins (IPA-6).
pub fn is_unnamed(stored: &Stored<'_>) -> bool {
    let mut all = stored.lbs.iter();
    let primary = all.find(|wish| wish.candidate.name == stored.name);
    // Of one that cannot be decoded that is not known.
    let is_silent = |wish: &Wish<'_>| wish.candidate.is_readable && !wish.names_record;
    stored.record.is_some() && primary.is_some_and(is_silent) && group(stored).members.is_empty()
}

fn primary<'a, 'b>(stored: &'b Stored<'a>) -> Option<&'b Candidate<'a>> {
    let mut all = stored.lbs.iter().map(|it| &it.candidate);
    all.find(|lb| lb.name == stored.name)
}

/// Whether a load balancer shares the address of a group now: it owns the record, as an earlier self of a restored one does (IPA-3),
/// or the Service, or its status says so. One that joins has been told so before the Service has its ports: it keeps the address if the
/// primary goes in between (SHR-5). While the Service is absent, the status names the address, or the one before a move, and the
/// EndpointSlice the Service. Without a record the status of a secondary must name the address too, as far as that can be read: an owner
/// reference may have been written by hand (SVC-1). Of cluster type, which has no Service: its status names the address, or the one before a
/// move (SHR-8).
fn is_present(stored: &Stored<'_>, wish: &Wish<'_>) -> bool {
    let lb = &wish.candidate;
    let holds = stored.record.is_some_and(|held| held.by.is(lb));
    holds
        || match lb.workload {
            WorkloadType::Vm if wish.is_told => true,
            WorkloadType::Vm if stored.service.is_some() => {
                let is_named = lb.name == stored.name || lb.names_address || !lb.is_readable;
                (is_named || stored.record.is_some()) && is_owner(stored.service, lb.uid)
            }
            WorkloadType::Vm => {
                stored.record.is_some()
                    && (lb.names_address || wish.names_record || !lb.is_readable)
                    && wish.slice.is_some_and(|slice| is_of(slice, stored.name))
            }
            WorkloadType::Cluster => lb.names_address || wish.names_record,
        }
}

/// Whether an EndpointSlice is one of the Service of this name.
fn is_of(slice: &EndpointSlice, service: &str) -> bool {
    service_of(slice) == Some(service)
}

/// Whether the load balancer of this uid owns a Service.
pub fn is_owner(service: Option<&Service>, uid: &str) -> bool {
    let owners = service.map(|service| service.metadata.owner_references.iter().flatten());
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| is_lb(owner) && owner.uid == uid)
}

/// The group as it is: those that share the address now count as its members.
fn group<'a>(stored: &Stored<'a>) -> Group<'a> {
    let of = |is_primary: bool| {
        let all = stored.lbs.iter();
        all.filter(move |wish| (wish.candidate.name == stored.name) == is_primary)
    };
    Group {
        primary: of(true).next().map(|wish| wish.candidate.clone()),
        members: of(false)
            .filter(|wish| is_present(stored, wish))
            .map(|wish| wish.candidate.clone())
            .collect(),
        pool: stored.record.map(|held| held.pool),
        is_ipv6: stored.record.is_some_and(|held| held.is_ipv6),
    }
}

/// The ports that a load balancer has: those that the Service carries for it. While there is none, as somebody has deleted it or it is
/// made anew for another address (REL-4), the next one is to carry the same: its EndpointSlice names them. Of a primary the names may be
/// those of its listeners, whatever they are.
fn served(stored: &Stored<'_>, wish: &Wish<'_>) -> BTreeSet<Served> {
    if stored.service.is_some() {
        return carried(stored.service, wish.slice);
    }
    let secondary = wish.slice.filter(|_| wish.candidate.name != stored.name);
    let names = slice_names(stored.name, secondary).into_iter();
    names.filter_map(naming::port_of).collect()
}

/// The ports that a Service carries for the load balancer of an EndpointSlice: those whose names both have.
pub fn carried(service: Option<&Service>, slice: Option<&EndpointSlice>) -> BTreeSet<Served> {
    let (Some(service), Some(slice)) = (service, slice) else {
        return BTreeSet::new();
    };
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let names = slice_names(name, Some(slice));
    let ports = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    let ports = ports.filter(|port| names.contains(port.name.as_deref().unwrap_or_default()));
    ports
        .filter_map(|port| {
            Some(Served {
                port: u16::try_from(port.port).ok()?,
                protocol: protocol(port.protocol.as_deref().unwrap_or("TCP"))?,
            })
        })
        .collect()
}

/// The names of the ports of an EndpointSlice, if it is one of this Service.
pub fn slice_names<'a>(service: &str, slice: Option<&'a EndpointSlice>) -> BTreeSet<&'a str> {
    let ports = slice
        .filter(|slice| is_of(slice, service))
        .and_then(|slice| slice.ports.as_ref());
    let ports = ports.into_iter().flatten();
    ports
        .map(|port| port.name.as_deref().unwrap_or_default())
        .collect()
}

/// The ports of a load balancer that its EndpointSlice has under their names in a shared Service.
fn offered(group: &str, wish: &Wish<'_>) -> BTreeSet<Served> {
    let names = slice_names(group, wish.slice);
    let its = wish.ports.iter().flatten().copied();
    its.filter(|port| names.contains(&*shared_name(*port)))
        .collect()
}

/// The ports in the EndpointSlices of those whose specs are refused, and the names of these load balancers: nothing is taken off such an
/// EndpointSlice, so that nobody else can be served there, whether the Service carries the port or not (BE-6).
fn kept<'a>(stored: &Stored<'a>, accepted: &[&Wish<'a>]) -> BTreeMap<Served, &'a str> {
    let refused = accepted.iter().filter(|it| it.ports.is_none());
    let ports = refused.flat_map(|it| {
        let names = slice_names(stored.name, it.slice).into_iter();
        names.map(|name| (naming::port_of(name), it.candidate.name))
    });
    ports.filter_map(|(port, lb)| Some((port?, lb))).collect()
}

/// The ports of a Service.
fn service_ports(service: Option<&Service>) -> BTreeSet<Served> {
    targets(service).into_keys().collect()
}

/// The same with their targets.
pub fn targets(service: Option<&Service>) -> BTreeMap<Served, IntOrString> {
    let spec = service.and_then(|service| service.spec.as_ref());
    let ports = spec
        .into_iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    let served = ports.filter_map(|port| {
        let served = Served {
            port: u16::try_from(port.port).ok()?,
            protocol: protocol(port.protocol.as_deref().unwrap_or("TCP"))?,
        };
        let target = port.target_port.clone();
        Some((served, target.unwrap_or(IntOrString::Int(port.port))))
    });
    served.collect()
}

/// A protocol that a Service can have.
fn protocol(text: &str) -> Option<&'static str> {
    PROTOCOLS.into_iter().find(|it| *it == text)
}

#[cfg(test)]
mod tests;
