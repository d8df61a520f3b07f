//! The states of a client (RFC 2131, figure 5) and what each remembers.

use core::time::Duration;
use std::net::Ipv4Addr;

use super::super::clock::Now;
use super::super::lease::{Deadlines, Grant, Lease};
use super::super::timing::CLOCK_TOLERANCE;

/// The state of a client, for metrics and logs. Names of RFC 2131, apart from STOPPED and CHECKING.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// Not started, or released.
    Stopped,
    /// Waits before a DISCOVER.
    Init,
    /// Has sent a DISCOVER; or has sent an ARP probe for an offered address, before it asks for that.
    Selecting,
    /// Has asked for an offered address.
    Requesting,
    /// Has sent an ARP probe for an acknowledged address.
    Checking,
    /// Has a recorded lease, and asks a server to confirm it.
    Rebooting,
    /// Has a lease.
    Bound,
    /// Renews the lease, after T1.
    Renewing,
    /// Renews the lease with any server, after T2.
    Rebinding,
}

impl StateName {
    /// The value of a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Init => "init",
            Self::Selecting => "selecting",
            Self::Requesting => "requesting",
            Self::Checking => "checking",
            Self::Rebooting => "rebooting",
            Self::Bound => "bound",
            Self::Renewing => "renewing",
            Self::Rebinding => "rebinding",
        }
    }
}

/// A transaction: messages with one id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) xid: u32,
    /// When the client began to ask, for `secs`.
    pub(super) began: Duration,
    /// `secs` of the last message. The REQUEST for an offer has that of the DISCOVER (RFC 2131, 3.1).
    pub(super) secs: u16,
    /// When the first REQUEST that a reply may answer was sent.
    pub(super) asked: Duration,
    /// Messages sent.
    pub(super) sent: u32,
    /// When to send again.
    pub(super) resend_at: Duration,
}

/// An address and the server that has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) address: Ipv4Addr,
    pub(super) server: Ipv4Addr,
}

impl Offer {
    pub(super) const fn of(lease: &Lease) -> Self {
        Self {
            address: lease.address,
            server: lease.server,
        }
    }
}

/// What is probed (DHC-5), and what it needs to go on once nobody has answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Checked {
    /// An offered address, which was not asked for yet.
    Offer(Offer, Exchange),
    /// An acknowledged one.
    Grant(Grant),
}

impl Checked {
    pub(super) const fn offer(&self) -> Offer {
        match self {
            Self::Offer(offer, _) => *offer,
            Self::Grant(grant) => Offer::of(&grant.lease),
        }
    }

    /// Whether the lease is over already.
    pub(super) fn is_over(&self, now: Now) -> bool {
        match self {
            Self::Offer(..) => false,
            Self::Grant(grant) => grant.is_over(now),
        }
    }
}

/// The state, and what only this state needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Stopped,
    Init {
        /// When to send the DISCOVER.
        at: Duration,
    },
    Selecting {
        exchange: Exchange,
        /// An offer of another address than the wanted one, and when to take it.
        second_best: Option<(Offer, Duration)>,
    },
    Requesting {
        exchange: Exchange,
        offer: Offer,
    },
    Checking {
        checked: Checked,
        until: Duration,
        /// Whether a probe was sent that has its time for an answer until then.
        is_probed: bool,
        /// Probes before that one that were not sent.
        unsent: u32,
    },
    Rebooting(Exchange),
    Bound,
    Renewing(Exchange),
    Rebinding(Exchange),
}

impl State {
    pub(super) const fn name(&self) -> StateName {
        match self {
            Self::Stopped => StateName::Stopped,
            Self::Init { .. } => StateName::Init,
            Self::Selecting { .. }
            | Self::Checking {
                checked: Checked::Offer(..),
                ..
            } => StateName::Selecting,
            Self::Requesting { .. } => StateName::Requesting,
            Self::Checking { .. } => StateName::Checking,
            Self::Rebooting(_) => StateName::Rebooting,
            Self::Bound => StateName::Bound,
            Self::Renewing(_) => StateName::Renewing,
            Self::Rebinding(_) => StateName::Rebinding,
        }
    }

    /// The transaction in which a reply is expected.
    pub(super) const fn exchange(&self) -> Option<&Exchange> {
        match self {
            Self::Selecting { exchange, .. }
            | Self::Requesting { exchange, .. }
            | Self::Rebooting(exchange)
            | Self::Renewing(exchange)
            | Self::Rebinding(exchange) => Some(exchange),
            Self::Stopped | Self::Init { .. } | Self::Checking { .. } | Self::Bound => None,
        }
    }
}

/// A lease that the client has: the address may be served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// As recorded.
    pub(super) lease: Lease,
    /// None: infinite.
    pub(super) deadlines: Option<Deadlines>,
}

impl Held {
    /// The times at which something is due: those of the clock that reaches them first. If the wall clock was set forward
    /// the lease is renewed early, before the operator ends the Service at the recorded expiry (DHC-3).
    pub(super) fn due(&self, now: Now) -> Option<Deadlines> {
        let real = self.deadlines?;
        let recorded = self.lease.times.map(|times| Deadlines::of(&times, now));
        Some(recorded.map_or(real, |recorded| real.min(recorded)))
    }

    /// Whether the wall clock was set forward since the lease was recorded, more than a clock drifts. The leases of all clients are then
    /// due at the same moment.
    pub(super) fn is_ahead(&self, now: Now) -> bool {
        let (Some(real), Some(times)) = (self.deadlines, self.lease.times) else {
            return false;
        };
        let early = real
            .times(now)
            .expires_at
            .0
            .saturating_sub(times.expires_at.0);
        early > CLOCK_TOLERANCE
    }

    /// DHC-3: whether the lease has expired on one of the two clocks.
    pub(super) fn is_over(&self, now: Now) -> bool {
        self.due(now).is_some_and(|due| now.mono >= due.expire)
    }
}
