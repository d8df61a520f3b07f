//! The status of pools (section 6.2).

use std::sync::Arc;

use harvester_lb_api::IPPool;
use harvester_lb_e2e::read::{allocated, condition, ready};
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{part, subnet};
use serde_json::{Value, json};

use super::support::{Accounts, RuleHelpers, cluster};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        pool_1_counters_and_condition,
        pool_3_the_projection_is_marked,
        rng_2_rng_5_rng_10_totals,
    ]
}

/// Status, reason and message of a pool's condition.
pub(crate) fn pool_condition(pool: &IPPool, type_: &str) -> Option<(String, String, String)> {
    let conditions = pool.status.as_ref()?.conditions.as_deref()?;
    let found = conditions.iter().find(|c| c.type_ == type_)?;
    Some((
        found.status.clone(),
        found.reason.clone().unwrap_or_default(),
        found.message.clone().unwrap_or_default(),
    ))
}

async fn pool_1_counters_and_condition(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("pool1", "pool1");
    world.namespace(ns).await?;
    world
        .ranges(pool, &[subnet("10.50.0.0/28"), subnet("10.50.1.0/28")])
        .await?;
    let pool_now = world
        .pool_until(pool, "Ready", |p| pool_condition(p, "Ready").is_some())
        .await?;
    let status = pool_now.status.as_ref().unwrap();
    assert_eq!(
        (status.total, status.available, &*status.last_allocated),
        (26, 26, "")
    );
    let is_true = ("True".to_owned(), "Ready".to_owned(), String::new());
    assert_eq!(pool_condition(&pool_now, "Ready"), Some(is_true.clone()));
    let conditions = status.conditions.as_ref().unwrap();
    assert_eq!(conditions.len(), 1);
    assert!(
        conditions[0].last_transition_time.is_some() && conditions[0].last_update_time.is_some()
    );

    let a = world.served(ns, "a", pool).await?;
    let b = world.served(ns, "b", pool).await?;
    world.remove(ns, "b", &b).await?;
    let held = [(&*a, "pool1/a")];
    let wanted = Accounts {
        total: 26,
        available: 25,
        last: &b,
        allocated: &held,
        history: &[(&b, "pool1/b")],
    };
    world.accounts(pool, &wanted).await?;
    // Other ranges: counted again; addresses outside of them are removed from the history.
    let ranges = [
        part("10.50.0.0/28", "10.50.0.2", "10.50.0.2"),
        subnet("10.50.2.0/24"),
    ];
    world
        .merge(&world.pools(), pool, json!({"spec": {"ranges": ranges}}))
        .await?;
    let wanted = Accounts {
        total: 254,
        available: 253,
        last: &b,
        allocated: &held,
        history: &[],
    };
    world.accounts(pool, &wanted).await?;
    // Wrong numbers, written by another client, are corrected.
    let wrong = json!({"status": {
        "total": 1, "available": 7, "lastAllocated": "", "conditions": null,
        "allocated": {"10.50.2.9": "nobody/nothing"},
    }});
    world.merge(&world.pools(), pool, wrong).await?;
    world.accounts(pool, &wanted).await?;
    let pool_now = world
        .pool_until(pool, "Ready again", |p| {
            pool_condition(p, "Ready").is_some()
        })
        .await?;
    assert_eq!(pool_condition(&pool_now, "Ready"), Some(is_true));
    Ok(())
}

pub(crate) async fn pool_2_invalid_ranges(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("pool2", "pool2");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.51.0.0/24")]).await?;
    let held = world.served(ns, "held", pool).await?;
    let edit = async |ranges: Value| {
        let patch = json!({"spec": {"ranges": ranges}});
        world.merge(&world.pools(), pool, patch).await
    };
    for (index, (ranges, texts)) in [
        (
            json!([{"subnet": "10.51.0.0"}]),
            ["spec.ranges[0].subnet", "\"10.51.0.0\""],
        ),
        (
            json!([{"subnet": "10.51.0.0/24"}, {"subnet": "10.51.1.0/33"}]),
            ["spec.ranges[1].subnet", "\"10.51.1.0/33\""],
        ),
        (
            json!([{"subnet": "10.51.0.0/24", "rangeEnd": "10.51.0.255"}]),
            ["spec.ranges[0].rangeEnd", "\"10.51.0.255\""],
        ),
        (
            json!([{"subnet": "10.51.0.0/24", "gateway": "10.99.0.1"}]),
            ["spec.ranges[0].gateway", "\"10.99.0.1\""],
        ),
        (json!([]), ["has no range", "spec.ranges"]),
    ]
    .into_iter()
    .enumerate()
    {
        edit(ranges.clone()).await?;
        let pool_now = world
            .pool_until(pool, &format!("{ranges} is refused"), |p| {
                pool_condition(p, "Ready")
                    .is_some_and(|(s, _, m)| s == "False" && m.contains(texts[0]))
            })
            .await?;
        let (_, reason, message) = pool_condition(&pool_now, "Ready").unwrap();
        assert_eq!(reason, "InvalidRanges");
        assert!(
            message.starts_with("IPPool pool2: ") && message.contains(texts[1]),
            "{message}"
        );
        let name = format!("waits{index}");
        world.lb(ns, &name, cluster(pool)).await?;
        let lb = world.lb_reason(ns, &name, "PoolInvalid").await?;
        let (_, _, message) = ready(&lb).unwrap();
        assert!(
            message.contains("pool pool2") && message.contains(texts[0]),
            "{message}"
        );
    }
    world
        .event("default", "IPPool", pool, "InvalidRanges")
        .await?;
    // The holder of an address is unchanged, and can be deleted.
    let lb = world.read(ns, "held").await?;
    assert_eq!(ready(&lb).unwrap().1, "Ready");
    assert_eq!(allocated(&lb).as_ref(), Some(&held));
    assert_eq!(condition(&lb, "AddressOutOfPool"), None);
    world.remove(ns, "held", &held).await?;
    edit(json!([{"subnet": "10.51.7.0/24"}])).await?;
    // There is one for each, so no order is promised.
    let mut given = std::collections::BTreeSet::new();
    for index in 0..5 {
        let lb = world
            .lb_reason(ns, &format!("waits{index}"), "Ready")
            .await?;
        given.extend(allocated(&lb));
    }
    let wanted = (2..=6).map(|last| format!("10.51.7.{last}"));
    assert_eq!(given, wanted.collect());
    world
        .pool_until(pool, "Ready", |p| {
            pool_condition(p, "Ready").is_some_and(|(s, _, m)| s == "True" && m.is_empty())
        })
        .await?;
    Ok(())
}

