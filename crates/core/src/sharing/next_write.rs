//! What the next write of the Service of a group changes: all that is to change, or a piece of it, after the API server has refused
//! more (SHR-3).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;

use super::refusals::{Change, What};
use super::service::{Others, Owners, Part, ServedPrimary, assemble};
use crate::desired::DesiredPort;

/// What becomes of the Service of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextWrite<T> {
    /// This write, which does these changes.
    Some(T, Vec<Change>),
    /// None: it has everything but these changes, which were refused and are not due.
    Settled(Vec<Change>),
    /// None: the rest was refused, and is not due.
    Wait,
}

/// The address and the annotations for kube-vip that a Service gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Those that it has.
    Present,
    /// Those that it is to have.
    Desired,
}

/// The Service of a group, as it is and as it is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The primary, if it is served.
    pub primary: ServedPrimary<'a>,
    /// The others.
    pub others: &'a Others,
    /// The Service; `None` if there is none.
    pub present: Option<&'a Service>,
    /// See [`What::Fields`]; `None` if they do not change.
    pub fields: Option<&'a str>,
}

impl Wanted<'_> {
    /// The owners and ports of the Service once what is to change for these load balancers has changed, and the rest. `changes`: whether
    /// the load balancer of this name is one of them.
    fn with(&self, changes: impl Fn(&str) -> bool) -> (Owners, Vec<DesiredPort>) {
        assemble(self.primary, self.others, self.present, changes)
    }

    /// Name and uid of the one whose address the Service has.
    fn whose(&self) -> Option<(String, String)> {
        let own = self.primary.map(|(part, _)| part.owner());
        own.or_else(|| self.others.holder.clone())
    }

    /// What can be changed now: address and annotations, the ports of the primary, then those of the others by age. `all`: the ports with all
    /// of that.
    fn pending(&self, all: &[DesiredPort]) -> Vec<Change> {
        let spec = self.present.and_then(|service| service.spec.as_ref());
        let has = spec.and_then(|spec| spec.ports.as_ref());
        let has = has.into_iter().flatten().filter_map(DesiredPort::stored);
        let has: Vec<DesiredPort> = has.collect();
        let is_new = |port: &DesiredPort| {
            let mut same = has.iter().filter(|it| it.served() == port.served());
            same.all(|it| it.target != port.target)
        };
        let fields = self.fields.zip(self.whose());
        let fields = fields.map(|(fields, (name, uid))| Change {
            name,
            uid,
            what: What::Fields(fields.to_owned()),
        });
        let ports = |part: &Part, its: &mut dyn Iterator<Item = &DesiredPort>| {
            let its = its.filter(|it| all.contains(it) && is_new(it));
            let its: Vec<DesiredPort> = its.cloned().collect();
            (!its.is_empty()).then(|| Change {
                name: part.name.clone(),
                uid: part.uid.clone(),
                what: What::Ports(its),
            })
        };
        let own = self
            .primary
            .and_then(|(part, its)| ports(part, &mut its.iter()));
        let theirs = self.others.secondaries.iter();
        let theirs = theirs.filter_map(|it| ports(it, &mut it.carried.iter().chain(&it.added)));
        fields.into_iter().chain(own).chain(theirs).collect()
    }

    /// Why the API server refuses what is to change for the primary besides what is tried now; `None` if nothing is, or it is not refused.
    pub fn refused_of_primary(&self, tried: &[Change]) -> Option<String> {
        let (refusals, _) = self.others.refusals.as_deref()?;
        let (part, _) = self.primary?;
        let (_, all) = self.with(|_| true);
        let pending = self.pending(&all);
        let is_left = |it: &&Change| it.uid == part.uid && !tried.contains(it);
        let mut own = pending.iter().filter(is_left);
        let why = own.find_map(|it| refusals.why_not(it));
        why.map(str::to_owned)
    }

    /// Chooses the next write. `write`: that of a Service with these owners, ports and fields; `None` if the present one has them.
    pub fn next_write<T>(
        &self,
        write: impl Fn(&[(String, String)], &[DesiredPort], Fields) -> Option<T>,
    ) -> NextWrite<T> {
        let write = |(owners, ports): (Owners, Vec<DesiredPort>), fields| {
            let is_possible = !owners.is_empty() && !ports.is_empty();
            is_possible
                .then(|| write(&owners, &ports, fields))
                .flatten()
        };
        let (owners, all) = self.with(|_| true);
        let pending = self.pending(&all);
        let refusals = self.others.refusals.as_deref();
        let Some((refusals, now)) = refusals.filter(|(it, _)| !it.is_empty()) else {
            return match write((owners, all), Fields::Desired) {
                Some(it) => NextWrite::Some(it, pending),
                None => NextWrite::Settled(Vec::new()),
            };
        };
        let changing = |chosen: &[&Change]| {
            let of_ports = chosen.iter().filter(|it| matches!(it.what, What::Ports(_)));
            let names: BTreeSet<&str> = of_ports.map(|it| &*it.name).collect();
            let is_left_out =
                |it: &Change| matches!(it.what, What::Fields(_)) && !chosen.contains(&it);
            let fields = if pending.iter().any(is_left_out) {
                Fields::Present
            } else {
                Fields::Desired
            };
            write(self.with(|name| names.contains(name)), fields)
        };
        match changing(&[]) {
            Some(rest) if refusals.may_write_rest(*now) => {
                return NextWrite::Some(rest, Vec::new());
            }
            Some(_) => return NextWrite::Wait,
            None => {}
        }
        let chosen = refusals.next(&pending, *now);
        match changing(&chosen) {
            Some(it) => NextWrite::Some(it, chosen.into_iter().cloned().collect()),
            None => NextWrite::Settled(pending),
        }
    }
}

#[cfg(test)]
mod tests;
