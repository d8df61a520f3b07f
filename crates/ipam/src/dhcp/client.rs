//! The client of one lease (RFC 2131, 4.4), as a state machine without I/O: `handle(input, now) -> outputs`, and
//! `next_wakeup()`. Owns the state, the lease that it holds, and which message is sent when.
//!
//! | state | waits for | then |
//! |---|---|---|
//! | Init | a pause: 10 s after an address that somebody else has, longer after several, the back-off after a NAK without a lease | DISCOVER |
//! | Selecting | an OFFER: the first one, or for one second that of the address asked for, or of another server than the one whose last offer led to nothing | an ARP probe if its hardware address was chosen, then a REQUEST with options 50, 54 |
//! | Requesting | the ACK of the server chosen; after 4 REQUESTs it starts over | an ARP probe |
//! | Checking | one second for an answer to the probe, which is repeated until one was sent; or that the address is its own | a pause, after a DECLINE if the address was acknowledged; or REQUEST, or bound |
//! | Rebooting | an ACK of the server of the recorded lease, from T2 on of any, of a lease without end after the 4th REQUEST; after 4 REQUESTs it goes on with what is recorded | bound |
//! | Bound | T1 | REQUEST with option 50 |
//! | Renewing | an ACK of the server of the lease; repeats until T2 | bound |
//! | Rebinding | an ACK; repeats until the lease expires | bound |
//!
//! What differs from the text of RFC 2131, and why:
//! - **Renewal has the form of INIT-REBOOT**: a broadcast REQUEST with option 50, without `ciaddr` and without a server
//!   identifier, both in RENEWING (from T1) and in REBINDING (from T2). The address is on the node that kube-vip has
//!   chosen, not here: a server would send a unicast ACK to that node, and dnsmasq, which looks for `ciaddr` by ARP, none
//!   if nobody announces the address. Servers extend the lease all the same (dnsmasq 2.90, Kea 2.2).
//! - As the request is broadcast, every server on the network sees it. Until T2 only the server of the lease counts, in RENEWING and
//!   in REBOOTING: a NAK of a second one that is authoritative and does not know the lease would end it, and after an ACK of it
//!   RELEASE would go there, and the lease would stay on its server. From T2 on any server counts, as in RFC 2131.
//! - An address that a host with the client's own hardware address has is not declined, since that host has leased it
//!   ([`Conflict::TwinHost`]).
//! - A client whose hardware address was chosen (DHC-1) probes an address before it asks for it, and asks for none that somebody has. A
//!   server that takes clients with one hardware address for one would give it the lease of the other one, which that could not renew.
//! - An ACK for another address than the one requested is ignored: a server that wants the client to move sends a NAK. The
//!   client goes on asking until T2 and the expiry.
//! - There is no ARP probe (DHC-5) of an address that kube-vip announces for this very load balancer, or did a moment ago: kube-vip
//!   would answer, and the address would be declined. Only the caller knows of that ([`Input::Own`]).
//! - RENEWING and REBINDING use a new transaction id for each message, which RFC 2131 leaves to the client, so that it is
//!   known which message an ACK answers and the lease is not counted from a later one.
//!
//! The lease is kept on both clocks, and whichever reaches T1, T2 or the expiry first counts, because the operator ends the
//! Service at the recorded time (DHC-3). If the wall clock is set forward, the lease is renewed early, within seconds, as those of all
//! clients are due at once; if it is set back, the record is written again with the corrected times. Call [`Input::Time`] when the wall
//! clock was set.

mod receive;
mod send;
mod state;

use core::time::Duration;
use std::net::Ipv4Addr;

use self::state::{Checked, Exchange, Held, Offer, State};
use super::clock::Now;
use super::identity::Identity;
use super::lease::{Deadlines, Lease, LeaseTimes};
use super::output::{Conflict, Event, Input, Loss, Output};
use super::random::Random;
use super::timing::{CLOCK_TOLERANCE, DECLINE_WAIT, PROBE_WAIT, REBOOT_SPREAD, back_off};

pub use self::state::StateName;

/// The client of one lease. See the module.
#[derive(Clone, Debug)]
pub struct Client {
    identity: Identity,
    random: Random,
    state: State,
    /// The lease, while its address may be served. At most one at any time.
    held: Option<Held>,
    /// The address to ask for in a DISCOVER.
    wanted: Option<Ipv4Addr>,
    /// NAKs of offered addresses since the last lease.
    refusals: u32,
    /// Addresses that somebody else had, since a lease was last renewed. Not since one began: a holder that does not answer ARP is found
    /// by its record only then (DHC-5).
    conflicts: u32,
    /// The server whose last offer led to no lease: it refused the address, did not acknowledge it, or somebody else had it. Of two
    /// servers on one network the other one may do better.
    failed: Option<Ipv4Addr>,
    wakeup: Option<Duration>,
}

