//! Frames in, frames out: each client's messages are read back from what the table sends.

use proptest::prelude::*;

use super::*;
use crate::dhcp::arp::ArpKind;
use crate::dhcp::client::StateName;
use crate::dhcp::identity::Identity;
use crate::dhcp::message::ParseError;
use crate::types::Micros;

const INTERFACE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
const SERVER: [u8; 4] = [10, 0, 0, 1];

fn uid(number: u32) -> Uid {
    Uid::new(&format!("{number:08x}-0000-4000-8000-000000000000"))
}

fn at(mono: Duration) -> Now {
    let micros = i64::try_from(mono.as_micros()).unwrap();
    Now {
        mono,
        wall: Micros(1_770_000_000_000_000 + micros),
    }
}

fn client(number: u32) -> Client {
    let identity = Identity::new(&uid(number), None);
    Client::new(identity, None, None, number.into(), at(Duration::ZERO))
}

/// See `sent`.
type Sent = (u32, [u8; 6], u8, Option<[u8; 4]>);

/// What a server reads in a DHCP frame of a client: transaction id, hardware address, message type, address asked for.
fn sent(frame: &[u8]) -> Option<Sent> {
    (frame[12..14] == [8, 0]).then(|| {
        let message = &frame[42..];
        let mut address = None;
        let mut options = &message[240..];
        while let [code, len, rest @ ..] = options {
            if *code == 255 {
                break;
            }
            let (value, rest) = rest.split_at(usize::from(*len));
            if *code == 50 {
                address = value.first_chunk().copied();
            }
            options = rest;
        }
        let xid = u32::from_be_bytes(message[4..8].try_into().unwrap());
        (
            xid,
            message[28..34].try_into().unwrap(),
            message[242],
            address,
        )
    })
}

