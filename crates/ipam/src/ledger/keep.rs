//! What a load balancer keeps that cannot be served as it is (ALC-10).

use std::net::IpAddr;

use super::Ledger;
use super::decide::Find;
use super::decision::{AllocationReason, Decision, Request};
use crate::types::{Micros, OwnerId, Record};

impl Ledger {
    /// What a load balancer may keep whose spec is refused (ALC-10): never a new address, and it waits for none.
    ///
    /// Its own is what a Bound record of its uid says, or one of an earlier load balancer of its name that its status
    /// names (IPA-3); what a map or a record that is gone says (IPA-1, IPA-7); what its own Service shows; and of what
    /// only its status names whatever ALC-7 would record again, in the pool that serves it now. In whose pool it is plays
    /// no part otherwise: to move is for when it can be served.
    ///
    /// # Errors
    ///
    /// Nothing is its own. The Bound records of its name are those of earlier ones, by address, and are to be released.
    pub fn keep(&mut self, request: &Request, now: Micros) -> Result<Decision, Vec<Record>> {
        self.settle();
        let id = &request.owner.id;
        self.drop_holds(id, |_, owner| owner.uid != request.owner.uid);
        self.set_aside(id);
        let anywhere = Request {
            pool: None,
            ..request.clone()
        };
        let named = request.status.as_ref().map(|status| status.addr);
        let mut bound = self.bound_of(id);
        if let Some(at) = self.choose_bound(&anywhere, &bound) {
            let kept = &bound[at];
            if kept.owner.uid == request.owner.uid || named == Some(kept.addr) {
                let kept = bound.swap_remove(at);
                self.drop_holds(id, |_, _| true);
                return Ok(self.held(&anywhere, &kept, &bound));
            }
        }
        let surplus = self.to_records(&mut bound);
        let find = match self.reserved(&anywhere) {
            Some(find) => Some(find),
            // One whose record cannot be read is blocked for everybody, and so stays what it is.
            None => self.claimed(request, true).unwrap_or_default(),
        };
        let find = find.or_else(|| self.shown_or_named(request));
        // To ask for a pool that is missing leaves its name behind.
        if let Some(at) = request.pool.as_ref().and_then(|pool| self.pools.find(pool)) {
            self.pools.tidy(at);
        }
        match find {
            Some(find) => Ok(self.take(request, find, surplus, now)),
            None => Err(surplus),
        }
    }

    /// A load balancer that gets no new address gives up its place in the queue, and what was reserved for it. What it has
    /// stays its own.
    pub fn set_aside(&mut self, id: &OwnerId) {
        self.dequeue(id);
        for addr in self.holds.of(id) {
            let reservation = self.holds.get(addr).and_then(|it| it.reservation.as_ref());
            if reservation.is_some_and(|it| it.why != AllocationReason::Recorded) {
                self.abandon(id, addr);
            }
        }
    }

    /// The address that its own Service shows, else the one that its status names, if it can be recorded for it.
    fn shown_or_named(&mut self, request: &Request) -> Option<Find> {
        let id = &request.owner.id;
        let target = self.target(request);
        let named = self.status_to_consider(request);
        let mut shown = self.holds.shown_by(id).to_vec();
        shown.sort_by_key(|addr| (Some(*addr) != named, *addr));
        let usable = |at: u32, addr: IpAddr| self.pools[at].usable(addr);
        let free = |addr| self.rival(addr, id).is_none() && !self.holds.is_blocked(addr);
        for addr in shown.into_iter().filter(|addr| free(*addr)) {
            let status = request.status.as_ref().filter(|it| it.addr == addr);
            let of_status = status
                .and_then(|it| it.pool.as_ref())
                .and_then(|pool| self.pools.find(pool));
            let pool = [of_status, target]
                .into_iter()
                .flatten()
                .find(|at| usable(*at, addr));
            if let Some(at) = pool {
                let pool = self.pools[at].name.clone();
                return Some(Find::new(addr, pool, AllocationReason::Recorded, None));
            }
        }
        let (at, addr) = (target?, named?);
        let pool = &self.pools[at];
        (usable(at, addr) && free(addr) && pool.room(request).has(addr))
            .then(|| Find::new(addr, pool.name.clone(), AllocationReason::Recorded, None))
    }
}
