//! The messages that a client sends and reads (RFC 2131 and 2132), and their bytes without the headers around them. Owns
//! the check of every byte string that claims to be a reply; what a reply means in a state is up to the client.

use std::net::Ipv4Addr;

use dhcproto::v4::{DhcpOption, MAGIC, MIN_PACKET_SIZE, MessageType, OptionCode};
use thiserror::Error;

use super::bytes::array;
use super::identity::{ClientId, HardwareAddress, Identity};
use super::options::{self, OptionError, Options};

/// Longest message that is read, in bytes: what an Ethernet frame of 1500 bytes holds after the headers of IPv4 and UDP.
/// Servers are told so with option 57.
pub const MAX_MESSAGE: usize = 1472;
/// Value of option 57: the length of the IP datagram.
const MAX_DATAGRAM: u16 = 1500;
/// Most characters of the text of a NAK that are kept for an Event.
const MAX_TEXT: usize = 128;

const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
const ETHERNET: u8 = 1;
const ADDRESS_LENGTH: u8 = 6;
/// The flag that asks for a reply to the broadcast address: the client cannot receive unicast before it has an address,
/// and no interface here ever has one.
const BROADCAST: u16 = 0x8000;

/// What a server is asked to send.
const PARAMETERS: [OptionCode; 6] = [
    OptionCode::SubnetMask,
    OptionCode::Router,
    OptionCode::AddressLeaseTime,
    OptionCode::ServerIdentifier,
    OptionCode::Renewal,
    OptionCode::Rebinding,
];

/// What a message of a client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// DHCPDISCOVER.
    Discover {
        /// An address that the client would like to have (option 50).
        wanted: Option<Ipv4Addr>,
    },
    /// DHCPREQUEST in SELECTING: takes the offer of one server and declines those of all others.
    Select {
        /// The address offered (option 50).
        address: Ipv4Addr,
        /// The server whose offer it is (option 54).
        server: Ipv4Addr,
    },
    /// DHCPREQUEST in the form of INIT-REBOOT: asks any server to confirm an address. Also used to renew.
    Confirm {
        /// The address (option 50).
        address: Ipv4Addr,
    },
    /// DHCPDECLINE: the address is in use.
    Decline {
        /// The address (option 50).
        address: Ipv4Addr,
        /// The server that leased it (option 54).
        server: Ipv4Addr,
    },
    /// DHCPRELEASE: the address is no longer needed.
    Release {
        /// The address (`ciaddr`).
        address: Ipv4Addr,
        /// The server that leased it (option 54).
        server: Ipv4Addr,
    },
}

impl Body {
    /// The value of a metric's label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Discover { .. } => "discover",
            Self::Select { .. } | Self::Confirm { .. } => "request",
            Self::Decline { .. } => "decline",
            Self::Release { .. } => "release",
        }
    }
}

/// A message from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientMessage {
    /// Transaction id.
    pub xid: u32,
    /// Seconds since the client began to ask; 0 in DECLINE and RELEASE.
    pub secs: u16,
    /// Who sends it.
    pub identity: Identity,
    /// What it says.
    pub body: Body,
}

impl ClientMessage {
    /// The bytes of the message (RFC 2131, table 5): at least the 300 that BOOTP relays and old servers expect.
    pub fn encode(&self) -> Vec<u8> {
        let asks = matches!(
            self.body,
            Body::Discover { .. } | Body::Select { .. } | Body::Confirm { .. }
        );
        let ciaddr = match self.body {
            Body::Release { address, .. } => address,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let flags = if asks { BROADCAST } else { 0 };
        let mut bytes = Vec::with_capacity(MIN_PACKET_SIZE);
        bytes.extend([BOOT_REQUEST, ETHERNET, ADDRESS_LENGTH, 0]);
        bytes.extend(self.xid.to_be_bytes());
        bytes.extend(self.secs.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(ciaddr.octets());
        bytes.resize(28, 0);
        bytes.extend(self.identity.hardware.0);
        bytes.resize(options::START - MAGIC.len(), 0);
        bytes.extend(MAGIC);
        bytes.extend(options::write(&self.options(asks)));
        bytes.resize(bytes.len().max(MIN_PACKET_SIZE), 0);
        bytes
    }

    fn options(&self, asks: bool) -> Vec<DhcpOption> {
        let (kind, address, server) = match self.body {
            Body::Discover { wanted } => (MessageType::Discover, wanted, None),
            Body::Select { address, server } => (MessageType::Request, Some(address), Some(server)),
            Body::Confirm { address } => (MessageType::Request, Some(address), None),
            Body::Decline { address, server } => {
                (MessageType::Decline, Some(address), Some(server))
            }
            Body::Release { server, .. } => (MessageType::Release, None, Some(server)),
        };
        let client_id = self.identity.client_id.bytes().to_vec();
        let mut options = vec![
            DhcpOption::MessageType(kind),
            DhcpOption::ClientIdentifier(client_id),
        ];
        options.extend(address.map(DhcpOption::RequestedIpAddress));
        options.extend(server.map(DhcpOption::ServerIdentifier));
        if asks {
            options.push(DhcpOption::MaxMessageSize(MAX_DATAGRAM));
            options.push(DhcpOption::ParameterRequestList(PARAMETERS.to_vec()));
        }
        options
    }
}

/// What a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// DHCPOFFER.
    Offer,
    /// DHCPACK.
    Ack,
    /// DHCPNAK.
    Nak,
}

impl ReplyKind {
    /// The value of a metric's label.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Offer => "offer",
            Self::Ack => "ack",
            Self::Nak => "nak",
        }
    }
}

