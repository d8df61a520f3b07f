//! Virtual machines and the addresses that none of them may have, indexed for look-ups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use harvester_lb_api::kubevirt::{Interface, VirtualMachineInstance};

use crate::snapshot::Cluster;

/// The virtual machines of the cluster, and the addresses of its nodes.
pub(crate) struct Machines<'a> {
    /// Of each namespace, by name.
    by_namespace: BTreeMap<&'a str, Vec<&'a VirtualMachineInstance>>,
    /// The same by namespace, label and value.
    by_label: BTreeMap<[&'a str; 3], Vec<&'a VirtualMachineInstance>>,
    /// All addresses that those of a namespace report.
    reported: BTreeSet<(&'a str, Ipv4Addr)>,
    /// The namespaces with a virtual machine of this address.
    namespaces_of: BTreeMap<Ipv4Addr, BTreeSet<&'a str>>,
    nodes: BTreeSet<&'a str>,
    denied: &'a [(Ipv4Addr, u8)],
}

impl<'a> Machines<'a> {
    pub(crate) fn index(cluster: &'a Cluster) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<&VirtualMachineInstance>> = BTreeMap::new();
        let mut namespaces_of: BTreeMap<Ipv4Addr, BTreeSet<&str>> = BTreeMap::new();
        let mut all_reported = BTreeSet::new();
        for vmi in &cluster.machines {
            let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
            by_namespace.entry(namespace).or_default().push(vmi);
            if let Some(address) = address_of(vmi) {
                namespaces_of.entry(address).or_default().insert(namespace);
            }
            all_reported.extend(reported(vmi).map(|address| (namespace, address)));
        }
        for machines in by_namespace.values_mut() {
            machines.sort_by_key(|vmi| &vmi.metadata.name);
        }
        let mut by_label: BTreeMap<[&str; 3], Vec<&VirtualMachineInstance>> = BTreeMap::new();
        for (namespace, machines) in &by_namespace {
            for vmi in machines {
                for (label, value) in vmi.metadata.labels.iter().flatten() {
                    let same = by_label.entry([*namespace, label, value]).or_default();
                    same.push(vmi);
                }
            }
        }
        let nodes = cluster.nodes.iter().flat_map(|node| {
            let status = node.status.as_ref();
            let all = status.and_then(|status| status.addresses.as_deref());
            all.unwrap_or_default()
        });
        Self {
            by_namespace,
            by_label,
            reported: all_reported,
            namespaces_of,
            nodes: nodes.map(|address| &*address.address).collect(),
            denied: &cluster.denied,
        }
    }

    /// BE-1: those of a namespace that match the whole selector, by name. With an empty selector none.
    pub(crate) fn matching(
        &self,
        namespace: &str,
        selector: &BTreeMap<String, Vec<String>>,
    ) -> Vec<&'a VirtualMachineInstance> {
        let matches = |vmi: &&VirtualMachineInstance| {
            let labels = vmi.metadata.labels.as_ref();
            vmi.metadata.deletion_timestamp.is_none()
                && selector.iter().all(|(key, values)| {
                    let label = labels.and_then(|labels| labels.get(key));
                    label.is_some_and(|label| values.contains(label))
                })
        };
        let lists = selector.iter().map(|(label, values)| {
            let values: BTreeSet<&str> = values.iter().map(String::as_str).collect();
            let lists = values
                .iter()
                .filter_map(|value| self.by_label.get(&[namespace, label, value]));
            lists.map(Vec::as_slice).collect::<Vec<_>>()
        });
        // The label that the fewest have.
        let fewest = lists.min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>());
        let all = fewest.into_iter().flatten().flatten().copied();
        let mut matching: Vec<&VirtualMachineInstance> = all.filter(matches).collect();
        matching.sort_by_key(|vmi| &vmi.metadata.name);
        matching
    }

    /// Whether a virtual machine of the namespace reports this address.
    pub(crate) fn is_reported(&self, namespace: &str, address: Ipv4Addr) -> bool {
        self.reported.contains(&(namespace, address))
    }

    /// The one of this namespace and name.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<&'a VirtualMachineInstance> {
        let all = self.by_namespace.get(namespace)?;
        let at = all
            .binary_search_by_key(&Some(name), |vmi| vmi.metadata.name.as_deref())
            .ok()?;
        all.get(at).copied()
    }

    /// Whether a virtual machine of another namespace has this address.
    pub(crate) fn is_in_another_namespace(&self, namespace: &str, address: Ipv4Addr) -> bool {
        let all = self.namespaces_of.get(&address);
        all.is_some_and(|all| all.iter().any(|other| *other != namespace))
    }

    /// BE-8: whether the address is one of a Node, or is denied.
    pub(crate) fn is_refused(&self, address: Ipv4Addr) -> bool {
        let is_denied = |(network, prefix): &(Ipv4Addr, u8)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(*prefix)).unwrap_or(0);
            (address.to_bits() ^ network.to_bits()) & mask == 0
        };
        self.nodes.contains(&*address.to_string()) || self.denied.iter().any(is_denied)
    }
}

/// The addresses that a virtual machine reports, those of named interfaces first.
pub(crate) fn reported(vmi: &VirtualMachineInstance) -> impl Iterator<Item = Ipv4Addr> {
    let status = vmi.status.as_ref();
    let interfaces = status.and_then(|status| status.interfaces.as_deref());
    let named = |interface: &&Interface| interface.name.as_ref().is_some_and(|n| !n.is_empty());
    let (named, others): (Vec<&Interface>, Vec<&Interface>) =
        interfaces.unwrap_or_default().iter().partition(named);
    let texts = named.into_iter().chain(others).flat_map(|interface| {
        let more = interface.ip_addresses.iter().flatten();
        interface.ip_address.iter().chain(more)
    });
    texts.filter_map(|text| text.parse().ok())
}

/// BE-2: the first usable IPv4 address; named interfaces first.
pub(crate) fn address_of(vmi: &VirtualMachineInstance) -> Option<Ipv4Addr> {
    reported(vmi).find(|address| {
        !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_link_local()
            && !address.is_multicast()
            && !address.is_broadcast()
    })
}
