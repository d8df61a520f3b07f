//! What a reply means in the state that the client is in.

use core::time::Duration;
use std::net::Ipv4Addr;

use super::super::clock::Now;
use super::super::identity::HardwareAddress;
use super::super::ignored::Ignored;
use super::super::lease::{Grant, SHORTEST_LEASE};
use super::super::message::{Reply, ReplyKind};
use super::super::output::{Event, Loss, Output};
use super::super::timing::{OFFER_WINDOW, REQUESTS, back_off};
use super::Client;
use super::state::{Checked, Exchange, Held, Offer, State};

impl Client {
    /// Handles a message of a server. An error says why it is ignored; the state is then unchanged.
    pub(super) fn receive(
        &mut self,
        reply: &Reply,
        source: HardwareAddress,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Result<(), Ignored> {
        let exchange = *self.state.exchange().ok_or(Ignored::State)?;
        if reply.xid != exchange.xid || exchange.sent == 0 {
            return Err(Ignored::Xid);
        }
        if reply.hardware != self.identity.hardware {
            return Err(Ignored::Hardware);
        }
        if !reply.is_for(&self.identity.client_id) {
            return Err(Ignored::ClientId);
        }
        match (reply.kind, self.state) {
            (ReplyKind::Offer, State::Selecting { second_best, .. }) => {
                self.offered(reply, source, &exchange, second_best, now, out)
            }
            (ReplyKind::Ack, State::Requesting { offer, .. }) => {
                self.acknowledged(reply, source, &exchange, offer, now, out)
            }
            (ReplyKind::Ack, State::Rebooting(_) | State::Renewing(_) | State::Rebinding(_)) => {
                self.confirmed(reply, source, &exchange, now, out)
            }
            (
                ReplyKind::Nak,
                State::Requesting { .. }
                | State::Rebooting(_)
                | State::Renewing(_)
                | State::Rebinding(_),
            ) => self.refused(reply, now, out),
            _ => Err(Ignored::State),
        }
    }

    /// Takes the first offer; if the client asked for an address, that of this address, or the first one after a second. One of the
    /// server whose last offer led to nothing only if no other server makes one within that second.
    fn offered(
        &mut self,
        reply: &Reply,
        source: HardwareAddress,
        exchange: &Exchange,
        second_best: Option<(Offer, Duration)>,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Result<(), Ignored> {
        let random = &mut self.random;
        let Grant { lease, .. } =
            Grant::read(reply, source, SHORTEST_LEASE, now.mono, now, random)?;
        if !lease.is_of_a_host() {
            return Err(Ignored::UnusableAddress);
        }
        let offer = Offer::of(&lease);
        let has_failed = |offer: &Offer| self.failed == Some(offer.server);
        let is_wanted = self.wanted.is_none_or(|wanted| wanted == offer.address);
        if is_wanted && !has_failed(&offer) {
            self.choose(offer, exchange, now, out);
            return Ok(());
        }
        let until = match second_best {
            None => now.mono.saturating_add(OFFER_WINDOW),
            Some((before, until)) if has_failed(&before) && !has_failed(&offer) => until,
            Some(_) => return Err(Ignored::OtherAddress),
        };
        self.state = State::Selecting {
            exchange: *exchange,
            second_best: Some((offer, until)),
        };
        Ok(())
    }

    /// DHC-5: an offered address is acknowledged. It is probed first.
    fn acknowledged(
        &mut self,
        reply: &Reply,
        source: HardwareAddress,
        exchange: &Exchange,
        offer: Offer,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Result<(), Ignored> {
        let grant = self.granted(reply, source, SHORTEST_LEASE, exchange, offer.address, now)?;
        if self.other_server(grant.lease.server, now) {
            return Err(Ignored::OtherServer);
        }
        // A renewed one is served already, and only its mask can be wrong.
        if !grant.lease.is_of_a_host() {
            return Err(Ignored::UnusableAddress);
        }
        if grant.is_over(now) {
            return Err(Ignored::ShortLease);
        }
        self.probe(Checked::Grant(grant), 0, now, out);
        Ok(())
    }

    /// DHC-2: the lease is confirmed or renewed: at first by its server, later by any (`other_server`), to which RELEASE then goes (RFC 2131, 4.4). A
    /// lease that is over already, because the answer took so long, has expired on the server too (DHC-3).
    fn confirmed(
        &mut self,
        reply: &Reply,
        source: HardwareAddress,
        exchange: &Exchange,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Result<(), Ignored> {
        let held = *self.lease().ok_or(Ignored::State)?;
        let grant = self.granted(reply, source, Duration::ZERO, exchange, held.address, now)?;
        if self.other_server(grant.lease.server, now) {
            return Err(Ignored::OtherServer);
        }
        if grant.is_over(now) {
            self.lose(Loss::Expired, out);
            self.state = State::Init { at: now.mono };
        } else {
            self.hold(grant, out);
        }
        Ok(())
    }

    /// Whether a server is another one than the one that counts: that of the chosen offer, and until T2 that of the lease. A lease without
    /// end has no T2: for it another server counts once that of the lease has left all REQUESTs but the last one without an answer.
    fn other_server(&self, server: Ipv4Addr, now: Now) -> bool {
        let expected = match (&self.state, &self.held) {
            (State::Requesting { offer, .. }, _) => Some(offer.server),
            (State::Rebooting(exchange) | State::Renewing(exchange), Some(held)) => {
                let is_rebinding = match held.due(now) {
                    Some(due) => now.mono >= due.rebind,
                    None => exchange.sent >= REQUESTS,
                };
                (!is_rebinding).then_some(held.lease.server)
            }
            _ => None,
        };
        expected.is_some_and(|expected| expected != server)
    }

    fn granted(
        &mut self,
        reply: &Reply,
        source: HardwareAddress,
        shortest: Duration,
        exchange: &Exchange,
        address: Ipv4Addr,
        now: Now,
    ) -> Result<Grant, Ignored> {
        let grant = Grant::read(
            reply,
            source,
            shortest,
            exchange.asked,
            now,
            &mut self.random,
        )?;
        if grant.lease.address == address {
            Ok(grant)
        } else {
            Err(Ignored::OtherAddress)
        }
    }

    /// The lease of an ACK begins.
    pub(super) fn hold(&mut self, grant: Grant, out: &mut Vec<Output>) {
        let held = Held {
            lease: grant.lease,
            deadlines: grant.deadlines,
        };
        self.bind(held, out);
    }

    /// DHC-3: a NAK ends the lease, and the client starts over at once. Without a lease, a server has refused what it had
    /// offered: the client waits as long as after an unanswered message, or the two would do so without a pause.
    fn refused(&mut self, reply: &Reply, now: Now, out: &mut Vec<Output>) -> Result<(), Ignored> {
        let server = reply.server.ok_or(Ignored::NoServer)?;
        if self.other_server(server, now) {
            return Err(Ignored::OtherServer);
        }
        let text = reply.text.clone();
        out.push(Output::Event(Event::Refused { server, text }));
        self.wanted = None;
        let at = if self.held.is_some() {
            now.mono
        } else {
            self.failed = Some(server);
            let pause = back_off(self.refusals, &mut self.random);
            self.refusals = self.refusals.saturating_add(1);
            now.mono.saturating_add(pause)
        };
        self.lose(Loss::Nak, out);
        self.state = State::Init { at };
        Ok(())
    }
}
