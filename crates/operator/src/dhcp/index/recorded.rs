//! What the stored records of leases say, by what is looked for: the name of the load balancer, the interface. Owns only that.

use std::collections::{BTreeMap, BTreeSet};

use harvester_lb_core::dhcp::record::LeaseSpec;
use harvester_lb_ipam::{OwnerId, Uid};

/// The records.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    all: BTreeMap<Uid, Entry>,
    /// Several if a load balancer was made anew.
    by_name: BTreeMap<OwnerId, BTreeSet<Uid>>,
    by_interface: BTreeMap<String, BTreeSet<Uid>>,
}

#[derive(Debug)]
struct Entry {
    name: OwnerId,
    interface: String,
    has_lease: bool,
}

impl Recorded {
    /// Replaces what is known of a record; `None`: it is gone, or cannot be read.
    pub(super) fn set(&mut self, uid: &Uid, spec: Option<&LeaseSpec>) {
        if let Some(old) = self.all.remove(uid) {
            take(&mut self.by_name, &old.name, uid);
            take(&mut self.by_interface, &old.interface, uid);
        }
        if let Some(spec) = spec {
            let entry = Entry {
                name: spec.owner.id.clone(),
                interface: spec.interface.clone(),
                has_lease: spec.phase.lease().is_some(),
            };
            put(&mut self.by_name, entry.name.clone(), uid);
            put(&mut self.by_interface, entry.interface.clone(), uid);
            self.all.insert(uid.clone(), entry);
        }
    }

    /// Those of the load balancers of this name.
    pub(super) fn under(&self, name: &OwnerId) -> impl Iterator<Item = &Uid> {
        self.by_name.get(name).into_iter().flatten()
    }

    /// Those with a lease on this interface.
    pub(super) fn leased_on(&self, interface: &str) -> impl Iterator<Item = &Uid> {
        let uids = self.by_interface.get(interface).into_iter().flatten();
        uids.filter(|uid| self.all.get(*uid).is_some_and(|entry| entry.has_lease))
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
