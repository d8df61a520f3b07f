//! Which load balancers name which group, and which share an address, according to the objects (SHR-3). Empty on most clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use harvester_lb_api::keys;
use harvester_lb_api::meta::annotation;
use harvester_lb_ipam::Record;
use harvester_lb_object::{Key, is_dns_subdomain};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::told;
use crate::cached::{self, Lb};
use crate::status::allocated_addr;

/// Two-way index of links between keys.
#[derive(Debug, Default)]
struct KeyLinks {
    to: BTreeMap<Key, BTreeSet<Key>>,
    from: BTreeMap<Key, BTreeSet<Key>>,
}

impl KeyLinks {
    /// Replaces the links of a key. Returns those that it has lost or gained.
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
        let all = before.symmetric_difference(&to).cloned().collect();
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
    /// These load balancers, and groups.
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

    /// Whether a key of this namespace, other than that one, has an address.
    fn any_but(&self, addr: IpAddr, namespace: &str, but: &Key) -> bool {
        let mut keys = self.by_addr.get(&addr).into_iter().flatten();
        keys.any(|key| *key.namespace == *namespace && key != but)
    }
}

/// The index, updated from the watches.
#[derive(Debug, Default)]
pub struct Index {
    /// From a load balancer to the group that it names.
    groups: KeyLinks,
    /// From a Service to its owners, if there are others than the load balancer of its name.
    services: KeyLinks,
    /// From an EndpointSlice to its Service, if that has another name.
    slices: KeyLinks,
    /// Addresses in the status of load balancers that name a group, or did so when it was written: one that leaves is still to say that
    /// it has left (IPA-6).
    named: AddressesByKey,
}

/// The group that a load balancer names, as far as its annotation is a name, and another one's.
pub fn named_group(key: &Key, meta: &ObjectMeta) -> Option<Key> {
    let name = annotation(meta, keys::ANNOTATION_PRIMARY)?;
    let is_another = is_dns_subdomain(name) && name != &*key.name;
    is_another.then(|| Key::new(&key.namespace, name))
}

/// Whether load balancers of other names than its own own a Service.
pub fn is_shared(meta: &ObjectMeta) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|owner| cached::is_lb(owner) && Some(&*owner.name) != meta.name.as_deref())
}

/// The name of the Service of an EndpointSlice.
pub fn service_of(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    labels.get(keys::LABEL_SERVICE_NAME).map(|name| &**name)
}

impl Index {
    /// Updates a load balancer; `None` when it is deleted. Returns the groups that it has left or joined, and the owners of addresses
    /// that it no longer shares.
    pub fn set_lb(&mut self, key: &Key, lb: Option<&Lb>) -> Affected {
        let group = lb.and_then(|lb| named_group(key, lb.meta()));
        let addr = match lb {
            Some(Lb::Valid(lb)) if group.is_some() || told::was_of_another(lb) => {
                allocated_addr(lb)
            }
            _ => None,
        };
        let addrs = self.named.set(key, addr.into_iter().collect());
        let lbs = self.groups.set(key, group.into_iter().collect());
        Affected { lbs, addrs }
    }

    /// Updates a Service; `None` when it is deleted. Returns the owners that it has lost or gained.
    pub fn set_service(&mut self, key: &Key, service: Option<&Service>) -> BTreeSet<Key> {
        let shared = service.filter(|service| is_shared(&service.metadata));
        let owners = shared.into_iter().flat_map(|service| {
            let owners = service.metadata.owner_references.iter().flatten();
            owners.filter(|owner| cached::is_lb(owner))
        });
        let to: BTreeSet<Key> = owners
            .map(|owner| Key::new(&key.namespace, &*owner.name))
            .collect();
        self.services.set(key, to)
    }

    /// Updates an EndpointSlice with our label; `None` when it is deleted. Returns the Services that it has left or joined. What is not
    /// owned by the load balancer of its name does not count: it may be anybody's, and stay for ever.
    pub fn set_slice(&mut self, key: &Key, slice: Option<&EndpointSlice>) -> BTreeSet<Key> {
        let is_ours = |slice: &&EndpointSlice| {
            let mut owners = slice.metadata.owner_references.iter().flatten();
            owners.any(|owner| cached::is_lb(owner) && *owner.name == *key.name)
        };
        let of = slice
            .filter(is_ours)
            .and_then(service_of)
            .filter(|name| **name != *key.name);
        let to = of.map(|name| Key::new(&key.namespace, name));
        self.slices.set(key, to.into_iter().collect())
    }

    /// The Service of an EndpointSlice, if that has another name.
    pub fn service_of(&self, slice: &Key) -> Option<&Key> {
        self.slices.to.get(slice)?.first()
    }

    /// The EndpointSlices of other names of a Service.
    pub fn slices_of(&self, service: &Key) -> impl Iterator<Item = &Key> {
        self.slices.from.get(service).into_iter().flatten()
    }

    /// The group that a load balancer names.
    pub fn group_of(&self, lb: &Key) -> Option<&Key> {
        self.groups.to.get(lb)?.first()
    }

    /// The load balancers that name a group.
    pub fn naming(&self, group: &Key) -> impl Iterator<Item = &Key> {
        self.groups.from.get(group).into_iter().flatten()
    }

    /// The groups that are named, whose Services are shared, or whose Services have EndpointSlices of others.
    pub fn all(&self) -> impl Iterator<Item = &Key> {
        let (named, shared) = (self.groups.from.keys(), self.services.to.keys());
        named.chain(shared).chain(self.slices.from.keys())
    }

    /// Whether anybody names a group, or others than the load balancer of its name own its Service or have an EndpointSlice of it.
    pub fn is_group(&self, key: &Key) -> bool {
        self.groups.from.contains_key(key)
            || self.services.to.contains_key(key)
            || self.slices.from.contains_key(key)
    }

    /// A load balancer that shares the address of this one now, if any (SHR-7): one that names it, and owns its Service or has one of
    /// these addresses in its status.
    pub fn secondary_of(&self, lb: &Key, addrs: &[IpAddr]) -> Option<&Key> {
        let owners = self.services.to.get(lb);
        self.naming(lb).find(|other| {
            let named = self.named.by_key.get(other);
            owners.is_some_and(|owners| owners.contains(other))
                || named.is_some_and(|named| addrs.iter().any(|addr| named.contains(addr)))
        })
    }

    /// Whether another load balancer than the owner of a record shares its address, according to its status. Such a record is not
    /// released but handed over (SHR-5).
    pub fn shares_record(&self, record: &Record) -> bool {
        let owner = cached::key(&record.spec.owner.id);
        self.named
            .any_but(record.spec.addr, &owner.namespace, &owner)
    }
}

#[cfg(test)]
mod tests;
