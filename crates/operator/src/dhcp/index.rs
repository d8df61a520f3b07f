//! What the DHCP process knows of the cluster: trimmed copies of load balancers, of their Services, of the records of leases
//! and of the addresses that pools hold. Changes go in, load balancers whose lease is due come out. No client; never waits.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use harvester_lb_api::IPAllocation;
use harvester_lb_api::meta::Decoded;
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_controller_kit::work_queue::{RetryPolicy, WorkQueue};
use harvester_lb_core::cached::{self, Allocation};
use harvester_lb_core::dhcp::claim::{LbView, ServiceView};
use harvester_lb_core::dhcp::record::{self, LeaseRecord, LeaseSpec};
use harvester_lb_core::dhcp::upkeep::Holder;
use harvester_lb_ipam::{Micros, Owner, OwnerId, Phase, Uid, addr};
use harvester_lb_object::Key;
use parking_lot::{Mutex, RwLock};

use crate::clock;
use crate::dhcp::index::recorded::Recorded;
use crate::dhcp::index::withdrawn::Withdrawn;
use crate::dhcp::views::Views;

mod record_changes;
mod recorded;
mod twins;
mod withdrawn;

/// An IPAllocation, as far as leases are concerned.
#[derive(Debug, PartialEq, Eq)]
pub enum RecordView {
    /// The record of a lease.
    Lease(LeaseRecord),
    /// One that cannot be read: why. It is left alone, and so is its load balancer.
    UnreadableLease(String),
    /// The address of a pool that is held, or may be (DHC-5). The object is named after it.
    HeldByPool,
}

impl RecordView {
    /// Reads an object of the watch. `None`: it does not matter here.
    pub fn from_watch(decoded: Decoded<IPAllocation>) -> Option<Self> {
        Self::of(Allocation::from_watch(decoded))
    }

    /// Reads a decoded object.
    pub fn decoded(object: &IPAllocation) -> Option<Self> {
        Self::of(Allocation::decoded(object))
    }

    fn of(allocation: Allocation) -> Option<Self> {
        match allocation {
            Allocation::Lease(record) => Some(Self::Lease(*record)),
            Allocation::UnreadableLease(why) => Some(Self::UnreadableLease(why)),
            Allocation::Valid { record, .. } => {
                (record.spec.phase == Phase::Bound).then_some(Self::HeldByPool)
            }
            // Its address counts as taken (IPA-1).
            Allocation::Unreadable { .. } => Some(Self::HeldByPool),
            Allocation::Reserved => None,
        }
    }

    /// What it says of a lease; `None` if it is not the record of one, or cannot be read.
    pub fn lease(&self) -> Option<&LeaseSpec> {
        match self {
            Self::Lease(record) => Some(&record.spec),
            Self::UnreadableLease(_) | Self::HeldByPool => None,
        }
    }

    fn owner(&self) -> Option<&Owner> {
        Some(&self.lease()?.owner)
    }
}

/// The stores. They live as long as the process.
#[derive(Debug, Default)]
pub struct Stores {
    /// Load balancers.
    pub lbs: Arc<Store<LbView>>,
    /// Services of load balancers.
    pub services: Arc<Store<ServiceView>>,
    /// IPAllocations.
    pub records: Arc<Store<RecordView>>,
    /// What the records of leases say, by what is looked for.
    recorded: RwLock<Recorded>,
    /// What Services have shown until a moment ago.
    withdrawn: Mutex<Withdrawn>,
}

impl Stores {
    /// The kinds whose first list is not complete.
    pub fn unsynced(&self) -> Vec<&'static str> {
        [
            ("LoadBalancers", self.lbs.is_synced()),
            ("Services", self.services.is_synced()),
            ("IPAllocations", self.records.is_synced()),
        ]
        .into_iter()
        .filter_map(|(kind, is_synced)| (!is_synced).then_some(kind))
        .collect()
    }

    fn recorded_under(&self, id: &OwnerId) -> Vec<Owner> {
        let recorded = self.recorded.read();
        let uids = recorded.under(id).cloned();
        uids.map(|uid| Owner {
            id: id.clone(),
            uid,
        })
        .collect()
    }
}

/// A load balancer whose lease is due, as a key of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey(pub Owner);

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0.id, self.0.uid)
    }
}

