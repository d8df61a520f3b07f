//! Load balancers that wait for a withheld pool to confirm their address (EXC-1).
//!
//! An address that only a status names is recorded if the pool that serves the load balancer has it (ALC-7). A pool
//! with an invalid list of exclusions, or one that cannot be decoded, cannot confirm that. Until it can, the load balancer
//! keeps serving at the address, and no other gets the address from a pool that is known to have it.

use super::Ledger;
use super::decision::{Evidence, Request, Withheld};
use super::held_back_lbs::HeldBack;
use crate::types::OwnerId;

impl Ledger {
    /// Keeps the address that the status names if a withheld pool may have it, and drops the other holds of the load
    /// balancer. None if there is no such address.
    pub(super) fn hold_back(&mut self, request: &Request) -> Option<HeldBack> {
        let held = self.held_back_of(request)?;
        let is_known = self.is_known(&held);
        self.drop_holds(&held.owner.id, |addr, _| addr != held.addr || !is_known);
        self.claim_held_back(&held);
        Some(held)
    }

    /// Whether the pool is known to have the address.
    fn is_known(&self, held: &HeldBack) -> bool {
        self.pools[held.pool].usable(held.addr)
    }

    /// The address and its pool: the pool that serves the load balancer, or an undecodable one that its status names,
    /// because an undecodable selector selects no load balancer. None if another load balancer has the address, or if
    /// it can be recorded because its own Service shows it.
    fn held_back_of(&mut self, request: &Request) -> Option<HeldBack> {
        let id = &request.owner.id;
        let addr = self.status_to_consider(request)?;
        let named = request.status.as_ref()?.pool.as_ref();
        let undecodable = |at: &u32| {
            let withheld = self.pools[*at].withheld();
            matches!(withheld, Some(Withheld::Undecodable(_)))
        };
        let of_status = named.and_then(|name| self.pools.find(name));
        let of_status = of_status.filter(|at| request.pool.is_none() && undecodable(at));
        let place = match of_status {
            Some(place) => place,
            None => self.pool_of_present(request, addr)?,
        };
        let pool = &self.pools[place];
        pool.withheld()?;
        let may_have = match pool.ranges() {
            Some(ranges) => ranges.usable(addr) && !self.holds.shows(id, addr),
            // Its addresses are unknown.
            None => named.is_none_or(|name| *name == pool.name),
        };
        let held = HeldBack {
            owner: request.owner.clone(),
            addr,
            pool: place,
        };
        // Its own claim counts only where it stays: the same request gets the same decision.
        let is_own = self.is_known(&held) && self.claims(request, addr);
        let may_have = may_have && (is_own || !self.is_of_another(addr, id));
        may_have.then_some(held)
    }

    /// Claims the address if its pool is known to have it. Without that condition a tenant could block any address by
    /// writing it into a status with the name of an undecodable pool.
    fn claim_held_back(&mut self, held: &HeldBack) {
        let HeldBack { owner, addr, .. } = held;
        let hold = self.holds.get(*addr);
        let claim = hold.and_then(|hold| hold.claim.as_ref());
        let has_one = claim.is_some_and(|claim| claim.owner == *owner);
        let is_free = self.rival(*addr, &owner.id).is_none();
        if self.is_known(held) && is_free && !has_one {
            self.claim(*addr, owner.clone(), Evidence::Status);
        }
    }

    /// After a change of a pool: claims the addresses held back for it, before it serves any other load balancer, and
    /// wakes their load balancers.
    pub(super) fn wake_held_back(&mut self, pool: u32) {
        let woken: Vec<HeldBack> = self.held_back.of_pool(pool).cloned().collect();
        for held in woken {
            self.claim_held_back(&held);
            self.held_back.remove(&held.owner.id);
            self.wake_requested.insert(held.owner.id);
        }
    }

    /// Removes a load balancer from all waiting sets outside of the queues.
    pub(super) fn leave_waiting_sets(&mut self, id: &OwnerId) {
        self.blocked_by_record.remove(id);
        self.held_back.remove(id);
        self.unkept.remove(id);
    }
}
