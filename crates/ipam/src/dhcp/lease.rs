//! A lease: what is recorded of it, and what a server's ACK grants. Owns the bounds of a lease and the choice of T1 and
//! T2.

use core::time::Duration;
use std::net::Ipv4Addr;

use super::clock::Now;
use super::identity::HardwareAddress;
use super::ignored::Ignored;
use super::message::Reply;
use super::random::Random;
use crate::types::Micros;

/// Shortest lease that is accepted of an offer. Below it there is no time for one renewal and one repetition of it. A
/// server that shortens a lease at a renewal is obeyed: after that time it may lease the address to another client.
pub const SHORTEST_LEASE: Duration = Duration::from_secs(10);
/// Shortest T1 that is accepted: the shortest pause between two messages (RFC 2131, 4.1).
const SHORTEST_T1: Duration = Duration::from_secs(4);
/// A lease time that means for ever (RFC 2131, 3.3).
const INFINITE: u32 = u32::MAX;
/// T1 and T2, if the server sets none, are earlier or later by at most this part of the lease (RFC 2131, 4.4.5: "some
/// random fuzz").
const FUZZ: u32 = 32;

/// DHC-1: a lease as it is recorded, in wall time, so that another process on another node can continue it (DHC-2) and
/// the operator can end the Service at its expiry (DHC-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// The server that leased it last (option 54).
    pub server: Ipv4Addr,
    /// The Ethernet source of its last ACK: the server, or the relay or router in front of it. A RELEASE is sent there (DHC-4). None:
    /// recorded by an earlier version.
    pub server_hardware: Option<HardwareAddress>,
    /// Subnet mask, if the server sent a valid one.
    pub mask: Option<Ipv4Addr>,
    /// The first router, if the server sent one.
    pub router: Option<Ipv4Addr>,
    /// None: the lease is infinite, and is never renewed.
    pub times: Option<LeaseTimes>,
}

impl Lease {
    /// Whether two copies name the same lease. Where the last ACK came from does not matter: a definition of an earlier version does not
    /// keep it.
    pub fn is_same(&self, other: &Self) -> bool {
        let server_hardware = None;
        let [one, other] = [*self, *other].map(|lease| Self {
            server_hardware,
            ..lease
        });
        one == other
    }
}

impl Lease {
    /// Whether a host can have the address on its subnet: neither the address of the subnet nor its broadcast address, with all bits of
    /// the host part 0 or 1 (RFC 1122, 3.2.1.3). Of the two addresses of a /31 (RFC 3021), and of a subnet whose mask is not known, any.
    pub(super) fn is_of_a_host(&self) -> bool {
        let Some(mask) = self.mask else { return true };
        let ones = !mask.to_bits();
        let host = self.address.to_bits() & ones;
        ones <= 1 || (host != 0 && host != ones)
    }
}

/// The times of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTimes {
    /// T1: the client begins to renew.
    pub renew_at: Micros,
    /// T2: the client begins to rebind.
    pub rebind_at: Micros,
    /// The address must not be served any more (DHC-3).
    pub expires_at: Micros,
}

impl Lease {
    /// The same lease, which has ended at this wall time.
    #[must_use]
    pub const fn ended(self, wall: Micros) -> Self {
        let times = LeaseTimes {
            renew_at: wall,
            rebind_at: wall,
            expires_at: wall,
        };
        Self {
            times: Some(times),
            ..self
        }
    }

    /// Whether it has expired at this wall time.
    pub fn is_expired(&self, wall: Micros) -> bool {
        self.times.is_some_and(|times| wall >= times.expires_at)
    }
}

/// The times of a lease on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadlines {
    pub(super) renew: Duration,
    pub(super) rebind: Duration,
    pub(super) expire: Duration,
}

impl Deadlines {
    /// Of recorded times.
    pub(super) fn of(times: &LeaseTimes, now: Now) -> Self {
        Self {
            renew: now.mono_at(times.renew_at),
            rebind: now.mono_at(times.rebind_at),
            expire: now.mono_at(times.expires_at),
        }
    }

