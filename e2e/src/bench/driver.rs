//! A bare client: many connections, no cache, no queue. It drives the operator, and replays the operator's requests.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt, pin_mut};
use harvester_lb_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer};
use harvester_lb_fixtures::record;
use harvester_lb_testkit::{Process, eventually};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::world::World;

/// Namespace of all benchmark objects.
pub(crate) const NAMESPACE: &str = "bench";
/// Connections of the driver, and of the replay.
pub(crate) const CONNECTIONS: usize = 16;
/// Timeout of every wait here.
pub(crate) const LIMIT: Duration = Duration::from_mins(15);
/// Environment of an operator as shipped; other tests use a more verbose one.
pub(crate) const AS_SHIPPED: &[(&str, &str)] = &[("LOGLEVEL", "info")];

/// Clients with separate connections.
pub(crate) async fn clients(world: &World) -> anyhow::Result<Vec<Client>> {
    let kubeconfig = kube::config::Kubeconfig::read_from(world.cluster.kubeconfig("admin")?)?;
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        let config = Config::from_custom_kubeconfig(
            kubeconfig.clone(),
            &kube::config::KubeConfigOptions::default(),
        )
        .await?;
        all.push(Client::try_from(config)?);
    }
    Ok(all)
}

/// Runs the work for 0 to `count`; each connection takes the next number when it is done with one.
pub(crate) async fn spread<F, Fut>(
    clients: &[Client],
    count: usize,
    work: F,
) -> anyhow::Result<Duration>
where
    F: Fn(Client, usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let started = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let work = Arc::new(work);
    let mut tasks = JoinSet::new();
    for client in clients {
        let (client, next, work) = (client.clone(), Arc::clone(&next), Arc::clone(&work));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                work(client.clone(), number).await?;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(started.elapsed())
}

/// The watches that an operator has open, held by a client that discards their events.
pub(crate) struct Watches(Vec<JoinHandle<()>>);

impl Drop for Watches {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Watches {
    /// Opens them.
    pub(crate) fn open(client: &Client) -> Self {
        Self(vec![
            idle::<LoadBalancer>(client),
            idle::<IPPool>(client),
            idle::<IPAllocation>(client),
            idle::<Service>(client),
            idle::<EndpointSlice>(client),
            idle::<VirtualMachine>(client),
            idle::<VirtualMachineInstance>(client),
        ])
    }
}

fn idle<K>(client: &Client) -> JoinHandle<()>
where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let api: Api<K> = Api::all(client.clone());
    tokio::spawn(async move {
        let stream = watcher(api, watcher::Config::default());
        pin_mut!(stream);
        while stream.next().await.is_some() {}
    })
}

/// Watches until `wanted` holds, or has held, for this number of objects; returns when the last of them was seen.
pub(crate) fn seen<K>(
    api: Api<K>,
    count: usize,
    wanted: impl Fn(&K) -> bool + Send + 'static,
) -> JoinHandle<anyhow::Result<Instant>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    seen_within(api, count, LIMIT, wanted)
}

/// As [`seen`], with a separate timeout.
pub(crate) fn seen_within<K>(
    api: Api<K>,
    count: usize,
    limit: Duration,
    wanted: impl Fn(&K) -> bool + Send + 'static,
) -> JoinHandle<anyhow::Result<Instant>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    tokio::spawn(async move {
        let stream = watcher(api, watcher::Config::default());
        pin_mut!(stream);
        let mut there = std::collections::HashSet::new();
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let event = tokio::time::timeout_at(deadline, stream.next())
                .await
                .with_context(|| format!("{} of {count} after {limit:?}", there.len()))?;
            if let Some(Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) =
                event
                && wanted(&object)
            {
                there.insert(object.meta().name.clone());
            }
            if there.len() >= count {
                return Ok(Instant::now());
            }
        }
    })
}