async fn pool_3_the_projection_is_marked(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("pool3", "pool3");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.52.0.0/24")]).await?;
    let ip = world.served(ns, "a", pool).await?;
    let marked = world
        .pool_until(pool, "its address", |p| {
            p.status
                .as_ref()
                .and_then(|s| s.allocated.as_ref())
                .is_some_and(|a| a.contains_key(&ip))
        })
        .await?;
    let status = marked.status.unwrap();
    let digest = harvester_lb_api::projection::digest(
        status.allocated.as_ref(),
        status.allocated_history.as_ref(),
    );
    let key = "loadbalancer.harvesterhci.io/projection";
    assert_eq!(marked.metadata.annotations.unwrap()[key], digest);
    // Removed by another client: restored.
    let off = json!({"metadata": {"annotations": {key: null}}});
    world.merge(&world.pools(), pool, off).await?;
    world
        .pool_until(pool, "the mark", |p| {
            p.metadata.annotations.as_ref().and_then(|a| a.get(key)) == Some(&digest)
        })
        .await?;
    // Writes are coalesced: far fewer than the changes.
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..40 {
        world.lb(ns, &format!("many{n}"), cluster(pool)).await?;
        seen.insert(world.pools().get(pool).await?.metadata.resource_version);
    }
    world
        .pool_until(pool, "all of them", |p| {
            p.status
                .as_ref()
                .and_then(|s| s.allocated.as_ref())
                .is_some_and(|a| a.len() == 41)
        })
        .await?;
    assert!(seen.len() < 20, "{} writes for 40 changes", seen.len());
    Ok(())
}

/// The totals of the rules' table of ranges, each in a network of its own (PV-3).
async fn rng_2_rng_5_rng_10_totals(world: Arc<World>) -> anyhow::Result<()> {
    let one = |range: Value| vec![range];
    let rows: Vec<(Vec<Value>, i64)> = vec![
        (one(subnet("10.190.0.0/24")), 253),
        // RNG-4: swapped.
        (one(part("10.190.1.0/24", "10.190.1.40", "10.190.1.31")), 10),
        // RNG-5: a gateway inside.
        (
            one(json!({
                "subnet": "10.190.2.0/24", "rangeStart": "10.190.2.31", "rangeEnd": "10.190.2.40",
                "gateway": "10.190.2.35",
            })),
            9,
        ),
        (
            one(json!({"subnet": "10.190.3.0/24", "rangeEnd": "10.190.3.3"})),
            2,
        ),
        (one(subnet("10.190.4.64/26")), 61),
        // RNG-6
        (one(subnet("10.190.5.8/32")), 1),
        (one(subnet("fd10:190:5::9/128")), 1),
        // RNG-7
        (one(subnet("10.190.6.4/30")), 1),
        (one(subnet("10.190.6.8/31")), 1),
        (one(subnet("fd10:190:6::/127")), 0),
        (one(subnet("fd10:190:7::/124")), 14),
        (
            one(part(
                "fd10:190:8::/64",
                "fd10:190:8::100",
                "fd10:190:8::1ff",
            )),
            256,
        ),
        // RNG-8
        (one(subnet("fd10:190:9::/64")), i64::MAX),
        // RNG-10
        (vec![subnet("10.190.10.0/28"), subnet("10.190.11.0/28")], 26),
    ];
    let name = |number: usize| format!("rng-{number}");
    for (number, (ranges, _)) in rows.iter().enumerate() {
        world.ranges(&name(number), ranges).await?;
    }
    for (number, (_, total)) in rows.iter().enumerate() {
        let what = format!("a total of {total}");
        let is_counted = |p: &IPPool| p.status.as_ref().is_some_and(|s| s.total == *total);
        world.pool_until(&name(number), &what, is_counted).await?;
    }
    // RNG-7: of a /31 the first address is the usable one, of a /30 the one after the gateway.
    let ns = "rng";
    world.namespace(ns).await?;
    for (lb, number, address) in [("a", 7, "10.190.6.6"), ("b", 8, "10.190.6.8")] {
        assert_eq!(world.served(ns, lb, &name(number)).await?, address);
    }
    Ok(())
}
