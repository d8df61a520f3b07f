//! What is connected to, and how often.

use std::net::{IpAddr, Ipv4Addr};

/// Seconds after which a connect without an answer has failed.
pub(crate) const TIMEOUT_SECONDS: u32 = 3;

/// What to connect to, and how often.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) targets: u32,
    /// For how long it is measured.
    pub(crate) seconds: u32,
    /// Seconds from one connect to a target to the next.
    pub(crate) period: u32,
    /// How many of the targets, the last ones, never answer.
    pub(crate) dead: u32,
    /// Port of those that answer.
    pub(crate) port: u16,
    /// Port of those that never answer.
    pub(crate) dead_port: u16,
}

impl Load {
    /// The address of a target; all are this machine's.
    pub(crate) fn addr(n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x7f01_0000 + n)
    }

    /// The number of a target.
    pub(crate) fn number(addr: IpAddr) -> Option<u32> {
        match addr {
            IpAddr::V4(addr) => addr.to_bits().checked_sub(0x7f01_0000),
            IpAddr::V6(_) => None,
        }
    }

    fn is_dead(self, n: u32) -> bool {
        n >= self.targets - self.dead
    }

    pub(crate) fn port_of(self, n: u32) -> u16 {
        if self.is_dead(n) {
            self.dead_port
        } else {
            self.port
        }
    }
}
