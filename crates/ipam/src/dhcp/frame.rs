//! Ethernet frames: ARP, and UDP over IPv4 from the port of DHCP clients (68) to that of servers (67) and back. The DHCP
//! process sends and receives whole frames (AF_PACKET), because no interface ever has a client's address.
//!
//! Owns headers and checksums. The Ethernet source of a frame is the address of the interface, not that of the client:
//! switches then learn no further address, servers that answer to the source of a frame (Kea) reach the interface, and
//! it needs no promiscuous mode.

use std::net::Ipv4Addr;

use thiserror::Error;

use super::arp::{Arp, ArpKind};
use super::bytes::array;
use super::identity::HardwareAddress;
use super::message::{Body, ClientMessage, ParseError, Reply};

/// UDP port of DHCP servers.
pub const SERVER_PORT: u16 = 67;
/// UDP port of DHCP clients.
pub const CLIENT_PORT: u16 = 68;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const PROTOCOL_UDP: u8 = 17;
const IPV4_HEADER: u16 = 20;
const UDP_HEADER: u16 = 8;
/// The initial value that RFC 1700 recommends.
const TIME_TO_LIVE: u8 = 64;

/// Whether the UDP checksum of a received frame means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It was on a wire: a wrong one is an error.
    Verify,
    /// The kernel says that it is not computed yet (`TP_STATUS_CSUMNOTREADY` of `PACKET_AUXDATA`): the frame comes from a
    /// program on this host, such as a server behind a veth, and a network card would have computed it.
    NotReady,
}

/// What a frame holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A DHCP message of a server.
    Reply {
        /// Ethernet source: the server, or the relay or router in front of it.
        source: HardwareAddress,
        /// The message.
        reply: Box<Reply>,
    },
    /// An ARP packet.
    Arp(Arp),
    /// Anything else, including messages of other clients. Not an error.
    Other,
}

/// Why a frame to the port of DHCP clients is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// An IPv4 header that is cut off, or whose lengths are impossible.
    #[error("IPv4 header is cut off or has impossible lengths")]
    Ipv4Header,
    /// The checksum of the IPv4 header is wrong.
    #[error("checksum of the IPv4 header is wrong")]
    Ipv4Checksum,
    /// A fragment: a message that needs several is longer than option 57 allows.
    #[error("IPv4 packet is a fragment, and fragments are not reassembled")]
    Fragment,
    /// A UDP header that is cut off, or whose length is impossible.
    #[error("UDP header is cut off or has an impossible length")]
    UdpHeader,
    /// The UDP checksum is wrong.
    #[error("UDP checksum is wrong")]
    UdpChecksum,
    /// An ARP packet that is cut off or not for IPv4 over Ethernet.
    #[error("ARP packet is cut off, or not for IPv4 over Ethernet")]
    Arp,
    /// Not a message of a DHCP server.
    #[error(transparent)]
    Message(#[from] ParseError),
}

impl FrameError {
    /// The value of a metric's label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Ipv4Header => "ipv4_header",
            Self::Ipv4Checksum => "ipv4_checksum",
            Self::Fragment => "fragment",
            Self::UdpHeader => "udp_header",
            Self::UdpChecksum => "udp_checksum",
            Self::Arp => "arp",
            Self::Message(error) => error.kind(),
        }
    }
}

/// The frame of a message. `interface` is the address of the interface that sends it.
///
/// All messages but RELEASE are broadcast from 0.0.0.0. A RELEASE goes from the released address to the server, as RFC
/// 2131 (4.4.6) says and servers demand; `server` is the Ethernet address that its last reply came from: if the
/// server is on another network, that of the relay or router. Without one, of a lease that an earlier version has recorded, the Ethernet
/// frame is broadcast: Linux accepts such a packet for UDP, unless `drop_unicast_in_l2_multicast` is set; routers forward none.
pub fn client_frame(
    interface: HardwareAddress,
    message: &ClientMessage,
    server: Option<HardwareAddress>,
) -> Vec<u8> {
    let (source, target, ethernet) = match message.body {
        Body::Release {
            address,
            server: to,
        } => (address, to, server.unwrap_or(HardwareAddress::BROADCAST)),
        _ => (
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::BROADCAST,
            HardwareAddress::BROADCAST,
        ),
    };
    let payload = message.encode();
    // A message of a client has 300 bytes, or a few more.
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let udp_length = length.saturating_add(UDP_HEADER);
    let total = udp_length.saturating_add(IPV4_HEADER);

    let addresses = [source.octets(), target.octets()].concat();
    let mut udp = Vec::with_capacity(udp_length.into());
    udp.extend(CLIENT_PORT.to_be_bytes());
    udp.extend(SERVER_PORT.to_be_bytes());
    udp.extend(udp_length.to_be_bytes());
    let whole = pseudo_header(&addresses, udp_length) + sum(&udp) + sum(&payload);
    // 0 would mean that there is no checksum (RFC 768).
    let checksum = match !fold(whole) {
        0 => u16::MAX,
        checksum => checksum,
    };
    udp.extend(checksum.to_be_bytes());

    let [high, low] = total.to_be_bytes();
    let mut ip = vec![0x45, 0, high, low, 0, 0, 0, 0, TIME_TO_LIVE, PROTOCOL_UDP];
    let checksum = !fold(sum(&ip) + sum(&addresses));
    ip.extend(checksum.to_be_bytes());
    ip.extend(addresses);

    let mut frame = ethernet_header(ethernet, interface, ETHERTYPE_IPV4);
    frame.extend(ip);
    frame.extend(udp);
    frame.extend(payload);
    frame
}

