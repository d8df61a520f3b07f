//! Operations of the controllers on what the leader knows of shared addresses (SHR-1 to SHR-9): who is in a group, whose
//! record it has, how its ports are named. As in [`leader_ops`](super::leader_ops), a standby has none of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_controller_kit::store::Entry;
use harvester_lb_core::cached::{self, Lb};
use harvester_lb_core::sharing::group::Role;
use harvester_lb_core::sharing::naming::{Observed, Stored as StoredNames};
use harvester_lb_core::sharing::refusals::{Change, Refusals};
use harvester_lb_core::status;
use harvester_lb_ipam::{Grant, Micros, Owner, OwnerId, Phase, Record, RecordSpec};
use harvester_lb_object::{Key, Version};

use tokio::time::Instant;

use super::Index;
use super::leader_ops::NotLeader;

/// The load balancers of a group, and its records.
#[derive(Debug)]
pub struct Members {
    /// That of its name, and all that name it, each with one that shares its own address (SHR-7).
    pub parties: Vec<(Key, Option<Key>)>,
    /// The EndpointSlices of its Service, existing or not; also those of load balancers that have left it.
    pub slices: Vec<Key>,
    /// Names of ports that load balancers are about to write into their EndpointSlices, each with the name of the load balancer.
    pub offers: Vec<(String, String)>,
    /// The Bound records.
    pub records: Vec<Record>,
    /// What the API server refuses of the Service, and the present time on that clock.
    pub refusals: Option<Arc<(Refusals, Duration)>>,
}

/// Shared addresses.
impl Index {
    /// The load balancers of a group, existing or not, each with one that shares its own address, and the Bound records of the
    /// group; `None` if nobody names it and nobody else owns its Service or has an EndpointSlice of it, or on a standby.
    pub fn group(&self, key: &Key) -> Option<Members> {
        let now = Instant::now();
        let found = self.with_leader(|leader| {
            // Most load balancers share nothing.
            if !leader.sharing.is_group(key) && !leader.ledger.is_handed_over(&cached::id(key)) {
                leader.roles.remove(key);
                leader.refusals.remove(key);
                return None;
            }
            let records = leader.ledger.bound_records_of(&cached::id(key));
            let secondary = |lb: &Key| {
                let id = cached::id(lb);
                let bound = leader.ledger.bound_records_of(&id);
                // IPA-7: also of one whose record was deleted by hand.
                let unrecorded = leader.ledger.unrecorded(&id).into_iter();
                let addrs: Vec<IpAddr> = bound
                    .iter()
                    .map(|it| it.spec.addr)
                    .chain(unrecorded)
                    .collect();
                leader.sharing.secondary_of(lb, &addrs).cloned()
            };
            let naming = leader.sharing.naming(key);
            let all = [key].into_iter().chain(naming.filter(|lb| *lb != key));
            let parties: Vec<_> = all.map(|lb| (lb.clone(), secondary(lb))).collect();
            let slices = leader.sharing.slices_of(key).chain([key]).cloned();
            let is_same = |slice: &Key, version| self.stores.slices.version(slice) == version;
            let (offers, doubted_until) = leader.offers.of(key, is_same, now);
            let now = leader.began.elapsed();
            if let Some(refusals) = leader.refusals.get_mut(key) {
                // Who has left or is gone is not remembered.
                let uid = |lb: &Key| self.stores.lbs.get(lb)?.meta().uid.clone();
                let all = parties.iter();
                let all: BTreeSet<_> = all.map(|(lb, _)| (lb.name.to_string(), uid(lb))).collect();
                refusals.retain(|name, uid| all.contains(&(name.to_owned(), Some(uid.to_owned()))));
            }
            let refusals = leader.refusals.get(key).filter(|it| !it.is_empty());
            let members = Members {
                parties,
                slices: slices.collect(),
                offers,
                records,
                refusals: refusals.map(|it| Arc::new((it.clone(), now))),
            };
            Some((members, doubted_until))
        });
        let (members, doubted_until) = found.flatten()?;
        let doubted = doubted_until.map(|until| until.saturating_duration_since(now));
        let refusals = members.refusals.as_deref();
        let refused = refusals.and_then(|(it, now)| it.retry_in(*now));
        if let Some(wait) = doubted.into_iter().chain(refused).min() {
            // Who waits for one of those ports gets it then. Any other reconcile of the group ends that time, and begins it anew here.
            self.queues.lbs.add_after(key.clone(), wait);
        }
        Some(members)
    }

    /// The EndpointSlices of the Service of a group, and those of the load balancers that name it, existing or not; empty on a standby.
    pub fn slices_of_group(&self, key: &Key) -> BTreeSet<Key> {
        let all = self.with_leader(|leader| {
            let sharing = &leader.sharing;
            let all = sharing
                .slices_of(key)
                .chain(sharing.naming(key))
                .chain([key]);
            all.cloned().collect()
        });
        all.unwrap_or_default()
    }

