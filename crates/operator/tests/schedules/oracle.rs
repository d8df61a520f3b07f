//! Invariants after every change, written naively from the rules: the oracle reads the stored objects and does not use the
//! operator's own state.

use std::collections::{BTreeMap, BTreeSet};

use harvester_lb_api::keys;
use harvester_lb_object::Key;
use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::api::{By, Event, Kind};
use super::failure::{Failure, must};
use super::leases;

/// The addresses of a load balancer.
#[derive(Clone, Debug, PartialEq)]
struct Lb {
    uid: String,
    pool: Option<String>,
    /// The address that it requests (REQ-4).
    requested: Option<String>,
    dhcp: bool,
    /// `status.allocatedAddress.ip`
    committed: Option<String>,
    /// What that was before a request that landed late has changed it: it may have landed after whoever leads has made sure of
    /// the status, and before its write of the Service.
    excused: Option<String>,
    /// The load balancer whose address it asks for (SHR-1).
    primary: Option<String>,
    /// That of its former version: a write of the operator may come from a copy of it.
    was: Option<String>,
    workload: Option<String>,
    /// It is being deleted, and a finalizer holds it.
    is_leaving: bool,
    /// The operator has written its status since its spec was last changed.
    answered: bool,
    /// When the operator of this term has written its status.
    written_at: Option<Instant>,
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    address: String,
    owner: Key,
    uid: String,
    pool: String,
    bound: bool,
    /// The group whose address it is, if that is not its owner's (SHR-5).
    group: Option<String>,
}

/// A Service of ours.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shown {
    uid: String,
    asked: Option<String>,
    announced: Option<String>,
    /// Addresses written into it by a user or a late request: not the operator's fault until it has had time to correct
    /// them.
    excused: BTreeSet<String>,
    /// Addresses that kube-vip announced late, when the Service no longer asked for them and they were released: the operator recreates
    /// the Service (REL-4).
    late: BTreeSet<String>,
    /// Number of the last event by which somebody else has changed it.
    changed_at: u64,
}

/// The state from which the rules are checked.
#[derive(Default)]
pub(crate) struct Oracle {
    lbs: BTreeMap<Key, Lb>,
    records: BTreeMap<String, Record>,
    services: BTreeMap<Key, Shown>,
    /// Load balancers whose EndpointSlice has changed.
    slices_changed: BTreeSet<Key>,
    /// Addresses whose IPAllocations a user has edited or deleted: their rules are not checked.
    by_hand: BTreeSet<String>,
    /// Those among them whose IPAllocation a late request has made anew: it may have landed after whoever leads has made sure that
    /// there is none, and before its write of the status.
    made_late: BTreeSet<String>,
    /// Those of which a user has released the IPAllocation.
    released_by_hand: BTreeSet<String>,
    /// Uids of load balancers with a lease, and the addresses that they had by one.
    leased: BTreeSet<(String, Option<String>)>,
    /// The valid leases by the names of their records: load balancer, its uid, the address.
    leases: BTreeMap<Key, (Key, String, String)>,
    /// Number of events.
    events: u64,
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    let text = value.pointer(pointer)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

impl Lb {
    fn read(object: &Value) -> Self {
        Self {
            uid: text(object, "/metadata/uid").unwrap(),
            pool: text(object, "/spec/ipPool"),
            requested: object["metadata"]["annotations"][keys::ANNOTATION_REQUESTED_ADDRESS]
                .as_str()
                .map(str::to_owned),
            dhcp: object["spec"]["ipam"] == "dhcp",
            committed: text(object, "/status/allocatedAddress/ip").filter(|a| a != "0.0.0.0"),
            excused: None,
            primary: object["metadata"]["annotations"][keys::ANNOTATION_PRIMARY]
                .as_str()
                .map(str::to_owned),
            was: None,
            is_leaving: !object["metadata"]["deletionTimestamp"].is_null(),
            workload: text(object, "/spec/workloadType"),
            answered: false,
            written_at: None,
        }
    }
}

impl Record {
    fn read(object: &Value) -> Self {
        let owner = &object["spec"]["owner"];
        Self {
            address: text(object, "/spec/address").unwrap(),
            owner: Key::new(
                owner["namespace"].as_str().unwrap(),
                owner["name"].as_str().unwrap(),
            ),
            uid: owner["uid"].as_str().unwrap().to_owned(),
            pool: text(object, "/spec/pool").unwrap(),
            bound: object["spec"]["phase"] == "Bound",
            group: object["metadata"]["annotations"][keys::ANNOTATION_PRIMARY]
                .as_str()
                .map(str::to_owned),
        }
    }

