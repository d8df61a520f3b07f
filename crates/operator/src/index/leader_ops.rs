//! What the leader's state is asked and told by those who work: a method for each operation, which takes the leader's lock
//! once, and queues what it has made due.
//!
//! Only a leader has such a state. Each method says what it answers where this process does not lead; what must not go on then
//! is [`NotLeading`].

use std::collections::BTreeSet;
use std::net::IpAddr;

use harvester_lb_api::condition::Condition;
use harvester_lb_core::cached::{self, Pool};
use harvester_lb_core::pool_status::{self, Projection, Snapshot};
use harvester_lb_core::unsupported::Unsupported;
use harvester_lb_ipam::allocation::{Allocation, Step};
use harvester_lb_ipam::manual_release::{self, Verdict};
use harvester_lb_ipam::{
    Blocked, Counts, Micros, OwnerId, Phase, PoolName, Record, RecordSpec, Request,
};
use harvester_lb_object::{Key, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;

use super::Index;
use super::leader_state::DeletedLb;

/// This process does not lead, or not any more (RUN-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead")]
pub struct NotLeading;

/// What a load balancer that is gone may have left behind (IPA-3).
#[derive(Debug)]
pub struct LeftBehind {
    /// What is known of its end. None: nothing is left of it that anybody knows, or all has been released.
    pub deleted: Option<DeletedLb>,
    /// The Bound records of its name.
    pub bound: Vec<Record>,
}

/// Whether a record may be released.
#[derive(Debug)]
pub enum ReleaseVerdict {
    /// It may, and this is to be written (REL-1).
    Release(Record),
    /// Not while others of the namespace may share its address (IPA-9).
    Shared,
    /// Not now, or not any more (IPA-3).
    Blocked(Blocked),
}

/// The address that a Service shows, compared with what it is to show (REL-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownAddress {
    /// It is that, or none, or may be any.
    AsWanted,
    /// That of an IPAllocation that is to be released.
    ToLeave,
    /// Another one.
    Other(IpAddr),
}

/// Addresses of pools.
impl Index {
    /// The next step of an allocation (ALC-8).
    pub fn next_step(
        &self,
        allocation: &mut Allocation<'_>,
        now: Micros,
    ) -> Result<Step, NotLeading> {
        self.with_leader(|leader| allocation.next(&mut leader.ledger, now))
            .ok_or(NotLeading)
    }

    /// The record of an address that is reserved for an owner is not written: the address is free again (ALC-8). Nothing
    /// happens where this process does not lead.
    pub fn abandon(&self, owner: &OwnerId, addr: IpAddr) {
        self.with_leader(|leader| leader.ledger.abandon(owner, addr));
    }

    /// The record of an address. None if there is none, or this process does not lead.
    pub fn record(&self, addr: IpAddr) -> Option<Record> {
        self.with_leader(|leader| leader.ledger.record(addr))
            .flatten()
    }

    /// A load balancer is gone: its place in the queue, its reservations and claims go with it; its records stay. Nothing
    /// happens where this process does not lead.
    pub fn withdraw(&self, lb: &Key) {
        self.with_leader(|leader| leader.ledger.withdraw(&cached::id(lb)));
    }

    /// A load balancer wants no address of a pool: as [`withdraw`](Self::withdraw). Answers the records of its name, which
    /// it needs no more (OPS-3); none where this process does not lead.
    pub fn withdraw_from_pools(&self, lb: &Key) -> Vec<Record> {
        let id = cached::id(lb);
        self.with_leader(|leader| {
            leader.ledger.withdraw(&id);
            leader.ledger.records_of(&id)
        })
        .unwrap_or_default()
    }

    /// A load balancer is being deleted: as [`withdraw`](Self::withdraw), but what is not this version's to touch is set
    /// aside (IPA-9). Nothing happens where this process does not lead.
    pub fn withdraw_deleting(&self, lb: &Key, meta: &ObjectMeta) {
        let id = cached::id(lb);
        self.with_leader(|leader| {
            let unsupported = leader.unsupported.of_lb(&leader.ledger, lb, meta);
            if unsupported.is_none() {
                leader.ledger.withdraw(&id);
            } else {
                leader.ledger.set_aside(&id);
            }
        });
    }

    /// A load balancer cannot be served until it is altered: it gives up its place in the queue and keeps all else (ALC-10).
    /// Nothing happens where this process does not lead.
    pub fn dequeue(&self, lb: &Key) {
        self.with_leader(|leader| leader.ledger.dequeue(&cached::id(lb)));
    }

    /// A load balancer is not this version's to touch: it waits for nothing, and what it holds stays its own (IPA-9). Nothing
    /// happens where this process does not lead.
    pub fn set_aside(&self, lb: &Key) {
        self.with_leader(|leader| leader.ledger.set_aside(&cached::id(lb)));
    }

