//! Who waits where, and whom a change wakes.
//!
//! The rule: a free address of a pool goes to a load balancer only if more addresses are free than
//! older ones wait for that pool. So of those that wait the first so many may be served as
//! addresses are free, and just these are woken.

use std::mem;

use rustc_hash::FxHashSet;

use super::Ledger;
use super::decision::{Request, WaitReason, Withheld};
use super::queue::{Age, Queue, Waiter};
use crate::select::Workload;
use crate::types::OwnerId;

impl Ledger {
    /// Puts a load balancer into the queue without serving it: at the start first those that have
    /// an address are decided, then the waiting are enlisted and woken, oldest first (IPA-1). One
    /// that has a record, a reservation or a claim does not wait and is left out.
    pub fn enlist(&mut self, request: Request) {
        self.settle();
        let id = &request.owner.id;
        self.stuck.remove(id);
        let holds = self.holds.of(id).iter().any(|addr| {
            self.holds
                .get(*addr)
                .is_some_and(|hold| hold.claim.is_some() || hold.reservation.is_some())
        });
        if holds || self.records.of(id).any(super::records::Slot::is_bound) {
            self.poked.insert(id.clone());
            return;
        }
        let place = self.enrol(request, None);
        self.changed.insert(place);
    }

    /// The load balancers to decide about now: those that a change touched, then those that can be
    /// served or must be given another reason to wait, oldest first. Each is named once; it is
    /// named again only after it asked.
    pub fn take_wakes(&mut self) -> Vec<OwnerId> {
        self.settle();
        let changed = mem::take(&mut self.changed);
        let mut places: Vec<Option<u32>> =
            mem::take(&mut self.freed).into_iter().map(Some).collect();
        places.extend(&changed);
        let mut woken: Vec<Age> = Vec::new();
        for place in places {
            let pool = place.map(|at| &self.pools[at]);
            let free = pool.map_or(0, |pool| pool.grantable_to(Workload::Cluster));
            // BE-7: who cannot have what is free is in nobody's way.
            let v4_free = pool.is_some_and(|pool| pool.grantable_to(Workload::Vm) > 0);
            let reason = self.queue_reason(place);
            let vm_reason = match pool {
                Some(pool) if reason == WaitReason::NoAvailableIp && !pool.suits(Workload::Vm) => {
                    WaitReason::AddressFamilyMismatch
                }
                _ => reason,
            };
            let all = changed.contains(&place);
            let limit = usize::try_from(free).unwrap_or(usize::MAX);
            let mut rank = 0;
            for (age, waiter) in self.queue_mut(place) {
                if !all && rank >= limit {
                    break;
                }
                let (can, reason) = match waiter.request.workload {
                    Workload::Vm => (v4_free, vm_reason),
                    Workload::Cluster => (true, reason),
                };
                let served = can && rank < limit;
                if !waiter.woken && (served || waiter.told != Some(reason)) {
                    waiter.woken = true;
                    woken.push(age.clone());
                }
                rank += usize::from(can);
            }
        }
        woken.sort_unstable();
        let mut wakes: Vec<OwnerId> = mem::take(&mut self.poked).into_iter().collect();
        let poked: FxHashSet<OwnerId> = wakes.iter().cloned().collect();
        wakes.extend(
            woken
                .into_iter()
                .map(|age| age.id)
                .filter(|id| !poked.contains(id)),
        );
        wakes
    }

    /// SEL-7, ALC-5: why those in a queue wait.
    pub(super) fn queue_reason(&self, place: Option<u32>) -> WaitReason {
        let Some(at) = place else {
            return WaitReason::NoMatchedPool;
        };
        let pool = &self.pools[at];
        match &pool.spec {
            None => WaitReason::PoolNotFound,
            Some(_) if matches!(pool.withheld(), Some(Withheld::Unsupported(_))) => {
                WaitReason::PoolUnsupported
            }
            Some(spec) if spec.ranges.is_err() => WaitReason::PoolInvalid,
            Some(_) => WaitReason::NoAvailableIp,
        }
    }

    fn queue_mut(&mut self, place: Option<u32>) -> &mut Queue {
        match place {
            Some(at) => &mut self.pools[at].queue,
            None => &mut self.unmatched,
        }
    }

    /// Puts a load balancer into the queue it belongs to, and out of any other.
    pub(super) fn enrol(&mut self, request: Request, told: Option<WaitReason>) -> Option<u32> {
        let place = self.target(&request);
        let age = Age::of(&request);
        let stays = self
            .waiting
            .get(&request.owner.id)
            .is_some_and(|at| *at == (place, age.clone()));
        if !stays {
            self.leave_queue(&request.owner.id);
        }
        // Leaving may have given up the place of a pool that is missing.
        let place = self.target(&request);
        self.waiting
            .insert(request.owner.id.clone(), (place, age.clone()));
        self.queue_mut(place).insert(
            age,
            Waiter {
                request,
                told,
                woken: false,
            },
        );
        place
    }

    /// Takes an id out of the queue. Somebody behind it may be served now.
    pub(super) fn leave_queue(&mut self, id: &OwnerId) {
        let Some((place, age)) = self.waiting.remove(id) else {
            return;
        };
        self.queue_mut(place).remove(&age);
        if let Some(at) = place {
            self.freed.insert(at);
            self.pools.tidy(at);
        }
    }

    /// After pools changed: those that wait for a selected pool are selected anew, before anybody
    /// is served, so that the older are counted in the right queue (SEL-7).
    pub(super) fn settle(&mut self) {
        if !mem::take(&mut self.unsettled) {
            return;
        }
        let mut moves = Vec::new();
        for (place, age) in self.waiting.values().cloned().collect::<Vec<_>>() {
            let waiter = self.queue_mut(place).get(&age);
            let Some(request) = waiter
                .map(|it| it.request.clone())
                .filter(|it| it.pool.is_none())
            else {
                continue;
            };
            let target = self.target(&request);
            if target != place {
                moves.push((place, target, age));
            }
        }
        for (from, to, age) in moves {
            if let Some(waiter) = self.queue_mut(from).remove(&age) {
                self.waiting.insert(age.id.clone(), (to, age.clone()));
                self.queue_mut(to).insert(age, waiter);
                self.changed.insert(to);
            }
            if let Some(at) = from {
                self.freed.insert(at);
                self.pools.tidy(at);
            }
        }
    }
}
