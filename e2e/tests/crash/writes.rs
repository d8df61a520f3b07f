//! The number of write requests of each operation. Asserted by count; the times are only printed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::{audited, reset};
use harvester_lb_e2e::read::allocated;
use harvester_lb_fixtures::{cluster_spec, listener, vm_spec, with};
use harvester_lb_testkit::eventually;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::rounds::pool;

const LIMIT: Duration = Duration::from_mins(1);

/// Events: one at most for each LoadBalancer, that of its address.
fn events(writes: &BTreeMap<String, u64>) -> u64 {
    let events = writes.iter().filter(|(what, _)| what.ends_with(" events"));
    events.map(|(_, count)| count).sum()
}

/// Requests for LoadBalancers: without the status of pools, which is throttled, the Lease and Events.
fn for_lbs(writes: &BTreeMap<String, u64>) -> u64 {
    writes
        .iter()
        .filter(|(what, _)| !what.ends_with(" ippools") && !what.ends_with(" leases"))
        .map(|(_, count)| count)
        .sum::<u64>()
        - events(writes)
}

/// An empty cluster, a namespace, and a pool with enough addresses.
async fn set(world: &World, ns: &str) -> anyhow::Result<()> {
    reset(world).await?;
    world.namespace(ns).await?;
    world.pool("writes", pool()).await
}

async fn create(world: &World, ns: &str, count: usize, spec: &Value) -> anyhow::Result<()> {
    stream::iter(0..count)
        .map(|n| async move { world.lb(ns, &format!("l{n}"), spec.clone()).await })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(())
}

async fn delete(world: &World, ns: &str, count: usize) -> anyhow::Result<()> {
    stream::iter(0..count)
        .map(|n| async move { world.delete_lb(ns, &format!("l{n}")).await })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(())
}

/// Waits until this number of LoadBalancers of a namespace has an address.
async fn served(world: &World, ns: &str, count: usize) -> anyhow::Result<()> {
    eventually(&format!("{count} addresses"), LIMIT, || async {
        let all = world.lbs(ns).list(&ListParams::default()).await?;
        let served = all.iter().filter(|lb| allocated(lb).is_some()).count();
        ensure!(served == count, "{served} are served");
        Ok(Some(()))
    })
    .await
}

async fn released(world: &World) -> anyhow::Result<()> {
    eventually("all are released", LIMIT, || async {
        let figures = MetricsSnapshot::read(world, "node1").await?;
        let bound = figures.sum("harvester_lb_ipallocations", |s| {
            s.label("phase") == "Bound"
        });
        ensure!(bound < 0.5, "{bound} are held");
        Ok(Some(()))
    })
    .await
}

pub async fn writes_for_each_cluster_load_balancer(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, count) = ("writes-cluster", 200);
    set(&world, ns).await?;
    let _operator = world.start_operator("node1").await?;
    audited(&world, "node1", &["writes"]).await?;
    let before = MetricsSnapshot::read(&world, "node1").await?;

    let began = Instant::now();
    create(&world, ns, count, &cluster_spec()).await?;
    let created = began.elapsed();
    served(&world, ns, count).await?;
    let took = began.elapsed();
    audited(&world, "node1", &["writes"]).await?;
    // Events are written late, one about each address.
    let after = eventually("the Events are written", LIMIT, async || {
        let now = MetricsSnapshot::read(&world, "node1").await?;
        Ok((events(&now.writes_since(&before)) >= count as u64).then_some(now))
    })
    .await?;
    let writes = after.writes_since(&before);
    eprintln!(
        "{count} cluster load balancers created in {created:.1?}, served in {took:.1?}: {writes:?}"
    );
    ensure!(for_lbs(&writes) <= 2 * count as u64, "{writes:?}");
    ensure!(events(&writes) == count as u64, "{writes:?}");

    let began = Instant::now();
    delete(&world, ns, count).await?;
    released(&world).await?;
    let took = began.elapsed();
    let found = audited(&world, "node1", &["writes"]).await?;
    ensure!(found.released == count, "{found:?}");
    let writes = MetricsSnapshot::read(&world, "node1")
        .await?
        .writes_since(&after);
    eprintln!("{count} deleted and released in {took:.1?}: {writes:?}");
    ensure!(for_lbs(&writes) <= count as u64, "{writes:?}");
    ensure!(events(&writes) == 0, "{writes:?}");
    Ok(())
}

pub async fn writes_for_each_vm_load_balancer(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, count) = ("writes-vm", 40);
    set(&world, ns).await?;
    for n in 0..3 {
        let (name, ip) = (format!("vm{n}"), format!("10.81.0.{n}1"));
        world
            .fake_vmi(ns, &name, json!({"app": "web"}), Some(&ip))
            .await?;
    }
    let _operator = world.start_operator("node1").await?;
    audited(&world, "node1", &["writes"]).await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    let before = MetricsSnapshot::read(&world, "node1").await?;
    let spec = vm_spec("web");

    let began = Instant::now();
    create(&world, ns, count, &spec).await?;
    for n in 0..count {
        world.lb_reason(ns, &format!("l{n}"), "Ready").await?;
    }
    let took = began.elapsed();
    audited(&world, "node1", &["writes"]).await?;
    let after = MetricsSnapshot::read(&world, "node1").await?;
    let writes = after.writes_since(&before);
    eprintln!("{count} VM load balancers Ready in {took:.1?}: {writes:?}");
    ensure!(for_lbs(&writes) <= 5 * count as u64, "{writes:?}");
    ensure!(events(&writes) <= count as u64, "{writes:?}");

    let began = Instant::now();
    delete(&world, ns, count).await?;
    released(&world).await?;
    let took = began.elapsed();
    audited(&world, "node1", &["writes"]).await?;
    let writes = MetricsSnapshot::read(&world, "node1")
        .await?
        .writes_since(&after);
    eprintln!("{count} deleted and released in {took:.1?}: {writes:?}");
    // The IPAllocation, and the Service and the EndpointSlice unless the garbage collector is faster.
    ensure!(for_lbs(&writes) <= 3 * count as u64, "{writes:?}");
    ensure!(events(&writes) == 0, "{writes:?}");
    Ok(())
}

