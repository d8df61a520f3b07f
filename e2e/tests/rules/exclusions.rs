//! The addresses that a pool excludes (EXC-1 to EXC-3).

use std::sync::Arc;

use harvester_lb_api::Phase;
use harvester_lb_e2e::read::{allocated, condition, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{part, subnet};
use harvester_lb_testkit::eventually;
use serde_json::{Value, json};

use super::pools::pool_condition;
use super::support::{RuleHelpers, cluster};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        exc_2_excluded_addresses_are_not_allocated,
        exc_3_an_address_in_use_that_becomes_excluded_stays,
    ]
}

/// A merge patch that sets the list.
pub(crate) fn exclude(list: &str) -> Value {
    let key = "loadbalancer.harvesterhci.io/exclude";
    json!({"metadata": {"annotations": { key: list }}})
}

async fn total(world: &World, pool: &str, total: i64, available: i64) -> anyhow::Result<()> {
    world
        .pool_until(pool, &format!("{available} of {total} available"), |p| {
            let status = p.status.as_ref();
            status.is_some_and(|s| (s.total, s.available) == (total, available))
        })
        .await?;
    Ok(())
}

async fn exc_2_excluded_addresses_are_not_allocated(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("exc2", "exc2");
    world.namespace(ns).await?;
    let range = part("10.126.0.0/24", "10.126.0.10", "10.126.0.13");
    world.ranges(pool, &[range]).await?;
    let gone = world.served(ns, "gone", pool).await?;
    assert_eq!(gone, "10.126.0.10");
    world.remove(ns, "gone", &gone).await?;
    // Blanks, order, overlap and parts outside of the ranges do not matter.
    let list = exclude("10.126.9.0/24, 10.126.0.12-10.126.0.12,10.126.0.0/28 ");
    world.merge(&world.pools(), pool, list).await?;
    total(&world, pool, 0, 0).await?;
    world.lb(ns, "first", cluster(pool)).await?;
    let lb = world.lb_reason(ns, "first", "NoAvailableIP").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(message.contains("its annotation exclude"), "{message}");
    world
        .merge(
            &world.pools(),
            pool,
            exclude("10.126.0.10,10.126.0.12-10.126.0.13"),
        )
        .await?;
    assert_eq!(world.lb_address(ns, "first").await?, "10.126.0.11");
    total(&world, pool, 1, 0).await?;
    // Not from history either.
    world.lb(ns, "gone", cluster(pool)).await?;
    world.lb_reason(ns, "gone", "NoAvailableIP").await?;
    eventually("its record is deleted", SOON, || async {
        let record = world.record("10.126.0.10").await?;
        Ok(record.is_none().then_some(()))
    })
    .await?;
    world.merge(&world.pools(), pool, exclude("")).await?;
    // Its former address is forgotten: the next one after the last.
    assert_eq!(world.lb_address(ns, "gone").await?, "10.126.0.12");
    total(&world, pool, 4, 2).await?;
    Ok(())
}

async fn exc_3_an_address_in_use_that_becomes_excluded_stays(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("exc3", "exc3");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.127.0.0/24")]).await?;
    let address = world.served(ns, "lb", pool).await?;
    let before = world.read(ns, "lb").await?;
    world.merge(&world.pools(), pool, exclude(&address)).await?;
    let is_told = |lb: &harvester_lb_api::LoadBalancer| condition(lb, "AddressExcluded").is_some();
    let lb = world.lb_until(ns, "lb", "AddressExcluded", is_told).await?;
    let message = condition(&lb, "AddressExcluded").unwrap();
    assert!(message.contains(&address), "{message}");
    assert_eq!(ready(&lb), ready(&before));
    let held = |lb: harvester_lb_api::LoadBalancer| lb.status.unwrap().allocated_address;
    assert_eq!(held(lb), held(before));
    let told = world
        .pool_until(pool, "AddressExcluded", |p| {
            pool_condition(p, "AddressExcluded").is_some()
        })
        .await?;
    let (_, _, message) = pool_condition(&told, "AddressExcluded").unwrap();
    let both = message.contains(&address) && message.contains("exc3/lb");
    assert!(both, "{message}");
    assert_eq!(pool_condition(&told, "Ready").unwrap().0, "True");
    total(&world, pool, 252, 252).await?;
    for (namespace, kind, name) in [(ns, "LoadBalancer", "lb"), ("default", "IPPool", pool)] {
        world
            .event(namespace, kind, name, "AddressExcluded")
            .await?;
    }
    assert_eq!(world.phase(&address, Phase::Bound).await?, "exc3/lb");
    // No longer excluded, and excluded again.
    world.merge(&world.pools(), pool, exclude("")).await?;
    world
        .lb_until(ns, "lb", "no AddressExcluded", |lb| {
            condition(lb, "AddressExcluded").is_none()
        })
        .await?;
    world.merge(&world.pools(), pool, exclude(&address)).await?;
    world.lb_until(ns, "lb", "AddressExcluded", is_told).await?;
    // Released, it is not allocated again, not even to its last owner.
    world.delete_lb(ns, "lb").await?;
    world.gone(&world.lbs(ns), "lb").await?;
    world
        .pool_until(pool, "no AddressExcluded", |p| {
            pool_condition(p, "AddressExcluded").is_none()
        })
        .await?;
    assert_ne!(world.served(ns, "lb", pool).await?, address);
    Ok(())
}

/// EXC-1. The webhook refuses such a list: it is older than the webhook, or was written while that was not registered.
pub(crate) async fn exc_1_nothing_new_from_a_pool_with_an_invalid_list(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("exc1", "exc1");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.114.0.0/24")]).await?;
    let held = world.served(ns, "held", pool).await?;
    let gone = world.served(ns, "gone", pool).await?;
    world.remove(ns, "gone", &gone).await?;
    let invalid = exclude("10.114.0.9, 10.114.0.x");
    world.merge(&world.pools(), pool, invalid).await?;
    let told = world
        .pool_until(pool, "it says so", |p| {
            pool_condition(p, "Ready").is_some_and(|(_, reason, _)| reason == "InvalidExclude")
        })
        .await?;
    let (_, _, message) = pool_condition(&told, "Ready").unwrap();
    assert!(message.contains("10.114.0.x"), "{message}");
    let status = told.status.unwrap();
    assert_eq!((status.total, status.available), (253, 252));
    // A new one, and one in the history.
    for name in ["new", "gone"] {
        world.lb(ns, name, cluster(pool)).await?;
        let lb = world.lb_reason(ns, name, "InvalidExclude").await?;
        let (_, _, message) = ready(&lb).unwrap();
        assert!(message.contains("pool exc1"), "{message}");
        assert_eq!(allocated(&lb), None);
    }
    let lb = world.read(ns, "held").await?;
    assert_eq!(ready(&lb).unwrap().1, "Ready");
    assert_eq!(allocated(&lb).as_ref(), Some(&held));
    // An empty list excludes nothing.
    world.merge(&world.pools(), pool, exclude(" ")).await?;
    assert_eq!(world.lb_address(ns, "gone").await?, gone);
    world.lb_reason(ns, "new", "Ready").await?;
    world
        .pool_until(pool, "ready again", |p| {
            pool_condition(p, "Ready").is_some_and(|(_, reason, _)| reason == "Ready")
        })
        .await?;
    Ok(())
}
