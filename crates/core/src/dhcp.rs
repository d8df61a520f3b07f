//! DHCP leases of load balancers of VM type (DHC-1 to DHC-6): the record, which is all that passes between the operator and
//! the DHCP process, and the decisions of both about it.
//!
//! | module | owns |
//! |---|---|
//! | [`record`] | the lease of an IPAllocation `dhcp-<uid>`, read and written |
//! | [`serving`] | what the operator does about the address, from the record |

pub mod record;
pub mod serving;

/// Who leases the addresses of load balancers of VM type with `ipam: dhcp` (OPS-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// kube-vip, for Services with the address 0.0.0.0. Leases of our own are given back (DHC-6).
    #[default]
    KubeVip,
    /// The DHCP process (DHC-1).
    Builtin,
}
