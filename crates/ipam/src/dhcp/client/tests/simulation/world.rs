//! The client, its servers and the network between them; each event is checked.

use std::collections::BTreeMap;

use super::super::*;
use super::server::{POOL, Server};
use super::step::Step;

#[derive(Clone, Debug)]
enum Packet {
    ToServers(ClientMessage),
    ToClient(Reply),
    Answer(Ipv4Addr, HardwareAddress),
}

/// Whether the address of an ACK is being probed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probing {
    No,
    /// No probe was sent whose answer could arrive.
    Unsent,
    Since(Duration),
}

pub(super) struct World {
    pub(super) client: Client,
    /// What the record holds: the operator serves it until its expiry.
    record: Option<Lease>,
    mono: Duration,
    ahead: i64,
    pub(super) servers: [Server; 2],
    pub(super) hosts: [Option<HardwareAddress>; POOL as usize],
    pub(super) network: (u8, u8, u16),
    packets: BTreeMap<(Duration, u64), Packet>,
    number: u64,
    random: Random,
    replies: Vec<Reply>,
    /// Times of DISCOVERs and of REQUESTs without and with a server, until something resets them.
    discovers: Vec<Duration>,
    confirms: Vec<Duration>,
    selects: Vec<Duration>,
    /// REQUESTs without a server since the last answer to one, or since the lease or the process began.
    asked: u32,
    /// The transaction of the last DISCOVER.
    discovered: u32,
    /// The servers know at least the lease that the record shows: nothing was forgotten, forged, or misdated.
    is_sound: bool,
    /// Replies were forged: a lease may be one that no server knows of.
    is_forged: bool,
    is_link_up: bool,
    probing: Probing,
    /// No fault since the lease began that may cost the address.
    pub(super) keeps: Option<Ipv4Addr>,
    /// What kube-vip still announces for the load balancer: the address that it had last.
    announced: Option<Ipv4Addr>,
}

impl World {
    /// Of a client whose hardware address was chosen, with every other seed.
    pub(super) fn new(seed: u64) -> Self {
        let identity = if seed.is_multiple_of(2) {
            identity()
        } else {
            chosen()
        };
        let mut world = Self {
            client: Client::new(identity, None, None, seed, at(secs(1000), 0)),
            record: None,
            mono: secs(1000),
            ahead: 0,
            servers: [Server::new(SERVER, 0), Server::new(SECOND, 100)],
            hosts: [None; POOL as usize],
            network: (0, 0, 0),
            packets: BTreeMap::new(),
            number: 0,
            random: Random::new(seed ^ 1),
            replies: Vec::new(),
            discovers: Vec::new(),
            confirms: Vec::new(),
            selects: Vec::new(),
            asked: 0,
            discovered: 0,
            is_sound: true,
            is_forged: false,
            is_link_up: true,
            probing: Probing::No,
            keeps: None,
            announced: None,
        };
        world.servers[1].is_up = false;
        world.input(Input::Start);
        world
    }

    /// With a lease of an hour, which its server keeps.
    pub(super) fn leased(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.servers[0].lease_time = 3_600;
        world.pass(secs(10));
        world.keeps = world.client.lease().map(|lease| lease.address);
        assert!(world.keeps.is_some());
        world
    }

    fn now(&self) -> Now {
        at(self.mono, self.ahead)
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.bits() % 100 < percent.into()
    }

    fn post(&mut self, packet: &Packet) {
        let (loss, double, delay) = self.network;
        let copies = usize::from(!self.chance(loss)) + usize::from(self.chance(double));
        for _ in 0..copies {
            let delay = self.random.up_to(Duration::from_millis(delay.into()));
            self.number += 1;
            let at = self.mono + delay + Duration::from_millis(1);
            self.packets.insert((at, self.number), packet.clone());
        }
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.client.handle(input, self.now(), &mut out);
        for output in out {
            self.output(&output);
        }
        self.check();
    }