impl Client {
    /// A client that does nothing until [`Input::Start`]. `record` is the recorded lease, if there is one; it must be of the
    /// same identity (DHC-2). `wanted` is an address to ask for if there is none, which the load balancer had before, such as the one
    /// that kube-vip had leased (DHC-6); servers need not give it. `seed` should differ between clients and between starts: it decides transaction
    /// ids and jitter.
    pub fn new(
        identity: Identity,
        record: Option<Lease>,
        wanted: Option<Ipv4Addr>,
        seed: u64,
        now: Now,
    ) -> Self {
        let held = record.map(|lease| Held {
            lease,
            deadlines: lease.times.map(|times| Deadlines::of(&times, now)),
        });
        Self {
            identity,
            random: Random::new(seed),
            state: State::Stopped,
            held,
            wanted: record.map(|lease| lease.address).or(wanted),
            refusals: 0,
            conflicts: 0,
            failed: None,
            wakeup: None,
        }
    }

    /// Who the client is to servers.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The state.
    pub const fn state(&self) -> StateName {
        self.state.name()
    }

    /// The lease whose address may be served. [`Output::Record`] and [`Output::Lost`] report each change.
    pub fn lease(&self) -> Option<&Lease> {
        self.held.as_ref().map(|held| &held.lease)
    }

    /// The transaction id of the reply that the client waits for.
    pub fn xid(&self) -> Option<u32> {
        self.state.exchange().map(|exchange| exchange.xid)
    }

    /// The address whose ARP packets matter at the moment (DHC-5).
    pub const fn probed(&self) -> Option<Ipv4Addr> {
        match &self.state {
            State::Checking { checked, .. } => Some(checked.offer().address),
            _ => None,
        }
    }

    /// The address that it has or checks, or has checked and asked for: no other client may have it too (DHC-5).
    pub(super) fn claimed(&self) -> Option<Ipv4Addr> {
        match &self.state {
            State::Checking { checked, .. } => Some(checked.offer().address),
            State::Requesting { offer, .. } if self.identity.is_chosen => Some(offer.address),
            _ => self.lease().map(|lease| lease.address),
        }
    }

    /// When to call [`Input::Time`] next, on the monotonic clock. After that call it is later than the time of the call.
    /// None: only a reply or a command changes anything.
    pub const fn next_wakeup(&self) -> Option<Duration> {
        self.wakeup
    }

    /// Handles an input at a time that is not before that of the last one, and appends the outputs to `out`.
    pub fn handle(&mut self, input: Input<'_>, now: Now, out: &mut Vec<Output>) {
        if !matches!(self.state, State::Stopped) {
            self.expire(now, out);
            if self.correct_record(now, out) {
                // Recorded times are whole microseconds: by the new ones it may be over now.
                self.expire(now, out);
            }
        }
        match input {
            Input::Time => {}
            Input::Start => self.start(now, out),
            Input::Reply { reply, source } => {
                if let Err(ignored) = self.receive(reply, source, now, out) {
                    out.push(Output::Ignored(ignored));
                }
            }
            Input::Sent => {
                if let State::Checking {
                    is_probed, until, ..
                } = &mut self.state
                {
                    *is_probed = true;
                    *until = now.mono.saturating_add(PROBE_WAIT);
                }
            }
            Input::Unsent => {
                if let State::Checking { is_probed, .. } = &mut self.state {
                    *is_probed = false;
                }
            }
            Input::Doubted => {
                // The interface works.
                if let State::Checking {
                    is_probed, unsent, ..
                } = &mut self.state
                {
                    *is_probed = false;
                    *unsent = 0;
                }
            }
            Input::InUse(address, by) => {
                if self.probed() == Some(address) {
                    let conflict = if by == self.identity.hardware {
                        Conflict::TwinHost
                    } else {
                        Conflict::Host
                    };
                    self.conflict(address, conflict, now, out);
                }
            }
            Input::Own(address) => {
                if let State::Checking { checked, .. } = self.state
                    && checked.offer().address == address
                    && !checked.is_over(now)
                {
                    self.go_on(checked, now, out);
                }
            }
            Input::Held(address, conflict) => self.conflict(address, conflict, now, out),
            Input::Release => self.release(now, out),
        }
        self.wake(now, out);
        self.wakeup = self.deadline(now);
    }

    /// DHC-2: begins with INIT-REBOOT if a lease is recorded that has not expired.
    fn start(&mut self, now: Now, out: &mut Vec<Output>) {
        if !matches!(self.state, State::Stopped) {
            return;
        }
        self.state = State::Init { at: now.mono };
        self.expire(now, out);
        if self.held.is_some() {
            let deadlines = self.held.and_then(|held| held.deadlines);
            let left = deadlines.map(|it| it.expire.saturating_sub(now.mono));
            self.state = State::Rebooting(self.soon(left.unwrap_or(Duration::MAX), now));
        }
    }

    /// A transaction that begins within seconds, and within a quarter of the time that the lease has left: all clients begin one now.
    fn soon(&mut self, left: Duration, now: Now) -> Exchange {
        let spread = REBOOT_SPREAD.min(left / 4);
        let at = now.mono.saturating_add(self.random.up_to(spread));
        Exchange {
            xid: self.random.xid(),
            began: at,
            secs: 0,
            asked: at,
            sent: 0,
            resend_at: at,
        }
    }

