//! Changes of Services, everybody's.

use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::backend_addresses::ServiceAddresses;
use harvester_lb_core::cached;
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;

use super::Index;

impl Index {
    /// A Service was made, altered or deleted, by whomever.
    pub fn service_changed(&self, key: &Key, _: &Change<Service>) {
        self.service_is_known(key);
        self.queue_lb_if_known(key);
    }

    /// Another copy of a Service is known, or that it is gone: what its addresses mean to others (BE-8, IPA-3).
    pub fn service_is_known(&self, key: &Key) {
        let reporters = self.upsert_service(key);
        self.queue_reporters(&reporters);
    }

    /// Tells which addresses a Service has: the ledger, and who judges those of backends. Read from the store under the lock
    /// of each: whoever comes last has the newest copy, in whatever order the copies came. Answers the virtual machines
    /// that report any of what has changed (BE-8).
    fn upsert_service(&self, key: &Key) -> Vec<Key> {
        let mut addresses = self.addresses.lock();
        let service = self.stores.services.get(key);
        let now = service.map(|s| ServiceAddresses::of(&s));
        let reporters = addresses.set_service(key, now.unwrap_or_default());
        drop(addresses);
        let concerned = self.with_leader(|leader| {
            let service = self.stores.services.get(key);
            let shown = service
                .as_deref()
                .map(cached::shown_addresses)
                .unwrap_or_default();
            leader.ledger.set_shown(&cached::id(key), &shown);
            let news = leader.unsupported.set_service(key, service.as_deref());
            leader.concerned(news)
        });
        self.queue_lbs(concerned.into_iter().flatten());
        reporters
    }
}
