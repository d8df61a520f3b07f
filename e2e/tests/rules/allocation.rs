//! Which address a LoadBalancer gets (section 6.1).

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::Phase;
use harvester_lb_e2e::read::{allocated, condition};
use harvester_lb_e2e::waits::next_second;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{part, subnet};
use serde_json::{Value, json};

use super::support::{Accounts, RuleHelpers, cluster, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        alc_the_worked_example,
        alc_3_two_ranges_in_the_order_written,
        alc_1_a_load_balancer_made_again_keeps_its_address,
        alc_5_a_full_pool_serves_the_oldest_first,
        alc_5_a_pool_that_is_missing,
        alc_6_mask_and_gateway,
        alc_7_a_forged_status_of_one_that_holds,
        alc_7_a_forged_status_of_a_new_one,
        alc_huge_pools,
        alc_9_a_new_gateway_is_one_write,
    ]
}

async fn alc_the_worked_example(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("worked", "worked");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("172.20.1.0/29")]).await?;
    let ip = |last: u8| format!("172.20.1.{last}");
    let accounts = async |available: i64, last: u8, held: &[(u8, &str)], past: &[(u8, &str)]| {
        let named = |of: &[(u8, &str)]| -> Vec<(String, String)> {
            of.iter()
                .map(|(last, name)| (ip(*last), format!("{ns}/{name}")))
                .collect()
        };
        let (held, past) = (named(held), named(past));
        let refs = |of: &'_ [(String, String)]| -> Vec<(String, String)> { of.to_vec() };
        let (held, past) = (refs(&held), refs(&past));
        let held: Vec<(&str, &str)> = held.iter().map(|(a, o)| (&**a, &**o)).collect();
        let past: Vec<(&str, &str)> = past.iter().map(|(a, o)| (&**a, &**o)).collect();
        let last = ip(last);
        let wanted = Accounts {
            total: 5,
            available,
            last: &last,
            allocated: &held,
            history: &past,
        };
        world.accounts(pool, &wanted).await
    };

    assert_eq!(world.served(ns, "a", pool).await?, ip(2));
    accounts(4, 2, &[(2, "a")], &[]).await?;
    assert_eq!(world.served(ns, "b", pool).await?, ip(3));
    accounts(3, 3, &[(2, "a"), (3, "b")], &[]).await?;
    world.remove(ns, "a", &ip(2)).await?;
    accounts(4, 3, &[(3, "b")], &[(2, "a")]).await?;
    for (name, last) in [("c", 4), ("d", 5), ("e", 6)] {
        assert_eq!(world.served(ns, name, pool).await?, ip(last));
    }
    let held = [(3, "b"), (4, "c"), (5, "d"), (6, "e")];
    accounts(1, 6, &held, &[(2, "a")]).await?;
    assert_eq!(world.served(ns, "f", pool).await?, ip(2));
    let held = [(2, "f"), (3, "b"), (4, "c"), (5, "d"), (6, "e")];
    accounts(0, 2, &held, &[]).await?;
    world.lb(ns, "g", cluster(pool)).await?;
    let g = world.lb_reason(ns, "g", "NoAvailableIP").await?;
    assert_eq!(allocated(&g), None);
    accounts(0, 2, &held, &[]).await?;
    // In the example g is gone; otherwise it would be served before a.
    world.delete_lb(ns, "g").await?;
    world.gone(&world.lbs(ns), "g").await?;
    world.remove(ns, "d", &ip(5)).await?;
    assert_eq!(world.served(ns, "a", pool).await?, ip(5));
    let held = [(2, "f"), (3, "b"), (4, "c"), (5, "a"), (6, "e")];
    accounts(0, 5, &held, &[]).await?;
    world.remove(ns, "c", &ip(4)).await?;
    assert_eq!(world.served(ns, "c", pool).await?, ip(4));
    accounts(0, 4, &held, &[]).await?;
    world.remove(ns, "b", &ip(3)).await?;
    assert_eq!(world.served(ns, "h", pool).await?, ip(3));
    let held = [(2, "f"), (3, "h"), (4, "c"), (5, "a"), (6, "e")];
    accounts(0, 3, &held, &[]).await?;

    let mut before = world.versions(ns, &[pool]).await?;
    let label = json!({"metadata": {"labels": {"asks": "again"}}});
    let a = world.merge(&world.lbs(ns), "a", label).await?;
    // The label is the only write.
    let kind = std::any::type_name_of_val(&a);
    let own = a.metadata.resource_version.unwrap();
    before.insert(format!("{kind} a"), own).unwrap();
    world
        .unchanged(ns, &[pool], &before, Duration::from_secs(2))
        .await
}

