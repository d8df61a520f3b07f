//! Which pool serves a LoadBalancer that names none (section 5).

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::webhook::network;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;
use serde_json::json;

use super::pools::pool_condition;
use super::requirement::{asking, pool_of, selecting};
use super::support::{RuleHelpers, cluster};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        sel_1_an_explicit_pool_is_taken_as_is,
        sel_6_and_sel_8_second_pass_and_stickiness,
    ]
}

async fn sel_1_an_explicit_pool_is_taken_as_is(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "sel1";
    world.namespace(ns).await?;
    let net = network(&world, ns, "v9").await?;
    // Matches, and has the priority; the named one is for another namespace on another network.
    selecting(&world, "sel1-match", "10.58.0.0/24", "", 9, ["*", ns, "*"]).await?;
    selecting(
        &world,
        "sel1-named",
        "10.58.1.0/24",
        &net,
        0,
        ["p", "elsewhere", "gc"],
    )
    .await?;
    world.lb(ns, "named", cluster("sel1-named")).await?;
    assert_eq!(pool_of(&world, ns, "named").await?, "sel1-named");
    // An empty annotation of the namespace stands for the LoadBalancer's own, which the webhook writes (WM-1).
    asking(&world, ns, "free", "vm", ["", "", "", ""]).await?;
    assert_eq!(pool_of(&world, ns, "free").await?, "sel1-match");
    world
        .lb(ns, "bare", json!({"workloadType": "cluster", "ipPool": ""}))
        .await?;
    assert_eq!(pool_of(&world, ns, "bare").await?, "sel1-match");
    Ok(())
}

pub(crate) async fn sel_5_priority_then_name(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "sel5";
    world.namespace(ns).await?;
    selecting(&world, "sel5-z", "10.59.0.0/24", "", 3, ["*", ns, "*"]).await?;
    selecting(&world, "sel5-m", "10.59.1.0/24", "", 3, ["*", ns, "*"]).await?;
    selecting(&world, "sel5-a", "10.59.2.0/24", "", 2, ["*", ns, "*"]).await?;
    for pool in ["sel5-z", "sel5-m", "sel5-a"] {
        world
            .pool_until(pool, "Ready", |p| pool_condition(p, "Ready").is_some())
            .await?;
    }
    asking(&world, ns, "one", "cluster", ["", "", ns, ""]).await?;
    assert_eq!(pool_of(&world, ns, "one").await?, "sel5-m");
    // The edit of the ranges shows when the operator knows that of the priority.
    let raise = json!({"spec": {
        "selector": {"priority": 4}, "ranges": [subnet("10.59.2.0/25")],
    }});
    world.merge(&world.pools(), "sel5-a", raise).await?;
    world
        .pool_until("sel5-a", "the edited ranges", |p| {
            p.status.as_ref().is_some_and(|s| s.total == 125)
        })
        .await?;
    asking(&world, ns, "two", "cluster", ["", "", ns, ""]).await?;
    assert_eq!(pool_of(&world, ns, "two").await?, "sel5-a");
    // SEL-8: the first does not move.
    assert_eq!(pool_of(&world, ns, "one").await?, "sel5-m");
    Ok(())
}

async fn sel_6_and_sel_8_second_pass_and_stickiness(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "sel6";
    // The webhook writes the project of the namespace into what is of cluster type (WM-2).
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": ns, "annotations": {"field.cattle.io/projectId": "p9"}},
    });
    world.cluster.apply(&namespace).await?;
    let net = network(&world, ns, "v6").await?;
    selecting(&world, "sel6-loose", "10.60.0.0/24", &net, 0, ["", ns, ""]).await?;
    world
        .pool_until("sel6-loose", "Ready", |p| {
            pool_condition(p, "Ready").is_some()
        })
        .await?;
    let requirement = [&*net, "p9", ns, "gc7"];
    asking(&world, ns, "vm", "vm", requirement).await?;
    world.lb_reason(ns, "vm", "NoMatchedPool").await?;
    asking(&world, ns, "guest", "cluster", requirement).await?;
    assert_eq!(pool_of(&world, ns, "guest").await?, "sel6-loose");
    // A strict match is created, serves the waiting one, and does not move the other.
    selecting(
        &world,
        "sel6-strict",
        "10.60.1.0/24",
        &net,
        7,
        ["p9", ns, "*"],
    )
    .await?;
    assert_eq!(pool_of(&world, ns, "vm").await?, "sel6-strict");
    let other =
        json!({"metadata": {"annotations": {"loadbalancer.harvesterhci.io/network": "net/other"}}});
    world.merge(&world.lbs(ns), "guest", other).await?;
    let scope = json!({"spec": {"selector": {"scope": []}}});
    world.merge(&world.pools(), "sel6-loose", scope).await?;
    world
        .at_rest(ns, &["sel6-loose", "sel6-strict"], Duration::from_secs(1))
        .await?;
    assert_eq!(pool_of(&world, ns, "guest").await?, "sel6-loose");
    // Naming the pool that it already uses moves nothing either.
    let same = json!({"spec": {"ipPool": "sel6-loose"}});
    world.merge(&world.lbs(ns), "guest", same).await?;
    assert_eq!(pool_of(&world, ns, "guest").await?, "sel6-loose");
    Ok(())
}
