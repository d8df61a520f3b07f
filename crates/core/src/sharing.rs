//! Load balancers that share an address (SHR-1 to SHR-9). Pure.
//!
//! A group is the name in the annotation `primary-load-balancer`, within a namespace. The load balancer of that name is its primary,
//! the others are its secondaries.
//!
//! Nothing uses this yet: load balancers that ask for it are left alone, see [`crate::unsupported`].
//!
//! | module | owns |
//! |---|---|
//! | [`group`] | the role of each load balancer in a group, from the stored objects |
//! | [`membership`] | who may belong to a group, and why not (SHR-1, SHR-6, SHR-7) |
//! | [`naming`] | the names of the ports of Service and EndpointSlices, and how they change without a failed request (SHR-4) |
//! | [`ports`] | which members serve their ports, and whose port a contested one is (SHR-2) |

pub mod group;
pub mod membership;
pub mod naming;
pub mod ports;
