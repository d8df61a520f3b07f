//! Finds the address of a load balancer without a Bound record, in this order: one that is reserved for it, one that it
//! claims, the one that its status names, one that it had, a free one.

use std::net::IpAddr;

use super::Ledger;
use super::decision::{AddressConflict, AllocationReason, Evidence, Request, WaitReason};
use super::held_back_lbs::HeldBack;
use super::holds::Reservation;
use super::records::RecordEntry;
use crate::types::{OwnerId, PoolName, Record};

/// An address that can be allocated, before it is reserved.
pub(super) struct Candidate {
    pub(super) addr: IpAddr,
    pub(super) pool: PoolName,
    pub(super) reason: AllocationReason,
    pub(super) address_conflict: Option<AddressConflict>,
}

impl Candidate {
    pub(super) fn new(
        addr: IpAddr,
        pool: PoolName,
        reason: AllocationReason,
        address_conflict: Option<AddressConflict>,
    ) -> Self {
        Self {
            addr,
            pool,
            reason,
            address_conflict,
        }
    }
}

/// Why there is no address.
pub(super) enum NoAddress {
    /// None is available now.
    Wait {
        reason: WaitReason,
        address_conflict: Option<AddressConflict>,
    },
    /// IPA-1: the record of its address cannot be read.
    Unreadable { addr: IpAddr, pool: PoolName },
    /// EXC-1, POOL-2: the address that its status names may be its own, and its pool cannot confirm that now.
    HeldBack(HeldBack),
}

impl NoAddress {
    fn new(reason: WaitReason) -> Self {
        Self::Wait {
            reason,
            address_conflict: None,
        }
    }
}

impl Ledger {
    /// The address that is already reserved for this load balancer, if it still matches the request.
    pub(super) fn reserved(&mut self, request: &Request) -> Option<Candidate> {
        for addr in self.holds.of(&request.owner.id) {
            let Some(reservation) = self
                .holds
                .get(addr)
                .and_then(|hold| hold.reservation.clone())
            else {
                continue;
            };
            let Reservation {
                owner,
                pool,
                reason,
                ..
            } = reservation;
            let demanded = request
                .pool
                .as_ref()
                .is_none_or(|demanded| *demanded == pool);
            // EXC-1: a proposal of which no record was observed is still something new, unless it had the address and its own
            // Service shows it.
            let had_it =
                reason == AllocationReason::Sticky && self.holds.shows(&request.owner.id, addr);
            let usable = reason == AllocationReason::Recorded
                || self
                    .pools
                    .by_name(&pool)
                    .is_some_and(|pool| pool.usable(addr) && (had_it || pool.withheld().is_none()));
            // REQ-4: an address that it has already stays, whatever it requests.
            let is_present = reason == AllocationReason::Recorded && request.requested.is_some();
            let asked = is_present || request.requested.is_none_or(|asked| asked == addr);
            if owner == request.owner && (demanded || is_present) && asked && usable {
                let address_conflict = self.address_conflict(request, addr, &pool);
                return Some(Candidate::new(addr, pool, reason, address_conflict));
            }
            if owner == request.owner {
                self.abandon(&request.owner.id, addr);
            }
        }
        None
    }

    /// Finds an address for a load balancer that has none.
    pub(super) fn find(&mut self, request: &Request, moving: bool) -> Result<Candidate, NoAddress> {
        if let Some(candidate) = self.claimed(request, false)? {
            return Ok(candidate);
        }
        if let Some(none) = self.unreadable(request) {
            return Err(none);
        }
        let Some(at) = self.target(request) else {
            return Err(NoAddress::new(WaitReason::NoMatchedPool));
        };
        let pool = &self.pools[at];
        if pool.ranges().is_none() {
            return Err(NoAddress::new(self.queue_reason(Some(at))));
        }
        let reason = self.queue_reason(Some(at));
        if reason == WaitReason::NoAvailableIp && !pool.suits(request.workload) {
            return Err(NoAddress::new(WaitReason::AddressFamilyMismatch));
        }
        let name = pool.name.clone();
        let id = &request.owner.id;
        let mut address_conflict = None;
        let room = pool.room(request);
        let refuse = |address_conflict| {
            Err(NoAddress::Wait {
                reason,
                address_conflict,
            })
        };
        // An address that is held, if only by its own Service, is none of the free ones that older ones wait for.
        let is_awaited = |addr| self.askers.await_it(addr);
        let allowed = |addr| self.holds.contains(addr) || (room.has(addr) && !is_awaited(addr));

        if let Some(addr) = self.status_to_consider(request) {
            address_conflict = self.address_conflict(request, addr, &name);
            if address_conflict.is_none() && pool.usable(addr) && request.takes(addr) {
                if allowed(addr) {
                    return Ok(Candidate::new(
                        addr,
                        name,
                        AllocationReason::Recorded,
                        address_conflict,
                    ));
                }
                // Older load balancers get all free addresses of its family. This one waits only if it cannot have
                // one of the other family.
                if !room.is_any() {
                    return refuse(None);
                }
            }
        }

        for addr in self.remembered(id, at) {
            if allowed(addr) && request.takes(addr) {
                let reason = AllocationReason::Sticky;
                return Ok(Candidate::new(addr, name, reason, address_conflict));
            }
        }
        if !room.is_any() {
            return refuse(address_conflict);
        }
        let allocation = if moving {
            AllocationReason::Moved
        } else {
            AllocationReason::Fresh
        };
        match pool.next_free(&self.taken, room) {
            Some(addr) => Ok(Candidate::new(addr, name, allocation, address_conflict)),
            None => refuse(address_conflict),
        }
    }

