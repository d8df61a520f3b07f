//! Results of a probe, and which errors of a connect count against the target (HC-6).

use std::io;

use nix::errno::Errno;

use crate::ConnectError;

/// Result of a probe.
///
/// Every value except [`ProbeResult::Success`] and [`ProbeResult::OwnFault`] counts as a failure of the target
/// (rules, section 8.5: refusal, error or timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// The handshake completed.
    Success,
    /// The target refused the connection.
    Refused,
    /// No answer within the timeout of the check, or within the kernel's own.
    Timeout,
    /// The host did not answer ARP, or a router reported it or its network as unreachable: a machine that is switched
    /// off, or any machine when our own carrier is lost.
    Unreachable,
    /// Any other error of the connection, for instance a reset.
    Error,
    /// This machine could not start the connect. Never counted against the target, which is probed again one period
    /// later.
    OwnFault(OwnFault),
}

/// Why this machine could not start a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnFault {
    /// Too many open files, in the process or the whole system.
    FileLimit,
    /// No local address or no local port left.
    LocalAddress,
    /// No route to the target, an unreachable route, or the interface is down.
    Network,
    /// Forbidden, for instance by a local packet filter or security policy.
    Permission,
    /// No memory for the socket.
    Memory,
    /// Any other cause on this machine, for instance the end of the runtime.
    Other,
}

impl ProbeResult {
    /// Every value, for metrics that start with all their series.
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

    /// The verdict of the result: `Some(true)` a success, `Some(false)` a failure, `None` no statement, because the
    /// fault was ours.
    pub const fn verdict(self) -> Option<bool> {
        match self {
            Self::Success => Some(true),
            Self::Refused | Self::Timeout | Self::Unreachable | Self::Error => Some(false),
            Self::OwnFault(_) => None,
        }
    }

    /// Whether the target sent no answer at all: its next probe will probably last for the whole timeout.
    pub const fn is_silence(self) -> bool {
        matches!(self, Self::Timeout | Self::Unreachable)
    }

    /// The result of a connect that ended before the timeout of its check (HC-6).
    ///
    /// The same error number has different meanings: ENETUNREACH from `connect` is a missing route of ours, in
    /// `SO_ERROR` the answer of a router about the target.
    pub fn of_connect(outcome: &Result<(), ConnectError>) -> Self {
        match outcome {
            Ok(()) => Self::Success,
            Err(ConnectError::Local(error)) => Self::of_local(error),
            Err(ConnectError::Remote(error)) => Self::of_remote(error),
        }
    }

    fn of_local(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            // A packet filter of this host that rejects with a reset returns this at once, and it concerns the target.
            Some(Errno::ECONNREFUSED) => Self::Refused,
            Some(Errno::EMFILE | Errno::ENFILE) => Self::OwnFault(OwnFault::FileLimit),
            // `connect` returns EAGAIN when the local ports are used up.
            Some(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE | Errno::EAGAIN) => {
                Self::OwnFault(OwnFault::LocalAddress)
            }
            // EAFNOSUPPORT: IPv6 is off on this machine.
            Some(
                Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ENETDOWN | Errno::EAFNOSUPPORT,
            ) => Self::OwnFault(OwnFault::Network),
            Some(Errno::EPERM | Errno::EACCES) => Self::OwnFault(OwnFault::Permission),
            Some(Errno::ENOBUFS | Errno::ENOMEM) => Self::OwnFault(OwnFault::Memory),
            // Includes EINVAL: an address that this host cannot route at all.
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
