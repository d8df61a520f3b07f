//! The witness: watches load balancers and records all the while, and names every wrong that even one moment shows,
//! which an audit afterwards could no longer see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::bail;
use futures::{StreamExt, pin_mut};
use harvester_lb_api::{IPAllocation, LoadBalancer, Phase};
use harvester_lb_testkit::eventually;
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use tokio::task::JoinHandle;

use crate::announcer::Steady;
use crate::world::{World, allocated};

/// A load balancer as it was seen last: its id and its address.
type Held = (String, Option<String>);

#[derive(Default)]
struct Seen {
    /// By uid.
    lbs: BTreeMap<String, Held>,
    /// Bound records by name: the id of the owner.
    bound: BTreeMap<String, String>,
    doubled: Vec<String>,
    moved: Vec<String>,
    given: BTreeSet<(String, String)>,
}

impl Seen {
    fn lb(&mut self, lb: &LoadBalancer) {
        let uid = lb.metadata.uid.clone().unwrap_or_default();
        let id = id(&lb.metadata);
        let ip = allocated(lb).filter(|ip| ip != "0.0.0.0");
        let before = self.lbs.insert(uid.clone(), (id.clone(), ip.clone()));
        if let Some((_, Some(before))) = before
            && Some(&before) != ip.as_ref()
        {
            self.moved.push(format!("{id}: from {before} to {ip:?}"));
        }
        let Some(ip) = ip else { return };
        for (other, (other_id, other_ip)) in &self.lbs {
            if *other != uid && other_ip.as_ref() == Some(&ip) {
                let wrong = format!("{ip} is {id}'s and {other_id}'s at one time");
                self.doubled.push(wrong);
            }
        }
        self.given.insert((uid, ip));
    }

    fn record(&mut self, record: &IPAllocation) {
        let name = record.metadata.name.clone().unwrap_or_default();
        let owner = &record.spec.owner;
        let id = format!("{}/{}", owner.namespace, owner.name);
        match record.spec.phase {
            Phase::Released => {
                self.bound.remove(&name);
            }
            Phase::Bound => {
                if let Some(before) = self.bound.insert(name.clone(), id.clone())
                    && before != id
                {
                    let wrong = format!("the record {name} went from {before} straight to {id}");
                    self.doubled.push(wrong);
                }
            }
        }
    }
}

/// Watches until it is dropped.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Witness {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Witness {
    /// Begins to watch.
    pub fn start(client: &Client) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let lbs = tokio::spawn(watch_lbs(client.clone(), Arc::clone(&seen)));
        let records = tokio::spawn(watch_records(client.clone(), Arc::clone(&seen)));
        Self {
            seen,
            tasks: [lbs, records],
        }
    }

    /// Waits until all that is stored has been seen.
    pub async fn caught_up(&self, world: &World) -> anyhow::Result<()> {
        let api: Api<LoadBalancer> = Api::all(world.client());
        let what = "the witness has seen everything";
        eventually(what, Duration::from_secs(30), || async {
            let stored: BTreeMap<String, Held> = api
                .list(&ListParams::default())
                .await?
                .iter()
                .map(|lb| {
                    let ip = allocated(lb).filter(|ip| ip != "0.0.0.0");
                    let uid = lb.metadata.uid.clone().unwrap_or_default();
                    (uid, (id(&lb.metadata), ip))
                })
                .collect();
            if lock(&self.seen).lbs == stored {
                return Ok(Some(()));
            }
            bail!("{} are stored", stored.len())
        })
        .await
    }

    /// Addresses that two load balancers had at one time.
    pub fn doubled(&self) -> Vec<String> {
        lock(&self.seen).doubled.clone()
    }

    /// Load balancers whose address was changed or taken away.
    pub fn moved(&self) -> Vec<String> {
        lock(&self.seen).moved.clone()
    }

    /// How often an address was given to a load balancer.
    pub fn given(&self) -> usize {
        lock(&self.seen).given.len()
    }

    /// Everything that must never be, once all has been seen.
    pub async fn wrongs(&self, world: &World) -> anyhow::Result<Vec<String>> {
        self.caught_up(world).await?;
        Ok([self.doubled(), self.moved()].concat())
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
                    listed.insert(lb.metadata.uid.clone().unwrap_or_default());
                }
                // Only when the list is complete is it known who has gone.
                let uid = lb.metadata.uid.clone().unwrap_or_default();
                let ip = allocated(&lb).filter(|ip| ip != "0.0.0.0");
                seen.lbs.insert(uid, (id(&lb.metadata), ip));
            }
            Ok(Event::InitDone) => {
                if let Some(listed) = listed.take() {
                    seen.lbs.retain(|uid, _| listed.contains(uid));
                }
            }
            Ok(Event::Apply(lb)) => seen.lb(&lb),
            Ok(Event::Delete(lb)) => {
                seen.lbs
                    .remove(lb.metadata.uid.as_deref().unwrap_or_default());
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
            // A list says nothing about what was between.
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

fn id(meta: &kube::api::ObjectMeta) -> String {
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}
