//! The address that a load balancer requests (REQ-1 to REQ-4): whether it gets it, and why not.
//!
//! It gets no other address. While it waits it is in no pool's queue: it would block others there that can be served. Once the
//! address is free it is kept for the oldest of those that ask for it and that a pool would serve.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::askers::Asker;
use super::decision::{AddressConflict, AllocationReason, Decision, Request, WaitReason};
use super::find::{Candidate, NoAddress};
use super::queue::Age;
use super::records::RecordEntry;
use super::{Ledger, outdated};
use crate::addr;
use crate::select::{self, Explanation, PoolVerdict, Verdict};
use crate::types::{Micros, OwnerId, PoolName};

/// Whether a load balancer gets the address.
enum Answer {
    /// This pool allocates it now.
    Free(PoolName),
    /// Not now: why. `is_served`: the pool allocates it once it is free.
    No {
        explanation: Explanation,
        is_served: bool,
    },
}

impl Ledger {
    /// Decides about a load balancer that requests an address. `bound`: the Bound records of its id.
    pub(super) fn decide_requested(
        &mut self,
        request: &Request,
        addr: IpAddr,
        bound: Vec<RecordEntry>,
        now: Micros,
    ) -> Decision {
        let decision = self.decide_about(request, addr, bound, now);
        // The request for a missing pool may have interned its name.
        if let Some(at) = request.pool.as_ref().and_then(|pool| self.pools.find(pool)) {
            self.pools.tidy(at);
        }
        decision
    }

    fn decide_about(
        &mut self,
        request: &Request,
        addr: IpAddr,
        mut bound: Vec<RecordEntry>,
        now: Micros,
    ) -> Decision {
        let id = &request.owner.id;
        // An earlier load balancer of the name is no rival, nor is this one for the address that it requested before.
        let known = self.askers.get(id);
        if known.is_some_and(|it| Age::of(&it.request) != Age::of(request) || it.addr != addr) {
            self.leave_asking(id);
        }
        let is_pool_s = |ledger: &Self, entry: &RecordEntry| {
            let pool = &ledger.pools[entry.pool].name;
            request.pool.as_ref().is_none_or(|named| named == pool)
        };
        // BE-7: of an earlier load balancer of the name only what this one can have, or its status names.
        let may_have = |entry: &RecordEntry| {
            entry.owner.uid == request.owner.uid
                || request.names(addr)
                || (request.takes(addr) && self.may_inherit(request, entry))
        };
        let has = bound.iter().position(|entry| entry.addr == addr);
        if let Some(at) = has.filter(|at| is_pool_s(self, &bound[*at]) && may_have(&bound[*at])) {
            let kept = bound.swap_remove(at);
            self.leave_queue(id);
            self.leave_asking(id);
            self.drop_holds(id, |_, _| true);
            return self.held(request, &kept, &bound);
        }
        self.leave_queue(id);
        if bound.is_empty() {
            // REQ-4: an address that it has without a record is recorded first, and moved afterwards.
            match self.present(request) {
                Ok(Some(candidate)) => {
                    self.leave_asking(id);
                    return self.take(request, candidate, Vec::new(), now);
                }
                Ok(None) => {}
                Err(none) => {
                    self.leave_asking(id);
                    return self.waits_without(request, none, Vec::new());
                }
            }
        } else if let Some(candidate) = self.reserved(request) {
            self.leave_asking(id);
            let extra_records = self.to_records(&mut bound);
            return self.take(request, candidate, extra_records, now);
        }
        match self.answer(request, addr) {
            Answer::Free(pool) => {
                self.leave_asking(id);
                let is_own = |entry: &RecordEntry| entry.owner == request.owner;
                let reason = if bound.iter().any(is_own) {
                    AllocationReason::Moved
                } else if self.remembers(id, addr) {
                    AllocationReason::Sticky
                } else {
                    AllocationReason::Fresh
                };
                let address_conflict = self.address_conflict(request, addr, &pool);
                let candidate = Candidate::new(addr, pool, reason, address_conflict);
                let extra_records = self.to_records(&mut bound);
                self.take(request, candidate, extra_records, now)
            }
            Answer::No {
                explanation,
                is_served,
            } => {
                let kept = self.kept(request, &bound);
                let asker = Asker {
                    addr,
                    request: request.clone(),
                    is_served,
                    has_address: kept.is_some(),
                    explanation_digest: Some(outdated::digest(&explanation)),
                };
                self.ask(asker);
                self.kept_or_none(request, bound, kept, explanation)
            }
        }
    }

