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
pub(super) struct Find {
    addr: IpAddr,
    pool: PoolName,
    why: AllocationReason,
    lost: Option<AddressConflict>,
    /// Records to delete (ALC-2).
    stale: Vec<Record>,
}

impl Find {
    pub(super) fn new(
        addr: IpAddr,
        pool: PoolName,
        why: AllocationReason,
        lost: Option<AddressConflict>,
    ) -> Self {
        let stale = Vec::new();
        Self {
            addr,
            pool,
            why,
            lost,
            stale,
        }
    }
}

/// Why there is no address.
pub(super) enum Refusal {
    /// None is available now.
    Wait {
        reason: WaitReason,
        lost: Option<AddressConflict>,
    },
    /// IPA-1: the record of its address cannot be read.
    Unreadable { addr: IpAddr, pool: PoolName },
    /// IPA-9: the address that its status names may be its own, and its pool cannot confirm that now.
    HeldBack(HeldBack),
}

impl Refusal {
    fn new(reason: WaitReason) -> Self {
        Self::Wait { reason, lost: None }
    }
}

impl Ledger {
    /// Decides about a load balancer's address (ALC-1 to ALC-7, REL-4, IPA-6).
    ///
    /// Idempotent: a proposed address stays reserved until its record is observed, the load
    /// balancer is withdrawn, or its request changes. A load balancer without an address is put
    /// into the queue of the pool that it waits for.
    pub fn decide(&mut self, request: &Request, now: Micros) -> Decision {
        self.settle();
        let id = &request.owner.id;
        // Only one load balancer of a name exists at a time: the holds of an earlier one are void.
        self.drop_holds(id, |_, owner| owner.uid != request.owner.uid);
        self.unstick(id);
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
        let surplus = self.to_records(&mut bound);
        let moving = surplus
            .iter()
            .any(|record| record.spec.owner == request.owner);
        match self
            .reserved(request)
            .map_or_else(|| self.find(request, moving), Ok)
        {
            Ok(find) => {
                self.leave_queue(id);
                self.take(request, find, surplus, now)
            }
            Err(Refusal::Unreadable { addr, pool }) => {
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
                    lost: None,
                    surplus,
                    stays: true,
                }
            }
            Err(Refusal::HeldBack(held)) => {
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
                    lost: None,
                    surplus,
                    stays: true,
                }
            }
            Err(Refusal::Wait { reason, lost }) => {
                let explanation = self.explain_to(request);
                self.enqueue_waiter(request.clone(), Some(&explanation));
                Decision::Wait {
                    reason,
                    explanation,
                    lost,
                    surplus,
                    stays: false,
                }
            }
        }
    }

    pub(super) fn bound_of(&self, id: &OwnerId) -> Vec<RecordEntry> {
        let bound = self.records.of(id).filter(|slot| slot.is_bound());
        bound.cloned().collect()
    }

    /// ALC-1, IPA-3, IPA-6, REL-4: chooses the Bound record of this id to keep: of the requested
    /// pool; of this uid before an earlier one; the one that the status names, else the lowest.
    pub(super) fn choose_bound(&self, request: &Request, bound: &[RecordEntry]) -> Option<usize> {
        let named = request.status.as_ref().map(|status| status.addr);
        bound
            .iter()
            .enumerate()
            .filter(|(_, slot)| {
                request
                    .pool
                    .as_ref()
                    .is_none_or(|pool| *pool == self.pools[slot.pool].name)
            })
            .min_by_key(|(_, slot)| {
                (
                    slot.owner.uid != request.owner.uid,
                    Some(slot.addr) != named,
                    slot.addr,
                )
            })
            .map(|(at, _)| at)
    }

    pub(super) fn to_records(&self, slots: &mut [RecordEntry]) -> Vec<Record> {
        slots.sort_unstable_by_key(|slot| slot.addr);
        slots.iter().map(|slot| self.to_record(slot)).collect()
    }

    /// The decision for a load balancer with a Bound record.
    pub(super) fn held(
        &self,
        request: &Request,
        kept: &RecordEntry,
        others: &[RecordEntry],
    ) -> Decision {
        let lost = request
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
        let grant = self.grant(kept.addr, &self.pools[kept.pool].name, lost);
        let surplus = self.to_records(&mut others.to_vec());
        if kept.owner.uid == request.owner.uid {
            return Decision::Held { grant, surplus };
        }
        let mut record = self.to_record(kept);
        record.spec.owner = request.owner.clone();
        Decision::Adopt {
            grant,
            record,
            surplus,
        }
    }

    /// The address that is already reserved for this load balancer, if it still matches the request.
    pub(super) fn reserved(&mut self, request: &Request) -> Option<Find> {
        for addr in self.holds.of(&request.owner.id) {
            let Some(reservation) = self
                .holds
                .get(addr)
                .and_then(|hold| hold.reservation.clone())
            else {
                continue;
            };
            let Reservation {
                owner, pool, why, ..
            } = reservation;
            let demanded = request
                .pool
                .as_ref()
                .is_none_or(|demanded| *demanded == pool);
            let usable = why == AllocationReason::Recorded
                || self
                    .pools
                    .by_name(&pool)
                    .is_some_and(|pool| pool.usable(addr));
            if owner == request.owner && demanded && usable {
                let lost = self.address_conflict(request, addr, &pool);
                return Some(Find::new(addr, pool, why, lost));
            }
            if owner == request.owner {
                self.abandon(&request.owner.id, addr);
            }
        }
        None
    }

    /// Finds an address for a load balancer that has none.
    fn find(&mut self, request: &Request, moving: bool) -> Result<Find, Refusal> {
        if let Some(find) = self.claimed(request, false)? {
            return Ok(find);
        }
        let Some(at) = self.target(request) else {
            return Err(Refusal::new(WaitReason::NoMatchedPool));
        };
        let pool = &self.pools[at];
        if pool.ranges().is_none() {
            return Err(Refusal::new(self.queue_reason(Some(at))));
        }
        let reason = self.queue_reason(Some(at));
        if reason == WaitReason::NoAvailableIp && !pool.suits(request.workload) {
            return Err(Refusal::new(WaitReason::AddressFamilyMismatch));
        }
        let name = pool.name.clone();
        let id = &request.owner.id;
        let mut lost = None;
        let room = pool.room(request);
        let refuse = |lost| Err(Refusal::Wait { reason, lost });
        // A taken address, if only by its own Service, is none of the free ones that older ones wait for.
        let allowed = |addr| room.has(addr) || self.taken.contains(addr);

        if let Some(addr) = self.status_to_consider(request) {
            lost = self.address_conflict(request, addr, &name);
            if lost.is_none() && pool.usable(addr) && request.takes(addr) {
                if self.holds.is_blocked(addr) {
                    return Err(Refusal::Unreadable { addr, pool: name });
                }
                if allowed(addr) {
                    return Ok(Find::new(addr, name, AllocationReason::Recorded, lost));
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
                return Ok(Find {
                    addr,
                    pool: name,
                    why: AllocationReason::Sticky,
                    lost,
                    stale,
                });
            }
        }
        if !room.is_any() {
            return refuse(lost);
        }
        let why = if moving {
            AllocationReason::Moved
        } else {
            AllocationReason::Fresh
        };
        match pool.next_free(&self.taken, room) {
            Some(addr) => Ok(Find {
                addr,
                pool: name,
                why,
                lost,
                stale,
            }),
            None => refuse(lost),
        }
    }

    /// IPA-1, IPA-7, ALC-7: an address that this load balancer claims without a record. It is not
    /// free, so the queue does not matter. With `keep` (ALC-10) it need not be of the requested pool.
    pub(super) fn claimed(
        &mut self,
        request: &Request,
        keep: bool,
    ) -> Result<Option<Find>, Refusal> {
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
                return Err(Refusal::Unreadable { addr, pool });
            }
            let lost = self.address_conflict(request, addr, &pool);
            return Ok(Some(Find::new(
                addr,
                pool,
                AllocationReason::Recorded,
                lost,
            )));
        }
        if let Some(held) = self.hold_back(request) {
            return Err(Refusal::HeldBack(held));
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
        for slot in self
            .records
            .of(id)
            .filter(|slot| !slot.is_bound() && slot.pool == at)
        {
            if !pool.usable(slot.addr) {
                stale.push(self.to_record(slot));
            } else if self.holds.rival(slot.addr, id).is_none() && !self.holds.is_blocked(slot.addr)
            {
                usable.push(slot.addr);
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
        find: Find,
        surplus: Vec<Record>,
        now: Micros,
    ) -> Decision {
        let Find {
            addr,
            pool,
            why,
            lost,
            stale,
        } = find;
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
            why,
            bound_at,
        };
        self.holds.reserve(addr, reservation);
        self.sync_taken(addr);
        let grant = self.grant(addr, &pool, lost);
        let over = self.records.get(addr).map(|slot| slot.version);
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
            over,
            why,
            surplus,
            stale,
        }
    }

    /// ALC-6, IPA-7: the grant, with the pool's present mask and gateway.
    fn grant(&self, addr: IpAddr, name: &PoolName, lost: Option<AddressConflict>) -> Grant {
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
            lost,
        }
    }
}