/// Waits until `wanted` holds for this number of LoadBalancers of the namespace, as [`seen`] does.
pub(crate) fn count_until(
    client: &Client,
    count: usize,
    wanted: impl Fn(&LoadBalancer) -> bool + Send + 'static,
) -> JoinHandle<anyhow::Result<Instant>> {
    let api: Api<LoadBalancer> = Api::namespaced(client.clone(), NAMESPACE);
    seen(api, count, wanted)
}

/// Waits for a status of the pool with this number of held addresses.
pub(crate) fn pool_says(world: &World, held: i64) -> JoinHandle<anyhow::Result<Instant>> {
    seen(world.pools(), 1, move |pool: &IPPool| {
        pool.status.as_ref().is_some_and(|s| {
            let shown = s
                .allocated
                .as_ref()
                .map_or(0, std::collections::BTreeMap::len);
            s.total - s.available == held && i64::try_from(shown) == Ok(held)
        })
    })
}

/// A LoadBalancer of cluster type as a guest cluster creates it.
pub(crate) fn cluster_lb(name: &str) -> anyhow::Result<LoadBalancer> {
    Ok(serde_json::from_value(json!({
        "metadata": {
            "namespace": NAMESPACE, "name": name,
            "labels": {
                "cloudprovider.harvesterhci.io/cluster": "gc", "cloudprovider.harvesterhci.io/serviceName": name,
                "cloudprovider.harvesterhci.io/serviceNamespace": "default",
            },
            "annotations": {
                "loadbalancer.harvesterhci.io/network": "", "loadbalancer.harvesterhci.io/project": "",
                "loadbalancer.harvesterhci.io/namespace": NAMESPACE, "loadbalancer.harvesterhci.io/cluster": "gc",
            },
        },
        "spec": {"workloadType": "cluster", "ipam": "pool", "ipPool": "bench"},
    }))?)
}

/// The pool of all rows: a /16, more than any row needs.
pub(crate) async fn pool(world: &World, name: &str, subnet: &str) -> anyhow::Result<()> {
    world
        .pool(name, json!({"ranges": [{"subnet": subnet}]}))
        .await
}

/// Creates a LoadBalancer.
pub(crate) async fn create_lb(client: &Client, lb: &LoadBalancer) -> anyhow::Result<LoadBalancer> {
    let api: Api<LoadBalancer> = Api::namespaced(client.clone(), NAMESPACE);
    Ok(api.create(&PostParams::default(), lb).await?)
}

