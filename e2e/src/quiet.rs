//! Waiting between tests until nothing happens any more, and removing all objects for the next test.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, keys};
use harvester_lb_audit::{Finding, Report};
use harvester_lb_testkit::eventually;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;

use crate::metrics_snapshot::MetricsSnapshot;
use crate::world::{OURS, World};
use crate::{audit, exported};

/// Twice the shortest interval between two writes of a pool's status (200 ms of debounce, and
/// [`crate::world::TEST_TIMINGS`]), and a margin: all other pending work shows in the operator's metrics.
const STILL: Duration = Duration::from_millis(700);
/// The same where load balancers share an address: the operator pauses for 3 s before each step of a change of port names (SHR-4), which
/// its metrics do not show as due work.
const STILL_SHARED: Duration = Duration::from_secs(4);
/// Longest time that a pool's status may be behind: the longest pause after a slow write (10 s where changes do not
/// end), and a margin.
const PACE_LIMIT: Duration = Duration::from_secs(30);
/// Reasons of LoadBalancers that wait for an address although others share theirs or ask for a certain one.
const WAITS: [&str; 5] = [
    "NoAvailableIP",
    "NameConflict",
    "PrimaryNotFound",
    "RequestedAddressUnavailable",
    "WaitingForPrimary",
];
/// Timeout of the wait.
const LIMIT: Duration = Duration::from_secs(90);

/// Waits until the operator on a node is leader, idle, and none of our objects was written for a while.
pub async fn quiet(world: &World, node: &str) -> anyhow::Result<()> {
    still_for(world, node, STILL).await
}

async fn still_for(world: &World, node: &str, time: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let written = idle(world, node, deadline).await?;
        let before = versions(world).await?;
        // Compares the stored objects at the end, regardless of the writer. The operator's own count only detects
        // earlier that it was too soon.
        let still = Instant::now() + time;
        let mut busy = false;
        while !busy && Instant::now() < still {
            tokio::time::sleep(Duration::from_millis(100)).await;
            busy = at_rest(world, node).await.is_none_or(|now| now != written);
        }
        if !busy && versions(world).await? == before {
            return Ok(());
        }
    }
}

