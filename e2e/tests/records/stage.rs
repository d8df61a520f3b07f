//! Shared by the tests: starting and ending operators, IPAllocations, stored objects.

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::reset;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{self as fixtures, cluster_spec};
use harvester_lb_testkit::{Process, eventually};
use kube::api::PostParams;
use serde_json::Value;

/// An empty cluster and a namespace.
pub async fn set(world: &World, ns: &str) -> anyhow::Result<()> {
    reset(world).await?;
    world.namespace(ns).await
}

/// Starts an operator on the first node and waits until it is leader. With the same pod uid it need not wait for the
/// Lease of one that was killed.
pub async fn start(world: &World) -> anyhow::Result<Arc<Process>> {
    let operator = world
        .start_operator_with("node1", &[], &[("POD_UID", "records")])
        .await?;
    becomes_leader(world, "node1").await?;
    Ok(operator)
}

/// Waits until the operator on a node is leader.
pub async fn becomes_leader(world: &World, node: &str) -> anyhow::Result<()> {
    eventually(&format!("{node} leads"), SOON, || async {
        Ok(MetricsSnapshot::read(world, node)
            .await?
            .is_leader()
            .then_some(()))
    })
    .await
}

/// A record as it is stored.
pub async fn record(world: &World, ip: &str) -> anyhow::Result<Option<IPAllocation>> {
    Ok(world.records().get_opt(ip).await?)
}

/// Waits until the IPAllocation of an address has this phase and owner.
pub async fn record_is(
    world: &World,
    ip: &str,
    phase: Phase,
    owner: &str,
) -> anyhow::Result<IPAllocation> {
    eventually(&format!("record {ip} {phase:?} {owner}"), SOON, || async {
        let found = record(world, ip).await?.context("there is none")?;
        let o = &found.spec.owner;
        let is = format!("{}/{}", o.namespace, o.name);
        ensure!(
            found.spec.phase == phase && is == owner,
            "it is {:?} of {is}",
            found.spec.phase
        );
        Ok(Some(found))
    })
    .await
}

/// Waits until a LoadBalancer has this address and its IPAllocation, with its uid.
pub async fn holds(world: &World, ns: &str, name: &str, ip: &str) -> anyhow::Result<()> {
    let what = format!("{ns}/{name} holds {ip}");
    eventually(&what, SOON, || async {
        let lb = world.lbs(ns).get(name).await?;
        let given = allocated(&lb);
        ensure!(given.as_deref() == Some(ip), "its status says {given:?}");
        let record = record(world, ip).await?.context("there is no record")?;
        let owner = &record.spec.owner;
        ensure!(
            record.spec.phase == Phase::Bound && Some(&owner.uid) == lb.metadata.uid.as_ref(),
            "the record says {:?} of {owner:?}",
            record.spec.phase
        );
        Ok(Some(()))
    })
    .await
}

/// Creates a LoadBalancer of cluster type.
pub async fn cluster(world: &World, ns: &str, name: &str) -> anyhow::Result<LoadBalancer> {
    world.lb(ns, name, cluster_spec()).await
}

/// Creates an IPAllocation by hand.
pub async fn forge(
    world: &World,
    ip: &str,
    pool: &str,
    phase: &str,
    owner: (&str, &str, &str),
) -> anyhow::Result<()> {
    let record: IPAllocation = serde_json::from_value(fixtures::record(ip, pool, phase, owner))?;
    world
        .records()
        .create(&PostParams::default(), &record)
        .await?;
    Ok(())
}

/// A pool for one namespace, with the same name.
pub async fn pool(world: &World, ns: &str, ranges: &[Value]) -> anyhow::Result<()> {
    world.pool_for(ns, ns, ranges).await
}

/// The uid of an object.
pub fn uid(lb: &LoadBalancer) -> String {
    lb.metadata.uid.clone().unwrap_or_default()
}
