//! Addresses and IPAllocations when pools overlap, change or are deleted, and when IPAllocations are changed by hand
//! (IPA-1, IPA-4, IPA-7).

use std::sync::Arc;

use harvester_lb_api::Phase;
use harvester_lb_e2e::read::{allocated, condition, ready};
use harvester_lb_e2e::waits::next_second;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{part, record, subnet, with};
use serde_json::{Value, json};

use super::pools::pool_condition;
use super::support::{RuleHelpers, cluster, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        ipa_7_a_record_deleted_by_hand,
        ipa_1_an_unreadable_record_blocks_its_name,
        ipa_8_a_record_of_a_later_kind_holds_no_address,
        ipa_9_what_a_later_version_is_asked_for_is_left_alone,
    ]
}

pub(crate) async fn ipa_4_overlapping_pools(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "ipa4";
    world.namespace(ns).await?;
    world
        .ranges(
            "ipa4-older",
            &[part("10.53.0.0/24", "10.53.0.10", "10.53.0.13")],
        )
        .await?;
    world
        .pool_until("ipa4-older", "Ready", |p| {
            pool_condition(p, "Ready").is_some()
        })
        .await?;
    next_second().await;
    world
        .ranges(
            "ipa4-younger",
            &[part("10.53.0.0/24", "10.53.0.12", "10.53.0.15")],
        )
        .await?;
    let younger = world
        .pool_until("ipa4-younger", "Overlaps", |p| {
            pool_condition(p, "Overlaps").is_some()
        })
        .await?;
    let (status, _, message) = pool_condition(&younger, "Overlaps").unwrap();
    assert_eq!(status, "True");
    assert!(message.contains("ipa4-older"), "{message}");
    assert_eq!(pool_condition(&younger, "Ready").unwrap().0, "True");
    world
        .event("default", "IPPool", "ipa4-younger", "Overlaps")
        .await?;
    // Six addresses in total; each has one owner.
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
    assert_eq!(pool_condition(&older, "Overlaps"), None);
    // No overlap any more: the condition is removed.
    let apart = json!({"spec": {"ranges": [part("10.53.0.0/24", "10.53.0.14", "10.53.0.20")]}});
    world.merge(&world.pools(), "ipa4-younger", apart).await?;
    world
        .pool_until("ipa4-younger", "no Overlaps", |p| {
            pool_condition(p, "Overlaps").is_none()
        })
        .await?;
    world.lb_reason(ns, "ipa4-younger-late", "Ready").await?;
    Ok(())
}

pub(crate) async fn ipa_7_an_edit_keeps_the_address(world: Arc<World>) -> anyhow::Result<()> {
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
            pool_condition(p, "AddressOutOfPool").is_some()
        })
        .await?;
    let (_, _, message) = pool_condition(&pool_now, "AddressOutOfPool").unwrap();
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
    // Back again: the conditions are removed.
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
            pool_condition(p, "AddressOutOfPool").is_none()
        })
        .await?;
    // Outside again; then its owner is deleted, and the address is not allocated.
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
            pool_condition(p, "AddressOutOfPool").is_none()
        })
        .await?;
    assert_eq!(world.served(ns, "lb", pool).await?, "10.54.1.2");
    Ok(())
}