    /// The earlier one of each.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            renew: self.renew.min(other.renew),
            rebind: self.rebind.min(other.rebind),
            expire: self.expire.min(other.expire),
        }
    }

    /// To record.
    pub(super) fn times(&self, now: Now) -> LeaseTimes {
        LeaseTimes {
            renew_at: now.wall_at(self.renew),
            rebind_at: now.wall_at(self.rebind),
            expires_at: now.wall_at(self.expire),
        }
    }
}

/// What an ACK grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) lease: Lease,
    /// None: infinite.
    pub(super) deadlines: Option<Deadlines>,
}

impl Grant {
    /// Reads an ACK or an OFFER of a lease that is not shorter than `shortest`. It begins when the REQUEST was sent (RFC
    /// 2131, 4.4.1), `asked`: the first one, if several were sent that the reply may answer. `source` is that of its frame.
    pub(super) fn read(
        reply: &Reply,
        source: HardwareAddress,
        shortest: Duration,
        asked: Duration,
        now: Now,
        random: &mut Random,
    ) -> Result<Self, Ignored> {
        let server = reply
            .server
            .filter(|server| is_host(*server))
            .ok_or(Ignored::NoServer)?;
        if !is_host(reply.address) {
            return Err(Ignored::UnusableAddress);
        }
        let deadlines = match reply.lease.ok_or(Ignored::NoLeaseTime)? {
            INFINITE => None,
            seconds => {
                let lease = Duration::from_secs(seconds.into());
                if lease < shortest {
                    return Err(Ignored::ShortLease);
                }
                let (t1, t2) = renewal_times(reply, lease, random);
                Some(Deadlines {
                    renew: asked.saturating_add(t1),
                    rebind: asked.saturating_add(t2),
                    expire: asked.saturating_add(lease),
                })
            }
        };
        let lease = Lease {
            address: reply.address,
            server,
            server_hardware: Some(source).filter(|source| source.is_host()),
            mask: reply.mask.filter(|mask| is_mask(*mask)),
            router: reply.router.filter(|router| is_host(*router)),
            times: None,
        };
        Ok(Self { lease, deadlines }.recorded(now))
    }
}

impl Grant {
    /// With the times to record at `now`: the wall clock may have been set since the ACK.
    pub(super) fn recorded(mut self, now: Now) -> Self {
        self.lease.times = self.deadlines.map(|deadlines| deadlines.times(now));
        self
    }

    /// Whether the lease is over already: the answer took so long.
    pub(super) fn is_over(&self, now: Now) -> bool {
        self.deadlines
            .is_some_and(|deadlines| now.mono >= deadlines.expire)
    }
}

/// T1 and T2: those of the server if 4 s <= T1 < T2 < lease, else half and seven eighths of the lease, give or take a
/// 32nd of it (RFC 2131, 4.4.5). If the server sends one of them only, the other is the default. A lease of less than 8 s
/// is renewed after 4 s, if at all.
fn renewal_times(reply: &Reply, lease: Duration, random: &mut Random) -> (Duration, Duration) {
    let fuzz = lease / FUZZ;
    let t1 = random.around(lease / 2, fuzz).max(SHORTEST_T1);
    let t2 = random.around(lease / 8 * 7, fuzz).max(t1);
    let seconds = |value: Option<u32>| value.map(|value| Duration::from_secs(value.into()));
    let sent = (
        seconds(reply.t1).unwrap_or(t1),
        seconds(reply.t2).unwrap_or(t2),
    );
    if sent.0 >= SHORTEST_T1 && sent.0 < sent.1 && sent.1 < lease {
        sent
    } else {
        (t1, t2)
    }
}

/// Whether a host can have this address: none of 0.0.0.0/8, 127.0.0.0/8, multicast, 240.0.0.0/4 with broadcast.
fn is_host(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first != 127 && first < 224
}

/// Whether all ones precede all zeroes.
fn is_mask(mask: Ipv4Addr) -> bool {
    mask.to_bits().leading_ones() + mask.to_bits().trailing_zeros() == 32
}

#[cfg(test)]
mod tests;
