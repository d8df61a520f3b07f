//! Features of later versions that this version lacks (IPA-9): shared addresses, built-in DHCP leases.
//! This module alone decides which objects the operator leaves alone because of them.
//!
//! The decision depends on the objects only, so every process decides alike. Of such a load balancer nothing is created,
//! changed or released, except the readiness of its endpoints and its conditions (decision 0011).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use harvester_lb_api::keys;
use harvester_lb_api::meta::annotation;
use harvester_lb_ipam::{Ledger, Phase, Record};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::{self, Lb};
use crate::desired::{self, Ownership};
use crate::spec;

/// Annotations of a load balancer that request a missing feature, with any value. Those of kube-vip (KVA-1) are not among
/// them: they are ignored, and the load balancer is served.
const OF_LOAD_BALANCERS: [&str; 2] = [
    keys::ANNOTATION_PRIMARY,
    keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
];

/// Why this version leaves a load balancer alone (IPA-9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// It has this annotation: key and value.
    Annotation(&'static str, String),
    /// It has a DHCP lease: the name of the IPAllocation.
    Lease(String),
    /// It is one of several owners of a Service, or has the Service's name: the Service's namespace and name.
    SharedService(String),
    /// Other load balancers name it as their primary, and the address of an earlier load balancer of its name is bound.
    SharedName,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key, value) => write!(
                f,
                "this version does not support the annotation {key} (its value is {value:?})"
            ),
            Self::Lease(record) => write!(
                f,
                "this version does not support the lease of IPAllocation {record}"
            ),
            Self::SharedService(service) => write!(
                f,
                "this version does not support shared addresses, and Service {service} belongs to several load balancers"
            ),
            Self::SharedName => write!(
                f,
                "this version does not support shared addresses, and other load balancers share the address of an earlier one of this name (annotation {})",
                keys::ANNOTATION_PRIMARY
            ),
        }?;
        f.write_str("; nothing of the load balancer is created, changed or released")
    }
}

/// Whether a load balancer names a primary. The address in its status may then be the primary's and is no claim (IPA-1,
/// IPA-2).
pub fn names_primary(meta: &ObjectMeta) -> bool {
    annotation(meta, keys::ANNOTATION_PRIMARY).is_some()
}

/// Whether several load balancers own a Service, or one of another name.
pub fn is_shared(meta: &ObjectMeta) -> bool {
    desired::ownership(meta, meta.name.as_deref().unwrap_or_default()) == Ownership::Shared
}

/// Two-way index of links between keys.
#[derive(Debug, Default)]
struct KeyLinks {
    to: BTreeMap<Key, BTreeSet<Key>>,
    from: BTreeMap<Key, BTreeSet<Key>>,
}

impl KeyLinks {
    /// Replaces the links of a key. Returns the old and the new ones together if they differ, else nothing.
    fn set(&mut self, key: &Key, to: BTreeSet<Key>) -> BTreeSet<Key> {
        let before = self.to.get(key).cloned().unwrap_or_default();
        if before == to {
            return BTreeSet::new();
        }
        for other in before.difference(&to) {
            if let Some(from) = self.from.get_mut(other) {
                from.remove(key);
                if from.is_empty() {
                    self.from.remove(other);
                }
            }
        }
        for other in to.difference(&before) {
            let from = self.from.entry(other.clone()).or_default();
            from.insert(key.clone());
        }
        let all = before.union(&to).cloned().collect();
        if to.is_empty() {
            self.to.remove(key);
        } else {
            self.to.insert(key.clone(), to);
        }
        all
    }
}

/// The load balancers that an update of the [`Index`] may affect; the caller queues them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// These load balancers.
    pub lbs: BTreeSet<Key>,
    /// The owners of the IPAllocations of these addresses, which are no longer shared.
    pub addrs: BTreeSet<IpAddr>,
}

/// Two-way index between keys and addresses.
#[derive(Debug, Default)]
struct AddressesByKey {
    by_key: BTreeMap<Key, BTreeSet<IpAddr>>,
    by_addr: BTreeMap<IpAddr, BTreeSet<Key>>,
}

impl AddressesByKey {
    /// Replaces the addresses of a key. Returns those that it no longer has.
    fn set(&mut self, key: &Key, addrs: BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let before = self.by_key.remove(key).unwrap_or_default();
        for addr in &before {
            if let Some(keys) = self.by_addr.get_mut(addr) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_addr.remove(addr);
                }
            }
        }
        for addr in &addrs {
            self.by_addr.entry(*addr).or_default().insert(key.clone());
        }
        let left = before.difference(&addrs).copied().collect();
        if !addrs.is_empty() {
            self.by_key.insert(key.clone(), addrs);
        }
        left
    }

    fn in_namespace(&self, addr: IpAddr, namespace: &str) -> bool {
        let keys = self.by_addr.get(&addr).into_iter().flatten();
        keys.into_iter().any(|key| *key.namespace == *namespace)
    }
}

