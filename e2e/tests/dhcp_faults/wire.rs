//! Faults of the LAN: rules of the packet filter of its bridge, and messages that no server has sent.

use std::net::{Ipv4Addr, UdpSocket};

use anyhow::Context;
use harvester_lb_e2e::World;
use harvester_lb_testkit::lan;

/// A rule: servers do not answer.
pub const NO_REPLIES: &str = "udp sport 67 ip saddr 192.168.100.1 drop";
/// A rule: what dnsmasq acknowledges is not known to the client. Its option 53 is the first one.
pub const NO_ACKS: &str = "udp sport 67 @th,1984,24 0x350105 drop";
/// A rule: no client asks for a new lease. Option 53 is the first one of a client.
pub const NO_DISCOVERS: &str = "udp dport 67 @th,1984,24 0x350101 drop";
/// Rules: three of ten frames are lost between gw and node1, whose ports have these names.
pub const LOSS: &str = "iifname \"p1-11\" oifname \"p1-1\" numgen random mod 10 < 3 drop
iifname \"p1-1\" oifname \"p1-11\" numgen random mod 10 < 3 drop";

/// A rule at the bridge of the LAN, which each message between client and server passes. Dropping it ends it.
pub struct Filter<'a>(&'a World);

impl<'a> Filter<'a> {
    /// Sets the only rules, one a line.
    pub fn set(world: &'a World, rule: &str) -> anyhow::Result<Self> {
        load(
            world,
            &format!(
                "table bridge dhcp {{\nchain wire {{\ntype filter hook forward priority 0\n{rule}\n}}\n}}\n"
            ),
        )?;
        Ok(Self(world))
    }
}

impl Drop for Filter<'_> {
    fn drop(&mut self) {
        // Without it, what follows fails.
        let _ = load(self.0, "");
    }
}

/// Replaces the rules.
fn load(world: &World, rules: &str) -> anyhow::Result<()> {
    let none = "table bridge dhcp\ndelete table bridge dhcp\n";
    world.cluster.netns("lan")?.nft(&format!("{none}{rules}"))
}

/// The transaction id of the last message of a kind in the log of dnsmasq, such as `DHCPREQUEST(`.
pub fn last_xid(log: &str, kind: &str) -> anyhow::Result<u32> {
    let line = log.lines().rfind(|line| line.contains(kind));
    let line = line.with_context(|| format!("no {kind}"))?;
    let mut words = line.split_whitespace();
    words
        .find_map(|word| word.parse().ok())
        .with_context(|| format!("no transaction id in {line:?}"))
}

/// Number of messages of clients in the log of a server. Kea's has those alone that are granted, by their answers.
pub fn asked(log: &str) -> usize {
    let messages = [
        "DHCPDISCOVER(",
        "DHCPREQUEST(",
        "DHCPRELEASE(",
        "DHCP4_LEASE_ADVERT ",
        "DHCP4_LEASE_ALLOC ",
    ];
    let is_asked = |line: &&str| messages.iter().any(|message| line.contains(message));
    log.lines().filter(is_asked).count()
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
