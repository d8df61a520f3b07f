//! The states one by one. Random orders of events are in `simulation`.

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
const SOURCE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 9]);
const WALL: i64 = 1_770_000_000_000_000;

fn identity() -> Identity {
    Identity::new(&Uid::new("3f0c9a52-6d0e-4b59-9a51-0c3a1d2e4f60"), None)
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
        Self {
            client: Client::new(identity(), record, wanted, 7, at(secs(0), 0)),
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
        let texts: Vec<String> = out.iter().map(|output| self.told(output)).collect();
        texts.join(", ")
    }

    fn told(&mut self, output: &Output) -> String {
        match output {
            Output::Send { message, server } => {
                self.sent = Some(*message);
                assert_eq!(message.identity, identity());
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
            Output::Event(Event::Declined { address, conflict }) => {
                format!("declined {} {conflict:?}", last(*address))
            }
            Output::Event(Event::Released(address)) => format!("released {}", last(*address)),
            Output::Event(Event::Unanswered) => "unanswered".to_owned(),
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
            hardware: identity().hardware,
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

#[test]
fn dhc_1_from_discover_to_a_lease() {
    let mut bench = Bench::new(None);
    assert_eq!(
        (bench.state(), bench.client.next_wakeup()),
        (StateName::Stopped, None)
    );
    assert_eq!(bench.input(Input::Time), "");
    assert_eq!(bench.input(Input::Start), "DISCOVER");
    let xid = bench.sent.unwrap().xid;
    assert_eq!(bench.client.xid(), Some(xid));
    assert_eq!(bench.input(Input::Start), "");
    assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
    assert_eq!(bench.sent.unwrap().xid, xid);
    assert_eq!(bench.offer(SECOND, OTHER), "ignored state");
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
    assert_eq!(
        (bench.state(), bench.client.probed()),
        (StateName::Checking, Some(ADDRESS))
    );
    assert_eq!(bench.client.lease(), None);
    assert_eq!(bench.ack(SERVER, ADDRESS), "ignored state");
    // The lease began with the REQUEST, not with the end of the probe.
    assert_eq!(bench.sleep(), "record .210 until Some(120), bound .210");
    assert_eq!(bench.mono, secs(1));
    assert_eq!(bench.client.lease().unwrap().address, ADDRESS);
    assert_eq!(bench.client.next_wakeup(), Some(secs(60)));
    assert_eq!(bench.input(Input::Time), "");
}

#[test]
fn dhc_1_a_client_never_gives_up() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.input(Input::Start), "DISCOVER");
    let mut times = vec![bench.mono];
    for n in 1..200 {
        let text = bench.sleep();
        assert_eq!(
            text,
            if n == 3 {
                "unanswered, DISCOVER"
            } else {
                "DISCOVER"
            }
        );
        times.push(bench.mono);
    }
    let pauses: Vec<Duration> = times
        .windows(2)
        .map(|pair| pair[1].abs_diff(pair[0]))
        .collect();
    for (n, pause) in pauses.iter().enumerate() {
        let middle = secs(4 << n.min(4));
        assert!(pause.abs_diff(middle) <= secs(1), "{n}: {pause:?}");
    }
    assert_eq!(u64::from(bench.sent.unwrap().secs), bench.mono.as_secs());
    // A late answer still counts: the transaction is the same, and `secs` too (RFC 2131, 3.1).
    let asked_at = bench.sent.unwrap().secs;
    bench.mono += secs(2);
    assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
    for _ in 0..3 {
        assert_eq!(bench.sent.unwrap().secs, asked_at);
        assert_eq!(bench.sleep(), "REQUEST .210 of .1");
    }
    // A server that offers and does not acknowledge is told too.
    assert_eq!(bench.sleep(), "unanswered, DISCOVER");
    assert_eq!(bench.state(), StateName::Selecting);
}

#[test]
fn dhc_1_which_offer_is_taken() {
    // The first one.
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    assert_eq!(bench.offer(SECOND, OTHER), "REQUEST .211 of .2");
}

#[test]
fn dhc_6_the_address_asked_for_is_waited_for_a_second() {
    let wanting = || {
        let mut bench = Bench::wanting(None, Some(ADDRESS));
        assert_eq!(bench.input(Input::Start), "DISCOVER .210");
        assert_eq!(bench.offer(SECOND, OTHER), "");
        bench
    };
    let mut bench = wanting();
    assert_eq!(bench.offer(SECOND, OTHER), "ignored other_address");
    assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
    // Else the first one after that.
    let mut bench = wanting();
    assert_eq!(bench.sleep(), "REQUEST .211 of .2");
    assert_eq!(bench.mono, secs(1));
}

#[test]
fn dhc_1_replies_that_do_not_fit_are_ignored() {
    use ReplyKind::{Ack, Nak, Offer};
    type Change = fn(&mut Reply);
    /// How a client gets there, a reply, what is odd about it, and the reason.
    type Row = (fn() -> Bench, ReplyKind, Change, Ignored);
    fn selecting() -> Bench {
        let mut bench = Bench::new(None);
        bench.input(Input::Start);
        bench
    }
    fn requesting() -> Bench {
        let mut bench = selecting();
        bench.offer(SERVER, ADDRESS);
        bench
    }
    fn renewing() -> Bench {
        let mut bench = Bench::bound();
        assert_eq!(bench.sleep(), "REQUEST .210");
        assert_eq!(bench.state(), StateName::Renewing);
        bench
    }
    let same: Change = |_| {};
    let table: Vec<Row> = vec![
        (selecting, Offer, |r| r.xid ^= 1, Ignored::Xid),
        (selecting, Offer, |r| r.hardware = SOURCE, Ignored::Hardware),
        (
            selecting,
            Offer,
            |r| r.client_id = Some(vec![1]),
            Ignored::ClientId,
        ),
        (selecting, Offer, |r| r.server = None, Ignored::NoServer),
        (
            selecting,
            Offer,
            |r| r.address = Ipv4Addr::UNSPECIFIED,
            Ignored::UnusableAddress,
        ),
        (
            selecting,
            Offer,
            |r| r.address = Ipv4Addr::BROADCAST,
            Ignored::UnusableAddress,
        ),
        (selecting, Offer, |r| r.lease = None, Ignored::NoLeaseTime),
        (selecting, Offer, |r| r.lease = Some(9), Ignored::ShortLease),
        (selecting, Ack, same, Ignored::State),
        (selecting, Nak, same, Ignored::State),
        (requesting, Offer, same, Ignored::State),
        (
            requesting,
            Ack,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (requesting, Ack, |r| r.server = None, Ignored::NoServer),
        (
            requesting,
            Ack,
            |r| r.address = OTHER,
            Ignored::OtherAddress,
        ),
        (requesting, Ack, |r| r.lease = None, Ignored::NoLeaseTime),
        (
            requesting,
            Nak,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (requesting, Nak, |r| r.server = None, Ignored::NoServer),
        (Bench::bound, Ack, same, Ignored::State),
        (Bench::bound, Nak, same, Ignored::State),
        (renewing, Ack, |r| r.address = OTHER, Ignored::OtherAddress),
        (
            renewing,
            Nak,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (Bench::rebooting, Offer, same, Ignored::State),
        (
            Bench::rebooting,
            Ack,
            |r| r.address = OTHER,
            Ignored::OtherAddress,
        ),
    ];
    for (row, (make, kind, change, ignored)) in table.into_iter().enumerate() {
        let mut bench = make();
        let before = (
            bench.state(),
            bench.client.next_wakeup(),
            bench.client.lease().copied(),
        );
        let mut reply = bench.answer(kind, SERVER, ADDRESS, 120);
        change(&mut reply);
        assert_eq!(
            bench.reply(&reply),
            format!("ignored {ignored}"),
            "row {row}"
        );
        let after = (
            bench.state(),
            bench.client.next_wakeup(),
            bench.client.lease().copied(),
        );
        assert_eq!(before, after, "row {row}");
    }
}

#[test]
fn dhc_2_after_a_restart_the_recorded_address_is_confirmed() {
    let mut bench = Bench::new(Some(record()));
    assert_eq!(bench.input(Input::Start), "");
    assert_eq!(bench.state(), StateName::Rebooting);
    assert_eq!(bench.client.lease(), Some(&record()));
    // At most 10 s later: a thousand clients do not ask at once. A reply cannot come before.
    let early = Reply {
        xid: bench.client.xid().unwrap(),
        ..Bench::bound().answer(ReplyKind::Ack, SERVER, ADDRESS, 120)
    };
    assert_eq!(bench.reply(&early), "ignored xid");
    assert_eq!(bench.sleep(), "REQUEST .210");
    let asked = bench.mono;
    assert!(asked <= secs(10));
    bench.mono += secs(3);
    // Another server than the recorded one may answer. The address is not probed: it is announced already.
    let end = asked.as_secs() + 120;
    let text = bench.ack(SECOND, ADDRESS);
    assert_eq!(text, format!("record .210 until Some({end}), renewed .210"));
    assert_eq!(bench.client.lease().unwrap().server, SECOND);
}

#[test]
fn dhc_2_without_an_answer_the_recorded_lease_goes_on() {
    let mut bench = Bench::rebooting();
    for _ in 0..3 {
        assert_eq!(bench.sleep(), "REQUEST .210");
    }
    assert_eq!(bench.state(), StateName::Rebooting);
    // Four REQUESTs take about a minute: T1 has passed.
    let text = bench.sleep();
    assert_eq!(
        (text.as_str(), bench.state()),
        ("REQUEST .210", StateName::Renewing)
    );
    let texts = bench.until(secs(119));
    assert!(texts.iter().all(|text| text == "REQUEST .210"), "{texts:?}");
    assert_eq!(bench.state(), StateName::Rebinding);
    assert_eq!(
        bench.sleep(),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    assert_eq!(bench.mono, secs(120));
}

#[test]
fn dhc_2_a_lease_without_end_is_confirmed_once_and_never_renewed() {
    let record = Lease {
        times: None,
        ..record()
    };
    let mut bench = Bench::new(Some(record));
    bench.input(Input::Start);
    for _ in 0..4 {
        assert_eq!(bench.sleep(), "REQUEST .210");
    }
    assert_eq!(bench.sleep(), "");
    assert_eq!(
        (bench.state(), bench.client.next_wakeup()),
        (StateName::Bound, None)
    );

    let mut bench = Bench::new(Some(record));
    bench.input(Input::Start);
    bench.sleep();
    let reply = bench.answer(ReplyKind::Ack, SERVER, ADDRESS, u32::MAX);
    assert_eq!(bench.reply(&reply), "record .210 until None, renewed .210");
    assert_eq!(bench.client.next_wakeup(), None);
}

#[test]
fn dhc_2_an_expired_record_is_asked_for_anew() {
    let mut bench = Bench::new(Some(record()));
    bench.mono = secs(120);
    assert_eq!(
        bench.input(Input::Start),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
    // Known: kube-vip may still announce it, and a probe would decline it.
    assert_eq!(
        bench.ack(SERVER, ADDRESS),
        "record .210 until Some(240), bound .210"
    );
}

#[test]
fn dhc_2_renewal_is_a_broadcast_without_ciaddr_from_t1_to_the_expiry() {
    use StateName::{Rebinding, Renewing, Selecting};
    let mut bench = Bench::bound();
    let mut sent = Vec::new();
    loop {
        let text = bench.sleep();
        if bench.state() == Selecting {
            assert_eq!(text, "expired .210, lost .210 Expired, DISCOVER .210");
            break;
        }
        assert_eq!(text, "REQUEST .210");
        let xid = bench.sent.unwrap().xid;
        sent.push((bench.mono.as_millis(), bench.state(), xid));
    }
    let times: Vec<_> = sent
        .iter()
        .map(|(time, state, _)| (*time, *state))
        .collect();
    let expected = [
        (60_000, Renewing),
        (82_500, Renewing),
        (93_750, Renewing),
        (101_250, Renewing),
        (105_000, Rebinding),
        (112_500, Rebinding),
    ];
    assert_eq!(times, expected);
    let mut ids: Vec<u32> = sent.iter().map(|(_, _, xid)| *xid).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), expected.len());
}

#[test]
fn dhc_2_a_renewed_lease_begins_with_the_request_that_was_answered() {
    for wakeups in 1..=6 {
        let mut bench = Bench::bound();
        for _ in 0..wakeups {
            assert_eq!(bench.sleep(), "REQUEST .210");
        }
        let end = bench.mono.as_secs() + 120;
        let late = bench.answer(ReplyKind::Ack, SERVER, ADDRESS, 120);
        bench.mono += secs(1);
        let text = bench.reply(&late);
        assert_eq!(text, format!("record .210 until Some({end}), renewed .210"));
        assert_eq!(bench.reply(&late), "ignored state");
    }
    // In REBINDING another server may take over.
    let mut bench = Bench::bound();
    bench.until(secs(105));
    assert_eq!(bench.state(), StateName::Rebinding);
    assert_eq!(
        bench.ack(SECOND, ADDRESS),
        "record .210 until Some(225), renewed .210"
    );
}

#[test]
fn dhc_3_a_nak_ends_the_lease_at_once() {
    let mut bench = Bench::bound();
    bench.sleep();
    let text = "refused by .1, lost .210 Nak, DISCOVER";
    assert_eq!(bench.nak(SERVER), text);
    assert_eq!(bench.client.lease(), None);
    // In REBOOTING and REBINDING of any server.
    assert_eq!(
        Bench::rebooting().nak(SECOND),
        "refused by .2, lost .210 Nak, DISCOVER"
    );
    let mut bench = Bench::bound();
    bench.until(secs(106));
    assert_eq!(bench.nak(SECOND), "refused by .2, lost .210 Nak, DISCOVER");
    // The server gives it back: known, and not probed.
    assert_eq!(bench.offer(SECOND, ADDRESS), "REQUEST .210 of .2");
    assert_eq!(
        bench.ack(SECOND, ADDRESS),
        "record .210 until Some(226), bound .210"
    );
}

#[test]
fn dhc_3_a_server_that_refuses_what_it_offers_makes_no_storm() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    for n in 0..10 {
        assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
        assert_eq!(bench.nak(SERVER), "refused by .1");
        let before = bench.mono;
        assert_eq!(bench.sleep(), "DISCOVER");
        assert!(bench.mono.abs_diff(before).abs_diff(secs(4 << n.min(4))) <= secs(1));
    }
}

#[test]
fn dhc_3_the_recorded_expiry_counts_even_if_the_wall_clock_was_set() {
    // Forward by a minute, past the recorded T1: renewed before the operator ends the Service.
    let mut bench = Bench::bound();
    bench.ahead = 60;
    assert_eq!(bench.input(Input::Time), "REQUEST .210");
    assert_eq!(
        bench.ack(SERVER, ADDRESS),
        "record .210 until Some(181), renewed .210"
    );
    assert_eq!(bench.client.next_wakeup(), Some(secs(61)));
    // Without an answer the lease ends at the recorded time.
    let mut bench = Bench::bound();
    bench.ahead = 60;
    bench.input(Input::Time);
    bench.until(secs(59));
    assert_eq!(bench.state(), StateName::Rebinding);
    assert_eq!(
        bench.sleep(),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    assert_eq!(bench.mono, secs(60));
    // Beyond the expiry.
    let mut bench = Bench::bound();
    bench.ahead = 1000;
    assert_eq!(
        bench.input(Input::Time),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    // Back by an hour: by the record the operator would serve it for an hour too long.
    let mut bench = Bench::bound();
    bench.ahead = -3600;
    assert_eq!(bench.input(Input::Time), "record .210 until Some(-3480)");
    assert_eq!(bench.input(Input::Time), "");
    assert_eq!(bench.client.next_wakeup(), Some(secs(60)));
    // Drift makes no write.
    let mut bench = Bench::bound();
    bench.ahead = -10;
    assert_eq!(bench.input(Input::Time), "");
}

#[test]
fn dhc_3_a_process_that_was_stopped_serves_nothing_that_has_expired() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    bench.mono = secs(500);
    assert_eq!(bench.input(Input::Time), "DISCOVER");
    // Past T1: bound, and renewed at once.
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    bench.mono = secs(570);
    assert_eq!(
        bench.input(Input::Time),
        "record .210 until Some(620), bound .210, REQUEST .210"
    );
    // An answer that took longer than the lease.
    bench.mono = secs(700);
    bench.input(Input::Time);
    bench.offer(SERVER, ADDRESS);
    let late = bench.answer(ReplyKind::Ack, SERVER, ADDRESS, 10);
    bench.mono = secs(711);
    bench.input(Input::Time);
    assert_eq!(bench.reply(&late), "ignored short_lease");
}

#[test]
fn dhc_3_a_lease_that_the_server_shortens_ends_then() {
    let renewed = |lease| {
        let mut bench = Bench::bound();
        bench.sleep();
        bench.reply(&bench.answer(ReplyKind::Ack, SERVER, ADDRESS, lease));
        bench
    };
    // Renewed after 4 s, not faster.
    let mut bench = renewed(7);
    assert_eq!(bench.client.next_wakeup(), Some(secs(64)));
    assert_eq!(bench.sleep(), "REQUEST .210");
    assert_eq!(
        bench.until(secs(67)).last().unwrap(),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    let mut bench = renewed(2);
    assert_eq!(
        bench.sleep(),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    assert_eq!(bench.mono, secs(62));
    assert_eq!(renewed(0).state(), StateName::Selecting);
    // The answer took longer than the lease.
    let mut bench = Bench::bound();
    bench.sleep();
    let late = bench.answer(ReplyKind::Ack, SERVER, ADDRESS, 1);
    bench.mono += secs(1);
    assert_eq!(
        bench.reply(&late),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
}

#[test]
fn dhc_4_release_sends_what_a_server_needs() {
    let released = "RELEASE .210 of .1 at 02:00:00:00:00:09, released .210";
    let mut bench = Bench::bound();
    assert_eq!(bench.input(Input::Release), released);
    assert_eq!(
        (bench.state(), bench.client.lease()),
        (StateName::Stopped, None)
    );
    assert_eq!(bench.client.next_wakeup(), None);
    assert_eq!(bench.input(Input::Release), "");
    assert_eq!(bench.input(Input::Time), "");
    // While it is renewed.
    let mut bench = Bench::bound();
    bench.sleep();
    assert_eq!(bench.input(Input::Release), released);
    // Before it is bound: the server has or may have leased the address.
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    assert_eq!(
        bench.input(Input::Release),
        "RELEASE .210 of .1, released .210"
    );
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    assert_eq!(bench.input(Input::Release), released);
    // Nothing leased.
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    assert_eq!(bench.input(Input::Release), "");
    assert_eq!(bench.state(), StateName::Stopped);
}

#[test]
fn dhc_4_a_recorded_lease_is_released_without_a_start() {
    let mut bench = Bench::new(Some(record()));
    assert_eq!(
        bench.input(Input::Release),
        "RELEASE .210 of .1, released .210"
    );
    // It has expired: the address may be somebody else's.
    let mut bench = Bench::new(Some(record()));
    bench.mono = secs(120);
    assert_eq!(bench.input(Input::Release), "");
    let mut bench = Bench::rebooting();
    assert_eq!(
        bench.input(Input::Release),
        "RELEASE .210 of .1, released .210"
    );
}

#[test]
fn dhc_5_an_address_in_use_is_declined_and_asked_for_10_s_later() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    assert_eq!(bench.input(Input::InUse(ADDRESS)), "");
    bench.ack(SERVER, ADDRESS);
    assert_eq!(bench.input(Input::InUse(OTHER)), "");
    let text = "DECLINE .210 of .1, declined .210 Host";
    assert_eq!(bench.input(Input::InUse(ADDRESS)), text);
    assert_eq!(
        (bench.state(), bench.client.probed()),
        (StateName::Init, None)
    );
    assert_eq!(bench.client.next_wakeup(), Some(secs(10)));
    assert_eq!(bench.sleep(), "DISCOVER");
    // A bound address answers ARP: kube-vip does.
    let mut bench = Bench::bound();
    assert_eq!(bench.input(Input::InUse(ADDRESS)), "");
}

/// kube-vip may still announce it for a moment (DHC-6); an address that another load balancer had is probed.
#[test]
fn dhc_5_an_address_that_the_load_balancer_had_is_not_probed() {
    for (wanted, is_probed) in [(ADDRESS, false), (OTHER, true)] {
        let mut bench = Bench::wanting(None, Some(wanted));
        bench.input(Input::Start);
        bench.offer(SERVER, ADDRESS);
        if bench.state() == StateName::Selecting {
            // It waits for an offer of the address that it asks for.
            bench.sleep();
        }
        let told = bench.ack(SERVER, ADDRESS);
        assert_eq!(told == "probe .210", is_probed, "{told}");
        assert_eq!(bench.client.lease().is_none(), is_probed);
    }
}

#[test]
fn dhc_5_an_address_of_a_pools_record_is_declined() {
    let mut bench = Bench::bound();
    assert_eq!(bench.input(Input::HeldByPool(OTHER)), "");
    assert_eq!(
        bench.input(Input::HeldByPool(ADDRESS)),
        "lost .210 Conflict, DECLINE .210 of .1, declined .210 Pool"
    );
    assert_eq!(bench.client.next_wakeup(), Some(secs(11)));
    // Offered again, it is probed: it is not known as ours.
    assert_eq!(bench.sleep(), "DISCOVER");
    bench.offer(SERVER, ADDRESS);
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
    assert_eq!(
        bench.input(Input::HeldByPool(ADDRESS)),
        "DECLINE .210 of .1, declined .210 Pool"
    );
}

#[test]
fn dhc_2_the_same_seed_sends_the_same_messages() {
    let run = |seed| {
        let mut client = Client::new(identity(), None, None, seed, at(secs(0), 0));
        let mut all = Vec::new();
        client.handle(Input::Start, at(secs(0), 0), &mut all);
        for _ in 0..20 {
            let mono = client.next_wakeup().unwrap();
            client.handle(Input::Time, at(mono, 0), &mut all);
        }
        (all, client.next_wakeup())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
