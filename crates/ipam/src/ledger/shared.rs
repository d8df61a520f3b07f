//! Addresses that several load balancers share (SHR-3, SHR-5): who owns the record, and its passing to another one.
//!
//! In the ledger a record is under the id of the group, which is that of the Service that shows the address, whoever of the group
//! owns it. So the address stays that of the group in every other respect.

use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_object::Version;

use super::Ledger;
use super::decision::{Evidence, Grant, Request};
use super::records::RecordEntry;
use crate::types::{Micros, Owner, OwnerId, Phase, PoolName, Record, RecordSpec};

impl Ledger {
    /// The name of the load balancer that owns a record.
    pub(super) fn owner_id<'a>(&'a self, entry: &'a RecordEntry) -> &'a OwnerId {
        self.holders.get(&entry.addr).unwrap_or(&entry.owner.id)
    }

    /// The owner of a record, and the name of the group whose address it is, if that is another one.
    pub(super) fn owner_of(&self, entry: &RecordEntry) -> (Owner, Option<Arc<str>>) {
        let owner = Owner {
            id: self.owner_id(entry).clone(),
            uid: entry.owner.uid.clone(),
        };
        let group = self.holders.get(&entry.addr);
        (owner, group.map(|_| entry.owner.id.name().into()))
    }

    /// The Bound records of an id, also those that another load balancer of its group owns, by address.
    pub fn bound_records_of(&self, id: &OwnerId) -> Vec<Record> {
        let mut bound = self.bound_of(id);
        self.to_records(&mut bound)
    }

    /// Whether another load balancer owns a record of this id.
    pub fn is_handed_over(&self, id: &OwnerId) -> bool {
        !self.holders.is_empty()
            && self
                .records
                .of(id)
                .any(|entry| self.holders.contains_key(&entry.addr))
    }

    /// What the holder of a Bound record is granted (ALC-6, IPA-7, EXC-3); `None` if the address has none.
    pub fn grant_of(&self, addr: IpAddr) -> Option<Grant> {
        let entry = self.records.get(addr).filter(|entry| entry.is_bound())?;
        Some(self.grant(addr, &self.pools[entry.pool].name, None))
    }

    /// Whether a load balancer has an address, or may have one, without a word of its status: a Bound record, a claim, a
    /// reservation, or a Service of its name that shows one. What is held back for it follows from its status alone (EXC-1).
    pub fn has_address(&self, id: &OwnerId) -> bool {
        let mut holds = self.holds.of(id).into_iter();
        self.records.of(id).any(RecordEntry::is_bound)
            || holds.any(|addr| !self.held_back.is_of(id, addr))
            || !self.holds.shown_by(id).is_empty()
    }

    /// Whether an address is one that [`has_address`](Self::has_address) speaks of.
    pub fn is_address_of(&self, addr: IpAddr, id: &OwnerId) -> bool {
        let record = self.records.get(addr);
        record.is_some_and(|entry| entry.is_bound() && entry.owner.id == *id)
            || (self.holds.of(id).contains(&addr) && !self.held_back.is_of(id, addr))
            || self.holds.shows(id, addr)
    }

    /// ALC-1, SHR-6: whether a load balancer may have the Bound record of an earlier one of its name. If others have shared the address
    /// since, until none was left: not if its pool does not allocate it any more (EXC-1, EXC-2), nor if another load balancer requests it
    /// (REQ-3). Those that take any address come after it.
    pub(super) fn may_inherit(&self, request: &Request, entry: &RecordEntry) -> bool {
        if !self.holders.contains_key(&entry.addr) {
            return true;
        }
        let pool = &self.pools[entry.pool];
        let first = self.askers.first(entry.addr);
        pool.usable(entry.addr)
            && pool.withheld().is_none()
            && first.is_none_or(|age| age.id == request.owner.id)
    }

    /// SHR-5: the record to write when another load balancer of the group is to own it; `None` if the address is not Bound. The
    /// time of the allocation stays.
    pub fn hand_over(&self, addr: IpAddr, to: &Owner) -> Option<Record> {
        let entry = self.records.get(addr).filter(|entry| entry.is_bound())?;
        let mut record = self.to_record(entry);
        let group = &entry.owner.id;
        record.spec.group = (*group != to.id).then(|| group.name().into());
        record.spec.owner = to.clone();
        Some(record)
    }

    /// IPA-7: the record to write for an address that a group has and that lost its record, deleted by hand: its Service shows the
    /// address, or its record is remembered as a claim. The version is that of a Released record to replace. `None` if somebody else
    /// has the address, or its record cannot be read. `pool`: the pool in the status of the owner; it counts if the pool can
    /// allocate the address, or none that is known can.
    pub fn restore(
        &mut self,
        group: &OwnerId,
        owner: &Owner,
        addr: IpAddr,
        pool: Option<&str>,
        now: Micros,
    ) -> Option<(RecordSpec, Option<Version>)> {
        if self.records.is_bound(addr)
            || self.holds.is_blocked(addr)
            || self.rival(addr, group).is_some()
        {
            return None;
        }
        let claim = self.holds.get(addr).and_then(|hold| hold.claim.as_ref());
        let claimed = claim.and_then(|claim| match &claim.evidence {
            Evidence::Trusted(pool) => Some(pool.clone()),
            Evidence::Status => None,
        });
        let named = pool.map(PoolName::from);
        let has_it = |name: &PoolName| self.pools_of(addr).any(|pool| pool == name);
        let pool = claimed
            .or_else(|| named.clone().filter(has_it))
            .or_else(|| self.pools_of(addr).next().cloned())
            .or(named)?;
        self.last_bound_at = now.max(Micros(self.last_bound_at.0.saturating_add(1)));
        let spec = RecordSpec {
            addr,
            pool,
            owner: owner.clone(),
            phase: Phase::Bound,
            bound_at: self.last_bound_at,
            released_at: None,
            group: (*group != owner.id).then(|| group.name().into()),
        };
        Some((spec, self.records.get(addr).map(|entry| entry.version)))
    }

    /// The addresses of a group without a record: its Service shows them, or they are claimed for it.
    pub fn unrecorded(&self, group: &OwnerId) -> Vec<IpAddr> {
        let mut all = self.holds.shown_by(group).to_vec();
        all.extend(self.holds.of(group));
        all.retain(|addr| !self.records.is_bound(*addr));
        all
    }
}
