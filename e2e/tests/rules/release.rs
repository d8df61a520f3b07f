//! Release of addresses (sections 6.3 and 6.4).

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_api::Phase;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::waits::next_second;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{part, record, subnet, with};
use harvester_lb_testkit::{consistently, eventually};
use kube::api::PostParams;
use serde_json::{Value, json};

use super::support::{RuleHelpers, cluster, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        rel_3_not_while_it_is_announced,
        rel_4_another_pool_cluster_type,
        rel_4_another_pool_vm_type,
        rel_4_the_old_address_is_announced_late,
        rel_4_another_pool_that_is_full,
        section_6_4_release_by_hand,
    ]
}

pub(crate) async fn rel_2_deleted_in_each_phase(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("rel2", "rel2");
    world.namespace(ns).await?;
    world
        .ranges(pool, &[part("10.40.0.0/24", "10.40.0.10", "10.40.0.11")])
        .await?;
    // At once, before anything is written.
    for _ in 0..20 {
        world.lb(ns, "now", vm(pool, "web")).await?;
        world.delete_lb(ns, "now").await?;
    }
    // With an IPAllocation, without an external address.
    world.lb(ns, "young", vm(pool, "web")).await?;
    let address = world.lb_address(ns, "young").await?;
    world.remove(ns, "young", &address).await?;
    world.gone(&world.services(ns), "young").await?;
    world.gone(&world.slices(ns), "young").await?;
    // Served.
    let address = world.announced(ns, "served", vm(pool, "web")).await?;
    world.remove(ns, "served", &address).await?;
    world.gone(&world.services(ns), "served").await?;
    // While it waits: it must not be served afterwards.
    world.served(ns, "one", pool).await?;
    world.served(ns, "two", pool).await?;
    world.lb(ns, "waits", cluster(pool)).await?;
    world.lb_reason(ns, "waits", "NoAvailableIP").await?;
    world.delete_lb(ns, "waits").await?;
    world.gone(&world.lbs(ns), "waits").await?;
    // Without ipam, or with the status cleared by another client.
    world
        .merge(&world.lbs(ns), "one", json!({"status": null}))
        .await?;
    world.delete_lb(ns, "one").await?;
    world.delete_lb(ns, "two").await?;
    eventually("all addresses are back", SOON, || async {
        let status = world.pools().get(pool).await?.status.unwrap_or_default();
        anyhow::ensure!(status.available == 2, "{status:?}");
        Ok(Some(()))
    })
    .await?;
    // The pool is deleted before its LoadBalancer.
    world.ranges("rel2-gone", &[subnet("10.40.1.0/24")]).await?;
    let address = world.served(ns, "orphan", "rel2-gone").await?;
    world.delete_pool("rel2-gone").await?;
    world.gone(&world.pools(), "rel2-gone").await?;
    world.delete_lb(ns, "orphan").await?;
    world.gone(&world.lbs(ns), "orphan").await?;
    eventually(
        "the address of a pool that is gone is free",
        SOON,
        || async {
            let bound = world
                .record(&address)
                .await?
                .is_some_and(|r| r.spec.phase == Phase::Bound);
            Ok((!bound).then_some(()))
        },
    )
    .await
}

async fn rel_3_not_while_it_is_announced(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("rel3", "rel3");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.41.0.7/32")]).await?;
    let address = world.announced(ns, "web", vm(pool, "web")).await?;
    // A foreign finalizer keeps the Service, as kube-vip or a cloud controller may do.
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    world.merge(&world.services(ns), "web", held).await?;
    world.lb(ns, "next", cluster(pool)).await?;
    world.lb_reason(ns, "next", "NoAvailableIP").await?;
    world.delete_lb(ns, "web").await?;
    world
        .service_until(ns, "web", "being deleted", |s| {
            s.metadata.deletion_timestamp.is_some()
        })
        .await?;
    world
        .stays_bound(&address, "rel3/web", Duration::from_secs(2))
        .await?;
    assert_eq!(allocated(&world.read(ns, "next").await?), None);
    let free = json!({"metadata": {"finalizers": null}});
    world.merge(&world.services(ns), "web", free).await?;
    assert_eq!(world.lb_address(ns, "next").await?, address);
    Ok(())
}