/// A frame of a server, without UDP checksum.
fn reply(kind: u8, xid: u32, hardware: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let mut message = vec![2, 1, 6, 0];
    message.extend(xid.to_be_bytes());
    message.extend([0; 8]);
    message.extend(address);
    message.resize(28, 0);
    message.extend(hardware);
    message.resize(236, 0);
    message.extend([
        99, 130, 83, 99, 53, 1, kind, 54, 4, 10, 0, 0, 1, 51, 4, 0, 0, 14, 16, 255,
    ]);
    let mut frame = [0xff; 6].to_vec();
    frame.extend([2, 0, 0, 0, 0, 9, 8, 0]);
    let total = u16::try_from(message.len() + 28).unwrap();
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 255, 255, 255, 255]);
    let sum: u32 = ip
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum();
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&(!sum).to_be_bytes());
    frame.extend(ip);
    frame.extend([0, 67, 0, 68]);
    frame.extend((total - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(message);
    frame
}

/// A table and a server that answers every message at once: an address by the last three bytes of the hardware address.
struct Bench {
    table: Table,
    mono: Duration,
    frames: usize,
    wakes: usize,
    events: Vec<(Uid, Effect)>,
}

impl Bench {
    fn new(clients: u32) -> Self {
        let mut table = Table::new(INTERFACE, 2000);
        for number in 0..clients {
            table.insert(uid(number), client(number), 0).unwrap();
        }
        Self {
            table,
            mono: Duration::ZERO,
            frames: 0,
            wakes: 0,
            events: Vec::new(),
        }
    }

    fn command(&mut self, number: u32, command: Command) {
        let mut out = Vec::new();
        assert!(
            self.table
                .command(&uid(number), command, at(self.mono), &mut out)
        );
        self.carry_out(out);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for Action { uid, effect } in actions {
            let frame = match effect {
                Effect::Frame { bytes, .. } => bytes,
                Effect::Probe(address) => {
                    let mut none = Vec::new();
                    self.table.sent(&uid, at(self.mono), &mut none);
                    assert_eq!(none, []);
                    self.table.probe(address)
                }
                effect => {
                    self.events.push((uid, effect));
                    continue;
                }
            };
            self.frames += 1;
            let Some((xid, hardware, kind, address)) = sent(&frame) else {
                continue;
            };
            let [.., w, x, y] = hardware;
            let offered = address.unwrap_or([10, w, x, y]);
            let answer = match kind {
                1 => 2,
                3 => 5,
                _ => continue,
            };
            let mut out = Vec::new();
            let frame = reply(answer, xid, hardware, offered);
            let now = at(self.mono);
            let delivery = self.table.receive(&frame, Checksum::Verify, now, &mut out);
            assert_eq!(delivery, Ok(Delivery::Client));
            self.carry_out(out);
        }
    }

    fn until(&mut self, end: Duration) {
        while let Some(wakeup) = self.table.next_wakeup().filter(|wakeup| *wakeup <= end) {
            assert!(wakeup > self.mono || self.wakes == 0);
            self.mono = wakeup;
            self.wakes += 1;
            let mut out = Vec::new();
            self.table.wake(at(self.mono), &mut out);
            self.carry_out(out);
        }
        self.mono = end;
    }
}

#[test]
fn dhc_1_a_thousand_leases_on_one_interface() {
    let mut bench = Bench::new(1000);
    for number in 0..1000 {
        bench.command(number, Command::Start);
    }
    bench.until(Duration::from_secs(2));
    let bound = |bench: &Bench| {
        let of = |(_, client): (&Uid, &Client)| client.state() == StateName::Bound;
        bench
            .table
            .clients()
            .filter(|client| of((client.0, client.1)))
            .count()
    };
    assert_eq!(bound(&bench), 1000);
    let addresses: BTreeSet<Ipv4Addr> = bench
        .table
        .clients()
        .map(|(_, client)| client.lease().unwrap().address)
        .collect();
    assert!(addresses.len() > 980, "{}", addresses.len());
    // DISCOVER, REQUEST and one probe each.
    assert_eq!(bench.frames, 3000);
    // Leases of an hour, T1 at about half: one frame for each in half an hour, and no wake-up without one.
    bench.frames = 0;
    bench.wakes = 0;
    bench.until(Duration::from_hours(10));
    assert!(
        (18_000..=22_000).contains(&bench.frames),
        "{}",
        bench.frames
    );
    assert!(
        bench.wakes <= bench.frames,
        "{} {}",
        bench.wakes,
        bench.frames
    );
    assert_eq!(bound(&bench), 1000);
    assert!(bench.table.outputs.is_empty());
    let waiting = (bench.table.replies.0.len(), bench.table.probes.0.len());
    assert_eq!((waiting, bench.table.wakeups.len()), ((0, 0), 1000));
}

#[test]
fn dhc_1_a_frame_reaches_whom_it_is_for() {
    let mut bench = Bench::new(2);
    let now = at(bench.mono);
    let mut out = Vec::new();
    bench.table.command(&uid(0), Command::Start, now, &mut out);
    bench.table.command(&uid(1), Command::Start, now, &mut out);
    let frames: Vec<_> = out
        .drain(..)
        .map(|action| (action.uid, action.effect))
        .collect();
    let ids: Vec<_> = frames
        .iter()
        .map(|(uid, effect)| match effect {
            Effect::Frame { bytes: frame, .. } => (uid.clone(), sent(frame).unwrap()),
            other => panic!("{other:?}"),
        })
        .collect();
    let (xid, hardware) = (ids[1].1.0, ids[1].1.1);
    let mut receive = |frame: &[u8]| {
        let delivery = bench.table.receive(frame, Checksum::Verify, now, &mut out);
        let uids: Vec<Uid> = out.drain(..).map(|action| action.uid).collect();
        (delivery, uids)
    };
    let address = [10, 1, 0, 9];
    let frame = reply(2, xid, hardware, address);
    assert_eq!(receive(&frame), (Ok(Delivery::Client), vec![uid(1)]));
    // Another transaction, another client, no frame of a server, and a broken one.
    assert_eq!(
        receive(&reply(2, !xid, hardware, address)),
        (Ok(Delivery::Unknown), vec![])
    );
    assert_eq!(
        receive(&reply(2, xid, ids[0].1.1, address)),
        (Ok(Delivery::Unknown), vec![])
    );
    assert_eq!(receive(&[0; 60]), (Ok(Delivery::Other), vec![]));
    let mut other = frame.clone();
    other[42] = 1;
    assert_eq!(
        receive(&other),
        (Err(ParseError::NotReply(1).into()), vec![])
    );
    // The second offer is ignored, and counted.
    assert_eq!(receive(&frame), (Ok(Delivery::Client), vec![uid(1)]));
}

#[test]
fn dhc_1_clients_with_the_same_transaction_id_are_told_apart() {
    // The same seed and the same hardware address, by an annotation: only the client identifier differs.
    let hardware = HardwareAddress([2, 0, 0, 0, 0, 7]);
    let mut table = Table::new(INTERFACE, 2);
    let now = at(Duration::ZERO);
    let mut out = Vec::new();
    for number in 0..2 {
        let identity = Identity::new(&uid(number), Some(hardware));
        let client = Client::new(identity, None, None, 1, now);
        table.insert(uid(number), client, 0).unwrap();
        table.command(&uid(number), Command::Start, now, &mut out);
    }
    let Effect::Frame { bytes: frame, .. } = &out[1].effect else {
        panic!()
    };
    let (xid, ..) = sent(frame).unwrap();
    let mut frame = reply(2, xid, hardware.0, [10, 1, 0, 9]);
    let id = crate::dhcp::identity::ClientId::from_uid(&uid(1));
    // Option 61 instead of the end marker. The lengths and the checksum of the header change with it.
    frame.pop();
    frame.extend([61, 23]);
    frame.extend(id.bytes());
    let added = 24;
    for (at, checksum) in [(16, Some(24)), (38, None)] {
        let length = u16::from_be_bytes([frame[at], frame[at + 1]]) + added;
        frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
        if let Some(at) = checksum {
            let sum = u16::from_be_bytes([frame[at], frame[at + 1]]) - added;
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    out.clear();
    table
        .receive(&frame, Checksum::Verify, now, &mut out)
        .unwrap();
    let told: Vec<_> = out
        .iter()
        .map(|action| {
            (
                action.uid.clone(),
                matches!(action.effect, Effect::Probe(_)),
            )
        })
        .collect();
    assert_eq!(told, [(uid(0), false), (uid(1), true)]);
    assert_eq!(out[0].effect, Effect::Ignored(Ignored::ClientId));
}

#[test]
fn dhc_5_an_arp_answer_reaches_the_client_that_probes() {
    let mut bench = Bench::new(2);
    for number in 0..2 {
        bench.command(number, Command::Start);
    }
    let probed: Vec<Ipv4Addr> = (0..2)
        .map(|number| bench.table.client(&uid(number)).unwrap().probed().unwrap())
        .collect();
    let answer = |address, sender| {
        let arp = Arp {
            kind: ArpKind::Reply,
            sender,
            sender_address: address,
            target: INTERFACE,
            target_address: Ipv4Addr::UNSPECIFIED,
        };
        arp_frame(sender, &arp)
    };
    let now = at(bench.mono);
    let mut out = Vec::new();
    let host = HardwareAddress([2, 0, 0, 0, 0, 5]);
    let mut receive = |frame: &[u8]| bench.table.receive(frame, Checksum::Verify, now, &mut out);
    assert_eq!(
        receive(&answer(Ipv4Addr::new(10, 9, 9, 9), host)),
        Ok(Delivery::Other)
    );
    assert_eq!(receive(&answer(probed[1], INTERFACE)), Ok(Delivery::Other));
    assert_eq!(receive(&answer(probed[1], host)), Ok(Delivery::Client));
    assert_eq!(receive(&answer(probed[1], host)), Ok(Delivery::Other));
    assert!(out.iter().all(|action| action.uid == uid(1)));
    assert!(
        out.iter()
            .any(|action| matches!(action.effect, Effect::Event(Event::Declined { .. })))
    );
    assert_eq!(
        bench.table.client(&uid(1)).unwrap().state(),
        StateName::Init
    );
    assert_eq!(
        bench.table.client(&uid(0)).unwrap().state(),
        StateName::Checking
    );
}

/// kube-vip may go on answering for another load balancer that has given the address back.
#[test]
fn dhc_5_an_address_in_doubt_is_probed_until_nobody_answers() {
    let mut bench = Bench::new(1);
    bench.command(0, Command::Start);
    let address = bench.table.client(&uid(0)).unwrap().probed().unwrap();
    let host = HardwareAddress([2, 0, 0, 0, 0, 5]);
    let answer = |address| Arp {
        kind: ArpKind::Reply,
        sender: host,
        sender_address: address,
        target: INTERFACE,
        target_address: Ipv4Addr::UNSPECIFIED,
    };
    assert_eq!(bench.table.checked_by(&answer(address)), Some(address));
    let elsewhere = answer(Ipv4Addr::new(10, 9, 9, 9));
    assert_eq!(bench.table.checked_by(&elsewhere), None);
    for second in 1..30 {
        let mut out = Vec::new();
        bench.table.doubt(address, at(bench.mono), &mut out);
        assert_eq!(out, []);
        bench.until(Duration::from_secs(second));
        let state = bench.table.client(&uid(0)).unwrap().state();
        assert_eq!(state, StateName::Checking);
    }
    bench.until(Duration::from_secs(30));
    assert!(bench.table.client(&uid(0)).unwrap().lease().is_some());
}

/// They do not answer each other, and neither has a recorded lease: only the first one that is offered an address asks for it.
#[test]
fn dhc_5_of_two_clients_of_one_interface_the_first_one_has_an_address() {
    let address = [10, 1, 0, 9];
    for (chosen, conflict) in [
        (Some(HardwareAddress([2, 0, 0, 0, 0, 7])), Conflict::Twin),
        (None, Conflict::Lease),
    ] {
        let mut table = Table::new(INTERFACE, 2);
        let now = at(Duration::ZERO);
        let mut out = Vec::new();
        for number in 0..2 {
            let identity = Identity::new(&uid(number), chosen);
            let client = Client::new(identity, None, None, number.into(), now);
            table.insert(uid(number), client, 0).unwrap();
            table.command(&uid(number), Command::Start, now, &mut out);
        }
        out.clear();
        for (number, kind) in [(0, 2), (1, 2), (0, 5), (1, 5)] {
            let client = table.client(&uid(number)).unwrap();
            let Some(xid) = client.xid() else { continue };
            let hardware = client.identity().hardware.0;
            let frame = reply(kind, xid, hardware, address);
            let done = table.receive(&frame, Checksum::Verify, now, &mut out);
            assert_eq!(done, Ok(Delivery::Client));
        }
        let probes: Vec<_> = out
            .iter()
            .filter(|action| matches!(action.effect, Effect::Probe(_)))
            .map(|action| action.uid.clone())
            .collect();
        assert_eq!(probes, [uid(0)]);
        let is_told = |action: &Action| {
            let event = Event::Declined {
                address: Ipv4Addr::from(address),
                conflict,
                is_offer: chosen.is_some(),
            };
            *action
                == Action {
                    uid: uid(1),
                    effect: Effect::Event(event),
                }
        };
        assert!(out.iter().any(is_told), "{out:?}");
    }
}

/// A bridge takes the address of another port: an answer to the earlier one is lost.
#[test]
fn dhc_5_an_interface_with_another_address_probes_again_from_that() {
    let other = HardwareAddress([2, 0, 0, 0, 0, 2]);
    let mut bench = Bench::new(1);
    bench.command(0, Command::Start);
    let address = bench.table.client(&uid(0)).unwrap().probed().unwrap();
    bench.mono += Duration::from_millis(900);
    let mut out = Vec::new();
    bench.table.set_interface(other, at(bench.mono), &mut out);
    assert_eq!(out, []);
    bench.mono = bench.table.next_wakeup().unwrap();
    bench.table.wake(at(bench.mono), &mut out);
    let probe = Action {
        uid: uid(0),
        effect: Effect::Probe(address),
    };
    assert_eq!(out, [probe]);
    let frame = bench.table.probe(address);
    assert_eq!(frame[6..12], other.0);
    let Ok(Received::Arp(arp)) = frame::parse(&frame, Checksum::Verify) else {
        panic!("it is an ARP packet");
    };
    assert_eq!((arp.sender, arp.target_address), (other, address));
    bench.table.sent(&uid(0), at(bench.mono), &mut out);
    bench.mono = bench.table.next_wakeup().unwrap();
    bench.table.wake(at(bench.mono), &mut out);
    assert!(bench.table.client(&uid(0)).unwrap().lease().is_some());
}

#[test]
fn dhc_4_a_released_client_is_removed_and_gets_nothing() {
    let mut bench = Bench::new(1);
    bench.command(0, Command::Start);
    bench.until(Duration::from_secs(2));
    bench.events.clear();
    bench.command(0, Command::Release);
    assert!(matches!(
        bench.events[..],
        [(_, Effect::Event(Event::Released(_)))]
    ));
    assert_eq!(bench.table.next_wakeup(), None);
    assert!(bench.table.remove(&uid(0)).is_some());
    assert!(bench.table.remove(&uid(0)).is_none());
    assert!(bench.table.is_empty());
    let mut out = Vec::new();
    let now = at(bench.mono);
    assert!(!bench.table.command(&uid(0), Command::Start, now, &mut out));
    bench.table.wake(now, &mut out);
    assert_eq!(out, []);
}

#[test]
fn dhc_3_a_set_clock_reaches_every_client() {
    let mut bench = Bench::new(3);
    for number in 0..3 {
        bench.command(number, Command::Start);
    }
    bench.until(Duration::from_secs(2));
    let later = Now {
        mono: bench.mono,
        wall: Micros(at(bench.mono).wall.0 + 3_600_000_000),
    };
    let mut out = Vec::new();
    bench.table.clock_was_set(later, &mut out);
    let lost = |action: &&Action| matches!(action.effect, Effect::Lost { .. });
    assert_eq!(out.iter().filter(lost).count(), 3);
}

#[test]
fn dhc_1_the_number_of_clients_is_bounded() {
    let mut table = Table::new(INTERFACE, 2);
    for number in 0..2 {
        table.insert(uid(number), client(number), 0).unwrap();
    }
    assert_eq!(
        table.insert(uid(1), client(1), 0),
        Err(TableError::Present(uid(1)))
    );
    let error = table.insert(uid(2), client(2), 0).unwrap_err();
    assert_eq!(error, TableError::Full(2));
    assert!(error.to_string().contains("raise the limit"));
    table.remove(&uid(0));
    table.insert(uid(2), client(2), 0).unwrap();
    assert_eq!(table.len(), 2);
}

/// N recorded leases and a limit of N: whoever comes first, those that ask for a new one get none of their places.
#[test]
fn dhc_2_a_recorded_lease_gets_its_client_whatever_the_limit() {
    let lease = Lease {
        address: Ipv4Addr::new(10, 1, 0, 9),
        server: Ipv4Addr::from(SERVER),
        server_hardware: None,
        mask: None,
        router: None,
        times: None,
    };
    let recorded = |number| {
        let identity = Identity::new(&uid(number), None);
        let record = Some(lease);
        Client::new(identity, record, None, number.into(), at(Duration::ZERO))
    };
    let mut table = Table::new(INTERFACE, 2);
    // First those that ask: the places are those of 1 and 2.
    let full = Err(TableError::Full(2));
    assert_eq!(table.insert(uid(0), client(0), 2), full);
    assert_eq!(table.insert(uid(1), recorded(1), 1), Ok(()));
    assert_eq!(table.insert(uid(0), client(0), 1), full);
    assert_eq!(table.insert(uid(2), recorded(2), 0), Ok(()));
    // Those that are recorded come first.
    assert_eq!(table.insert(uid(0), client(0), 0), full);
    // The limit was larger before, or a place was taken before the record was known.
    assert_eq!(table.insert(uid(3), recorded(3), 0), Ok(()));
    assert_eq!(table.insert(uid(0), client(0), 0), full);
    for number in 1..3 {
        table.remove(&uid(number));
    }
    assert_eq!(table.insert(uid(0), client(0), 0), Ok(()));
}

proptest! {
    /// The indices are those of the clients, whatever arrives.
    #[test]
    fn dhc_1_indices_follow_the_clients(
        steps in proptest::collection::vec((0u8..9, 0u32..4, any::<u16>()), 1..80),
    ) {
        let mut table = Table::new(INTERFACE, 3);
        let mut mono = Duration::ZERO;
        for (step, number, value) in steps {
            let now = at(mono);
            let mut out = Vec::new();
            let key = uid(number);
            match step {
                0 => drop(table.insert(key, client(number), 0)),
                1 => drop(table.remove(&key)),
                2 => drop(table.command(&key, Command::Start, now, &mut out)),
                3 => drop(table.command(&key, Command::Release, now, &mut out)),
                4 => {
                    mono += Duration::from_millis(u64::from(value) * 20);
                    table.wake(at(mono), &mut out);
                }
                5 => {
                    mono = mono.max(table.next_wakeup().unwrap_or(mono));
                    table.wake(at(mono), &mut out);
                }
                _ => {
                    if let Some(xid) = table.client(&key).and_then(Client::xid) {
                        let hardware = Identity::new(&key, None).hardware.0;
                        let kind = [2, 5, 6][usize::from(step - 6)];
                        let frame = reply(kind, xid, hardware, [10, 1, 0, SERVER[3] + 1]);
                        let delivery = table.receive(&frame, Checksum::Verify, now, &mut out);
                        prop_assert_eq!(delivery, Ok(Delivery::Client));
                    }
                }
            }
            let is_probe = |action: &&Action| matches!(action.effect, Effect::Probe(_));
            for action in out.clone().iter().filter(is_probe) {
                table.sent(&action.uid, at(mono), &mut out);
            }
            let wakeups: BTreeSet<_> = table.clients().filter_map(|(uid, c)| Some((c.next_wakeup()?, uid.clone()))).collect();
            prop_assert_eq!(&table.wakeups, &wakeups);
            let waiting = table.clients().filter(|(_, c)| c.xid().is_some()).count();
            prop_assert_eq!(table.replies.0.values().map(Vec::len).sum::<usize>(), waiting);
            let probing = table.clients().filter(|(_, c)| c.probed().is_some()).count();
            prop_assert_eq!(table.probes.0.values().map(Vec::len).sum::<usize>(), probing);
            let claiming = table.clients().filter(|(_, c)| c.claimed().is_some()).count();
            prop_assert_eq!(table.claims.0.values().map(Vec::len).sum::<usize>(), claiming);
            let checked = table.clients().filter_map(|(_, c)| c.probed());
            for address in checked {
                prop_assert_eq!(table.claims.get(&address).len(), 1, "two clients for {}", address);
            }
            prop_assert!(table.next_wakeup().is_none_or(|at| at > mono || step < 4));
        }
    }
}
