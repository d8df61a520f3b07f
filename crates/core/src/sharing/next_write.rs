//! What the next write of the Service of a group changes: all that is to change, or a piece of it, after the API server has refused
//! more (SHR-3).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;

use super::refusals::Adding;
use super::service::{Others, Owners, Part, ServedPrimary, assemble};
use crate::cached::is_lb;
use crate::desired::DesiredPort;

/// What becomes of the Service of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextWrite<T> {
    /// This write, which adds these ports.
    Some(T, Vec<Adding>),
    /// None: it has everything but ports that were refused and are not due.
    Settled,
    /// None: what is to change besides new ports was refused, and is not due.
    Wait,
}

/// Chooses the next write. `write`: that of a Service with these owners and ports; `None` if the present one has them.
pub fn next_write<T>(
    primary: ServedPrimary<'_>,
    others: &Others,
    present: Option<&Service>,
    write: impl Fn(&[(String, String)], &[DesiredPort]) -> Option<T>,
) -> NextWrite<T> {
    let write = |owners: &[_], ports: &[_]| {
        let is_possible = !owners.is_empty() && !ports.is_empty();
        is_possible.then(|| write(owners, ports)).flatten()
    };
    let (owners, all) = assemble(primary, others, present, |_| true);
    let pending = pending(primary, others, present, &all);
    let refusals = others.refusals.as_deref().filter(|(it, _)| !it.is_empty());
    let Some((refusals, now)) = refusals else {
        let step = write(&owners, &all);
        return step.map_or(NextWrite::Settled, |it| NextWrite::Some(it, pending));
    };
    let adding = |chosen: &[&Adding]| {
        let names: BTreeSet<&str> = chosen.iter().map(|it| &*it.name).collect();
        let (owners, ports) = assemble(primary, others, present, |name| names.contains(name));
        write(&owners, &ports)
    };
    match adding(&[]) {
        Some(rest) if refusals.may_write_rest(*now) => {
            return NextWrite::Some(rest, Vec::new());
        }
        Some(_) => return NextWrite::Wait,
        None => {}
    }
    let chosen = refusals.next(&pending, *now);
    match adding(&chosen) {
        Some(it) => NextWrite::Some(it, chosen.into_iter().cloned().collect()),
        None => NextWrite::Settled,
    }
}

/// The ports that can be added now, by load balancer: the primary's, then those of the others by age. `all`: those of the Service with all
/// of them.
fn pending(
    primary: ServedPrimary<'_>,
    others: &Others,
    present: Option<&Service>,
    all: &[DesiredPort],
) -> Vec<Adding> {
    let spec = present.and_then(|service| service.spec.as_ref());
    let has = spec.and_then(|spec| spec.ports.as_ref());
    let has = has.into_iter().flatten().filter_map(DesiredPort::stored);
    let has: Vec<_> = has.map(|port| port.served()).collect();
    let adding = |part: &Part, its: &[DesiredPort]| {
        let new = its.iter();
        let new = new.filter(|it| all.contains(it) && !has.contains(&it.served()));
        Adding {
            name: part.name.clone(),
            uid: part.uid.clone(),
            ports: new.cloned().collect(),
        }
    };
    let own = primary.into_iter().map(|(part, its)| adding(part, its));
    let theirs = others.secondaries.iter().map(|it| adding(it, &it.added));
    let each = own.chain(theirs);
    each.filter(|it| !it.ports.is_empty()).collect()
}

/// Why the API server refuses what is to change of the primary besides new ports; `None` if nothing is, or it is not refused. `write`:
/// see [`next_write`].
pub fn refused_of_primary<T>(
    primary: ServedPrimary<'_>,
    others: &Others,
    present: Option<&Service>,
    write: impl Fn(&[(String, String)], &[DesiredPort]) -> Option<T>,
) -> Option<String> {
    let (refusals, _) = others.refusals.as_deref()?;
    let why = refusals.why_rest()?;
    let ((part, its), present) = (primary?, present?);
    let own = |port: &DesiredPort| its.iter().find(|it| it.served() == port.served());
    let spec = present.spec.as_ref();
    let ports = spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports = ports.filter_map(DesiredPort::stored);
    let ports: Vec<DesiredPort> = ports.map(|it| own(&it).cloned().unwrap_or(it)).collect();
    let owners = present.metadata.owner_references.iter().flatten();
    let owners = owners.filter(|it| is_lb(it));
    let mut owners: Owners = owners.map(|it| (it.name.clone(), it.uid.clone())).collect();
    if owners.iter().all(|(_, uid)| *uid != part.uid) {
        owners.insert(0, part.owner());
    }
    write(&owners, &ports).map(|_| why.to_owned())
}

#[cfg(test)]
mod tests;
