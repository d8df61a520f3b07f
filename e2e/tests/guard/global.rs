//! Pool selection (section 5) without other tests: a global pool serves all namespaces, and a refusal names every pool.
//! So each of these tests has a separate operator, and leaves no objects behind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use harvester_lb_api::IPPool;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::{quiet, reset};
use harvester_lb_e2e::read::ready;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::{Process, eventually};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::requirement::{asking, pool_of, selecting};
use crate::support::RuleHelpers;

/// All tests.
pub fn all() -> Vec<Test> {
    tests![
        sel_4_global_is_decided_from_the_spec,
        sel_5_several_global_pools,
        sel_7_no_pool_matches,
        sel_7_there_is_no_pool,
    ]
}

/// No resync comes sooner.
const RECHECK: Duration = Duration::from_secs(20);

/// Nothing but an operator, which the test is to end.
async fn alone(world: &World) -> anyhow::Result<Arc<Process>> {
    reset(world).await?;
    world.start_operator("node1").await
}

/// Waits until the operator has counted a pool, so that it can be selected.
async fn counted(world: &World, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        let known = |p: &IPPool| p.status.is_some();
        world.pool_until(name, "its status", known).await?;
    }
    Ok(())
}

/// Deletes all LoadBalancers of a namespace and all pools; released IPAllocations are deleted with their pools.
async fn clear(world: &World, namespaces: &[&str]) -> anyhow::Result<()> {
    let everything = (DeleteParams::default(), ListParams::default());
    for ns in namespaces {
        let lbs = world.lbs(ns);
        lbs.delete_collection(&everything.0, &everything.1).await?;
    }
    let pools = world.pools();
    pools
        .delete_collection(&everything.0, &everything.1)
        .await?;
    eventually("nothing is left", SOON, || async {
        let left = world.records().list(&everything.1).await?.items.len();
        ensure!(left == 0, "{left} records");
        Ok(Some(()))
    })
    .await
}

async fn sel_4_global_is_decided_from_the_spec(world: Arc<World>) -> anyhow::Result<()> {
    let operator = alone(&world).await?;
    let ns = "sel4";
    world.namespace(ns).await?;
    let label = "loadbalancer.harvesterhci.io/global-ip-pool";
    // Labelled as global but not global, and global but labelled as not. The network is ignored.
    selecting(
        &world,
        "liar",
        "10.6.0.0/24",
        "",
        9,
        ["*", "elsewhere", "*"],
    )
    .await?;
    selecting(
        &world,
        "modest",
        "10.7.0.0/24",
        "net/v7",
        0,
        ["*", "*", "*"],
    )
    .await?;
    for (pool, value) in [("liar", "true"), ("modest", "false")] {
        let patch = json!({"metadata": {"labels": {label: value}}});
        world.merge(&world.pools(), pool, patch).await?;
    }
    counted(&world, &["liar", "modest"]).await?;
    for kind in ["vm", "cluster"] {
        asking(&world, ns, kind, kind, ["", "", "", ""]).await?;
        assert_eq!(pool_of(&world, ns, kind).await?, "modest");
    }
    // Two tuples do not make a global pool, even if both are `*`; they match everything on the network.
    let any = json!({"project": "*", "namespace": "*", "guestCluster": "*"});
    let twice = json!({"spec": {"selector": {"scope": [any, any]}}});
    world.merge(&world.pools(), "modest", twice).await?;
    eventually("no pool serves", SOON, || async {
        asking(&world, ns, "late", "vm", ["", "", "", ""]).await?;
        let lb = world
            .lb_until(ns, "late", "an answer", |lb| ready(lb).is_some())
            .await?;
        let (_, reason, message) = ready(&lb).unwrap();
        if reason == "NoMatchedPool" {
            assert!(
                message.contains("network is \"net/v7\", required is \"\""),
                "{message}"
            );
            return Ok(Some(()));
        }
        world.delete_lb(ns, "late").await?;
        Ok(None)
    })
    .await?;
    clear(&world, &[ns]).await?;
    operator.end().await
}

async fn sel_5_several_global_pools(world: Arc<World>) -> anyhow::Result<()> {
    let operator = alone(&world).await?;
    let ns = "sel5-global";
    world.namespace(ns).await?;
    for (name, priority) in [("g-z", 1), ("g-m", 1), ("g-a", 0)] {
        let third = 8 + u8::try_from(name.len())? + name.as_bytes()[2];
        let range = format!("10.{third}.0.0/24");
        selecting(&world, name, &range, "", priority, ["*", "*", "*"]).await?;
    }
    counted(&world, &["g-z", "g-m", "g-a"]).await?;
    asking(&world, ns, "lb", "vm", ["", "", "", ""]).await?;
    assert_eq!(pool_of(&world, ns, "lb").await?, "g-m");
    clear(&world, &[ns]).await?;
    operator.end().await
}

