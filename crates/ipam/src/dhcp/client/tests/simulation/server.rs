//! A DHCP server for one client.

use super::super::*;

/// Addresses of a server.
pub(super) const POOL: u8 = 4;

/// A server, written from RFC 2131, tables 3 and 4, for one client.
pub(super) struct Server {
    pub(super) id: Ipv4Addr,
    pub(super) is_up: bool,
    /// Whether it claims to know the whole network: it refuses what it has not leased.
    pub(super) is_authoritative: bool,
    first: u8,
    pub(super) lease_time: u32,
    /// The address of the client, and until when.
    pub(super) lease: Option<(Ipv4Addr, Duration)>,
    pub(super) offer: Option<Ipv4Addr>,
    declined: Vec<Ipv4Addr>,
}

impl Server {
    pub(super) fn new(id: Ipv4Addr, first: u8) -> Self {
        let lease = None;
        Self {
            id,
            is_up: true,
            is_authoritative: first == 0,
            first,
            lease_time: 120,
            lease,
            offer: None,
            declined: Vec::new(),
        }
    }

    /// It has the addresses of the other server too, and a lease of the first one for ever: two with one database.
    pub(super) fn knows_all(&mut self) {
        self.first = 0;
        self.lease = Some((Ipv4Addr::new(10, 0, 0, 0), Duration::MAX));
    }

    pub(super) fn has(&self, address: Ipv4Addr, mono: Duration) -> bool {
        self.lease
            .is_some_and(|(leased, until)| leased == address && mono < until)
    }

    pub(super) fn handle(&mut self, message: &ClientMessage, mono: Duration) -> Option<Reply> {
        if !self.is_up {
            return None;
        }
        let pool = (self.first..self.first + POOL).map(|last| Ipv4Addr::new(10, 0, 0, last));
        let free: Vec<Ipv4Addr> = pool.filter(|a| !self.declined.contains(a)).collect();
        let of_pool = |address: &Ipv4Addr| free.contains(address);
        let leased = self
            .lease
            .filter(|(address, until)| of_pool(address) && mono < *until);
        let (kind, address) = match message.body {
            Body::Discover { wanted } => {
                let had = self.lease.map(|(address, _)| address);
                let choice = leased.map(|(address, _)| address).or(wanted).or(had);
                let address = choice.filter(of_pool).or_else(|| free.first().copied())?;
                self.offer = Some(address);
                (ReplyKind::Offer, address)
            }
            Body::Select { address, server } if server == self.id => {
                let is_offered = self.offer == Some(address) && of_pool(&address);
                (
                    if is_offered {
                        ReplyKind::Ack
                    } else {
                        ReplyKind::Nak
                    },
                    address,
                )
            }
            Body::Select { .. } => {
                self.offer = None;
                return None;
            }
            Body::Confirm { address } => match leased {
                Some((leased, _)) if leased == address => (ReplyKind::Ack, address),
                None if !self.is_authoritative => return None,
                _ => (ReplyKind::Nak, address),
            },
            Body::Decline { address, server } => {
                if server == self.id {
                    self.declined.push(address);
                    self.lease = None;
                    // Or it would run out of addresses.
                    let surplus = self.declined.len().saturating_sub(usize::from(POOL) - 1);
                    self.declined.drain(..surplus);
                }
                return None;
            }
            Body::Release { address, server } => {
                if server == self.id && leased.is_some_and(|(leased, _)| leased == address) {
                    self.lease = None;
                }
                return None;
            }
        };
        if kind == ReplyKind::Ack {
            let forever = self.lease_time == u32::MAX;
            let until = if forever {
                Duration::MAX
            } else {
                mono.saturating_add(secs(self.lease_time.into()))
            };
            // Never shortened: a client whose ACK is lost could not know.
            let before = leased.filter(|(leased, _)| *leased == address);
            let until = before.map_or(until, |(_, before)| before.max(until));
            self.lease = Some((address, until));
        }
        Some(Reply {
            kind,
            xid: message.xid,
            hardware: message.identity.hardware,
            address: if kind == ReplyKind::Nak {
                Ipv4Addr::UNSPECIFIED
            } else {
                address
            },
            server: Some(self.id),
            lease: (kind != ReplyKind::Nak).then_some(self.lease_time),
            t1: None,
            t2: None,
            mask: None,
            router: None,
            client_id: Some(message.identity.client_id.bytes().to_vec()),
            text: None,
        })
    }
}
