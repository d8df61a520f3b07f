//! The controllers. Each takes a key from its work queue, compares desired with observed state and writes the difference.

pub mod guest_cluster;
pub mod invalid_object;
pub mod ip_pool;
pub mod kube_vip_migration;
pub mod legacy_finalizers;
pub mod live;
pub mod load_balancer;
pub mod records;
pub mod released_records;
pub mod takeover;
pub mod waiting_messages;
