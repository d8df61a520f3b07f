//! The task of one interface: its socket and its clients. Owns when the socket is opened again, and the order of what a client
//! asks for: frames are sent, what it tells goes to the views and queues its load balancer.
//!
//! An interface that is missing or down is tried again with a capped back-off. Meanwhile the clients go on: their leases last
//! until they expire, on the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_controller_kit::backoff::Backoff;
use harvester_lb_core::dhcp::events;
use harvester_lb_core::dhcp::record::LeaseSpec;
use harvester_lb_core::dhcp::upkeep::ClientView;
use harvester_lb_core::event_draft::EventDraft;
use harvester_lb_ipam::dhcp::{
    Action, Checksum, Client, Command, Delivery, Effect, Event, HardwareAddress, Identity, Loss,
    Now, Received, StateName, Table, TableError, parse,
};
use harvester_lb_ipam::{Owner, Uid};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, info, warn};

use crate::dhcp::clocks::Clocks;
use crate::dhcp::index::Index;
use crate::dhcp::metrics::Metrics;
use crate::dhcp::socket::{self, LONGEST_FRAME, PacketSocket};
use crate::dhcp::views::Entry;

/// Interval of what no event announces: whether the wall clock was set, whether an interface is back. A second costs a few
/// microseconds, and a clock that was set back delays the correction of the recorded expiry by no more.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Looks between two at the interface's address: a bridge takes another one when a port is added, and nothing says so.
const LOOKS_PER_ADDRESS: u32 = 30;
/// Pauses between attempts to open an interface. The cap is short: its leases may expire meanwhile.
const REOPEN: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(10),
};
/// Most frames that are read before the clients' own times are looked at.
const FRAMES_AT_ONCE: usize = 64;

/// What a port needs of its surroundings.
#[derive(Clone)]
pub struct Surroundings {
    /// Views and queue.
    pub index: Arc<Index>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Publishes Events.
    pub notifier: Arc<dyn Notify>,
    /// Largest number of clients.
    pub limit: usize,
}

/// What a port asks of the process.
pub trait Notify: Send + Sync {
    /// Whether this process may send: only the leader may (DHC-2).
    fn is_leader(&self) -> bool;
    /// Publishes an Event about a load balancer.
    fn publish(&self, owner: &Owner, draft: &EventDraft);
}

/// Why a request to a port failed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PortError {
    /// The interface cannot be used; the port reports when it can.
    #[error("interface {0} cannot be used: {1}")]
    Down(String, String),
    /// It has as many clients as allowed.
    #[error("interface {0} has {1} clients, which is the limit")]
    Full(String, usize),
    /// The client is not as the caller believes.
    #[error("the client has changed meanwhile")]
    Changed,
    /// The task has ended, with the term.
    #[error("the term is over")]
    Ended,
}

/// A request to a port, and where its result goes.
pub struct Request {
    /// What to do.
    pub order: Order,
    /// Receives the result.
    pub done: oneshot::Sender<Result<(), PortError>>,
}

/// What a port is to do.
#[derive(Debug)]
pub enum Order {
    /// Start the client of a record (DHC-1, DHC-2).
    Start(LeaseSpec),
    /// Remove a client without a RELEASE, if it still is as it was seen.
    Stop(Uid, ClientView),
    /// Give the lease of a record back, and remove its client (DHC-4, DHC-6).
    Release(LeaseSpec),
    /// A pool has the address of a client (DHC-5).
    Decline(Uid, Ipv4Addr),
}

/// One interface.
pub struct Port {
    interface: String,
    around: Surroundings,
    requests: mpsc::Receiver<Request>,
    clocks: Clocks,
    socket: Option<PacketSocket>,
    /// Why there is no socket.
    fault: String,
    failures: u32,
    open_at: Instant,
    look_at: Instant,
    looks: u32,
    hardware: HardwareAddress,
    table: Table,
    owners: BTreeMap<Uid, Told>,
    /// Load balancers whose request failed because the interface was down; queued when it is not any more.
    waiting: BTreeSet<Owner>,
    actions: Vec<Action>,
}