    /// The load balancer whose address it is or was at first, and whose Service shows it.
    fn of(&self) -> Key {
        match &self.group {
            Some(group) => Key::new(&self.owner.namespace, &**group),
            None => self.owner.clone(),
        }
    }
}

impl Lb {
    /// Whether it asks for the address of another one, or did so just now.
    fn asks(&self) -> bool {
        self.primary.is_some() || self.was.is_some()
    }

    fn names(&self, group: &Key) -> bool {
        let mut names = [&self.primary, &self.was].into_iter().flatten();
        names.any(|name| **name == *group.name)
    }
}

/// Shortest time between two status writes of which the second changes only detail conditions.
const DETAIL_INTERVAL: Duration = Duration::from_secs(10);
/// Types of the detail conditions.
const DETAILS: [&str; 3] = ["AddressAllocated", "Announced", "BackendsHealthy"];

fn is_detail(condition: &Value) -> bool {
    DETAILS.iter().any(|type_| condition["type"] == *type_)
}

fn has_details(status: &Value) -> bool {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    all.any(is_detail)
}

/// A status without its detail conditions.
fn without_details(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| !is_detail(condition));
    }
    status
}

/// Whether a Service is the operator's.
fn is_ours(object: &Value, key: &Key) -> bool {
    let owned = object["metadata"]["ownerReferences"]
        .as_array()
        .is_some_and(|all| {
            all.iter()
                .any(|o| o["kind"] == "LoadBalancer" && o["name"] == *key.name)
        });
    owned || object["metadata"]["labels"][keys::LABEL_SERVICELB] == "true"
}

