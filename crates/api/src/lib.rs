//! Types of the API group `loadbalancer.harvesterhci.io`, its labels and annotations, and the fields that are read of
//! other kinds.
//!
//! This crate owns the wire format only: no client, no decisions. The structs mirror the stored JSON field for field,
//! including values that are invalid; the operator converts them into checked types before it acts on them.

pub mod cni;
pub mod condition;
pub mod crd;
pub mod ipallocation;
pub mod ippool;
pub mod keys;
pub mod kubevirt;
pub mod loadbalancer;
pub mod meta;
pub mod projection;
pub mod v1alpha1;

pub use condition::{Condition, ConditionStatus};
pub use ipallocation::{DhcpLease, IPAllocation, IPAllocationSpec, Owner, Phase};
pub use ippool::{IPPool, IPPoolSpec, IPPoolStatus, Range, Selector, Tuple};
pub use loadbalancer::{
    AllocatedAddress, HealthCheck, Ipam, Listener, LoadBalancer, LoadBalancerSpec,
    LoadBalancerStatus, WorkloadType,
};

/// API group of all kinds of this crate.
pub const GROUP: &str = "loadbalancer.harvesterhci.io";
/// `apiVersion` of all kinds of this crate, and the version that is stored.
pub const API_VERSION: &str = "loadbalancer.harvesterhci.io/v1beta1";
/// `apiVersion` of the other version of LoadBalancer, which is served for old guest clusters and not stored (section 2.3).
pub const API_VERSION_V1ALPHA1: &str = "loadbalancer.harvesterhci.io/v1alpha1";
