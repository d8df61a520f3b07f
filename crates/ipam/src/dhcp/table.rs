//! The clients of one interface. Owns who a received frame is for, whose wake-up is due, and the bytes of what they send.
//!
//! A lease in steady state costs one entry in an ordered set of wake-ups, and three messages per renewal; a frame for
//! nobody costs one lookup. The number of clients is bounded, by the limit or by the recorded leases, and everything else by it:
//! no queue grows with the traffic.

mod index;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use thiserror::Error;

use self::index::Index;
use super::arp::Arp;
use super::client::Client;
use super::clock::Now;
use super::frame::{self, Checksum, FrameError, Received, arp_frame, client_frame};
use super::identity::HardwareAddress;
use super::ignored::Ignored;
use super::lease::Lease;
use super::message::Reply;
use super::output::{Conflict, Event, Input, Loss, Output};
use crate::types::Uid;

/// Something to do for a load balancer, in the order in which the table returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The load balancer.
    pub uid: Uid,
    /// What to do.
    pub effect: Effect,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this Ethernet frame.
    Frame {
        /// What it is: the value of a metric's label.
        kind: &'static str,
        /// The frame.
        bytes: Vec<u8>,
    },
    /// Send an ARP probe for this address (DHC-5), unless kube-vip announces it for this load balancer ([`Command::Own`]): the frame is
    /// that of [`Table::probe`]. Once it is sent, call [`Table::sent`], or else [`Table::unsent`]. The host does not answer its own: if it has the address
    /// itself, call [`Table::in_use`].
    Probe(Ipv4Addr),
    /// Write this lease into the record (DHC-1).
    Record(Lease),
    /// Remove the lease from the record (DHC-3).
    Lost {
        /// The address.
        address: Ipv4Addr,
        /// Why.
        loss: Loss,
    },
    /// Create an Event, and count it.
    Event(Event),
    /// Count an ignored reply.
    Ignored(Ignored),
    /// Nothing: its state is another one, which no other effect of it says.
    State,
}

/// A command to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin: see [`Input::Start`].
    Start,
    /// Give the lease back and stop: see [`Input::Release`]. Then [`Table::remove`] it.
    Release,
    /// kube-vip announces this address for the load balancer itself: see [`Input::Own`].
    Own(Ipv4Addr),
    /// Somebody else has this address: see [`Input::Held`].
    Held(Ipv4Addr, Conflict),
}

/// Who a frame was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A client. It may have ignored it: see [`Effect::Ignored`].
    Client,
    /// A reply of a DHCP server to somebody else on this network, or to a transaction that is over.
    Unknown,
    /// Neither DHCP nor an ARP packet that matters at the moment.
    Other,
}

/// Why a client cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// There are as many as allowed.
    #[error(
        "{0} DHCP clients are all that one interface may have: raise the limit, or use another interface"
    )]
    Full(usize),
    /// This load balancer has one.
    #[error("load balancer {0} has a DHCP client on this interface already: remove that first")]
    Present(Uid),
}

/// The clients of one interface. See the module.
#[derive(Debug)]
pub struct Table {
    interface: HardwareAddress,
    limit: usize,
    rows: BTreeMap<Uid, Row>,
    /// Who waits for a reply with this transaction id and hardware address. More than one only by chance.
    replies: Index<(u32, HardwareAddress)>,
    /// Who probes this address.
    probes: Index<Ipv4Addr>,
    /// Who has this address or checks it, or has checked it and asked for it. More than one only by records.
    claims: Index<Ipv4Addr>,
    wakeups: BTreeSet<(Duration, Uid)>,
    outputs: Vec<Output>,
}

#[derive(Debug)]
struct Row {
    client: Client,
    /// Its keys in the indices.
    keys: Keys,
}

#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    reply: Option<(u32, HardwareAddress)>,
    probe: Option<Ipv4Addr>,
    claim: Option<Ipv4Addr>,
    wakeup: Option<Duration>,
}

impl Table {
    /// A table without clients. `interface` is the address of the interface; from `limit` clients on none asks for a new lease.
    pub fn new(interface: HardwareAddress, limit: usize) -> Self {
        Self {
            interface,
            limit,
            rows: BTreeMap::new(),
            replies: Index::default(),
            probes: Index::default(),
            claims: Index::default(),
            wakeups: BTreeSet::new(),
            outputs: Vec::new(),
        }
    }

    /// The interface has another address now: it was made anew, or another port decides the address of its bridge. Answers to earlier
    /// probes went to the address before.
    pub fn set_interface(&mut self, interface: HardwareAddress, now: Now, out: &mut Vec<Action>) {
        self.interface = interface;
        self.probe_again(now, out);
    }

    /// The frame of an ARP probe from the present address of the interface, to which the answer comes.
    pub fn probe(&self, address: Ipv4Addr) -> Vec<u8> {
        arp_frame(self.interface, &Arp::probe(self.interface, address))
    }

