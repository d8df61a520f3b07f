//! What a load balancer asks for, compared with the record of its lease (DHC-1). Pure. Owns which interface and which hardware address a
//! lease is to have.

use std::net::Ipv4Addr;

use harvester_lb_ipam::dhcp::HardwareAddress;

use crate::dhcp::claim::{Claim, Interfaces, LbView};
use crate::dhcp::record::{LeasePhase, LeaseSpec};

/// What the load balancer asks for.
pub(super) enum Wish<'a> {
    /// A lease on this interface, which somebody has chosen or not; the hardware address of its annotation.
    Lease {
        interface: &'a str,
        is_chosen: bool,
        hardware: Option<HardwareAddress>,
    },
    /// None.
    Nothing,
    /// It is gone, as far as is known.
    Gone,
    /// What it has stays as it is.
    Unchanged,
}

impl<'a> Wish<'a> {
    /// `lb`: `None` if it is gone.
    pub(super) fn of(lb: Option<&'a LbView>, interfaces: &'a Interfaces) -> Self {
        match lb.map(|lb| &lb.claim) {
            None => Self::Gone,
            // A spec that is refused changes nothing about a lease that exists (ALC-10).
            Some(
                Claim::Unchanged
                | Claim::Lease {
                    hardware: Err(_), ..
                },
            ) => Self::Unchanged,
            Some(Claim::None) => Self::Nothing,
            Some(Claim::Lease {
                interface,
                hardware: Ok(hardware),
            }) => {
                let (interface, is_chosen) = interfaces.choose(interface.as_deref());
                Self::Lease {
                    interface,
                    is_chosen,
                    hardware: *hardware,
                }
            }
        }
    }

    /// Whether the load balancer wants another lease than that of the record, or none. Without an annotation the recorded
    /// hardware address stays: it may be that of kube-vip's client (DHC-6). `has_lease`: whether the present one lasts, or might be
    /// there in a moment.
    pub(super) fn is_other_than(&self, record: &LeaseSpec, has_lease: bool) -> bool {
        match *self {
            Self::Gone | Self::Nothing => true,
            Self::Unchanged => false,
            Self::Lease { hardware, .. } => {
                self.interface(record, has_lease) != record.interface
                    || hardware.is_some_and(|hardware| hardware != record.hardware)
            }
        }
    }

    /// The record, asking for a lease as the load balancer wishes. An address is asked for on its own network only. `has_lease` as for
    /// [`Wish::is_other_than`].
    pub(super) fn asking(
        &self,
        record: &LeaseSpec,
        wanted: Option<Ipv4Addr>,
        has_lease: bool,
    ) -> LeaseSpec {
        let interface = self.interface(record, has_lease);
        let hardware = match self {
            Self::Lease { hardware, .. } => *hardware,
            _ => None,
        };
        LeaseSpec {
            owner: record.owner.clone(),
            phase: LeasePhase::Pending,
            interface: interface.to_owned(),
            is_chosen: self.is_chosen(record),
            hardware: hardware.unwrap_or(record.hardware),
            wanted: wanted.filter(|_| interface == record.interface),
            bound_at: None,
        }
    }

    /// Whether somebody has chosen the interface; as recorded if the load balancer does not say.
    pub(super) const fn is_chosen(&self, record: &LeaseSpec) -> bool {
        match *self {
            Self::Lease { is_chosen, .. } => is_chosen,
            _ => record.is_chosen,
        }
    }

    /// DHC-2: the interface of the lease, as in [`Wish::is_other_than`]. Where nobody has chosen one, before or now, the lease stays
    /// where it is: the default route of this host may be on another interface than that of the last leader.
    fn interface<'b>(&self, record: &'b LeaseSpec, has_lease: bool) -> &'b str
    where
        'a: 'b,
    {
        match *self {
            Self::Lease {
                interface,
                is_chosen,
                ..
            } if is_chosen || record.is_chosen || !has_lease => interface,
            _ => &record.interface,
        }
    }
}
