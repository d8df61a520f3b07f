//! What the stored records of leases say, by what is looked for: the name of the load balancer, the interface, the hardware address on it,
//! the leased address. Owns only that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use harvester_lb_core::dhcp::record::LeaseSpec;
use harvester_lb_ipam::dhcp::HardwareAddress;
use harvester_lb_ipam::{Owner, OwnerId, Uid};

/// The records.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    all: BTreeMap<Uid, Entry>,
    /// Several if a load balancer was made anew.
    by_name: BTreeMap<OwnerId, BTreeSet<Uid>>,
    by_interface: BTreeMap<String, BTreeSet<Uid>>,
    /// Several if load balancers have the same annotation.
    by_hardware: BTreeMap<(String, HardwareAddress), BTreeSet<Uid>>,
    /// Several if a server has leased an address twice.
    by_address: BTreeMap<Ipv4Addr, BTreeSet<Uid>>,
}

#[derive(Debug)]
struct Entry {
    name: OwnerId,
    interface: String,
    hardware: HardwareAddress,
    /// Of its lease.
    address: Option<Ipv4Addr>,
}

impl Recorded {
    /// Replaces what is known of a record; `None`: it is gone, or cannot be read.
    pub(super) fn set(&mut self, uid: &Uid, spec: Option<&LeaseSpec>) {
        if let Some(old) = self.all.remove(uid) {
            take(&mut self.by_name, &old.name, uid);
            take(&mut self.by_interface, &old.interface, uid);
            take(&mut self.by_hardware, &(old.interface, old.hardware), uid);
            if let Some(address) = old.address {
                take(&mut self.by_address, &address, uid);
            }
        }
        if let Some(spec) = spec {
            let entry = Entry {
                name: spec.owner.id.clone(),
                interface: spec.interface.clone(),
                hardware: spec.hardware,
                address: spec.phase.lease().map(|lease| lease.address),
            };
            put(&mut self.by_name, entry.name.clone(), uid);
            put(&mut self.by_interface, entry.interface.clone(), uid);
            let client = (entry.interface.clone(), entry.hardware);
            put(&mut self.by_hardware, client, uid);
            if let Some(address) = entry.address {
                put(&mut self.by_address, address, uid);
            }
            self.all.insert(uid.clone(), entry);
        }
    }

    /// Those of the load balancers of this name.
    pub(super) fn under(&self, name: &OwnerId) -> impl Iterator<Item = &Uid> {
        self.by_name.get(name).into_iter().flatten()
    }

    /// Whether there is one on this interface.
    pub(super) fn any_on(&self, interface: &str) -> bool {
        self.by_interface.contains_key(interface)
    }

    /// Whether that of a load balancer is on this interface.
    pub(super) fn is_on(&self, uid: &Uid, interface: &str) -> bool {
        let uids = self.by_interface.get(interface);
        uids.is_some_and(|uids| uids.contains(uid))
    }

    /// Those with a lease on this interface.
    pub(super) fn leased_on(&self, interface: &str) -> impl Iterator<Item = &Uid> {
        let uids = self.by_interface.get(interface).into_iter().flatten();
        uids.filter(|uid| self.address(uid).is_some())
    }

    /// The load balancers whose clients have this hardware address on this interface.
    pub(super) fn clients(
        &self,
        interface: &str,
        hardware: HardwareAddress,
    ) -> impl Iterator<Item = Owner> {
        let client = (interface.to_owned(), hardware);
        let uids = self.by_hardware.get(&client).into_iter().flatten();
        uids.filter_map(|uid| self.owner(uid))
    }

    /// The load balancers that have leased this address.
    pub(super) fn with(&self, address: Ipv4Addr) -> impl Iterator<Item = Owner> {
        let uids = self.by_address.get(&address).into_iter().flatten();
        uids.filter_map(|uid| self.owner(uid))
    }

    fn owner(&self, uid: &Uid) -> Option<Owner> {
        let id = self.all.get(uid)?.name.clone();
        let uid = uid.clone();
        Some(Owner { id, uid })
    }

    fn address(&self, uid: &Uid) -> Option<Ipv4Addr> {
        self.all.get(uid)?.address
    }
}

fn put<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Uid>>, key: K, uid: &Uid) {
    index.entry(key).or_default().insert(uid.clone());
}

fn take<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Uid>>, key: &K, uid: &Uid) {
    if let Some(uids) = index.get_mut(key) {
        uids.remove(uid);
        if uids.is_empty() {
            index.remove(key);
        }
    }
}
