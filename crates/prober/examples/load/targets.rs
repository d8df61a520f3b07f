//! The targets, and how often they are connected to.

use std::net::{IpAddr, Ipv4Addr};

/// Timeout of a connect, in seconds.
pub(crate) const TIMEOUT_SECONDS: u32 = 3;

/// The load to generate.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) targets: u32,
    /// Duration of the measurement.
    pub(crate) seconds: u32,
    /// Seconds from one connect to a target to the next.
    pub(crate) period: u32,
    /// Number of targets that never answer, the last ones.
    pub(crate) dead: u32,
    /// Port of the targets that answer.
    pub(crate) port: u16,
    /// Port of the targets that never answer.
    pub(crate) dead_port: u16,
}

impl Load {
    /// The address of a target; all are loopback addresses.
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
