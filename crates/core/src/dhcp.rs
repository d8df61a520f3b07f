//! DHCP leases of load balancers of VM type (DHC-1 to DHC-6): the record, which is all that passes between the operator and
//! the DHCP process, and the decisions of both about it.
//!
//! | module | owns |
//! |---|---|
//! | [`record`] | the lease of an IPAllocation `dhcp-<uid>`, read and written |
//! | [`claim`] | what a load balancer asks for, and what its Service shows |
//! | [`upkeep`] | the next step of the DHCP process for one load balancer |
//! | [`events`] | the Events about leases |
//! | [`default_route`] | the interface of the default route |

pub mod claim;
pub mod default_route;
pub mod events;
pub mod record;
pub mod upkeep;
