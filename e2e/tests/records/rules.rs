//! Overlapping pools, stale copies, extra, lost and unreadable IPAllocations (IPA-4 to IPA-7, IPA-1).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_api::{IPPool, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::{audited, quiet};
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::waits::next_second;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{allocated_address, cluster_spec, vm_spec, with};
use harvester_lb_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::json;

use crate::stage::{cluster, forge, holds, pool, record, record_is, set, start, uid};

fn range(start: u8, end: u8) -> serde_json::Value {
    json!({
        "subnet": "10.72.0.0/24",
        "rangeStart": format!("10.72.0.{start}"), "rangeEnd": format!("10.72.0.{end}"),
    })
}

pub async fn ipa_4_pools_that_overlap(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "overlap";
    set(&world, ns).await?;
    world
        .pool("z-old", json!({"ranges": [range(10, 29)]}))
        .await?;
    // Their creation times decide which one is older.
    next_second().await;
    world
        .pool("a-young", json!({"ranges": [range(20, 39)]}))
        .await?;
    let operator = start(&world).await?;
    // Twelve for one pool, which has ten addresses to itself, and eight for the other.
    let pool_of = |n: usize| if n % 5 < 3 { "z-old" } else { "a-young" };
    for n in 0..20 {
        let spec = with(cluster_spec(), json!({"ipPool": pool_of(n)}));
        world.lb(ns, &format!("l{n}"), spec).await?;
    }
    let mut given = BTreeSet::new();
    for n in 0..20 {
        given.insert(world.lb_address(ns, &format!("l{n}")).await?);
    }
    ensure!(given.len() == 20, "{given:?}");
    world
        .pool_until("a-young", "Overlaps", |pool| {
            let conditions = pool.status.as_ref().and_then(|s| s.conditions.clone());
            conditions.is_some_and(|c| {
                c.iter().any(|c| {
                    c.type_ == "Overlaps" && c.message.as_ref().is_some_and(|m| m.contains("z-old"))
                })
            })
        })
        .await?;
    for (name, low, high) in [("z-old", 10, 29), ("a-young", 20, 39)] {
        let taken = given
            .iter()
            .filter_map(|ip| ip.rsplit('.').next()?.parse::<i64>().ok())
            .filter(|last| (low..=high).contains(last))
            .count();
        let taken = i64::try_from(taken)?;
        let what = format!("{taken} are not available");
        // Written after its pause (POOL-3).
        let status = |pool: &IPPool| pool.status.clone().unwrap_or_default();
        world
            .pool_until(name, &what, |pool| {
                status(pool).total > 0 && status(pool).available == status(pool).total - taken
            })
            .await?;
    }
    let found = audited(&world, "node1", &[]).await?;
    ensure!(found.bound == 20, "{found:?}");
    operator.end().await
}

/// LoadBalancers of the test below, each edited while the operator writes to it.
const OVERWRITTEN: usize = 60;
/// The last of them: none of these is deleted.
const STAYING: usize = 20;