    fn output(&mut self, output: &Output) {
        match output {
            Output::Send { message, .. } => {
                self.count(message);
                match message.body {
                    // What was offered is probed anew once it is acknowledged.
                    Body::Discover { .. } | Body::Select { .. } => self.probing = Probing::No,
                    Body::Confirm { .. } => self.asked += 1,
                    _ => {}
                }
                if self.is_link_up {
                    self.post(&Packet::ToServers(*message));
                }
            }
            Output::Probe(address) => {
                // A repeated one says nothing new of what the servers know.
                if self.probing == Probing::No {
                    self.is_sound = !self.is_forged;
                }
                if self.announced == Some(*address) {
                    self.probing = Probing::No;
                    self.input(Input::Own(*address));
                    return;
                }
                if !self.is_link_up {
                    self.probing = Probing::Unsent;
                    self.input(Input::Unsent);
                    return;
                }
                self.probing = Probing::Since(self.mono);
                self.input(Input::Sent);
                let [.., last] = address.octets();
                if let Some(Some(host)) = self.hosts.get(usize::from(last)) {
                    let answer = Packet::Answer(*address, *host);
                    self.post(&answer);
                }
            }
            Output::Record(lease) => {
                if let Some(record) = self.record {
                    assert_eq!(record.address, lease.address, "two addresses at once");
                }
                if let Some(address) = self.keeps {
                    assert_eq!(address, lease.address, "the server had kept the address");
                }
                self.record = Some(*lease);
                self.confirms.clear();
                self.discovers.clear();
            }
            Output::Lost { address, loss } => {
                let record = self.record.take().expect("nothing to lose");
                assert_eq!(record.address, *address);
                self.announced = (*loss != Loss::Conflict).then_some(*address);
                self.asked = 0;
                self.discovers.clear();
                self.selects.clear();
                if *loss != Loss::Nak && *loss != Loss::Conflict {
                    return;
                }
                self.is_sound = false;
                self.keeps = None;
            }
            Output::Event(Event::Bound(_)) => {
                match self.probing {
                    Probing::No => self.is_sound |= !self.is_forged,
                    Probing::Unsent => panic!("bound without a probe"),
                    Probing::Since(at) => assert!(self.mono >= at + secs(1), "no time to answer"),
                }
                self.probing = Probing::No;
            }
            Output::Event(Event::Declined { .. }) => {
                self.probing = Probing::No;
                self.keeps = None;
                self.announced = None;
            }
            Output::Event(Event::Renewed(_)) => self.asked = 0,
            Output::Event(Event::RenewalUnanswered) => {
                assert!(self.asked > 0, "nothing was asked");
                let state = self.client.state();
                let is_renewal = matches!(state, StateName::Renewing | StateName::Rebinding);
                assert!(is_renewal && self.record.is_some(), "{state:?}");
            }
            Output::Event(_) | Output::Ignored(_) => {}
        }
    }

    /// RFC 2131, 4.1: never faster than the back-off.
    fn count(&mut self, message: &ClientMessage) {
        // A new transaction begins with a DISCOVER, which keeps its distance to the last one. The REQUEST in it may come soon after
        // that of the last transaction: a short lease may be over before its address is checked.
        if matches!(message.body, Body::Discover { .. }) && self.discovered != message.xid {
            self.selects.clear();
            self.discovered = message.xid;
        }
        let (times, apart, least) = match message.body {
            Body::Discover { .. } => (&mut self.discovers, 1, secs(3)),
            Body::Select { .. } => (&mut self.selects, 1, secs(3)),
            // T2 may follow a renewal immediately.
            Body::Confirm { .. } => (&mut self.confirms, 2, secs(3)),
            _ => return,
        };
        times.push(self.mono);
        if let Some(before) = times.len().checked_sub(apart + 1) {
            assert!(
                self.mono.abs_diff(times[before]) >= least,
                "{:?}: {times:?}",
                message.body
            );
        }
    }

    /// What holds at any time.
    fn check(&self) {
        let lease = self.client.lease();
        if self.client.state() != StateName::Stopped {
            assert_eq!(
                lease,
                self.record.as_ref(),
                "the record is what the client holds"
            );
            let wakeup = self.client.next_wakeup();
            let is_endless = lease.is_some_and(|lease| lease.times.is_none());
            match wakeup {
                None => assert!(is_endless && self.client.state() == StateName::Bound),
                Some(wakeup) => {
                    assert!(
                        wakeup > self.mono,
                        "{wakeup:?} at {:?}: {:?}",
                        self.mono,
                        self.client
                    );
                    let may_wait = matches!(
                        self.client.state(),
                        StateName::Bound | StateName::Renewing | StateName::Rebinding
                    );
                    assert!(
                        may_wait || wakeup <= self.mono + secs(65),
                        "an unanswered client waits"
                    );
                }
            }
        }
        if let Some(lease) = lease {
            assert!(
                !lease.is_expired(self.now().wall),
                "served after the recorded expiry"
            );
            if self.is_sound {
                let knows = |server: &Server| server.has(lease.address, self.mono);
                assert!(
                    self.servers.iter().any(knows),
                    "served without a lease of a server"
                );
            }
        }
    }

    fn deliver(&mut self, packet: Packet) {
        match packet {
            Packet::ToServers(message) => {
                for which in 0..self.servers.len() {
                    if let Some(reply) = self.servers[which].handle(&message, self.mono) {
                        self.replies.push(reply.clone());
                        self.post(&Packet::ToClient(reply));
                    }
                }
            }
            Packet::ToClient(_) | Packet::Answer(..) if !self.is_link_up => {}
            Packet::ToClient(reply) => {
                let reply = &reply;
                self.input(Input::Reply {
                    reply,
                    source: SOURCE,
                });
            }
            Packet::Answer(address, host) => self.input(Input::InUse(address, host)),
        }
    }

