//! What making and deleting many load balancers took, by the operator or by a bare client.

/// What making and deleting took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Took {
    /// Seconds from the first create to the last address.
    pub(crate) create: f64,
    /// CPU seconds of the API server, until the pool's status told of all.
    pub(crate) create_cpu: f64,
    /// Writes of the pool's status meanwhile.
    pub(crate) create_pool_writes: usize,
    /// Seconds from the first delete to the pool's status that says that all is free.
    pub(crate) delete: f64,
    /// Seconds from the answer to the last delete to the same.
    pub(crate) after_last: f64,
    /// CPU seconds of the API server meanwhile.
    pub(crate) delete_cpu: f64,
    /// Writes of the pool's status meanwhile.
    pub(crate) delete_pool_writes: usize,
    /// Other writes of the operator for making all, but its Lease.
    pub(crate) create_writes: u64,
    /// Other writes of the operator for deleting all, but its Lease.
    pub(crate) delete_writes: u64,
    /// Conflicts of the operator.
    pub(crate) conflicts: f64,
}
