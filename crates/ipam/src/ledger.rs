//! The allocation ledger: address ownership, the queues of waiting load balancers, and the next write.
//!
//! The ledger is an in-memory index of the pools, the IPAllocations (here: records), the addresses
//! that Services show and the load balancers that wait. The caller passes every observed change to
//! it ([`observe`](Ledger::observe), [`set_pool`](Ledger::set_pool), ...) and asks for the
//! [`Decision`] about a load balancer ([`decide`](Ledger::decide)). A decision is a proposal only:
//! the write of the IPAllocation decides, and its result is observed again (ALC-8).
//!
//! | submodule | owns |
//! |---|---|
//! | `decision` | types of requests and decisions |
//! | `decide` | the order of ALC-1 to ALC-7 and REL-4, the reservation |
//! | `find` | the address of a load balancer without a Bound record |
//! | `keep` | addresses of load balancers with an invalid spec (ALC-10) |
//! | `choose` | the pool that serves a load balancer, and the explanation |
//! | `address_conflict` | addresses that a status names and another load balancer has |
//! | `records` | the store of records |
//! | `holds` | the store of addresses taken without a record |
//! | `taken` | changes of these holds; the set of taken addresses, and what follows for the pools |
//! | `held_back` | load balancers whose pool cannot confirm their address now (EXC-1) |
//! | `held_back_lbs` | the store of these |
//! | `takeover`, `unfinished` | addresses still to be recorded, records still to be released |
//! | `pool` | one pool: its counts, its next free address |
//! | `pools` | all pools, and which of them overlap (IPA-4) |
//! | `near` | index of the pools by address |
//! | `queue`, `wake` | the waiting load balancers, and which of them a change wakes |
//! | `requested` | load balancers that request an address (REQ-1 to REQ-4): who gets it, and why not |
//! | `asking`, `askers` | those that wait for it: for whom it is kept, and their store |
//! | `outdated` | waiting load balancers whose explanation is outdated |
//! | `release` | records that may be released or deleted |
//! | `shared` | records that another load balancer of a group owns (SHR-5) |
//! | `view` | the pool's status and the metrics |
//!
//! An address is *taken* if a Bound record, a reservation, a claim, a Service or an unreadable
//! record says so, or if a load balancer waits for it by name. One set of intervals holds the
//! taken addresses of all pools, so that overlapping pools see each other's (IPA-4).

mod address_conflict;
mod askers;
mod asking;
mod choose;
mod decide;
mod decision;
mod find;
mod held_back;
mod held_back_lbs;
mod holds;
mod keep;
mod near;
mod outdated;
mod pool;
mod pools;
mod queue;
mod records;
mod release;
mod requested;
mod shared;
mod taken;
mod takeover;
mod unfinished;
mod view;
mod wake;

use std::collections::BTreeSet;
use std::net::IpAddr;

use harvester_lb_object::Version;
use rustc_hash::FxHashMap;

use crate::interval::IntervalSet;
use crate::select::{Explanation, Requirement, Workload};
use crate::types::{Micros, Owner, OwnerId, Phase, Record, RecordSpec};

pub use decision::{
    AddressConflict, AllocationReason, Blocked, Decision, Evidence, Grant, PoolSpec, Request,
    Settings, Standing, StatusAddress, WaitReason, Withheld,
};
pub use view::{Counts, PoolView};

use askers::Askers;
use held_back_lbs::HeldBackLbs;
use holds::{Claim, Holds};
use pool::{Pool, Spec};
use pools::Pools;
use queue::{Age, Queue};
use records::{RecordEntry, Records};
use unfinished::Unfinished;

