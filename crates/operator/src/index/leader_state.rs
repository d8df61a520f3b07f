//! The state of a leader besides the stores: the ledger, deleted load balancers, leased addresses, moves in progress.
//!
//! It is built from the stores at the start of a term and is guarded by one lock, which is never held during a request.
//! Controllers use it through the methods of [`leader_ops`](crate::index::leader_ops) only. After each of them the index queues the
//! affected keys, so that no wake-up is missed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_api::LoadBalancer;
use harvester_lb_core::address_move::{AddressMove, MoveHistory};
use harvester_lb_core::cached::{self, Allocation, CachedService, Lb, Pool};
use harvester_lb_core::dhcp::record::LeaseSpec;
use harvester_lb_core::plan::DeletedLb;
use harvester_lb_core::pool_spec::pool_spec;
use harvester_lb_core::sharing;
use harvester_lb_core::sharing::group::Role;
use harvester_lb_core::sharing::naming::Observed;
use harvester_lb_core::sharing::refusals::Refusals;
use harvester_lb_ipam::{Ledger, Micros, OwnerId, Phase, PoolName, Record, Settings, Uid};
use harvester_lb_object::Key;
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;
use tracing::warn;

use super::joins::Joins;
use super::offers::Offers;
use super::stores::Stores;
use crate::clock;

/// Number of removed guest clusters that are remembered; the oldest is dropped first. No watch lags behind by as many.
const REMOVED_CLUSTERS: usize = 1024;

/// The state of a leader besides the stores.
pub struct LeaderState {
    /// The address ledger.
    pub ledger: Ledger,
    /// Deleted load balancers whose addresses are not released yet.
    pub(super) deleted_lbs: HashMap<Key, DeletedLb, FxBuildHasher>,
    /// Addresses whose release was sent and is not answered yet.
    pub(super) releasing: HashSet<IpAddr>,
    /// Shared addresses of which no release can be under way: see [`Index::is_settled`](crate::index::Index::is_settled).
    pub(super) settled: HashSet<IpAddr>,
    /// Addresses of others that load balancers are about to name in their status.
    pub(super) joining: Joins,
    /// Ports of shared Services that load balancers are about to get (SHR-2).
    pub(super) offers: Offers,
    /// Leased addresses of load balancers, by the uid of the load balancer (DHC-5).
    leased: HashMap<Key, BTreeMap<Uid, IpAddr>>,
    /// How many leases each of these addresses has: more than one if several networks have it.
    lease_counts: HashMap<IpAddr, usize, FxBuildHasher>,
    /// Load balancers that share addresses (SHR-3).
    pub(super) sharing: sharing::index::Index,
    /// The role in its group that each load balancer has acted on, or was woken for, last.
    pub(super) roles: HashMap<Key, BTreeMap<String, Role>, FxBuildHasher>,
    /// What the API server refuses of shared Services, by group (SHR-3).
    pub(super) refusals: HashMap<Key, Refusals, FxBuildHasher>,
    /// The names of the ports of primaries, and since when they are these (SHR-4).
    pub(super) port_names: HashMap<Key, Observed, FxBuildHasher>,
    /// Load balancers whose Service moves to another address (REL-4).
    pub(super) moves: HashMap<Key, AddressMove, FxBuildHasher>,
    /// The start of the term, from which the times of moves count.
    pub(super) began: Instant,
    /// What kube-vip did with changed addresses in this term (REL-4).
    pub(super) move_history: MoveHistory,
    /// Guest clusters (namespace and name) of which a node was deleted during their removal, with the time of the last
    /// deletion (GC-1, GC-2). Kept, because a load balancer created before may be seen later.
    pub(super) removed_clusters: BTreeMap<Key, Micros>,
    /// Load balancers of which only the existing endpoints are updated (BE-6).
    pub(super) endpoint_only_lbs: BTreeSet<Key>,
    /// The node that announces the address of a load balancer, as last seen in this term.
    pub(super) announcing: HashMap<Key, Arc<str>, FxBuildHasher>,
    /// Load balancers read live, or whose status was written, in this term (IPA-6).
    pub(super) verified_lbs: HashSet<Key, FxBuildHasher>,
    /// Load balancers whose EndpointSlice was read live in this term (SHR-3).
    pub(super) verified_slices: HashSet<Key, FxBuildHasher>,
    /// Pools whose status may be outdated.
    dirty: BTreeSet<PoolName>,
}

