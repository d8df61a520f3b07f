//! Types of the API group `loadbalancer.harvesterhci.io`, its keys, and the parts of foreign types that are read.
//!
//! This crate owns the wire format and nothing else: it knows no client and makes no decision. The structs mirror the
//! stored JSON field for field, including what a user may get wrong; the operator turns them into checked types
//! before it acts on them.

pub mod condition;
pub mod crd;
pub mod ipallocation;
pub mod ippool;
pub mod keys;
pub mod kubevirt;
pub mod loadbalancer;
pub mod meta;
pub mod projection;

pub use condition::{Condition, ConditionStatus};
pub use ipallocation::{IPAllocation, IPAllocationSpec, Owner, Phase};
pub use ippool::{IPPool, IPPoolSpec, IPPoolStatus, Range, Selector, Tuple};
pub use loadbalancer::{
    AllocatedAddress, HealthCheck, Ipam, Listener, LoadBalancer, LoadBalancerSpec,
    LoadBalancerStatus, WorkloadType,
};

/// API group of all kinds of this crate.
pub const GROUP: &str = "loadbalancer.harvesterhci.io";
/// `apiVersion` of the kinds that upstream shares, of which this version is served and stored.
pub const API_VERSION: &str = "loadbalancer.harvesterhci.io/v1beta1";
