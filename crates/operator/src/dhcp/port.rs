//! The task of one interface, with its clients. Owns the order of what a client asks for: frames are sent, what it tells goes to
//! the views and queues its load balancer.
//!
//! While the interface cannot be used, the clients go on: their leases last until they expire, on the clock.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use harvester_lb_core::dhcp::events;
use harvester_lb_core::dhcp::record::LeaseSpec;
use harvester_lb_ipam::dhcp::{
    Action, Checksum, Command, Conflict, Delivery, Effect, Now, Received, TableError, parse,
};
use harvester_lb_ipam::{Owner, Uid};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::dhcp::clients::Clients;
use crate::dhcp::clocks::Clocks;
use crate::dhcp::line::{self, Line, Look};
use crate::dhcp::metrics::event_kind;
use crate::dhcp::order::{Order, PortError, Request, Surroundings};
use crate::dhcp::report;
use crate::dhcp::socket::{self, LONGEST_FRAME};

/// Interval of what no event announces: whether the wall clock was set, whether an interface is back. A second costs a few
/// microseconds, and a clock that was set back delays the correction of the recorded expiry by no more.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Looks between two at the interface's address: a bridge takes another one when a port is added, and nothing says so.
const LOOKS_PER_ADDRESS: u32 = 30;
/// Most frames that are read before the clients' own times are looked at, so that a flood of them does not hold up the renewals. They take
/// milliseconds, and are more than a network that is not flooded has for the process within the seconds that it may be delayed.
const FRAMES_AT_ONCE: usize = 1024;

/// One interface.
pub struct Port {
    line: Line,
    around: Surroundings,
    requests: mpsc::Receiver<Request>,
    clocks: Clocks,
    look_at: Instant,
    looks: u32,
    clients: Clients,
    /// Load balancers whose request failed because the interface was down; queued when it is not any more.
    waiting: BTreeSet<Owner>,
    /// Whether the last new lease was one too many, which is logged once.
    is_full: bool,
    actions: Vec<Action>,
}

impl Port {
    /// A port without a socket.
    pub fn new(interface: String, around: Surroundings, requests: mpsc::Receiver<Request>) -> Self {
        Self {
            clients: Clients::new(around.limit),
            line: Line::new(interface),
            around,
            requests,
            clocks: Clocks::default(),
            look_at: Instant::now() + LOOK_INTERVAL,
            looks: 0,
            waiting: BTreeSet::new(),
            is_full: false,
            actions: Vec::new(),
        }
    }