/// Waits until the operator is idle. Returns its writes so far.
async fn idle(world: &World, node: &str, deadline: Instant) -> anyhow::Result<Written> {
    loop {
        if let Some(written) = at_rest(world, node).await {
            return Ok(written);
        }
        ensure!(
            Instant::now() < deadline,
            "no quiet within {LIMIT:?}: {}",
            MetricsSnapshot::read(world, node).await.map_or_else(
                |e| e.to_string(),
                |f| format!("leads {}, idle {}", f.is_leader(), f.idle())
            )
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

type Written = BTreeMap<String, u64>;

/// The operator's writes, without the Lease and Events, if it is leader and idle.
async fn at_rest(world: &World, node: &str) -> Option<Written> {
    let metrics = MetricsSnapshot::read(world, node).await.ok()?;
    if !metrics.is_leader() || !metrics.idle() {
        return None;
    }
    let mut written = metrics.writes();
    written.retain(|what, _| !what.ends_with(" leases") && !what.ends_with(" events"));
    Some(written)
}

/// Waits until the operator is idle, and audits: no findings, and no LoadBalancer without an address. The exported
/// metrics of the given pools must be right, too.
///
/// Only a pool's status may be behind at that moment: after a slow write the pause is twenty times its duration
/// (POOL-3), and a pause does not count as due work. It then catches up by itself, and nothing else does: a forgotten
/// change would stay forgotten. The delay is printed with the slowest writes, so that one without a cause is visible.
pub async fn audited(world: &World, node: &str, pools: &[&str]) -> anyhow::Result<Report> {
    quiet(world, node).await?;
    let report = audited_at_rest(world, node, pools).await?;
    ensure!(report.waiting.is_empty(), "unserved: {:?}", report.waiting);
    Ok(report)
}

/// As [`audited`], but LoadBalancers may wait for an address, for one of these reasons: pools are too small on purpose, others share
/// their address.
pub async fn audited_with_waiting(
    world: &World,
    node: &str,
    pools: &[&str],
) -> anyhow::Result<Report> {
    still_for(world, node, STILL_SHARED).await?;
    audited_at_rest(world, node, pools).await
}

async fn audited_at_rest(world: &World, node: &str, pools: &[&str]) -> anyhow::Result<Report> {
    let since = Instant::now();
    loop {
        let all = audit::read(world).await?;
        let report = harvester_lb_audit::audit(&all);
        let metrics = MetricsSnapshot::read(world, node).await?;
        let findings = exported::findings(&all, &metrics, pools);
        if report.findings.is_empty() && findings.is_empty() {
            if since.elapsed() > Duration::from_secs(1) {
                say_late(world, node, since.elapsed()).await;
            }
            let mut waiting = report.waiting.iter();
            let unserved = waiting.find(|w| !WAITS.contains(&&*w.reason));
            ensure!(unserved.is_none(), "unserved: {unserved:?}");
            for name in pools {
                let named = |pool: &&IPPool| pool.metadata.name.as_deref() == Some(name);
                ensure!(
                    all.pools.iter().any(|pool| named(&pool)),
                    "there is no pool {name}"
                );
            }
            return Ok(report);
        }
        let behind = report.findings.iter().all(Finding::is_of_a_pool);
        if !behind || !findings.is_empty() || since.elapsed() > PACE_LIMIT {
            say_late(world, node, since.elapsed()).await;
            bail!("{:#?} {findings:#?}", lines(&report));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// One line per finding.
pub fn lines(report: &Report) -> Vec<String> {
    report.findings.iter().map(ToString::to_string).collect()
}

#[allow(clippy::print_stderr, reason = "the way to the reader of a test")]
async fn say_late(world: &World, node: &str, late: Duration) {
    let metrics = MetricsSnapshot::read(world, node).await.unwrap_or_default();
    let name = "harvester_lb_api_request_duration_seconds_bucket";
    let within = |limit: &str| {
        metrics.sum(name, |s| {
            s.label("verb") == "patch" && s.label("le") == limit
        })
    };
    let all = within("+Inf");
    eprintln!(
        "  the pools' status was behind for {late:.1?} after quiet; of {all} patches {} took over 50 ms, {} over 0.1 s, {} over 0.25 s, {} over 1 s",
        all - within("0.05"),
        all - within("0.1"),
        all - within("0.25"),
        all - within("1"),
    );
}

/// Names and versions of everything that the operator writes, without Leases and Events.
async fn versions(world: &World) -> anyhow::Result<String> {
    async fn of<K>(api: Api<K>, labels: &str) -> anyhow::Result<String>
    where
        K: Clone + DeserializeOwned + Debug + Resource,
    {
        let params = ListParams::default().labels(labels);
        let mut text = String::new();
        for object in api.list_metadata(&params).await? {
            text.push_str(&object.uid().unwrap_or_default());
            text.push_str(&object.resource_version().unwrap_or_default());
        }
        Ok(text)
    }
    let client = world.client();
    Ok([
        of::<LoadBalancer>(Api::all(client.clone()), "").await?,
        of::<IPPool>(world.pools(), "").await?,
        of::<IPAllocation>(world.records(), "").await?,
        of::<Service>(Api::all(client.clone()), OURS).await?,
        of::<EndpointSlice>(Api::all(client), OURS).await?,
    ]
    .concat())
}

/// Deletes all our objects and the Lease. No operator may run.
pub async fn reset(world: &World) -> anyhow::Result<()> {
    eventually("nothing is left", LIMIT, || async {
        let left = delete::<LoadBalancer>(world, "").await?
            + delete::<Service>(world, OURS).await?
            + delete::<EndpointSlice>(world, OURS).await?
            + delete::<VirtualMachine>(world, "").await?
            + delete::<VirtualMachineInstance>(world, "").await?
            + delete_in(&world.pools(), "").await?
            + delete_in(&world.records(), "").await?;
        if left > 0 {
            bail!("{left} objects were there");
        }
        Ok(Some(()))
    })
    .await?;
    let leases: Api<Lease> = Api::namespaced(world.client(), keys::LEASE_NAMESPACE);
    if leases.get_opt(keys::LEASE_NAME).await?.is_some() {
        leases
            .delete(keys::LEASE_NAME, &DeleteParams::default())
            .await?;
    }
    Ok(())
}

async fn delete<K>(world: &World, labels: &str) -> anyhow::Result<usize>
where
    K: Clone
        + DeserializeOwned
        + Debug
        + Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let all: Api<K> = Api::all(world.client());
    let mut namespaces: Vec<String> = all
        .list_metadata(&ListParams::default().labels(labels))
        .await?
        .iter()
        .filter_map(ResourceExt::namespace)
        .collect();
    namespaces.dedup();
    let mut count = 0;
    for namespace in namespaces {
        let api: Api<K> = Api::namespaced(world.client(), &namespace);
        count += delete_in(&api, labels).await?;
    }
    Ok(count)
}

async fn delete_in<K>(api: &Api<K>, labels: &str) -> anyhow::Result<usize>
where
    K: Clone + DeserializeOwned + Debug + Resource,
{
    let list = api
        .list_metadata(&ListParams::default().labels(labels))
        .await?;
    let count = list.items.len();
    stream::iter(list.items)
        .map(|object| async move {
            let name = object.name_any();
            if !object.finalizers().is_empty() {
                let patch = json!({"metadata": {"finalizers": null}});
                let _ = api
                    .patch(
                        &name,
                        &PatchParams::default(),
                        &Patch::<serde_json::Value>::Merge(patch),
                    )
                    .await;
            }
            match api.delete(&name, &DeleteParams::background()).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(error) => Err(error),
            }
        })
        .buffer_unordered(8)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(count)
}
