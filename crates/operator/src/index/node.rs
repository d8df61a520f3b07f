//! Changes of Nodes (BE-8).

use std::net::Ipv4Addr;

use harvester_lb_controller_kit::store::Change;
use harvester_lb_object::Key;

use super::Index;

impl Index {
    /// A Node was made, altered or deleted (BE-8).
    pub fn node_changed(&self, key: &Key, change: &Change<Vec<Ipv4Addr>>) {
        let now = match change {
            Change::Applied { new, .. } => new.to_vec(),
            Change::Deleted { .. } => Vec::new(),
        };
        let reporters = self.addresses.lock().set_node(key, now);
        self.queue_reporters(&reporters);
    }
}
