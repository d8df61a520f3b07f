//! Duration and cost of creating and deleting many LoadBalancers, by the operator or by a bare client.

use super::sample::Sample;

/// Duration and cost of creating and deleting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Took {
    /// Seconds from the first create to the last address.
    pub(crate) create: f64,
    /// CPU seconds of the API server, until the pool's status covers all.
    pub(crate) create_cpu: f64,
    /// Writes of the pool's status in that time.
    pub(crate) create_pool_writes: usize,
    /// Seconds from the first delete to the pool's status with all addresses free.
    pub(crate) delete: f64,
    /// Seconds from the answer to the last delete to the same status.
    pub(crate) after_last: f64,
    /// CPU seconds of the API server in that time.
    pub(crate) delete_cpu: f64,
    /// Writes of the pool's status in that time.
    pub(crate) delete_pool_writes: usize,
    /// Other writes of the operator for the creation, without its Lease.
    pub(crate) create_writes: u64,
    /// Other writes of the operator for the deletion, without its Lease.
    pub(crate) delete_writes: u64,
    /// Events that the operator wrote for the creation.
    pub(crate) events: u64,
    /// The status that the operator wrote.
    pub(crate) sample: Sample,
    /// Conflicts of the operator.
    pub(crate) conflicts: f64,
}
