//! What a later version of this program has made, or is asked for, and this one cannot do (IPA-9): a requested address, an
//! address that several load balancers share, leases of its own, exclusions. One place answers what is not ours to touch.
//!
//! It is told from objects alone, so that each process comes to the same answer, and what it means is: nothing of such a
//! load balancer is made, changed or released, the readiness of its endpoints and its condition apart (decision 0011).

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

/// Annotations by which a load balancer asks for what this version lacks; present with any value.
const OF_LOAD_BALANCERS: [&str; 3] = [
    keys::ANNOTATION_REQUESTED_ADDRESS,
    keys::ANNOTATION_PRIMARY,
    keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
];

/// Why a load balancer is not this version's to touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// It asks by an annotation: its key and value.
    Annotation(&'static str, String),
    /// It has a lease: the name of the IPAllocation.
    Lease(String),
    /// It has a part in a Service that belongs to several: the Service's name.
    SharedService(String),
    /// Others name it as the one whose address they share, and the address of an earlier one of its name is still held.
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

/// The annotation by which a pool asks for what this version lacks. A list without entries excludes nothing (EXC-1).
pub fn of_pool(meta: &ObjectMeta) -> Option<&'static str> {
    let list = annotation(meta, keys::ANNOTATION_EXCLUDE)?;
    let is_empty = list.split(',').all(|entry| entry.trim().is_empty());
    (!is_empty).then_some(keys::ANNOTATION_EXCLUDE)
}

/// Whether the address in a load balancer's status may be another's that it shares, and so is no claim of its own.
pub fn shares(meta: &ObjectMeta) -> bool {
    annotation(meta, keys::ANNOTATION_PRIMARY).is_some()
}

/// Whether a Service is that of a shared address.
fn is_shared(meta: &ObjectMeta) -> bool {
    desired::ownership(meta, meta.name.as_deref().unwrap_or_default()) == Ownership::Shared
}

/// Which keys belong to which others, and the other way round.
#[derive(Debug, Default)]
struct Links {
    to: BTreeMap<Key, BTreeSet<Key>>,
    from: BTreeMap<Key, BTreeSet<Key>>,
}

impl Links {
    /// Links a key to these and no others. Answers those that it was linked to before or is now, if that is a change.
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

/// Whom a change of what is not this version's to touch may concern.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// These load balancers.
    pub lbs: BTreeSet<Key>,
    /// Whoever holds one of these addresses, which are no longer named or shown as shared.
    pub addrs: BTreeSet<IpAddr>,
}

/// Addresses that keys name.
#[derive(Debug, Default)]
struct Named {
    by_key: BTreeMap<Key, BTreeSet<IpAddr>>,
    by_addr: BTreeMap<IpAddr, BTreeSet<Key>>,
}

impl Named {
    /// A key names these and no others. Answers those that it named before and does not any more.
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

/// All of it that there is, from the newest copies. Empty on most clusters.
#[derive(Debug, Default)]
pub struct Index {
    /// A load balancer to the one that it names as its primary.
    primaries: Links,
    /// A Service that belongs to several load balancers to these, and to the one of its name.
    services: Links,
    /// What statuses of those that name a primary, and Services that are shared, say of addresses.
    named: Named,
    shown: Named,
    /// Uids of load balancers that have a lease.
    leases: BTreeSet<String>,
}

impl Index {
    /// Takes in a load balancer as it is now, or that it is gone. Answers others whom that may concern.
    pub fn set_lb(&mut self, key: &Key, lb: Option<&Lb>) -> Concerned {
        let primary = lb.and_then(|lb| annotation(lb.meta(), keys::ANNOTATION_PRIMARY));
        let addr = match lb {
            Some(Lb::Valid(lb)) if primary.is_some() => spec::request(lb).status.map(|it| it.addr),
            _ => None,
        };
        let addrs = self.named.set(key, addr.into_iter().collect());
        let to = primary.map(|name| Key::new(&key.namespace, name));
        let lbs = self.primaries.set(key, to.into_iter().collect());
        Concerned { lbs, addrs }
    }

    /// Takes in a Service as it is now, or that it is gone. Answers the load balancers whom that may concern.
    pub fn set_service(&mut self, key: &Key, service: Option<&Service>) -> Concerned {
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
        Concerned { lbs, addrs }
    }

    /// Takes in that an IPAllocation is there or gone. Answers the uid of the load balancer whom that concerns.
    pub fn set_record<'a>(&mut self, name: &'a str, present: bool) -> Option<&'a str> {
        let uid = name.strip_prefix(keys::LEASE_RECORD_PREFIX)?;
        let news = if present {
            self.leases.insert(uid.to_owned())
        } else {
            self.leases.remove(uid)
        };
        news.then_some(uid)
    }

    /// Why a load balancer, living or just gone, is not this version's to touch; `None` if it is.
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
        // To take the address over as that of an earlier one of the name (ALC-1) would take it from those that share it.
        let owner = spec::owner(meta);
        let bound = ledger.records_of(&owner.id).into_iter();
        let mut uids = bound
            .filter(|record| record.spec.phase == Phase::Bound)
            .map(|record| record.spec.owner.uid)
            .peekable();
        let taken_over = uids.peek().is_some() && uids.all(|uid| uid != owner.uid);
        taken_over.then_some(Unsupported::SharedName)
    }

    /// The Service, shared by several, that a load balancer of this name has a part in.
    pub fn shared_service(&self, key: &Key) -> Option<&Key> {
        self.services.from.get(key)?.first()
    }

    /// Whether somebody who lives may share the address of a record that its owner has no more use for: those of the
    /// owner's namespace who have a part in its Service, or name it or its address as what they share. Such a record is not
    /// released, as a version that knows of shared addresses hands it over (SHR-5).
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
