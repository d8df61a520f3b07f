//! Changes of EndpointSlices with our label.

use harvester_lb_controller_kit::store::Change;
use harvester_lb_object::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::Index;

impl Index {
    /// Handles a change of an EndpointSlice with our label.
    pub fn slice_changed(&self, key: &Key, _: &Change<EndpointSlice>) {
        self.queue_lb_if_known(key);
    }
}