async fn alc_3_two_ranges_in_the_order_written(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("two-ranges", "two-ranges");
    world.namespace(ns).await?;
    let first = part("172.20.1.0/24", "172.20.1.10", "172.20.1.11");
    let second = json!({"subnet": "172.20.2.0/30", "gateway": "172.20.2.1"});
    world.ranges(pool, &[first, second]).await?;
    for (name, ip) in [
        ("a", "172.20.1.10"),
        ("b", "172.20.1.11"),
        ("c", "172.20.2.2"),
    ] {
        assert_eq!(world.served(ns, name, pool).await?, ip);
    }
    world.remove(ns, "a", "172.20.1.10").await?;
    assert_eq!(world.served(ns, "d", pool).await?, "172.20.1.10");
    Ok(())
}

async fn alc_1_a_load_balancer_made_again_keeps_its_address(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("again", "again");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.1.0.0/24")]).await?;
    world.served(ns, "first", pool).await?;
    let address = world.served(ns, "lb", pool).await?;
    for _ in 0..5 {
        // At once: the IPAllocation may still be Bound to the previous uid, or released already.
        world.delete_lb(ns, "lb").await?;
        let lb = world.lb(ns, "lb", cluster(pool)).await?;
        assert_eq!(world.lb_address(ns, "lb").await?, address);
        assert_eq!(world.phase(&address, Phase::Bound).await?, "again/lb");
        world
            .lb_until(ns, "lb", "a record of its own", |_| true)
            .await?;
        let record = world.record(&address).await?.unwrap();
        assert_eq!(Some(record.spec.owner.uid), lb.metadata.uid);
    }
    let held = [("10.1.0.2", "again/first"), ("10.1.0.3", "again/lb")];
    let wanted = Accounts {
        total: 253,
        available: 251,
        last: "10.1.0.3",
        allocated: &held,
        history: &[],
    };
    world.accounts(pool, &wanted).await
}

async fn alc_5_a_full_pool_serves_the_oldest_first(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("full", "full");
    world.namespace(ns).await?;
    world
        .ranges(pool, &[part("10.2.0.0/24", "10.2.0.10", "10.2.0.11")])
        .await?;
    assert_eq!(world.served(ns, "one", pool).await?, "10.2.0.10");
    assert_eq!(world.served(ns, "two", pool).await?, "10.2.0.11");
    // Names in the opposite order of their creation.
    for name in ["z", "m", "a"] {
        world.lb(ns, name, cluster(pool)).await?;
        let lb = world.lb_reason(ns, name, "NoAvailableIP").await?;
        let (status, _, message) = harvester_lb_e2e::read::ready(&lb).unwrap();
        assert_eq!(status, "False");
        assert!(
            message.contains("pool full: all addresses are taken"),
            "{message}"
        );
        world
            .event(ns, "LoadBalancer", name, "NoAvailableIP")
            .await?;
        next_second().await;
    }
    world.delete_lb(ns, "one").await?;
    assert_eq!(world.lb_address(ns, "z").await?, "10.2.0.10");
    assert_eq!(allocated(&world.read(ns, "m").await?), None);
    assert_eq!(allocated(&world.read(ns, "a").await?), None);
    // One more address, by an edit of the pool.
    let range = part("10.2.0.0/24", "10.2.0.10", "10.2.0.12");
    world
        .merge(&world.pools(), pool, json!({"spec": {"ranges": [range]}}))
        .await?;
    assert_eq!(world.lb_address(ns, "m").await?, "10.2.0.12");
    assert_eq!(allocated(&world.read(ns, "a").await?), None);
    world.delete_lb(ns, "two").await?;
    assert_eq!(world.lb_address(ns, "a").await?, "10.2.0.11");
    for name in ["z", "m", "a"] {
        world.lb_reason(ns, name, "Ready").await?;
    }
    Ok(())
}

