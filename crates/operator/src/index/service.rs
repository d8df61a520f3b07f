//! Changes of Services of any owner.

use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::backend_addresses::ServiceAddresses;
use harvester_lb_core::cached::{self, CachedService};
use harvester_lb_object::Key;

use super::Index;

impl Index {
    /// Handles a change of a Service, by any writer.
    pub fn service_changed(&self, key: &Key, change: &Change<CachedService>) {
        self.service_updated(key);
        self.queue_lbs_of_service(key, change);
    }

    /// Queues the load balancers that a changed Service concerns: that of its name, and, if it shows another address, all that share
    /// it.
    pub fn queue_lbs_of_service(&self, key: &Key, change: &Change<CachedService>) {
        self.queue_lb_if_known(key);
        self.queue_parties_of_service(key, change);
        let group = self.with_leader(|leader| leader.sharing.is_group(key));
        self.queue_lbs(group.filter(|is_group| *is_group).map(|_| key.clone()));
    }

    /// Queues those that a Service that was updated concerns besides the load balancer of its name.
    pub fn queue_parties_of_service(&self, key: &Key, change: &Change<CachedService>) {
        let is_same = match change {
            Change::Applied { old, new } => old.as_ref().is_some_and(|old| {
                old.metadata.uid == new.metadata.uid
                    && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
                    && old.status == new.status
                    && cached::shown_addresses(old) == cached::shown_addresses(new)
            }),
            Change::Deleted { .. } => false,
        };
        let parties = self.with_leader(|leader| leader.parties_of_service(key, is_same));
        self.queue_lbs(parties.into_iter().flatten());
    }

    /// Handles the new addresses of a Service that was updated or deleted in the store (BE-8, IPA-3).
    pub fn service_updated(&self, key: &Key) {
        let reporters = self.upsert_service(key);
        self.queue_reporters(&reporters);
    }

    /// Updates the ledger and the backend addresses with the addresses of a Service. It is read from the store under each
    /// lock, so that concurrent updates end with the newest version. Returns the VirtualMachineInstances that report a
    /// changed address (BE-8).
    fn upsert_service(&self, key: &Key) -> Vec<Key> {
        let mut addresses = self.addresses.lock();
        let service = self.stores.services.get(key);
        let now = service.as_ref().map(|s| ServiceAddresses::of(s));
        let now = now.unwrap_or_default();
        let reporters = match &service {
            Some(service) if service.undecodable.is_some() => addresses.add_service(key, &now),
            _ => addresses.set_service(key, now),
        };
        drop(addresses);
        let affected = self.with_leader(|leader| {
            let service = self.stores.services.get(key);
            let service = service.as_deref();
            leader.set_shown(key, service);
            leader.sharing.set_service(key, service.map(|s| &**s))
        });
        self.queue_lbs(affected.into_iter().flatten());
        reporters
    }
}
