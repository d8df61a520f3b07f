//! The stored objects of a group, and what follows from them: the role of each load balancer, and the ports and owners of the
//! Service (SHR-2 to SHR-7).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::condition::{self, READY};
use harvester_lb_ipam::{Record, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::group::{self, Held, Role, Stored, Wish};
use super::membership::{Candidate, HeldBy};
use super::ports::Served;
use super::refusals::Refusals;
use super::{telling, told};
use crate::cached::{self, Lb};
use crate::spec::{self, Port};
use crate::status::{self, allocated, allocated_addr};

/// A load balancer of a group, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Party<'a> {
    /// Its copy.
    pub lb: &'a Lb,
    /// Its EndpointSlice.
    pub slice: Option<&'a EndpointSlice>,
    /// A load balancer that shares its own address, if any (SHR-7).
    pub secondary: Option<&'a str>,
    /// This version leaves it alone (IPA-9).
    pub is_left_alone: bool,
    /// The group has no Bound record, and the address that its status names has one.
    pub names_others: bool,
}

/// The stored objects of a group.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// Namespace and name of the group, which are those of its Service and of its primary.
    pub key: &'a Key,
    /// The primary, if it exists, and all that name it.
    parties: Vec<(Party<'a>, Option<Vec<Port>>)>,
    /// The Service, if it is ours and can be decoded.
    pub service: Option<&'a Service>,
    /// The record of the address, if there is one, but not one that [is left](group::is_left).
    pub record: Option<&'a Record>,
    /// The role of each load balancer, by name.
    pub roles: BTreeMap<String, Role>,
    /// See [`group::is_left`]. Then nobody shares an address, or is to own the record.
    pub is_left: bool,
    /// See [`group::is_unnamed`]. Then nobody joins.
    pub is_unnamed: bool,
    /// EndpointSlices of the Service that are none of the parties': of load balancers that have left it, or are gone.
    pub left: Vec<&'a EndpointSlice>,
    /// Names of ports that load balancers are about to write into their EndpointSlices, each with the name of the load balancer.
    pub offers: Vec<(String, String)>,
    /// What the API server refuses of the Service, and the present time on that clock.
    pub refusals: Option<Arc<(Refusals, Duration)>>,
}

impl<'a> Snapshot<'a> {
    /// Determines the roles. `records`: the Bound ones of the group. [`left`](Self::left), [`offers`](Self::offers) and
    /// [`refusals`](Self::refusals) are empty.
    pub fn of(
        key: &'a Key,
        parties: Vec<Party<'a>>,
        service: Option<&'a Service>,
        records: &'a [Record],
    ) -> Self {
        let record = main_record(key, &parties, service, records);
        let parties: Vec<_> = parties.into_iter().map(|it| (it, ports(&it))).collect();
        let uid = record.map(|it| it.spec.owner.uid.to_string());
        let held = record.zip(uid.as_deref()).map(|(record, uid)| {
            let name = record.spec.owner.id.name();
            Held {
                by: HeldBy { name, uid },
                pool: &record.spec.pool,
                is_ipv6: record.spec.addr.is_ipv6(),
            }
        });
        let wish = |(party, ports): &(Party<'a>, Option<Vec<Port>>)| Wish {
            candidate: candidate(*party, &key.name, record),
            ports: ports.as_ref().map(|all| all.iter().map(served).collect()),
            slice: party.slice,
            is_told: ports.is_some() && is_told(party, &key.name, records),
            names_record: names_record(party, records),
        };
        let stored = Stored {
            name: &key.name,
            lbs: parties.iter().map(wish).collect(),
            service,
            record: held,
        };
        let roles = group::roles(&stored);
        let (is_left, is_unnamed) = (group::is_left(&stored, &roles), group::is_unnamed(&stored));
        Self {
            key,
            parties,
            service,
            record: record.filter(|_| !is_left),
            roles,
            is_left,
            is_unnamed,
            left: Vec::new(),
            offers: Vec::new(),
            refusals: None,
        }
    }

    /// The load balancers with their ports, as their specs have them; see [`Wish::ports`].
    pub fn parties(&self) -> impl Iterator<Item = (&Party<'a>, Option<&[Port]>)> {
        let all = self.parties.iter();
        all.map(|(party, ports)| (party, ports.as_deref()))
    }

    /// Why the Service lacks ports of a load balancer, or has them with another target, or not its address or annotations, as far as the API
    /// server refuses that.
    pub fn refusal(&self, name: &str) -> Option<&str> {
        let (refusals, _) = self.refusals.as_deref()?;
        let mut all = self.parties();
        let (party, ports) = all.find(|(it, _)| it.lb.meta().name.as_deref() == Some(name))?;
        let carried = group::carried(self.service, party.slice);
        let stored = group::targets(self.service);
        let is_there = |port: &Port| {
            let target = IntOrString::Int(i32::from(port.backend_port));
            carried.contains(&served(port)) && stored.get(&served(port)) == Some(&target)
        };
        let lacks = ports?.iter().filter(|port| !is_there(port));
        let lacks: Vec<Served> = lacks.map(served).collect();
        let uid = party.lb.meta().uid.as_deref().unwrap_or_default();
        let why = refusals.why(name, uid, &lacks);
        why.or_else(|| refusals.why_fields(name, uid))
    }