    /// Number of clients.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The client of a load balancer.
    pub fn client(&self, uid: &Uid) -> Option<&Client> {
        self.rows.get(uid).map(|row| &row.client)
    }

    /// All clients, ordered by uid.
    pub fn clients(&self) -> impl Iterator<Item = (&Uid, &Client)> {
        self.rows.iter().map(|(uid, row)| (uid, &row.client))
    }

    /// Adds a client that is not started.
    ///
    /// DHC-2: one with a recorded lease is added whatever the limit, since its address is served. One that asks for a new lease takes
    /// none of the `reserved` places: the number of recorded leases on this interface whose clients are not there yet.
    pub fn insert(&mut self, uid: Uid, client: Client, reserved: usize) -> Result<(), TableError> {
        if self.rows.contains_key(&uid) {
            return Err(TableError::Present(uid));
        }
        let is_new = client.lease().is_none();
        if is_new && self.rows.len().saturating_add(reserved) >= self.limit {
            return Err(TableError::Full(self.limit));
        }
        let keys = Keys::default();
        self.rows.insert(uid, Row { client, keys });
        Ok(())
    }

    /// Removes a client, without a RELEASE.
    pub fn remove(&mut self, uid: &Uid) -> Option<Client> {
        let row = self.rows.remove(uid)?;
        self.forget(uid, row.keys);
        Some(row.client)
    }

    /// Gives a command to a client; returns whether there is one. O(log n).
    pub fn command(
        &mut self,
        uid: &Uid,
        command: Command,
        now: Now,
        out: &mut Vec<Action>,
    ) -> bool {
        let input = match command {
            Command::Start => Input::Start,
            Command::Release => Input::Release,
            Command::Own(address) => Input::Own(address),
            Command::Held(address, conflict) => Input::Held(address, conflict),
        };
        self.handle(uid, input, now, out)
    }

    /// Passes a received frame on to whom it is for; any byte string is accepted. An error says why it was dropped, to be
    /// counted by its kind. O(log n).
    pub fn receive(
        &mut self,
        frame: &[u8],
        checksum: Checksum,
        now: Now,
        out: &mut Vec<Action>,
    ) -> Result<Delivery, FrameError> {
        Ok(self.deliver(&frame::parse(frame, checksum)?, now, out))
    }

    /// As [`Table::receive`], for a frame that is parsed.
    pub fn deliver(&mut self, received: &Received, now: Now, out: &mut Vec<Action>) -> Delivery {
        match received {
            Received::Reply { source, reply } => self.reply(*source, reply, now, out),
            Received::Arp(arp) => self.arp(arp, now, out),
            Received::Other => Delivery::Other,
        }
    }

    fn reply(
        &mut self,
        source: HardwareAddress,
        reply: &Reply,
        now: Now,
        out: &mut Vec<Action>,
    ) -> Delivery {
        let uids = self.replies.get(&(reply.xid, reply.hardware));
        for uid in &uids {
            self.handle(uid, Input::Reply { reply, source }, now, out);
        }
        if uids.is_empty() {
            Delivery::Unknown
        } else {
            Delivery::Client
        }
    }

    /// DHC-5: a packet that shows that a probed address is in use.
    fn arp(&mut self, arp: &Arp, now: Now, out: &mut Vec<Action>) -> Delivery {
        let Some(address) = arp.claims(self.interface) else {
            return Delivery::Other;
        };
        if self.in_use(address, arp.sender, now, out) {
            Delivery::Client
        } else {
            Delivery::Other
        }
    }

    /// DHC-5: an address is in use, by whom has this hardware address. Returns whether that matters to a client, which is then checking it.
    /// O(log n).
    pub fn in_use(
        &mut self,
        address: Ipv4Addr,
        by: HardwareAddress,
        now: Now,
        out: &mut Vec<Action>,
    ) -> bool {
        let uids = self.probes.get(&address);
        for uid in &uids {
            self.handle(uid, Input::InUse(address, by), now, out);
        }
        !uids.is_empty()
    }

    /// DHC-5: the probe of this client was sent at this time. O(log n).
    pub fn sent(&mut self, uid: &Uid, now: Now, out: &mut Vec<Action>) {
        self.handle(uid, Input::Sent, now, out);
    }

    /// DHC-5: the probe of this client was not sent. O(log n).
    pub fn unsent(&mut self, uid: &Uid, now: Now, out: &mut Vec<Action>) {
        self.handle(uid, Input::Unsent, now, out);
    }

    /// DHC-5: answers to the probes so far may be lost, as the interface cannot be used. O(n log n) for those that probe.
    pub fn probe_again(&mut self, now: Now, out: &mut Vec<Action>) {
        let uids: Vec<Uid> = self.probes.uids().cloned().collect();
        for uid in &uids {
            self.unsent(uid, now, out);
        }
    }