/// What a client has told that its state does not show.
struct Told {
    owner: Owner,
    loss: Option<Loss>,
    declined: Option<Ipv4Addr>,
}

impl Port {
    /// A port without a socket.
    pub fn new(interface: String, around: Surroundings, requests: mpsc::Receiver<Request>) -> Self {
        let now = Instant::now();
        Self {
            table: Table::new(HardwareAddress::ZERO, around.limit),
            interface,
            around,
            requests,
            clocks: Clocks::default(),
            socket: None,
            fault: String::new(),
            failures: 0,
            open_at: now,
            look_at: now + LOOK_INTERVAL,
            looks: 0,
            hardware: HardwareAddress::ZERO,
            owners: BTreeMap::new(),
            waiting: BTreeSet::new(),
            actions: Vec::new(),
        }
    }

    /// Runs until the last sender of requests is dropped. Nothing is given back then: the next leader continues (DHC-2).
    pub async fn run(mut self) {
        let mut buffer = vec![0; LONGEST_FRAME];
        loop {
            self.open_if_due();
            let wake = tokio::time::sleep_until(self.wake_at().into());
            tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => self.serve(request),
                    None => return,
                },
                received = receive(self.socket.as_ref(), &mut buffer) => match received {
                    Ok((length, checksum)) => {
                        self.received(buffer.get(..length).unwrap_or_default(), checksum);
                        self.receive_more(&mut buffer).await;
                    }
                    Err(error) => self.receive_failed(&error),
                },
                () = wake => {}
            }
            self.look_if_due();
            self.table.wake(self.clocks.now(), &mut self.actions);
            self.carry_out();
        }
    }

    fn wake_at(&self) -> Instant {
        let client = self.table.next_wakeup();
        let client = client.and_then(|mono| self.clocks.instant(mono));
        let open = self.socket.is_none().then_some(self.open_at);
        let times = [client, open].into_iter().flatten();
        times.fold(self.look_at, Instant::min)
    }

    /// Frames that are there already, without a look at the requests for each.
    async fn receive_more(&mut self, buffer: &mut [u8]) {
        for _ in 0..FRAMES_AT_ONCE {
            let received = tokio::select! {
                biased;
                received = receive(self.socket.as_ref(), buffer) => received,
                () = std::future::ready(()) => return,
            };
            match received {
                Ok((length, checksum)) => {
                    self.received(buffer.get(..length).unwrap_or_default(), checksum);
                }
                Err(error) => return self.receive_failed(&error),
            }
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
        let delivery = self.table.deliver(&received, now, &mut self.actions);
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
        if self.socket.is_some() || Instant::now() < self.open_at {
            return;
        }
        let opened = socket::find(&self.interface)
            .and_then(|link| PacketSocket::open(&link).map(|socket| (link, socket)));
        match opened {
            Ok((link, socket)) => {
                info!(interface = self.interface, address = %link.hardware, "interface opened");
                self.hardware = link.hardware;
                self.table.set_interface(link.hardware);
                self.socket = Some(socket);
                self.failures = 0;
                self.fault.clear();
                for owner in std::mem::take(&mut self.waiting) {
                    self.around.index.queue(owner);
                }
            }
            Err(error) => {
                self.around.metrics.socket_errors("open");
                self.close(error.to_string());
            }
        }
        self.around
            .metrics
            .interface(&self.interface, self.socket.is_some());
    }

    /// The interface cannot be used for now.
    fn close(&mut self, fault: String) {
        self.socket = None;
        self.failures = self.failures.saturating_add(1);
        self.open_at = Instant::now() + REOPEN.delay(self.failures, fastrand::f64());
        if self.fault == fault {
            return;
        }
        warn!(
            interface = self.interface,
            error = fault,
            "interface cannot be used, will retry"
        );
        self.fault = fault;
        self.around.metrics.interface(&self.interface, false);
        let draft = events::interface_down(&self.interface, &self.fault);
        for told in self.owners.values() {
            self.around.notifier.publish(&told.owner, &draft);
        }
    }

    /// What no event announces.
    fn look_if_due(&mut self) {
        let at = Instant::now();
        if at < self.look_at {
            return;
        }
        self.look_at = at + LOOK_INTERVAL;
        let now = self.clocks.now();
        if self.clocks.was_set(now) {
            info!(interface = self.interface, "the wall clock was set");
            self.table.clock_was_set(now, &mut self.actions);
        }
        self.looks = self.looks.wrapping_add(1);
        if self.socket.is_some() && self.looks.is_multiple_of(LOOKS_PER_ADDRESS) {
            match socket::find(&self.interface) {
                Ok(link) if link.hardware == self.hardware => {}
                // Another interface may have the name by now.
                Ok(_) => self.close("its address has changed".to_owned()),
                Err(error) => self.close(error.to_string()),
            }
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
                if self.view(&uid).is_some_and(|view| view != seen) {
                    return Err(PortError::Changed);
                }
                self.remove(&uid);
                Ok(())
            }
            Order::Release(record) => {
                self.ensure_open(&record.owner)?;
                self.release(&record, now)
            }
            Order::Decline(uid, address) => {
                let command = Command::HeldByPool(address);
                self.table.command(&uid, command, now, &mut self.actions);
                Ok(())
            }
        }
    }

    fn ensure_open(&mut self, owner: &Owner) -> Result<(), PortError> {
        if self.socket.is_some() {
            return Ok(());
        }
        self.waiting.insert(owner.clone());
        Err(PortError::Down(self.interface.clone(), self.fault.clone()))
    }

    fn start(&mut self, record: LeaseSpec, now: Now) -> Result<(), PortError> {
        let client = client_of(&record, now);
        let owner = record.owner;
        let uid = owner.uid.clone();
        match self.table.insert(uid.clone(), client) {
            Ok(()) => {}
            Err(TableError::Full(limit)) => {
                return Err(PortError::Full(self.interface.clone(), limit));
            }
            Err(TableError::Present(_)) => return Err(PortError::Changed),
        }
        debug!(interface = self.interface, %uid, "client started");
        let told = Told {
            owner,
            loss: None,
            declined: None,
        };
        self.owners.insert(uid.clone(), told);
        self.table
            .command(&uid, Command::Start, now, &mut self.actions);
        self.tell(&uid);
        Ok(())
    }

    /// Gives the lease of a record back. Its client is removed; without one, one is made for this message alone.
    fn release(&mut self, record: &LeaseSpec, now: Now) -> Result<(), PortError> {
        let uid = &record.owner.uid;
        let mut actions = Vec::new();
        if !self.table.command(uid, Command::Release, now, &mut actions) {
            let mut table = Table::new(self.hardware, 1);
            if table.insert(uid.clone(), client_of(record, now)).is_ok() {
                table.command(uid, Command::Release, now, &mut actions);
            }
        }
        self.remove(uid);
        let mut sent = true;
        for Action { effect, .. } in actions {
            match effect {
                Effect::Frame { kind, bytes } => sent &= self.send(kind, &bytes),
                Effect::Event(event) => self.around.metrics.lease_event(event_kind(&event)),
                _ => {}
            }
        }
        if sent {
            Ok(())
        } else {
            self.waiting.insert(record.owner.clone());
            let why = "a message was not sent".to_owned();
            Err(PortError::Down(self.interface.clone(), why))
        }
    }

    fn remove(&mut self, uid: &Uid) {
        self.table.remove(uid);
        self.owners.remove(uid);
        self.around.index.views.remove(uid);
    }

    /// What the clients ask for, in their order.
    fn carry_out(&mut self) {
        let mut told = BTreeSet::new();
        for Action { uid, effect } in std::mem::take(&mut self.actions) {
            match effect {
                Effect::Frame { kind, bytes } => {
                    self.send(kind, &bytes);
                }
                Effect::Record(_) => {}
                Effect::Lost { loss, .. } => {
                    if let Some(client) = self.owners.get_mut(&uid) {
                        client.loss = Some(loss);
                    }
                }
                Effect::Event(event) => self.event(&uid, &event),
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

    fn event(&mut self, uid: &Uid, event: &Event) {
        self.around.metrics.lease_event(event_kind(event));
        let Some(client) = self.owners.get_mut(uid) else {
            return;
        };
        if let Event::Declined { address, .. } = event {
            client.declined = Some(*address);
        }
        // As it was before this input.
        let view = self.around.index.views.get(uid);
        let has_lease = view.is_some_and(|view| view.lease.is_some());
        if let Some(draft) = events::of_client(event, has_lease) {
            self.around.notifier.publish(&client.owner, &draft);
        }
    }

    /// Whether a frame was sent.
    fn send(&mut self, kind: &'static str, frame: &[u8]) -> bool {
        let sent = match &self.socket {
            // A process that was paused may have lost the Lease: another one has these clients now.
            _ if !self.around.notifier.is_leader() => Err("not_leader"),
            None => Err("interface_down"),
            Some(socket) => match socket.send(frame) {
                Ok(()) => Ok(()),
                Err(error) => {
                    debug!(interface = self.interface, kind, %error, "not sent");
                    let is_down = matches!(
                        error.raw_os_error(),
                        Some(nix::libc::ENETDOWN | nix::libc::ENXIO | nix::libc::ENODEV)
                    );
                    if is_down {
                        self.close(error.to_string());
                    }
                    Err("send")
                }
            },
        };
        match sent {
            Ok(()) => self.around.metrics.sent(kind),
            Err(why) => self.around.metrics.socket_errors(why),
        }
        sent.is_ok()
    }

    fn view(&self, uid: &Uid) -> Option<ClientView> {
        let (client, told) = (self.table.client(uid)?, self.owners.get(uid)?);
        let asking = [StateName::Requesting, StateName::Checking];
        Some(ClientView {
            interface: self.interface.clone(),
            hardware: client.identity().hardware,
            lease: client.lease().copied(),
            is_asking: asking.contains(&client.state()),
            loss: told.loss,
            declined: told.declined,
        })
    }

    /// Tells what a client is like now.
    fn tell(&self, uid: &Uid) {
        let (Some(view), Some(told), Some(client)) =
            (self.view(uid), self.owners.get(uid), self.table.client(uid))
        else {
            return;
        };
        let owner = told.owner.clone();
        let entry = Entry {
            owner: owner.clone(),
            view,
            state: client.state(),
        };
        if self.around.index.views.set(entry) {
            self.around.index.queue(owner);
        }
    }
}

/// The client of a record, not started.
fn client_of(record: &LeaseSpec, now: Now) -> Client {
    let identity = Identity::new(&record.owner.uid, Some(record.hardware));
    let lease = record.phase.lease().copied();
    Client::new(identity, lease, record.wanted, fastrand::u64(..), now)
}

/// Waits for a frame; for ever if there is no socket.
async fn receive(
    socket: Option<&PacketSocket>,
    buffer: &mut [u8],
) -> io::Result<(usize, Checksum)> {
    match socket {
        Some(socket) => socket.receive(buffer).await,
        None => std::future::pending().await,
    }
}

/// The value of a metric's label.
const fn event_kind(event: &Event) -> &'static str {
    match event {
        Event::Unanswered => "unanswered",
        Event::Bound(_) => "bound",
        Event::Renewed(_) => "renewed",
        Event::Refused { .. } => "refused",
        Event::Expired(_) => "expired",
        Event::Declined { .. } => "declined",
        Event::Released(_) => "released",
    }
}
