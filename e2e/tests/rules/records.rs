//! What becomes of addresses and records when pools overlap, change or go, and when somebody meddles with records
//! (IPA-1, IPA-4, IPA-7).

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::Phase;
use harvester_lb_e2e::world::{allocated, condition, ready};
use harvester_lb_e2e::{Test, World};
use serde_json::{Value, json};

use super::pools::said;
use super::support::{More, cluster, part, subnet};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        ipa_4_overlapping_pools,
        ipa_7_an_edit_keeps_the_address,
        ipa_7_a_deleted_pool_keeps_the_address,
        ipa_7_a_record_deleted_by_hand,
        ipa_1_an_unreadable_record_blocks_its_name,
    ]
}

async fn ipa_4_overlapping_pools(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "ipa4";
    world.namespace(ns).await?;
    world
        .ranges(
            "ipa4-older",
            &[part("10.53.0.0/24", "10.53.0.10", "10.53.0.13")],
        )
        .await?;
    world
        .pool_until("ipa4-older", "Ready", |p| said(p, "Ready").is_some())
        .await?;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    world
        .ranges(
            "ipa4-younger",
            &[part("10.53.0.0/24", "10.53.0.12", "10.53.0.15")],
        )
        .await?;
    let younger = world
        .pool_until("ipa4-younger", "Overlaps", |p| {
            said(p, "Overlaps").is_some()
        })
        .await?;
    let (status, _, message) = said(&younger, "Overlaps").unwrap();
    assert_eq!(status, "True");
    assert!(message.contains("ipa4-older"), "{message}");
    assert_eq!(said(&younger, "Ready").unwrap().0, "True");
    world
        .event("default", "IPPool", "ipa4-younger", "Overlaps")
        .await?;
    // Six addresses in all; each goes to one.
    let mut given = std::collections::BTreeSet::new();
    for pool in ["ipa4-older", "ipa4-younger"] {
        for n in 0..3 {
            given.insert(world.served(ns, &format!("{pool}{n}"), pool).await?);
        }
    }
    assert_eq!(given.len(), 6, "{given:?}");
    for pool in ["ipa4-older", "ipa4-younger"] {
        let name = format!("{pool}-late");
        world.lb(ns, &name, cluster(pool)).await?;
        world.lb_reason(ns, &name, "NoAvailableIP").await?;
        let what = "what is taken from the other pool is not available";
        world
            .pool_until(pool, what, |p| {
                p.status.as_ref().is_some_and(|s| s.available == 0)
            })
            .await?;
    }
    let older = world.pools().get("ipa4-older").await?;
    assert_eq!(said(&older, "Overlaps"), None);
    // No overlap any more: the condition goes.
    let apart = json!({"spec": {"ranges": [part("10.53.0.0/24", "10.53.0.14", "10.53.0.20")]}});
    world.merge(&world.pools(), "ipa4-younger", apart).await?;
    world
        .pool_until("ipa4-younger", "no Overlaps", |p| {
            said(p, "Overlaps").is_none()
        })
        .await?;
    world.lb_reason(ns, "ipa4-younger-late", "Ready").await?;
    Ok(())
}

async fn ipa_7_an_edit_keeps_the_address(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("ipa7", "ipa7");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.54.0.0/24")]).await?;
    let ip = world.served(ns, "lb", pool).await?;
    let edit = |range: Value| json!({"spec": {"ranges": [range]}});
    world
        .merge(&world.pools(), pool, edit(subnet("10.54.1.0/24")))
        .await?;
    let lb = world
        .lb_until(ns, "lb", "AddressOutOfPool", |lb| {
            condition(lb, "AddressOutOfPool").is_some()
        })
        .await?;
    assert!(condition(&lb, "AddressOutOfPool").unwrap().contains(&ip));
    assert_eq!(ready(&lb).unwrap().1, "Ready");
    let held = json!(lb.status.unwrap().allocated_address);
    assert_eq!((&held["ip"], &held["ipPool"]), (&json!(ip), &json!(pool)));
    assert_eq!(held["mask"], "255.255.255.0");
    let pool_now = world
        .pool_until(pool, "AddressOutOfPool", |p| {
            said(p, "AddressOutOfPool").is_some()
        })
        .await?;
    let (_, _, message) = said(&pool_now, "AddressOutOfPool").unwrap();
    assert!(
        message.contains(&ip) && message.contains("ipa7/lb"),
        "{message}"
    );
    world
        .event(ns, "LoadBalancer", "lb", "AddressOutOfPool")
        .await?;
    world
        .event("default", "IPPool", pool, "AddressOutOfPool")
        .await?;
    assert_eq!(world.phase(&ip, Phase::Bound).await?, "ipa7/lb");
    // Back again: the conditions go.
    world
        .merge(&world.pools(), pool, edit(subnet("10.54.0.0/16")))
        .await?;
    let lb = world
        .lb_until(ns, "lb", "no AddressOutOfPool, the new mask", |lb| {
            let held = lb.status.as_ref().and_then(|s| s.allocated_address.clone());
            condition(lb, "AddressOutOfPool").is_none()
                && held.is_some_and(|h| h.mask.as_deref() == Some("255.255.0.0"))
        })
        .await?;
    assert_eq!(allocated(&lb).as_ref(), Some(&ip));
    world
        .pool_until(pool, "no AddressOutOfPool", |p| {
            said(p, "AddressOutOfPool").is_none()
        })
        .await?;
    // Outside once more; then its owner goes, and nobody gets it.
    world
        .merge(&world.pools(), pool, edit(subnet("10.54.1.0/24")))
        .await?;
    world
        .lb_until(ns, "lb", "AddressOutOfPool", |lb| {
            condition(lb, "AddressOutOfPool").is_some()
        })
        .await?;
    world.delete_lb(ns, "lb").await?;
    world.gone(&world.lbs(ns), "lb").await?;
    world
        .pool_until(pool, "no AddressOutOfPool", |p| {
            said(p, "AddressOutOfPool").is_none()
        })
        .await?;
    assert_eq!(world.served(ns, "lb", pool).await?, "10.54.1.2");
    Ok(())
}

