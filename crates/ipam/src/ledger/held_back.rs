//! Who waits for a pool that hands out nothing new to tell whether an address is its own (IPA-9).
//!
//! What only a status names is recorded from a pool that serves its load balancer and has the address (ALC-7). A pool that
//! this version cannot apply, or cannot decode, is no judge of that. Until it is, what the load balancer serves at the
//! address goes on, and nobody else gets it from a pool that is known to have it.

use std::net::IpAddr;

use super::Ledger;
use super::decision::{Evidence, Request, Withheld};
use super::holds::HeldBack;
use crate::types::OwnerId;

impl Ledger {
    /// Keeps for a load balancer what its status names and a pool that hands out nothing new may have; its other holds are
    /// dropped. None if there is nothing of the kind.
    pub(super) fn hold_back(&mut self, request: &Request) -> Option<HeldBack> {
        let held = self.held_back_of(request)?;
        let is_known = self.pools[held.pool].usable(held.addr);
        self.drop_holds(&held.owner.id, |addr, _| addr != held.addr || !is_known);
        self.claim_held_back(&held);
        Some(held)
    }

    /// The pool is the one that serves the load balancer, or, as a selector that cannot be decoded selects nobody, the one
    /// that its status names. Nothing if the address is somebody else's, or can be recorded, as its own Service shows it.
    fn held_back_of(&mut self, request: &Request) -> Option<HeldBack> {
        let id = &request.owner.id;
        let addr = self.status_to_consider(request)?;
        if self.rival(addr, id).is_some() && !self.claims(request, addr) {
            return None;
        }
        let named = request.status.as_ref()?.pool.as_ref();
        let undecodable = |at: &u32| {
            let withheld = self.pools[*at].withheld();
            matches!(withheld, Some(Withheld::Undecodable(_)))
        };
        let of_status = named.and_then(|name| self.pools.find(name));
        let of_status = of_status.filter(|at| request.pool.is_none() && undecodable(at));
        let place = match of_status {
            Some(place) => place,
            None => self.target(request)?,
        };
        let pool = &self.pools[place];
        pool.withheld()?;
        let may_have = match pool.ranges() {
            Some(ranges) => ranges.usable(addr) && !self.holds.shows(id, addr),
            // Which are its own is not known.
            None => named.is_none_or(|name| *name == pool.name),
        };
        may_have.then(|| HeldBack {
            owner: request.owner.clone(),
            addr,
            pool: place,
        })
    }

    /// Claims the address if its pool is known to have it. Without that any tenant could block any address, by writing it into
    /// a status beside the name of a pool that cannot be decoded.
    fn claim_held_back(&mut self, held: &HeldBack) {
        let HeldBack { owner, addr, pool } = held;
        let hold = self.holds.get(*addr);
        let claim = hold.and_then(|hold| hold.claim.as_ref());
        let has_one = claim.is_some_and(|claim| claim.owner == *owner);
        let is_free = self.rival(*addr, &owner.id).is_none();
        if self.pools[*pool].usable(*addr) && is_free && !has_one {
            self.claim(*addr, owner.clone(), Evidence::Status);
        }
    }

    /// The pool at a place has changed: before anybody else is served from it, those who wait for it to tell have what they may
    /// have, and are woken.
    pub(super) fn wake_held_back(&mut self, pool: u32) {
        let of_pool = self.held_back.values().filter(|held| held.pool == pool);
        let woken: Vec<HeldBack> = of_pool.cloned().collect();
        for held in woken {
            self.claim_held_back(&held);
            self.held_back.remove(&held.owner.id);
            self.wake_requested.insert(held.owner.id);
        }
    }

    /// Somebody has taken the address: whoever waits to be told that it is its own is woken.
    pub(super) fn wake_held_back_at(&mut self, addr: IpAddr, taker: &OwnerId) {
        let at = self.held_back.values().filter(|held| held.addr == addr);
        let others = at.map(|held| &held.owner.id).filter(|id| *id != taker);
        self.wake_requested.extend(others.cloned());
    }

    /// The load balancer waits for nothing outside of the queues.
    pub(super) fn unstick(&mut self, id: &OwnerId) {
        self.blocked_by_record.remove(id);
        self.held_back.remove(id);
    }
}
