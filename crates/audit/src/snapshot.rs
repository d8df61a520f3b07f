//! The objects to check, as stored by the API server at one moment.

use std::net::Ipv4Addr;

use harvester_lb_api::kubevirt::VirtualMachineInstance;
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// All objects that the operator reads and writes. Lists of several kinds are consistent only if no object is written
/// meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All LoadBalancers.
    pub load_balancers: Vec<LoadBalancer>,
    /// All IPPools.
    pub pools: Vec<IPPool>,
    /// All IPAllocations.
    pub records: Vec<IPAllocation>,
    /// All Services, including those that the operator does not own.
    pub services: Vec<Service>,
    /// The EndpointSlices that have the name of a LoadBalancer, or the operator's label.
    pub slices: Vec<EndpointSlice>,
    /// The objects that backends depend on. None: backends are not checked.
    pub cluster: Option<Cluster>,
    /// Objects that cannot be decoded, and are in none of the other lists.
    pub undecodable: Vec<UndecodableObject>,
    /// Whether kube-vip runs: then every address that a Service requests is announced. Without it an address may be
    /// announced or not, but no other than the requested one.
    pub announcing: bool,
}

/// The objects that backends depend on.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// All VirtualMachineInstances.
    pub machines: Vec<VirtualMachineInstance>,
    /// All Nodes.
    pub nodes: Vec<Node>,
    /// Networks that the operator is configured to deny to backends: address and prefix length (BE-8).
    pub denied: Vec<(Ipv4Addr, u8)>,
}

/// An object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndecodableObject {
    /// Its kind, such as `LoadBalancer`.
    pub kind: &'static str,
    /// Its namespace; empty if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The field and the error.
    pub error: String,
}