/// A message from a server, as far as a client reads it. Its values have valid lengths, and may still be nonsense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it is (option 53).
    pub kind: ReplyKind,
    /// Transaction id of the message that it answers.
    pub xid: u32,
    /// `chaddr`.
    pub hardware: HardwareAddress,
    /// `yiaddr`: the address offered or leased.
    pub address: Ipv4Addr,
    /// Server identifier (option 54).
    pub server: Option<Ipv4Addr>,
    /// Lease time in seconds (option 51); `u32::MAX` is for ever.
    pub lease: Option<u32>,
    /// T1 in seconds (option 58).
    pub t1: Option<u32>,
    /// T2 in seconds (option 59).
    pub t2: Option<u32>,
    /// Subnet mask (option 1).
    pub mask: Option<Ipv4Addr>,
    /// The first router (option 3).
    pub router: Option<Ipv4Addr>,
    /// Client identifier (option 61), which servers repeat (RFC 6842).
    pub client_id: Option<Vec<u8>>,
    /// Text of a NAK (option 56): at most 128 characters, none of them a control character.
    pub text: Option<String>,
}

/// Why a byte string is not a reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Shorter than header and magic cookie.
    #[error("{0} bytes are too few for a DHCP message, which has at least 240")]
    TooShort(usize),
    /// Longer than [`MAX_MESSAGE`].
    #[error("{0} bytes are more than the 1472 that option 57 allows the server to send")]
    TooLong(usize),
    /// Not a BOOTREPLY.
    #[error("op is {0}, not 2 (BOOTREPLY)")]
    NotReply(u8),
    /// `htype` and `hlen` are not those of Ethernet.
    #[error("hardware type {htype} with {hlen} bytes of address is not Ethernet (1 and 6)")]
    NotEthernet {
        /// Hardware type.
        htype: u8,
        /// Length of a hardware address in bytes.
        hlen: u8,
    },
    /// BOOTP without DHCP, or something else.
    #[error("magic cookie {0:02x?} is not that of DHCP (63 82 53 63)")]
    Cookie([u8; 4]),
    /// There is no option 53.
    #[error("there is no message type (option 53)")]
    NoMessageType,
    /// A message type that no server sends.
    #[error("message type {0} is not OFFER, ACK or NAK")]
    MessageType(u8),
    /// An option is malformed.
    #[error(transparent)]
    Option(#[from] OptionError),
}

impl ParseError {
    /// The value of a metric's label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TooShort(_) => "too_short",
            Self::TooLong(_) => "too_long",
            Self::NotReply(_) => "not_reply",
            Self::NotEthernet { .. } => "not_ethernet",
            Self::Cookie(_) => "cookie",
            Self::NoMessageType => "no_message_type",
            Self::MessageType(_) => "message_type",
            Self::Option(OptionError::Length { .. }) => "option_length",
            Self::Option(OptionError::Overload(_)) => "overload",
        }
    }
}

impl Reply {
    /// Reads a message; any byte string is accepted as input.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(ParseError::TooLong(bytes.len()));
        }
        let [op, htype, hlen, _] = field(bytes, 0)?;
        if op != BOOT_REPLY {
            return Err(ParseError::NotReply(op));
        }
        if (htype, hlen) != (ETHERNET, ADDRESS_LENGTH) {
            return Err(ParseError::NotEthernet { htype, hlen });
        }
        let cookie = field(bytes, options::START - MAGIC.len())?;
        if cookie != MAGIC {
            return Err(ParseError::Cookie(cookie));
        }
        let options = Options::read(bytes)?;
        let [kind] = options
            .array(OptionCode::MessageType)?
            .ok_or(ParseError::NoMessageType)?;
        let kind = match MessageType::from(kind) {
            MessageType::Offer => ReplyKind::Offer,
            MessageType::Ack => ReplyKind::Ack,
            MessageType::Nak => ReplyKind::Nak,
            _ => return Err(ParseError::MessageType(kind)),
        };
        Ok(Self {
            kind,
            xid: u32::from_be_bytes(field(bytes, 4)?),
            hardware: HardwareAddress(field(bytes, 28)?),
            address: field::<4>(bytes, 16)?.into(),
            server: options.address(OptionCode::ServerIdentifier)?,
            lease: options.seconds(OptionCode::AddressLeaseTime)?,
            t1: options.seconds(OptionCode::Renewal)?,
            t2: options.seconds(OptionCode::Rebinding)?,
            mask: options.address(OptionCode::SubnetMask)?,
            router: options.first_address(OptionCode::Router)?,
            client_id: options
                .bytes(OptionCode::ClientIdentifier)
                .map(<[u8]>::to_vec),
            text: options.bytes(OptionCode::Message).map(printable),
        })
    }

    /// Whether it names this client's identifier, or none. RFC 6842, 3: a client discards a message with another one.
    pub fn is_for(&self, client_id: &ClientId) -> bool {
        self.client_id
            .as_deref()
            .is_none_or(|bytes| bytes == client_id.bytes())
    }
}

/// N bytes of the header.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], ParseError> {
    bytes
        .get(..options::START)
        .and_then(|header| array(header, at))
        .ok_or(ParseError::TooShort(bytes.len()))
}

fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text)
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_TEXT)
        .collect()
}

#[cfg(test)]
mod tests;
