//! The addresses that no backend may have, and the addresses that VirtualMachineInstances report (BE-8). Pure.
//!
//! A reported address may come from the guest agent, so a tenant chooses it. Without this check a tenant could make the
//! cluster send traffic and health checks anywhere: to a node, to a Service, to another tenant's address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use harvester_lb_object::Key;
use index::AddressIndex;
use k8s_openapi::api::core::v1::Service;

use crate::cached::ingress;

mod index;

/// The object that holds an address (BE-8). Of several holders the first in this order is reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// `status.addresses` of a Node.
    Node(Key),
    /// `spec.clusterIP` or `spec.clusterIPs` of a Service.
    ClusterIp(Key),
    /// `spec.externalIPs` of a Service.
    ExternalIp(Key),
    /// `status.loadBalancer.ingress` of a Service.
    Ingress(Key),
}

/// Why a backend may not have an address (BE-8). The text is shown to the tenant, so it does not name the holder, which may
/// be another tenant's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A Node or Service has the address.
    Held(Holder),
    /// The address has an IPAllocation, of any owner.
    Allocated,
    /// The address is in this range of `--backend-deny-cidr`.
    Denied(Cidr),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(Holder::Node(_)) => f.write_str("an address of a Node"),
            Self::Held(Holder::ClusterIp(_)) => f.write_str("the ClusterIP of a Service"),
            Self::Held(Holder::ExternalIp(_)) => f.write_str("an external IP of a Service"),
            Self::Held(Holder::Ingress(_)) => f.write_str("the external address of a Service"),
            Self::Allocated => f.write_str("an address with an IPAllocation"),
            Self::Denied(cidr) => write!(f, "inside {cidr}, which is denied to backends"),
        }
    }
}

/// A range of addresses, written as `address/prefix`. Host bits are ignored. The prefix is 0 to 32, for IPv6 0 to 128; any
/// other text is a parse error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Whether the range contains an address. An IPv6 range contains no IPv4 address.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let IpAddr::V4(network) = self.network else {
            return false;
        };
        let differing = (network.to_bits() ^ address.to_bits()).leading_zeros();
        differing >= u32::from(self.prefix)
    }
}

impl Cidr {
    /// Address and prefix length; `None` for an IPv6 range.
    pub const fn v4(&self) -> Option<(Ipv4Addr, u8)> {
        match self.network {
            IpAddr::V4(network) => Some((network, self.prefix)),
            IpAddr::V6(_) => None,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an address range; write it like 10.0.0.0/8");
        let (network, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let network: IpAddr = network.parse().map_err(|_| wrong())?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|p| digits && *p <= longest);
        Ok(Self {
            network,
            prefix: prefix.ok_or_else(wrong)?,
        })
    }
}

/// The ranges of one `--backend-deny-cidr` (BE-8), parsed from a comma list. Empty entries are skipped; an entry that is no
/// [`Cidr`] is a parse error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied(pub Vec<Cidr>);

impl FromStr for Denied {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        parts.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// The IPv4 addresses of a Service, by field (BE-8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAddresses {
    /// `spec.clusterIP`, `spec.clusterIPs`.
    pub cluster: Vec<Ipv4Addr>,
    /// `spec.externalIPs`.
    pub external: Vec<Ipv4Addr>,
    /// `status.loadBalancer.ingress`.
    pub ingress: Vec<Ipv4Addr>,
}

impl ServiceAddresses {
    /// Reads a Service. IPv6 addresses are left out, as backends have IPv4 addresses only.
    pub fn of(service: &Service) -> Self {
        fn v4<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Ipv4Addr> {
            // The clusterIP of a headless Service is the text "None".
            texts.filter_map(|text| text.parse().ok()).collect()
        }
        let spec = service.spec.as_ref();
        let cluster = spec.into_iter().flat_map(|s| {
            let all = s.cluster_ips.iter().flatten();
            s.cluster_ip.iter().chain(all)
        });
        let external = spec
            .into_iter()
            .flat_map(|s| s.external_ips.iter().flatten());
        Self {
            cluster: v4(cluster.map(String::as_str)),
            external: v4(external.map(String::as_str)),
            ingress: v4(ingress(service)),
        }
    }
}

/// Whether a backend may have an address that a VirtualMachineInstance reports (BE-8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressVerdict {
    /// Why the address is refused; `None` if it is usable.
    pub refusal: Option<Refusal>,
    /// Whether VirtualMachineInstances of several namespaces report the address. It stays usable.
    pub shared: bool,
}

/// Index of the refused addresses and of those that VirtualMachineInstances report (BE-8).
///
/// IPAllocations are not in it: each is named after its address, so their store answers by name.
#[derive(Debug, Default)]
pub struct Addresses {
    denied: Vec<Cidr>,
    held: AddressIndex<Holder>,
    reported: AddressIndex<Key>,
}

