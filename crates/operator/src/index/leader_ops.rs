//! Operations of the controllers on the leader state. Each method takes the leader's lock once and queues the keys that it
//! affects.
//!
//! A standby (a process that is not the leader) has no such state. Each method documents its result there;
//! [`NotLeader`] is returned where the caller must stop.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::condition::Condition;
use harvester_lb_core::address_move::{
    AddressMove, MoveHistory, MoveLimits, MoveOutcome, ObservedService, Progress,
};
use harvester_lb_core::cached::{self, Pool};
use harvester_lb_core::plan::LeftBehind;
use harvester_lb_core::pool_status::{self, Projection, Snapshot};
use harvester_lb_core::spec;
use harvester_lb_ipam::allocation::{Allocation, Step};
use harvester_lb_ipam::manual_release::{self, Verdict};
use harvester_lb_ipam::{
    Blocked, Counts, Micros, OwnerId, Phase, PoolName, Record, RecordSpec, Request, Uid,
};
use harvester_lb_object::{Key, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Index;

/// This process is not the leader, or no longer (RUN-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process is not the leader")]
pub struct NotLeader;

/// Whether a record may be released.
#[derive(Debug)]
pub enum ReleaseVerdict {
    /// Yes; the record to write (REL-1).
    Release(Record),
    /// No: another load balancer of the namespace shares its address (SHR-5).
    Shared,
    /// No: it is still needed, or no longer this owner's (IPA-3).
    Blocked(Blocked),
}

/// A Service's move to another address (REL-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedMove {
    /// The remaining time until the Service is to be recreated; `None` if it need not be.
    pub remaining: Option<Duration>,
    /// What the end of the move shows about kube-vip.
    pub outcome: Option<MoveOutcome>,
    /// What kube-vip did with changed addresses in this term.
    pub history: MoveHistory,
}

/// Addresses of pools.
impl Index {
    /// The next step of an allocation (ALC-8).
    pub fn next_step(
        &self,
        allocation: &mut Allocation<'_>,
        now: Micros,
    ) -> Result<Step, NotLeader> {
        self.with_leader(|leader| allocation.next(&mut leader.ledger, now))
            .ok_or(NotLeader)
    }

    /// Drops the reservation of an address whose record is not written after all (ALC-8). No-op on a standby.
    pub fn abandon(&self, owner: &OwnerId, addr: IpAddr) {
        self.with_leader(|leader| leader.ledger.abandon(owner, addr));
    }

    /// The record of an address; `None` if there is none, or on a standby.
    pub fn record(&self, addr: IpAddr) -> Option<Record> {
        self.with_leader(|leader| leader.ledger.record(addr))
            .flatten()
    }

    /// Removes the queue position, reservations and claims of a deleted load balancer; its records stay. No-op on a standby.
    pub fn withdraw(&self, lb: &Key) {
        self.with_leader(|leader| leader.ledger.withdraw(&cached::id(lb)));
    }

    /// As [`withdraw`](Self::withdraw), for a load balancer that uses DHCP. Returns the records of its name, which it no
    /// longer needs (OPS-3); empty on a standby.
    pub fn withdraw_from_pools(&self, lb: &Key) -> Vec<Record> {
        let id = cached::id(lb);
        self.with_leader(|leader| {
            leader.ledger.withdraw(&id);
            leader.ledger.records_of(&id)
        })
        .unwrap_or_default()
    }

    /// Removes a load balancer that cannot be served from the queue of waiters; it keeps everything else (ALC-10). No-op on a
    /// standby.
    pub fn dequeue(&self, lb: &ObjectMeta) {
        self.with_leader(|leader| leader.ledger.dequeue(&spec::owner(lb)));
    }

    /// Removes a load balancer that gets no new address, unsupported or being deleted, from the queue of waiters; its address
    /// stays its own (IPA-9, FIN-2). No-op on a standby.
    pub fn set_aside(&self, lb: &ObjectMeta) {
        self.with_leader(|leader| leader.ledger.set_aside(&spec::owner(lb)));
    }

    /// Whether a load balancer of that name has a Bound record; false on a standby.
    pub fn holds_address(&self, lb: &Key) -> bool {
        self.with_leader(|leader| leader.ledger.records_of(&cached::id(lb)))
            .is_some_and(|all| all.iter().any(|r| r.spec.phase == Phase::Bound))
    }

    /// Adds load balancers that need an address to the queue of waiters, in this order (ALC-5). No-op on a standby.
    pub fn enqueue_waiters(&self, requests: Vec<Request>) {
        self.with_leader(|leader| {
            for request in requests {
                leader.ledger.enlist(request);
            }
        });
    }

    /// Waiting load balancers with an outdated message (SEL-7): checks at most `look` candidates and returns at most `limit`
    /// of them, and whether candidates are left. `None` on a standby.
    pub fn take_outdated_explanations(
        &self,
        look: usize,
        limit: usize,
    ) -> Option<(Vec<OwnerId>, bool)> {
        self.with_leader(|leader| {
            let outdated = leader.ledger.take_outdated_explanations(look, limit);
            (outdated, leader.ledger.may_have_outdated())
        })
    }
}

