//! Work left over from the takeover at the beginning of a leadership term (IPA-1, RUN-1): addresses that only a pool's
//! map names and that still need an IPAllocation; records of deleted load balancers that could not be released.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Ledger;
use super::decision::{Evidence, Request};
use super::records::RecordEntry;
use super::unfinished::Unreleased;
use crate::types::{Owner, OwnerId, Phase, PoolName, RecordSpec};

impl Ledger {
    /// Adds records to create, of addresses that only the maps of pools name.
    pub fn import(&mut self, records: impl IntoIterator<Item = RecordSpec>) {
        let records = records.into_iter().map(|spec| (spec.addr, spec));
        self.unfinished.unimported.extend(records);
    }

    /// Reports that an address has a record. Returns the pool whose map named it, if one did.
    pub fn imported(&mut self, addr: IpAddr) -> Option<PoolName> {
        let spec = self.unfinished.unimported.remove(&addr)?;
        Some(spec.pool)
    }

    /// The records to create before the status of a pool may be written: until then its map is the only evidence.
    pub fn unimported(&self, pool: &str) -> Vec<RecordSpec> {
        let all = self.unfinished.unimported.values();
        all.filter(|spec| *spec.pool == *pool).cloned().collect()
    }

    /// The pools whose status may not be written yet.
    pub fn unimported_pools(&self) -> BTreeSet<PoolName> {
        let all = self.unfinished.unimported.values();
        all.map(|spec| spec.pool.clone()).collect()
    }

    /// RUN-1: whether another load balancer holds the address according to a pool's map only. If so, claims it for that
    /// one again: a holder that is being deleted, or requests another address, has dropped its claim but not the
    /// address.
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

    /// RUN-1: the owner of the record of an address is gone, but the record could not be released, and the status of an
    /// existing load balancer names the address. That one waits for the release, and does not lose the address.
    pub fn await_release(&mut self, addr: IpAddr) {
        if let Some(entry) = self.records.get(addr).filter(|entry| entry.is_bound()) {
            let (holder, waiting) = (entry.owner.id.clone(), BTreeSet::new());
            let unreleased = Unreleased { holder, waiting };
            self.unfinished.unreleased.insert(addr, unreleased);
        }
    }

    /// RUN-1: the deleted load balancer whose unreleased record blocks the address that the status in the request
    /// names. The requesting load balancer is woken once the record is released.
    pub(crate) fn waits_for_release(&mut self, request: &Request) -> Option<OwnerId> {
        let addr = request.status.as_ref()?.addr;
        let unreleased = self.unfinished.unreleased.get_mut(&addr)?;
        let is_other = unreleased.holder != request.owner.id;
        is_other.then(|| {
            unreleased.waiting.insert(request.owner.id.clone());
            unreleased.holder.clone()
        })
    }

    /// Ends the waiting for records of this name: a load balancer of the name exists again, or none of its records are
    /// to be released.
    pub fn stop_awaiting(&mut self, id: &OwnerId) {
        let all = &mut self.unfinished.unreleased;
        let over = all.extract_if(.., |_, unreleased| unreleased.holder == *id);
        self.wake_requested
            .extend(over.flat_map(|(_, it)| it.waiting));
    }

    /// After a change of the record of an address: wakes those that wait for its release, if that is done.
    pub(super) fn wake_after_release(&mut self, addr: IpAddr) {
        let Some(unreleased) = self.unfinished.unreleased.get(&addr) else {
            return;
        };
        let is_held = |entry: &RecordEntry| entry.is_bound() && entry.owner.id == unreleased.holder;
        if !self.records.get(addr).is_some_and(is_held)
            && let Some(unreleased) = self.unfinished.unreleased.remove(&addr)
        {
            self.wake_requested.extend(unreleased.waiting);
        }
    }
}
