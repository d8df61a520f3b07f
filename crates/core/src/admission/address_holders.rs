//! Addresses that are in use outside of pools: by Nodes, and by LoadBalancer Services of others. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_ipam::PoolRanges;
use k8s_openapi::api::core::v1::{Node, Service};

use crate::cached;

/// Addresses and their holders, updated incrementally. A lookup costs O(log n) per range and result.
#[derive(Debug, Default)]
pub struct AddressHolders {
    by_holder: HashMap<Arc<str>, Vec<IpAddr>>,
    by_address: BTreeMap<IpAddr, BTreeSet<Arc<str>>>,
}

impl AddressHolders {
    /// Replaces the addresses of a holder: the name of a Node, or `<namespace>/<name>` of a Service.
    pub fn set(&mut self, holder: &str, addresses: Vec<IpAddr>) {
        self.remove(holder);
        if addresses.is_empty() {
            return;
        }
        let holder: Arc<str> = holder.into();
        for address in &addresses {
            let holders = self.by_address.entry(*address).or_default();
            holders.insert(holder.clone());
        }
        self.by_holder.insert(holder, addresses);
    }

    /// Removes a holder.
    pub fn remove(&mut self, holder: &str) {
        for address in self.by_holder.remove(holder).unwrap_or_default() {
            if let Some(holders) = self.by_address.get_mut(&address) {
                holders.remove(holder);
                if holders.is_empty() {
                    self.by_address.remove(&address);
                }
            }
        }
    }

    /// The addresses that a pool with these ranges would allocate, each with its first holder.
    pub(super) fn within<'a>(
        &'a self,
        ranges: &'a PoolRanges,
    ) -> impl Iterator<Item = (IpAddr, &'a str)> {
        ranges
            .ranges()
            .iter()
            .flat_map(move |range| self.by_address.range(range.start()..=range.end()))
            .filter(move |(address, _)| ranges.usable(**address))
            .filter_map(|(address, holders)| Some((*address, &**holders.first()?)))
    }
}

/// The addresses of a Node, for [`AddressHolders::set`].
pub fn node_addresses(node: &Node) -> Vec<IpAddr> {
    let addresses = node
        .status
        .iter()
        .flat_map(|s| s.addresses.iter().flatten());
    addresses.filter_map(|a| a.address.parse().ok()).collect()
}

/// The addresses of a Service of type LoadBalancer that this operator did not create, for [`AddressHolders::set`]: its
/// `loadBalancerIP`, its external IPs and its ingress. Empty for every other Service.
pub fn foreign_addresses(service: &Service) -> Vec<IpAddr> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    if spec.type_.as_deref() != Some("LoadBalancer") || cached::is_ours(&service.metadata) {
        return Vec::new();
    }
    let wanted = spec.load_balancer_ip.iter();
    let external = spec.external_ips.iter().flatten();
    wanted
        .chain(external)
        .map(String::as_str)
        .chain(cached::ingress(service))
        .filter_map(|text| text.parse().ok())
        .filter(|address: &IpAddr| !address.is_unspecified())
        .collect()
}
