//! What there is to be judged: copies of objects, as the API server holds them at one moment.

use std::net::Ipv4Addr;

use harvester_lb_api::kubevirt::VirtualMachineInstance;
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// All that the operator reads and writes. Kinds that are read one after the other belong together only while nobody writes.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All LoadBalancers.
    pub load_balancers: Vec<LoadBalancer>,
    /// All IPPools.
    pub pools: Vec<IPPool>,
    /// All IPAllocations.
    pub records: Vec<IPAllocation>,
    /// All Services, those of others too.
    pub services: Vec<Service>,
    /// The EndpointSlices that have the name of a LoadBalancer, or the operator's label.
    pub slices: Vec<EndpointSlice>,
    /// What backends are judged by. Without it they are not.
    pub cluster: Option<Cluster>,
    /// Whether kube-vip is at work: then what Services ask for is announced, and nothing else is.
    pub announcing: bool,
}

/// What backends are judged by.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// All VirtualMachineInstances.
    pub machines: Vec<VirtualMachineInstance>,
    /// All Nodes.
    pub nodes: Vec<Node>,
    /// Networks that the operator was told to deny to backends: address and prefix length (BE-8).
    pub denied: Vec<(Ipv4Addr, u8)>,
}