    /// Time passes: packets arrive, and the client wakes up.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.mono + span;
        loop {
            let packet = self.packets.keys().next().map(|(at, _)| *at);
            let next = packet.into_iter().chain(self.client.next_wakeup()).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.mono = self.mono.max(next);
            if packet == Some(next) {
                let (_, packet) = self.packets.pop_first().unwrap();
                self.deliver(packet);
            } else {
                self.input(Input::Time);
            }
        }
        self.mono = end;
    }

    fn restart(&mut self, down: Duration) {
        // Packets to a dead process are lost.
        let end = self.mono + down;
        while let Some(entry) = self
            .packets
            .first_entry()
            .filter(|entry| entry.key().0 <= end)
        {
            self.mono = self.mono.max(entry.key().0);
            if let packet @ Packet::ToServers(_) = entry.remove() {
                self.deliver(packet);
            }
        }
        self.mono = end;
        // DHC-3: the operator does not need the client for that.
        let seed = self.random.bits();
        let identity = *self.client.identity();
        self.client = Client::new(identity, self.record, None, seed, self.now());
        self.asked = 0;
        self.probing = Probing::No;
        for times in [&mut self.discovers, &mut self.confirms, &mut self.selects] {
            times.clear();
        }
        self.input(Input::Start);
    }

    pub(super) fn step(&mut self, step: &Step) {
        match *step {
            Step::Pass(millis) => self.pass(Duration::from_millis(millis.into())),
            Step::Network(loss, double, delay) => self.network = (loss, double, delay),
            Step::Server(which, up) => self.servers[usize::from(which)].is_up = up,
            Step::Forget(which) => {
                let server = &mut self.servers[usize::from(which)];
                server.lease = None;
                server.offer = None;
                // What it sent before is lost too.
                self.replies.clear();
                self.packets
                    .retain(|_, packet| !matches!(packet, Packet::ToClient(_)));
                self.is_sound = false;
                self.keeps = None;
            }
            Step::LeaseTime(which, time) => self.servers[usize::from(which)].lease_time = time,
            Step::SetClock(by, is_told) => {
                self.ahead += i64::from(by);
                // Set back while nobody looks: the record then lasts too long.
                self.is_sound &= is_told || by >= 0;
                if is_told || by > 0 {
                    self.input(Input::Time);
                }
            }
            Step::Restart(down) => self.restart(secs(down.into())),
            Step::Host(host, there) => {
                let twin = self.client.identity().hardware;
                let hardware = there.map(|is_twin| if is_twin { twin } else { HOST });
                self.hosts[usize::from(host)] = hardware;
            }
            Step::Link(is_up) => {
                self.is_link_up = is_up;
                if self.probing != Probing::No {
                    self.probing = Probing::Unsent;
                }
                self.input(Input::Unsent);
            }
            Step::Held(conflict) => {
                if let Some(lease) = self.record {
                    self.input(Input::Held(lease.address, conflict));
                }
            }
            Step::Release => self.release(),
            Step::Replay(ref index) => {
                if !self.replies.is_empty() {
                    let reply = index.get(&self.replies).clone();
                    self.deliver(Packet::ToClient(reply));
                }
            }
            Step::Forged(kind, last, lease) => {
                if let Some(xid) = self.client.xid() {
                    self.is_sound = false;
                    self.is_forged = true;
                    self.keeps = None;
                    let mut reply =
                        Bench::bound().answer(kind, SERVER, [10, 0, 0, last].into(), 60);
                    reply.xid = xid;
                    reply.hardware = self.client.identity().hardware;
                    reply.lease = lease;
                    self.deliver(Packet::ToClient(reply));
                }
            }
        }
    }

    /// DHC-4: afterwards no server has a lease, if the RELEASE arrives; the load balancer's successor starts anew.
    fn release(&mut self) {
        let holder = self
            .client
            .lease()
            .map(|lease| (lease.server, lease.address));
        let network = std::mem::take(&mut self.network);
        let is_link_up = std::mem::replace(&mut self.is_link_up, true);
        // A REQUEST that arrives after the RELEASE would be answered with a lease.
        self.packets.clear();
        self.input(Input::Release);
        assert_eq!(self.client.lease(), None);
        self.record = None;
        self.keeps = None;
        let up = self.servers.each_ref().map(|server| server.is_up);
        self.pass(secs(7));
        if let Some((server, address)) = holder {
            for (which, is_up) in up.into_iter().enumerate() {
                let of = &self.servers[which];
                assert!(of.id != server || !is_up || !of.has(address, self.mono));
            }
        }
        self.network = network;
        self.is_link_up = is_link_up;
        self.restart(secs(0));
    }
}