async fn alc_5_a_pool_that_is_missing(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "missing";
    world.namespace(ns).await?;
    world.lb(ns, "lb", cluster("comes-later")).await?;
    let lb = world.lb_reason(ns, "lb", "PoolNotFound").await?;
    let (_, _, message) = harvester_lb_e2e::read::ready(&lb).unwrap();
    assert_eq!(message, "pool comes-later: does not exist");
    world
        .event(ns, "LoadBalancer", "lb", "PoolNotFound")
        .await?;
    let started = std::time::Instant::now();
    world
        .ranges("comes-later", &[subnet("10.3.0.0/24")])
        .await?;
    assert_eq!(world.lb_address(ns, "lb").await?, "10.3.0.2");
    // By the event, not by a resync.
    assert!(started.elapsed() < Duration::from_secs(10));
    world.lb_reason(ns, "lb", "Ready").await?;
    Ok(())
}

async fn alc_6_mask_and_gateway(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "mask";
    world.namespace(ns).await?;
    let cases: [(&str, Value, Value); 6] = [
        (
            "mask-v4",
            json!({"subnet": "10.4.0.0/24", "gateway": "10.4.0.254"}),
            json!({"ip": "10.4.0.1", "mask": "255.255.255.0", "gateway": "10.4.0.254"}),
        ),
        (
            "mask-v4-29",
            subnet("10.4.1.8/29"),
            json!({"ip": "10.4.1.10", "mask": "255.255.255.248", "gateway": "10.4.1.9"}),
        ),
        (
            "mask-v4-32",
            subnet("10.4.2.7/32"),
            json!({"ip": "10.4.2.7", "mask": "255.255.255.255"}),
        ),
        (
            "mask-v6",
            json!({"subnet": "FD10:4::/64", "rangeStart": "fd10:4::00A0"}),
            json!({"ip": "fd10:4::a0", "mask": "ffff:ffff:ffff:ffff::", "gateway": "fd10:4::1"}),
        ),
        (
            "mask-v6-124",
            subnet("fd10:4:1::/124"),
            json!({
                "ip": "fd10:4:1::2", "mask": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0",
                "gateway": "fd10:4:1::1",
            }),
        ),
        (
            "mask-v6-128",
            subnet("fd10:4:2::9/128"),
            json!({"ip": "fd10:4:2::9", "mask": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}),
        ),
    ];
    for (pool, range, mut wanted) in cases {
        world.ranges(pool, &[range]).await?;
        let ip = world.served(ns, pool, pool).await?;
        wanted["ipPool"] = json!(pool);
        let lb = world.read(ns, pool).await?;
        let status = lb.status.unwrap();
        assert_eq!(json!(status.allocated_address), wanted);
        assert_eq!(status.address.as_deref(), Some(&*ip));
        world.phase(&ip, Phase::Bound).await?;
    }
    let record = world
        .records()
        .get("fd10-0004-0000-0000-0000-0000-0000-00a0")
        .await?;
    assert_eq!(record.spec.address, "fd10:4::a0");
    Ok(())
}

async fn alc_7_a_forged_status_of_one_that_holds(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, tenant) = ("forged-victim", "forged-tenant");
    world.namespace(ns).await?;
    world.namespace(tenant).await?;
    world.ranges("forged", &[subnet("10.5.0.0/24")]).await?;
    world
        .ranges("forged-other", &[subnet("10.5.1.0/24")])
        .await?;
    let victims = world.served(ns, "victim", "forged").await?;
    let own = world.served(tenant, "thief", "forged").await?;
    let victim_before = world.versions(ns, &[]).await?;

    let forge =
        |ip: &str, pool: &str| json!({"status": {"allocatedAddress": {"ip": ip, "ipPool": pool}}});
    for (ip, pool) in [
        (&*victims, "forged"),
        ("10.5.0.77", "forged"),
        ("192.0.2.1", "forged"),
        ("10.5.1.9", "forged-other"),
        ("no address", "forged"),
        ("0.0.0.0", "forged"),
    ] {
        world
            .merge(&world.lbs(tenant), "thief", forge(ip, pool))
            .await?;
        let what = format!("{own} after {ip} was forged");
        let lb = world
            .lb_until(tenant, "thief", &what, |lb| {
                allocated(lb).as_ref() == Some(&own)
            })
            .await?;
        let held = lb.status.unwrap().allocated_address.unwrap();
        assert_eq!(held.ip_pool.as_deref(), Some("forged"), "{ip}");
        assert_eq!(held.mask.as_deref(), Some("255.255.255.0"), "{ip}");
    }
    let lb = world.read(tenant, "thief").await?;
    let lost = condition(&lb, "AddressLost").unwrap();
    assert!(
        lost.contains(&victims) && lost.contains("forged-victim/victim"),
        "{lost}"
    );
    world
        .event(tenant, "LoadBalancer", "thief", "AddressLost")
        .await?;
    assert_eq!(victim_before, world.versions(ns, &[]).await?);
    assert_eq!(
        world.phase(&victims, Phase::Bound).await?,
        "forged-victim/victim"
    );
    for free in ["10.5.0.77", "10.5.1.9", "192.0.2.1"] {
        assert!(world.record(free).await?.is_none(), "{free}");
    }
    Ok(())
}