/// Records: updates from the API server, releases and deletions.
impl Index {
    /// Updates the ledger with an IPAllocation of the API server, by any writer (ALC-8, IPA-1). No-op for an older version
    /// than the known one, and on a standby.
    pub fn observe_record(&self, name: &str, allocation: &cached::Allocation) {
        self.with_leader(|leader| leader.observe_allocation(name, allocation));
    }

    /// Removes a deleted IPAllocation, last known in this version, from the ledger (IPA-7). No-op on a standby.
    pub fn forget_record(&self, name: &str, known: Version) {
        self.with_leader(|leader| leader.forget(name, known));
    }

    /// Whether a record that its owner no longer needs may be released now (IPA-3, IPA-9). A refusal because others are about to share
    /// it is noted: their end brings the owner back.
    pub fn may_release(&self, record: &Record, now: Micros) -> Result<ReleaseVerdict, NotLeader> {
        let RecordSpec { addr, owner, .. } = &record.spec;
        self.with_leader(|leader| {
            if leader.sharing.shares_record(record) || leader.joining.delay_release(*addr) {
                return ReleaseVerdict::Shared;
            }
            match leader.ledger.may_release(*addr, &owner.uid, now) {
                Ok(released) => ReleaseVerdict::Release(released),
                Err(blocked) => ReleaseVerdict::Blocked(blocked),
            }
        })
        .ok_or(NotLeader)
    }

    /// The verdict on a manual release (section 6.4), provided that no load balancer of the owner's name exists.
    pub fn manual_release_verdict(
        &self,
        pool: &PoolName,
        wish: &str,
        now: Micros,
    ) -> Result<Verdict, NotLeader> {
        self.with_leader(|leader| {
            manual_release::verdict(&leader.ledger, pool, wish, |_| false, now)
        })
        .ok_or(NotLeader)
    }

    /// Whether other load balancers may share the address of a record, which then must not be released (IPA-9); true on a
    /// standby.
    pub fn may_be_shared(&self, record: &Record) -> bool {
        self.with_leader(|leader| leader.sharing.shares_record(record))
            .unwrap_or(true)
    }

    /// At most `limit` Released records beyond the limits, or outside the ranges of every pool (POOL-1, POOL-5); empty on a
    /// standby.
    pub fn excess_history(&self, limit: usize) -> Vec<Record> {
        self.with_leader(|leader| leader.ledger.history_excess(limit))
            .unwrap_or_default()
    }
}

/// Import of the Go operator's maps (IPA-1).
impl Index {
    /// Pools with map entries that have no record yet (RUN-1); empty on a standby.
    pub fn unimported_pools(&self) -> BTreeSet<PoolName> {
        self.with_leader(|leader| leader.ledger.unimported_pools())
            .unwrap_or_default()
    }

    /// The records to create for the map entries of a pool; empty on a standby.
    pub fn unimported(&self, pool: &PoolName) -> Vec<RecordSpec> {
        self.with_leader(|leader| leader.ledger.unimported(pool))
            .unwrap_or_default()
    }

    /// Whether an address has no readable record; false on a standby.
    pub fn lacks_record(&self, addr: IpAddr) -> bool {
        self.with_leader(|leader| leader.ledger.record(addr).is_none())
            .unwrap_or(false)
    }

    /// Marks the map entry of an address as imported: it has a record now, by any writer. No-op on a standby.
    pub fn imported(&self, addr: IpAddr) {
        self.with_leader(|leader| leader.imported(addr));
    }
}

/// Status of pools.
impl Index {
    /// The input of a pool's counters and maps (POOL-3); `None` if there is no such pool, or on a standby.
    pub fn pool_snapshot(&self, pool: &PoolName) -> Option<Snapshot> {
        self.with_leader(|leader| Snapshot::of(&leader.ledger, pool))
            .flatten()
    }

    /// The conditions of a pool at the time `now` in RFC 3339 (POOL-1, POOL-2); `None` on a standby.
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

    /// The numbers of total and available addresses of a pool (ALC-11); `None` if there is no such pool, or on a standby.
    pub fn pool_size(&self, pool: &str) -> Option<(i64, i64)> {
        self.with_leader(|leader| {
            let view = leader.ledger.projection(pool);
            view.map(|view| (view.total, view.available))
        })
        .flatten()
    }

    /// The numbers of records and of waiting load balancers; `None` on a standby.
    pub fn counts(&self) -> Option<Counts> {
        self.with_leader(|leader| leader.ledger.counts())
    }
}

/// Load balancers.
impl Index {
    /// The remains of a deleted load balancer (IPA-3).
    pub fn left_behind(&self, lb: &Key) -> Result<LeftBehind, NotLeader> {
        self.with_leader(|leader| LeftBehind {
            deleted: leader.deleted_lbs.get(lb).cloned(),
            bound: leader.ledger.bound_records_of(&cached::id(lb)),
        })
        .ok_or(NotLeader)
    }

