//! ARP for IPv4 over Ethernet (RFC 826): the 28 bytes after the Ethernet header. Owns the form of a probe (RFC 5227, 2.1.1)
//! and the verdict whether a packet says that an address is in use.

use std::net::Ipv4Addr;

use super::identity::HardwareAddress;

/// Hardware type 1 (Ethernet), protocol type 0x0800 (IPv4), lengths 6 and 4.
const TYPES: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// What an ARP packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpKind {
    /// Who has the target address?
    Request,
    /// The sender has the sender address.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Request or reply.
    pub kind: ArpKind,
    /// Hardware address of the sender.
    pub sender: HardwareAddress,
    /// Address of the sender; 0.0.0.0 in a probe.
    pub sender_address: Ipv4Addr,
    /// Hardware address of the target; zeroes in a request.
    pub target: HardwareAddress,
    /// Address of the target.
    pub target_address: Ipv4Addr,
}

impl Arp {
    /// DHC-5: asks whether `address` is in use, without entering anything into the caches of others: the sender address is
    /// 0.0.0.0 (RFC 5227, 2.1.1). `interface` is the address of the interface that sends it, where the answers go.
    pub const fn probe(interface: HardwareAddress, address: Ipv4Addr) -> Self {
        Self {
            kind: ArpKind::Request,
            sender: interface,
            sender_address: Ipv4Addr::UNSPECIFIED,
            target: HardwareAddress::ZERO,
            target_address: address,
        }
    }

    /// DHC-5: the address that this packet shows to be in use, or about to be: that of its sender; or the one that the
    /// sender probes for as well (RFC 5227, 2.1.1). A packet of `interface` itself shows nothing.
    pub fn claims(&self, interface: HardwareAddress) -> Option<Ipv4Addr> {
        if self.sender == interface {
            return None;
        }
        match (self.kind, self.sender_address) {
            (ArpKind::Request, Ipv4Addr::UNSPECIFIED) => Some(self.target_address),
            (ArpKind::Reply, Ipv4Addr::UNSPECIFIED) => None,
            (_, address) => Some(address),
        }
    }

    /// The 28 bytes of the packet.
    pub fn encode(&self) -> Vec<u8> {
        let operation = match self.kind {
            ArpKind::Request => REQUEST,
            ArpKind::Reply => REPLY,
        };
        let mut bytes = TYPES.to_vec();
        bytes.extend(operation.to_be_bytes());
        bytes.extend(self.sender.0);
        bytes.extend(self.sender_address.octets());
        bytes.extend(self.target.0);
        bytes.extend(self.target_address.octets());
        bytes
    }

    /// Reads a packet, which padding may follow. `None`: cut off, of other types of addresses, or another operation.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (types, rest) = bytes.split_first_chunk::<6>()?;
        let (operation, rest) = rest.split_first_chunk()?;
        let (sender, rest) = rest.split_first_chunk()?;
        let (sender_address, rest) = rest.split_first_chunk::<4>()?;
        let (target, rest) = rest.split_first_chunk()?;
        let (target_address, _) = rest.split_first_chunk::<4>()?;
        let kind = match u16::from_be_bytes(*operation) {
            REQUEST => ArpKind::Request,
            REPLY => ArpKind::Reply,
            _ => return None,
        };
        (*types == TYPES).then_some(Self {
            kind,
            sender: HardwareAddress(*sender),
            sender_address: (*sender_address).into(),
            target: HardwareAddress(*target),
            target_address: (*target_address).into(),
        })
    }
}

#[cfg(test)]
mod tests;
