//! One controller for each kind of work: it takes a key, decides, and writes.

pub mod guest_cluster;
pub mod invalid_object;
pub mod ip_pool;
pub mod legacy_finalizers;
pub mod load_balancer;
pub mod released_records;
pub mod takeover;
pub mod waiting_messages;
