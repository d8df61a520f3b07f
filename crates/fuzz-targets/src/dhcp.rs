//! The DHCP client: frames, times and commands from bytes, for two clients on one interface.
//!
//! The test keeps what the record of each would hold, and checks after each step that no address is served after its
//! expiry or beside another one, that the clients neither fall silent nor send without a pause, and that what they send is
//! well-formed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use harvester_lb_ipam::dhcp::{
    Action, Arp, ArpKind, Checksum, Client, Command, Conflict, Delivery, Effect, HardwareAddress,
    Identity, Lease, LeaseTimes, Now, Received, Reply, StateName, Table, arp_frame, parse,
};
use harvester_lb_ipam::{Micros, Uid};

use crate::common::NOW;

const INTERFACE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
const HOST: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 5]);
/// One that both clients may have.
const CHOSEN: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 6]);
const UIDS: [&str; 2] = ["3f0c9a52-6d0e-4b59-9a51-0c3a1d2e4f60", "b"];
/// Addresses: two of each server, and some that no host can have.
const ADDRESSES: [[u8; 4]; 6] = [
    [10, 0, 0, 7],
    [10, 0, 0, 8],
    [10, 0, 0, 1],
    [10, 0, 0, 2],
    [0, 0, 0, 0],
    [255, 255, 255, 255],
];
const SECONDS: [u32; 10] = [0, 1, 9, 10, 60, 120, 3_600, 86_400, u32::MAX - 1, u32::MAX];

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let mut input = Unstructured::new(data);
    let mut world = World::new();
    for _ in 0..300 {
        if input.is_empty() || world.step(&mut input).is_err() {
            break;
        }
        world.check();
    }
    true
}

struct World {
    table: Table,
    records: BTreeMap<Uid, Lease>,
    mono: Duration,
    wall: i64,
    /// Messages since the time has passed, by client.
    sent: BTreeMap<Uid, u32>,
}

fn address(input: &mut Unstructured<'_>) -> Result<Ipv4Addr> {
    Ok((*input.choose(&ADDRESSES)?).into())
}

impl World {
    fn new() -> Self {
        Self {
            table: Table::new(INTERFACE, 2),
            records: BTreeMap::new(),
            mono: Duration::from_secs(1),
            wall: NOW.0,
            sent: BTreeMap::new(),
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: self.mono,
            wall: Micros(self.wall),
        }
    }

    fn pass(&mut self, span: Duration) {
        self.mono = self.mono.saturating_add(span);
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        self.wall = self.wall.saturating_add(micros);
        self.sent.clear();
    }

    fn wake(&mut self) {
        let mut out = Vec::new();
        self.table.wake(self.now(), &mut out);
        self.carry_out(out);
        let next = self.table.next_wakeup();
        assert!(next.is_none_or(|next| next > self.mono), "no progress");
    }

    fn step(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let uid = Uid::new(input.choose(&UIDS)?);
        match input.int_in_range(0..=9u8)? {
            0 => self.begin(&uid, input)?,
            1 => {
                self.command(&uid, Command::Release);
                self.table.remove(&uid);
                self.records.remove(&uid);
            }
            2 => {
                let address = address(input)?;
                let conflict = *input.choose(&[Conflict::Pool, Conflict::Lease, Conflict::Twin])?;
                self.command(&uid, Command::Held(address, conflict));
            }
            3 | 4 => {
                if let Some(next) = self.table.next_wakeup() {
                    self.pass(next.saturating_sub(self.mono));
                }
                self.wake();
            }
            5 => {
                let seconds = *input.choose(&SECONDS)?;
                self.pass(Duration::from_secs(seconds.into()) / input.int_in_range(1..=8u32)?);
                self.wake();
            }
            6 => {
                let by = i64::from(input.int_in_range(-9_000..=9_000i16)?) * 1_000_000;
                self.wall = self.wall.saturating_add(by);
                // Each jump over T1 is a reason to renew.
                self.sent.clear();
                let mut out = Vec::new();
                self.table.clock_was_set(self.now(), &mut out);
                self.carry_out(out);
            }
            7 => {
                let length = usize::from(input.int_in_range(0..=400u16)?).min(input.len());
                let bytes = input.bytes(length)?.to_vec();
                let _ = Reply::parse(&bytes);
                self.receive(&bytes);
                self.receive(&server_frame(&bytes));
            }
            8 => {
                let arp = Arp {
                    kind: *input.choose(&[ArpKind::Request, ArpKind::Reply])?,
                    sender: *input.choose(&[
                        HOST,
                        Identity::new(&uid, None).hardware,
                        CHOSEN,
                        INTERFACE,
                    ])?,
                    sender_address: address(input)?,
                    target: HardwareAddress::ZERO,
                    target_address: address(input)?,
                };
                let frame = arp_frame(arp.sender, &arp);
                assert_eq!(parse(&frame, Checksum::Verify), Ok(Received::Arp(arp)));
                self.receive(&frame);
            }
            _ => self.reply(&uid, input)?,
        }
        Ok(())
    }