    /// Runs until the last sender of requests is dropped, or no record names the interface. Nothing is given back then: the next leader
    /// continues (DHC-2).
    pub async fn run(mut self) {
        let mut buffer = vec![0; LONGEST_FRAME];
        loop {
            self.open_if_due();
            let wake = tokio::time::sleep_until(self.wake_at().into());
            let request = tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => Some(request),
                    None => return,
                },
                received = self.line.receive(&mut buffer) => {
                    self.heard(received, &buffer);
                    None
                },
                () = wake => None,
            };
            self.receive_all(&mut buffer);
            if let Some(request) = request {
                self.serve(request);
            }
            if self.look_if_due() && self.is_over() {
                return self.end();
            }
            self.clients
                .table
                .wake(self.clocks.now(), &mut self.actions);
            self.carry_out();
        }
    }

    fn wake_at(&self) -> Instant {
        let client = self.clients.table.next_wakeup();
        let client = client.and_then(|mono| self.clocks.instant(mono));
        let times = [client, self.line.open_at()].into_iter().flatten();
        times.fold(self.look_at, Instant::min)
    }

    /// Frames that are there already. DHC-5: before anybody's time counts as over, or a process that was delayed would take an address for
    /// free whose holder has answered.
    fn receive_all(&mut self, buffer: &mut [u8]) {
        for _ in 0..FRAMES_AT_ONCE {
            let Some(received) = self.line.receive_now(buffer) else {
                return;
            };
            self.heard(received, buffer);
        }
    }

    /// A frame, which begins the buffer, or why there is none.
    fn heard(&mut self, received: io::Result<(usize, Checksum)>, buffer: &[u8]) {
        match received {
            Ok((length, checksum)) => {
                self.received(buffer.get(..length).unwrap_or_default(), checksum);
            }
            Err(error) => self.receive_failed(&error),
        }
    }

    fn received(&mut self, frame: &[u8], checksum: Checksum) {
        let metrics = &self.around.metrics;
        let received = match parse(frame, checksum) {
            Ok(received) => received,
            Err(error) => return metrics.ignored(error.kind()),
        };
        match &received {
            Received::Reply { reply, .. } => metrics.received(reply.kind.kind()),
            Received::Arp(_) => metrics.received("arp"),
            Received::Other => {}
        }
        let now = self.clocks.now();
        let table = &mut self.clients.table;
        if let Received::Arp(arp) = &received
            && let Some(address) = table.checked_by(arp)
            && self.around.index.was_withdrawn(address)
        {
            // DHC-5: the answer of kube-vip says nothing, for a minute: the address was given back, and a DECLINE would keep it from all.
            return table.doubt(address, now, &mut self.actions);
        }
        let delivery = table.deliver(&received, now, &mut self.actions);
        if delivery == Delivery::Unknown {
            metrics.ignored("unknown");
        }
    }

    fn receive_failed(&mut self, error: &io::Error) {
        // ENETDOWN: the interface is down or gone. Anything else is as unexpected, and a new socket may cure it.
        self.around.metrics.socket_errors("receive");
        self.close(error.to_string());
    }

    fn open_if_due(&mut self) {
        match self.line.open_if_due() {
            None => return,
            Some(Ok(())) => {
                self.hardware_is_known();
                for owner in std::mem::take(&mut self.waiting) {
                    self.around.index.queue(owner);
                }
            }
            Some(Err(error)) => {
                self.around.metrics.socket_errors("open");
                self.close(error.to_string());
            }
        }
        let (name, is_open) = (&self.line.interface, self.line.is_open());
        self.around.metrics.interface(name, is_open);
    }

    /// The Ethernet address of the interface is a new one, or may be.
    fn hardware_is_known(&mut self) {
        let (hardware, now) = (self.line.hardware(), self.clocks.now());
        let table = &mut self.clients.table;
        table.set_interface(hardware, now, &mut self.actions);
    }

    /// The interface cannot be used for now.
    fn close(&mut self, fault: String) {
        let now = self.clocks.now();
        self.clients.table.probe_again(now, &mut self.actions);
        if !self.line.close(fault) {
            return;
        }
        self.around.metrics.interface(&self.line.interface, false);
        let draft = events::interface_down(&self.line.interface, self.line.fault());
        for owner in self.clients.owners() {
            self.around.notifier.lasting(owner, &draft);
        }
    }

    /// What no event announces. Whether it also was time to look at the interface.
    fn look_if_due(&mut self) -> bool {
        let at = Instant::now();
        if at < self.look_at {
            return false;
        }
        self.look_at = at + LOOK_INTERVAL;
        let now = self.clocks.now();
        if self.clocks.was_set(now) {
            info!(interface = self.line.interface, "the wall clock was set");
            self.clients.table.clock_was_set(now, &mut self.actions);
        }
        self.looks = self.looks.wrapping_add(1);
        let is_time = self.looks.is_multiple_of(LOOKS_PER_ADDRESS);
        if is_time {
            self.look_at_interface();
        }
        is_time
    }

    /// Whether no record needs the interface any more. Who waits for it does so no longer than its record names it.
    fn is_over(&mut self) -> bool {
        let (index, interface) = (&self.around.index, &self.line.interface);
        self.waiting
            .retain(|owner| index.is_named(interface, Some(&owner.uid)));
        self.clients.table.is_empty() && !index.is_named(interface, None)
    }

    /// The port ends. A request that has come in between is repeated, to another port.
    fn end(mut self) {
        debug!(
            interface = self.line.interface,
            "no lease is on it any more"
        );
        self.around.metrics.no_interface(&self.line.interface);
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            let _ = request.done.send(Err(PortError::Changed));
        }
    }

    fn look_at_interface(&mut self) {
        match self.line.look() {
            Look::AsBefore => {}
            Look::OtherAddress => self.hardware_is_known(),
            Look::Fault(fault) => self.close(fault),
        }
    }

    fn serve(&mut self, request: Request) {
        let result = self.obey(request.order);
        self.carry_out();
        // The caller may have given up.
        let _ = request.done.send(result);
    }

    fn obey(&mut self, order: Order) -> Result<(), PortError> {
        let now = self.clocks.now();
        match order {
            Order::Start(record) => {
                self.ensure_open(&record.owner)?;
                self.start(record, now)
            }
            Order::Stop(uid, seen) => {
                let entry = self.clients.entry(&uid, &self.line.interface);
                if entry.is_some_and(|entry| entry.view != seen) {
                    return Err(PortError::Changed);
                }
                self.remove(&uid);
                Ok(())
            }
            Order::Release(record) => {
                self.ensure_open(&record.owner)?;
                self.release(&record, now)
            }
            Order::Decline(uid, address, conflict) => {
                let command = Command::Held(address, conflict);
                self.clients
                    .table
                    .command(&uid, command, now, &mut self.actions);
                Ok(())
            }
        }
    }

    fn ensure_open(&mut self, owner: &Owner) -> Result<(), PortError> {
        if self.line.is_open() {
            return Ok(());
        }
        self.waiting.insert(owner.clone());
        let interface = self.line.interface.clone();
        if self.line.is_missing() {
            return Err(PortError::Missing(interface));
        }
        let fault = self.line.fault().to_owned();
        Err(PortError::Down(interface, fault))
    }

    fn start(&mut self, record: LeaseSpec, now: Now) -> Result<(), PortError> {
        let uid = record.owner.uid.clone();
        let has_client = |uid: &Uid| self.clients.table.client(uid).is_some();
        let index = &self.around.index;
        let reserved = match record.phase.lease() {
            Some(_) => 0,
            None => index.leases_without(&self.line.interface, has_client),
        };
        let is_new = record.phase.lease().is_none();
        match self.clients.insert(record, reserved, now) {
            Ok(()) => self.is_full &= !is_new,
            Err(TableError::Full(limit)) => {
                if !std::mem::replace(&mut self.is_full, true) {
                    warn!(
                        interface = self.line.interface,
                        limit, "no further lease is asked for: there are as many as allowed"
                    );
                }
                return Err(PortError::Full(self.line.interface.clone(), limit));
            }
            Err(TableError::Present(_)) => return Err(PortError::Changed),
        }
        debug!(interface = self.line.interface, %uid, "client started");
        self.clients
            .table
            .command(&uid, Command::Start, now, &mut self.actions);
        self.tell(&uid);
        Ok(())
    }

    /// Gives the lease of a record back. Its client is removed.
    fn release(&mut self, record: &LeaseSpec, now: Now) -> Result<(), PortError> {
        let uid = &record.owner.uid;
        let actions = self.clients.release(record, self.line.hardware(), now);
        self.remove(uid);
        let (mut frames, mut sent, mut events) = (0, true, Vec::new());
        for Action { effect, .. } in actions {
            match effect {
                Effect::Frame { kind, bytes } => {
                    frames += 1;
                    sent &= self.send(kind, &bytes);
                }
                Effect::Event(event) => events.push(event_kind(&event)),
                _ => {}
            }
        }
        if !sent {
            self.ensure_open(&record.owner)?;
            return Err(PortError::Unsent(self.line.interface.clone()));
        }
        if frames == 0 {
            return Err(PortError::Over);
        }
        for event in events {
            self.around.metrics.lease_event(event);
        }
        Ok(())
    }

    fn remove(&mut self, uid: &Uid) {
        self.clients.remove(uid);
        self.around.index.views.remove(uid);
    }

    /// What the clients ask for, in their order.
    fn carry_out(&mut self) {
        let mut told = BTreeSet::new();
        let mut actions = VecDeque::from(std::mem::take(&mut self.actions));
        while let Some(Action { uid, effect }) = actions.pop_front() {
            match effect {
                Effect::Frame { kind, bytes } => {
                    self.send(kind, &bytes);
                }
                Effect::Probe(address) => {
                    self.probe(&uid, address);
                    actions.extend(self.actions.drain(..));
                }
                Effect::Record(_) | Effect::State => {}
                Effect::Lost { loss, .. } => self.clients.lost(&uid, loss),
                Effect::Event(event) => {
                    report::event(&self.around, &mut self.clients, &uid, &event);
                }
                Effect::Ignored(ignored) => {
                    self.around.metrics.ignored(ignored.kind());
                    continue;
                }
            }
            told.insert(uid);
        }
        for uid in &told {
            self.tell(uid);
        }
    }

    /// DHC-5: an address counts as free only if a probe was sent from the address that the interface has now. One that was not sent is
    /// repeated. None is sent if the answer would not say what it asks.
    fn probe(&mut self, uid: &Uid, address: Ipv4Addr) {
        let index = &self.around.index;
        let holder = index.holder(uid, address);
        let owner = self.clients.owner(uid);
        let is_own = || owner.is_some_and(|owner| index.is_announced_for(&owner.id, address));
        let answer = match holder.map(|holder| holder.conflict()) {
            // A REQUEST or a DECLINE would end its lease. It may be silent, and if it answers the probe, kube-vip does.
            Some(Conflict::Twin) => Some(Command::Held(address, Conflict::Twin)),
            // The binding would be declined at once, and the pauses between declined ones would not grow.
            Some(_) => None,
            None => is_own().then_some(Command::Own(address)),
        };
        if let Some(command) = answer {
            let now = self.clocks.now();
            let table = &mut self.clients.table;
            table.command(uid, command, now, &mut self.actions);
            return;
        }
        self.look_at_interface();
        let frame = self.clients.table.probe(address);
        let is_sent = self.send("arp_probe", &frame);
        let now = self.clocks.now();
        let table = &mut self.clients.table;
        if !is_sent {
            return table.unsent(uid, now, &mut self.actions);
        }
        table.sent(uid, now, &mut self.actions);
        if let Some(own) = socket::own_hardware(address) {
            table.in_use(address, own, now, &mut self.actions);
        }
    }

    /// Whether a frame was sent.
    fn send(&mut self, kind: &'static str, frame: &[u8]) -> bool {
        // A process that was paused may have lost the Lease: another one has these clients now.
        let sent = if self.around.notifier.is_leader() {
            match self.line.send(frame) {
                None => Err("interface_down"),
                Some(Ok(())) => Ok(()),
                Some(Err(error)) => {
                    debug!(interface = self.line.interface, kind, %error, "not sent");
                    if line::is_down(&error) {
                        self.close(error.to_string());
                    }
                    Err("send")
                }
            }
        } else {
            Err("not_leader")
        };
        match sent {
            Ok(()) => self.around.metrics.sent(kind),
            Err(why) => self.around.metrics.socket_errors(why),
        }
        sent.is_ok()
    }

    /// Tells what a client is like now.
    fn tell(&self, uid: &Uid) {
        let Some(entry) = self.clients.entry(uid, &self.line.interface) else {
            return;
        };
        let owner = entry.owner.clone();
        if self.around.index.views.set(entry) {
            self.around.index.queue(owner);
        }
    }
}

#[cfg(test)]
pub(in crate::dhcp) mod tests;