    /// DHC-3: at the expiry the lease is lost, and the client starts over at once, or within seconds if all clients do. It asks for the
    /// same address.
    fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        if let Some(held) = self.held.filter(|held| held.is_over(now)) {
            let spread = if held.is_ahead(now) {
                REBOOT_SPREAD
            } else {
                Duration::ZERO
            };
            self.lose(Loss::Expired, out);
            let at = now.mono.saturating_add(self.random.up_to(spread));
            self.state = State::Init { at };
        }
    }

    /// The address is not served any more (DHC-3).
    fn lose(&mut self, loss: Loss, out: &mut Vec<Output>) {
        if let Some(held) = self.held.take() {
            let address = held.lease.address;
            if loss == Loss::Expired {
                out.push(Output::Event(Event::Expired(address)));
            }
            out.push(Output::Lost { address, loss });
        }
    }

    /// Records the lease again if the wall clock was set back: by the recorded times the operator would serve the address
    /// after the lease has expired (DHC-3). Whether it did.
    fn correct_record(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        if let Some(held) = &mut self.held
            && let (Some(deadlines), Some(times)) = (&held.deadlines, &mut held.lease.times)
        {
            let real: LeaseTimes = deadlines.times(now);
            let late = times.expires_at.0.saturating_sub(real.expires_at.0);
            if late > CLOCK_TOLERANCE {
                *times = real;
                out.push(Output::Record(held.lease));
                return true;
            }
        }
        false
    }

    /// The lease begins: the address may be served.
    fn bind(&mut self, held: Held, out: &mut Vec<Output>) {
        let lease = held.lease;
        let is_new = self.held.is_none();
        self.held = Some(held);
        self.wanted = Some(lease.address);
        self.refusals = 0;
        self.failed = None;
        if !is_new {
            self.conflicts = 0;
        }
        self.state = State::Bound;
        out.push(Output::Record(lease));
        out.push(Output::Event(if is_new {
            Event::Bound(lease)
        } else {
            Event::Renewed(lease)
        }));
    }

    /// DHC-5: declines an acknowledged address that somebody else has, and waits. For one that was only offered nothing is sent: of a client
    /// whose hardware address was chosen, a REQUEST would end the lease that the server has for who has that address too.
    fn conflict(&mut self, address: Ipv4Addr, conflict: Conflict, now: Now, out: &mut Vec<Output>) {
        let (offer, is_offer) = match (&self.state, &self.held) {
            (State::Checking { checked, .. }, _) => {
                (checked.offer(), matches!(checked, Checked::Offer(..)))
            }
            (_, Some(held)) => (Offer::of(&held.lease), false),
            _ => return,
        };
        if offer.address != address {
            return;
        }
        self.lose(Loss::Conflict, out);
        if !is_offer && !conflict.is_twin() {
            self.decline(offer, out);
        }
        self.failed = Some(offer.server);
        let pause = back_off(self.conflicts, &mut self.random).max(DECLINE_WAIT);
        self.conflicts = self.conflicts.saturating_add(1);
        out.push(Output::Event(Event::Declined {
            address,
            conflict,
            is_offer,
        }));
        self.wanted = None;
        self.state = State::Init {
            at: now.mono.saturating_add(pause),
        };
    }

    /// DHC-4, DHC-6: gives back what a server has leased or may have leased, and stops.
    fn release(&mut self, now: Now, out: &mut Vec<Output>) {
        let held = self.held.take().filter(|held| !held.is_over(now));
        let of = |lease: &Lease| (lease.address, lease.server, lease.server_hardware);
        let lease = match (held, &self.state) {
            (Some(held), _) => Some(of(&held.lease)),
            (
                None,
                State::Checking {
                    checked: Checked::Grant(grant),
                    ..
                },
            ) => Some(of(&grant.lease)),
            // The ACK may be on its way.
            (None, State::Requesting { offer, .. }) => Some((offer.address, offer.server, None)),
            _ => None,
        };
        if let Some((address, server, hardware)) = lease {
            self.give_back(address, server, hardware, out);
            out.push(Output::Event(Event::Released(address)));
        }
        self.state = State::Stopped;
    }

    /// When something is due next.
    fn deadline(&self, now: Now) -> Option<Duration> {
        let due = match &self.state {
            State::Stopped => return None,
            State::Init { at }
            | State::Selecting {
                second_best: Some((_, at)),
                ..
            } => Some(*at),
            State::Selecting { exchange, .. }
            | State::Requesting { exchange, .. }
            | State::Rebooting(exchange)
            | State::Renewing(exchange)
            | State::Rebinding(exchange) => Some(exchange.resend_at),
            State::Checking { until, .. } => Some(*until),
            State::Bound => None,
        };
        let lease = self.held.and_then(|held| {
            let due = held.due(now)?;
            Some(match &self.state {
                State::Bound => due.renew.min(due.expire),
                State::Renewing(_) => due.rebind.min(due.expire),
                _ => due.expire,
            })
        });
        due.into_iter().chain(lease).min()
    }
}

#[cfg(test)]
mod tests;