    /// The API server refuses the write of these changes of the Service of a group (SHR-3). The group is queued, to write less.
    /// `pause`: the back-off after so many refusals. False if nobody shares the Service, or on a standby.
    pub fn service_refused(
        &self,
        group: &Key,
        changes: &[Change],
        why: &str,
        pause: impl Fn(u32) -> Duration,
    ) -> bool {
        let is_group = self.with_leader(|leader| {
            let is_group = leader.sharing.is_group(group);
            if is_group {
                let now = leader.began.elapsed();
                let refusals = leader.refusals.entry(group.clone()).or_default();
                refusals.refused(changes, why, now, pause);
            }
            is_group
        });
        if is_group == Some(true) {
            self.queues.lbs.add(group.clone());
        }
        is_group.unwrap_or(false)
    }

    /// The write of these changes of the Service of a group is done. If something was refused before it, the group is queued: the write
    /// has left out what is to be tried by itself. No-op on a standby.
    pub fn service_written(&self, group: &Key, changes: &[Change]) {
        if self.with_refusals(group, |it| it.written(changes)) {
            self.queues.lbs.add(group.clone());
        }
    }

    /// The Service of a group has everything but these changes, which are refused. No-op on a standby.
    pub fn service_settled(&self, group: &Key, pending: &[Change]) {
        self.with_refusals(group, |it| it.settled(pending));
    }

    /// Whether the API server refuses something of the Service of a group; false on a standby.
    pub fn has_refusals(&self, group: &Key) -> bool {
        self.with_leader(|leader| leader.refusals.contains_key(group))
            .unwrap_or(false)
    }

    /// Changes what is refused. Returns whether there was anything.
    fn with_refusals(&self, group: &Key, change: impl FnOnce(&mut Refusals)) -> bool {
        let was_any = self.with_leader(|leader| {
            let Some(refusals) = leader.refusals.get_mut(group) else {
                return false;
            };
            change(refusals);
            if refusals.is_empty() {
                leader.refusals.remove(group);
            }
            true
        });
        was_any.unwrap_or(false)
    }

    /// A load balancer is about to write these ports of the Service of a group into its EndpointSlice; until
    /// [`offer_ended`](Self::offer_ended) the group has them as offers of it. No-op on a standby.
    pub fn begin_offer(&self, group: &Key, lb: &Key, ports: &[String]) {
        self.with_leader(|leader| leader.offers.begin(group, lb, ports));
    }

    /// It has written them, or has given up.
    pub fn offer_ended(&self, group: &Key, lb: &Key) {
        self.with_leader(|leader| leader.offers.end(group, lb));
    }

    /// The write of its EndpointSlice, decided from the copy of this version, was not answered: the API server may do it yet. Until the
    /// copy has changed, or the API server can no longer do it, the ports remain offered. No-op on a standby.
    pub fn doubt_offer(&self, group: &Key, lb: &Key, version: Version) {
        let now = Instant::now();
        self.with_leader(|leader| leader.offers.doubt(group, lb, version, now));
    }

    /// The Bound records of a load balancer, also those that another one of its group owns; empty on a standby.
    pub fn bound_records_of(&self, id: &OwnerId) -> Vec<Record> {
        self.with_leader(|leader| leader.ledger.bound_records_of(id))
            .unwrap_or_default()
    }

    /// The groups that load balancers name; empty on a standby.
    pub fn groups(&self) -> Vec<Key> {
        self.with_leader(|leader| leader.sharing.all().cloned().collect())
            .unwrap_or_default()
    }

    /// Notes the role in a group that the reconcile of a load balancer acts on. No-op on a standby.
    pub fn saw_role(&self, group: &Key, lb: &Key, role: Option<&Role>) {
        self.with_leader(|leader| leader.saw_role(group, &lb.name, role));
    }

    /// The load balancers of a group that have not acted on their present role yet; empty on a standby.
    pub fn outdated_roles(&self, group: &Key, roles: &BTreeMap<String, Role>) -> Vec<Key> {
        self.with_leader(|leader| leader.outdated_roles(group, roles))
            .unwrap_or_default()
    }

    /// The names of the ports of a primary, with how long they have been these, and the present time on that clock.
    pub fn observe_names(&self, lb: &Key, stored: &StoredNames) -> (Observed, Duration) {
        let observe = |before: Option<&Observed>, now: Duration| {
            (Observed::after(before, stored.clone(), now), now)
        };
        let observed = self.with_leader(|leader| {
            let now = leader.began.elapsed();
            let (observed, now) = observe(leader.port_names.get(lb), now);
            leader.port_names.insert(lb.clone(), observed.clone());
            (observed, now)
        });
        observed.unwrap_or_else(|| observe(None, Duration::ZERO))
    }

    /// Forgets the names of the ports of a load balancer that shares its address with nobody.
    pub fn forget_names(&self, lb: &Key) {
        self.with_leader(|leader| leader.port_names.remove(lb));
    }

    /// The record to write when another load balancer of the group is to own it (SHR-5); `None` if the address is not Bound.
    pub fn hand_over(&self, addr: IpAddr, to: &Owner) -> Result<Option<Record>, NotLeader> {
        self.with_leader(|leader| leader.ledger.hand_over(addr, to))
            .ok_or(NotLeader)
    }

