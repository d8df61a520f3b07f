//! The allocated addresses of each pool, for the rules that protect them (PV-4, PV-9), and the groups that have outlived their primary
//! (SHR-6). Pure.
//!
//! Allocated means a Bound IPAllocation (POOL-3). Two more count: an unreadable IPAllocation, whose address stays blocked
//! (IPA-1), counts for the pool whose ranges hold it; and an entry of a map that another writer wrote, which may not be
//! imported yet (IPA-1), counts for the pool of that map. A map that this operator wrote is only a copy and counts for
//! nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;

use harvester_lb_ipam::{OwnerId, Phase, PoolName, PoolRanges, addr};

use crate::cached::{Allocation, Pool};

/// An allocated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held<'a> {
    /// The address, or the key of a map that is none.
    pub(super) address: Result<IpAddr, &'a str>,
    /// What holds it.
    pub(super) holder: Holder<'a>,
}

/// The holder of an allocated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder<'a> {
    /// A load balancer, by a Bound IPAllocation.
    Record(&'a OwnerId),
    /// An IPAllocation that cannot be read.
    Unreadable(IpAddr),
    /// A load balancer, by `status.allocated`, which another writer wrote.
    Map(&'a str),
}

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(owner) => write!(f, "LoadBalancer {owner}"),
            Self::Unreadable(address) => {
                write!(f, "unreadable IPAllocation {}", addr::record_name(*address))
            }
            Self::Map(owner) => write!(f, "LoadBalancer {owner}, by status.allocated"),
        }
    }
}

/// Allocated addresses by pool, updated incrementally; each update costs O(log n).
#[derive(Debug, Default)]
pub struct AllocatedAddresses {
    /// The pool of each Bound record.
    pools: HashMap<IpAddr, PoolName>,
    /// The Bound records of each pool.
    bound: HashMap<PoolName, BTreeMap<IpAddr, OwnerId>>,
    /// The groups of Bound records that have outlived their primary (SHR-5), with the addresses of each. Few, mostly none.
    groups: HashMap<OwnerId, BTreeSet<IpAddr>>,
    /// The same by address.
    group_of: HashMap<IpAddr, OwnerId>,
    /// Addresses of unreadable IPAllocations.
    unreadable: BTreeSet<IpAddr>,
    /// DHCP leases by the name of their IPAllocation (DHC-5).
    leases: BTreeMap<String, (IpAddr, OwnerId)>,
    /// By pool, the entries of `status.allocated` if another writer wrote it. Kept by few pools, and only until the import.
    maps: HashMap<PoolName, BTreeMap<String, String>>,
}

impl AllocatedAddresses {
    /// Adds or replaces the IPAllocation of this name.
    pub fn set_record(&mut self, name: &str, allocation: &Allocation) {
        self.remove_record(name);
        match allocation {
            Allocation::Valid { record, .. } if record.spec.phase == Phase::Bound => {
                let spec = &record.spec;
                let addresses = self.bound.entry(spec.pool.clone()).or_default();
                addresses.insert(spec.addr, spec.owner.id.clone());
                self.pools.insert(spec.addr, spec.pool.clone());
                if spec.group.is_some() {
                    let group = spec.address_of();
                    let addresses = self.groups.entry(group.clone()).or_default();
                    addresses.insert(spec.addr);
                    self.group_of.insert(spec.addr, group);
                }
            }
            Allocation::Unreadable { .. } => {
                self.unreadable.extend(addr::parse_record_name(name));
            }
            Allocation::Lease(record) => {
                if let Some(lease) = record.spec.phase.lease() {
                    let lease = (lease.address.into(), record.spec.owner.id.clone());
                    self.leases.insert(name.to_owned(), lease);
                }
            }
            Allocation::Valid { .. } | Allocation::UnreadableLease(_) | Allocation::Reserved => {}
        }
    }

    /// Removes the IPAllocation of this name.
    pub fn remove_record(&mut self, name: &str) {
        self.leases.remove(name);
        let Some(address) = addr::parse_record_name(name) else {
            return;
        };
        self.unreadable.remove(&address);
        let Some(pool) = self.pools.remove(&address) else {
            return;
        };
        if let Some(addresses) = self.bound.get_mut(&pool) {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.bound.remove(&pool);
            }
        }
        if let Some(group) = self.group_of.remove(&address)
            && let Some(addresses) = self.groups.get_mut(&group)
        {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    /// Adds or replaces the map of a pool; see [`Pool::foreign_maps`].
    pub fn set_pool(&mut self, name: &str, pool: &Pool) {
        match &pool.foreign_maps {
            Some(maps) if !maps.allocated.is_empty() => {
                self.maps.insert(name.into(), maps.allocated.clone());
            }
            _ => self.remove_pool(name),
        }
    }

    /// Removes the map of a pool. Its IPAllocations stay (IPA-7).
    pub fn remove_pool(&mut self, name: &str) {
        self.maps.remove(name);
    }

    /// What holds an address by an IPAllocation, of whatever pool, or by a lease.
    pub(super) fn holder_of(&self, address: IpAddr) -> Option<Holder<'_>> {
        if self.unreadable.contains(&address) {
            return Some(Holder::Unreadable(address));
        }
        let pool = self.pools.get(&address);
        let bound = pool.and_then(|pool| self.bound.get(pool)?.get(&address));
        let leased = || self.leases.values().find(|(it, _)| *it == address);
        let owner = bound.or_else(|| leased().map(|(_, owner)| owner));
        owner.map(Holder::Record)
    }

    /// Whether others hold the address of an earlier load balancer of this name, whose name new ones go on naming (SHR-5, SHR-6).
    pub(super) fn is_group(&self, namespace: &str, name: &str) -> bool {
        self.groups.contains_key(&OwnerId::new(namespace, name))
    }

    /// The allocated addresses of a pool, each once. `ranges`: those of the pool as stored, if they are valid; unreadable
    /// IPAllocations outside of them do not count.
    pub(super) fn of<'a>(
        &'a self,
        pool: &str,
        ranges: Option<&'a PoolRanges>,
    ) -> impl Iterator<Item = Held<'a>> {
        let bound = self.bound.get(pool);
        let is_blocked = move |address: &IpAddr| {
            self.unreadable.contains(address) && ranges.is_some_and(|r| r.contains(*address))
        };
        let records = bound.into_iter().flatten().map(|(address, owner)| Held {
            address: Ok(*address),
            holder: Holder::Record(owner),
        });
        let unreadable = self.unreadable.iter();
        let blocked = unreadable
            .filter(move |address| is_blocked(address))
            .map(|address| Held {
                address: Ok(*address),
                holder: Holder::Unreadable(*address),
            });
        let is_counted = move |address: &IpAddr| {
            bound.is_some_and(|bound| bound.contains_key(address)) || is_blocked(address)
        };
        let maps = self.maps.get(pool).into_iter().flatten();
        let listed = maps
            .map(|(text, owner)| Held {
                address: addr::parse(text).ok_or(&**text),
                holder: Holder::Map(owner),
            })
            .filter(move |held| !held.address.is_ok_and(|address| is_counted(&address)));
        records.chain(blocked).chain(listed)
    }
}