    /// Whether a load balancer of that name has a Bound record; false where this process does not lead.
    pub fn holds_address(&self, lb: &Key) -> bool {
        self.with_leader(|leader| leader.ledger.records_of(&cached::id(lb)))
            .is_some_and(|all| all.iter().any(|r| r.spec.phase == Phase::Bound))
    }

    /// Puts load balancers that need an address into the queue, in this order (ALC-5). Nothing happens where this process
    /// does not lead.
    pub fn enqueue_waiters(&self, requests: Vec<Request>) {
        self.with_leader(|leader| {
            for request in requests {
                leader.ledger.enlist(request);
            }
        });
    }

    /// Some of the load balancers that wait and were told what is true no longer (SEL-7): of `look` suspects at most `limit`,
    /// and whether there are more. None where this process does not lead.
    pub fn take_misinformed(&self, look: usize, limit: usize) -> Option<(Vec<OwnerId>, bool)> {
        self.with_leader(|leader| {
            let misinformed = leader.ledger.take_misinformed(look, limit);
            (misinformed, leader.ledger.has_suspects())
        })
    }
}

/// Records: what the API server holds, and what may be released or deleted.
impl Index {
    /// An IPAllocation as the API server holds it, whoever wrote it (ALC-8, IPA-1). An older copy than is known changes
    /// nothing; nor does any where this process does not lead.
    pub fn record_is_known(&self, name: &str, allocation: &cached::Allocation) {
        self.with_leader(|leader| leader.observe_allocation(name, allocation));
    }

    /// An IPAllocation is gone, which was last known in this version (IPA-7). Nothing happens where this process does not lead.
    pub fn record_is_gone(&self, name: &str, known: Version) {
        self.with_leader(|leader| leader.forget(name, known));
    }

    /// Whether the record of an owner that does not need it any more may be released now (IPA-3, IPA-9).
    pub fn may_release(&self, record: &Record, now: Micros) -> Result<ReleaseVerdict, NotLeading> {
        let RecordSpec { addr, owner, .. } = &record.spec;
        self.with_leader(|leader| {
            if leader.unsupported.shares_record(record) {
                return ReleaseVerdict::Shared;
            }
            match leader.ledger.may_release(*addr, &owner.uid, now) {
                Ok(released) => ReleaseVerdict::Release(released),
                Err(blocked) => ReleaseVerdict::Blocked(blocked),
            }
        })
        .ok_or(NotLeading)
    }

    /// What an administrator's wish to release an address comes to (section 6.4), if no load balancer of the owner's name lives.
    pub fn judge_manual_release(
        &self,
        pool: &PoolName,
        wish: &str,
        now: Micros,
    ) -> Result<Verdict, NotLeading> {
        self.with_leader(|leader| manual_release::judge(&leader.ledger, pool, wish, |_| false, now))
            .ok_or(NotLeading)
    }

    /// Whether others may share the address of a record, so that it must not be released (IPA-9); true where this process
    /// does not lead.
    pub fn may_be_shared(&self, record: &Record) -> bool {
        self.with_leader(|leader| leader.unsupported.shares_record(record))
            .unwrap_or(true)
    }

    /// At most `limit` Released records that are too many, or that no pool has any more (POOL-1, POOL-5); none where this
    /// process does not lead.
    pub fn excess_history(&self, limit: usize) -> Vec<Record> {
        self.with_leader(|leader| leader.ledger.history_excess(limit))
            .unwrap_or_default()
    }
}

/// What is taken over from the Go operator's maps (IPA-1).
impl Index {
    /// Pools whose maps say what has no record yet (RUN-1); none where this process does not lead.
    pub fn unimported_pools(&self) -> BTreeSet<PoolName> {
        self.with_leader(|leader| leader.ledger.unimported_pools())
            .unwrap_or_default()
    }

    /// The records that are still to be made of what a pool's map says; none where this process does not lead.
    pub fn unimported(&self, pool: &PoolName) -> Vec<RecordSpec> {
        self.with_leader(|leader| leader.ledger.unimported(pool))
            .unwrap_or_default()
    }

    /// Whether there is no readable record of an address; false where this process does not lead.
    pub fn lacks_record(&self, addr: IpAddr) -> bool {
        self.with_leader(|leader| leader.ledger.record(addr).is_none())
            .unwrap_or(false)
    }

    /// What a map said of an address has become a record, or somebody else has made one. Nothing happens where this process
    /// does not lead.
    pub fn imported(&self, addr: IpAddr) {
        self.with_leader(|leader| leader.imported(addr));
    }
}