async fn sel_7_no_pool_matches(world: Arc<World>) -> anyhow::Result<()> {
    reset(&world).await?;
    let env = [(
        "HLB_TIMINGS",
        "recheck=500ms,pool-status-interval=200ms,pool-status-max-pause=1s",
    )];
    let often = world.start_operator_with("node1", &[], &env).await?;
    let ns = "sel7";
    world.namespace(ns).await?;
    selecting(
        &world,
        "network",
        "10.1.0.0/24",
        "net/v20",
        0,
        ["*", ns, "*"],
    )
    .await?;
    selecting(&world, "scope", "10.2.0.0/24", "", 0, ["p", ns, ""]).await?;
    world.ranges("no-scope", &[subnet("10.3.0.0/24")]).await?;
    let two = json!({"project": "p", "namespace": "x", "guestCluster": ""});
    let spec = json!({"ranges": [{"subnet": "10.4.0.0/24"}], "selector": {"scope": [two, two]}});
    world.pool("scopes", spec).await?;
    let all = ["network", "scope", "no-scope", "scopes"];
    counted(&world, &all).await?;
    for name in ["one", "two"] {
        asking(&world, ns, name, "vm", ["", "", "", ""]).await?;
        let lb = world.lb_reason(ns, name, "NoMatchedPool").await?;
        let (_, _, message) = ready(&lb).unwrap();
        let said: BTreeSet<&str> = message.split("; ").collect();
        let wanted = BTreeSet::from([
            "pool network: network is \"net/v20\", required is \"\"",
            "pool scope: its scope does not match",
            "pool no-scope: has no scope",
            "pool scopes: none of its scopes matches",
        ]);
        assert_eq!(said, wanted);
        world
            .event(ns, "LoadBalancer", name, "NoMatchedPool: pool ")
            .await?;
    }
    // Nothing is written while they wait, not even by the resync.
    quiet(&world, "node1").await?;
    let before = world.versions(ns, &all).await?;
    let reconciles = MetricsSnapshot::read(&world, "node1").await?.reconciles();
    eventually("both are looked at again and again", SOON, || async {
        let now = MetricsSnapshot::read(&world, "node1").await?.reconciles();
        Ok((now >= reconciles + 8.0).then_some(()))
    })
    .await?;
    assert_eq!(before, world.versions(ns, &all).await?);
    often.end().await?;
    // From here on it is events that help, long before a recheck.
    let operator = world.start_operator("node1").await?;
    quiet(&world, "node1").await?;
    // A new pool serves them at once.
    let started = Instant::now();
    selecting(&world, "comes", "10.5.0.0/24", "", 0, ["*", ns, "*"]).await?;
    for name in ["one", "two"] {
        assert_eq!(pool_of(&world, ns, name).await?, "comes");
    }
    assert!(started.elapsed() < RECHECK);
    // So does an edit of an existing one.
    asking(&world, ns, "three", "vm", ["net/v30", "", "", ""]).await?;
    world.lb_reason(ns, "three", "NoMatchedPool").await?;
    let started = Instant::now();
    let patch = json!({"spec": {"selector": {"network": "net/v30"}}});
    world.merge(&world.pools(), "network", patch).await?;
    assert_eq!(pool_of(&world, ns, "three").await?, "network");
    assert!(started.elapsed() < RECHECK);
    // So does an edit of the LoadBalancer's own requirement.
    asking(&world, ns, "four", "vm", ["net/v40", "", "", ""]).await?;
    world.lb_reason(ns, "four", "NoMatchedPool").await?;
    let patch =
        json!({"metadata": {"annotations": {"loadbalancer.harvesterhci.io/network": "net/v30"}}});
    world.merge(&world.lbs(ns), "four", patch).await?;
    assert_eq!(pool_of(&world, ns, "four").await?, "network");
    clear(&world, &[ns]).await?;
    operator.end().await
}

async fn sel_7_there_is_no_pool(world: Arc<World>) -> anyhow::Result<()> {
    let operator = alone(&world).await?;
    let ns = "sel7-none";
    world.namespace(ns).await?;
    asking(&world, ns, "lb", "cluster", ["", "", "", ""]).await?;
    let lb = world.lb_reason(ns, "lb", "NoMatchedPool").await?;
    assert_eq!(ready(&lb).unwrap().2, "there are no pools");
    // The message names the first eight pools, and says that there are others.
    for n in 0..10 {
        let range = json!({"subnet": format!("10.6.{n}.0/24")});
        world.ranges(&format!("pool{n}"), &[range]).await?;
    }
    counted(&world, &["pool9"]).await?;
    asking(&world, ns, "late", "cluster", ["", "", "", ""]).await?;
    let lb = world.lb_reason(ns, "late", "NoMatchedPool").await?;
    let (_, _, message) = ready(&lb).unwrap();
    let said: Vec<&str> = message.split("; ").collect();
    assert_eq!(said.len(), 9, "{message}");
    assert_eq!(said[0], "pool pool0: has no scope");
    assert_eq!(said[7], "pool pool7: has no scope");
    assert_eq!(said[8], "and others");
    // LoadBalancers that waited before get the same message at once, not at their next resync.
    let lbs = world.lbs(ns);
    eventually("the first is told", Duration::from_secs(5), || async {
        let (_, _, told) = ready(&lbs.get("lb").await?).unwrap();
        Ok((told == message).then_some(()))
    })
    .await?;
    clear(&world, &[ns]).await?;
    operator.end().await
}