async fn alc_7_a_forged_status_of_a_new_one(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, tenant) = ("forged-new", "forged-new-tenant");
    world.namespace(ns).await?;
    world.namespace(tenant).await?;
    world.ranges("forged-new", &[subnet("10.6.0.0/24")]).await?;
    world
        .ranges("forged-new-other", &[subnet("10.6.1.0/24")])
        .await?;
    let victims = world.served(ns, "victim", "forged-new").await?;
    let victim_before = world.versions(ns, &[]).await?;
    // The requested address; whether it is allocated; whether it counts as lost.
    let cases = [
        ("taken", &*victims, false, true),
        ("outside", "192.0.2.1", false, true),
        ("others", "10.6.1.9", false, true),
        ("gateway", "10.6.0.1", false, true),
        // Free and in range: as if its IPAllocation had been deleted by hand.
        ("free", "10.6.0.99", true, false),
    ];
    for (name, ip, given, lost) in cases {
        let lb = json!({
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
            "kind": "LoadBalancer",
            "metadata": {"namespace": tenant, "name": name},
            "spec": cluster("forged-new"),
            "status": {"allocatedAddress": {"ip": ip, "ipPool": "forged-new"}, "address": ip},
        });
        world.cluster.apply(&lb).await?;
        let lb = world.lb_reason(tenant, name, "Ready").await?;
        let got = allocated(&lb).unwrap();
        assert_eq!(got == ip, given, "{name}: {got}");
        assert!(got.starts_with("10.6.0."), "{name}: {got}");
        assert_eq!(
            world.phase(&got, Phase::Bound).await?,
            format!("{tenant}/{name}")
        );
        assert_eq!(condition(&lb, "AddressLost").is_some(), lost, "{name}");
        if lost {
            world
                .event(tenant, "LoadBalancer", name, "AddressLost")
                .await?;
        }
    }
    assert_eq!(victim_before, world.versions(ns, &[]).await?);
    Ok(())
}

async fn alc_huge_pools(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "huge";
    world.namespace(ns).await?;
    world.ranges("huge-v4", &[subnet("11.0.0.0/8")]).await?;
    world.ranges("huge-v6", &[subnet("fd11::/16")]).await?;
    assert_eq!(world.served(ns, "v4", "huge-v4").await?, "11.0.0.2");
    assert_eq!(world.served(ns, "v6", "huge-v6").await?, "fd11::2");
    let v4 = Accounts {
        total: 16_777_213,
        available: 16_777_212,
        last: "11.0.0.2",
        allocated: &[("11.0.0.2", "huge/v4")],
        history: &[],
    };
    world.accounts("huge-v4", &v4).await?;
    let pool = world
        .pool_until("huge-v6", "its count", |p| {
            p.status
                .as_ref()
                .is_some_and(|s| s.last_allocated == "fd11::2")
        })
        .await?;
    assert_eq!(pool.status.unwrap().total, i64::MAX);
    Ok(())
}

