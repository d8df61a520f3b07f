//! Ownership of IPAllocations when owners are deleted, recreated with another uid, or never existed (IPA-3).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::{LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::{audited, quiet};
use harvester_lb_e2e::read::allocated;
use harvester_lb_fixtures::{allocated_address, vm_spec};
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::stage::{cluster, forge, holds, pool, record, record_is, set, start, uid};

fn range(start: u8, end: u8) -> serde_json::Value {
    json!({
        "subnet": "10.71.0.0/24",
        "rangeStart": format!("10.71.0.{start}"), "rangeEnd": format!("10.71.0.{end}"),
    })
}

pub async fn ipa_3_owners_that_go_while_nobody_looks(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "away";
    set(&world, ns).await?;
    pool(&world, ns, &[range(10, 99)]).await?;
    let operator = start(&world).await?;
    for name in ["stays", "goes", "again", "twice"] {
        cluster(&world, ns, name).await?;
    }
    let mut had = std::collections::BTreeMap::new();
    for name in ["stays", "goes", "again", "twice"] {
        had.insert(name, world.lb_address(ns, name).await?);
    }
    audited(&world, "node1", &[ns]).await?;
    operator.end().await?;

    for name in ["goes", "again", "twice"] {
        world.delete_lb(ns, name).await?;
    }
    // Recreated without a status, as a guest cluster does.
    cluster(&world, ns, "again").await?;
    cluster(&world, ns, "twice").await?;
    world.delete_lb(ns, "twice").await?;
    cluster(&world, ns, "twice").await?;

    let operator = start(&world).await?;
    for name in ["stays", "again", "twice"] {
        holds(&world, ns, name, &had[name]).await?;
    }
    record_is(&world, &had["goes"], Phase::Released, "away/goes").await?;
    // Absence from a list was not enough.
    let figures = MetricsSnapshot::read(&world, "node1").await?;
    let asked = figures.sum("harvester_lb_api_requests_total", |s| {
        (s.label("verb"), s.label("resource")) == ("get", "loadbalancers")
    });
    ensure!(asked >= 1.0, "released without a look");
    let found = audited(&world, "node1", &[ns]).await?;
    ensure!((found.bound, found.released) == (3, 1), "{found:?}");
    // The history has the released address.
    cluster(&world, ns, "goes").await?;
    holds(&world, ns, "goes", &had["goes"]).await?;
    operator.end().await
}

pub async fn ipa_3_a_restored_backup(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "backup";
    set(&world, ns).await?;
    pool(&world, ns, &[range(10, 99)]).await?;
    let operator = start(&world).await?;
    for n in 0..20 {
        cluster(&world, ns, &format!("l{n}")).await?;
    }
    for n in 0..20 {
        world.lb_address(ns, &format!("l{n}")).await?;
    }
    audited(&world, "node1", &[ns]).await?;
    operator.end().await?;
    let backup = world.lbs(ns).list(&ListParams::default()).await?.items;

    // Everything is restored in another order and with new uids, with the statuses that name the addresses.
    for lb in &backup {
        world.delete_lb(ns, &lb.name_any()).await?;
    }
    for lb in backup.iter().rev() {
        let restored = LoadBalancer {
            metadata: kube::api::ObjectMeta {
                name: lb.metadata.name.clone(),
                ..kube::api::ObjectMeta::default()
            },
            ..lb.clone()
        };
        world
            .lbs(ns)
            .create(&PostParams::default(), &restored)
            .await?;
    }
    let operator = start(&world).await?;
    for lb in &backup {
        let ip = allocated(lb).unwrap_or_default();
        holds(&world, ns, &lb.name_any(), &ip).await?;
    }
    let found = audited(&world, "node1", &[ns]).await?;
    ensure!((found.bound, found.released) == (20, 0), "{found:?}");
    operator.end().await?;

    // The IPAllocations are lost, only the LoadBalancers remain: their statuses are enough.
    for record in world.records().list(&ListParams::default()).await? {
        world
            .records()
            .delete(&record.name_any(), &kube::api::DeleteParams::default())
            .await?;
    }
    let bare = json!({"status": null, "metadata": {"annotations": null}});
    world.merge(&world.pools(), ns, bare).await?;
    // Waits for an address that is in use.
    cluster(&world, ns, "late").await?;
    let operator = start(&world).await?;
    for lb in &backup {
        let ip = allocated(lb).unwrap_or_default();
        holds(&world, ns, &lb.name_any(), &ip).await?;
    }
    let found = audited(&world, "node1", &[ns]).await?;
    ensure!(found.bound == 21, "{found:?}");
    operator.end().await
}

