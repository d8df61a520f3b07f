//! Who holds which address, who waits, and what to write next.
//!
//! The ledger is a picture in memory of the pools, the records (IPAllocations), the addresses that
//! Services show and the load balancers that wait. It is told of every change that is seen
//! ([`observe`](Ledger::observe), [`set_pool`](Ledger::set_pool), ...) and asked what to do about a
//! load balancer ([`decide`](Ledger::decide)). It proposes only: the address belongs to whoever
//! managed to write the record, and the answer to that write is observed again (ALC-8).
//!
//! | submodule | owns |
//! |---|---|
//! | `decision` | questions and answers |
//! | `decide` | the order of ALC-1 to ALC-7 and REL-4 |
//! | `keep` | what one keeps that cannot be served (ALC-10) |
//! | `choose` | the pool that serves, and why not another |
//! | `lost` | what the status names but another has |
//! | `records` | the store of records |
//! | `holds` | addresses taken without a record |
//! | `held_back` | who waits for a pool that hands out nothing new to tell what is its own |
//! | `takeover`, `unfinished` | what is to become a record, and what could not be released |
//! | `pools` | pools, their counts, the next free address |
//! | `near` | which pools an address concerns |
//! | `queue`, `wake` | who waits, and whom a change wakes |
//! | `tell` | whose explanation a change of a pool has made untrue |
//! | `release` | what may be released or deleted |
//! | `view` | what the pool's status and the metrics show |
//!
//! An address is *taken* when a Bound record, a reservation, a claim, a Service or an unreadable
//! record says so. All taken addresses are in one set of intervals for all pools, so that pools
//! that overlap see each other (IPA-4).

mod address_conflict;
mod choose;
mod decide;
mod decision;
mod held_back;
mod holds;
mod keep;
mod near;
mod pools;
mod queue;
mod records;
mod release;
mod takeover;
mod tell;
mod unfinished;
mod view;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use harvester_lb_object::Version;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::addr;
use crate::interval::IntervalSet;
use crate::select::{Explanation, Requirement, Workload};
use crate::types::{Micros, Owner, OwnerId, Phase, Record, RecordSpec};

pub use decision::{
    AddressConflict, AllocationReason, Blocked, Decision, Evidence, Grant, PoolSpec, Request,
    Settings, StatusAddress, WaitReason, Withheld,
};
pub use view::{Counts, PoolView};

use holds::{Claim, HeldBack, Holds};
use pools::{Pool, Pools, Spec};
use queue::{Age, Queue};
use records::{RecordEntry, Records};
use unfinished::Unfinished;

/// The picture. See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(crate) settings: Settings,
    pools: Pools,
    records: Records,
    holds: Holds,
    unfinished: Unfinished,
    /// Every taken address, of all pools.
    taken: IntervalSet,
    /// Those of them that are only proposed to somebody: a reservation says so and nothing else.
    proposed: FxHashSet<IpAddr>,
    /// Those that no pool matches.
    unmatched: Queue,
    /// Where each waiting id stands: the place of its pool (none: unmatched) and its age.
    waiting: FxHashMap<OwnerId, (Option<u32>, Age)>,
    /// Those that wait for the record of an address to be repaired or deleted; in no queue, as they
    /// would take up the place of others that can be served.
    blocked_by_record: FxHashMap<OwnerId, IpAddr>,
    /// Those that wait for a pool to tell whether what they have is their own (IPA-9); in no queue either.
    held_back: BTreeMap<OwnerId, HeldBack>,
    /// Those that wait and name no pool.
    choosing: BTreeSet<Age>,
    /// What section 5 answered since the selectors changed last.
    selected: [FxHashMap<Requirement, Option<u32>>; 2],
    /// What was said of that answer.
    explained: [FxHashMap<Requirement, Explanation>; 2],
    /// Selectors changed, and those that name no pool were not selected anew yet.
    unsettled: bool,
    /// Pools of which somebody in the queue may be served now.
    freed: BTreeSet<u32>,
    /// Pools of which somebody has come to hold an address, or ceased to.
    recounted: BTreeSet<u32>,
    /// Those that wait and whose explanation a change of a pool may have made untrue.
    suspects: BTreeSet<Age>,
    /// Ids to be woken although they do not wait.
    wake_requested: BTreeSet<OwnerId>,
    /// The latest `bound_at` given out.
    last_bound_at: Micros,
}