/// Pools as they are shown.
impl Index {
    /// What the counters and maps of a pool follow from (POOL-3). None if there is no such pool, or this process does not lead.
    pub fn pool_snapshot(&self, pool: &PoolName) -> Option<Snapshot> {
        self.with_leader(|leader| Snapshot::of(&leader.ledger, pool))
            .flatten()
    }

    /// The conditions of a pool at the time `now` in RFC 3339 (POOL-1, POOL-2). None where this process does not lead.
    pub fn pool_conditions(
        &self,
        name: &PoolName,
        pool: &Pool,
        projection: &Projection,
        now: &str,
    ) -> Option<Vec<Condition>> {
        self.with_leader(|leader| {
            pool_status::conditions(&leader.ledger, name, pool, projection, now)
        })
    }

    /// How many addresses a pool has, and how many of them are available (ALC-11). None if there is no such pool, or this
    /// process does not lead.
    pub fn pool_size(&self, pool: &str) -> Option<(i64, i64)> {
        self.with_leader(|leader| {
            let view = leader.ledger.projection(pool);
            view.map(|view| (view.total, view.available))
        })
        .flatten()
    }

    /// How many records there are, and how many load balancers wait. None where this process does not lead.
    pub fn counts(&self) -> Option<Counts> {
        self.with_leader(|leader| leader.ledger.counts())
    }
}

/// Load balancers.
impl Index {
    /// Why a load balancer, living or just gone, is not this version's to touch (IPA-9). None if it is, or this process does
    /// not lead.
    pub fn unsupported(&self, lb: &Key, meta: &ObjectMeta) -> Option<Unsupported> {
        self.with_leader(|leader| leader.unsupported.of_lb(&leader.ledger, lb, meta))
            .flatten()
    }

    /// Whether a Service that several share is one that a load balancer of this name has a part in (IPA-9); false where this
    /// process does not lead.
    pub fn has_shared_service(&self, lb: &Key) -> bool {
        self.with_leader(|leader| leader.unsupported.shared_service(lb).is_some())
            .unwrap_or(false)
    }

    /// What a load balancer that is gone may have left behind (IPA-3).
    pub fn left_behind(&self, lb: &Key) -> Result<LeftBehind, NotLeading> {
        self.with_leader(|leader| {
            let mut bound = leader.ledger.records_of(&cached::id(lb));
            bound.retain(|record| record.spec.phase == Phase::Bound);
            LeftBehind {
                deleted: leader.deleted_lbs.get(lb).cloned(),
                bound,
            }
        })
        .ok_or(NotLeading)
    }

    /// Nothing is left of a load balancer that is gone: it is forgotten. Nothing happens where this process does not lead.
    pub fn nothing_left_of(&self, lb: &Key) {
        self.with_leader(|leader| leader.is_there(lb));
    }

    /// Load balancers that are gone and whose addresses are still to be released; none where this process does not lead.
    pub fn deleted_lbs(&self) -> Vec<Key> {
        self.with_leader(|leader| leader.deleted_lbs.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Of a load balancer only the endpoints that are served follow the world from now on (BE-6): whoever of its virtual
    /// machines changes queues it, whatever its selector says. Nothing happens where this process does not lead.
    pub fn start_following(&self, lb: &Key) {
        self.with_leader(|leader| leader.followers.insert(lb.clone()));
    }

    /// The end of that, as the load balancer is looked at anew. Nothing happens where this process does not lead.
    pub fn stop_following(&self, lb: &Key) {
        self.with_leader(|leader| leader.followers.remove(lb));
    }

    /// Since when the move of a Service to another address is under way (REL-4), by what it shows now. None if none is, or
    /// this process does not lead.
    pub fn moving_since(&self, lb: &Key, shown: ShownAddress) -> Option<Instant> {
        self.with_leader(|leader| {
            let moving = match shown {
                ShownAddress::AsWanted => false,
                ShownAddress::ToLeave => true,
                // First announced late, when its record had been released already, an address may be another's by now.
                ShownAddress::Other(addr) => leader.ledger.record(addr).is_some(),
            };
            if !moving {
                leader.moving.remove(lb);
                return None;
            }
            let since = leader.moving.entry(lb.clone());
            Some(*since.or_insert_with(Instant::now))
        })
        .flatten()
    }

    /// The Service that was to move is made anew (REL-4). Nothing happens where this process does not lead.
    pub fn end_move(&self, lb: &Key) {
        self.with_leader(|leader| leader.moving.remove(lb));
    }

    /// When the last node of a guest cluster went that went with its cluster (GC-2); none has, as far as is known: None.
    pub fn guest_cluster_removed_at(&self, cluster: &Key) -> Result<Option<Micros>, NotLeading> {
        self.with_leader(|leader| leader.removed_clusters.get(cluster).copied())
            .ok_or(NotLeading)
    }
}
