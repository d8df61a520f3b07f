//! Shared by the tests of the client: its bench. The tests of the states are in one module per subject, random orders of events in
//! `simulation`.

mod acquire;
mod clock;
mod conflict;
mod release;
mod renew;
mod replies;
mod restart;
mod simulation;

use super::*;
use crate::dhcp::identity::HardwareAddress;
use crate::dhcp::ignored::Ignored;
use crate::dhcp::message::{Body, ClientMessage, Reply, ReplyKind};
use crate::types::{Micros, Uid};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 210);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 211);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 2);
/// The hardware address of another host.
const HOST: HardwareAddress = HardwareAddress([2, 0, 0x5e, 0, 0, 9]);
const SOURCE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 9]);
const WALL: i64 = 1_770_000_000_000_000;

fn identity() -> Identity {
    Identity::new(&Uid::new("3f0c9a52-6d0e-4b59-9a51-0c3a1d2e4f60"), None)
}

/// With a hardware address that others may have.
fn chosen() -> Identity {
    let uid = Uid::new("3f0c9a52-6d0e-4b59-9a51-0c3a1d2e4f60");
    Identity::new(&uid, Some(HardwareAddress([2, 0, 0x5e, 0x10, 0, 0x2a])))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Time, with the wall clock `ahead` by some seconds.
fn at(mono: Duration, ahead: i64) -> Now {
    let micros = i64::try_from(mono.as_micros()).unwrap();
    Now {
        mono,
        wall: Micros(WALL + micros + ahead * 1_000_000),
    }
}

/// A recorded lease of 120 s that began at second 0.
fn record() -> Lease {
    let times = |seconds: i64| Micros(WALL + seconds * 1_000_000);
    Lease {
        address: ADDRESS,
        server: SERVER,
        server_hardware: None,
        mask: None,
        router: None,
        times: Some(LeaseTimes {
            renew_at: times(60),
            rebind_at: times(105),
            expires_at: times(120),
        }),
    }
}

/// A client, its time, and what it did.
struct Bench {
    client: Client,
    mono: Duration,
    ahead: i64,
    /// The last message.
    sent: Option<ClientMessage>,
}

impl Bench {
    fn new(record: Option<Lease>) -> Self {
        Self::wanting(record, None)
    }

    fn wanting(record: Option<Lease>, wanted: Option<Ipv4Addr>) -> Self {
        Self::seeded(record, wanted, 7)
    }

    fn seeded(record: Option<Lease>, wanted: Option<Ipv4Addr>, seed: u64) -> Self {
        Self::of(identity(), record, wanted, seed)
    }

    /// Of a client whose hardware address was chosen.
    fn chosen() -> Self {
        Self::of(chosen(), None, None, 7)
    }

    fn of(identity: Identity, record: Option<Lease>, wanted: Option<Ipv4Addr>, seed: u64) -> Self {
        Self {
            client: Client::new(identity, record, wanted, seed, at(secs(0), 0)),
            mono: secs(0),
            ahead: 0,
            sent: None,
        }
    }

    fn input(&mut self, input: Input<'_>) -> String {
        let mut out = Vec::new();
        self.client
            .handle(input, at(self.mono, self.ahead), &mut out);
        if let Some(wakeup) = self.client.next_wakeup() {
            assert!(wakeup > self.mono, "{:?} at {:?}", self.client, self.mono);
        }
        if out.iter().any(|output| matches!(output, Output::Probe(_))) {
            // At once, unless the test then says otherwise.
            let mut none = Vec::new();
            let now = at(self.mono, self.ahead);
            self.client.handle(Input::Sent, now, &mut none);
            assert_eq!(none, []);
        }
        let texts: Vec<String> = out.iter().map(|output| self.told(output)).collect();
        texts.join(", ")
    }

    fn told(&mut self, output: &Output) -> String {
        match output {
            Output::Send { message, server } => {
                self.sent = Some(*message);
                assert_eq!(message.identity, *self.client.identity());
                let at = server.map_or(String::new(), |server| format!(" at {server}"));
                let text = match message.body {
                    Body::Discover { wanted: None } => "DISCOVER".to_owned(),
                    Body::Discover {
                        wanted: Some(wanted),
                    } => format!("DISCOVER {}", last(wanted)),
                    Body::Select { address, server } => {
                        format!("REQUEST {} of {}", last(address), last(server))
                    }
                    Body::Confirm { address } => format!("REQUEST {}", last(address)),
                    Body::Decline { address, server } => {
                        format!("DECLINE {} of {}", last(address), last(server))
                    }
                    Body::Release { address, server } => {
                        format!("RELEASE {} of {}", last(address), last(server))
                    }
                };
                format!("{text}{at}")
            }
            Output::Probe(address) => format!("probe {}", last(*address)),
            Output::Record(lease) => {
                let end = lease
                    .times
                    .map(|times| (times.expires_at.0 - WALL) / 1_000_000);
                format!("record {} until {end:?}", last(lease.address))
            }
            Output::Lost { address, loss } => format!("lost {} {loss:?}", last(*address)),
            Output::Event(Event::Bound(lease)) => format!("bound {}", last(lease.address)),
            Output::Event(Event::Renewed(lease)) => format!("renewed {}", last(lease.address)),
            Output::Event(Event::Refused { server, .. }) => format!("refused by {}", last(*server)),
            Output::Event(Event::Expired(address)) => format!("expired {}", last(*address)),
            Output::Event(Event::Declined {
                address,
                conflict,
                is_offer,
            }) => {
                let did = if *is_offer { "left" } else { "declined" };
                format!("{did} {} {conflict:?}", last(*address))
            }
            Output::Event(Event::Released(address)) => format!("released {}", last(*address)),
            Output::Event(Event::Unanswered) => "unanswered".to_owned(),
            Output::Event(Event::RenewalUnanswered) => "renewal unanswered".to_owned(),
            Output::Ignored(ignored) => format!("ignored {ignored}"),
        }
    }

    /// Sleeps until the next wake-up.
    fn sleep(&mut self) -> String {
        self.mono = self.client.next_wakeup().unwrap();
        self.input(Input::Time)
    }

    /// Sleeps until a time, with all wake-ups before it.
    fn until(&mut self, mono: Duration) -> Vec<String> {
        let mut all = Vec::new();
        while self
            .client
            .next_wakeup()
            .is_some_and(|wakeup| wakeup <= mono)
        {
            all.push(self.sleep());
        }
        self.mono = mono;
        all
    }

    fn reply(&mut self, reply: &Reply) -> String {
        self.input(Input::Reply {
            reply,
            source: SOURCE,
        })
    }

    /// A reply to the last message.
    fn answer(&self, kind: ReplyKind, server: Ipv4Addr, address: Ipv4Addr, lease: u32) -> Reply {
        Reply {
            kind,
            xid: self.sent.unwrap().xid,
            hardware: self.client.identity().hardware,
            address,
            server: Some(server),
            lease: Some(lease),
            t1: Some(lease / 2),
            t2: Some(lease / 8 * 7),
            mask: None,
            router: None,
            client_id: None,
            text: None,
        }
    }

    fn offer(&mut self, server: Ipv4Addr, address: Ipv4Addr) -> String {
        self.reply(&self.answer(ReplyKind::Offer, server, address, 120))
    }

    fn ack(&mut self, server: Ipv4Addr, address: Ipv4Addr) -> String {
        self.reply(&self.answer(ReplyKind::Ack, server, address, 120))
    }

    fn nak(&mut self, server: Ipv4Addr) -> String {
        self.reply(&self.answer(ReplyKind::Nak, server, Ipv4Addr::UNSPECIFIED, 0))
    }

    fn state(&self) -> StateName {
        self.client.state()
    }

    /// With a lease of 120 s from now on.
    fn bound() -> Self {
        let mut bench = Self::new(None);
        bench.input(Input::Start);
        bench.offer(SERVER, ADDRESS);
        bench.ack(SERVER, ADDRESS);
        bench.sleep();
        assert_eq!(bench.state(), StateName::Bound);
        bench
    }

    /// With a recorded lease, and the first REQUEST of REBOOTING sent at second 1.
    fn rebooting() -> Self {
        let mut bench = Self::new(Some(record()));
        bench.input(Input::Start);
        bench.sleep();
        assert_eq!(bench.state(), StateName::Rebooting);
        bench
    }
}

fn last(address: Ipv4Addr) -> String {
    format!(".{}", address.octets()[3])
}
