//! Warnings about shared addresses: what another load balancer may cure (SHR-1, SHR-2, SHR-6, SHR-7), and who keeps the address of one
//! that is deleted (SHR-9). What only an edit of the load balancer itself cures is a violation. Pure.
//!
//! What is not known is not warned about: nothing is refused, or delayed beyond one live list, because of a warning.

use std::collections::BTreeMap;

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{Listener, LoadBalancer, WorkloadType, keys};

use crate::admission::facts::{Fact, Lookup, ValidationFacts};
use crate::admission::neighbours::Neighbours;
use crate::admission::request::{Operation, Request};
use crate::admission::response::{Denial, Warning};
use crate::cached::Lb;
use crate::sharing::group::Role;
use crate::sharing::membership::{self, Candidate, Group, NotAMember};
use crate::sharing::ports::Served;
use crate::sharing::telling;
use crate::status;
use crate::validation;
use crate::wording;

/// Most bytes of the name of the load balancer that a warning is about: so much is left for what the warning says of it. Only names of
/// cluster type are longer, or those in namespaces with long names.
const KEY_LIMIT: usize = 100;

/// Room for the number of those that the warnings about a deletion do not name, in bytes.
const ROOM_FOR_REST: usize = " and at least 1000000 more".len();

/// The warnings about a new or changed load balancer, of which no violation is known.
///
/// # Errors
/// [`Denial::NotReady`]: it asks for the address of another one, and the load balancers of its namespace are not read yet.
pub(super) fn warnings(
    request: &Request,
    lb: &LoadBalancer,
    facts: &impl ValidationFacts,
) -> Result<Vec<Warning>, Denial> {
    let mut warnings: Vec<Warning> = name_taken(request, facts).into_iter().collect();
    let Some(primary) = annotation(&lb.metadata, keys::ANNOTATION_PRIMARY) else {
        return Ok(warnings);
    };
    let Some(neighbours) = neighbours(request, facts)? else {
        return Ok(warnings);
    };
    match refusal(request, lb, primary, neighbours, facts) {
        // Which ports are free decides only once it may share the address.
        Some(why) if !matches!(why, NotAMember::NotFound(_)) => warnings.push(Warning::new(&why)),
        why => {
            warnings
                .extend(why.map(|why| Warning::new(&format!("{why}, and this one waits for it"))));
            warnings.extend(contested_ports(request, lb, primary, neighbours));
        }
    }
    Ok(warnings)
}

/// SHR-9: who keeps the address of a load balancer that is deleted. Its deletion is always allowed.
///
/// # Errors
/// [`Denial::NotReady`]: the load balancers of its namespace are not read yet.
pub(super) fn deletion(
    request: &Request,
    facts: &impl ValidationFacts,
) -> Result<Vec<Warning>, Denial> {
    let Some(neighbours) = neighbours(request, facts)? else {
        return Ok(Vec::new());
    };
    let names = neighbours.sharing(&request.name);
    let names: Vec<&str> = names.filter_map(|lb| lb.metadata.name.as_deref()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let key = request.key().to_string();
    let subject = format!(
        "LoadBalancer {}: those that share its address keep it: ",
        wording::shortened(&key, KEY_LIMIT)
    );
    Ok(naming(&subject, &names, neighbours.is_complete()))
}

/// Warnings that name all of these after the subject, as far as they have room, and say how many more there are. `is_all`: whether
/// there are no others.
fn naming(subject: &str, names: &[&str], is_all: bool) -> Vec<Warning> {
    let mut texts: Vec<String> = Vec::new();
    let mut named = 0;
    for name in names {
        // After the last one of all nothing is said.
        let is_end = is_all && named + 1 == names.len();
        let rest = if is_end { 0 } else { ROOM_FOR_REST };
        let has_room = |text: &str, separator: &str| {
            text.len() + separator.len() + name.len() + rest <= Warning::LIMIT
        };
        let number = texts.len();
        match texts.last_mut().filter(|text| has_room(text, ", ")) {
            Some(text) => text.extend([", ", name]),
            None if !has_room(subject, "") => continue,
            None if number < Warning::MOST => texts.push(format!("{subject}{name}")),
            None => break,
        }
        named += 1;
    }
    if texts.is_empty() {
        let least = if is_all { "" } else { "at least " };
        let plural = if names.len() == 1 { "" } else { "s" };
        let text = format!("{subject}{least}{} load balancer{plural}", names.len());
        return vec![Warning::new(&text)];
    }
    let rest = match (names.len() - named, is_all) {
        (0, true) => String::new(),
        (0, false) => " and maybe more".to_owned(),
        (more, true) => format!(" and {more} more"),
        (more, false) => format!(" and at least {more} more"),
    };
    if let Some(text) = texts.last_mut() {
        text.push_str(&rest);
    }
    texts.iter().map(Warning::new).collect()
}

/// The load balancers of the namespace; `None` if they cannot be read.
fn neighbours<'a>(
    request: &Request,
    facts: &'a impl ValidationFacts,
) -> Result<Option<&'a Neighbours>, Denial> {
    match facts.neighbours(&request.namespace) {
        Lookup::Found(neighbours) => Ok(Some(neighbours)),
        Lookup::NotFound | Lookup::Failed(_) => Ok(None),
        Lookup::Unread => {
            let fact = Fact::LoadBalancers(request.namespace.clone());
            Err(Denial::NotReady(fact))
        }
    }
}