    /// The address that a load balancer without a Bound record has (IPA-1, ALC-7).
    fn present(&mut self, request: &Request) -> Result<Option<Candidate>, NoAddress> {
        if let Some(candidate) = self.reserved(request) {
            return Ok(Some(candidate));
        }
        if let Some(candidate) = self.claimed(request, true)? {
            return Ok(Some(candidate));
        }
        if let Some(candidate) = self.shown_or_named(request)
            && request.takes(candidate.addr)
            && !self.was_of_earlier(request, candidate.addr)
        {
            return Ok(Some(candidate));
        }
        // As without a request: what is unreadable may be its own.
        self.unreadable(request).map_or(Ok(None), Err)
    }

    /// The place of the pool that serves a load balancer which has this address without a record: that of the request if it
    /// requests the same (REQ-2), else the one that serves it.
    pub(super) fn pool_of_present(&mut self, request: &Request, addr: IpAddr) -> Option<u32> {
        if request.pool.is_none() && request.requested == Some(addr) {
            return self.requested_pool(request, addr);
        }
        self.target(request)
    }

    /// Which of these Bound records a load balancer keeps while it cannot have what it requests: its own, or one of an earlier load
    /// balancer of its name that its status names (IPA-3). What an earlier one left is no reason to give it another address (REQ-3).
    fn kept(&self, request: &Request, bound: &[RecordEntry]) -> Option<usize> {
        let anywhere = Request {
            pool: None,
            ..request.clone()
        };
        let at = self.choose_bound(&anywhere, bound)?;
        let entry = &bound[at];
        let is_named = request.names(entry.addr);
        (entry.owner.uid == request.owner.uid || is_named).then_some(at)
    }

    /// REQ-4: the decision for one whose requested address cannot be had: the present one, of the record at `kept`, stays.
    fn kept_or_none(
        &mut self,
        request: &Request,
        mut bound: Vec<RecordEntry>,
        kept: Option<usize>,
        explanation: Explanation,
    ) -> Decision {
        if let Some(at) = kept {
            let kept = bound.swap_remove(at);
            self.drop_holds(&request.owner.id, |_, _| true);
            let mut decision = self.held(request, &kept, &bound);
            if let Decision::Held { grant, .. } | Decision::Adopt { grant, .. } = &mut decision {
                grant.unserved = Some(explanation);
            }
            return decision;
        }
        let address_conflict = self.conflict_of_waiter(request);
        Decision::Wait {
            reason: WaitReason::RequestedAddressUnavailable,
            explanation,
            address_conflict,
            extra_records: self.to_records(&mut bound),
            keep_service: false,
        }
    }

    /// Whether an earlier load balancer of the name was the last owner of an address that the status does not name: then what the Service
    /// shows is what that one left, or an old copy of it (REQ-3).
    fn was_of_earlier(&self, request: &Request, addr: IpAddr) -> bool {
        let last = self.records.get(addr).map(|entry| &entry.owner);
        let is_earlier = last.is_some_and(|it| it.id == request.owner.id && *it != request.owner);
        is_earlier && !request.names(addr)
    }

    /// Whether the last owner of the address is this id.
    fn remembers(&self, id: &OwnerId, addr: IpAddr) -> bool {
        let released = self.records.get(addr).filter(|entry| !entry.is_bound());
        released.is_some_and(|entry| entry.owner.id == *id)
    }

    /// REQ-2: the place of the pool that the load balancer names, else of the best one that has the address.
    fn requested_pool(&self, request: &Request, addr: IpAddr) -> Option<u32> {
        if let Some(name) = &request.pool {
            return self
                .pools
                .find(name)
                .filter(|at| self.pools[*at].spec.is_some());
        }
        let namespace = request.owner.id.namespace();
        let requirement = request.requirement.clone().or_namespace(namespace);
        let near: BTreeSet<u32> = self.pools.near(addr).collect();
        let selectors = near.iter().filter_map(|at| self.pools.selector(*at));
        let name = select::select(selectors, &requirement, request.workload)?;
        self.pools.find(name)
    }