/// Stores, clients and queue of one term.
#[derive(Debug)]
pub struct Index {
    /// Of the process.
    pub stores: Arc<Stores>,
    /// What the clients have told.
    pub views: Views,
    /// Load balancers whose lease is due.
    pub due: WorkQueue<LeaseKey>,
    /// Whether this process leads. Else nobody takes from the queue, and nothing is put into it.
    leads: AtomicBool,
}

impl Index {
    /// No client, and an empty queue.
    pub fn new(stores: Arc<Stores>, policy: RetryPolicy) -> Self {
        Self {
            stores,
            views: Views::default(),
            due: WorkQueue::new("DhcpLease", policy),
            leads: AtomicBool::new(false),
        }
    }

    /// The lease of a load balancer is due. No-op on a standby.
    pub fn queue(&self, owner: Owner) {
        if self.leads.load(Ordering::Acquire) {
            self.due.add(LeaseKey(owner));
        }
    }

    /// This process is leader now: every lease is due, and from now on those that change.
    pub fn begin_term(&self) {
        self.leads.store(true, Ordering::Release);
        self.stores
            .lbs
            .for_each(|_, lb| self.queue(lb.owner.clone()));
        self.stores.records.for_each(|_, record| {
            if let Some(owner) = record.owner() {
                self.queue(owner.clone());
            }
        });
    }

    /// The load balancer of this name and uid.
    pub fn lb(&self, owner: &Owner) -> Option<Arc<LbView>> {
        let lb = self.stores.lbs.get(&cached::key(&owner.id))?;
        (lb.owner.uid == owner.uid).then_some(lb)
    }

    /// The load balancer of this uid, whatever its name. It looks at all of them.
    pub fn lb_of_uid(&self, uid: &Uid) -> Option<Owner> {
        let mut found = None;
        self.stores.lbs.for_each(|_, lb| {
            if lb.owner.uid == *uid {
                found = Some(lb.owner.clone());
            }
        });
        found
    }

    /// The record of a load balancer's lease.
    pub fn record(&self, uid: &Uid) -> Option<Arc<RecordView>> {
        self.stores.records.get(&record_key(uid))
    }

    /// DHC-5: whether the record of a pool's address is held.
    pub fn is_held_by_pool(&self, address: Ipv4Addr) -> bool {
        let record = self.stores.records.get(&pool_record_key(address));
        record.is_some_and(|record| *record == RecordView::HeldByPool)
    }

    /// DHC-5: who else has an address that a load balancer has leased: a pool, or another load balancer whose lease was recorded first.
    /// Of two that have none recorded, or at the same time, the uid decides, so that the two agree.
    pub fn holder(&self, uid: &Uid, address: Ipv4Addr) -> Option<Holder> {
        if self.is_held_by_pool(address) {
            return Some(Holder::Pool);
        }
        let now = clock::now();
        let own = self.record(uid)?;
        let own = own.lease()?;
        let since = |spec: &LeaseSpec| {
            let lease = spec.phase.lease();
            let has = lease.is_some_and(|lease| lease.address == address && !lease.is_expired(now));
            has.then(|| {
                (
                    spec.bound_at.unwrap_or(Micros(i64::MAX)),
                    spec.owner.uid.clone(),
                )
            })
        };
        let with: Vec<Owner> = self.stores.recorded.read().with(address).collect();
        let records = with.iter().filter_map(|owner| self.record(&owner.uid));
        let first = records
            .filter_map(|record| {
                let spec = record.lease()?;
                Some((since(spec)?, spec.owner.clone(), spec.is_twin(own)))
            })
            .filter(|(_, lb, _)| lb.uid != *uid)
            .min_by(|(a, ..), (b, ..)| a.cmp(b));
        let (first, lb, is_twin) = first?;
        let is_before = since(own).is_none_or(|own| first < own);
        is_before.then_some(Holder::Lease { lb, is_twin })
    }

    /// DHC-4: the Services that show an address, of the load balancers that have a record of a lease of it. A Service that names an
    /// address without one holds up nobody.
    pub fn services_with(&self, address: Ipv4Addr) -> Vec<Key> {
        let recorded: Vec<Owner> = self.stores.recorded.read().with(address).collect();
        let keys = recorded.iter().map(|owner| cached::key(&owner.id));
        let shows = |key: &Key| {
            let service = self.stores.services.get(key);
            service.is_some_and(|service| service.shown.contains(&address))
        };
        keys.filter(shows).collect()
    }

