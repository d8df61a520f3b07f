//! Changes of Nodes (BE-8).

use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::cached::NodeAddresses;
use harvester_lb_object::Key;

use super::Index;

impl Index {
    /// Handles a change of a Node: backends that report one of its addresses are checked again (BE-8).
    pub fn node_changed(&self, key: &Key, change: &Change<NodeAddresses>) {
        let mut addresses = self.addresses.lock();
        let reporters = match change {
            Change::Applied { new, .. } if new.undecodable => {
                addresses.add_node(key, &new.addresses)
            }
            Change::Applied { new, .. } => addresses.set_node(key, new.addresses.clone()),
            Change::Deleted { .. } => addresses.set_node(key, Vec::new()),
        };
        drop(addresses);
        self.queue_reporters(&reporters);
    }
}
