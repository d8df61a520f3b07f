//! Changes of IPAllocations.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::cached::{Allocation, Lb};
use harvester_lb_core::dhcp::record::{self, LeaseSpec};
use harvester_lb_ipam::{Uid, addr};
use harvester_lb_object::Key;
use tracing::warn;

use super::Index;

impl Index {
    /// Handles a change of an IPAllocation: by a late write of ours, by another leader, or by hand.
    pub fn allocation_changed(&self, key: &Key, change: &Change<Allocation>) {
        let mut owners = Vec::new();
        if let Some(uid) = record::owner_of(&key.name) {
            self.lease_changed(&uid, change);
            return;
        }
        let is_leader = self.with_leader(|leader| match change {
            Change::Applied { old, new } => {
                leader.observe_allocation(&key.name, new);
                for allocation in [Some(new), old.as_ref()].into_iter().flatten() {
                    if let Allocation::Valid { record, .. } = &**allocation {
                        owners.extend(leader.concerned_by(record));
                    }
                }
            }
            Change::Deleted { old, .. } => {
                let version = match &**old {
                    Allocation::Valid { record, .. } => {
                        owners.extend(leader.concerned_by(record));
                        record.version
                    }
                    Allocation::Unreadable { version, .. } => *version,
                    Allocation::Lease(_)
                    | Allocation::UnreadableLease(_)
                    | Allocation::Reserved => return,
                };
                leader.forget(&key.name, version);
            }
        });
        if is_leader.is_none() {
            return;
        }
        if !matches!(change, Change::Applied { old: Some(_), .. }) {
            self.record_created_or_deleted(key);
        }
        if let Change::Applied { new, .. } = change
            && let Allocation::Unreadable { why, .. } = &**new
        {
            warn!(ip_allocation = %key, why, "IPAllocation unreadable; its address stays blocked until the object is repaired or deleted");
        }
        for owner in owners {
            self.queues.lbs.add(owner);
        }
    }

    /// Handles an IPAllocation that a live read did not find. The watch reports the deletion of what the store has no more to nobody.
    pub fn record_gone(&self, key: &Key, change: &Change<Allocation>) {
        match record::owner_of(&key.name) {
            Some(uid) => self.lease_changed(&uid, change),
            None => self.record_created_or_deleted(key),
        }
    }

    /// Queues those that a record concerns that was written, if it is that of an address that is shared, or asked for.
    pub fn shared_record_updated(&self, change: &Change<Allocation>) {
        let (old, new) = match change {
            Change::Applied { old, new } => (old.as_ref(), Some(new)),
            Change::Deleted { old, .. } => (Some(old), None),
        };
        let concerned = self.with_leader(|leader| {
            let mut all = BTreeSet::new();
            for allocation in [old, new].into_iter().flatten() {
                if let Allocation::Valid { record, .. } = &**allocation
                    && leader.is_shared(record)
                {
                    all.extend(leader.concerned_by(record));
                }
            }
            all
        });
        self.queue_lbs(concerned.into_iter().flatten());
    }

    /// Handles the creation or deletion of an IPAllocation: backends that report its address are checked again (BE-8).
    pub fn record_created_or_deleted(&self, key: &Key) {
        if let Some(IpAddr::V4(address)) = addr::parse_record_name(&key.name) {
            let reporters = self.addresses.lock().reporters_of(&[address]);
            self.queue_reporters(&reporters);
        }
    }

    /// Handles a change of the record of a DHCP lease: its load balancer is due (DHC-1, DHC-3), its address is taken, or free again
    /// (DHC-5), and backends that report it are checked again (BE-8).
    ///
    /// An owner does not change, unless somebody edits the record: then those of both names are due, and the one of its uid.
    fn lease_changed(&self, uid: &Uid, change: &Change<Allocation>) {
        let (old, new) = match change {
            Change::Applied { old, new } => (old.as_ref(), Some(new)),
            Change::Deleted { old, .. } => (Some(old), None),
        };
        let lease = |stored: &Arc<Allocation>| match &**stored {
            Allocation::Lease(record) => Some(record.spec.clone()),
            _ => None,
        };
        let (old, new) = (old.and_then(lease), new.and_then(lease));
        let keys = self.with_leader(|leader| {
            let mut keys = BTreeSet::new();
            // What is stored by now: changes that a live read and the watch report may be handled in another order.
            let stored = self
                .stores
                .allocations
                .get(&Key::new("", &*record::name(uid)));
            let stored = stored.as_ref().and_then(lease);
            for (lease, is_present) in [(&old, false), (&new, false), (&stored, true)] {
                keys.extend(lease.iter().map(|it| leader.set_lease(it, is_present)));
            }
            for key in &keys {
                leader.set_shown(key, self.stores.services.get(key).as_deref());
            }
            keys
        });
        // A standby queues nothing.
        let Some(mut keys) = keys else { return };
        let held = |lease: &Option<LeaseSpec>| Some(lease.as_ref()?.phase.lease()?.address);
        if held(&old) != held(&new) {
            let both: Vec<Ipv4Addr> = [held(&old), held(&new)].into_iter().flatten().collect();
            let reporters = self.addresses.lock().reporters_of(&both);
            self.queue_reporters(&reporters);
        }
        let is_of_uid = |lb: &Lb| *uid == Uid::new(lb.uid());
        let mut stored = keys.iter().filter_map(|key| self.stores.lbs.get(key));
        if !stored.any(|lb| is_of_uid(&lb)) {
            // One that cannot be read, or was edited, does not say whose it is (IPA-9). Rare enough for a scan of all load
            // balancers.
            self.stores.lbs.for_each(|key, lb| {
                if is_of_uid(lb) {
                    keys.insert(key.clone());
                }
            });
        }
        self.queue_lbs(keys);
    }
}