pub async fn ipa_5_stale_copies_are_refused(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "stale";
    set(&world, ns).await?;
    pool(&world, ns, &[range(10, 250)]).await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    let history = HistoryChecker::start(&world.client());
    let operator = start(&world).await?;
    let busy = Arc::new(AtomicBool::new(true));
    let edits = Arc::new(AtomicUsize::new(0));
    let mut editors = Vec::new();
    for kind in ["lb", "service", "record", "slice"] {
        let (world, busy, edits) = (Arc::clone(&world), Arc::clone(&busy), Arc::clone(&edits));
        editors.push(tokio::spawn(async move {
            let mut n = 0;
            while busy.load(Ordering::Relaxed) {
                n += 1;
                let name = format!("l{}", n % OVERWRITTEN);
                let mark =
                    json!({"metadata": {"annotations": {"example.com/edited": n.to_string()}}});
                // Does not exist yet, or not of VM type: the next one.
                let done = match kind {
                    "lb" => world.merge(&world.lbs(ns), &name, mark).await.is_ok(),
                    "service" => world.merge(&world.services(ns), &name, mark).await.is_ok(),
                    "slice" => world.merge(&world.slices(ns), &name, mark).await.is_ok(),
                    _ => {
                        let ip = format!("10.72.0.{}", 10 + n % OVERWRITTEN);
                        world.merge(&world.records(), &ip, mark).await.is_ok()
                    }
                };
                edits.fetch_add(usize::from(done), Ordering::Relaxed);
            }
        }));
    }
    // Each is edited right after its creation, while the operator writes to it.
    let make = async |n: usize| {
        let name = format!("l{n}");
        let spec = if n.is_multiple_of(4) {
            vm_spec("web")
        } else {
            cluster_spec()
        };
        world.lb(ns, &name, spec).await?;
        for edit in 0..12 {
            let mark = json!({"metadata": {"labels": {"edited": edit.to_string()}}});
            world.merge(&world.lbs(ns), &name, mark).await?;
        }
        if n < OVERWRITTEN - STAYING && n.is_multiple_of(3) {
            world.delete_lb(ns, &name).await?;
        }
        anyhow::Ok(())
    };
    stream::iter(0..OVERWRITTEN)
        .map(make)
        .buffer_unordered(12)
        .try_collect::<Vec<()>>()
        .await?;
    for n in (OVERWRITTEN - STAYING)..OVERWRITTEN {
        world.lb_address(ns, &format!("l{n}")).await?;
    }
    busy.store(false, Ordering::Relaxed);
    for editor in editors {
        editor.await?;
    }
    let found = audited(&world, "node1", &[ns]).await?;
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    let figures = MetricsSnapshot::read(&world, "node1").await?;
    let conflicts = figures
        .sum("harvester_lb_write_conflicts_total", |_| true)
        .abs();
    let refused = figures
        .sum("harvester_lb_api_requests_total", |s| {
            s.label("code") == "409"
        })
        .abs();
    eprintln!(
        "{} edits between, {refused} writes refused, {conflicts} decided anew, {} load balancers",
        edits.load(Ordering::Relaxed),
        found.load_balancers
    );
    ensure!(conflicts > 0.0, "there was no conflict");
    operator.end().await
}

pub async fn ipa_6_several_records_of_one_load_balancer(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "several";
    set(&world, ns).await?;
    pool(&world, ns, &[range(8, 99)]).await?;
    let operator = start(&world).await?;
    let a = cluster(&world, ns, "a").await?;
    let ip = world.lb_address(ns, "a").await?;
    // Its status decides, although the other address is lower or higher.
    forge(&world, "10.72.0.99", ns, "Bound", (ns, "a", &uid(&a))).await?;
    record_is(&world, "10.72.0.99", Phase::Released, "several/a").await?;
    holds(&world, ns, "a", &ip).await?;
    // A late one, for a deleted LoadBalancer.
    world.delete_lb(ns, "a").await?;
    record_is(&world, &ip, Phase::Released, "several/a").await?;
    forge(&world, "10.72.0.98", ns, "Bound", (ns, "a", &uid(&a))).await?;
    record_is(&world, "10.72.0.98", Phase::Released, "several/a").await?;
    audited(&world, "node1", &[ns]).await?;
    operator.end().await?;

    // It has no status: the lowest. As numbers, not as text.
    let b = cluster(&world, ns, "b").await?;
    let c = cluster(&world, ns, "c").await?;
    for ip in ["10.72.0.60", "10.72.0.9", "10.72.0.50"] {
        forge(&world, ip, ns, "Bound", (ns, "b", &uid(&b))).await?;
    }
    for ip in ["10.72.0.61", "10.72.0.51"] {
        forge(&world, ip, ns, "Bound", (ns, "c", &uid(&c))).await?;
    }
    let named = allocated_address("10.72.0.61", ns);
    world.merge(&world.lbs(ns), "c", named).await?;
    let operator = start(&world).await?;
    holds(&world, ns, "b", "10.72.0.9").await?;
    holds(&world, ns, "c", "10.72.0.61").await?;
    for (ip, owner) in [
        ("10.72.0.60", "several/b"),
        ("10.72.0.50", "several/b"),
        ("10.72.0.51", "several/c"),
    ] {
        record_is(&world, ip, Phase::Released, owner).await?;
    }
    audited(&world, "node1", &[ns]).await?;
    operator.end().await
}