impl Ledger {
    /// An empty picture.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            last_bound_at: Micros::MIN,
            ..Self::default()
        }
    }

    /// Takes a pool as it is now. Nothing happens when nothing changed, so every event of a pool
    /// may be passed on.
    ///
    /// A record is never moved by this (IPA-7).
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

    /// A pool is gone. Its records stay as they are (IPA-7).
    pub fn remove_pool(&mut self, name: &str) {
        if let Some(at) = self.pools.find(name) {
            self.replace_spec(at, None);
            self.pools[at].last = None;
            self.pools[at].last_at = Micros::MIN;
            self.pools.tidy(at);
        }
    }

    fn replace_spec(&mut self, at: u32, spec: Option<Spec>) {
        // The selector of one that cannot be decoded is not known, and that is said to whoever it might serve.
        let selects = |spec: &Spec| (spec.selector.clone(), spec.withheld.clone());
        let reselects = self.pools[at].spec.as_ref().map(selects) != spec.as_ref().map(selects);
        let says = |pool: &Pool| (pool.refusal(Workload::Vm), pool.full(Workload::Vm));
        let before = says(&self.pools[at]);
        self.pools
            .replace_spec(at, spec, &self.records, &self.taken, &self.proposed);
        if reselects {
            self.selected = Default::default();
            self.explained = Default::default();
            self.unsettled = true;
        }
        if says(&self.pools[at]) != before {
            self.suspects.extend(self.pools[at].queue.ages().cloned());
        }
        self.suspects.extend(self.pools[at].queue.take_behind());
        self.freed.insert(at);
        self.wake_held_back(at);
    }

    /// Takes a record as it is stored: from the watch, or from the answer to our own write. False
    /// when something newer is known already.
    pub fn observe(&mut self, record: Record) -> bool {
        let Record { spec, version } = record;
        let addr = spec.addr;
        if !self.is_news(addr, version) {
            return false;
        }
        self.unblock(addr);
        let pool = self.pools.intern(&spec.pool);
        let ours = match spec.phase {
            Phase::Bound => self.settle_holds(addr, &spec.owner),
            Phase::Released => None,
        };
        let member = &mut self.pools[pool];
        // Where the search for a free address goes on (ALC-3, ALC-4). To record what was allocated
        // long ago is no allocation. A record of the far future, which is not from here, must not
        // stop the search for ever.
        let newest = spec.bound_at > member.last_at;
        let overdue = ours.is_some() && member.last_at > self.last_bound_at;
        if (newest || overdue) && ours != Some(AllocationReason::Recorded) {
            member.last = Some(addr);
            member.last_at = spec.bound_at;
        }
        let mut slot = RecordEntry::new(addr, spec.owner, pool, spec.phase);
        slot.bound_at = spec.bound_at;
        slot.released_at = spec.released_at.unwrap_or(Micros::MIN);
        slot.version = version;
        let old = self.take_out(addr);
        let bound = slot.is_bound();
        self.pools[pool].count_member(&slot, true);
        self.records.insert(slot);
        self.follow(addr, old.as_ref(), bound);
        true
    }

    /// Takes a record out of the store and out of its pool's counts.
    fn take_out(&mut self, addr: IpAddr) -> Option<RecordEntry> {
        let old = self.records.remove(addr)?;
        self.pools[old.pool].count_member(&old, false);
        Some(old)
    }

    /// A record was deleted; `version` is that of the deletion, or of the copy that was deleted.
    ///
    /// When it was Bound, its owner keeps the address as a claim and is woken, to make the record
    /// again (IPA-7) or, when it lives no more, to be withdrawn.
    pub fn forget(&mut self, addr: IpAddr, version: Version) {
        if self.holds.blocked(addr).is_none_or(|at| at <= version) {
            self.unblock(addr);
        }
        if self
            .records
            .get(addr)
            .is_some_and(|slot| slot.version > version)
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
        self.follow(addr, Some(&old), false);
    }

    /// Brings every pool, and who waits for it, in line after the record of an address changed.
    fn follow(&mut self, addr: IpAddr, old: Option<&RecordEntry>, bound: bool) {
        self.set_taken(addr, bound);
        self.settle_release(addr);
        if let Some(old) = old {
            self.pools.tidy(old.pool);
        }
    }

    /// An address turned Bound for `owner`: whoever else counted on it is woken. Tells how it was
    /// reserved for this owner, if it was.
    fn settle_holds(&mut self, addr: IpAddr, owner: &Owner) -> Option<AllocationReason> {
        let mut ours = None;
        if let Some(reservation) = self.holds.drop_reservation(addr) {
            if reservation.owner == *owner {
                ours = Some(reservation.why);
            } else if reservation.owner.id != owner.id {
                self.wake_requested.insert(reservation.owner.id);
            }
        }
        if let Some(claim) = self.holds.drop_claim(addr)
            && claim.owner.id != owner.id
        {
            self.wake_requested.insert(claim.owner.id);
        }
        self.wake_held_back_at(addr, &owner.id);
        ours
    }

    /// Whether this version of an address's record is newer than what is known of it.
    fn is_news(&self, addr: IpAddr, version: Version) -> bool {
        let unread = self.holds.blocked(addr);
        unread.is_none_or(|known| known < version) && self.records.is_news(addr, version)
    }

    /// IPA-1: a record that cannot be read blocks the address it is named after, until a newer
    /// version of it can be read or it is gone. What was known of it stays. False when the name is
    /// no address, or something newer is known already: nothing is blocked by it. Of a version that
    /// cannot be read either (0) that is not known, so it blocks.
    pub fn block_name(&mut self, name: &str, version: Version) -> bool {
        let Some(addr) = addr::parse_record_name(name) else {
            return false;
        };
        if version != Version(0) && !self.is_news(addr, version) {
            return false;
        }
        self.holds.set_blocked(addr, Some(version));
        if let Some(reservation) = self.holds.drop_reservation(addr) {
            self.wake_requested.insert(reservation.owner.id);
        }
        self.sync_taken(addr);
        true
    }

    /// IPA-1: whether there is a record of an address that cannot be read.
    pub(crate) fn is_unreadable(&self, addr: IpAddr) -> bool {
        self.holds.is_blocked(addr)
    }

    fn unblock(&mut self, addr: IpAddr) {
        if self.holds.is_blocked(addr) {
            self.holds.set_blocked(addr, None);
            self.sync_taken(addr);
            let stuck = self.blocked_by_record.iter().filter(|(_, at)| **at == addr);
            self.wake_requested.extend(stuck.map(|(id, _)| id.clone()));
        }
    }

    /// Takes all addresses that Services of this id show in loadBalancerIP or ingress. They count
    /// as taken for every other id, and block the release of this id's records (IPA-1, IPA-3 b).
    pub fn set_shown(&mut self, id: &OwnerId, addrs: &[IpAddr]) {
        for addr in self.holds.set_shown(id, addrs) {
            self.sync_taken(addr);
        }
    }

    /// As [`set_shown`](Self::set_shown), of Services that cannot be read in full: what they were known to show stays.
    pub fn add_shown(&mut self, id: &OwnerId, addrs: &[IpAddr]) {
        let mut all = self.holds.shown_by(id).to_vec();
        all.extend_from_slice(addrs);
        self.set_shown(id, &all);
    }

    /// IPA-1: a living load balancer has this address, but there is no record of it yet. Ignored
    /// when a Bound record exists.
    pub fn claim(&mut self, addr: IpAddr, owner: Owner, evidence: Evidence) {
        if !self.records.is_bound(addr) {
            self.holds.claim(addr, Claim { owner, evidence });
            self.sync_taken(addr);
        }
    }

    /// The load balancer is gone, or wants no address of a pool: it gives up its place in the queue,
    /// its reservations and claims. Its records are not touched.
    pub fn withdraw(&mut self, id: &OwnerId) {
        self.leave_queue(id);
        self.unstick(id);
        self.drop_holds(id, |_, _| true);
    }

    /// The load balancer cannot be served as it is, and does not ask until it is altered: it gives up
    /// its place in the queue, so that nobody waits behind it. What it holds or claims stays its own.
    pub fn dequeue(&mut self, id: &OwnerId) {
        self.leave_queue(id);
        self.unstick(id);
    }

    /// The record of a reserved address could not be written and will not be tried again. (After
    /// a conflict or an unknown outcome nothing needs to be abandoned: observe what is stored, and
    /// decide again.)
    pub fn abandon(&mut self, id: &OwnerId, addr: IpAddr) {
        let reserved = self
            .holds
            .get(addr)
            .and_then(|hold| hold.reservation.as_ref());
        if reserved.is_some_and(|reservation| reservation.owner.id == *id) {
            self.holds.drop_reservation(addr);
            self.sync_taken(addr);
        }
    }

    /// Drops the reservations and claims of an id that are `unwanted`.
    fn drop_holds(&mut self, id: &OwnerId, unwanted: impl Fn(IpAddr, &Owner) -> bool) {
        for addr in self.holds.of(id) {
            let Some(hold) = self.holds.get(addr) else {
                continue;
            };
            let own = |owner: &Owner| owner.id == *id && unwanted(addr, owner);
            let reserved = hold.reservation.as_ref().is_some_and(|it| own(&it.owner));
            let claimed = hold.claim.as_ref().is_some_and(|it| own(&it.owner));
            if reserved {
                self.holds.drop_reservation(addr);
            }
            if claimed {
                self.holds.drop_claim(addr);
            }
            self.sync_taken(addr);
        }
    }

    /// Brings the set of taken addresses and every pool's counts in line at one address.
    fn sync_taken(&mut self, addr: IpAddr) {
        self.set_taken(addr, self.records.is_bound(addr));
    }

    fn set_taken(&mut self, addr: IpAddr, bound: bool) {
        let taken = bound || self.holds.contains(addr);
        let proposed = !bound && self.holds.is_proposed(addr);
        let (was_taken, was_proposed);
        if taken {
            was_taken = !self.taken.insert(addr);
        } else {
            was_taken = self.taken.remove(addr);
        }
        if proposed {
            was_proposed = !self.proposed.insert(addr);
        } else {
            was_proposed = self.proposed.remove(&addr);
        }
        if (was_taken, was_proposed) == (taken, proposed) {
            return;
        }
        let is_recounted = (was_taken && !was_proposed) != (taken && !proposed);
        let (freed, suspects, recounted) =
            (&mut self.freed, &mut self.suspects, &mut self.recounted);
        self.pools.for_each_near(addr, |at, pool| {
            let Some(segment) = pool.segment_of(addr) else {
                return;
            };
            if was_proposed != proposed {
                pool.mark_proposed(proposed);
            }
            if was_taken != taken {
                pool.mark_taken(segment, taken);
            }
            if !taken {
                freed.insert(at);
            } else if !was_taken {
                suspects.extend(pool.queue.take_behind());
            }
            if is_recounted {
                recounted.insert(at);
            }
        });
    }

    /// The record of an address.
    pub fn record(&self, addr: IpAddr) -> Option<Record> {
        self.records.get(addr).map(|slot| self.to_record(slot))
    }

    /// The records of an id, Bound or Released, by address.
    pub fn records_of(&self, id: &OwnerId) -> Vec<Record> {
        let mut records: Vec<_> = self
            .records
            .of(id)
            .map(|slot| self.to_record(slot))
            .collect();
        records.sort_unstable_by_key(|record| record.spec.addr);
        records
    }

    fn to_record(&self, slot: &RecordEntry) -> Record {
        let spec = RecordSpec {
            addr: slot.addr,
            pool: self.pools[slot.pool].name.clone(),
            owner: slot.owner.clone(),
            phase: slot.phase,
            bound_at: slot.bound_at,
            released_at: Some(slot.released_at).filter(|at| *at != Micros::MIN),
        };
        Record {
            spec,
            version: slot.version,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
