//! What the beginning of a leader's work has left to be done: addresses that only the map of a pool says are held or
//! were, and that are to become records (IPA-1, RUN-1).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Ledger;
use super::decision::Evidence;
use crate::types::{Owner, Phase, PoolName, RecordSpec};

/// What is left to be done.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    /// By address, what is to become its record.
    unimported: BTreeMap<IpAddr, RecordSpec>,
}

impl Ledger {
    /// Records are to be made of this, which only the maps of pools say.
    pub fn import(&mut self, records: impl IntoIterator<Item = RecordSpec>) {
        let records = records.into_iter().map(|spec| (spec.addr, spec));
        self.takeover.unimported.extend(records);
    }

    /// An address has a record by now, whoever made it. Answers the pool whose map said so, if one did.
    pub fn imported(&mut self, addr: IpAddr) -> Option<PoolName> {
        let spec = self.takeover.unimported.remove(&addr)?;
        Some(spec.pool)
    }

    /// What is to become a record before the status of a pool may be written: its map is the only proof until then.
    pub fn unimported(&self, pool: &str) -> Vec<RecordSpec> {
        let all = self.takeover.unimported.values();
        all.filter(|spec| *spec.pool == *pool).cloned().collect()
    }

    /// The pools whose status may not be written yet.
    pub fn unimported_pools(&self) -> BTreeSet<PoolName> {
        let all = self.takeover.unimported.values();
        all.map(|spec| spec.pool.clone()).collect()
    }

    /// RUN-1: whether somebody else holds an address of whom only a map says so. It counts as taken again then: a holder
    /// that is on its way out, or wants another address, has given up its claim and not the address.
    pub(crate) fn claim_unimported(&mut self, addr: IpAddr, asks: &Owner) -> bool {
        let held = self.takeover.unimported.get(&addr);
        let Some(held) = held.filter(|it| it.phase == Phase::Bound && it.owner != *asks) else {
            return false;
        };
        let (holder, evidence) = (held.owner.clone(), Evidence::Trusted(held.pool.clone()));
        self.abandon(&asks.id, addr);
        self.claim(addr, holder, evidence);
        true
    }
}