async fn rel_4_another_pool_cluster_type(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "rel4-cluster";
    world.namespace(ns).await?;
    world.ranges("rel4-cp", &[subnet("10.42.0.0/24")]).await?;
    world.ranges("rel4-cq", &[subnet("10.42.1.0/24")]).await?;
    let old = world.served(ns, "guest", "rel4-cp").await?;
    let to = |pool: Value| json!({"spec": {"ipPool": pool}});
    world
        .merge(&world.lbs(ns), "guest", to(json!("rel4-cq")))
        .await?;
    let what = "the other pool's address";
    let lb = world
        .lb_until(ns, "guest", what, |lb| {
            allocated(lb).as_deref() == Some("10.42.1.2")
        })
        .await?;
    let pool = lb.status.unwrap().allocated_address.unwrap().ip_pool;
    assert_eq!(pool.as_deref(), Some("rel4-cq"));
    world.phase(&old, Phase::Released).await?;
    world.phase("10.42.1.2", Phase::Bound).await?;
    // SEL-8: clearing the field moves nothing.
    world
        .merge(&world.lbs(ns), "guest", to(json!(null)))
        .await?;
    world
        .at_rest(ns, &["rel4-cp", "rel4-cq"], Duration::from_secs(1))
        .await?;
    assert_eq!(world.lb_address(ns, "guest").await?, "10.42.1.2");
    // And back: the address that it had there.
    world
        .merge(&world.lbs(ns), "guest", to(json!("rel4-cp")))
        .await?;
    world
        .lb_until(ns, "guest", "its first address", |lb| {
            allocated(lb).as_ref() == Some(&old)
        })
        .await?;
    Ok(())
}

async fn rel_4_another_pool_vm_type(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "rel4-vm";
    world.namespace(ns).await?;
    world.ranges("rel4-vp", &[subnet("10.43.0.0/24")]).await?;
    world.ranges("rel4-vq", &[subnet("10.43.1.0/24")]).await?;
    world
        .fake_vmi(ns, "a", json!({"app": "web"}), Some("10.143.0.1"))
        .await?;
    let old = world.announced(ns, "web", vm("rel4-vp", "web")).await?;
    let before = world.services(ns).get("web").await?;
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"ipPool": "rel4-vq"}}),
        )
        .await?;
    let service = world
        .service_until(ns, "web", "the new address", |s| {
            let spec = s.spec.as_ref().unwrap();
            // Straight from the old to the new address.
            let ip = spec.load_balancer_ip.as_deref();
            assert!(ip == Some("10.43.0.2") || ip == Some("10.43.1.2"), "{ip:?}");
            ip == Some("10.43.1.2")
        })
        .await?;
    assert_eq!(service.metadata.uid, before.metadata.uid);
    // kube-vip still announces the old one.
    world
        .stays_bound(&old, "rel4-vm/web", Duration::from_secs(2))
        .await?;
    assert_eq!(world.lb_address(ns, "web").await?, "10.43.1.2");
    world
        .ingress(ns, "web", json!([{"ip": "10.43.1.2"}]))
        .await?;
    world.phase(&old, Phase::Released).await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;
    assert_eq!(lb.status.unwrap().address.as_deref(), Some("10.43.1.2"));
    Ok(())
}

async fn rel_4_the_old_address_is_announced_late(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "rel4-late";
    world.namespace(ns).await?;
    world.ranges("rel4-lp", &[subnet("10.90.0.0/24")]).await?;
    world.ranges("rel4-lq", &[subnet("10.90.1.0/24")]).await?;
    world.lb(ns, "web", vm("rel4-lp", "web")).await?;
    let old = world.lb_address(ns, "web").await?;
    let before = world.service_until(ns, "web", "is there", |_| true).await?;
    // Nothing is announced yet, so the old address is free as soon as the Service is switched.
    let to = json!({"spec": {"ipPool": "rel4-lq"}});
    world.merge(&world.lbs(ns), "web", to).await?;
    world.phase(&old, Phase::Released).await?;
    // kube-vip writes its stale copy, and does not update it.
    world.ingress(ns, "web", json!([{"ip": old}])).await?;
    world
        .service_until(ns, "web", "made anew", |s| {
            s.metadata.uid != before.metadata.uid
                && s.spec.as_ref().unwrap().load_balancer_ip.as_deref() == Some("10.90.1.2")
        })
        .await?;
    // An address that the Service requests by annotation is accepted, even if it is recorded for another.
    let asked = json!({"metadata": {"annotations": {"kube-vip.io/loadbalancerIPs": old}}});
    let service = world.merge(&world.services(ns), "web", asked).await?;
    world.ingress(ns, "web", json!([{"ip": old}])).await?;
    world.lb_reason(ns, "web", "NoBackend").await?;
    // Longer than the limit of a move.
    let time = Duration::from_millis(3_500);
    consistently("the Service stays", time, || async {
        let now = world.services(ns).get("web").await?;
        ensure!(now.metadata.uid == service.metadata.uid, "it was recreated");
        Ok(())
    })
    .await
}

