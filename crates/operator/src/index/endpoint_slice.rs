//! Changes of EndpointSlices with our label.

use harvester_lb_controller_kit::store::Change;
use harvester_lb_object::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::Index;

impl Index {
    /// Handles a change of an EndpointSlice with our label.
    pub fn slice_changed(&self, key: &Key, _: &Change<EndpointSlice>) {
        self.queue_lb_if_known(key);
        self.slice_updated(key);
    }

    /// Queues the groups that an EndpointSlice concerns which was updated or deleted in the store: the Service of a group carries the
    /// ports of a load balancer once they are in its own (SHR-4), and in no other one's (SHR-2).
    pub fn slice_updated(&self, key: &Key) {
        let groups = self.with_leader(|leader| {
            // Read under the lock, so that concurrent updates end with the newest version.
            leader.offers.seen(key, self.stores.slices.version(key));
            let slice = self.stores.slices.get(key);
            let mut groups = leader.sharing.set_slice(key, slice.as_deref());
            let index = &leader.sharing;
            groups.extend(index.service_of(key).cloned());
            groups.extend(index.group_of(key).cloned());
            groups.extend(index.is_group(key).then(|| key.clone()));
            groups
        });
        self.queue_lbs(groups.into_iter().flatten());
    }
}
