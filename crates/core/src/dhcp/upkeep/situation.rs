//! What a step is decided from, and what comes out of it: the types of [`super::decide`].

use std::net::Ipv4Addr;

use harvester_lb_ipam::Owner;
use harvester_lb_ipam::dhcp::{Conflict, HardwareAddress, Lease, Loss};

use crate::dhcp::Mode;
use crate::dhcp::claim::{Interfaces, LbView};
use crate::dhcp::record::LeaseSpec;

/// The client of a lease, as it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientView {
    /// The interface that it works on.
    pub interface: String,
    /// Who it is to servers.
    pub hardware: HardwareAddress,
    /// The lease that it holds: its address may be served once it is recorded.
    pub lease: Option<Lease>,
    /// Whether a server may just have leased an address to it: it has asked for an offered one, or probes it.
    pub is_asking: bool,
    /// Why it lost the lease before.
    pub loss: Option<Loss>,
    /// The last address that it has declined (DHC-5).
    pub declined: Option<Ipv4Addr>,
}

impl ClientView {
    /// Whether it is the client of this record.
    pub(super) fn is_of(&self, record: &LeaseSpec) -> bool {
        self.interface == record.interface && self.hardware == record.hardware
    }
}

/// Who else has an address (DHC-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A pool.
    Pool,
    /// Another load balancer, whose record had the address first.
    Lease {
        /// The load balancer.
        lb: Owner,
        /// Whether its client has the same hardware address on the same interface.
        is_twin: bool,
    },
}

impl Holder {
    /// Why the client does not keep the address.
    pub const fn conflict(&self) -> Conflict {
        match self {
            Self::Pool => Conflict::Pool,
            Self::Lease { is_twin: true, .. } => Conflict::Twin,
            Self::Lease { is_twin: false, .. } => Conflict::Lease,
        }
    }
}

/// What a step is decided from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The mode of the process.
    pub mode: Mode,
    /// The interfaces on which leases may be asked for.
    pub interfaces: &'a Interfaces,
    /// The load balancer; `None` if there is none with this uid.
    pub lb: Option<&'a LbView>,
    /// Its record.
    pub record: Option<&'a LeaseSpec>,
    /// Its client.
    pub client: Option<&'a ClientView>,
    /// Whether its Service is kube-vip's: kube-vip's DHCP client works for it.
    pub is_kube_vips: bool,
    /// Whether a Service of ours has the address of the recorded lease, as far as is known (DHC-4).
    pub is_served: bool,
    /// Who else has the address that the client or, without one, the record has (DHC-5).
    pub holder: Option<&'a Holder>,
    /// A load balancer whose client has the same hardware address on the same interface, and whose lease is about to be given back.
    pub ending_twin: Option<&'a Owner>,
}

/// What a live read has to confirm before a step is taken. A Service is that of the load balancer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    None,
    /// There is no load balancer of this uid.
    Gone,
    /// The load balancer asks for what it asked for in the stored copy. That of a new leader may be older than what an earlier one
    /// has acted on.
    AsSeen,
    /// kube-vip's DHCP client does not work for the Service: two clients for one load balancer must never run (DHC-6).
    NotKubeVips,
    /// As [`Guard::AsSeen`] and [`Guard::NotKubeVips`].
    AsSeenAndNotKubeVips,
    /// No pool has this address (DHC-5). What other load balancers have leased is in records that this process alone writes.
    NotOfPool(Ipv4Addr),
    /// No Service of ours has this address (DHC-4).
    NotServed(Ipv4Addr),
    /// As [`Guard::NotServed`], and the load balancer is gone.
    GoneAndNotServed(Ipv4Addr),
    /// The record of the holder has this address (DHC-5).
    Held(Ipv4Addr),
    /// The Service is kube-vip's and names an address: the one that was given back, or another one that kube-vip has leased (DHC-6).
    NamedForKubeVip,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something changes.
    Rest,
    /// The record is created, with what [`super::first`] makes of the live Service.
    Create(Guard),
    /// A client is started from the record.
    Run(Guard),
    /// No client is started before [`Situation::ending_twin`] has given its lease back.
    AwaitTwin,
    /// The client, which has no lease, is removed.
    Stop,
    /// DHC-5: somebody else has the address; the client declines it, or leaves it.
    Decline(Guard, Ipv4Addr, Conflict),
    /// The record is replaced by this one.
    Write(Guard, LeaseSpec),
    /// DHC-4, DHC-6: the client, if there is one, gives the recorded lease back and is removed; then the record is replaced,
    /// or deleted.
    Release(Guard, Option<LeaseSpec>),
    /// The record is deleted. There is no client.
    Delete(Guard),
}
