//! Watches LoadBalancers, IPAllocations and Services during a test, and reports every violation that is visible for a
//! moment only, which an audit afterwards could no longer see.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::bail;
use futures::{StreamExt, pin_mut};
use harvester_lb_api::{IPAllocation, LoadBalancer, Phase, keys};
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, ObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;

use crate::fake_kube_vip::Steady;
use crate::read::{allocated, id};
use crate::world::{OURS, World};

/// A LoadBalancer as last seen.
#[derive(Clone, Debug)]
struct Held {
    id: String,
    /// Its address.
    ip: Option<String>,
    /// The group and the requested address that it named when it got that.
    asked: Asked,
    /// Whether it has named others since, so that its address may change (SHR-7, REQ-4).
    asks_anew: bool,
}

/// What a LoadBalancer asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    group: String,
    requested: Option<String>,
}

impl Asked {
    fn of(lb: &LoadBalancer) -> Self {
        let annotation = |key: &str| lb.annotations().get(key).cloned();
        Self {
            group: group(&lb.metadata, annotation(keys::ANNOTATION_PRIMARY)),
            requested: annotation(keys::ANNOTATION_REQUESTED_ADDRESS),
        }
    }
}

/// A group (SHR-3): the namespace, and the name in the annotation or else that of the load balancer.
fn group(meta: &ObjectMeta, named: Option<String>) -> String {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = named.or_else(|| meta.name.clone()).unwrap_or_default();
    format!("{namespace}/{name}")
}

/// A change of an address, or its loss, by a LoadBalancer that asks for the same as before.
#[derive(Clone, Debug)]
struct Move {
    id: String,
    group: String,
    from: String,
    to: Option<String>,
    /// Whether it names the group of another one, of which nobody else had the former address.
    had_its_own: bool,
}

#[derive(Default)]
struct Seen {
    /// By uid.
    lbs: BTreeMap<String, Held>,
    /// By address: the uids of the LoadBalancers whose status has it.
    holders: HashMap<String, BTreeSet<String>>,
    /// Bound IPAllocations by name: the id of the owner, and the group.
    bound: BTreeMap<String, (String, String)>,
    /// By id: the address that a Service requests.
    services: HashMap<String, String>,
    shared_addresses: Vec<String>,
    moves: Vec<Move>,
    given: BTreeSet<(String, String)>,
    /// By address: the groups of those that got it other than by one of the moves.
    groups: HashMap<String, BTreeSet<String>>,
}

impl Seen {
    /// Stores the current state of a LoadBalancer; returns the state before.
    fn put(&mut self, lb: &LoadBalancer) -> Option<Held> {
        let uid = uid(&lb.metadata);
        let before = self.forget(&uid);
        let (ip, asks) = (served(lb), Asked::of(lb));
        if let Some(ip) = &ip {
            let holders = self.holders.entry(ip.clone()).or_default();
            holders.insert(uid.clone());
        }
        let kept = before.as_ref().filter(|before| before.ip == ip);
        let asks_anew = kept.is_some_and(|kept| kept.asks_anew || kept.asked != asks);
        let held = Held {
            id: id(&lb.metadata),
            ip,
            asked: kept.map_or(asks, |kept| kept.asked.clone()),
            asks_anew,
        };
        self.lbs.insert(uid, held);
        before
    }

    fn forget(&mut self, uid: &str) -> Option<Held> {
        let before = self.lbs.remove(uid)?;
        if let Some(ip) = &before.ip
            && let Some(holders) = self.holders.get_mut(ip)
        {
            holders.remove(uid);
        }
        Some(before)
    }

