//! DHCP leases of load balancers of VM type (DHC-1 to DHC-6): the record, which is all that passes between the operator and
//! the DHCP process, and the decisions of both about it.
//!
//! | module | owns |
//! |---|---|
//! | [`record`] | the lease of an IPAllocation `dhcp-<uid>`, read and written |
//! | [`claim`] | what a load balancer asks for, and what its Service shows |
//! | [`serving`] | what the operator does about the address, from the record |
//! | [`upkeep`] | the next step of the DHCP process for one load balancer |
//! | [`events`] | the Events about leases |
//! | [`default_route`] | the interface of the default route |

pub mod claim;
pub mod default_route;
pub mod events;
pub mod record;
pub mod serving;
pub mod upkeep;

/// Who leases the addresses of load balancers of VM type with `ipam: dhcp` (OPS-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// kube-vip, for Services with the address 0.0.0.0. Leases of our own are given back (DHC-6).
    #[default]
    KubeVip,
    /// The DHCP process (DHC-1).
    Builtin,
}