pub async fn ipa_7_records_that_somebody_deletes_or_alters(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "byhand";
    set(&world, ns).await?;
    // As many addresses as LoadBalancers, and one that waits for any free one.
    pool(&world, ns, &[range(10, 12)]).await?;
    let history = HistoryChecker::start(&world.client());
    let operator = start(&world).await?;
    let mut had = Vec::new();
    for name in ["a", "b", "c"] {
        cluster(&world, ns, name).await?;
        had.push(world.lb_address(ns, name).await?);
    }
    cluster(&world, ns, "waits").await?;
    world.lb_reason(ns, "waits", "NoAvailableIP").await?;
    for ip in &had {
        world.records().delete(ip, &DeleteParams::default()).await?;
    }
    for (name, ip) in ["a", "b", "c"].iter().zip(&had) {
        holds(&world, ns, name, ip).await?;
    }
    // Unreadable: the address is not allocated, and it is its owner's again when the IPAllocation is corrected or
    // deleted.
    let broken = json!({"spec": {"address": "broken"}});
    for (name, ip) in ["a", "b"].iter().zip(&had) {
        world.merge(&world.records(), ip, broken.clone()).await?;
        quiet(&world, "node1").await?;
        let status = allocated(&world.lbs(ns).get(name).await?);
        ensure!(status.as_ref() == Some(ip), "{name} is at {status:?}");
    }
    let repaired = json!({"spec": {"address": had[0]}});
    world.merge(&world.records(), &had[0], repaired).await?;
    world
        .records()
        .delete(&had[1], &DeleteParams::default())
        .await?;
    for (name, ip) in ["a", "b", "c"].iter().zip(&had) {
        holds(&world, ns, name, ip).await?;
    }
    world.lb_reason(ns, "waits", "NoAvailableIP").await?;
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    // No LoadBalancer waits: an address released by hand is taken again by the one that uses it.
    world.delete_lb(ns, "waits").await?;
    let released = json!({"spec": {"phase": "Released", "releasedAt": "2026-01-01T00:00:00Z"}});
    for (name, ip) in ["a", "b", "c"].iter().zip(&had) {
        world.merge(&world.records(), ip, released.clone()).await?;
        holds(&world, ns, name, ip).await?;
    }
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    audited(&world, "node1", &[ns]).await?;
    operator.end().await
}

pub async fn ipa_7_released_by_hand_while_another_waits(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "snatch";
    set(&world, ns).await?;
    pool(&world, ns, &[range(10, 10)]).await?;
    let operator = start(&world).await?;
    cluster(&world, ns, "a").await?;
    let ip = world.lb_address(ns, "a").await?;
    cluster(&world, ns, "waits").await?;
    world.lb_reason(ns, "waits", "NoAvailableIP").await?;
    // The rules leave open which one gets it; one of them has it, and the other has none.
    let released = json!({"spec": {"phase": "Released", "releasedAt": "2026-01-01T00:00:00Z"}});
    world.merge(&world.records(), &ip, released).await?;
    quiet(&world, "node1").await?;
    let owner = record(&world, &ip).await?.context("no record")?.spec.owner;
    holds(&world, ns, &owner.name, &ip).await?;
    let other = if owner.name == "a" { "waits" } else { "a" };
    let lb = world.lb_reason(ns, other, "NoAvailableIP").await?;
    ensure!(
        allocated(&lb).is_none(),
        "{other} is at {:?}",
        allocated(&lb)
    );
    operator.end().await
}

pub async fn ipa_1_an_unreadable_record_blocks_its_name(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "blocked";
    set(&world, ns).await?;
    pool(&world, ns, &[range(10, 12)]).await?;
    // One names another address, one none; both exist before the start, one is created later.
    forge(&world, "10.72.0.10", ns, "Bound", (ns, "x", "x")).await?;
    let other = json!({"spec": {"address": "10.72.0.11"}});
    world.merge(&world.records(), "10.72.0.10", other).await?;
    let operator = start(&world).await?;
    forge(&world, "10.72.0.12", ns, "Released", (ns, "x", "x")).await?;
    let none = json!({"spec": {"address": "none"}});
    world.merge(&world.records(), "10.72.0.12", none).await?;
    cluster(&world, ns, "a").await?;
    holds(&world, ns, "a", "10.72.0.11").await?;
    cluster(&world, ns, "b").await?;
    cluster(&world, ns, "c").await?;
    for name in ["b", "c"] {
        world.lb_reason(ns, name, "NoAvailableIP").await?;
    }
    // A blocked address is not available (ALC-11).
    eventually("nothing is available", SOON, || async {
        let status = world.pools().get(ns).await?.status;
        let counted = status.map(|s| (s.total, s.available, s.allocated.unwrap_or_default().len()));
        Ok((counted == Some((3, 0, 1))).then_some(()))
    })
    .await?;
    for ip in ["10.72.0.12", "10.72.0.10"] {
        world.records().delete(ip, &DeleteParams::default()).await?;
    }
    for name in ["b", "c"] {
        world.lb_address(ns, name).await?;
    }
    audited(&world, "node1", &[ns]).await?;
    operator.end().await
}