impl LeaderState {
    /// An empty state with this ledger.
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            deleted_lbs: HashMap::default(),
            releasing: HashSet::default(),
            settled: HashSet::default(),
            joining: Joins::default(),
            offers: Offers::default(),
            leased: HashMap::default(),
            lease_counts: HashMap::default(),
            sharing: sharing::index::Index::default(),
            roles: HashMap::default(),
            refusals: HashMap::default(),
            port_names: HashMap::default(),
            moves: HashMap::default(),
            began: Instant::now(),
            move_history: MoveHistory::default(),
            removed_clusters: BTreeMap::new(),
            endpoint_only_lbs: BTreeSet::new(),
            announcing: HashMap::default(),
            verified_lbs: HashSet::default(),
            verified_slices: HashSet::default(),
            dirty: BTreeSet::new(),
        }
    }

    /// The state from the stores, without claims: the takeover adds those, after it has read the maps of the Go operator.
    pub fn from_stores(stores: &Stores) -> Self {
        let mut leader = Self::new(Ledger::new(Settings::default()));
        for (key, pool) in stores.pools.all() {
            leader.set_pool(&key, &pool);
        }
        for (key, allocation) in stores.allocations.all() {
            if let Allocation::Unreadable { why, .. } = &*allocation {
                warn!(ip_allocation = %key, why, "IPAllocation unreadable; its address stays blocked until the object is repaired or deleted");
            }
            leader.observe_allocation(&key.name, &allocation);
            if let Allocation::Lease(record) = &*allocation {
                leader.set_lease(&record.spec, true);
            }
        }
        for (key, service) in stores.services.all() {
            leader.set_shown(&key, Some(&service));
        }
        // Also those that no Service shows, or not yet.
        for key in leader.leased.keys().cloned().collect::<Vec<_>>() {
            leader.set_shown(&key, stores.services.get(&key).as_deref());
        }
        leader.sharing = stores.sharing();
        for (_, allocation) in stores.allocations.all() {
            match &*allocation {
                Allocation::Valid { record, .. } if record.spec.phase == Phase::Bound => {
                    leader.note_owner(stores, &record.spec.address_of(), &record.spec.owner.uid);
                }
                Allocation::Lease(record) => {
                    let owner = &record.spec.owner;
                    leader.note_owner(stores, &owner.id, &owner.uid);
                }
                Allocation::Valid { .. }
                | Allocation::Unreadable { .. }
                | Allocation::UnreadableLease(_)
                | Allocation::Reserved => {}
            }
        }
        leader
    }

    /// Adds the owner of a Bound record, or of a lease, to the deleted load balancers if the store does not have it. What it has
    /// is cleaned up only after a live read (IPA-3 a, DHC-4).
    fn note_owner(&mut self, stores: &Stores, owner: &OwnerId, uid: &Uid) {
        let owner = cached::key(owner);
        if stores.lbs.get(&owner).is_none() {
            let deleted = DeletedLb {
                uid: uid.to_string(),
                had_service: true,
                final_state_unknown: true,
            };
            self.deleted_lbs.insert(owner, deleted);
        }
    }

    /// Updates a created or changed pool.
    pub fn set_pool(&mut self, key: &Key, pool: &Pool) {
        let name = PoolName::from(&*key.name);
        self.ledger.set_pool(pool_spec(&name, pool, clock::now()));
        self.dirty.insert(name);
    }

    /// Records the deletion of a node during the removal of its guest cluster (GC-2).
    pub fn guest_cluster_removed(&mut self, cluster: &Key, at: Micros) {
        let last = self.removed_clusters.entry(cluster.clone()).or_insert(at);
        *last = at.max(*last);
        if self.removed_clusters.len() > REMOVED_CLUSTERS {
            let oldest = self.removed_clusters.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(cluster, _)| cluster.clone()) {
                self.removed_clusters.remove(&oldest);
            }
        }
    }

    /// Marks the map entry of an address as imported. The status of its pool may be written after the last one.
    pub fn imported(&mut self, addr: IpAddr) {
        self.dirty.extend(self.ledger.imported(addr));
    }

    /// Sets addresses whose orphaned records could not be released; load balancers that name them wait for that (RUN-1).
    pub fn await_release(&mut self, addrs: BTreeSet<IpAddr>) {
        for addr in addrs {
            let holder = self.ledger.record(addr).map(|it| it.spec.address_of());
            if holder.is_some_and(|id| self.deleted_lbs.contains_key(&cached::key(&id))) {
                self.ledger.await_release(addr);
            }
        }
    }

    /// Notes the role in a group that the reconcile of a load balancer has just acted on.
    pub fn saw_role(&mut self, group: &Key, lb: &str, role: Option<&Role>) {
        let seen = self.roles.entry(group.clone()).or_default();
        match role {
            Some(role) => drop(seen.insert(lb.to_owned(), role.clone())),
            None => drop(seen.remove(lb)),
        }
    }

    /// The load balancers of a group that have not acted on their present role yet. Each is returned once for a role: one whose
    /// reconcile does not come to it, as it is left alone, would be woken without end.
    pub fn outdated_roles(&mut self, group: &Key, roles: &BTreeMap<String, Role>) -> Vec<Key> {
        let seen = self.roles.entry(group.clone()).or_default();
        let left = seen.extract_if(.., |lb, _| !roles.contains_key(lb));
        let mut outdated: Vec<String> = left.map(|(lb, _)| lb).collect();
        for (lb, role) in roles {
            if seen.get(lb) != Some(role) {
                seen.insert(lb.clone(), role.clone());
                outdated.push(lb.clone());
            }
        }
        let key = |lb| Key::new(&group.namespace, lb);
        outdated.into_iter().map(key).collect()
    }

    /// Removes a load balancer from the deleted ones: it exists again, or its cleanup is complete.
    pub fn remove_deleted_lb(&mut self, key: &Key) {
        if self.deleted_lbs.remove(key).is_some() {
            self.ledger.stop_awaiting(&cached::id(key));
        }
    }

    /// The keys of the load balancers that an update of shared addresses affects: those it names, and the owners of addresses that
    /// are no longer shared (SHR-5).
    pub fn affected(&self, news: sharing::index::Affected) -> BTreeSet<Key> {
        let mut all = news.lbs;
        let records = news
            .addrs
            .into_iter()
            .filter_map(|addr| self.ledger.record(addr));
        for record in records {
            all.insert(cached::key(&record.spec.owner.id));
            all.insert(cached::key(&record.spec.address_of()));
        }
        all
    }

    /// Those that a change of a load balancer may concern because they share an address with it: its group, and, if its address
    /// changes, those that name it.
    pub fn parties_of(&self, key: &Key, old: Option<&Lb>, new: &Lb) -> Vec<Key> {
        let both = old.and_then(Lb::as_valid).zip(new.as_valid());
        let has_same_address = both.is_some_and(|(a, b)| {
            let address = |lb: &LoadBalancer| {
                let status = lb.status.as_ref();
                status.and_then(|it| it.allocated_address.clone())
            };
            a.metadata.uid == b.metadata.uid && address(a) == address(b)
        });
        let is_same_request = both.is_some_and(|(a, b)| {
            a.spec == b.spec
                && a.metadata.annotations == b.metadata.annotations
                && a.metadata.deletion_timestamp == b.metadata.deletion_timestamp
        });
        let group = self.sharing.group_of(key);
        let group = group.filter(|_| !(has_same_address && is_same_request));
        let naming = self.sharing.naming(key).filter(|_| !has_same_address);
        group.into_iter().chain(naming).cloned().collect()
    }

    /// Those that a change of a Service concerns besides the load balancer of its name: the group that this one names, as one that
    /// others share cannot join (SHR-7); unless what it shows stays the same, all that name it.
    pub fn parties_of_service(&self, key: &Key, is_same: bool) -> Vec<Key> {
        let group = self.sharing.group_of(key);
        let naming = self.sharing.naming(key).filter(|_| !is_same);
        group.into_iter().chain(naming).cloned().collect()
    }

    /// Whether the address of a record is that of a group.
    pub fn is_shared(&self, record: &Record) -> bool {
        let group = record.spec.address_of();
        group != record.spec.owner.id || self.sharing.is_group(&cached::key(&group))
    }

    /// The load balancers that a record concerns: its owner, and those that share the address, or ask for it.
    pub fn concerned_by(&self, record: &Record) -> BTreeSet<Key> {
        let group = cached::key(&record.spec.address_of());
        let mut all: BTreeSet<Key> = self.sharing.naming(&group).cloned().collect();
        all.insert(cached::key(&record.spec.owner.id));
        all.insert(group);
        all
    }

    /// Removes a deleted pool.
    pub fn remove_pool(&mut self, name: &str) {
        self.ledger.remove_pool(name);
    }

    /// Updates the ledger with a record of the API server. Returns false for a stale version.
    pub fn observe(&mut self, record: Record) -> bool {
        let addr = record.spec.addr;
        let before = self.ledger.record(addr);
        let pool = record.spec.pool.clone();
        if !self.ledger.observe(record) {
            return false;
        }
        if let Some(before) = before {
            self.dirty.insert(before.spec.pool);
        }
        self.dirty.insert(pool);
        true
    }

    /// Updates the ledger with an IPAllocation of a pool's address, readable or not. One of another kind holds no address of a pool
    /// (IPA-8); for leases there is [`set_lease`](Self::set_lease).
    pub fn observe_allocation(&mut self, name: &str, allocation: &Allocation) {
        match allocation {
            Allocation::Valid { record, .. } => {
                self.observe(record.clone());
            }
            Allocation::Unreadable { version, .. } => {
                self.ledger.block_name(name, *version);
            }
            Allocation::Lease(_) | Allocation::UnreadableLease(_) | Allocation::Reserved => {}
        }
    }

    /// Updates the address that a load balancer has leased by a change of the store, which ignores older copies, and returns its key.
    /// Then [`set_shown`](Self::set_shown) is due.
    pub fn set_lease(&mut self, lease: &LeaseSpec, is_present: bool) -> Key {
        let key = cached::key(&lease.owner.id);
        let held = lease.phase.lease().filter(|_| is_present);
        let now = held.map(|held| IpAddr::from(held.address));
        let of_key = self.leased.entry(key.clone()).or_default();
        let before = match now {
            Some(address) => of_key.insert(lease.owner.uid.clone(), address),
            None => of_key.remove(&lease.owner.uid),
        };
        if of_key.is_empty() {
            self.leased.remove(&key);
        }
        if let Some(address) = now {
            *self.lease_counts.entry(address).or_default() += 1;
        }
        if let Some(address) = before
            && let Some(count) = self.lease_counts.get_mut(&address)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.lease_counts.remove(&address);
            }
        }
        key
    }

    /// Whether an address is leased.
    pub fn is_leased(&self, address: IpAddr) -> bool {
        self.lease_counts.contains_key(&address)
    }

    /// The addresses that load balancers of this name have leased, by their uid.
    pub fn leases_of(&self, key: &Key) -> impl Iterator<Item = (&Uid, IpAddr)> {
        let all = self.leased.get(key).into_iter().flatten();
        all.map(|(uid, address)| (uid, *address))
    }

    /// Updates the addresses that are taken because the Service of this name shows them, or the load balancer has leased them (IPA-1,
    /// DHC-5).
    pub fn set_shown(&mut self, key: &Key, service: Option<&CachedService>) {
        let shown = service.map(|it| cached::shown_addresses(it));
        let mut shown = shown.unwrap_or_default();
        shown.extend(self.leased.get(key).into_iter().flat_map(BTreeMap::values));
        let id = cached::id(key);
        if service.is_some_and(|it| it.undecodable.is_some()) {
            self.ledger.add_shown(&id, &shown);
        } else {
            self.ledger.set_shown(&id, &shown);
        }
    }

    /// Removes a deleted IPAllocation, last known in this version.
    pub fn forget(&mut self, name: &str, version: harvester_lb_object::Version) {
        let Some(addr) = harvester_lb_ipam::addr::parse_record_name(name) else {
            return;
        };
        let before = self.ledger.record(addr);
        if let Some(before) = before {
            self.dirty.insert(before.spec.pool);
        }
        self.ledger.forget(addr, version);
    }

    /// Takes the pools whose status may be outdated since the last call, also because of claims, Services and unreadable
    /// records (ALC-11). The flag says that the pool is empty or full now.
    pub fn take_dirty(&mut self) -> Vec<(PoolName, bool)> {
        // An edit of one pool starts or ends overlaps with others (IPA-4).
        self.dirty.append(&mut self.ledger.take_overlap_changes());
        self.dirty.extend(self.ledger.take_recounted());
        let dirty = std::mem::take(&mut self.dirty).into_iter();
        dirty
            .map(|pool| {
                let is_empty_or_full = self.ledger.is_empty_or_full(&pool);
                (pool, is_empty_or_full)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
