//! Which addresses no virtual machine may stand behind a load balancer with, and who reports which address (BE-8). Pure.
//!
//! What a machine reports may come from its guest agent, so a tenant chooses it. Without this, one would have the cluster
//! send traffic and health checks wherever the tenant likes: to a node, to a Service, to another tenant's address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use harvester_lb_object::Key;
use index::AddressIndex;
use k8s_openapi::api::core::v1::Service;

use crate::cached::ingress;

mod index;

/// Whose an address is. Of several the first in this order is told.
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

/// Why an address is not usable as a backend's. Its text goes to the tenant, and so it does not name the object, which may be
/// another tenant's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is somebody's.
    Held(Holder),
    /// It has an IPAllocation, whoever holds it.
    Allocated,
    /// It lies inside a `--backend-deny-cidr`.
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

/// A range of addresses as `address/prefix`; bits beyond the prefix do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Whether it contains an address. One of IPv6 contains no IPv4 address.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let IpAddr::V4(network) = self.network else {
            return false;
        };
        let differing = (network.to_bits() ^ address.to_bits()).leading_zeros();
        differing >= u32::from(self.prefix)
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
        let wrong = || format!("{text:?} is no range of addresses; write it like 10.0.0.0/8");
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

/// Ranges that are denied to backends, from a comma list; an empty one has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied(pub Vec<Cidr>);

impl FromStr for Denied {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        parts.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// The addresses of a Service, by what they are to it.
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
    /// Those of IPv4, which alone backends can have.
    pub fn of(service: &Service) -> Self {
        fn v4<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Ipv4Addr> {
            // The address of a headless Service is the text None.
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

/// What is known of an address that a machine reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Why it is not usable, if it is not.
    pub refusal: Option<Refusal>,
    /// Whether machines of several namespaces report it.
    pub shared: bool,
}

/// The addresses that are refused, and those that machines report.
///
/// The addresses of IPAllocations are not in here: a record is named after its address, so that its store tells.
#[derive(Debug, Default)]
pub struct Addresses {
    denied: Vec<Cidr>,
    held: AddressIndex<Holder>,
    reported: AddressIndex<Key>,
}

impl Addresses {
    /// Nothing known yet but what is denied.
    pub fn new(denied: Vec<Cidr>) -> Self {
        Self {
            denied,
            ..Self::default()
        }
    }

    /// A Node has these addresses now. Answers the machines whose standing may have changed, as all that follow do.
    pub fn set_node(&mut self, node: &Key, addresses: Vec<Ipv4Addr>) -> Vec<Key> {
        let changed = self.held.set(&Holder::Node(node.clone()), addresses);
        self.reporters_of(&changed)
    }

    /// A Node that cannot be decoded has these addresses, beside those that are known of it.
    pub fn add_node(&mut self, node: &Key, addresses: &[Ipv4Addr]) -> Vec<Key> {
        let changed = self.held.add(&Holder::Node(node.clone()), addresses);
        self.reporters_of(&changed)
    }

    /// A Service has these addresses now.
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

    /// A Service that cannot be decoded has these addresses, beside those that are known of it.
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

    /// A machine reports this address now. Answers the other machines that are affected: those which were the only ones of
    /// their namespace with the address, or are so now.
    pub fn set_machine(&mut self, vmi: &Key, address: Option<Ipv4Addr>) -> Vec<Key> {
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

    /// The machines that report any of these addresses.
    pub fn reporters_of(&self, addresses: &[Ipv4Addr]) -> Vec<Key> {
        let reporters = addresses.iter().flat_map(|a| self.reported.holders(*a));
        let mut reporters: Vec<Key> = reporters.cloned().collect();
        reporters.sort();
        reporters.dedup();
        reporters
    }

    /// What is known of an address that a machine reports; `allocated` if there is an IPAllocation of it.
    pub fn standing(&self, address: Ipv4Addr, allocated: bool) -> Standing {
        let held = self.held.holders(address).next().cloned();
        let denied = || self.denied.iter().find(|cidr| cidr.contains(address));
        Standing {
            refusal: held
                .map(Refusal::Held)
                .or_else(|| allocated.then_some(Refusal::Allocated))
                .or_else(|| denied().copied().map(Refusal::Denied)),
            shared: self.is_shared(address),
        }
    }

    /// Whether machines of several namespaces report an address. Keys sort by namespace first.
    fn is_shared(&self, address: Ipv4Addr) -> bool {
        let ends = self.reported.ends(address);
        ends.is_some_and(|(first, last)| first.namespace != last.namespace)
    }
}

#[cfg(test)]
mod tests;
