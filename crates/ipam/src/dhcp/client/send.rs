//! What a client does when its time has come, and the messages that it sends.

use core::time::Duration;
use std::net::Ipv4Addr;

use super::super::clock::Now;
use super::super::identity::HardwareAddress;
use super::super::lease::Deadlines;
use super::super::message::{Body, ClientMessage};
use super::super::output::{Event, Output};
use super::super::timing::{
    PROBE_WAIT, REQUESTS, SILENT_DISCOVERS, UNSENT_PROBES, back_off, renewal_pause,
};
use super::Client;
use super::state::{Checked, Exchange, Offer, State};

impl Client {
    /// Does what is due: at most one message is sent.
    pub(super) fn wake(&mut self, now: Now, out: &mut Vec<Output>) {
        match self.state {
            State::Init { at } if now.mono >= at => self.discover(None, now, out),
            State::Selecting {
                second_best: Some((offer, at)),
                exchange,
            } if now.mono >= at => self.choose(offer, &exchange, now, out),
            State::Selecting {
                second_best: None,
                exchange,
            } if now.mono >= exchange.resend_at => self.discover(Some(exchange), now, out),
            State::Requesting { exchange, offer } if now.mono >= exchange.resend_at => {
                if exchange.sent >= REQUESTS {
                    // It has offered and does not acknowledge.
                    self.failed = Some(offer.server);
                    out.push(Output::Event(Event::Unanswered));
                    self.discover(None, now, out);
                } else {
                    self.request(offer, exchange, now, out);
                }
            }
            State::Checking {
                checked,
                until,
                is_probed,
                unsent,
            } if now.mono >= until => {
                if checked.is_over(now) || (!is_probed && unsent >= UNSENT_PROBES) {
                    // The process was stopped for so long, or no probe could be sent.
                    self.discover(None, now, out);
                } else if !is_probed {
                    self.probe(checked, unsent + 1, now, out);
                } else {
                    self.go_on(checked, now, out);
                    // T1 may have passed meanwhile.
                    self.renew(None, now, out);
                }
            }
            State::Rebooting(exchange) if now.mono >= exchange.resend_at => {
                if exchange.sent >= REQUESTS {
                    // The lease is valid without an answer (RFC 2131, 3.2), and T1 may have passed.
                    self.state = State::Bound;
                    self.renew(None, now, out);
                } else {
                    self.reboot(exchange, now, out);
                }
            }
            State::Bound => self.renew(None, now, out),
            State::Renewing(exchange) | State::Rebinding(exchange) => {
                self.renew(Some(exchange), now, out);
            }
            _ => {}
        }
    }

    /// INIT: sends a DISCOVER, the first one or the next one of `exchange`.
    fn discover(&mut self, exchange: Option<Exchange>, now: Now, out: &mut Vec<Output>) {
        let mut exchange = exchange.unwrap_or_else(|| Exchange {
            xid: self.random.xid(),
            began: now.mono,
            secs: 0,
            asked: now.mono,
            sent: 0,
            resend_at: now.mono,
        });
        exchange.secs = secs(&exchange, now);
        if exchange.sent == SILENT_DISCOVERS {
            out.push(Output::Event(Event::Unanswered));
        }
        let body = Body::Discover {
            wanted: self.wanted,
        };
        self.send(&exchange, body, out);
        self.back_off(&mut exchange, now);
        self.state = State::Selecting {
            exchange,
            second_best: None,
        };
    }

    /// SELECTING: takes an offer. DHC-5: its address is probed before it is asked for, if others may have the same hardware address. A
    /// server that identifies clients by that takes them for one, and gives the lease of who has the address to who asks for it.
    pub(super) fn choose(
        &mut self,
        offer: Offer,
        exchange: &Exchange,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        if self.identity.is_chosen {
            self.probe(Checked::Offer(offer, *exchange), 0, now, out);
        } else {
            self.select(offer, exchange, now, out);
        }
    }

    /// DHC-5: nobody else has a checked address.
    pub(super) fn go_on(&mut self, checked: Checked, now: Now, out: &mut Vec<Output>) {
        match checked {
            Checked::Offer(offer, exchange) => self.select(offer, &exchange, now, out),
            Checked::Grant(grant) => self.hold(grant.recorded(now), out),
        }
    }

    /// Asks for an offered address. The transaction goes on.
    fn select(&mut self, offer: Offer, exchange: &Exchange, now: Now, out: &mut Vec<Output>) {
        let exchange = Exchange {
            asked: now.mono,
            sent: 0,
            ..*exchange
        };
        self.request(offer, exchange, now, out);
    }

    fn request(&mut self, offer: Offer, mut exchange: Exchange, now: Now, out: &mut Vec<Output>) {
        let Offer { address, server } = offer;
        self.send(&exchange, Body::Select { address, server }, out);
        self.back_off(&mut exchange, now);
        self.state = State::Requesting { exchange, offer };
    }

