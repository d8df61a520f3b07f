//! Finds the address of a load balancer, in this order: one that it holds, one that it had, a free one.

use std::net::IpAddr;

use super::Ledger;
use super::decision::{
    AddressConflict, AllocationReason, Decision, Evidence, Grant, Request, WaitReason,
};
use super::holds::{HeldBack, Reservation};
use super::queue::Age;
use super::records::RecordEntry;
use crate::addr;
use crate::range::Range;
use crate::select::{Explanation, PoolVerdict, Verdict};
use crate::types::{Micros, OwnerId, Phase, PoolName, Record, RecordSpec};

/// An address that can be allocated, before it is reserved.
pub(super) struct Candidate {
    addr: IpAddr,
    pool: PoolName,
    reason: AllocationReason,
    address_conflict: Option<AddressConflict>,
    /// Records to delete (ALC-2).
    stale: Vec<Record>,
}

impl Candidate {
    pub(super) fn new(
        addr: IpAddr,
        pool: PoolName,
        reason: AllocationReason,
        address_conflict: Option<AddressConflict>,
    ) -> Self {
        let stale = Vec::new();
        Self {
            addr,
            pool,
            reason,
            address_conflict,
            stale,
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
    /// IPA-9: the address that its status names may be its own, and its pool cannot confirm that now.
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
    /// Decides about a load balancer's address (ALC-1 to ALC-7, REL-4, IPA-6).
    ///
    /// Idempotent: a proposed address stays reserved until its record is observed, the load
    /// balancer is withdrawn, or its request changes. A load balancer without an address is put
    /// into the queue of the pool that it waits for.
    pub fn decide(&mut self, request: &Request, now: Micros) -> Decision {
        self.reselect_waiters();
        let id = &request.owner.id;
        // Only one load balancer of a name exists at a time: the holds of an earlier one are void.
        self.drop_holds(id, |_, owner| owner.uid != request.owner.uid);
        self.leave_waiting_sets(id);
        if self
            .waiting
            .get(id)
            .is_some_and(|(_, age)| *age != Age::of(request))
        {
            self.leave_queue(id);
        }

        let mut bound = self.bound_of(id);
        if let Some(kept) = self.choose_bound(request, &bound) {
            let kept = bound.swap_remove(kept);
            self.leave_queue(id);
            self.drop_holds(id, |_, _| true);
            return self.held(request, &kept, &bound);
        }
        let extra_records = self.to_records(&mut bound);
        let moving = extra_records
            .iter()
            .any(|record| record.spec.owner == request.owner);
        match self
            .reserved(request)
            .map_or_else(|| self.find(request, moving), Ok)
        {
            Ok(candidate) => {
                self.leave_queue(id);
                self.take(request, candidate, extra_records, now)
            }
            Err(NoAddress::Unreadable { addr, pool }) => {
                self.leave_queue(id);
                self.blocked_by_record.insert(id.clone(), addr);
                let verdict = Verdict::RecordUnreadable {
                    record: addr::record_name(addr),
                };
                let explanation = Explanation::new(vec![PoolVerdict { pool, verdict }], 1);
                let reason = WaitReason::RecordUnreadable;
                Decision::Wait {
                    reason,
                    explanation,
                    address_conflict: None,
                    extra_records,
                    keep_service: true,
                }
            }
            Err(NoAddress::HeldBack(held)) => {
                self.leave_queue(id);
                let pool = held.pool;
                self.held_back.insert(id.clone(), held);
                let of_pool = Request {
                    pool: Some(self.pools[pool].name.clone()),
                    ..request.clone()
                };
                Decision::Wait {
                    reason: self.queue_reason(Some(pool)),
                    explanation: self.explain_to(&of_pool),
                    address_conflict: None,
                    extra_records,
                    keep_service: true,
                }
            }
            Err(NoAddress::Wait {
                reason,
                address_conflict,
            }) => {
                let explanation = self.explain_to(request);
                self.enqueue_waiter(request.clone(), Some(&explanation));
                Decision::Wait {
                    reason,
                    explanation,
                    address_conflict,
                    extra_records,
                    keep_service: false,
                }
            }
        }
    }

    pub(super) fn bound_of(&self, id: &OwnerId) -> Vec<RecordEntry> {
        let bound = self.records.of(id).filter(|entry| entry.is_bound());
        bound.cloned().collect()
    }

    /// ALC-1, IPA-3, IPA-6, REL-4: chooses the Bound record of this id to keep: of the requested
    /// pool; of this uid before an earlier one; the one that the status names, else the lowest.
    pub(super) fn choose_bound(&self, request: &Request, bound: &[RecordEntry]) -> Option<usize> {
        let named = request.status.as_ref().map(|status| status.addr);
        bound
            .iter()
            .enumerate()
            .filter(|(_, entry)| {
                request
                    .pool
                    .as_ref()
                    .is_none_or(|pool| *pool == self.pools[entry.pool].name)
            })
            .min_by_key(|(_, entry)| {
                (
                    entry.owner.uid != request.owner.uid,
                    Some(entry.addr) != named,
                    entry.addr,
                )
            })
            .map(|(at, _)| at)
    }

    pub(super) fn to_records(&self, entries: &mut [RecordEntry]) -> Vec<Record> {
        entries.sort_unstable_by_key(|entry| entry.addr);
        entries.iter().map(|entry| self.to_record(entry)).collect()
    }

    /// The decision for a load balancer with a Bound record.
    pub(super) fn held(
        &self,
        request: &Request,
        kept: &RecordEntry,
        others: &[RecordEntry],
    ) -> Decision {
        let address_conflict = request
            .status
            .as_ref()
            .filter(|status| status.addr != kept.addr)
            .and_then(|status| {
                let holder = self.rival(status.addr, &request.owner.id)?.clone();
                Some(AddressConflict {
                    addr: status.addr,
                    holder: Some(holder),
                })
            });
        let grant = self.grant(kept.addr, &self.pools[kept.pool].name, address_conflict);
        let extra_records = self.to_records(&mut others.to_vec());
        if kept.owner.uid == request.owner.uid {
            return Decision::Held {
                grant,
                extra_records,
            };
        }
        let mut record = self.to_record(kept);
        record.spec.owner = request.owner.clone();
        Decision::Adopt {
            grant,
            record,
            extra_records,
        }
    }

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
            let usable = reason == AllocationReason::Recorded
                || self
                    .pools
                    .by_name(&pool)
                    .is_some_and(|pool| pool.usable(addr));
            if owner == request.owner && demanded && usable {
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
    fn find(&mut self, request: &Request, moving: bool) -> Result<Candidate, NoAddress> {
        if let Some(candidate) = self.claimed(request, false)? {
            return Ok(candidate);
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
        // A taken address, if only by its own Service, is none of the free ones that older ones wait for.
        let allowed = |addr| room.has(addr) || self.taken.contains(addr);

        if let Some(addr) = self.status_to_consider(request) {
            address_conflict = self.address_conflict(request, addr, &name);
            if address_conflict.is_none() && pool.usable(addr) && request.takes(addr) {
                if self.holds.is_blocked(addr) {
                    return Err(NoAddress::Unreadable { addr, pool: name });
                }
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

        let (remembered, stale) = self.remembered(id, at);
        for addr in remembered {
            if allowed(addr) && request.takes(addr) {
                return Ok(Candidate {
                    addr,
                    pool: name,
                    reason: AllocationReason::Sticky,
                    address_conflict,
                    stale,
                });
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
            Some(addr) => Ok(Candidate {
                addr,
                pool: name,
                reason: allocation,
                address_conflict,
                stale,
            }),
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
                    .target(request)
                    .map(|at| &self.pools[at])
                    .filter(|pool| pool.usable(addr))
                    // IPA-9: the unsupported annotation may exclude it from allocation.
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

    /// ALC-2: the free addresses that this id had in the pool, ascending, and its records that
    /// cannot be used any more: out of range now, or a gateway.
    fn remembered(&self, id: &OwnerId, at: u32) -> (Vec<IpAddr>, Vec<Record>) {
        let pool = &self.pools[at];
        let (mut usable, mut stale) = (Vec::new(), Vec::new());
        for entry in self
            .records
            .of(id)
            .filter(|entry| !entry.is_bound() && entry.pool == at)
        {
            if !pool.usable(entry.addr) {
                stale.push(self.to_record(entry));
            } else if self.holds.rival(entry.addr, id).is_none()
                && !self.holds.is_blocked(entry.addr)
            {
                usable.push(entry.addr);
            }
        }
        usable.sort_unstable();
        stale.sort_unstable_by_key(|record| record.spec.addr);
        (usable, stale)
    }

    /// Reserves an address and returns the record to write (ALC-4, ALC-8).
    pub(super) fn take(
        &mut self,
        request: &Request,
        candidate: Candidate,
        extra_records: Vec<Record>,
        now: Micros,
    ) -> Decision {
        let Candidate {
            addr,
            pool,
            reason,
            address_conflict,
            stale,
        } = candidate;
        let known = self
            .holds
            .get(addr)
            .and_then(|hold| hold.reservation.as_ref());
        let known = known
            .filter(|it| it.owner == request.owner)
            .map(|it| it.bound_at);
        let bound_at = known.unwrap_or_else(|| {
            // Strictly increasing, so that records show the order of the allocations.
            self.last_bound_at = now.max(Micros(self.last_bound_at.0.saturating_add(1)));
            self.last_bound_at
        });
        let owner = request.owner.clone();
        // A claim on this address stays until its record is observed.
        self.drop_holds(&owner.id, |other, _| other != addr);
        let reservation = Reservation {
            owner: owner.clone(),
            pool: pool.clone(),
            reason,
            bound_at,
        };
        self.holds.reserve(addr, reservation);
        self.sync_taken(addr);
        let grant = self.grant(addr, &pool, address_conflict);
        let replaces = self.records.get(addr).map(|entry| entry.version);
        let phase = Phase::Bound;
        let spec = RecordSpec {
            addr,
            pool,
            owner,
            phase,
            bound_at,
            released_at: None,
        };
        Decision::Take {
            grant,
            spec,
            replaces,
            reason,
            extra_records,
            stale,
        }
    }

    /// ALC-6, IPA-7: the grant, with the pool's present mask and gateway.
    fn grant(
        &self,
        addr: IpAddr,
        name: &PoolName,
        address_conflict: Option<AddressConflict>,
    ) -> Grant {
        let pool = self.pools.by_name(name);
        let ranges = pool.and_then(|pool| pool.ranges());
        let range = ranges.and_then(|ranges| {
            ranges
                .range_of(addr)
                .or_else(|| ranges.range_by_subnet(addr))
        });
        let invalid = pool.is_some_and(|pool| pool.spec.is_some() && ranges.is_none());
        Grant {
            addr,
            pool: name.clone(),
            mask: range.map(Range::mask),
            gateway: range.and_then(Range::gateway),
            out_of_pool: !invalid && !ranges.is_some_and(|ranges| ranges.usable(addr)),
            address_conflict,
        }
    }
}