    /// IPA-1, IPA-7, ALC-7: an address that this load balancer claims without a record. It is not
    /// free, so the queue does not matter. With `keep` (ALC-10) it need not be of the requested pool.
    pub(super) fn claimed(
        &mut self,
        request: &Request,
        keep: bool,
    ) -> Result<Option<Candidate>, NoAddress> {
        let named = request.status.as_ref().map(|status| status.addr);
        let mut addrs = self.holds.of(&request.owner.id);
        addrs.sort_by_key(|addr| Some(*addr) != named);
        for addr in addrs {
            let Some(claim) = self.holds.get(addr).and_then(|hold| hold.claim.as_ref()) else {
                continue;
            };
            if claim.owner != request.owner {
                continue;
            }
            let evidence = claim.evidence.clone();
            let pool = match evidence {
                Evidence::Trusted(pool) => request
                    .pool
                    .as_ref()
                    .is_none_or(|demanded| keep || *demanded == pool)
                    .then_some(pool),
                Evidence::Status => self
                    .pool_of_present(request, addr)
                    .map(|at| &self.pools[at])
                    .filter(|pool| pool.usable(addr))
                    // EXC-1: a list that cannot be read may exclude it.
                    .filter(|pool| {
                        pool.withheld().is_none() || self.holds.shows(&request.owner.id, addr)
                    })
                    .map(|pool| pool.name.clone()),
            };
            let Some(pool) = pool else {
                continue;
            };
            if self.holds.is_blocked(addr) {
                return Err(NoAddress::Unreadable { addr, pool });
            }
            // The others give way, as they do once it is taken, before the conflict is looked for.
            self.drop_holds(&request.owner.id, |other, _| other != addr);
            let address_conflict = self.address_conflict(request, addr, &pool);
            return Ok(Some(Candidate::new(
                addr,
                pool,
                AllocationReason::Recorded,
                address_conflict,
            )));
        }
        if let Some(held) = self.hold_back(request) {
            return Err(NoAddress::HeldBack(held));
        }
        // Holds that led to no address must not block it for others, nor for this load balancer's own search.
        self.drop_holds(&request.owner.id, |_, _| true);
        Ok(None)
    }

    /// IPA-1: the address that the status names, if its record cannot be read and so may be this load balancer's: of the pool that the
    /// status names, whatever the selectors choose now (SEL-8), and whether it is still an address of that (IPA-7); without one, of the
    /// pool that serves the load balancer.
    pub(super) fn unreadable(&mut self, request: &Request) -> Option<NoAddress> {
        let addr = self.status_to_consider(request)?;
        if !self.holds.is_blocked(addr) || self.is_of_another(addr, &request.owner.id) {
            return None;
        }
        let status = request.status.as_ref();
        let named = status.and_then(|status| status.pool.clone());
        let demanded = |pool: &PoolName| request.pool.as_ref().is_none_or(|it| it == pool);
        let pool = named.filter(demanded).or_else(|| {
            let at = self.pool_of_present(request, addr)?;
            let pool = &self.pools[at];
            pool.usable(addr).then(|| pool.name.clone())
        })?;
        Some(NoAddress::Unreadable { addr, pool })
    }

    /// ALC-2: the free addresses that this id had in the pool, ascending.
    fn remembered(&self, id: &OwnerId, at: u32) -> Vec<IpAddr> {
        let pool = &self.pools[at];
        let is_free = |addr| self.holds.rival(addr, id).is_none() && !self.holds.is_blocked(addr);
        let released = self.released_of(id, at).map(|entry| entry.addr);
        let mut addrs: Vec<IpAddr> = released
            .filter(|addr| pool.usable(*addr) && is_free(*addr))
            .collect();
        addrs.sort_unstable();
        addrs
    }

    /// ALC-2: the records of the addresses that this id had in the pool and that cannot be used any more, ascending: out of range now, a
    /// gateway, or excluded (EXC-2). They are deleted with its next allocation there.
    pub(super) fn unusable(&self, id: &OwnerId, at: u32) -> Vec<Record> {
        let pool = &self.pools[at];
        let unusable = self
            .released_of(id, at)
            .filter(|entry| !pool.usable(entry.addr));
        let mut records: Vec<Record> = unusable.map(|entry| self.to_record(entry)).collect();
        records.sort_unstable_by_key(|record| record.spec.addr);
        records
    }

    fn released_of<'a>(
        &'a self,
        id: &'a OwnerId,
        at: u32,
    ) -> impl Iterator<Item = &'a RecordEntry> {
        self.records
            .of(id)
            .filter(move |entry| !entry.is_bound() && entry.pool == at)
    }
}