/// SHR-6: a new load balancer of the name of a group that has outlived its primary.
fn name_taken(request: &Request, facts: &impl ValidationFacts) -> Option<Warning> {
    let is_taken =
        request.operation == Operation::Create && is_group(request, &request.name, facts)?;
    let (_, text) = telling::refusal(&request.name, &Role::NameTaken).filter(|_| is_taken)?;
    Some(Warning::new(&text))
}

/// Whether others hold the address of an earlier load balancer of this name (SHR-5); `None` if that is not known.
fn is_group(request: &Request, name: &str, facts: &impl ValidationFacts) -> Option<bool> {
    let allocated = facts.allocated().ok()?;
    Some(allocated.is_group(&request.namespace, name))
}

/// SHR-1, SHR-7: why it does not share the address for which it asks, as far as that is known.
fn refusal(
    request: &Request,
    lb: &LoadBalancer,
    primary: &str,
    neighbours: &Neighbours,
    facts: &impl ValidationFacts,
) -> Option<NotAMember> {
    let present = match neighbours.find(primary) {
        Some(Lb::Valid(lb)) => Some(&***lb),
        // Of one that cannot be decoded neither type nor pool are known.
        Some(Lb::Invalid(..)) => return None,
        None => None,
    };
    let members = neighbours.sharing(primary);
    let members: Vec<&LoadBalancer> = members.filter(|other| !is_same(request, other)).collect();
    let served = present.into_iter().chain(members.iter().copied());
    let address = served.clone().find_map(status::allocated_addr);
    let group = Group {
        primary: present.map(|lb| candidate(lb, neighbours)),
        pool: served.clone().find_map(pool_of_address),
        is_ipv6: address.is_some_and(|it| it.is_ipv6()),
        members: members.into_iter().map(Candidate::of).collect(),
    };
    let own = if request.operation == Operation::Create {
        // Those that name it share the address of an earlier one.
        Candidate::of(lb)
    } else {
        candidate(lb, neighbours)
    };
    let why = membership::join(&own, primary, &group).err()?;
    // A list that was cut may lack the primary, and a group may have outlived it.
    let is_known = !matches!(why, NotAMember::NotFound(_))
        || (neighbours.is_complete() && !is_group(request, primary, facts)?);
    is_known.then_some(why)
}

/// What counts of a stored load balancer.
fn candidate<'a>(lb: &'a LoadBalancer, neighbours: &'a Neighbours) -> Candidate<'a> {
    let candidate = Candidate::of(lb);
    Candidate {
        secondary: name_of(neighbours.sharing(candidate.name).next()),
        ..candidate
    }
}

/// The pool of the address in the status of a load balancer.
fn pool_of_address(lb: &LoadBalancer) -> Option<&str> {
    let allocated = lb.status.as_ref()?.allocated_address.as_ref()?;
    allocated.ip_pool.as_deref().filter(|it| !it.is_empty())
}

/// SHR-2: the listeners whose port the primary, or another load balancer that asks for the same address, has too.
fn contested_ports(
    request: &Request,
    lb: &LoadBalancer,
    primary: &str,
    neighbours: &Neighbours,
) -> Vec<Warning> {
    let others = neighbours.find(primary).and_then(Lb::as_valid);
    let others = others.into_iter().chain(neighbours.naming(primary));
    let others = others.filter(|other| {
        let is_gone = other.metadata.deletion_timestamp.is_some();
        !is_gone && !is_same(request, other) && membership::fault_of(other).is_none()
    });
    let mut holders: BTreeMap<Served, &str> = BTreeMap::new();
    for other in others {
        let name = name_of(Some(other)).unwrap_or_default();
        for (_, port) in ports(other) {
            holders.entry(port).or_insert(name);
        }
    }
    let contested = ports(lb).filter_map(|(index, port)| Some((index, port, holders.get(&port)?)));
    let told = contested.map(|(index, port, holder)| {
        let Served { port, protocol } = port;
        Warning::new(&format!(
            "spec.listeners[{index}].port is {protocol} {port}, which load balancer {holder} has on the same address: the one that does not get it serves none of its ports"
        ))
    });
    Warning::most(told)
}

/// The ports of a load balancer of VM type, each with the index of its listener. Those of cluster type are up to the guest (SHR-8).
fn ports(lb: &LoadBalancer) -> impl Iterator<Item = (usize, Served)> {
    let is_vm_type = lb.spec.workload() == WorkloadType::Vm;
    let listeners = lb.spec.listeners.as_deref().unwrap_or_default();
    let listeners = listeners.iter().enumerate().filter(move |_| is_vm_type);
    let served = |index, listener: &Listener| {
        Some(Served {
            port: validation::port(index, "port", listener.port).ok()?,
            protocol: validation::protocol(index, &listener.protocol).ok()?,
        })
    };
    listeners.filter_map(move |(index, listener)| Some((index, served(index, listener)?)))
}

/// Whether a load balancer of the namespace is the one under review, as it is stored.
fn is_same(request: &Request, other: &LoadBalancer) -> bool {
    other.metadata.name.as_deref() == Some(&*request.name)
}

fn name_of(lb: Option<&LoadBalancer>) -> Option<&str> {
    lb?.metadata.name.as_deref()
}

#[cfg(test)]
mod tests;