    /// The record to write for the address of a group that lost its own, and the version that it replaces (IPA-7). `named`: the
    /// address in the status of the next owner; without it a Service or a claim has to tell.
    pub fn restore_shared(
        &self,
        group: &Key,
        owner: &Owner,
        named: Option<IpAddr>,
        pool: Option<&str>,
        now: Micros,
    ) -> Result<Option<(RecordSpec, Option<Version>)>, NotLeader> {
        self.with_leader(|leader| {
            let id = cached::id(group);
            let mut addrs = leader.ledger.unrecorded(&id).into_iter().chain(named);
            addrs.find_map(|addr| leader.ledger.restore(&id, owner, addr, pool, now))
        })
        .ok_or(NotLeader)
    }

    /// What the holder of a Bound record is granted; `None` if the address has none, or on a standby.
    pub fn grant_of(&self, addr: IpAddr) -> Option<Grant> {
        self.with_leader(|leader| leader.ledger.grant_of(addr))
            .flatten()
    }

    /// A load balancer is about to name the address of another one in its status: until [`join_ended`](Self::join_ended) that is not
    /// released. False if it is being released, or is not Bound any more (IPA-6); false on a standby.
    pub fn begin_join(&self, addr: IpAddr) -> bool {
        self.with_leader(|leader| {
            let record = leader.ledger.record(addr);
            let is_bound = record.is_some_and(|it| it.spec.phase == Phase::Bound);
            let may_join = is_bound && !leader.releasing.contains(&addr);
            if may_join {
                leader.joining.begin(addr);
            }
            may_join
        })
        .unwrap_or(false)
    }

    /// The write by which a load balancer was to name an address, decided from its copy of this version, was not answered: the API server
    /// may do it yet. Until its copy has changed, or the API server can no longer do it, the address is not released. No-op on a standby.
    pub fn doubt_join(&self, addr: IpAddr, lb: &Key, version: Version) {
        let now = Instant::now();
        self.with_leader(|leader| leader.joining.doubt(addr, lb, version, now));
    }

    /// The release of an address is about to be sent. False if another load balancer is about to share it, or may be; false on a standby.
    pub fn begin_release(&self, addr: IpAddr) -> bool {
        let now = Instant::now();
        let (is_free, again) = self
            .with_leader(|leader| {
                // The write may be done, and the index not know it yet.
                let is_same = |lb: &Key, version| {
                    let stored = self.stores.lbs.entry(lb);
                    let has_joined = |it: &Entry<Lb>| {
                        it.value.as_valid().and_then(status::allocated_addr) == Some(addr)
                    };
                    let present = stored.as_ref().map(|it| it.stamp.version);
                    present.unwrap_or_default() == version
                        || stored.is_some_and(|it| has_joined(&it))
                };
                let doubt = leader.joining.doubt_until(addr, is_same, now);
                let is_free = !leader.joining.delay_release(addr) && doubt.is_none();
                if is_free {
                    leader.releasing.insert(addr);
                    leader.settled.remove(&addr);
                }
                let record = leader.ledger.record(addr);
                (is_free, doubt.zip(record))
            })
            .unwrap_or_default();
        if let Some((until, record)) = again {
            for id in [&record.spec.owner.id, &record.spec.address_of()] {
                let lbs = &self.queues.lbs;
                lbs.add_after(cached::key(id), until.saturating_duration_since(now));
            }
        }
        is_free
    }

    /// The release has been answered, or was given up. No-op on a standby.
    pub fn release_ended(&self, addr: IpAddr) {
        self.with_leader(|leader| leader.releasing.remove(&addr));
    }

    /// Whether no release of an address can be under way: its record was written since the last one was sent, or since this term began.
    /// False on a standby.
    pub fn is_settled(&self, addr: IpAddr) -> bool {
        self.with_leader(|leader| leader.settled.contains(&addr))
            .unwrap_or(false)
    }

    /// The record of an address was written, while a load balancer is about to share it. No-op on a standby.
    pub fn settle(&self, addr: IpAddr) {
        self.with_leader(|leader| leader.settled.insert(addr));
    }

    /// Its status names the address by now, or does not. Then the release of the address is due that has waited for it. No-op on a
    /// standby.
    pub fn join_ended(&self, addr: IpAddr) {
        let due = self.with_leader(|leader| {
            let is_due = leader.joining.end(addr);
            let record = leader.ledger.record(addr).filter(|_| is_due)?;
            let of = [&record.spec.owner.id, &record.spec.address_of()].map(cached::key);
            Some(of)
        });
        self.queue_lbs(due.flatten().into_iter().flatten());
    }

    /// Whether a load balancer has an address, or may have one, without a word of its status; false on a standby.
    pub fn has_address(&self, lb: &Key) -> bool {
        self.with_leader(|leader| leader.ledger.has_address(&cached::id(lb)))
            .unwrap_or(false)
    }

    /// Whether an address is one that [`has_address`](Self::has_address) speaks of.
    pub fn is_address_of(&self, addr: IpAddr, lb: &Key) -> bool {
        self.with_leader(|leader| leader.ledger.is_address_of(addr, &cached::id(lb)))
            .unwrap_or(false)
    }
}
