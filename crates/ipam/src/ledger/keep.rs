//! The address that a load balancer with an invalid spec keeps (ALC-10).

use super::Ledger;
use super::decision::{AllocationReason, Decision, Request};
use super::find::{Candidate, NoAddress};
use super::held_back_lbs::HeldBack;
use crate::types::{Micros, Owner, Record};

impl Ledger {
    /// Decides about the address of a load balancer with an invalid spec (ALC-10): it never gets a new address, and
    /// waits for none.
    ///
    /// It keeps an address that a Bound record of its uid names, or one of an earlier load balancer of its name if its
    /// status names it too (IPA-3); that a pool's map or a deleted record names (IPA-1, IPA-7); that its own Service
    /// shows; or that its status names, if ALC-7 would record it again, in the pool that serves it now. Apart from that
    /// the pool of the address does not matter: the load balancer moves once its spec is valid.
    ///
    /// # Errors
    ///
    /// It has no address to keep; it is woken when that may be otherwise. The Bound records of its name, by address, are those of earlier load balancers and
    /// are to be released.
    pub fn keep(&mut self, request: &Request, now: Micros) -> Result<Decision, Vec<Record>> {
        self.reselect_waiters();
        let id = &request.owner.id;
        self.set_aside(&request.owner);
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
        let extra_records = self.to_records(&mut bound);
        let candidate = match self.reserved(&anywhere) {
            Some(candidate) => Some(candidate),
            None => match self.claimed(request, true) {
                Ok(candidate) => candidate,
                // EXC-1: it is recorded once its pool can confirm it.
                Err(NoAddress::HeldBack(held)) => {
                    self.held_back.insert(held);
                    None
                }
                // An address with an unreadable record is blocked for all, and so stays as it is.
                Err(_) => None,
            },
        };
        let candidate = candidate.or_else(|| self.shown_or_named(request));
        if candidate.is_some() {
            self.held_back.remove(id);
        }
        // The request for a missing pool has interned its name.
        if let Some(at) = request.pool.as_ref().and_then(|pool| self.pools.find(pool)) {
            self.pools.tidy(at);
        }
        if let Some(candidate) = candidate {
            return Ok(self.take(request, candidate, extra_records, now));
        }
        if let Some(addr) = named {
            self.unkept.insert(HeldBack {
                owner: request.owner.clone(),
                addr,
                pool: 0,
            });
        }
        Err(extra_records)
    }

    /// Removes a load balancer that gets no new address from the queue, and drops the new addresses reserved for it.
    /// The addresses that it has stay its own.
    pub fn set_aside(&mut self, owner: &Owner) {
        let id = &owner.id;
        self.dequeue(owner);
        for addr in self.holds.of(id) {
            let reservation = self.holds.get(addr).and_then(|it| it.reservation.as_ref());
            if reservation.is_some_and(|it| it.reason != AllocationReason::Recorded) {
                self.abandon(id, addr);
            }
        }
    }

    /// The address that the load balancer's own Service shows, else the one that its status names, if it can be
    /// recorded.
    pub(super) fn shown_or_named(&mut self, request: &Request) -> Option<Candidate> {
        let id = &request.owner.id;
        let named = self.status_to_consider(request);
        let mut shown = self.holds.shown_by(id).to_vec();
        shown.sort_by_key(|addr| (Some(*addr) != named, *addr));
        let is_free = |ledger: &Self, addr| {
            ledger.rival(addr, id).is_none() && !ledger.holds.is_blocked(addr)
        };
        for addr in shown {
            if !is_free(self, addr) {
                continue;
            }
            let target = self.pool_of_present(request, addr);
            let status = request.status.as_ref().filter(|it| it.addr == addr);
            let of_status = status
                .and_then(|it| it.pool.as_ref())
                .and_then(|pool| self.pools.find(pool));
            let pool = [of_status, target]
                .into_iter()
                .flatten()
                .find(|at| self.pools[*at].usable(addr));
            if let Some(at) = pool {
                let pool = self.pools[at].name.clone();
                let address_conflict = self.address_conflict(request, addr, &pool);
                let reason = AllocationReason::Recorded;
                return Some(Candidate::new(addr, pool, reason, address_conflict));
            }
        }
        let addr = named?;
        let at = self.pool_of_present(request, addr)?;
        let pool = &self.pools[at];
        let has_room = pool.room(request).has(addr) && !self.askers.await_it(addr);
        (pool.usable(addr) && is_free(self, addr) && has_room)
            .then(|| Candidate::new(addr, pool.name.clone(), AllocationReason::Recorded, None))
    }
}