    fn begin(&mut self, uid: &Uid, input: &mut Unstructured<'_>) -> Result<()> {
        // As after a death of the process: the record stays.
        self.table.remove(uid);
        self.sent.remove(uid);
        if input.ratio(1, 4)? {
            let mut times = || -> Result<Micros> {
                let seconds = i64::from(*input.choose(&SECONDS)?) - 100;
                Ok(Micros(self.wall.saturating_add(seconds * 1_000_000)))
            };
            let lease = Lease {
                address: [10, 0, 0, 7].into(),
                server: [10, 0, 0, 1].into(),
                server_hardware: None,
                mask: None,
                router: None,
                times: Some(LeaseTimes {
                    renew_at: times()?,
                    rebind_at: times()?,
                    expires_at: times()?,
                }),
            };
            self.records.insert(uid.clone(), lease);
        }
        let identity = Identity::new(uid, input.ratio(1, 3)?.then_some(CHOSEN));
        let record = self.records.get(uid).copied();
        let client = Client::new(identity, record, None, input.arbitrary()?, self.now());
        self.table.insert(uid.clone(), client, 0).unwrap();
        self.command(uid, Command::Start);
        Ok(())
    }

    fn command(&mut self, uid: &Uid, command: Command) {
        let mut out = Vec::new();
        self.table.command(uid, command, self.now(), &mut out);
        self.carry_out(out);
    }

    /// A reply that fits, or nearly: any byte of it may be changed.
    fn reply(&mut self, uid: &Uid, input: &mut Unstructured<'_>) -> Result<()> {
        let client = self.table.client(uid);
        let identity = client.map_or_else(|| Identity::new(uid, None), |it| *it.identity());
        let xid = client.and_then(Client::xid);
        let mut message = vec![2, 1, 6, 0];
        message.extend(xid.unwrap_or(1).to_be_bytes());
        message.extend([0; 8]);
        message.extend(address(input)?.octets());
        message.resize(28, 0);
        message.extend(identity.hardware.0);
        message.resize(236, 0);
        message.extend([99, 130, 83, 99, 53, 1, *input.choose(&[2, 5, 6])?, 54, 4]);
        message.extend(input.choose(&ADDRESSES[2..])?);
        for code in [51, 58, 59] {
            let seconds = input.choose(&SECONDS)?;
            message.extend([code, 4]);
            message.extend(seconds.to_be_bytes());
        }
        for _ in 0..input.int_in_range(0..=2u8)? {
            let at = input.int_in_range(0..=message.len() - 1)?;
            message[at] = input.arbitrary()?;
        }
        self.receive(&server_frame(&message));
        Ok(())
    }

    fn receive(&mut self, frame: &[u8]) {
        let mut out = Vec::new();
        let now = self.now();
        match self.table.receive(frame, Checksum::NotReady, now, &mut out) {
            Ok(Delivery::Client) => {}
            Ok(Delivery::Unknown | Delivery::Other) => assert_eq!(out, []),
            Err(error) => {
                assert!(out.is_empty() && !error.kind().is_empty());
                assert!(error.to_string().len() < 200);
            }
        }
        self.carry_out(out);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for Action { uid, mut effect } in actions {
            if let Effect::Probe(address) = effect {
                let mut none = Vec::new();
                self.table.sent(&uid, self.now(), &mut none);
                assert_eq!(none, []);
                let (kind, bytes) = ("arp_probe", self.table.probe(address));
                effect = Effect::Frame { kind, bytes };
            }
            match effect {
                Effect::Frame { bytes: frame, .. } => {
                    // Nobody reads a client's message or a probe of the interface as a server's.
                    let read = parse(&frame, Checksum::Verify).unwrap();
                    assert!(matches!(read, Received::Other | Received::Arp(_)));
                    let sent = self.sent.entry(uid).or_default();
                    *sent += 1;
                    assert!(*sent <= 8, "a storm of messages");
                }
                Effect::Record(lease) => {
                    let before = self.records.insert(uid, lease);
                    let same = before.is_none_or(|before| before.address == lease.address);
                    assert!(same, "two addresses at once");
                }
                Effect::Lost { address, .. } => {
                    let before = self.records.remove(&uid).unwrap();
                    assert_eq!(before.address, address);
                }
                Effect::Probe(_) | Effect::Event(_) | Effect::Ignored(_) | Effect::State => {}
            }
        }
    }

    fn check(&self) {
        for (uid, client) in self.table.clients() {
            assert_eq!(client.lease(), self.records.get(uid), "{client:?}");
            let is_endless = client.lease().is_some_and(|lease| lease.times.is_none());
            let is_silent = client.next_wakeup().is_none();
            let may_be_silent = client.state() == StateName::Bound && is_endless;
            assert!(!is_silent || may_be_silent, "{client:?}");
        }
    }
}

/// A frame of a server, without UDP checksum.
fn server_frame(payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(payload.len() + 28).unwrap();
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 255, 255, 255, 255]);
    let words = ip
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&(!sum).to_be_bytes());
    let mut frame = [0xff; 6].to_vec();
    frame.extend(HOST.0);
    frame.extend([8, 0]);
    frame.extend(ip);
    frame.extend([0, 67, 0, 68]);
    frame.extend((total - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}
