//! Why a client ignores a message that is well-formed.

use std::fmt;

/// Why a well-formed reply was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ignored {
    /// It answers another transaction.
    Xid,
    /// It is for another hardware address.
    Hardware,
    /// It names another client identifier.
    ClientId,
    /// The client does not wait for such a message in its state; also a duplicate.
    State,
    /// It has no server identifier, or one that no server can have.
    NoServer,
    /// It is from another server than the one whose offer or lease this is.
    OtherServer,
    /// No host can have the address.
    UnusableAddress,
    /// It is for another address than the one asked for.
    OtherAddress,
    /// It has no lease time.
    NoLeaseTime,
    /// The lease is shorter than [`SHORTEST_LEASE`](super::SHORTEST_LEASE), or over when the message arrives.
    ShortLease,
}

impl Ignored {
    /// The value of a metric's label.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Xid => "xid",
            Self::Hardware => "hardware",
            Self::ClientId => "client_id",
            Self::State => "state",
            Self::NoServer => "no_server",
            Self::OtherServer => "other_server",
            Self::UnusableAddress => "unusable_address",
            Self::OtherAddress => "other_address",
            Self::NoLeaseTime => "no_lease_time",
            Self::ShortLease => "short_lease",
        }
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}
