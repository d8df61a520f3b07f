//! Whether the API server is available to the client.

/// How the API server is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Connections are refused, and open ones are cut.
    Refused,
    /// Connections and requests are accepted, but not answered; watches are silent. Everything continues with
    /// [`Proxy::make_available`](super::Proxy::make_available), as after SIGSTOP and SIGCONT.
    Silent,
}

/// Whether traffic passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Here,
    Unavailable(Unavailable),
    /// The proxy was dropped.
    Ended,
}

impl Mode {
    /// Whether connections have to be cut.
    pub(super) const fn is_cut(self) -> bool {
        matches!(self, Self::Unavailable(Unavailable::Refused) | Self::Ended)
    }
}