impl Oracle {
    /// Applies a change and checks the rules.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), Failure> {
        self.events += 1;
        match event.kind {
            Kind::Lb => self.lb(event),
            Kind::Record => self.record(event),
            Kind::Service => self.service(event),
            Kind::Slice => {
                self.slices_changed.insert(event.key.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn lb(&mut self, event: &Event) -> Result<(), Failure> {
        let key = &event.key;
        let Some(object) = &event.after else {
            self.lbs.remove(key);
            return Ok(());
        };
        let mut now = Lb::read(object);
        let before = self.lbs.remove(key).filter(|b| b.uid == now.uid);
        now.written_at = self.paced(event, before.as_ref())?;
        if let Some(before) = &before {
            now.was = if before.primary == now.primary {
                before.was.clone()
            } else {
                before.primary.clone()
            };
            now.answered = match event.by {
                By::Operator => true,
                _ => {
                    before.answered
                        && event
                            .before
                            .as_ref()
                            .is_some_and(|b| b["spec"] == object["spec"])
                }
            };
            now.excused = match event.by {
                _ if before.committed == now.committed => before.excused.clone(),
                By::Late => before.committed.clone(),
                _ => None,
            };
        }
        self.lbs.insert(key.clone(), now.clone());
        let Some(before) = before else {
            return Ok(());
        };
        if before.committed == now.committed || matches!(event.by, By::User | By::Cluster) {
            return Ok(());
        }
        let holds = |address: &str| {
            let record = self.records.get(address);
            record.filter(|r| r.bound && r.owner == *key && r.uid == now.uid)
        };
        if let Some(left) = &before.committed
            && !self.made_late.contains(left)
            && let Some(record) = holds(left)
        {
            let is_served = now.requested.is_some() && now.requested == now.committed;
            let leaves = now.dhcp
                || is_served
                || now.asks()
                || now.pool.as_ref().is_some_and(|pool| *pool != record.pool);
            must!(
                "IPA-7",
                leaves,
                "{key} holds {left} of pool {} and its status is changed to {:?}",
                record.pool,
                now.committed
            );
        }
        // SHR-3: an address of the group that it names.
        let shares = |address: &str| {
            let record = self.records.get(address).filter(|r| r.bound);
            record.is_some_and(|r| r.of().namespace == key.namespace && now.names(&r.of()))
        };
        if let Some(address) = &now.committed {
            must!(
                "IPA-6",
                holds(address).is_some() || self.by_hand.contains(address) || shares(address),
                "the status of {key} is given {address} without a record: {:?}",
                self.records.get(address)
            );
        }
        Ok(())
    }

    /// A write of nothing but detail conditions comes at least [`DETAIL_INTERVAL`] after the previous status write, and not to a
    /// status without any of them, unless it is one about endpoints. Returns the time of the last status write.
    fn paced(&self, event: &Event, known: Option<&Lb>) -> Result<Option<Instant>, Failure> {
        let last = known.and_then(|lb| lb.written_at);
        let (Some(before), Some(after)) = (&event.before, &event.after) else {
            return Ok(last);
        };
        if event.by != By::Operator || before["status"] == after["status"] {
            return Ok(last);
        }
        let (is_same, had_any) = (
            without_details(&before["status"]) == without_details(&after["status"]),
            has_details(&before["status"]),
        );
        if is_same {
            let since = last.map(|last| last.elapsed());
            must!(
                "section 9",
                since.is_none_or(|since| since >= DETAIL_INTERVAL),
                "detail conditions of {} are written alone {since:?} after its status",
                event.key
            );
            must!(
                "OPS-2",
                had_any || self.slices_changed.contains(&event.key),
                "detail conditions are added to {}, which had none",
                event.key
            );
        }
        Ok(Some(Instant::now()))
    }

    /// Another term has begun: the pace of the earlier one is not known there.
    pub(crate) fn begin_term(&mut self) {
        for lb in self.lbs.values_mut() {
            lb.written_at = None;
        }
    }

    /// The record of a lease: which addresses a load balancer has had by one, and which it has.
    fn lease(&mut self, event: &Event) {
        let Some(record) = &event.after else {
            self.leases.remove(&event.key);
            return;
        };
        let text = |pointer| text(record, pointer).unwrap_or_default();
        let (uid, address) = (text("/spec/owner/uid"), text("/spec/address"));
        let is_bound = record["spec"]["phase"] == "Bound";
        let bound = Some(address.clone()).filter(|_| is_bound && !address.is_empty());
        self.leased.insert((uid.clone(), bound));
        let is_lease = is_bound || record["spec"]["phase"] == "Releasing";
        if is_lease && text("/spec/lease/expiresAt") != leases::OVER {
            let owner = leases::owner_of(record);
            self.leases.insert(event.key.clone(), (owner, uid, address));
        } else {
            self.leases.remove(&event.key);
        }
    }

    fn record(&mut self, event: &Event) -> Result<(), Failure> {
        if leases::is_lease(&event.key) {
            self.lease(event);
            return Ok(());
        }
        let after = event.after.as_deref().map(Record::read);
        let before = event.before.as_deref().map(Record::read);
        let Some(address) = after
            .as_ref()
            .or(before.as_ref())
            .map(|r| r.address.clone())
        else {
            return Ok(());
        };
        match &after {
            Some(record) => self.records.insert(address.clone(), record.clone()),
            None => self.records.remove(&address),
        };
        if event.by == By::Late && self.by_hand.contains(&address) {
            self.made_late.insert(address.clone());
        } else {
            self.made_late.remove(&address);
        }
        if event.by == By::User {
            if after.is_some_and(|record| !record.bound) {
                self.released_by_hand.insert(address.clone());
            }
            self.by_hand.insert(address);
            return Ok(());
        }
        if let Some(before) = before.filter(|r| r.bound)
            && !self.by_hand.contains(&address)
        {
            self.given_up(&before, after.as_ref())?;
        }
        self.nobody_shows_what_is_anothers()
    }

    /// IPA-3: a Bound record was altered or deleted.
    fn given_up(&self, before: &Record, after: Option<&Record>) -> Result<(), Failure> {
        let Record {
            address,
            owner,
            uid,
            ..
        } = before;
        let lb = self.lbs.get(owner);
        let Some(after) = after else {
            return Err(Failure::new(
                "IPA-3",
                format!("the Bound record of {address} is deleted"),
            ));
        };
        if after.bound && after.owner != *owner {
            must!(
                "ALC-8",
                after.of() == before.of(),
                "{address} goes from {owner} to {} at once",
                after.owner
            );
            let group = before.of();
            let shares = |lb: &&Lb| *owner == group || (lb.names(&group) && lb.was.is_none());
            let robbed = lb.filter(|lb| lb.uid == *uid && !lb.dhcp).filter(shares);
            must!(
                "SHR-5",
                robbed.is_none(),
                "{address} of {group} is taken from {owner}, which lives and shares it"
            );
            let next = self.lbs.get(&after.owner);
            must!(
                "SHR-5",
                next.is_none_or(|lb| lb.uid != after.uid
                    || after.of() == after.owner
                    || lb.names(&after.of())),
                "{address} of {} is handed over to {}, which does not share it",
                after.of(),
                after.owner
            );
            return Ok(());
        }
        if after.bound {
            must!(
                "ALC-1",
                after.uid == *uid || lb.is_none_or(|lb| lb.uid != *uid),
                "{address} is taken from the living {owner}"
            );
            return Ok(());
        }
        if let Some(lb) = lb.filter(|lb| lb.uid == *uid) {
            must!(
                "IPA-3",
                lb.committed.as_ref() != Some(address),
                "{address} is released although the living {owner} names it"
            );
        }
        if let Some(service) = self.services.get(&before.of()) {
            let asks = service.asked.as_ref() == Some(address);
            let announces = service.announced.as_ref() == Some(address);
            // The operator has read the Service just before somebody changed it.
            let is_just_changed = service.changed_at + 1 >= self.events;
            must!(
                "IPA-3",
                !asks && (!announces || is_just_changed) || service.excused.contains(address),
                "{address} is released although the Service of {owner} shows it: {service:?}"
            );
            let is_living = lb.is_some_and(|lb| lb.uid == *uid);
            let announced = service.announced.as_ref();
            let announced = announced.filter(|it| self.records.contains_key(*it));
            let is_by_dhcp = service.asked.as_deref() == Some("0.0.0.0");
            let is_behind = announced.is_some() && service.announced != service.asked;
            must!(
                "REL-4",
                !is_living || !is_behind || is_by_dhcp || is_just_changed,
                "{address} is released although kube-vip has yet to follow the Service of {owner}: {service:?}"
            );
        }
        Ok(())
    }

    fn service(&mut self, event: &Event) -> Result<(), Failure> {
        let key = &event.key;
        if let Some(before) = &event.before {
            must!(
                "SVC-1",
                !matches!(event.by, By::Operator | By::Late) || is_ours(before, key),
                "the operator writes to a Service {key} that is somebody else's"
            );
        }
        let is_deleted = |o: &Value| !o["metadata"]["deletionTimestamp"].is_null();
        if event.by == By::Operator
            && event.before.as_ref().is_some_and(|o| !is_deleted(o))
            && event.after.as_ref().is_none_or(|o| is_deleted(o))
        {
            self.taken_down(key)?;
        }
        let Some(object) = event.after.as_ref().filter(|o| is_ours(o, key)) else {
            self.services.remove(key);
            return Ok(());
        };
        let mut now = Shown {
            uid: text(object, "/metadata/uid").unwrap(),
            asked: text(object, "/spec/loadBalancerIP"),
            announced: text(object, "/status/loadBalancer/ingress/0/ip"),
            ..Shown::default()
        };
        let before = self.services.get(key).filter(|b| b.uid == now.uid);
        let news = before.is_none_or(|b| b.asked != now.asked);
        if let Some(before) = before {
            now.excused.clone_from(&before.excused);
            now.late.clone_from(&before.late);
            now.changed_at = before.changed_at;
        }
        if event.by != By::Operator {
            now.changed_at = self.events;
        }
        match event.by {
            By::User | By::Late => now.excused.extend(now.asked.clone()),
            By::Operator => {
                if let Some(asked) = now.asked.as_ref().filter(|_| news) {
                    now.excused.remove(asked);
                    now.late.remove(asked);
                }
            }
            By::Cluster => {
                let is_new = before.is_none_or(|b| b.announced != now.announced);
                let is_its = |it: &String| {
                    let record = self.records.get(it).filter(|record| record.bound);
                    record.is_some_and(|record| record.of() == *key)
                };
                let late = now.announced.clone().filter(|_| is_new);
                let late = late.filter(|it| now.asked.as_ref() != Some(it) && !is_its(it));
                now.late
                    .extend(late.filter(|_| now.asked.as_deref() != Some("0.0.0.0")));
            }
        }
        if event.by == By::Operator
            && news
            && let Some(asked) = now.asked.as_ref().filter(|a| *a != "0.0.0.0")
            && let Some(lb) = self.lbs.get(key)
        {
            let of_this = object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|all| all.iter().any(|o| o["uid"] == *lb.uid));
            let is_leased = |address: &String| {
                let lease = (lb.uid.clone(), Some(address.clone()));
                lb.dhcp && self.leased.contains(&lease)
            };
            // It is served for those that share it, whether the status of one that goes has named it or not.
            let others_have = |address: &String| {
                let mut others = self.lbs.values();
                others.any(|it| it.names(key) && it.committed.as_ref() == Some(address))
            };
            must!(
                "DHC-1",
                !of_this
                    || !lb.dhcp
                    || is_leased(asked)
                    || lb.excused.as_ref() == Some(asked)
                    || lb.committed.as_ref() == Some(asked),
                "the Service of {key} is given {asked}, which was never leased to it"
            );
            must!(
                "IPA-6",
                !of_this
                    || is_leased(asked)
                    || (lb.is_leaving && others_have(asked))
                    || [&lb.committed, &lb.excused].contains(&&Some(asked.clone())),
                "the Service of {key} is given {asked} before its status: {:?}",
                lb.committed
            );
        }
        self.services.insert(key.clone(), now);
        self.nobody_shows_what_is_anothers()
    }

    /// REL-4, IPA-7: a Service is not deleted while it announces the address that its load balancer has and is to have.
    fn taken_down(&self, key: &Key) -> Result<(), Failure> {
        let (Some(service), Some(lb)) = (self.services.get(key), self.lbs.get(key)) else {
            return Ok(());
        };
        // SHR-7: the Service of one that joins another goes.
        if lb.workload.as_deref() != Some("vm") || !lb.answered || lb.asks() {
            return Ok(());
        }
        let holds = |address: &String| {
            let record = self.records.get(address);
            record.filter(|r| r.bound && r.owner == *key && r.uid == lb.uid)
        };
        if lb.dhcp {
            // One with a record of this name is no lease, but the address that it had before, maybe as an earlier load balancer.
            let is_recorded = |address: &&String| {
                let record = self.records.get(*address);
                record.is_some_and(|r| r.bound && r.owner == *key)
            };
            // With a record of a lease it is that which decides (DHC-6).
            let has_lease = self.leased.iter().any(|(uid, _)| *uid == lb.uid);
            let leased = service.announced.as_ref().filter(|a| !is_recorded(a));
            let leased = leased.filter(|_| !has_lease);
            // kube-vip may go on announcing that of an earlier one, which is given back once nothing shows it.
            let is_left = |address: &&String| {
                let mut leases = self.leases.values();
                leases.any(|(of, uid, at)| of == key && *uid != lb.uid && at == *address)
            };
            let leased = leased.filter(|address| !is_left(address));
            must!(
                "REL-4",
                leased.is_none() || service.asked.as_deref() != Some("0.0.0.0"),
                "the Service of {key} is deleted although it announces a lease: {service:?}"
            );
            return Ok(());
        }
        let Some(address) = &lb.committed else {
            return Ok(());
        };
        let is_of_pool = |record: &&Record| lb.pool.as_ref().is_none_or(|p| *p == record.pool);
        let is_kept = holds(address).as_ref().is_some_and(is_of_pool);
        let shows = [&service.asked, &service.announced].map(Option::as_ref) == [Some(address); 2];
        must!(
            "REL-4",
            !is_kept || !shows || self.by_hand.contains(address),
            "the Service of {key} is deleted although it announces {address}, which it has"
        );
        Ok(())
    }

    /// IPA-3, REL-3: an address that a Service shows is not allocated to another load balancer.
    fn nobody_shows_what_is_anothers(&self) -> Result<(), Failure> {
        for (key, service) in &self.services {
            for address in [&service.asked, &service.announced].into_iter().flatten() {
                let record = self.records.get(address).filter(|r| r.bound);
                must!(
                    "REL-3",
                    record.is_none_or(|r| r.of() == *key)
                        || service.excused.contains(address)
                        || service.late.contains(address)
                        || self.by_hand.contains(address),
                    "the Service of {key} shows {address}, which is Bound to {}",
                    record.map(|r| r.owner.to_string()).unwrap_or_default()
                );
            }
        }
        Ok(())
    }

    /// Addresses that a user has released although a Service may show them. A leader whose copy of that Service is still to come
    /// allocates them anew.
    pub(crate) fn released_by_hand(&self) -> &BTreeSet<String> {
        &self.released_by_hand
    }

    /// How many load balancers have an address of a pool.
    pub(crate) fn served(&self) -> usize {
        self.lbs
            .values()
            .filter(|lb| lb.committed.is_some())
            .count()
    }

    /// How many have none.
    pub(crate) fn waiting(&self) -> usize {
        self.lbs
            .values()
            .filter(|lb| !lb.dhcp && lb.committed.is_none())
            .count()
    }
}
