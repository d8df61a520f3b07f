//! Load balancers that share an address (SHR-1 to SHR-9). Pure.
//!
//! A group is the name in the annotation `primary-load-balancer`, within a namespace. The load balancer of that name is its primary,
//! the others are its secondaries.
//!
//! | module | owns |
//! |---|---|
//! | [`group`] | the role of each load balancer in a group, from the stored objects |
//! | [`membership`] | who may belong to a group, and why not (SHR-1, SHR-6, SHR-7) |
//! | [`naming`] | the names of the ports of Service and EndpointSlices, and how they change without a failed request (SHR-4) |
//! | [`ports`] | which members serve their ports, and whose port a contested one is (SHR-2) |
//! | [`index`] | which load balancers name which group, and which share an address |
//! | [`telling`] | what the status says of it |
//! | [`service`] | owners and ports of the Service (SHR-3) |
//! | [`refusals`] | what the API server refuses of the Service |
//! | [`next_write`] | what the next write of the Service changes |
//! | [`snapshot`] | the stored objects of a group, as the roles need them |

pub mod group;
pub mod index;
pub mod membership;
pub mod naming;
pub mod next_write;
pub mod ports;
pub mod refusals;
pub mod service;
pub mod snapshot;
pub mod telling;
pub mod told;
