//! What a load balancer asks of the DHCP process, and what its Service shows (DHC-1, DHC-4, DHC-6, KVA-2). Pure. Owns the
//! reading of these two kinds, into the few values that the process keeps of them.

use std::net::{IpAddr, Ipv4Addr};

use harvester_lb_api::meta::{Decoded, annotation};
use harvester_lb_api::{Ipam, LoadBalancer, LoadBalancerSpec, WorkloadType, keys};
use harvester_lb_ipam::dhcp::{HardwareAddress, HardwareAddressError};
use harvester_lb_ipam::{Owner, Uid};
use k8s_openapi::api::core::v1::Service;

use crate::cached::{CachedService, asked_address, is_ours, shown_addresses};
use crate::sharing::membership::fault_of;
use crate::{kube_vip_annotations, spec};

/// A load balancer, as the DHCP process keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbView {
    /// Its namespace, name and uid.
    pub owner: Owner,
    /// Whether it asks for a lease.
    pub claim: Claim,
}

/// Whether a load balancer asks for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It cannot be decoded, is being deleted (BE-6), or the operator refuses its spec (ALC-10), whatever that asks for by now, or its
    /// request to share an address (SHR-1): what it has stays as it is, and nothing new begins.
    Unchanged,
    /// It does not: cluster type, or `ipam: pool`.
    None,
    /// It does: VM type with `ipam: dhcp`.
    Lease {
        /// The annotation `kube-vip.io/serviceInterface`.
        interface: Option<String>,
        /// The annotation `dhcp-hardware-address`.
        hardware: Result<Option<HardwareAddress>, HardwareAddressError>,
    },
}

impl Claim {
    /// Whether what the load balancer has stays as it is: a spec that is refused changes nothing about a lease that exists (ALC-10).
    pub const fn stays(&self) -> bool {
        matches!(
            self,
            Self::Unchanged
                | Self::Lease {
                    hardware: Err(_),
                    ..
                }
        )
    }
}

/// Whether the address of a load balancer is a lease (DHC-1), provided that the mode is `builtin`.
pub fn asks_for_lease(spec: &LoadBalancerSpec) -> bool {
    spec.workload() == WorkloadType::Vm && spec.address_source() == Ipam::Dhcp
}

impl LbView {
    /// Reads an object of the watch.
    pub fn from_watch(decoded: Decoded<LoadBalancer>) -> Self {
        match decoded {
            Ok(object) => Self::of(&object),
            Err(invalid) => Self {
                owner: spec::owner(&invalid.metadata),
                claim: Claim::Unchanged,
            },
        }
    }

    /// DHC-1: reads a decoded object.
    pub fn of(lb: &LoadBalancer) -> Self {
        let meta = &lb.metadata;
        let asks = asks_for_lease(&lb.spec);
        let hardware = annotation(meta, keys::ANNOTATION_DHCP_HARDWARE_ADDRESS);
        let hardware = hardware.map(HardwareAddress::parse).transpose();
        // A hardware address that is none has an Event of its own, and only one that asks for a lease is refused for it.
        // One whose Service cannot have the name of a listener is refused too, unless it shares an address (section 8.2), which is none by
        // DHCP.
        let may_share = !asks && annotation(meta, keys::ANNOTATION_PRIMARY).is_some();
        let is_invalid = |lb| match spec::check(lb) {
            Ok(checked) => !may_share && checked.vm.is_some_and(|vm| vm.unusable_name.is_some()),
            Err(_) => true,
        };
        let is_refused = |lb| (hardware.is_ok() || !asks) && is_invalid(lb);
        let may_not_share = |lb| asks && fault_of(lb).is_some();
        let claim = if meta.deletion_timestamp.is_some() || is_refused(lb) || may_not_share(lb) {
            Claim::Unchanged
        } else if asks {
            let interface = annotation(meta, keys::ANNOTATION_KUBE_VIP_INTERFACE);
            Claim::Lease {
                interface: interface.filter(|i| !i.is_empty()).map(ToOwned::to_owned),
                hardware,
            }
        } else {
            Claim::None
        };
        Self {
            owner: spec::owner(meta),
            claim,
        }
    }

    /// Its uid.
    pub const fn uid(&self) -> &Uid {
        &self.owner.uid
    }
}

/// The interfaces on which leases may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// The one that counts unless a load balancer names another one.
    pub default: String,
    /// Whether the administrator has chosen the default. Else it is that of the default route of this host, and another host may have
    /// another one: it counts for leases that are asked for, and moves none whose interface nobody has chosen either (DHC-2).
    pub is_chosen: bool,
    /// Those that load balancers may name.
    pub allowed: kube_vip_annotations::Interfaces,
}

impl Interfaces {
    /// KVA-2: the interface that a load balancer names, if that is allowed, else the default one. Who may write a load
    /// balancer is no administrator of the hosts.
    ///
    /// Returns the interface, and whether somebody has chosen it.
    pub fn choose<'a>(&'a self, named: Option<&'a str>) -> (&'a str, bool) {
        match named.filter(|named| self.allowed.allow(named)) {
            Some(allowed) => (allowed, true),
            None => (&self.default, self.is_chosen),
        }
    }
}

/// A Service of a load balancer, as the DHCP process reads it. A Service of another owner is none: only ours count (DHC-4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceView {
    /// Whether it cannot be decoded: it may have further addresses.
    pub is_undecodable: bool,
    /// Whether kube-vip's own DHCP client works for it, or will: its `loadBalancerIP` is 0.0.0.0 (OPS-3).
    pub is_kube_vips: bool,
    /// The addresses in `loadBalancerIP` and in its ingress, for which kube-vip may answer ARP (DHC-5). What its annotation names
    /// may be a wish.
    pub shown: Vec<Ipv4Addr>,
    /// kube-vip's annotation with the address that it has leased, or is to ask for.
    pub kube_vip_address: Option<Ipv4Addr>,
    /// kube-vip's annotation with the hardware address of its client.
    pub kube_vip_hardware: Option<HardwareAddress>,
}

impl ServiceView {
    /// Reads a Service of the watch. `None`: it belongs to no load balancer.
    pub fn from_watch(service: &CachedService) -> Option<Self> {
        Some(Self {
            is_undecodable: service.undecodable.is_some(),
            ..Self::of(service)?
        })
    }

    /// Reads a decoded Service. `None`: it belongs to no load balancer.
    pub fn of(service: &Service) -> Option<Self> {
        let meta = &service.metadata;
        if !is_ours(meta) {
            return None;
        }
        let shown = shown_addresses(service).into_iter();
        let leased = annotation(meta, keys::ANNOTATION_KUBE_VIP_REQUESTED_IP);
        let hardware = annotation(meta, keys::ANNOTATION_KUBE_VIP_HARDWARE);
        Some(Self {
            is_undecodable: false,
            is_kube_vips: asked_address(service) == Some(keys::DHCP_ADDRESS),
            shown: shown
                .filter_map(|address| match address {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                })
                .collect(),
            kube_vip_address: leased
                .and_then(|text| text.parse().ok())
                .filter(|address: &Ipv4Addr| !address.is_unspecified()),
            kube_vip_hardware: hardware.and_then(|text| HardwareAddress::parse(text).ok()),
        })
    }

    /// DHC-4: whether it serves this address, or may.
    pub fn may_serve(&self, address: Ipv4Addr) -> bool {
        self.is_undecodable || self.shown.contains(&address)
    }
}

#[cfg(test)]
mod tests;