/// Index of the objects that use a missing feature (IPA-9), updated from the watches. Empty on most clusters.
#[derive(Debug, Default)]
pub struct Index {
    /// From a load balancer to its primary.
    primaries: KeyLinks,
    /// From a shared Service to its owners, and to the load balancer of its name.
    services: KeyLinks,
    /// Addresses in the status of load balancers that name a primary.
    named: AddressesByKey,
    /// Addresses of shared Services.
    shown: AddressesByKey,
    /// Uids of load balancers with a DHCP lease.
    leases: BTreeSet<String>,
}

impl Index {
    /// Updates a load balancer; `None` when it is deleted. Returns the others that may be affected.
    pub fn set_lb(&mut self, key: &Key, lb: Option<&Lb>) -> Affected {
        let primary = lb.and_then(|lb| annotation(lb.meta(), keys::ANNOTATION_PRIMARY));
        let addr = match lb {
            Some(Lb::Valid(lb)) if primary.is_some() => spec::request(lb).status.map(|it| it.addr),
            _ => None,
        };
        let addrs = self.named.set(key, addr.into_iter().collect());
        let to = primary.map(|name| Key::new(&key.namespace, name));
        let lbs = self.primaries.set(key, to.into_iter().collect());
        Affected { lbs, addrs }
    }

    /// Updates a Service; `None` when it is deleted. Returns the load balancers that may be affected.
    pub fn set_service(&mut self, key: &Key, service: Option<&Service>) -> Affected {
        let shared = service.filter(|service| is_shared(&service.metadata));
        let addrs = shared.map(cached::shown_addresses).unwrap_or_default();
        let addrs = self.shown.set(key, addrs.into_iter().collect());
        let owners = shared.into_iter().flat_map(|service| {
            let owners = service.metadata.owner_references.iter().flatten();
            owners.filter(|owner| cached::is_lb(owner))
        });
        let mut to: BTreeSet<Key> = owners
            .map(|owner| Key::new(&key.namespace, &*owner.name))
            .collect();
        if !to.is_empty() {
            to.insert(key.clone());
        }
        let lbs = self.services.set(key, to);
        Affected { lbs, addrs }
    }

    /// Updates whether the IPAllocation of this name exists. Returns the uid of the affected load balancer, if it is a new or
    /// deleted DHCP lease.
    pub fn set_record<'a>(&mut self, name: &'a str, present: bool) -> Option<&'a str> {
        let uid = name.strip_prefix(keys::LEASE_RECORD_PREFIX)?;
        let news = if present {
            self.leases.insert(uid.to_owned())
        } else {
            self.leases.remove(uid)
        };
        news.then_some(uid)
    }

    /// Why this version leaves a load balancer, existing or just deleted, alone; `None` if it does not (IPA-9).
    pub fn of_lb(&self, ledger: &Ledger, key: &Key, meta: &ObjectMeta) -> Option<Unsupported> {
        let asked = OF_LOAD_BALANCERS
            .iter()
            .find_map(|name| annotation(meta, name).map(|value| (*name, value.to_owned())));
        if let Some((name, value)) = asked {
            return Some(Unsupported::Annotation(name, value));
        }
        let uid = meta.uid.as_deref().unwrap_or_default();
        if self.leases.contains(uid) {
            let record = format!("{}{uid}", keys::LEASE_RECORD_PREFIX);
            return Some(Unsupported::Lease(record));
        }
        if let Some(service) = self.shared_service(key) {
            return Some(Unsupported::SharedService(service.to_string()));
        }
        if !self.primaries.from.contains_key(key) {
            return None;
        }
        // Taking over the record of an earlier load balancer of the name (ALC-1) would take it from those that share it.
        let owner = spec::owner(meta);
        let bound = ledger.records_of(&owner.id).into_iter();
        let mut uids = bound
            .filter(|record| record.spec.phase == Phase::Bound)
            .map(|record| record.spec.owner.uid)
            .peekable();
        let taken_over = uids.peek().is_some() && uids.all(|uid| uid != owner.uid);
        taken_over.then_some(Unsupported::SharedName)
    }

    /// The shared Service that a load balancer of this key owns or gives its name to; the first of several (IPA-9).
    pub fn shared_service(&self, key: &Key) -> Option<&Key> {
        self.services.from.get(key)?.first()
    }

    /// Whether an existing load balancer may share the address of a record: one of the owner's namespace that co-owns its
    /// Service, names the owner as its primary, or has the address in its status or shared Service. Such a record is not
    /// released, because a version with shared addresses hands it over (SHR-5).
    pub fn shares_record(&self, record: &Record) -> bool {
        let owner = cached::key(&record.spec.owner.id);
        let addr = record.spec.addr;
        self.shared_service(&owner).is_some()
            || self.primaries.from.contains_key(&owner)
            || self.named.in_namespace(addr, &owner.namespace)
            || self.shown.in_namespace(addr, &owner.namespace)
    }
}

#[cfg(test)]
mod tests;
