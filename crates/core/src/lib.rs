//! What the operator decides, without client, clock, task or log: from copies of objects to what should be.
//!
//! | module | owns |
//! |---|---|
//! | [`cached`] | the trimmed copies of objects that the stores keep |
//! | [`validation`] | what a spec may say: every violation, with its rule |
//! | [`spec`] | from what a user wrote to types that cannot be wrong |
//! | [`backends`] | which virtual machines stand behind a load balancer |
//! | [`backend_addresses`] | which addresses no backend may have, and who reports which |
//! | [`desired`] | the Service and the EndpointSlice that should exist |
//! | [`readiness`] | what a load balancer of VM type is worth |
//! | [`status`] | the status of a load balancer |
//! | [`pool_spec`] | from what a user wrote into a pool to what the ledger needs |
//! | [`pool_status`] | the status of a pool |
//! | [`guest_cluster`] | what happens to the load balancers of a guest cluster that is removed |
//! | [`unsupported`] | what only a later version can do |
//! | [`merge_patch`] | the difference between two objects |
//! | [`time`] | times in text |

pub mod backend_addresses;
pub mod backends;
pub mod cached;
pub mod desired;
pub mod guest_cluster;
pub mod merge_patch;
pub mod pool_spec;
pub mod pool_status;
pub mod readiness;
pub mod spec;
pub mod status;
pub mod time;
pub mod unsupported;
pub mod validation;
pub mod wording;
