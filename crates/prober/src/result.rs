//! How a probe ended, and which errors of a connect say something about the target (HC-6).

use std::io;

use nix::errno::Errno;

use crate::ConnectError;

/// How a probe ended.
///
/// Everything but [`ProbeResult::Success`] and [`ProbeResult::OwnFault`] counts as a failure of
/// the target (contract 8.5: refusal, error or timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// The handshake completed.
    Success,
    /// The target refused the connection.
    Refused,
    /// No answer within the timeout of the check, or within the kernel's own.
    Timeout,
    /// The host did not answer on its network (ARP), or a router said that it, or its network, cannot be reached: what a
    /// machine that is switched off looks like, and every machine when our own carrier is lost.
    Unreachable,
    /// Any other error of the connection, a reset for instance.
    Error,
    /// Our own machine could not even try. Says nothing about the target and is never counted
    /// against it; the target is probed again when its next turn comes.
    OwnFault(OwnFault),
}

/// Why our own machine could not start a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnFault {
    /// Too many open files, in the process or the whole system.
    FileLimit,
    /// No local address or no local port left.
    LocalAddress,
    /// No route to the target, or one that says unreachable, or the interface is down.
    Network,
    /// Forbidden, by a local packet filter or security policy for instance.
    Permission,
    /// No memory for the socket.
    Memory,
    /// The probe could not run for another reason of our own, at the end of the runtime for
    /// instance.
    Other,
}

impl ProbeResult {
    /// Every value, for metrics that want all their series from the start.
    pub const ALL: [Self; 11] = [
        Self::Success,
        Self::Refused,
        Self::Timeout,
        Self::Unreachable,
        Self::Error,
        Self::OwnFault(OwnFault::FileLimit),
        Self::OwnFault(OwnFault::LocalAddress),
        Self::OwnFault(OwnFault::Network),
        Self::OwnFault(OwnFault::Permission),
        Self::OwnFault(OwnFault::Memory),
        Self::OwnFault(OwnFault::Other),
    ];

    /// The value as a metric label (OPS-1: `harvester_lb_probes_total{result}`).
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Error => "error",
            Self::OwnFault(OwnFault::FileLimit) => "own_file_limit",
            Self::OwnFault(OwnFault::LocalAddress) => "own_local_address",
            Self::OwnFault(OwnFault::Network) => "own_network",
            Self::OwnFault(OwnFault::Permission) => "own_permission",
            Self::OwnFault(OwnFault::Memory) => "own_memory",
            Self::OwnFault(OwnFault::Other) => "own_other",
        }
    }

    /// What the result says about the target: `Some(true)` a success, `Some(false)` a failure,
    /// `None` nothing, because the fault was ours.
    pub const fn says(self) -> Option<bool> {
        match self {
            Self::Success => Some(true),
            Self::Refused | Self::Timeout | Self::Unreachable | Self::Error => Some(false),
            Self::OwnFault(_) => None,
        }
    }

    /// Whether nothing came back from the target, neither good nor bad: the next probe of it will probably last as long as
    /// its timeout allows.
    pub const fn is_silence(self) -> bool {
        matches!(self, Self::Timeout | Self::Unreachable)
    }

    /// Reads the outcome of a connect that ended before the timeout of its check (HC-6).
    ///
    /// The same error number means different things: ENETUNREACH from `connect` is a route that we lack, in `SO_ERROR` a
    /// router's word about the target.
    pub fn of_connect(outcome: &Result<(), ConnectError>) -> Self {
        match outcome {
            Ok(()) => Self::Success,
            Err(ConnectError::Local(error)) => Self::of_local(error),
            Err(ConnectError::Remote(error)) => Self::of_remote(error),
        }
    }

    fn of_local(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            // A packet filter of this host that rejects with a reset answers so at once, and it means the target.
            Some(Errno::ECONNREFUSED) => Self::Refused,
            Some(Errno::EMFILE | Errno::ENFILE) => Self::OwnFault(OwnFault::FileLimit),
            // EAGAIN is what connect says when the local ports are used up.
            Some(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE | Errno::EAGAIN) => {
                Self::OwnFault(OwnFault::LocalAddress)
            }
            // EAFNOSUPPORT: IPv6 is off on this machine.
            Some(
                Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ENETDOWN | Errno::EAFNOSUPPORT,
            ) => Self::OwnFault(OwnFault::Network),
            Some(Errno::EPERM | Errno::EACCES) => Self::OwnFault(OwnFault::Permission),
            Some(Errno::ENOBUFS | Errno::ENOMEM) => Self::OwnFault(OwnFault::Memory),
            // EINVAL among them: an address that this host cannot route at all.
            _ => Self::OwnFault(OwnFault::Other),
        }
    }

    fn of_remote(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown => Self::Unreachable,
            _ if error.raw_os_error() == Some(Errno::EHOSTDOWN as i32) => Self::Unreachable,
            _ => Self::Error,
        }
    }
}

#[cfg(test)]
mod tests;
