//! Puts waiting load balancers into the queues, and wakes them after a change (SEL-7, ALC-5): those of each queue that
//! can be served (see `queue`), and those that the change concerns directly.

use std::mem;

use rustc_hash::FxHashSet;

use super::decision::{Request, WaitReason, Withheld};
use super::queue::{Age, Queue, Waiter};
use super::{Ledger, outdated};
use crate::select::Explanation;
use crate::types::OwnerId;

impl Ledger {
    /// Puts a load balancer into the queue without a decision: at the start those that have an
    /// address are decided about first, then the waiting ones are enlisted and woken, oldest first
    /// (IPA-1). One with a Bound record, a reservation or a claim does not wait: it is woken instead.
    pub fn enlist(&mut self, request: Request) {
        self.reselect_waiters();
        let id = &request.owner.id;
        self.leave_waiting_sets(id);
        let holds = self.holds.of(id).iter().any(|addr| {
            self.holds
                .get(*addr)
                .is_some_and(|hold| hold.claim.is_some() || hold.reservation.is_some())
        });
        if holds
            || self
                .records
                .of(id)
                .any(super::records::RecordEntry::is_bound)
        {
            self.wake_requested.insert(id.clone());
            return;
        }
        if let Some(addr) = request.requested {
            self.enlist_requested(&request, addr);
            return;
        }
        self.leave_asking(&request.owner.id);
        self.enqueue_waiter(request, None);
    }

    /// The load balancers to decide about now: those that a change concerns, then those that can be served, oldest
    /// first. Each is returned once, and again only after a decision about it.
    pub fn take_wakes(&mut self) -> Vec<OwnerId> {
        self.reselect_waiters();
        let mut woken: Vec<Age> = Vec::new();
        for at in mem::take(&mut self.freed) {
            woken.extend(self.pools[at].queue.take_due());
        }
        woken.sort_unstable();
        let mut wakes: Vec<OwnerId> = mem::take(&mut self.wake_requested).into_iter().collect();
        let wake_requested: FxHashSet<OwnerId> = wakes.iter().cloned().collect();
        wakes.extend(
            woken
                .into_iter()
                .map(|age| age.id)
                .filter(|id| !wake_requested.contains(id)),
        );
        wakes
    }

    /// SEL-7, ALC-5: why the load balancers of a queue wait.
    pub(super) fn queue_reason(&self, place: Option<u32>) -> WaitReason {
        let Some(at) = place else {
            return WaitReason::NoMatchedPool;
        };
        let pool = &self.pools[at];
        match &pool.spec {
            None => WaitReason::PoolNotFound,
            Some(spec) if spec.ranges.is_err() => WaitReason::PoolInvalid,
            Some(_) if matches!(pool.withheld(), Some(Withheld::InvalidExclude(_))) => {
                WaitReason::InvalidExclude
            }
            Some(_) => WaitReason::NoAvailableIp,
        }
    }

    pub(super) fn queue(&self, place: Option<u32>) -> &Queue {
        match place {
            Some(at) => &self.pools[at].queue,
            None => &self.unmatched,
        }
    }

    pub(super) fn queue_mut(&mut self, place: Option<u32>) -> &mut Queue {
        match place {
            Some(at) => &mut self.pools[at].queue,
            None => &mut self.unmatched,
        }
    }

    /// Puts a load balancer into its queue, and removes it from any other. `explanation`: the explanation of the
    /// decision; none if there was no decision.
    pub(super) fn enqueue_waiter(&mut self, request: Request, explanation: Option<&Explanation>) {
        let place = self.target(&request);
        let age = Age::of(&request);
        let is_unmoved = self
            .waiting
            .get(&request.owner.id)
            .is_some_and(|at| *at == (place, age.clone()));
        if !is_unmoved {
            self.leave_queue(&request.owner.id);
        }
        // Leaving may have freed the place of a missing pool.
        let place = self.target(&request);
        let id = request.owner.id.clone();
        self.waiting.insert(id, (place, age.clone()));
        if explanation.is_some() {
            self.maybe_outdated.remove(&age);
        } else {
            self.maybe_outdated.insert(age.clone());
        }
        if request.pool.is_none() {
            self.choosing.insert(age.clone());
        } else {
            self.choosing.remove(&age);
        }
        let waiter = Waiter {
            request,
            explanation_digest: explanation.map(outdated::digest),
            is_behind: explanation.is_some_and(outdated::is_behind),
            is_woken: false,
        };
        self.queue_mut(place).insert(&age, waiter);
        self.freed.extend(place);
    }

    /// Removes an id from its queue. A younger load balancer may be served now.
    pub(super) fn leave_queue(&mut self, id: &OwnerId) {
        let Some((place, age)) = self.waiting.remove(id) else {
            return;
        };
        self.queue_mut(place).remove(&age);
        self.choosing.remove(&age);
        self.maybe_outdated.remove(&age);
        if let Some(at) = place {
            self.freed.insert(at);
            self.pools.tidy(at);
        }
    }

    /// After a change of a selector: selects the pool of those that name none again, before any load balancer is
    /// served, so that the older ones are counted in the right queue (SEL-7).
    pub(super) fn reselect_waiters(&mut self) {
        if !mem::take(&mut self.selectors_changed) {
            return;
        }
        let choosing = mem::take(&mut self.choosing);
        for age in &choosing {
            let from = self.waiting.get(&age.id).and_then(|(place, _)| *place);
            let Some(request) = self.queue(from).get(age).map(|it| it.request.clone()) else {
                continue;
            };
            let to = self.target(&request);
            if to == from {
                continue;
            }
            if let Some(waiter) = self.queue_mut(from).remove(age) {
                self.waiting.insert(age.id.clone(), (to, age.clone()));
                self.queue_mut(to).insert(age, waiter);
                self.freed.extend(to);
            }
            if let Some(at) = from {
                self.freed.insert(at);
                self.pools.tidy(at);
            }
        }
        self.maybe_outdated.extend(choosing.iter().cloned());
        self.choosing = choosing;
    }
}
