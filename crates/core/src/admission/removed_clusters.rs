//! The guest clusters that are being removed, according to their node VMs (WV-10). Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use harvester_lb_object::Key;

use crate::cached::Vm;
use crate::guest_cluster;

/// Guest clusters with a node VM that has Rancher's removal annotation; updated incrementally. Other VMs take no memory.
#[derive(Debug, Default)]
pub struct RemovedClusters {
    /// By namespace and name of the cluster: the names of such VMs.
    machines: HashMap<Key, BTreeSet<Arc<str>>>,
    /// By VM: the cluster it is counted for.
    clusters: HashMap<Key, Key>,
}

impl RemovedClusters {
    /// Adds or replaces a VirtualMachine.
    pub fn set(&mut self, key: &Key, vm: &Vm) {
        self.remove(key);
        if let Some(cluster) = guest_cluster::being_removed(key, vm) {
            let machines = self.machines.entry(cluster.clone()).or_default();
            machines.insert(key.name.clone());
            self.clusters.insert(key.clone(), cluster);
        }
    }

    /// Removes a VirtualMachine.
    pub fn remove(&mut self, key: &Key) {
        let Some(cluster) = self.clusters.remove(key) else {
            return;
        };
        if let Some(machines) = self.machines.get_mut(&cluster) {
            machines.remove(&key.name);
            if machines.is_empty() {
                self.machines.remove(&cluster);
            }
        }
    }

    /// A VM that says that this guest cluster is being removed: the first by name.
    pub fn machine_of(&self, namespace: &str, cluster: &str) -> Option<&str> {
        let machines = self.machines.get(&Key::new(namespace, cluster))?;
        machines.first().map(|name| &**name)
    }
}