pub(crate) async fn ipa_7_a_deleted_pool_keeps_the_address(
    world: Arc<World>,
) -> anyhow::Result<()> {
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
    // Its name is one address, its content another.
    let other = record("10.57.0.3", pool, "Bound", (ns, "ghost", "x"));
    let record = with(other, json!({"metadata": {"name": "10.57.0.2"}}));
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

async fn ipa_8_a_record_of_a_later_kind_holds_no_address(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("ipa8", "ipa8");
    world.namespace(ns).await?;
    world
        .ranges(pool, &[part("10.110.0.0/24", "10.110.0.10", "10.110.0.11")])
        .await?;
    let mut leased = vm("", "web");
    leased["ipam"] = json!("dhcp");
    leased["ipPool"] = Value::Null;
    let lb = world.lb(ns, "leased", leased).await?;
    world
        .lb_reason(ns, "leased", "WaitingForExternalIP")
        .await?;
    let uid = lb.metadata.uid.unwrap_or_default();
    // As the DHCP process of a later version creates it, with an address of the pool.
    let name = format!("dhcp-{uid}");
    let leased = record("10.110.0.10", pool, "Bound", (ns, "leased", &uid));
    let record = serde_json::from_value(with(leased, json!({"metadata": {"name": name}})))?;
    let post = kube::api::PostParams::default();
    let made = world.records().create(&post, &record).await?;
    // IPA-9: its LoadBalancer is ignored.
    let lb = world
        .lb_reason(ns, "leased", "UnsupportedAnnotation")
        .await?;
    let (status, _, message) = ready(&lb).unwrap();
    assert!(status == "False" && message.contains(&name), "{message}");
    world
        .services(ns)
        .delete("leased", &kube::api::DeleteParams::default())
        .await?;
    // The pool ignores it.
    assert_eq!(world.served(ns, "a", pool).await?, "10.110.0.10");
    assert_eq!(world.served(ns, "b", pool).await?, "10.110.0.11");
    let status = world
        .pool_until(pool, "both are held", |p| {
            p.status.as_ref().is_some_and(|s| s.available == 0)
        })
        .await?
        .status
        .unwrap();
    assert_eq!(status.allocated.unwrap().len(), 2);
    assert!(world.services(ns).get_opt("leased").await?.is_none());
    let now = world.records().get(&name).await?;
    assert_eq!(
        now.metadata.resource_version,
        made.metadata.resource_version
    );
    // Without it everything is as before.
    world
        .records()
        .delete(&name, &kube::api::DeleteParams::default())
        .await?;
    world
        .lb_reason(ns, "leased", "WaitingForExternalIP")
        .await?;
    assert!(world.services(ns).get_opt("leased").await?.is_some());
    Ok(())
}

async fn ipa_9_what_a_later_version_is_asked_for_is_left_alone(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("ipa9", "ipa9");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.111.0.0/24")]).await?;
    world
        .fake_vmi(ns, "web-1", json!({"app": "web"}), Some("10.211.0.1"))
        .await?;
    let address = world.announced(ns, "served", vm(pool, "web")).await?;
    world.lb_reason(ns, "served", "Ready").await?;
    let before = world.read(ns, "served").await?;
    let uid = before.metadata.uid.unwrap_or_default();
    let before = before.status.unwrap();

    // A LoadBalancer that is already served stays as it is.
    let name = format!("dhcp-{uid}");
    let mut lease = record("10.111.0.200", pool, "Bound", (ns, "served", &uid));
    lease["metadata"]["name"] = json!(name);
    // It names no server.
    lease["spec"]["lease"] = json!({
        "clientId": "ff", "hardwareAddress": "02:00:00:00:00:77", "interface": "eth0",
    });
    let lease = serde_json::from_value(lease)?;
    let post = kube::api::PostParams::default();
    let made = world.records().create(&post, &lease).await?;
    let lb = world
        .lb_reason(ns, "served", "UnsupportedAnnotation")
        .await?;
    let (status, _, message) = ready(&lb).unwrap();
    assert!(status == "False" && message.contains(&name), "{message}");
    world.event(ns, "LoadBalancer", "served", &name).await?;
    let now = lb.status.unwrap();
    assert_eq!(now.allocated_address, before.allocated_address);
    assert_eq!(now.address, before.address);
    assert_eq!(now.backend_servers, before.backend_servers);
    // None of its objects is recreated, moved or released.
    world
        .merge(
            &world.lbs(ns),
            "served",
            json!({"spec": {"ipPool": "none"}}),
        )
        .await?;
    let delete = kube::api::DeleteParams::default();
    world.services(ns).delete("served", &delete).await?;
    world.slices(ns).delete("served", &delete).await?;
    world.records().delete(&address, &delete).await?;
    // A later one is served, so earlier ones have been reconciled; and the address is not allocated to another.
    for name in ["one", "two"] {
        assert_ne!(world.served(ns, name, pool).await?, address);
    }
    assert!(world.services(ns).get_opt("served").await?.is_none());
    assert!(world.slices(ns).get_opt("served").await?.is_none());
    assert!(world.record(&address).await?.is_none());
    assert_eq!(
        allocated(&world.read(ns, "served").await?).as_ref(),
        Some(&address)
    );
    let now = world.records().get(&name).await?;
    assert_eq!(
        now.metadata.resource_version,
        made.metadata.resource_version
    );
    // Without the lease: like any other, with the address that it had.
    world
        .merge(&world.lbs(ns), "served", json!({"spec": {"ipPool": pool}}))
        .await?;
    world.records().delete(&name, &delete).await?;
    world
        .ingress(ns, "served", json!([{ "ip": address }]))
        .await?;
    world.lb_reason(ns, "served", "Ready").await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "ipa9/served");
    // Once it is deleted, its Service is collected and its address released, regardless of the lease.
    world.records().create(&post, &lease).await?;
    world
        .lb_reason(ns, "served", "UnsupportedAnnotation")
        .await?;
    world.delete_lb(ns, "served").await?;
    world.collected(&world.services(ns), "served").await?;
    assert_eq!(world.phase(&address, Phase::Released).await?, "ipa9/served");
    Ok(())
}
