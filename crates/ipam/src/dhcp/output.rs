//! What goes into the machine and what comes out of it. Owns only these types.

use std::net::Ipv4Addr;

use super::identity::HardwareAddress;
use super::ignored::Ignored;
use super::lease::Lease;
use super::message::{ClientMessage, Reply};

/// An input of a client.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A wake-up is due; or the wall clock was set. Harmless at any other time.
    Time,
    /// Begin: with INIT-REBOOT if there is a recorded lease (DHC-2), else with a DISCOVER. Only the first one counts.
    Start,
    /// A message of a server, and the Ethernet source of its frame.
    Reply {
        /// The message.
        reply: &'a Reply,
        /// Where a RELEASE can be sent: the server, or the relay or router in front of it.
        source: HardwareAddress,
    },
    /// DHC-5: the probe that was asked for is sent: from now on an answer has its time. Harmless at any other time.
    Sent,
    /// The last probe was not sent: the address is probed again, so many times. Harmless at any other time.
    Unsent,
    /// DHC-5: what answers the probe says nothing for now: the address is probed again, as long as that lasts. Harmless at any other time.
    Doubted,
    /// This address is in use: an ARP packet shows it, or this host has it itself. With the hardware address of who has it.
    InUse(Ipv4Addr, HardwareAddress),
    /// DHC-5: kube-vip announces this address for the load balancer itself, or did a moment ago. If it is being probed, it counts as free:
    /// an answer would be kube-vip's.
    Own(Ipv4Addr),
    /// DHC-5: somebody else has this address.
    Held(Ipv4Addr, Conflict),
    /// DHC-4, DHC-6: give the lease back and stop. Also before [`Input::Start`], with a recorded lease.
    Release,
}

/// An output of a client, in the order in which it has to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this message.
    Send {
        /// The message.
        message: ClientMessage,
        /// For a RELEASE: the Ethernet address of the server, if known.
        server: Option<HardwareAddress>,
    },
    /// Send an ARP probe for this address, and report that with [`Input::Sent`]; an answer with [`Input::InUse`] or
    /// [`Input::Doubted`], or with [`Input::Unsent`] that there may be none.
    Probe(Ipv4Addr),
    /// Write this lease into the record: it is new, or its times have changed.
    Record(Lease),
    /// DHC-3: remove the lease from the record. The address must not be served any more.
    Lost {
        /// The address.
        address: Ipv4Addr,
        /// Why.
        loss: Loss,
    },
    /// For an Event of the load balancer and a counter.
    Event(Event),
    /// A reply was ignored; to be counted.
    Ignored(Ignored),
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// A server sent a NAK.
    Nak,
    /// No server confirmed it in time.
    Expired,
    /// Somebody else has the address.
    Conflict,
}

/// Who else has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// A host that answers ARP.
    Host,
    /// A pool's record.
    Pool,
    /// The recorded lease of another load balancer.
    Lease,
    /// The same, and the client there has the same hardware address. A server that identifies clients by that takes the two for one:
    /// a DECLINE would end the other one's lease.
    Twin,
    /// A host that answers ARP from the hardware address of the client itself, which was chosen for it (DHC-1). As of a twin: a server that
    /// identifies clients by that has acknowledged the lease of that host, which a DECLINE would end.
    TwinHost,
}

impl Conflict {
    /// Whether who has the address may be the same client to a server.
    pub const fn is_twin(self) -> bool {
        matches!(self, Self::Twin | Self::TwinHost)
    }
}

/// What happened to a load balancer's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// No server has answered for half a minute, or one has offered an address and does not acknowledge it. The client continues.
    Unanswered,
    /// No server has answered the last REQUEST of a renewal; the client asks again. The lease lasts until it expires.
    RenewalUnanswered,
    /// A new lease.
    Bound(Lease),
    /// The lease was renewed, or confirmed after a restart.
    Renewed(Lease),
    /// A server sent a NAK.
    Refused {
        /// The server.
        server: Ipv4Addr,
        /// Its reason, if it gave one (option 56).
        text: Option<String>,
    },
    /// The lease expired.
    Expired(Ipv4Addr),
    /// DHC-5: the address was declined, or left without a message: as it was only offered, or [`Conflict::is_twin`].
    Declined {
        /// The address.
        address: Ipv4Addr,
        /// Who has it.
        conflict: Conflict,
        /// Whether it was offered and not asked for.
        is_offer: bool,
    },
    /// The address was given back.
    Released(Ipv4Addr),
}
