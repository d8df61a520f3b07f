//! Changes of EndpointSlices with our label.

use harvester_lb_controller_kit::store::Change;
use harvester_lb_object::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::Index;

impl Index {
    /// Handles a change of an EndpointSlice with our label.
    pub fn slice_changed(&self, key: &Key, _: &Change<EndpointSlice>) {
        self.queue_lb_if_known(key);
        self.queue_group_of(key);
    }

    /// Queues the group that a load balancer names, after its EndpointSlice was updated: the Service of the group carries its ports
    /// once they are in it (SHR-4).
    pub fn queue_group_of(&self, key: &Key) {
        let group = self.with_leader(|leader| leader.sharing.group_of(key).cloned());
        self.queue_lbs(group.flatten());
    }
}