    /// Those that have the address must be of one group.
    fn lb(&mut self, lb: &LoadBalancer) {
        let (uid, id, ip) = (uid(&lb.metadata), id(&lb.metadata), served(lb));
        let group = Asked::of(lb).group;
        let moved_from = self.put(lb).and_then(|before| {
            let from = before.ip.filter(|from| Some(from) != ip.as_ref());
            from.filter(|_| !before.asks_anew)
        });
        let moves = moved_from.is_some();
        if let Some(from) = moved_from {
            self.moves.push(Move {
                had_its_own: group != id && !self.holds(&group, &from),
                to: ip.clone(),
                id: id.clone(),
                group: group.clone(),
                from,
            });
        }
        let Some(ip) = ip else { return };
        let asked = |uid: &str| self.lbs.get(uid).map(|held| &held.asked.group);
        for other in self.holders.get(&ip).into_iter().flatten() {
            if asked(other) != asked(&uid) {
                let other = self.lbs.get(other).map(|held| &held.id);
                let wrong = format!("{ip} is {id}'s and {other:?}'s at one time");
                self.shared_addresses.push(wrong);
            }
        }
        if !moves {
            self.groups.entry(ip.clone()).or_default().insert(group);
        }
        self.given.insert((uid, ip));
    }

    /// Whether the group has the address.
    fn holds(&self, group: &str, ip: &str) -> bool {
        let holders = self.holders.get(ip).into_iter().flatten();
        let mut held = holders.filter_map(|uid| self.lbs.get(uid));
        held.any(|held| held.asked.group == group)
    }

    /// The moves that no rule allows. One that got an address of its own while its group had none (that of its earlier namesake,
    /// ALC-1) moves to that of the group later (SHR-7); the others may be seen there after it.
    fn moved(&self) -> Vec<String> {
        let joins = |m: &Move| {
            let groups = m.to.as_ref().and_then(|to| self.groups.get(to));
            m.had_its_own && groups.is_some_and(|groups| groups.contains(&m.group))
        };
        let wrong = self.moves.iter().filter(|m| !joins(m));
        wrong
            .map(|m| format!("{}: from {} to {:?}", m.id, m.from, m.to))
            .collect()
    }

    /// The address of each LoadBalancer, by uid.
    fn addresses(&self) -> BTreeMap<String, Option<String>> {
        let all = self.lbs.iter();
        all.map(|(uid, held)| (uid.clone(), held.ip.clone()))
            .collect()
    }

    /// Two Services must never show the same address, not even briefly (REL-3).
    fn service(&mut self, service: &Service) {
        let id = id(&service.metadata);
        let spec = service.spec.as_ref();
        let shown = spec.and_then(|s| s.load_balancer_ip.clone());
        self.services.remove(&id);
        let Some(ip) = shown.filter(|ip| ip != keys::DHCP_ADDRESS) else {
            return;
        };
        if let Some((other, _)) = self.services.iter().find(|(_, shown)| **shown == ip) {
            let wrong = format!("Services {id} and {other} show {ip} at one time");
            self.shared_addresses.push(wrong);
        }
        self.services.insert(id, ip);
    }

    fn record(&mut self, record: &IPAllocation) {
        let name = record.metadata.name.clone().unwrap_or_default();
        let owner = &record.spec.owner;
        let id = format!("{}/{}", owner.namespace, owner.name);
        let named = record.annotations().get(keys::ANNOTATION_PRIMARY);
        let group = named.map_or_else(|| id.clone(), |name| format!("{}/{name}", owner.namespace));
        match record.spec.phase {
            Phase::Released | Phase::Pending | Phase::Releasing => {
                self.bound.remove(&name);
            }
            Phase::Bound => {
                // Within a group it is handed over (SHR-5).
                if let Some((before, of)) =
                    self.bound.insert(name.clone(), (id.clone(), group.clone()))
                    && before != id
                    && of != group
                {
                    let wrong = format!("the record {name} went from {before} straight to {id}");
                    self.shared_addresses.push(wrong);
                }
            }
        }
    }
}

/// Watches until it is dropped.
pub struct HistoryChecker {
    seen: Arc<Mutex<Seen>>,
    tasks: [JoinHandle<()>; 3],
}

impl Drop for HistoryChecker {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HistoryChecker {
    /// Starts the watches.
    pub fn start(client: &Client) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let lbs = tokio::spawn(watch_lbs(client.clone(), Arc::clone(&seen)));
        let records = tokio::spawn(watch_records(client.clone(), Arc::clone(&seen)));
        let services = tokio::spawn(watch_services(client.clone(), Arc::clone(&seen)));
        Self {
            seen,
            tasks: [lbs, records, services],
        }
    }

