//! Decides about the address of a load balancer: one that it holds, else the one that `find` finds, which is reserved.

use std::net::IpAddr;

use super::Ledger;
use super::decision::{
    AddressConflict, AllocationReason, Decision, Grant, Request, Standing, WaitReason,
};
use super::find::{Candidate, NoAddress};
use super::holds::Reservation;
use super::queue::Age;
use super::records::RecordEntry;
use crate::addr;
use crate::range::Range;
use crate::select::{Explanation, PoolVerdict, Verdict};
use crate::types::{Micros, OwnerId, Phase, PoolName, Record, RecordSpec};

impl Ledger {
    /// Decides about a load balancer's address (ALC-1 to ALC-7, REL-4, IPA-6, REQ-2 to REQ-4).
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
        if let Some(addr) = request.requested {
            return self.decide_requested(request, addr, bound, now);
        }
        self.leave_asking(id);
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
            Err(none) => self.waits_without(request, none, extra_records),
        }
    }

    /// The decision for a load balancer without an address.
    pub(super) fn waits_without(
        &mut self,
        request: &Request,
        none: NoAddress,
        extra_records: Vec<Record>,
    ) -> Decision {
        let id = &request.owner.id;
        match none {
            NoAddress::Unreadable { addr, pool } => {
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
            NoAddress::HeldBack(held) => {
                self.leave_queue(id);
                let pool = held.pool;
                self.held_back.insert(held);
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
            NoAddress::Wait {
                reason,
                address_conflict,
            } => {
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

    /// ALC-1, IPA-3, IPA-6, REL-4, SEL-8: chooses the Bound record of this id to keep: of the
    /// requested pool, if it names one; of this uid before an earlier one; the one that the status
    /// names, else the lowest. No pool is selected. Of an earlier load balancer of the name only an address that this one can
    /// have (BE-7, SHR-6), or that its status names.
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
            .filter(|(_, entry)| {
                entry.owner.uid == request.owner.uid
                    || Some(entry.addr) == named
                    || (request.takes(entry.addr) && self.may_inherit(request, entry))
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

    /// The decision for a load balancer with a Bound record: it keeps the address, whatever the selectors say now (SEL-8).
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
        record.spec.group = None;
        Decision::Adopt {
            grant,
            record,
            extra_records,
        }
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
        let stale = match self.pools.find(&pool) {
            Some(at) if reason != AllocationReason::Recorded => self.unusable(&owner.id, at),
            _ => Vec::new(),
        };
        let replaces = self.records.get(addr).map(|entry| entry.version);
        let phase = Phase::Bound;
        let spec = RecordSpec {
            addr,
            pool,
            owner,
            phase,
            bound_at,
            released_at: None,
            group: None,
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

    /// ALC-6, IPA-7, EXC-3: the grant, with the pool's present mask and gateway.
    pub(super) fn grant(
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
        let is_lost = match ranges {
            Some(ranges) => !ranges.usable(addr),
            None => pool.is_none_or(|pool| pool.spec.is_none()),
        };
        let standing = if !is_lost {
            Standing::InPool
        } else if ranges.is_some_and(|ranges| ranges.excludes(addr)) {
            Standing::Excluded
        } else {
            Standing::OutOfPool
        };
        Grant {
            addr,
            pool: name.clone(),
            mask: range.map(Range::mask),
            gateway: range.and_then(Range::gateway),
            standing,
            address_conflict,
            unserved: None,
        }
    }
}