pub async fn ipa_3_a_service_that_shows_the_address_blocks(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shown";
    set(&world, ns).await?;
    // Two addresses, so that the waiting one could only get one that is still shown.
    pool(&world, ns, &[range(10, 11)]).await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    let operator = start(&world).await?;
    let mut had = Vec::new();
    for name in ["watched", "unwatched"] {
        world.lb(ns, name, vm_spec("web")).await?;
        world.lb_reason(ns, name, "NoBackend").await?;
        had.push(world.lb_address(ns, name).await?);
        // A Service that remains when it is deleted.
        let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
        world.merge(&world.services(ns), name, held).await?;
    }
    cluster(&world, ns, "waits1").await?;
    cluster(&world, ns, "waits2").await?;
    world.lb_reason(ns, "waits1", "NoAvailableIP").await?;

    world.delete_lb(ns, "watched").await?;
    still_bound(&world, ns, "watched", &had[0]).await?;
    operator.end().await?;
    world.delete_lb(ns, "unwatched").await?;
    let operator = start(&world).await?;
    for (name, ip) in ["watched", "unwatched"].iter().zip(&had) {
        still_bound(&world, ns, name, ip).await?;
    }
    let free = json!({"metadata": {"finalizers": null}});
    for (name, ip) in ["watched", "unwatched"].iter().zip(&had) {
        world.merge(&world.services(ns), name, free.clone()).await?;
        world.gone(&world.services(ns), name).await?;
        // Released, and allocated to the one that has waited longest.
        harvester_lb_testkit::eventually("given on", harvester_lb_e2e::world::SOON, || async {
            let owner = record(&world, ip).await?.map(|r| r.spec.owner.name);
            Ok(owner.is_some_and(|o| o.starts_with("waits")).then_some(()))
        })
        .await?;
    }
    audited(&world, "node1", &[ns]).await?;
    operator.end().await
}

/// Once the operator is idle: the Service is terminating, the address is held.
async fn still_bound(world: &World, ns: &str, name: &str, ip: &str) -> anyhow::Result<()> {
    harvester_lb_testkit::eventually(
        "the Service is going",
        harvester_lb_e2e::world::SOON,
        || async {
            let service = world.services(ns).get(name).await?;
            Ok(service.metadata.deletion_timestamp.is_some().then_some(()))
        },
    )
    .await?;
    quiet(world, "node1").await?;
    let held = record(world, ip)
        .await?
        .map(|r| (r.spec.phase, r.spec.owner.name));
    ensure!(
        held == Some((Phase::Bound, name.to_owned())),
        "{ip} is {held:?} while Service {name} shows it"
    );
    Ok(())
}

pub async fn ipa_3_a_service_without_an_owner_reference_goes_first(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "orphan";
    set(&world, ns).await?;
    pool(&world, ns, &[range(10, 20)]).await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    let operator = start(&world).await?;
    world.lb(ns, "web", vm_spec("web")).await?;
    world.lb_reason(ns, "web", "NoBackend").await?;
    let ip = world.lb_address(ns, "web").await?;
    operator.end().await?;
    // The garbage collector has nothing to go by.
    let orphan = json!({"metadata": {"ownerReferences": null}});
    world
        .merge(&world.services(ns), "web", orphan.clone())
        .await?;
    world.merge(&world.slices(ns), "web", orphan).await?;
    world.delete_lb(ns, "web").await?;
    let operator = start(&world).await?;
    record_is(&world, &ip, Phase::Released, "orphan/web").await?;
    world.gone(&world.services(ns), "web").await?;
    world.gone(&world.slices(ns), "web").await?;
    audited(&world, "node1", &[ns]).await?;
    operator.end().await
}

pub async fn ipa_3_forged_owners(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "forged";
    set(&world, ns).await?;
    pool(&world, ns, &[range(10, 99)]).await?;
    let operator = start(&world).await?;
    let a = cluster(&world, ns, "a").await?;
    let ip = world.lb_address(ns, "a").await?;
    let nobody = "00000000-0000-4000-8000-000000000000";
    // While it runs: an owner that never existed; one with an existing uid under another name; one with another uid.
    forge(&world, "10.71.0.50", ns, "Bound", (ns, "ghost", nobody)).await?;
    forge(&world, "10.71.0.51", ns, "Bound", (ns, "ghost", &uid(&a))).await?;
    forge(&world, "10.71.0.52", ns, "Bound", (ns, "a", nobody)).await?;
    for ip in ["10.71.0.50", "10.71.0.51"] {
        record_is(&world, ip, Phase::Released, "forged/ghost").await?;
    }
    record_is(&world, "10.71.0.52", Phase::Released, "forged/a").await?;
    holds(&world, ns, "a", &ip).await?;
    // The uid in its own IPAllocation is changed: same name, so it is corrected.
    let other = json!({"spec": {"owner": {"uid": nobody}}});
    world.merge(&world.records(), &ip, other.clone()).await?;
    holds(&world, ns, "a", &ip).await?;
    audited(&world, "node1", &[ns]).await?;
    operator.end().await?;

    // The same while no operator runs.
    world.merge(&world.records(), &ip, other).await?;
    forge(&world, "10.71.0.60", ns, "Bound", (ns, "ghost", nobody)).await?;
    forge(&world, "10.71.0.61", ns, "Bound", (ns, "ghost", &uid(&a))).await?;
    forge(&world, "10.71.0.62", ns, "Bound", (ns, "a", nobody)).await?;
    let operator = start(&world).await?;
    for ip in ["10.71.0.60", "10.71.0.61"] {
        record_is(&world, ip, Phase::Released, "forged/ghost").await?;
    }
    record_is(&world, "10.71.0.62", Phase::Released, "forged/a").await?;
    holds(&world, ns, "a", &ip).await?;
    audited(&world, "node1", &[ns]).await?;

    // A status that names another LoadBalancer's address, written by a tenant, has no effect.
    cluster(&world, ns, "b").await?;
    let mine = world.lb_address(ns, "b").await?;
    let forged = allocated_address(&ip, ns);
    world.merge(&world.lbs(ns), "b", forged).await?;
    holds(&world, ns, "b", &mine).await?;
    holds(&world, ns, "a", &ip).await?;
    audited(&world, "node1", &[ns]).await?;
    operator.end().await
}