/// The frame of an ARP packet: a reply to its target, a request to all. Without padding, which the network card adds.
pub fn arp_frame(interface: HardwareAddress, arp: &Arp) -> Vec<u8> {
    let target = match arp.kind {
        ArpKind::Request => HardwareAddress::BROADCAST,
        ArpKind::Reply => arp.target,
    };
    let mut frame = ethernet_header(target, interface, ETHERTYPE_ARP);
    frame.extend(arp.encode());
    frame
}

fn ethernet_header(
    target: HardwareAddress,
    source: HardwareAddress,
    ethertype: [u8; 2],
) -> Vec<u8> {
    let mut header = target.0.to_vec();
    header.extend(source.0);
    header.extend(ethertype);
    header
}

/// Reads a frame; any byte string is accepted as input.
pub fn parse(frame: &[u8], checksum: Checksum) -> Result<Received, FrameError> {
    let (Some(source), Some(ethertype)) = (array(frame, 6), array(frame, 12)) else {
        return Ok(Received::Other);
    };
    let packet = frame.get(14..).unwrap_or_default();
    match ethertype {
        ETHERTYPE_ARP => Arp::parse(packet).map(Received::Arp).ok_or(FrameError::Arp),
        ETHERTYPE_IPV4 => match udp_payload(packet, checksum)? {
            Some(payload) => Ok(Received::Reply {
                source: HardwareAddress(source),
                reply: Box::new(Reply::parse(payload)?),
            }),
            None => Ok(Received::Other),
        },
        _ => Ok(Received::Other),
    }
}

/// The payload of a UDP datagram from the server port to the client port. `None`: another packet.
fn udp_payload(packet: &[u8], checksum: Checksum) -> Result<Option<&[u8]>, FrameError> {
    let fixed: [u8; 20] = array(packet, 0).ok_or(FrameError::Ipv4Header)?;
    let [
        version,
        _,
        high,
        low,
        _,
        _,
        fragment,
        offset,
        _,
        protocol,
        _,
        _,
        addresses @ ..,
    ] = fixed;
    if version >> 4 != 4 || protocol != PROTOCOL_UDP {
        return Ok(None);
    }
    let total = usize::from(u16::from_be_bytes([high, low]));
    let length = usize::from(version & 0x0f) * 4;
    // Ethernet pads short packets.
    let (header, udp) = packet
        .get(..total)
        .and_then(|packet| packet.split_at_checked(length))
        .filter(|_| length >= IPV4_HEADER.into())
        .ok_or(FrameError::Ipv4Header)?;
    if fragment & 0x1f != 0 || offset != 0 {
        // A later fragment has no ports: it may be anything. The first one is counted.
        return Ok(None);
    }
    let port = |at| array(udp, at).map(u16::from_be_bytes);
    let (Some(from), Some(to), Some(udp_length)) = (port(0), port(2), port(4)) else {
        return Err(FrameError::UdpHeader);
    };
    if (from, to) != (SERVER_PORT, CLIENT_PORT) {
        return Ok(None);
    }
    if fragment & 0x20 != 0 {
        return Err(FrameError::Fragment);
    }
    if fold(sum(header)) != u16::MAX {
        return Err(FrameError::Ipv4Checksum);
    }
    let udp = udp.get(..udp_length.into()).ok_or(FrameError::UdpHeader)?;
    let sent: [u8; 2] = array(udp, 6).ok_or(FrameError::UdpHeader)?;
    let payload = udp.get(8..).ok_or(FrameError::UdpHeader)?;
    // 0: the sender computed none (RFC 768).
    if checksum == Checksum::Verify
        && sent != [0, 0]
        && fold(pseudo_header(&addresses, udp_length) + sum(udp)) != u16::MAX
    {
        return Err(FrameError::UdpChecksum);
    }
    Ok(Some(payload))
}

/// Sum of the pseudo header of UDP (RFC 768), of source and target address.
fn pseudo_header(addresses: &[u8], length: u16) -> u64 {
    sum(addresses) + u64::from(PROTOCOL_UDP) + u64::from(length)
}

/// Sum of the 16-bit words; an odd last byte counts as the first of a word (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    let words = words
        .iter()
        .map(|word| u64::from(u16::from_be_bytes(*word)));
    words.sum::<u64>() + last
}

/// One's complement sum from a plain one.
fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
