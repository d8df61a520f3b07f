//! The networks of the virtual machines of guest clusters, from which a cluster's network is found (WM-3). Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use harvester_lb_api::keys;
use harvester_lb_api::kubevirt::NetworkedInstance;
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A VirtualMachineInstance that may tell the network of a guest cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    /// The guest cluster in its label.
    cluster: Option<Box<str>>,
    /// Whether its label says that Rancher's node driver created it.
    from_node_driver: bool,
    /// Its first multus network.
    network: Box<str>,
}

/// Virtual machines of guest clusters and their first multus network, by namespace and name; updated incrementally. Others
/// take no memory.
#[derive(Debug, Default)]
pub struct GuestNetworks {
    by_namespace: HashMap<Arc<str>, BTreeMap<Arc<str>, Machine>>,
}

impl GuestNetworks {
    /// Adds or replaces a VirtualMachineInstance.
    pub fn set(&mut self, key: &Key, instance: &NetworkedInstance) {
        let networks = instance.spec.networks.iter().flatten();
        let network = networks
            .filter_map(|n| n.multus.as_ref()?.network_name.as_deref())
            .find(|name| !name.is_empty());
        match network.and_then(|network| machine(&instance.metadata, network)) {
            Some(machine) => {
                let machines = self.by_namespace.entry(key.namespace.clone()).or_default();
                machines.insert(key.name.clone(), machine);
            }
            None => self.remove(key),
        }
    }

    /// Removes a VirtualMachineInstance.
    pub fn remove(&mut self, key: &Key) {
        if let Some(machines) = self.by_namespace.get_mut(&key.namespace) {
            machines.remove(&key.name);
            if machines.is_empty() {
                self.by_namespace.remove(&key.namespace);
            }
        }
    }

    /// The network of a guest cluster: that of the first machine, by name, which is labelled with the cluster; else of the
    /// first that the node driver created and whose name starts with the cluster's (WM-3). Linear in the number of such
    /// machines in the namespace.
    pub fn network_of(&self, namespace: &str, cluster: &str) -> Option<&str> {
        let machines = self.by_namespace.get(namespace)?;
        let labelled = |(_, m): &(&Arc<str>, &Machine)| m.cluster.as_deref() == Some(cluster);
        let named =
            |(name, m): &(&Arc<str>, &Machine)| m.from_node_driver && name.starts_with(cluster);
        let found = machines.iter().find(labelled);
        let found = found.or_else(|| machines.iter().find(named));
        found.map(|(_, machine)| &*machine.network)
    }
}

/// The machine with these labels; `None` without any of the two.
fn machine(meta: &ObjectMeta, network: &str) -> Option<Machine> {
    let label = |name: &str| meta.labels.as_ref()?.get(name).map(String::as_str);
    let cluster = label(keys::LABEL_GUEST_CLUSTER);
    let from_node_driver = label(keys::LABEL_CREATOR) == Some(keys::CREATOR_NODE_DRIVER);
    (cluster.is_some() || from_node_driver).then(|| Machine {
        cluster: cluster.map(Into::into),
        from_node_driver,
        network: network.into(),
    })
}