    /// Whether a pool allocates the address to the load balancer as soon as it is free and nobody older asks for it.
    pub(super) fn is_served(&self, request: &Request, addr: IpAddr) -> bool {
        let at = self.requested_pool(request, addr);
        at.is_some_and(|at| self.never(request, at, addr).is_none())
    }

    fn answer(&self, request: &Request, addr: IpAddr) -> Answer {
        let no = |pool: PoolName, verdict: Verdict, is_served: bool| Answer::No {
            explanation: Explanation::new(vec![PoolVerdict { pool, verdict }], 1),
            is_served,
        };
        let Some(at) = self.requested_pool(request, addr) else {
            return match &request.pool {
                Some(named) => no(named.clone(), Verdict::Missing, false),
                None => Answer::No {
                    explanation: self.explain_unmatched(request, addr),
                    is_served: false,
                },
            };
        };
        let (id, name) = (&request.owner.id, self.pools[at].name.clone());
        if let Some(verdict) = self.never(request, at, addr) {
            return no(name, verdict, false);
        }
        if self.holds.is_blocked(addr) {
            let record = addr::record_name(addr);
            return no(name, Verdict::RecordUnreadable { record }, true);
        }
        // Its own record of another pool, which overlaps this one, counts too: an address is not moved to itself.
        let record = self.records.get(addr).filter(|entry| entry.is_bound());
        let holder = self.rival(addr, id);
        if let Some(holder) = holder.or_else(|| record.map(|entry| self.owner_id(entry))) {
            let holder = holder.clone();
            return no(name, Verdict::AddressHeld { addr, holder }, true);
        }
        let older = self
            .askers
            .first(addr)
            .filter(|first| **first < Age::of(request));
        if let Some(older) = older {
            let by = older.id.clone();
            return no(name, Verdict::AddressAwaited { addr, by }, true);
        }
        Answer::Free(name)
    }

    /// Why a pool does not allocate the address to this load balancer, taken or free; none if it does.
    fn never(&self, request: &Request, at: u32, addr: IpAddr) -> Option<Verdict> {
        let pool = &self.pools[at];
        match pool.refusal(request.workload) {
            // It may have other addresses than this one.
            None | Some(Verdict::OtherFamily) => {}
            refusal => return refusal,
        }
        let refusal = Verdict::of_address(pool.ranges()?, addr);
        let other_family = Verdict::AddressOfOtherFamily { addr };
        refusal.or_else(|| (!request.takes(addr)).then_some(other_family))
    }

    /// REQ-2: why no pool serves a load balancer that names none.
    fn explain_unmatched(&self, request: &Request, addr: IpAddr) -> Explanation {
        let namespace = request.owner.id.namespace();
        let requirement = request.requirement.clone().or_namespace(namespace);
        let near: BTreeSet<u32> = self.pools.near(addr).collect();
        let selectors = near.iter().filter_map(|at| self.pools.selector(*at));
        let mut verdicts = select::explain(selectors, &requirement, request.workload);
        // No more than are shown, and one that says that there are others; the same ones whoever explains.
        let others = self
            .pools
            .by_name_existing()
            .filter(|at| !near.contains(at));
        for at in others.take(Explanation::SHOWN + 1) {
            let pool = &self.pools[at];
            let verdict = match pool.refusal(request.workload) {
                None | Some(Verdict::OtherFamily) => Verdict::AddressElsewhere { addr },
                Some(refusal) => refusal,
            };
            let pool = pool.name.clone();
            verdicts.push(PoolVerdict { pool, verdict });
        }
        verdicts.sort_by(super::choose::nearest_first);
        Explanation::new(verdicts, Explanation::SHOWN)
    }

    /// The explanation of one that waits for the address that it requests.
    pub(super) fn explain_requested(&self, request: &Request, addr: IpAddr) -> Option<Explanation> {
        match self.answer(request, addr) {
            Answer::Free(_) => None,
            Answer::No { explanation, .. } => Some(explanation),
        }
    }

    /// The conflict about the address in the status of one that gets none now.
    fn conflict_of_waiter(&self, request: &Request) -> Option<AddressConflict> {
        let named = self.status_to_consider(request)?;
        let holder = self.rival(named, &request.owner.id)?.clone();
        (!self.claims(request, named)).then_some(AddressConflict {
            addr: named,
            holder: Some(holder),
        })
    }
}
