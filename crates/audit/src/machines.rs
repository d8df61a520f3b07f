//! Virtual machines and the addresses that none of them may have, indexed for look-ups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use harvester_lb_api::kubevirt::{Interface, VirtualMachineInstance};

use crate::snapshot::Cluster;

/// The virtual machines of the cluster, and the addresses of its nodes.
pub(crate) struct Machines<'a> {
    /// Of each namespace, by name.
    by_namespace: BTreeMap<&'a str, Vec<&'a VirtualMachineInstance>>,
    /// The namespaces with a virtual machine of this address.
    namespaces_of: BTreeMap<Ipv4Addr, BTreeSet<&'a str>>,
    nodes: BTreeSet<&'a str>,
    denied: &'a [(Ipv4Addr, u8)],
}

impl<'a> Machines<'a> {
    pub(crate) fn index(cluster: &'a Cluster) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<&VirtualMachineInstance>> = BTreeMap::new();
        let mut namespaces_of: BTreeMap<Ipv4Addr, BTreeSet<&str>> = BTreeMap::new();
        for vmi in &cluster.machines {
            let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
            by_namespace.entry(namespace).or_default().push(vmi);
            if let Some(address) = address_of(vmi) {
                namespaces_of.entry(address).or_default().insert(namespace);
            }
        }
        for machines in by_namespace.values_mut() {
            machines.sort_by_key(|vmi| &vmi.metadata.name);
        }
        let nodes = cluster.nodes.iter().flat_map(|node| {
            let status = node.status.as_ref();
            let all = status.and_then(|status| status.addresses.as_deref());
            all.unwrap_or_default()
        });
        Self {
            by_namespace,
            namespaces_of,
            nodes: nodes.map(|address| &*address.address).collect(),
            denied: &cluster.denied,
        }
    }

    /// Those of a namespace, by name.
    pub(crate) fn of(&self, namespace: &str) -> &[&'a VirtualMachineInstance] {
        self.by_namespace.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The one of this namespace and name.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<&'a VirtualMachineInstance> {
        let all = self.of(namespace);
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
