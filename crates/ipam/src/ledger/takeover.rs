//! What the beginning of a leader's work has left to be done (IPA-1, RUN-1): addresses that only the map of a pool says are
//! held or were, and that are to become records; records of load balancers that are gone, which could not be released.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Ledger;
use super::decision::{Evidence, Request};
use super::records::RecordEntry;
use super::unfinished::Unreleased;
use crate::types::{Owner, OwnerId, Phase, PoolName, RecordSpec};

impl Ledger {
    /// Records are to be made of this, which only the maps of pools say.
    pub fn import(&mut self, records: impl IntoIterator<Item = RecordSpec>) {
        let records = records.into_iter().map(|spec| (spec.addr, spec));
        self.unfinished.unimported.extend(records);
    }

    /// An address has a record by now, whoever made it. Answers the pool whose map said so, if one did.
    pub fn imported(&mut self, addr: IpAddr) -> Option<PoolName> {
        let spec = self.unfinished.unimported.remove(&addr)?;
        Some(spec.pool)
    }

    /// What is to become a record before the status of a pool may be written: its map is the only proof until then.
    pub fn unimported(&self, pool: &str) -> Vec<RecordSpec> {
        let all = self.unfinished.unimported.values();
        all.filter(|spec| *spec.pool == *pool).cloned().collect()
    }

    /// The pools whose status may not be written yet.
    pub fn unimported_pools(&self) -> BTreeSet<PoolName> {
        let all = self.unfinished.unimported.values();
        all.map(|spec| spec.pool.clone()).collect()
    }

    /// RUN-1: whether somebody else holds an address of whom only a map says so. It counts as taken again then: a holder
    /// that is on its way out, or wants another address, has given up its claim and not the address.
    pub(crate) fn claim_unimported(&mut self, addr: IpAddr, asks: &Owner) -> bool {
        let held = self.unfinished.unimported.get(&addr);
        let Some(held) = held.filter(|it| it.phase == Phase::Bound && it.owner != *asks) else {
            return false;
        };
        let (holder, evidence) = (held.owner.clone(), Evidence::Trusted(held.pool.clone()));
        self.abandon(&asks.id, addr);
        self.claim(addr, holder, evidence);
        true
    }

    /// RUN-1: the owner of the record of an address is gone, and the record could not be released although the status of a
    /// living load balancer names the address. That one waits for the release, and does not lose the address.
    pub fn await_release(&mut self, addr: IpAddr) {
        if let Some(slot) = self.records.get(addr).filter(|slot| slot.is_bound()) {
            let (holder, waiting) = (slot.owner.id.clone(), BTreeSet::new());
            let unreleased = Unreleased { holder, waiting };
            self.unfinished.unreleased.insert(addr, unreleased);
        }
    }

    /// RUN-1: who is gone and whose record is still in the way of the address that the status of a load balancer names. When
    /// that ends, the load balancer is woken.
    pub(crate) fn waits_for_release(&mut self, request: &Request) -> Option<OwnerId> {
        let addr = request.status.as_ref()?.addr;
        let unreleased = self.unfinished.unreleased.get_mut(&addr)?;
        let is_other = unreleased.holder != request.owner.id;
        is_other.then(|| {
            unreleased.waiting.insert(request.owner.id.clone());
            unreleased.holder.clone()
        })
    }

    /// A load balancer of this name is there again, or has left nothing that is to be released.
    pub fn stop_awaiting(&mut self, id: &OwnerId) {
        let all = &mut self.unfinished.unreleased;
        let over = all.extract_if(.., |_, unreleased| unreleased.holder == *id);
        self.wake_requested
            .extend(over.flat_map(|(_, it)| it.waiting));
    }

    /// The record of an address has changed or gone.
    pub(super) fn settle_release(&mut self, addr: IpAddr) {
        let Some(unreleased) = self.unfinished.unreleased.get(&addr) else {
            return;
        };
        let is_held = |slot: &RecordEntry| slot.is_bound() && slot.owner.id == unreleased.holder;
        if !self.records.get(addr).is_some_and(is_held)
            && let Some(unreleased) = self.unfinished.unreleased.remove(&addr)
        {
            self.wake_requested.extend(unreleased.waiting);
        }
    }
}