    /// The metadata of the load balancer of this name.
    pub fn meta(&self, name: &str) -> Option<&'a ObjectMeta> {
        let mut all = self.parties.iter().map(|(party, _)| party.lb.meta());
        all.find(|meta| meta.name.as_deref() == Some(name))
    }

    /// The load balancer that is to own the record (SHR-5).
    pub fn holder(&self) -> Option<&'a ObjectMeta> {
        let holder = group::holder(&self.key.name, &self.roles);
        self.meta(holder.filter(|_| !self.is_left)?)
    }

    /// The names of those that share the address, besides the primary.
    pub fn secondaries(&self) -> impl Iterator<Item = &str> {
        let all = self.roles.iter().filter(|_| !self.is_left);
        all.filter(|(name, role)| matches!(role, Role::Member { .. }) && ***name != *self.key.name)
            .map(|(name, _)| &**name)
    }
}

/// Whether the status of a load balancer says that it shares an address of which the group has the record. While the primary moves, it may
/// be told the former one (REL-4). One that waits until somebody else's Service of the group's name is gone keeps the address meanwhile, as
/// a load balancer alone does (SVC-1).
fn is_told(party: &Party<'_>, group: &str, records: &[Record]) -> bool {
    let Lb::Valid(lb) = party.lb else {
        return false;
    };
    // An EndpointSlice of its own name that is somebody else's keeps it from being served wherever it is.
    let ready = condition::find(status::conditions(lb), READY);
    let waits = telling::group_name_taken(group);
    let is_barred = ready.is_some_and(|it| {
        it.reason.as_deref() == Some(status::NAME_CONFLICT)
            && it.message.as_deref() != Some(&*waits)
    });
    !is_barred && telling::was_of(lb, group) && names_record(party, records)
}

/// Whether the status of a load balancer names an address of one of these records.
fn names_record(party: &Party<'_>, records: &[Record]) -> bool {
    let named = party.lb.as_valid().and_then(allocated_addr);
    named.is_some_and(|addr| records.iter().any(|record| record.spec.addr == addr))
}

/// Which of its records is that of the group's address, while it moves from one to another (REL-4): the one that the Service asks
/// for, else the one that the primary's status names, else one that was handed over (SHR-5), else one that another's status names, else the
/// lowest.
fn main_record<'a>(
    key: &Key,
    parties: &[Party<'_>],
    service: Option<&Service>,
    records: &'a [Record],
) -> Option<&'a Record> {
    let find = |text: Option<&str>| {
        let addr = addr::parse(text?)?;
        records.iter().find(|record| record.spec.addr == addr)
    };
    let asked = service.and_then(cached::asked_address);
    let primary = || {
        let mut all = parties.iter();
        all.find_map(|party| match party.lb {
            Lb::Valid(lb) if lb.metadata.name.as_deref() == Some(&*key.name) => Some(lb),
            _ => None,
        })
    };
    let passed_on = || {
        let passed = records.iter().filter(|record| record.spec.group.is_some());
        passed.min_by_key(|record| record.spec.addr)
    };
    find(asked)
        .or_else(|| find(allocated(primary()?)))
        .or_else(passed_on)
        .or_else(|| {
            let mut all = parties.iter().filter_map(|party| party.lb.as_valid());
            all.find_map(|lb| find(allocated(lb)))
        })
        .or_else(|| records.iter().min_by_key(|record| record.spec.addr))
}

/// The ports of a load balancer that takes part with those in its spec.
fn ports(party: &Party<'_>) -> Option<Vec<Port>> {
    let Lb::Valid(lb) = party.lb else {
        return None;
    };
    if party.is_left_alone || lb.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let checked = spec::check(lb).ok()?;
    Some(checked.vm.map_or_else(Vec::new, |vm| vm.ports))
}

/// Protocol and port of a listener.
pub fn served(port: &Port) -> Served {
    Served {
        port: port.port,
        protocol: port.protocol,
    }
}

/// What counts of a load balancer; of one that cannot be decoded only the metadata is known. Without a record, which was deleted by
/// hand, the status tells whose address it names (IPA-7).
fn candidate<'a>(party: Party<'a>, group: &str, record: Option<&Record>) -> Candidate<'a> {
    let candidate = match party.lb {
        Lb::Valid(lb) => Candidate::of(lb),
        Lb::Invalid(meta, _) => Candidate::of_meta(meta),
    };
    let names_address = match party.lb {
        Lb::Valid(lb) => match (allocated_addr(lb), record) {
            (Some(names), Some(record)) => names == record.spec.addr,
            (Some(_), None) if party.names_others => false,
            (Some(_), None) if candidate.name == group => !told::was_of_another(lb),
            (Some(_), None) => telling::was_of(lb, group),
            (None, _) => false,
        },
        Lb::Invalid(..) => false,
    };
    Candidate {
        secondary: party.secondary,
        names_address,
        ..candidate
    }
}

#[cfg(test)]
pub(super) mod tests;