    /// DHC-5: whether kube-vip may answer ARP for an address because of the load balancer's own Service, which has it or had it until a
    /// moment ago.
    pub fn is_announced_for(&self, lb: &OwnerId, address: Ipv4Addr) -> bool {
        let key = cached::key(lb);
        let service = self.stores.services.get(&key);
        let has_it = service.is_some_and(|service| service.shown.contains(&address));
        let withdrawn = self.stores.withdrawn.lock();
        has_it || withdrawn.has(&key, address, Instant::now())
    }

    /// DHC-5: whether kube-vip may still answer ARP for an address because of a Service that had it until a moment ago, whosever that was.
    pub fn was_withdrawn(&self, address: Ipv4Addr) -> bool {
        let withdrawn = self.stores.withdrawn.lock();
        withdrawn.has_any(address, Instant::now())
    }

    /// The load balancers that have an address by their records or clients; more than one only if servers are at fault.
    fn all_with(&self, address: Ipv4Addr) -> Vec<Owner> {
        let mut all: Vec<Owner> = self.stores.recorded.read().with(address).collect();
        all.extend(self.views.holders(address));
        all
    }

    /// A load balancer has changed.
    pub fn lb_changed(&self, _: &Key, change: &Change<LbView>) {
        match change {
            Change::Applied { old, new } => {
                // Made anew under its name: the earlier one is gone.
                if let Some(old) = old.as_ref().filter(|old| old.owner.uid != new.owner.uid) {
                    self.queue(old.owner.clone());
                }
                if old.as_ref() != Some(new) {
                    self.queue(new.owner.clone());
                    self.queue_twins_of(new.uid());
                }
            }
            Change::Deleted { old, .. } => self.queue(old.owner.clone()),
        }
    }

    /// A Service of a load balancer has changed.
    pub fn service_changed(&self, key: &Key, change: &Change<ServiceView>) {
        if let Change::Applied {
            old: Some(old),
            new,
        } = change
            && old == new
        {
            return;
        }
        let (old, new) = match change {
            Change::Applied { old, new } => (old.as_ref(), Some(new)),
            Change::Deleted { old, .. } => (Some(old), None),
        };
        // Before anything is decided because of the change.
        for address in old.into_iter().flat_map(|old| &old.shown) {
            if !new.is_some_and(|new| new.shown.contains(address)) {
                let mut withdrawn = self.stores.withdrawn.lock();
                withdrawn.add(key, *address, Instant::now());
            }
        }
        if let Some(lb) = self.stores.lbs.get(key) {
            self.queue(lb.owner.clone());
        }
        for owner in self.stores.recorded_under(&cached::id(key)) {
            self.queue(owner);
        }
        // Another load balancer may wait until it does not show the address any more (DHC-4).
        for service in [old, new].into_iter().flatten() {
            for owner in service.shown.iter().flat_map(|it| self.all_with(*it)) {
                self.queue(owner);
            }
        }
    }

    /// Whether the record of a load balancer, or `None`: any, names an interface.
    pub fn is_named(&self, interface: &str, uid: Option<&Uid>) -> bool {
        let recorded = self.stores.recorded.read();
        match uid {
            Some(uid) => recorded.is_on(uid, interface),
            None => recorded.any_on(interface),
        }
    }

    /// DHC-2: the number of recorded leases on an interface for which `has_client` is false: their clients are still to come.
    pub fn leases_without(&self, interface: &str, has_client: impl Fn(&Uid) -> bool) -> usize {
        let recorded = self.stores.recorded.read();
        let leased = recorded.leased_on(interface);
        leased.filter(|uid| !has_client(uid)).count()
    }
}

/// The key of the record of a load balancer's lease.
pub fn record_key(uid: &Uid) -> Key {
    Key::new("", record::name(uid))
}

/// The key of the record of a pool's address.
pub fn pool_record_key(address: Ipv4Addr) -> Key {
    Key::new("", addr::record_name(address.into()))
}

#[cfg(test)]
mod tests;
