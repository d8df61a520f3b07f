//! What the administrator of the hosts decides about load balancers, by the command line.

use harvester_lb_core::backend_addresses::Cidr;
use harvester_lb_core::dhcp::Mode;
use harvester_lb_core::kube_vip_annotations::Interfaces;

/// The decisions. They are the same for all terms of a process.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The ranges in which no backend may have an address (BE-8).
    pub denied_to_backends: Vec<Cidr>,
    /// The interfaces of the nodes that load balancers may name (KVA-2).
    pub interfaces: Interfaces,
    /// Who leases the addresses of load balancers with `ipam: dhcp` (OPS-3, DHC-1).
    pub dhcp_mode: Mode,
}
