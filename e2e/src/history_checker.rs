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
use kube::{Api, Client};
use tokio::task::JoinHandle;

use crate::fake_kube_vip::Steady;
use crate::read::{allocated, id};
use crate::world::{OURS, World};

/// A LoadBalancer as last seen: its id and its address.
type Held = (String, Option<String>);

#[derive(Default)]
struct Seen {
    /// By uid.
    lbs: BTreeMap<String, Held>,
    /// By address: the uids of the LoadBalancers whose status has it.
    holders: HashMap<String, BTreeSet<String>>,
    /// Bound IPAllocations by name: the id of the owner.
    bound: BTreeMap<String, String>,
    /// By id: the address that a Service requests.
    services: HashMap<String, String>,
    shared_addresses: Vec<String>,
    moved: Vec<String>,
    given: BTreeSet<(String, String)>,
}

impl Seen {
    /// Stores the current state of a LoadBalancer; returns the state before.
    fn put(&mut self, lb: &LoadBalancer) -> Option<Held> {
        let uid = uid(&lb.metadata);
        let before = self.forget(&uid);
        let ip = served(lb);
        if let Some(ip) = &ip {
            let holders = self.holders.entry(ip.clone()).or_default();
            holders.insert(uid.clone());
        }
        self.lbs.insert(uid, (id(&lb.metadata), ip));
        before
    }

    fn forget(&mut self, uid: &str) -> Option<Held> {
        let before = self.lbs.remove(uid)?;
        if let Some(ip) = &before.1
            && let Some(holders) = self.holders.get_mut(ip)
        {
            holders.remove(uid);
        }
        Some(before)
    }

    fn lb(&mut self, lb: &LoadBalancer) {
        let (uid, id, ip) = (uid(&lb.metadata), id(&lb.metadata), served(lb));
        let before = self.put(lb);
        if let Some((_, Some(before))) = before
            && Some(&before) != ip.as_ref()
        {
            self.moved.push(format!("{id}: from {before} to {ip:?}"));
        }
        let Some(ip) = ip else { return };
        for other in self.holders.get(&ip).into_iter().flatten() {
            if *other != uid {
                let other = self.lbs.get(other).map(|(id, _)| id);
                let wrong = format!("{ip} is {id}'s and {other:?}'s at one time");
                self.shared_addresses.push(wrong);
            }
        }
        self.given.insert((uid, ip));
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
        match record.spec.phase {
            Phase::Released | Phase::Pending | Phase::Releasing => {
                self.bound.remove(&name);
            }
            Phase::Bound => {
                if let Some(before) = self.bound.insert(name.clone(), id.clone())
                    && before != id
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
            let stored: BTreeMap<String, Held> = api
                .list(&ListParams::default())
                .await?
                .iter()
                .map(|lb| (uid(&lb.metadata), (id(&lb.metadata), served(lb))))
                .collect();
            if lock(&self.seen).lbs == stored {
                return Ok(Some(()));
            }
            bail!("{} are stored", stored.len())
        })
        .await
    }

    /// Addresses that two LoadBalancers had at the same time.
    pub fn shared_addresses(&self) -> Vec<String> {
        lock(&self.seen).shared_addresses.clone()
    }

    /// LoadBalancers whose address was changed or removed.
    pub fn moved(&self) -> Vec<String> {
        lock(&self.seen).moved.clone()
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