async fn alc_9_a_new_gateway_is_one_write(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("alc9", "alc9");
    world.namespace(ns).await?;
    let range = |gateway: &str| {
        json!({
            "subnet": "10.115.0.0/24", "rangeStart": "10.115.0.10",
            "rangeEnd": "10.115.0.20", "gateway": gateway,
        })
    };
    world.ranges(pool, &[range("10.115.0.1")]).await?;
    world
        .fake_vmi(ns, "web-1", json!({"app": "web"}), Some("10.215.0.1"))
        .await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    let before = world.lb_reason(ns, "web", "Ready").await?;
    let service = world.services(ns).get("web").await?;
    let slice = world.slices(ns).get("web").await?;
    let events = world.events(ns, "LoadBalancer", "web").await?;
    let held = |lb: &harvester_lb_api::LoadBalancer| {
        lb.status
            .as_ref()
            .and_then(|s| s.allocated_address.clone())
            .unwrap_or_default()
    };
    // Each write except one of metadata alone increases the generation: the kind has no status subresource.
    let writes = |lb: &harvester_lb_api::LoadBalancer| lb.metadata.generation.unwrap_or_default();
    let edit = json!({"spec": {"ranges": [range("10.115.0.2")]}});
    world.merge(&world.pools(), pool, edit).await?;
    let after = world
        .lb_until(ns, "web", "the new gateway", |lb| {
            held(lb).gateway.as_deref() == Some("10.115.0.2")
        })
        .await?;
    let conditions =
        |lb: &harvester_lb_api::LoadBalancer| lb.status.as_ref().unwrap().conditions.clone();
    assert_eq!(conditions(&after), conditions(&before));
    assert_eq!(writes(&after), writes(&before) + 1);
    // As the Go operator writes an address without a gateway.
    let nil = json!({"status": {"allocatedAddress": {"gateway": "<nil>"}}});
    let nil = world.merge(&world.lbs(ns), "web", nil).await?;
    let after = world
        .lb_until(ns, "web", "the gateway", |lb| {
            held(lb).gateway.as_deref() == Some("10.115.0.2")
        })
        .await?;
    assert_eq!(conditions(&after), conditions(&before));
    assert_eq!(writes(&after), writes(&nil) + 1);
    let version = |meta: &kube::api::ObjectMeta| meta.resource_version.clone();
    let service_now = world.services(ns).get("web").await?;
    assert_eq!(version(&service_now.metadata), version(&service.metadata));
    let slice_now = world.slices(ns).get("web").await?;
    assert_eq!(version(&slice_now.metadata), version(&slice.metadata));
    assert_eq!(world.events(ns, "LoadBalancer", "web").await?, events);
    Ok(())
}

pub(crate) async fn alc_10_one_that_is_refused_gets_no_new_address(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "alc10";
    world.namespace(ns).await?;
    world.ranges("alc10-p", &[subnet("10.116.0.0/24")]).await?;
    world.ranges("alc10-q", &[subnet("10.117.0.0/24")]).await?;
    let taken = world.served(ns, "other", "alc10-p").await?;
    let lbs = world.lbs(ns);
    // Its status names an address, and it has no listener.
    let refused = async |name: &str, pool: &str, named: &str| {
        let lb = json!({
            "metadata": {"namespace": ns, "name": name},
            "spec": {"ipPool": pool},
            "status": {"allocatedAddress": {"ipPool": "alc10-p", "ip": named}},
        });
        let lb = serde_json::from_value(lb)?;
        lbs.create(&kube::api::PostParams::default(), &lb).await?;
        world.lb_reason(ns, name, "InvalidListener").await
    };
    // The address belongs to another; no other address is allocated instead.
    refused("a", "alc10-p", &taken).await?;
    // The pool of the address does not serve it.
    refused("b", "alc10-q", "10.116.0.50").await?;
    // Recorded again, as for one that is served.
    refused("c", "alc10-p", "10.116.0.60").await?;
    assert_eq!(
        world
            .phase("10.116.0.60", harvester_lb_api::Phase::Bound)
            .await?,
        "alc10/c"
    );
    let held = world
        .records()
        .list(&kube::api::ListParams::default())
        .await?;
    let mut owners: Vec<&str> = held
        .iter()
        .filter(|r| r.spec.owner.namespace == ns)
        .map(|r| &*r.spec.owner.name)
        .collect();
    owners.sort_unstable();
    assert_eq!(owners, ["c", "other"]);
    // Corrected, they are like any other.
    let listeners = vm("alc10-q", "web")["listeners"].clone();
    let good = json!({"spec": {"listeners": listeners}});
    world.merge(&lbs, "b", good).await?;
    assert_eq!(
        world
            .lb_until(ns, "b", "an address of its pool", |lb| {
                harvester_lb_e2e::read::allocated(lb).is_some_and(|ip| ip.starts_with("10.117."))
            })
            .await?
            .metadata
            .name
            .as_deref(),
        Some("b")
    );
    Ok(())
}