    /// DHC-5: the address that an ARP packet shows to be in use, if a client checks it. O(log n).
    pub fn checked_by(&self, arp: &Arp) -> Option<Ipv4Addr> {
        let address = arp.claims(self.interface)?;
        self.probes.has(&address).then_some(address)
    }

    /// DHC-5: that an address is in use says nothing for now: it is probed again. O(log n).
    pub fn doubt(&mut self, address: Ipv4Addr, now: Now, out: &mut Vec<Action>) {
        for uid in self.probes.get(&address) {
            self.handle(&uid, Input::Doubted, now, out);
        }
    }

    /// When to call [`Table::wake`] next, on the monotonic clock. O(log n).
    pub fn next_wakeup(&self) -> Option<Duration> {
        self.wakeups.first().map(|(at, _)| *at)
    }

    /// Lets each client whose time has come do what is due. O(log n) for each.
    pub fn wake(&mut self, now: Now, out: &mut Vec<Action>) {
        let due = self.wakeups.iter().take_while(|(at, _)| *at <= now.mono);
        let due: Vec<Uid> = due.map(|(_, uid)| uid.clone()).collect();
        for uid in &due {
            self.handle(uid, Input::Time, now, out);
        }
    }

    /// The wall clock was set: recorded times are compared with it anew (DHC-3). O(n log n).
    pub fn clock_was_set(&mut self, now: Now, out: &mut Vec<Action>) {
        let all: Vec<Uid> = self.rows.keys().cloned().collect();
        for uid in &all {
            self.handle(uid, Input::Time, now, out);
        }
    }

    fn handle(&mut self, uid: &Uid, input: Input<'_>, now: Now, out: &mut Vec<Action>) -> bool {
        let Some(row) = self.rows.get_mut(uid) else {
            return false;
        };
        let state = row.client.state();
        row.client.handle(input, now, &mut self.outputs);
        if self.outputs.is_empty() && row.client.state() != state {
            let (uid, effect) = (uid.clone(), Effect::State);
            out.push(Action { uid, effect });
        }
        let hardware = row.client.identity().hardware;
        let keys = Keys {
            reply: row.client.xid().map(|xid| (xid, hardware)),
            probe: row.client.probed(),
            claim: row.client.claimed(),
            wakeup: row.client.next_wakeup(),
        };
        let before = core::mem::replace(&mut row.keys, keys);
        self.forget(uid, before);
        self.remember(uid, keys);
        let mut conflict = None;
        let mut outputs = core::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            let effect = match output {
                Output::Send { message, server } => {
                    let kind = message.body.kind();
                    let bytes = client_frame(self.interface, &message, server);
                    Effect::Frame { kind, bytes }
                }
                Output::Probe(address) => match self.rival(uid, address) {
                    None => Effect::Probe(address),
                    Some(rival) => {
                        conflict = Some((address, rival));
                        continue;
                    }
                },
                Output::Record(lease) => Effect::Record(lease),
                Output::Lost { address, loss } => Effect::Lost { address, loss },
                Output::Event(event) => Effect::Event(event),
                Output::Ignored(ignored) => Effect::Ignored(ignored),
            };
            let uid = uid.clone();
            out.push(Action { uid, effect });
        }
        self.outputs = outputs;
        if let Some((address, rival)) = conflict {
            self.handle(uid, Input::Held(address, rival), now, out);
        }
        true
    }

    /// DHC-5: whether another client of this table has an address or checks it. It does not answer a probe, and has no
    /// record of the lease yet. The first one has it. O(log n).
    fn rival(&self, uid: &Uid, address: Ipv4Addr) -> Option<Conflict> {
        let hardware = |uid: &Uid| Some(self.rows.get(uid)?.client.identity().hardware);
        let uids = self.claims.get(&address);
        let other = uids.iter().find(|other| *other != uid)?;
        Some(if hardware(other) == hardware(uid) {
            Conflict::Twin
        } else {
            Conflict::Lease
        })
    }

    fn forget(&mut self, uid: &Uid, keys: Keys) {
        if let Some(key) = keys.reply {
            self.replies.remove(&key, uid);
        }
        if let Some(key) = keys.probe {
            self.probes.remove(&key, uid);
        }
        if let Some(key) = keys.claim {
            self.claims.remove(&key, uid);
        }
        if let Some(at) = keys.wakeup {
            self.wakeups.remove(&(at, uid.clone()));
        }
    }

    fn remember(&mut self, uid: &Uid, keys: Keys) {
        if let Some(key) = keys.reply {
            self.replies.insert(key, uid);
        }
        if let Some(key) = keys.probe {
            self.probes.insert(key, uid);
        }
        if let Some(key) = keys.claim {
            self.claims.insert(key, uid);
        }
        if let Some(at) = keys.wakeup {
            self.wakeups.insert((at, uid.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
