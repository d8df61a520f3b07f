//! The cached form of each kind: the fields that the operator reads, and nothing else.

mod foreign;
mod ip_allocation;
mod ip_pool;
mod load_balancer;
mod trim;
mod virtual_machine;

pub use foreign::{
    CachedService, NodeAddresses, announced_instead, asked_address, ingress, is_labelled, is_lb,
    is_ours, node, service, shown_addresses, slice,
};
pub use ip_allocation::{Allocation, allocation_spec, id, key, record};
pub use ip_pool::{Maps, Pool};
pub use load_balancer::{Lb, ValidLb};
pub use virtual_machine::{Vm, Vmi, VmiState, backend_address};

#[cfg(test)]
mod tests;