async fn rel_4_another_pool_that_is_full(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "rel4-full";
    world.namespace(ns).await?;
    world.ranges("rel4-fp", &[subnet("10.44.0.0/24")]).await?;
    world.ranges("rel4-fq", &[subnet("10.44.1.9/32")]).await?;
    world.served(ns, "holder", "rel4-fq").await?;
    let old = world.announced(ns, "web", vm("rel4-fp", "web")).await?;
    // The older is served first.
    next_second().await;
    world.served(ns, "guest", "rel4-fp").await?;
    let to = json!({"spec": {"ipPool": "rel4-fq"}});
    for name in ["web", "guest"] {
        world.merge(&world.lbs(ns), name, to.clone()).await?;
        let lb = world.lb_reason(ns, name, "NoAvailableIP").await?;
        assert_eq!(allocated(&lb), None, "{name}");
    }
    let lb = world.read(ns, "web").await?;
    assert_eq!(lb.status.unwrap().address, None);
    world.gone(&world.services(ns), "web").await?;
    world.phase(&old, Phase::Released).await?;
    world.phase("10.44.0.3", Phase::Released).await?;
    // The Service is recreated with an address.
    world.delete_lb(ns, "holder").await?;
    assert_eq!(world.lb_address(ns, "web").await?, "10.44.1.9");
    world
        .service_until(ns, "web", "the new address", |s| {
            s.spec.as_ref().unwrap().load_balancer_ip.as_deref() == Some("10.44.1.9")
        })
        .await?;
    Ok(())
}

async fn section_6_4_release_by_hand(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("by-hand", "by-hand");
    world.namespace(ns).await?;
    world
        .ranges(pool, &[subnet("10.45.0.0/24"), subnet("fd10:45::/64")])
        .await?;
    world.ranges("by-hand-2", &[subnet("10.45.1.0/24")]).await?;
    world.served(ns, "lives", pool).await?;
    world.served(ns, "elsewhere", "by-hand-2").await?;
    let key = "loadbalancer.harvesterhci.io/manuallyReleaseIP";
    let ask = async |value: &str| {
        let patch = json!({"metadata": {"annotations": {key: value, "mine": "stays"}}});
        world.merge(&world.pools(), pool, patch).await?;
        let pool = world
            .pool_until(pool, &format!("{value:?} is taken off"), |p| {
                !p.metadata.annotations.as_ref().unwrap().contains_key(key)
            })
            .await?;
        assert_eq!(pool.metadata.annotations.unwrap()["mine"], "stays");
        anyhow::Ok(())
    };
    let before = world.versions(ns, &[]).await?;
    for value in [
        "nonsense",
        "10.45.0.2",
        "10.45.0.2: ",
        "10.45.0.2: no-slash",
        "10.45.0.999: by-hand/lives",
        // No IPAllocation, another id, another pool, an existing owner.
        "10.45.0.9: by-hand/lives",
        "10.45.0.2: by-hand/other",
        "10.45.1.2: by-hand/elsewhere",
        "10.45.0.2: by-hand/lives",
    ] {
        ask(value).await?;
    }
    world
        .unchanged(ns, &[], &before, Duration::from_millis(500))
        .await?;
    // Empty: nothing happens, and it stays.
    let empty = json!({"metadata": {"annotations": {key: " "}}});
    world.merge(&world.pools(), pool, empty).await?;
    world.at_rest(ns, &[pool], Duration::from_secs(1)).await?;
    let annotations = world.pools().get(pool).await?.metadata.annotations.unwrap();
    assert_eq!(annotations[key], " ");

    // An IPAllocation without a LoadBalancer.
    for (name, address, value) in [
        ("10.45.0.77", "10.45.0.77", "  10.45.0.77:by-hand/ghost "),
        (
            "fd10-0045-0000-0000-0000-0000-0000-0007",
            "fd10:45::7",
            "fd10:45::7: by-hand/ghost",
        ),
    ] {
        let owner = (ns, "ghost", "no-such-uid");
        let record = record(address, pool, "Bound", owner);
        let record = with(record, json!({"metadata": {"name": name}}));
        world
            .records()
            .create(&PostParams::default(), &serde_json::from_value(record)?)
            .await?;
        ask(value).await?;
        assert_eq!(
            world.phase(address, Phase::Released).await?,
            "by-hand/ghost"
        );
    }
    let pool_now = world
        .pool_until(pool, "both are history", |p| {
            let history = p.status.as_ref().and_then(|s| s.allocated_history.clone());
            history.unwrap_or_default().len() == 2
        })
        .await?;
    let status = pool_now.status.unwrap();
    assert_eq!(status.allocated.unwrap().len(), 1);
    // A LoadBalancer of that name gets its lowest address in the history.
    assert_eq!(world.served(ns, "ghost", pool).await?, "10.45.0.77");
    Ok(())
}