async fn ipa_7_a_deleted_pool_keeps_the_address(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("ipa7-gone", "ipa7-gone");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.55.0.0/24")]).await?;
    let ip = world.served(ns, "lb", pool).await?;
    let before = world.read(ns, "lb").await?;
    world.delete_pool(pool).await?;
    let lb = world
        .lb_until(ns, "lb", "AddressOutOfPool", |lb| {
            condition(lb, "AddressOutOfPool").is_some()
        })
        .await?;
    assert_eq!(ready(&lb).unwrap().1, "Ready");
    let held = |lb: harvester_lb_api::LoadBalancer| lb.status.unwrap().allocated_address;
    assert_eq!(held(lb), held(before));
    assert_eq!(world.phase(&ip, Phase::Bound).await?, "ipa7-gone/lb");
    world.lb(ns, "new", cluster(pool)).await?;
    world.lb_reason(ns, "new", "PoolNotFound").await?;
    world.ranges(pool, &[subnet("10.55.0.0/24")]).await?;
    world
        .lb_until(ns, "lb", "no AddressOutOfPool", |lb| {
            condition(lb, "AddressOutOfPool").is_none()
        })
        .await?;
    assert_ne!(world.lb_address(ns, "new").await?, ip);
    assert_eq!(world.lb_address(ns, "lb").await?, ip);
    Ok(())
}

async fn ipa_7_a_record_deleted_by_hand(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("ipa7-record", "ipa7-record");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.56.0.0/24")]).await?;
    let ip = world.served(ns, "lb", pool).await?;
    let uid = world.records().get(&ip).await?.metadata.uid;
    world
        .records()
        .delete(&ip, &kube::api::DeleteParams::default())
        .await?;
    harvester_lb_testkit::eventually("a new record", harvester_lb_e2e::world::SOON, || async {
        let record = world.record(&ip).await?;
        Ok(record
            .filter(|r| r.metadata.uid != uid && r.spec.owner.name == "lb")
            .map(|_| ()))
    })
    .await?;
    assert_eq!(world.lb_address(ns, "lb").await?, ip);
    assert_eq!(world.phase(&ip, Phase::Bound).await?, "ipa7-record/lb");
    Ok(())
}

async fn ipa_1_an_unreadable_record_blocks_its_name(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("ipa1", "ipa1");
    world.namespace(ns).await?;
    // Under the name of one address, and speaks of another.
    let record = json!({
        "metadata": {"name": "10.57.0.2"},
        "spec": {
            "address": "10.57.0.3", "pool": pool, "phase": "Bound",
            "owner": {"namespace": ns, "name": "ghost", "uid": "x"},
        },
    });
    let post = kube::api::PostParams::default();
    world
        .records()
        .create(&post, &serde_json::from_value(record)?)
        .await?;
    world
        .ranges(pool, &[part("10.57.0.0/24", "10.57.0.2", "10.57.0.3")])
        .await?;
    assert_eq!(world.served(ns, "a", pool).await?, "10.57.0.3");
    world.lb(ns, "b", cluster(pool)).await?;
    world.lb_reason(ns, "b", "NoAvailableIP").await?;
    let record = world.records().get("10.57.0.2").await?;
    assert_eq!(record.spec.owner.name, "ghost");
    world
        .records()
        .delete("10.57.0.2", &kube::api::DeleteParams::default())
        .await?;
    assert_eq!(world.lb_address(ns, "b").await?, "10.57.0.2");
    Ok(())
}
