//! Messages on the LAN: those of clients, by the logs of the servers, and those that no server has sent.

use std::net::{Ipv4Addr, UdpSocket};

use anyhow::Context;
use harvester_lb_e2e::World;
use harvester_lb_testkit::lan;

/// A message of a client in the log of a server: dnsmasq has the message, Kea the answer to one that is granted.
pub const DISCOVER: [&str; 2] = ["DHCPDISCOVER(", "DHCP4_LEASE_ADVERT "];
pub const REQUEST: [&str; 2] = ["DHCPREQUEST(", "DHCP4_LEASE_ALLOC "];
const RELEASE: [&str; 1] = ["DHCPRELEASE("];

/// Whether a line of the log of a server has a message.
fn has(line: &str, message: &[&str]) -> bool {
    message.iter().any(|text| line.contains(text))
}

/// The transaction id of the last message of a kind in the log of a server, in decimal digits of dnsmasq, as `tid=0x1a2b` of Kea.
pub fn last_xid(log: &str, kind: [&str; 2]) -> anyhow::Result<u32> {
    let line = log.lines().rfind(|line| has(line, &kind));
    let line = line.with_context(|| format!("no {kind:?}"))?;
    let mut words = line.split_whitespace();
    let xid = words.find_map(|word| match word.strip_prefix("tid=0x") {
        Some(digits) => u32::from_str_radix(digits.trim_end_matches([':', ',']), 16).ok(),
        None => word.parse().ok(),
    });
    xid.with_context(|| format!("no transaction id in {line:?}"))
}

/// Number of messages of clients in the log of a server. Kea's has those alone that are granted, by their answers.
pub fn asked(log: &str) -> usize {
    let messages = [&DISCOVER[..], &REQUEST, &RELEASE].concat();
    log.lines().filter(|line| has(line, &messages)).count()
}

/// A host of the LAN, `client`, that sends as a DHCP server would.
pub struct Impostor(UdpSocket);

/// The impostor's address.
pub const IMPOSTOR: Ipv4Addr = lan(50);
/// Where all hosts of the LAN receive it.
const ALL: (Ipv4Addr, u16) = (lan(255), 68);

impl Impostor {
    /// Opens its socket.
    pub fn open(world: &World) -> anyhow::Result<Self> {
        let netns = world.cluster.netns("client")?;
        let socket = netns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 67)))??;
        socket.set_broadcast(true)?;
        Ok(Self(socket))
    }

    /// Sends a payload to all.
    pub fn send(&self, payload: &[u8]) -> anyhow::Result<()> {
        self.0.send_to(payload, ALL)?;
        Ok(())
    }
}

/// OFFER, ACK and NAK, the values of option 53.
pub const OFFER: u8 = 2;
pub const ACK: u8 = 5;
pub const NAK: u8 = 6;

/// A message of a server.
#[derive(Clone, Debug)]
pub struct Forged {
    /// Option 53.
    pub kind: u8,
    pub xid: u32,
    pub hardware: [u8; 6],
    /// `yiaddr`.
    pub address: Ipv4Addr,
    /// Options after the first one, as their bytes.
    pub options: Vec<u8>,
}

impl Forged {
    /// The bytes, without padding.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 1, 6, 0];
        bytes.extend(self.xid.to_be_bytes());
        bytes.resize(16, 0);
        bytes.extend(self.address.octets());
        bytes.resize(28, 0);
        bytes.extend(self.hardware);
        bytes.resize(236, 0);
        bytes.extend([99, 130, 83, 99, 53, 1, self.kind]);
        bytes.extend(&self.options);
        bytes.push(255);
        bytes
    }

    /// The same with other options.
    pub fn with(&self, options: &[Vec<u8>]) -> Self {
        Self {
            options: options.concat(),
            ..self.clone()
        }
    }
}

/// Option 54.
pub fn server(address: Ipv4Addr) -> Vec<u8> {
    [&[54, 4][..], &address.octets()].concat()
}

/// Option 51.
pub fn seconds(lease: u32) -> Vec<u8> {
    [&[51, 4][..], &lease.to_be_bytes()].concat()
}

/// The bytes of a hardware address.
pub fn hardware(text: &str) -> anyhow::Result<[u8; 6]> {
    let bytes: Result<Vec<u8>, _> = text
        .split(':')
        .map(|it| u8::from_str_radix(it, 16))
        .collect();
    let bytes = bytes.with_context(|| format!("hardware address {text:?}"))?;
    bytes
        .try_into()
        .ok()
        .with_context(|| format!("hardware address {text:?}"))
}