/// Deletes a LoadBalancer.
pub(crate) async fn delete_lb(client: &Client, name: &str) -> anyhow::Result<()> {
    let api: Api<LoadBalancer> = Api::namespaced(client.clone(), NAMESPACE);
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Replays a request of the operator: creates the IPAllocation of an address.
pub(crate) async fn replay_record(
    client: &Client,
    lb: &LoadBalancer,
    address: &str,
) -> anyhow::Result<IPAllocation> {
    let (name, uid) = (&lb.metadata.name, &lb.metadata.uid);
    let (name, uid) = (
        name.as_deref().unwrap_or_default(),
        uid.as_deref().unwrap_or_default(),
    );
    let mut record = record(address, "bench", "Bound", (NAMESPACE, name, uid));
    record["spec"]["boundAt"] = json!("2026-01-01T00:00:00.000000Z");
    let record: IPAllocation = serde_json::from_value(record)?;
    Ok(Api::<IPAllocation>::all(client.clone())
        .create(&PostParams::default(), &record)
        .await?)
}

/// Replays a request of the operator: releases the IPAllocation of an address.
pub(crate) async fn replay_release(client: &Client, record: &IPAllocation) -> anyhow::Result<()> {
    let patch = json!({
        "metadata": {"uid": record.metadata.uid, "resourceVersion": record.metadata.resource_version},
        "spec": {
            "address": record.spec.address, "pool": record.spec.pool, "owner": record.spec.owner,
            "phase": "Released", "boundAt": record.spec.bound_at, "releasedAt": "2026-01-01T00:00:00.000000Z",
        },
    });
    let name = record.metadata.name.as_deref().unwrap_or_default();
    Api::<IPAllocation>::all(client.clone())
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Replays a request of the operator: a status with an address.
pub(crate) async fn replay_status(
    client: &Client,
    name: &str,
    version: Option<&str>,
    status: Value,
) -> anyhow::Result<LoadBalancer> {
    let api: Api<LoadBalancer> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
    Ok(api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?)
}

/// The status of a ready LoadBalancer.
pub(crate) fn ready_status(address: &str) -> Value {
    json!({
        "address": address,
        "allocatedAddress": {"ip": address, "ipPool": "bench", "mask": "255.255.0.0", "gateway": "10.60.0.1"},
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready",
            "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    })
}

/// The address with an index.
pub(crate) fn address(number: usize) -> String {
    format!("10.60.{}.{}", 1 + number / 250, 1 + number % 250)
}

/// The operator as shipped, on a node; ready, leader and idle.
pub(crate) async fn operator(world: &World, node: &str) -> anyhow::Result<Arc<Process>> {
    let operator = world.start_operator_with(node, &[], AS_SHIPPED).await?;
    at_rest(world, node).await?;
    Ok(operator)
}

/// Waits until the operator leads, has nothing to do, and has written nothing but its Lease for two and a half seconds. It is asked for
/// its figures alone, so that waiting costs the API server nothing.
pub(crate) async fn at_rest(world: &World, node: &str) -> anyhow::Result<()> {
    let mut last = (BTreeMap::new(), Instant::now());
    let deadline = Instant::now() + LIMIT;
    while last.1.elapsed() < Duration::from_millis(2_500) {
        ensure!(Instant::now() < deadline, "{node} does not get to rest");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let figures = MetricsSnapshot::read(world, node).await.unwrap_or_default();
        let mut writes = figures.writes();
        writes.retain(|what, _| !what.ends_with(" leases"));
        if !figures.is_leader() || !figures.idle() || writes != last.0 {
            last = (writes, Instant::now());
        }
    }
    Ok(())
}

/// Deletes all LoadBalancers, IPAllocations, owned objects and VirtualMachineInstances. No operator may run.
pub(crate) async fn clean(world: &World) -> anyhow::Result<()> {
    let all = clients(world).await?;
    let client = world.client();
    remove(&all, &world.lbs(NAMESPACE)).await?;
    remove(&all, &world.slices(NAMESPACE)).await?;
    remove(&all, &world.records()).await?;
    remove(&all, &world.services(NAMESPACE)).await?;
    remove(&all, &world.vmis(NAMESPACE)).await?;
    remove(&all, &world.pools()).await?;
    let left: Api<Service> = Api::namespaced(client, NAMESPACE);
    eventually("the Services are gone", LIMIT, || async {
        let left = left.list_metadata(&ListParams::default()).await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await
}

/// Deletes all objects of a kind, over several connections.
async fn remove<K>(clients: &[Client], api: &Api<K>) -> anyhow::Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let list = api.list_metadata(&ListParams::default()).await?;
    let names: Arc<Vec<String>> = Arc::new(list.items.iter().map(ResourceExt::name_any).collect());
    let count = names.len();
    let api = api.clone();
    spread(clients, count, move |_, number| {
        let (api, name) = (api.clone(), names.get(number).cloned().unwrap_or_default());
        async move {
            match api.delete(&name, &DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(error) => Err(error.into()),
                Ok(_) => Ok(()),
            }
        }
    })
    .await?;
    Ok(())
}

/// CPU seconds used by a process.
pub(crate) fn cpu_seconds(pid: i32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .context("no process")?
        .split_whitespace()
        .collect();
    let ticks = |index: usize| -> anyhow::Result<f64> {
        Ok(fields.get(index).context("too short")?.parse()?)
    };
    // utime and stime, in hundredths of a second on every supported Linux.
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}
