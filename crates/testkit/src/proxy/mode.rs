//! Whether the API server is there for the client.

/// In which way the API server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Connections are refused, and those that are open are cut.
    Refused,
    /// Connections and requests are accepted, and nothing is answered; watches are silent. All goes on with
    /// [`Proxy::come_back`](super::Proxy::come_back), as after SIGSTOP and SIGCONT.
    Silent,
}

/// Whether anything passes at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Here,
    Away(Away),
    /// The proxy was dropped.
    Ended,
}

impl Mode {
    /// Connections are of no use any more.
    pub(super) const fn is_cut(self) -> bool {
        matches!(self, Self::Away(Away::Refused) | Self::Ended)
    }
}