    /// INIT-REBOOT (DHC-2): asks for the recorded address.
    fn reboot(&mut self, mut exchange: Exchange, now: Now, out: &mut Vec<Output>) {
        let Some(held) = &self.held else { return };
        let address = held.lease.address;
        if exchange.sent == 0 {
            exchange.began = now.mono;
            exchange.asked = now.mono;
        }
        exchange.secs = secs(&exchange, now);
        self.send(&exchange, Body::Confirm { address }, out);
        self.back_off(&mut exchange, now);
        self.state = State::Rebooting(exchange);
    }

    /// From T1 on RENEWING, from T2 on REBINDING: asks for the address that it has, in the form of INIT-REBOOT.
    fn renew(&mut self, exchange: Option<Exchange>, now: Now, out: &mut Vec<Output>) {
        let Some(held) = self.held else { return };
        let Some(deadlines) = held.due(now) else {
            return;
        };
        let address = held.lease.address;
        if now.mono < deadlines.renew {
            // The wall clock was set back after it began (DHC-3): until T1 nothing is due.
            self.state = State::Bound;
            return;
        }
        let is_rebinding = now.mono >= deadlines.rebind;
        let begins =
            exchange.is_none() || is_rebinding && !matches!(self.state, State::Rebinding(_));
        if begins && held.is_ahead(now) {
            let soon = self.soon(deadlines.expire.saturating_sub(now.mono), now);
            if now.mono < soon.resend_at {
                self.state = renewing(soon, is_rebinding);
                return;
            }
        } else if !begins && exchange.is_some_and(|exchange| now.mono < exchange.resend_at) {
            return;
        }
        if exchange.is_some_and(|exchange| exchange.sent > 0) {
            out.push(Output::Event(Event::RenewalUnanswered));
        }
        let pause = pause(&deadlines, is_rebinding, now);
        let mut exchange = Exchange {
            xid: self.random.xid(),
            began: exchange.map_or(now.mono, |exchange| exchange.began),
            secs: 0,
            asked: now.mono,
            sent: exchange
                .map_or(0, |exchange| exchange.sent)
                .saturating_add(1),
            resend_at: now.mono.saturating_add(pause),
        };
        exchange.secs = secs(&exchange, now);
        self.send(&exchange, Body::Confirm { address }, out);
        self.state = renewing(exchange, is_rebinding);
    }

    /// DHC-5: CHECKING begins, or begins again.
    pub(super) fn probe(&mut self, checked: Checked, unsent: u32, now: Now, out: &mut Vec<Output>) {
        out.push(Output::Probe(checked.offer().address));
        self.state = State::Checking {
            checked,
            until: now.mono.saturating_add(PROBE_WAIT),
            is_probed: false,
            unsent,
        };
    }

    /// Counts the message just sent, and sets the time of the next one.
    fn back_off(&mut self, exchange: &mut Exchange, now: Now) {
        let pause = back_off(exchange.sent, &mut self.random);
        exchange.resend_at = now.mono.saturating_add(pause);
        exchange.sent = exchange.sent.saturating_add(1);
    }

    fn send(&self, exchange: &Exchange, body: Body, out: &mut Vec<Output>) {
        let message = ClientMessage {
            xid: exchange.xid,
            secs: exchange.secs,
            identity: self.identity,
            body,
        };
        out.push(Output::Send {
            message,
            server: None,
        });
    }

    /// DHC-5.
    pub(super) fn decline(&mut self, offer: Offer, out: &mut Vec<Output>) {
        let Offer { address, server } = offer;
        self.send_once(Body::Decline { address, server }, None, out);
    }

    /// DHC-4: sends a RELEASE. It is not answered, and is sent once: if it is lost, the lease expires.
    pub(super) fn give_back(
        &mut self,
        address: Ipv4Addr,
        server: Ipv4Addr,
        hardware: Option<HardwareAddress>,
        out: &mut Vec<Output>,
    ) {
        self.send_once(Body::Release { address, server }, hardware, out);
    }

    fn send_once(&mut self, body: Body, server: Option<HardwareAddress>, out: &mut Vec<Output>) {
        let message = ClientMessage {
            xid: self.random.xid(),
            secs: 0,
            identity: self.identity,
            body,
        };
        out.push(Output::Send { message, server });
    }
}

/// RENEWING or REBINDING.
const fn renewing(exchange: Exchange, is_rebinding: bool) -> State {
    if is_rebinding {
        State::Rebinding(exchange)
    } else {
        State::Renewing(exchange)
    }
}

/// How long to wait for an answer in RENEWING or REBINDING.
fn pause(deadlines: &Deadlines, is_rebinding: bool, now: Now) -> Duration {
    let end = if is_rebinding {
        deadlines.expire
    } else {
        deadlines.rebind
    };
    let tail = deadlines.expire.saturating_sub(deadlines.renew);
    renewal_pause(end.saturating_sub(now.mono), tail)
}

/// Seconds since the client began to ask.
fn secs(exchange: &Exchange, now: Now) -> u16 {
    let secs = now.mono.saturating_sub(exchange.began).as_secs();
    u16::try_from(secs).unwrap_or(u16::MAX)
}