/// The allocation ledger. See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(crate) settings: Settings,
    pools: Pools,
    records: Records,
    /// The owners of records that are under the id of another load balancer, whose address they share.
    holders: FxHashMap<IpAddr, OwnerId>,
    holds: Holds,
    unfinished: Unfinished,
    /// The taken addresses of all pools.
    taken: IntervalSet,
    /// The taken addresses that are only proposed: a reservation is their only hold.
    proposed: BTreeSet<IpAddr>,
    /// Waiting load balancers that no pool matches.
    unmatched: Queue,
    /// The queue of each waiting id: the place of its pool (none: unmatched) and its age.
    waiting: FxHashMap<OwnerId, (Option<u32>, Age)>,
    /// Load balancers that wait for the unreadable record of their address to be repaired or
    /// deleted; in no queue, where they would block others that can be served.
    blocked_by_record: FxHashMap<OwnerId, IpAddr>,
    /// Load balancers that wait for a pool to confirm their address (EXC-1); in no queue either.
    held_back: HeldBackLbs,
    /// Load balancers with an invalid spec whose status names an address that could not be recorded (ALC-10); all under the place
    /// 0, since any pool may serve them next.
    unkept: HeldBackLbs,
    /// Load balancers that wait for the address that they request (REQ-3); in no queue either.
    askers: Askers,
    /// Waiting load balancers that name no pool.
    choosing: BTreeSet<Age>,
    /// Cache of pool selections (section 5), by workload type; cleared when a selector changes.
    selected: [FxHashMap<Requirement, Option<u32>>; 2],
    /// Cache of the explanations of these selections.
    explained: [FxHashMap<Requirement, Explanation>; 2],
    /// A selector changed, and the pool of those that name none was not selected again yet.
    selectors_changed: bool,
    /// Pools with a queue in which a load balancer may be served now.
    freed: BTreeSet<u32>,
    /// Pools whose number of held addresses changed.
    recounted: BTreeSet<u32>,
    /// Waiting load balancers whose explanation may be outdated by a change of a pool.
    maybe_outdated: BTreeSet<Age>,
    /// Ids to wake whether or not they wait.
    wake_requested: BTreeSet<OwnerId>,
    /// The latest `bound_at` assigned.
    last_bound_at: Micros,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            last_bound_at: Micros::MIN,
            ..Self::default()
        }
    }

    /// Adds or updates a pool. Does nothing if nothing changed, so every watch event of a pool may
    /// be passed on.
    ///
    /// Records never move to another pool because of this (IPA-7).
    pub fn set_pool(&mut self, pool: PoolSpec) {
        let at = self.pools.intern(&pool.name);
        let place = &self.pools[at];
        if let Some((last, as_of)) = pool.last_allocated
            && place.spec.is_none()
            && (place.last.is_none() || place.last_at < as_of)
        {
            self.pools[at].last = Some(last);
            self.pools[at].last_at = as_of;
        }
        let spec = Spec {
            created: pool.created,
            ranges: pool.ranges,
            selector: pool.selector,
            withheld: pool.withheld,
        };
        if self.pools[at].spec.as_ref() != Some(&spec) {
            self.replace_spec(at, Some(spec));
        }
    }

    /// Removes a deleted pool. Its records stay as they are (IPA-7).
    pub fn remove_pool(&mut self, name: &str) {
        if let Some(at) = self.pools.find(name) {
            self.replace_spec(at, None);
            self.pools[at].last = None;
            self.pools[at].last_at = Micros::MIN;
            self.pools.tidy(at);
        }
    }

    fn replace_spec(&mut self, at: u32, spec: Option<Spec>) {
        // The selector of an undecodable pool is unknown; the explanations of all that it might serve say so.
        let selects = |spec: &Spec| (spec.selector.clone(), spec.withheld.clone());
        let reselects = self.pools[at].spec.as_ref().map(selects) != spec.as_ref().map(selects);
        let askers = self.askers_of(at);
        let says = |pool: &Pool| (pool.refusal(Workload::Vm), pool.full(Workload::Vm));
        let before = says(&self.pools[at]);
        self.pools
            .replace_spec(at, spec, &self.records, &self.taken, &self.proposed);
        if reselects {
            self.selected = Default::default();
            self.explained = Default::default();
            self.selectors_changed = true;
            // Another pool may serve them now.
            self.wake_requested.extend(self.held_back.ids().cloned());
        }
        if says(&self.pools[at]) != before {
            self.maybe_outdated
                .extend(self.pools[at].queue.ages().cloned());
        }
        self.maybe_outdated
            .extend(self.pools[at].queue.take_behind());
        self.maybe_outdated.extend(self.askers.unmatched().cloned());
        self.freed.insert(at);
        self.wake_held_back(at);
        let unkept = self.unkept.of_pool(0).map(|it| it.owner.id.clone());
        self.wake_requested.extend(unkept);
        self.pool_of_askers_changed(at, askers);
    }

    /// Adds or updates a record as stored, from the watch or the response to our own write. False
    /// if a newer version is known.
    pub fn observe(&mut self, record: Record) -> bool {
        let Record { spec, version } = record;
        let addr = spec.addr;
        if !self.is_news(addr, version) {
            return false;
        }
        self.unblock(addr);
        let pool = self.pools.intern(&spec.pool);
        let owner = Owner {
            id: spec.address_of(),
            uid: spec.owner.uid.clone(),
        };
        let ours = match spec.phase {
            Phase::Bound => self.drop_holds_at(addr, &owner),
            Phase::Released => None,
        };
        let member = &mut self.pools[pool];
        // Where the next search for a free address begins (ALC-3, ALC-4). The record of an earlier
        // allocation does not move it. A `bound_at` in the far future, which this operator did not
        // write, must not stop it from moving for ever.
        let newest = spec.bound_at > member.last_at;
        let overdue = ours.is_some() && member.last_at > self.last_bound_at;
        if (newest || overdue) && ours != Some(AllocationReason::Recorded) {
            member.last = Some(addr);
            member.last_at = spec.bound_at;
        }
        let is_shared = owner.id != spec.owner.id;
        let mut entry = RecordEntry::new(addr, owner, pool, spec.phase);
        entry.bound_at = spec.bound_at;
        entry.released_at = spec.released_at.unwrap_or(Micros::MIN);
        entry.version = version;
        let old = self.take_out(addr);
        // It was deleted by hand, and a late write of another load balancer came first: that one has the address now (ALC-8).
        if let Some(old) = &old
            && old.is_bound()
            && old.owner.id != entry.owner.id
        {
            self.wake_requested.insert(old.owner.id.clone());
        }
        if is_shared {
            self.holders.insert(addr, spec.owner.id);
        }
        let bound = entry.is_bound();
        self.pools[pool].count_member(&entry, true);
        self.records.insert(entry);
        self.after_record_change(addr, old.as_ref(), bound);
        true
    }

    /// Removes a record from the store and from its pool's counts.
    fn take_out(&mut self, addr: IpAddr) -> Option<RecordEntry> {
        let old = self.records.remove(addr)?;
        self.holders.remove(&addr);
        self.pools[old.pool].count_member(&old, false);
        Some(old)
    }

    /// Removes a deleted record; `version` is that of the deletion, or of the deleted copy.
    ///
    /// If it was Bound, its owner keeps the address as a claim and is woken, to create the record
    /// again (IPA-7) or, if it is gone, to be withdrawn.
    pub fn forget(&mut self, addr: IpAddr, version: Version) {
        if self.holds.blocked(addr).is_none_or(|at| at <= version) {
            self.unblock(addr);
        }
        if self
            .records
            .get(addr)
            .is_some_and(|entry| entry.version > version)
        {
            return;
        }
        self.records.tombstone(addr, version);
        let Some(old) = self.take_out(addr) else {
            return;
        };
        if old.is_bound() {
            let evidence = Evidence::Trusted(self.pools[old.pool].name.clone());
            self.holds.claim(
                addr,
                Claim {
                    owner: old.owner.clone(),
                    evidence,
                },
            );
            self.wake_requested.insert(old.owner.id.clone());
        }
        self.after_record_change(addr, Some(&old), false);
    }

    /// Updates the pools and their queues after the record of an address changed.
    fn after_record_change(&mut self, addr: IpAddr, old: Option<&RecordEntry>, bound: bool) {
        self.set_taken(addr, bound);
        self.wake_after_release(addr);
        // Their explanations name the holder.
        self.wake_requested.extend(self.askers.at(addr).cloned());
        self.wake_requested.extend(self.unkept.at(addr).cloned());
        if let Some(old) = old {
            self.pools.tidy(old.pool);
        }
    }

    /// Whether this version of an address's record is newer than the known one.
    fn is_news(&self, addr: IpAddr, version: Version) -> bool {
        let unread = self.holds.blocked(addr);
        unread.is_none_or(|known| known < version) && self.records.is_news(addr, version)
    }

    /// Removes a load balancer that is deleted, or requests no address of a pool, from the queue
    /// and drops its reservations and claims. Its records are not touched.
    pub fn withdraw(&mut self, id: &OwnerId) {
        self.leave_queue(id);
        self.leave_waiting_sets(id);
        self.leave_asking(id);
        self.drop_holds(id, |_, _| true);
    }

    /// Removes a load balancer that cannot be served until its spec changes from the queue, so that
    /// no other waits behind it. Its records, reservations and claims stay; those of an earlier one
    /// of its name are void.
    pub fn dequeue(&mut self, owner: &Owner) {
        let id = &owner.id;
        self.drop_holds(id, |_, other| other.uid != owner.uid);
        self.leave_queue(id);
        self.leave_waiting_sets(id);
        self.leave_asking(id);
    }

    /// The record of an address.
    pub fn record(&self, addr: IpAddr) -> Option<Record> {
        self.records.get(addr).map(|entry| self.to_record(entry))
    }

    /// The records of an id, Bound or Released, by address. A shared address counts to the id of its group (SHR-5).
    pub fn records_of(&self, id: &OwnerId) -> Vec<Record> {
        let mut records: Vec<_> = self
            .records
            .of(id)
            .map(|entry| self.to_record(entry))
            .collect();
        records.sort_unstable_by_key(|record| record.spec.addr);
        records
    }

    fn to_record(&self, entry: &RecordEntry) -> Record {
        let (owner, group) = self.owner_of(entry);
        let spec = RecordSpec {
            addr: entry.addr,
            pool: self.pools[entry.pool].name.clone(),
            owner,
            phase: entry.phase,
            bound_at: entry.bound_at,
            released_at: Some(entry.released_at).filter(|at| *at != Micros::MIN),
            group,
        };
        Record {
            spec,
            version: entry.version,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
