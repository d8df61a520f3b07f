//! The state of a group: who shares its address, who owns the record, and who is refused and why (SHR-1, SHR-2, SHR-5 to SHR-7). A
//! function of the stored objects, so that every process decides alike, whatever was interrupted.

use std::collections::{BTreeMap, BTreeSet};

use harvester_lb_api::WorkloadType;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::membership::{self, Candidate, Group, HeldBy, NotAMember};
use super::ports::{self, Claimant, Contested, Served};
use crate::cached::is_lb;

/// A load balancer of the group's name, or one that names the group.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// What counts of it.
    pub candidate: Candidate<'a>,
    /// Its ports.
    pub ports: BTreeSet<Served>,
    /// Its EndpointSlice.
    pub slice: Option<&'a EndpointSlice>,
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
    /// The owner and the pool of its address, if it has one.
    pub record: Option<(HeldBy<'a>, &'a str)>,
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
    let group = group(stored);
    let held_by = stored
        .record
        .map_or(HeldBy { name: "", uid: "" }, |it| it.0);
    let is_held = stored.record.is_some();
    let mut roles = BTreeMap::new();
    let mut accepted = Vec::new();
    for wish in &stored.lbs {
        let lb = &wish.candidate;
        let role = if lb.name == stored.name {
            let taken = is_held && membership::is_name_taken(lb, &group, held_by);
            taken.then_some(Role::NameTaken)
        } else {
            membership::join(lb, stored.name, &group)
                .err()
                .map(Role::Refused)
        };
        match role {
            Some(role) => {
                roles.insert(lb.name.to_owned(), role);
            }
            None => accepted.push(wish),
        }
    }
    let claimants: Vec<Claimant> = accepted
        .iter()
        .map(|wish| Claimant {
            name: wish.candidate.name.to_owned(),
            is_primary: wish.candidate.name == stored.name,
            created: wish.candidate.created,
            ports: wish.ports.clone(),
            carried: carried(stored.service, wish.slice),
        })
        .collect();
    let lost = ports::settle(&claimants);
    let mut members: Vec<&Candidate<'_>> = Vec::new();
    for (wish, lost) in accepted.iter().zip(lost) {
        match lost {
            Some(contested) => {
                let name = wish.candidate.name.to_owned();
                roles.insert(name, Role::PortConflict(contested));
            }
            None => members.push(&wish.candidate),
        }
    }
    let holder = membership::holder(stored.name, &members).map(|it| it.name);
    for member in &members {
        let is_holder = holder == Some(member.name);
        roles.insert(member.name.to_owned(), Role::Member { is_holder });
    }
    roles
}

/// The group as it is: those that share the address now count as its members.
fn group<'a>(stored: &Stored<'a>) -> Group<'a> {
    let owners: BTreeSet<&str> = stored
        .service
        .into_iter()
        .flat_map(|service| service.metadata.owner_references.iter().flatten())
        .filter(|owner| is_lb(owner))
        .map(|owner| &*owner.uid)
        .collect();
    let is_present = |lb: &Candidate<'_>| {
        let holds = stored.record.is_some_and(|(held, _)| held.uid == lb.uid);
        match lb.workload {
            WorkloadType::Vm => holds || owners.contains(lb.uid),
            // There is no Service.
            WorkloadType::Cluster => holds || (stored.record.is_some() && lb.names_address),
        }
    };
    let of = |is_primary: bool| {
        let all = stored.lbs.iter().map(|wish| &wish.candidate);
        all.filter(move |lb| (lb.name == stored.name) == is_primary)
    };
    Group {
        primary: of(true).next().cloned(),
        members: of(false).filter(|lb| is_present(lb)).cloned().collect(),
        pool: stored.record.map(|it| it.1),
    }
}

/// The ports that a Service carries for the load balancer of an EndpointSlice: those whose names both have.
pub fn carried(service: Option<&Service>, slice: Option<&EndpointSlice>) -> BTreeSet<Served> {
    let (Some(service), Some(slice)) = (service, slice) else {
        return BTreeSet::new();
    };
    let service_name = service.metadata.name.as_deref();
    let labels = slice.metadata.labels.as_ref();
    let of = labels.and_then(|labels| labels.get(harvester_lb_api::keys::LABEL_SERVICE_NAME));
    if of.map(String::as_str) != service_name {
        return BTreeSet::new();
    }
    let names: BTreeSet<&str> = slice
        .ports
        .iter()
        .flatten()
        .map(|port| port.name.as_deref().unwrap_or_default())
        .collect();
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

/// A protocol that a Service can have.
fn protocol(text: &str) -> Option<&'static str> {
    ["TCP", "UDP", "SCTP"].into_iter().find(|it| *it == text)
}

#[cfg(test)]
mod tests;