impl Addresses {
    /// An index with the ranges of `--backend-deny-cidr` and nothing else.
    pub fn new(denied: Vec<Cidr>) -> Self {
        Self {
            denied,
            ..Self::default()
        }
    }

    /// Replaces the addresses of a Node; empty when it is deleted. Returns the VirtualMachineInstances whose
    /// [`AddressVerdict`] may have changed.
    pub fn set_node(&mut self, node: &Key, addresses: Vec<Ipv4Addr>) -> Vec<Key> {
        let changed = self.held.set(&Holder::Node(node.clone()), addresses);
        self.reporters_of(&changed)
    }

    /// Adds the readable addresses of a Node that cannot be decoded; its known ones stay. Returns the VirtualMachineInstances
    /// whose [`AddressVerdict`] may have changed.
    pub fn add_node(&mut self, node: &Key, addresses: &[Ipv4Addr]) -> Vec<Key> {
        let changed = self.held.add(&Holder::Node(node.clone()), addresses);
        self.reporters_of(&changed)
    }

    /// Replaces the addresses of a Service; empty when it is deleted. Returns the VirtualMachineInstances whose
    /// [`AddressVerdict`] may have changed.
    pub fn set_service(&mut self, service: &Key, addresses: ServiceAddresses) -> Vec<Key> {
        let mut changed = Vec::new();
        for (holder, addresses) in [
            (Holder::ClusterIp(service.clone()), addresses.cluster),
            (Holder::ExternalIp(service.clone()), addresses.external),
            (Holder::Ingress(service.clone()), addresses.ingress),
        ] {
            changed.extend(self.held.set(&holder, addresses));
        }
        self.reporters_of(&changed)
    }

    /// Adds the readable addresses of a Service that cannot be decoded; its known ones stay. Returns the
    /// VirtualMachineInstances whose [`AddressVerdict`] may have changed.
    pub fn add_service(&mut self, service: &Key, addresses: &ServiceAddresses) -> Vec<Key> {
        let mut changed = Vec::new();
        for (holder, addresses) in [
            (Holder::ClusterIp(service.clone()), &addresses.cluster),
            (Holder::ExternalIp(service.clone()), &addresses.external),
            (Holder::Ingress(service.clone()), &addresses.ingress),
        ] {
            changed.extend(self.held.add(&holder, addresses));
        }
        self.reporters_of(&changed)
    }

    /// Replaces the address that a VirtualMachineInstance reports; `None` when it is deleted. Returns the others whose
    /// address has become shared between namespaces, or is no longer.
    pub fn set_vmi(&mut self, vmi: &Key, address: Option<Ipv4Addr>) -> Vec<Key> {
        let before: Vec<(Ipv4Addr, bool)> = self
            .reported
            .of(vmi)
            .iter()
            .copied()
            .chain(address)
            .map(|address| (address, self.is_shared(address)))
            .collect();
        self.reported.set(vmi, address.into_iter().collect());
        let turned: Vec<Ipv4Addr> = before
            .into_iter()
            .filter(|(address, was)| self.is_shared(*address) != *was)
            .map(|(address, _)| address)
            .collect();
        let mut others = self.reporters_of(&turned);
        others.retain(|other| other != vmi);
        others
    }

    /// The VirtualMachineInstances that report any of these addresses, sorted, each once.
    pub fn reporters_of(&self, addresses: &[Ipv4Addr]) -> Vec<Key> {
        let reporters = addresses.iter().flat_map(|a| self.reported.holders(*a));
        let mut reporters: Vec<Key> = reporters.cloned().collect();
        reporters.sort();
        reporters.dedup();
        reporters
    }

    /// Whether a backend may have a reported address. `allocated`: an IPAllocation of the address exists.
    pub fn address_verdict(&self, address: Ipv4Addr, allocated: bool) -> AddressVerdict {
        let held = self.held.holders(address).next().cloned();
        let denied = || self.denied.iter().find(|cidr| cidr.contains(address));
        AddressVerdict {
            refusal: held
                .map(Refusal::Held)
                .or_else(|| allocated.then_some(Refusal::Allocated))
                .or_else(|| denied().copied().map(Refusal::Denied)),
            shared: self.is_shared(address),
        }
    }

    /// Whether VirtualMachineInstances of several namespaces report an address. Keys sort by namespace first.
    fn is_shared(&self, address: Ipv4Addr) -> bool {
        let first_and_last = self.reported.first_and_last(address);
        first_and_last.is_some_and(|(first, last)| first.namespace != last.namespace)
    }
}

#[cfg(test)]
mod tests;