    /// Forgets a deleted load balancer whose cleanup is complete. No-op on a standby.
    pub fn cleanup_complete(&self, lb: &Key) {
        self.with_leader(|leader| leader.remove_deleted_lb(lb));
    }

    /// Deleted load balancers whose addresses are not released yet; empty on a standby.
    pub fn deleted_lbs(&self) -> Vec<Key> {
        self.with_leader(|leader| leader.deleted_lbs.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Marks a load balancer of which only the existing endpoints are updated (BE-6). From now on changes of its backends
    /// queue it, even if its selector does not match them. No-op on a standby.
    pub fn track_endpoints(&self, lb: &Key) {
        self.with_leader(|leader| leader.endpoint_only_lbs.insert(lb.clone()));
    }

    /// Reverts [`track_endpoints`](Self::track_endpoints), at the start of each reconcile. No-op on a standby.
    pub fn untrack_endpoints(&self, lb: &Key) {
        self.with_leader(|leader| leader.endpoint_only_lbs.remove(lb));
    }

    /// Whether the stored copy of a load balancer is at least as new as what an earlier leader has acted on (IPA-6); false on
    /// a standby.
    pub fn is_verified(&self, lb: &Key) -> bool {
        self.with_leader(|leader| leader.verified_lbs.contains(lb))
            .unwrap_or(false)
    }

    /// Marks a load balancer as [verified](Self::is_verified): it was read live, or its status was written with the resource
    /// version of the copy. No-op on a standby.
    pub fn set_verified(&self, lb: &Key) {
        self.with_leader(|leader| leader.verified_lbs.insert(lb.clone()));
    }

    /// Reverts [`set_verified`](Self::set_verified): a write has not been answered, and may have been done. No-op on a standby.
    pub fn set_unverified(&self, lb: &Key) {
        self.with_leader(|leader| leader.verified_lbs.remove(lb));
    }

    /// Whether the stored copy of an EndpointSlice is at least as new as what an earlier leader has acted on (SHR-3); false on a standby.
    pub fn is_slice_verified(&self, key: &Key) -> bool {
        self.with_leader(|leader| leader.verified_slices.contains(key))
            .unwrap_or(false)
    }

    /// Marks an EndpointSlice as [verified](Self::is_slice_verified): it was read live. No-op on a standby.
    pub fn set_slice_verified(&self, key: &Key) {
        self.with_leader(|leader| leader.verified_slices.insert(key.clone()));
    }

    /// The addresses that load balancers of this name have leased, by their uid; empty on a standby.
    pub fn leases_of(&self, lb: &Key) -> Vec<(Uid, IpAddr)> {
        self.with_leader(|leader| {
            let leases = leader.leases_of(lb);
            leases.map(|(uid, at)| (uid.clone(), at)).collect()
        })
        .unwrap_or_default()
    }

    /// Updates the move of a Service to another address (REL-4). No move on a standby.
    pub fn observe_move(
        &self,
        lb: &Key,
        service: &ObservedService<'_>,
        limits: &MoveLimits,
    ) -> ObservedMove {
        self.with_leader(|leader| {
            let now = leader.began.elapsed();
            let before = leader.moves.remove(lb);
            let Progress { next, outcome } = AddressMove::observe(before, service, now);
            if let Some(outcome) = outcome {
                leader.move_history = leader.move_history.after(outcome);
            }
            let history = leader.move_history;
            let limit = history.limit(limits);
            let remaining = next
                .as_ref()
                .and_then(|next| next.remaining(service.shown, limit, now));
            if let Some(next) = next {
                leader.moves.insert(lb.clone(), next);
            }
            ObservedMove {
                remaining,
                outcome,
                history,
            }
        })
        .unwrap_or_default()
    }

    /// The Service of a move was deleted, to be recreated (REL-4). No-op on a standby.
    pub fn moved_service_deleted(&self, lb: &Key) {
        self.with_leader(|leader| {
            let now = leader.began.elapsed();
            if let Some(it) = leader.moves.get_mut(lb) {
                it.deleted(now);
            }
        });
    }

    /// Records the node that announces the address of a load balancer. Returns the one before, if that was another; `None` also
    /// for the first one of a term, and on a standby.
    pub fn set_announcing_node(&self, lb: &Key, node: &str) -> Option<Arc<str>> {
        self.with_leader(|leader| match leader.announcing.get_mut(lb) {
            Some(known) if **known == *node => None,
            Some(known) => Some(std::mem::replace(known, Arc::from(node))),
            None => {
                leader.announcing.insert(lb.clone(), Arc::from(node));
                None
            }
        })
        .flatten()
    }

    /// When a node of a guest cluster was last deleted during the cluster's removal (GC-2); `None` if none is known.
    pub fn guest_cluster_removed_at(&self, cluster: &Key) -> Result<Option<Micros>, NotLeader> {
        self.with_leader(|leader| leader.removed_clusters.get(cluster).copied())
            .ok_or(NotLeader)
    }
}