    /// Waits until all stored objects have been seen.
    pub async fn caught_up(&self, world: &World) -> anyhow::Result<()> {
        let api: Api<LoadBalancer> = Api::all(world.client());
        let what = "the witness has seen everything";
        eventually(what, Duration::from_secs(30), || async {
            let stored = api.list(&ListParams::default()).await?;
            let stored: BTreeMap<_, _> = stored
                .iter()
                .map(|lb| (uid(&lb.metadata), served(lb)))
                .collect();
            let seen = lock(&self.seen).addresses();
            if seen == stored {
                return Ok(Some(()));
            }
            bail!("{} are stored", stored.len())
        })
        .await
    }

    /// Addresses that two LoadBalancers of different groups had at the same time.
    pub fn shared_addresses(&self) -> Vec<String> {
        lock(&self.seen).shared_addresses.clone()
    }

    /// LoadBalancers whose address was changed or removed, although they ask for the same as before and join no group.
    pub fn moved(&self) -> Vec<String> {
        lock(&self.seen).moved()
    }

    /// Number of times that a LoadBalancer got an address.
    pub fn given(&self) -> usize {
        lock(&self.seen).given.len()
    }

    /// All violations, once all objects have been seen.
    pub async fn findings(&self, world: &World) -> anyhow::Result<Vec<String>> {
        self.caught_up(world).await?;
        Ok([self.shared_addresses(), self.moved()].concat())
    }
}

async fn watch_lbs(client: Client, seen: Arc<Mutex<Seen>>) {
    let api: Api<LoadBalancer> = Api::all(client);
    let stream = watch(api, watcher::Config::default()).backoff(Steady);
    pin_mut!(stream);
    let mut listed = None;
    while let Some(event) = stream.next().await {
        let mut seen = lock(&seen);
        match event {
            Ok(Event::Init) => listed = Some(BTreeSet::new()),
            Ok(Event::InitApply(lb)) => {
                if let Some(listed) = &mut listed {
                    listed.insert(uid(&lb.metadata));
                }
                // Deletions are known only when the list is complete.
                seen.put(&lb);
            }
            Ok(Event::InitDone) => {
                if let Some(listed) = listed.take() {
                    let known: Vec<String> = seen.lbs.keys().cloned().collect();
                    for uid in known.iter().filter(|uid| !listed.contains(*uid)) {
                        seen.forget(uid);
                    }
                }
            }
            Ok(Event::Apply(lb)) => seen.lb(&lb),
            Ok(Event::Delete(lb)) => {
                seen.forget(&uid(&lb.metadata));
            }
            Err(_) => {}
        }
    }
}

async fn watch_records(client: Client, seen: Arc<Mutex<Seen>>) {
    let api: Api<IPAllocation> = Api::all(client);
    let stream = watch(api, watcher::Config::default()).backoff(Steady);
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        let mut seen = lock(&seen);
        match event {
            // A list does not show the changes in between.
            Ok(Event::Init) => seen.bound.clear(),
            Ok(Event::InitApply(record) | Event::Apply(record)) => seen.record(&record),
            Ok(Event::Delete(record)) => {
                seen.bound
                    .remove(record.metadata.name.as_deref().unwrap_or_default());
            }
            Ok(Event::InitDone) | Err(_) => {}
        }
    }
}

async fn watch_services(client: Client, seen: Arc<Mutex<Seen>>) {
    let api: Api<Service> = Api::all(client);
    let ours = watcher::Config::default().labels(OURS);
    let stream = watch(api, ours).backoff(Steady);
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        let mut seen = lock(&seen);
        match event {
            // The changes in between are unknown, and deletions until the list is complete.
            Ok(Event::Init) => seen.services.clear(),
            Ok(Event::InitApply(service) | Event::Apply(service)) => seen.service(&service),
            Ok(Event::Delete(service)) => {
                seen.services.remove(&id(&service.metadata));
            }
            Ok(Event::InitDone) | Err(_) => {}
        }
    }
}

fn uid(meta: &ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_default()
}

/// The address that a LoadBalancer has from a pool.
fn served(lb: &LoadBalancer) -> Option<String> {
    allocated(lb).filter(|ip| ip != keys::DHCP_ADDRESS)
}