/// A spec of VM type with a listener on this port.
fn on_port(port: i64) -> Value {
    with(
        vm_spec("web"),
        json!({"listeners": [listener("web", "TCP", port, 8080)]}),
    )
}

pub async fn shr_4_writes_for_each_join(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, count) = ("writes-join", 50);
    set(&world, ns).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(ns, "vm", labels, Some("10.81.0.1")).await?;
    let _operator = world.start_operator("node1").await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    world.lb(ns, "web", on_port(80)).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    let address = world.lb_address(ns, "web").await?;
    let join = async |number: i64| {
        let name = format!("s{number}");
        let primary = json!({keys::ANNOTATION_PRIMARY: "web"});
        let metadata = json!({"namespace": ns, "name": name, "annotations": primary});
        world.lb_with(metadata, on_port(1000 + number)).await?;
        world.lb_reason(ns, &name, "Ready").await?;
        let shared = world.lb_address(ns, &name).await?;
        ensure!(shared == address, "{name} has {shared}");
        anyhow::Ok(())
    };
    // With the first one the primary becomes one: it says so, and the names of its ports change, for some seconds.
    join(1).await?;
    eventually(
        "the primary's port has its new name alone",
        LIMIT,
        || async {
            let slice = world.slices(ns).get("web").await?;
            let names = slice
                .ports
                .iter()
                .flatten()
                .map(|port| port.name.as_deref());
            let names: Vec<_> = names.collect();
            ensure!(names == [Some("80-tcp")], "{names:?}");
            Ok(Some(()))
        },
    )
    .await?;
    audited(&world, "node1", &["writes"]).await?;
    let first = MetricsSnapshot::read(&world, "node1").await?;
    let mut before = first.clone();
    for number in 2..=count {
        join(number).await?;
        let now = MetricsSnapshot::read(&world, "node1").await?;
        let mut writes = now.writes_since(&before);
        let statuses = writes.remove("patch loadbalancers").unwrap_or_default();
        ensure!(for_lbs(&writes) <= 2, "join {number}: {writes:?}");
        ensure!(statuses <= 2, "join {number}: {statuses} of the status");
        before = now;
    }
    audited(&world, "node1", &["writes"]).await?;
    // Also what was written after the last one was ready.
    let mut writes = MetricsSnapshot::read(&world, "node1")
        .await?
        .writes_since(&first);
    eprintln!("{} load balancers joined: {writes:?}", count - 1);
    let joins = u64::try_from(count - 1)?;
    let statuses = writes.remove("patch loadbalancers").unwrap_or_default();
    ensure!(statuses <= 2 * joins, "{statuses} of {joins} statuses");
    ensure!(for_lbs(&writes) <= 2 * joins, "{writes:?}");
    // None to the slices of others.
    let created = writes.get("create endpointslices").copied();
    ensure!(created == Some(joins), "{writes:?}");
    ensure!(!writes.contains_key("patch endpointslices"), "{writes:?}");
    Ok(())
}

pub async fn rec_5_nothing_is_written_at_rest(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "rest";
    set(&world, ns).await?;
    world
        .fake_vmi(ns, "vm", json!({"app": "web"}), Some("10.81.0.1"))
        .await?;
    create(&world, ns, 50, &cluster_spec()).await?;
    for (name, app) in [("ready", "web"), ("without-backend", "none")] {
        world.lb(ns, name, vm_spec(app)).await?;
    }
    // No pool serves this one: it is reconciled repeatedly, here every half second, and still nothing is written.
    let waiting = with(cluster_spec(), json!({"ipPool": "missing"}));
    world.lb(ns, "waiting", waiting).await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    let timings = [(
        "HLB_TIMINGS",
        "recheck=500ms,pool-status-interval=200ms,pool-status-max-pause=1s",
    )];
    let operator = world.start_operator_with("node1", &[], &timings);
    let _operator = operator.await?;
    world.lb_reason(ns, "ready", "Ready").await?;
    world.lb_reason(ns, "without-backend", "NoBackend").await?;
    world.lb_reason(ns, "waiting", "PoolNotFound").await?;
    // After a slow write the pool's status is delayed (POOL-3), which looks like idle.
    eventually("the pool's status tells of all", LIMIT, || async {
        let status = world.pools().get("writes").await?.status;
        let told = status.and_then(|s| s.allocated).map_or(0, |a| a.len());
        Ok((told == 52).then_some(()))
    })
    .await?;
    harvester_lb_e2e::quiet::quiet(&world, "node1").await?;
    let before = MetricsSnapshot::read(&world, "node1").await?;
    // Two wait: the one without a pool, and the one without a backend. The Lease is renewed meanwhile.
    let after = eventually("they are looked at again and again", LIMIT, || async {
        let now = MetricsSnapshot::read(&world, "node1").await?;
        Ok((now.reconciles() >= before.reconciles() + 12.0).then_some(now))
    })
    .await?;
    let mut writes = after.writes_since(&before);
    let renewals = writes.remove("update leases");
    let reconciles = after.reconciles() - before.reconciles();
    eprintln!(
        "looked at {reconciles} times at rest: {writes:?}, and the Lease renewed {renewals:?} times"
    );
    ensure!(writes.is_empty(), "{writes:?}");
    Ok(())
}
