//! Who a client is to a server: hardware address and client identifier, both derived from the load balancer's uid
//! (DHC-1). Owns the derivation and the text form of a hardware address.
//!
//! Servers remember a client by them, so they must never change: a restart, another node or another version gives the
//! same ones, hence the same address (DHC-2). The test vectors pin the derivation.
//!
//! - Hardware address: the low 48 bits of a hash of the uid's text as the API server writes it (FNV-1a with 64 bits,
//!   then the output function of SplitMix64), with the low half of the first byte set to 2: unicast, locally
//!   administered, and in the quadrant "administratively assigned" of IEEE 802c. So 44 bits are left; two of a thousand
//!   load balancers share an address with a probability of 3e-8, and servers would still tell them apart by the client
//!   identifier.
//! - Client identifier (RFC 4361): type 255, an IAID of 1 (a load balancer has one interface), and a DUID of type 4, which
//!   holds a UUID (RFC 6355). The UUID is the uid itself. A uid that is no lower-case UUID, which no API server makes,
//!   becomes a UUID of version 8 (RFC 9562) from two hashes of its text.

use std::fmt;

use thiserror::Error;

use super::random::mix;
use crate::types::Uid;

/// Type of the identifiers of RFC 4361: an IAID and a DUID follow.
const IAID_AND_DUID: u8 = 255;
/// Identity association of the only interface of a load balancer.
const IAID: [u8; 4] = [0, 0, 0, 1];
/// DUID type of RFC 6355: a UUID follows.
const DUID_UUID: [u8; 2] = [0, 4];
/// Bytes of a client identifier: type, IAID, DUID type, UUID.
const CLIENT_ID: usize = 23;

/// Longest text of an address that an error repeats, in characters.
const SHOWN: usize = 40;

/// An Ethernet address. Those made by [`HardwareAddress::parse`] and [`HardwareAddress::from_uid`] are unicast.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HardwareAddress(pub [u8; 6]);

/// Why a text is not the hardware address of a client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HardwareAddressError {
    /// Not six pairs of hexadecimal digits.
    #[error(
        "{0:?} is not a hardware address: write six pairs of hexadecimal digits, separated by colons or by dashes, such \
         as 02:00:5e:10:00:01"
    )]
    Format(String),
    /// The lowest bit of the first byte is set; includes the broadcast address.
    #[error(
        "{0} is a multicast or the broadcast address: use a unicast address, whose first byte is even"
    )]
    Multicast(HardwareAddress),
    /// 00:00:00:00:00:00.
    #[error("{0} is no address: write that of the reservation on the DHCP server")]
    Zero(HardwareAddress),
}

impl HardwareAddress {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// The unknown address of an ARP request.
    pub const ZERO: Self = Self([0; 6]);

    /// DHC-1: the address written in the annotation `dhcp-hardware-address`, for a reservation on the server: six pairs of
    /// hexadecimal digits in either case, separated by colons or by dashes. White space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, HardwareAddressError> {
        let text = text.trim();
        let bad = || HardwareAddressError::Format(text.chars().take(SHOWN).collect());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut parts = text.split(separator);
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(bad)?;
            // `from_str_radix` would also accept a sign.
            let is_hex = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16)
                .ok()
                .filter(|_| is_hex)
                .ok_or_else(bad)?;
        }
        if parts.next().is_some() {
            return Err(bad());
        }
        match Self(bytes) {
            zero @ Self::ZERO => Err(HardwareAddressError::Zero(zero)),
            multicast if !multicast.is_unicast() => Err(HardwareAddressError::Multicast(multicast)),
            address => Ok(address),
        }
    }

    /// DHC-1: the address of the load balancer with this uid. See the module.
    pub fn from_uid(uid: &Uid) -> Self {
        let hash = mix(fnv_1a(&uid.to_string()));
        let [_, _, mut bytes @ ..] = hash.to_be_bytes();
        let [first, ..] = &mut bytes;
        *first = *first & 0xf0 | 0x02;
        Self(bytes)
    }

    /// Whether it may be that of one host: [`HardwareAddress::parse`] takes it.
    pub fn is_host(self) -> bool {
        self.is_unicast() && self != Self::ZERO
    }

    /// Whether the lowest bit of the first byte is clear.
    pub const fn is_unicast(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A client identifier (option 61, RFC 4361).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId([u8; CLIENT_ID]);

impl ClientId {
    /// DHC-1: the identifier of the load balancer with this uid. See the module.
    pub fn from_uid(uid: &Uid) -> Self {
        let uuid = uid.uuid().unwrap_or_else(|| {
            let hash = fnv_1a(&uid.to_string());
            let bits = u128::from(mix(hash)) << 64 | u128::from(mix(!hash));
            // Version 8 and the variant of RFC 9562.
            let bits = bits & !(0xf << 76) | 8 << 76;
            (bits & !(3 << 62) | 2 << 62).to_be_bytes()
        });
        let mut bytes = [0; CLIENT_ID];
        let parts = [IAID_AND_DUID]
            .into_iter()
            .chain(IAID)
            .chain(DUID_UUID)
            .chain(uuid);
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = part;
        }
        Self(bytes)
    }

    /// The value of option 61.
    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ClientId {
    /// Pairs of hexadecimal digits with colons, as servers log it and as it is written in a reservation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Who a client is to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `chaddr`. Not the source of Ethernet frames: that is the interface's address.
    pub hardware: HardwareAddress,
    /// Option 61. It alone tells two clients apart that share a hardware address.
    pub client_id: ClientId,
    /// Whether the hardware address is another one than that of the uid: somebody else may have it too.
    pub is_chosen: bool,
}

impl Identity {
    /// DHC-1: the identity of the load balancer with this uid, with the hardware address of its annotation if there is
    /// one.
    pub fn new(uid: &Uid, hardware: Option<HardwareAddress>) -> Self {
        let derived = HardwareAddress::from_uid(uid);
        let hardware = hardware.unwrap_or(derived);
        Self {
            hardware,
            client_id: ClientId::from_uid(uid),
            is_chosen: hardware != derived,
        }
    }
}

/// Pairs of hexadecimal digits, separated by colons.
fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for (index, byte) in bytes.iter().enumerate() {
        let colon = if index == 0 { "" } else { ":" };
        write!(f, "{colon}{byte:02x}")?;
    }
    Ok(())
}

/// FNV-1a with 64 bits (RFC 9923).
fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
