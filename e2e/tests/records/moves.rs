//! A kube-vip that ignores a changed address of a Service, and one that follows it: how long nobody announces the address
//! (REL-4).

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_api::LoadBalancer;
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{subnet, vm_spec, with};
use harvester_lb_testkit::{Process, eventually};
use serde_json::{Value, json};

use crate::stage::{becomes_leader, set};

const NAMESPACE: &str = "ignored";
/// Time limits of moves as in production, and statuses without a pause.
const TIMINGS: &str = "retry=200ms,pool-status-interval=200ms,detail-interval=200ms";
/// The operator and the stand-in take this much longer than the limit, on a machine under load.
const LATE: Duration = Duration::from_secs(5);
/// Both see the changed address at different times.
const EARLY: Duration = Duration::from_millis(500);

async fn start(world: &World) -> anyhow::Result<Arc<Process>> {
    let env = [("POD_UID", NAMESPACE), ("HLB_TIMINGS", TIMINGS)];
    let operator = world.start_operator_with("node1", &[], &env).await?;
    becomes_leader(world, "node1").await?;
    Ok(operator)
}

/// Whether a load balancer is at an address of this pool, and announced there.
fn is_at(lb: &LoadBalancer, pool: &str) -> bool {
    let status = lb.status.as_ref();
    let given = status.and_then(|s| s.allocated_address.as_ref());
    let address = status.and_then(|s| s.address.clone());
    given.and_then(|given| given.ip_pool.as_deref()) == Some(pool)
        && address.is_some()
        && address == allocated(lb)
}

/// What the operator knew about kube-vip each time it recreated the Service of this load balancer.
fn recreations(operator: &Process, name: &str) -> Vec<String> {
    let lb = format!("{NAMESPACE}/{name}");
    let log = operator.log();
    let lines = log.lines().filter(|line| line.contains("recreating it"));
    let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_this = lines.filter(|line| line["lb"] == *lb);
    of_this
        .map(|line| line["history"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Moves a load balancer to another pool. Returns how long nobody announced its address, and whether its Service is another one
/// now.
async fn move_to(
    world: &World,
    kube_vip: &FakeKubeVip,
    name: &str,
    pool: &str,
) -> anyhow::Result<(Duration, bool)> {
    let services = world.services(NAMESPACE);
    let before = services.get(name).await?.metadata.uid;
    let gaps = kube_vip.gaps().len();
    let to = json!({"spec": {"ipPool": pool}});
    world.merge(&world.lbs(NAMESPACE), name, to).await?;
    let what = format!("announced at an address of {pool}");
    world
        .lb_until(NAMESPACE, name, &what, |lb| is_at(lb, pool))
        .await?;
    let ended = || async { Ok(kube_vip.gaps().get(gaps).cloned()) };
    let gap = eventually("the address is announced", SOON, ended).await?;
    ensure!(gap.service == format!("{NAMESPACE}/{name}"), "{gap:?}");
    let after = services.get(name).await?.metadata.uid;
    Ok((gap.length, after != before))
}

pub async fn rel_4_a_changed_address_that_is_ignored(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, NAMESPACE).await?;
    let (p, q) = ("ignored-p", "ignored-q");
    for (name, range) in [(p, "10.77.0.0/24"), (q, "10.77.1.0/24")] {
        world.pool_for(NAMESPACE, name, &[subnet(range)]).await?;
    }
    let labels = json!({"app": "web"});
    world
        .fake_vmi(NAMESPACE, "vm", labels, Some("10.177.0.1"))
        .await?;
    let kube_vip = FakeKubeVip::start(&world.client());
    kube_vip.ignore_changes(true);
    let mut operator = start(&world).await?;
    for name in ["a", "b", "c"] {
        let spec = with(vm_spec("web"), json!({"ipPool": p}));
        world.lb(NAMESPACE, name, spec).await?;
        world.lb_reason(NAMESPACE, name, "Ready").await?;
    }

    // The load balancer, its pool, whether kube-vip ignores the change, a restart before, what is known about kube-vip.
    for (name, pool, ignores, restart, history) in [
        ("a", q, true, false, "Unknown"),
        ("b", q, true, false, "Ignored"),
        ("c", q, true, true, "Unknown"),
        ("a", p, false, false, "Ignored"),
        ("b", p, true, false, "Followed"),
    ] {
        if restart {
            operator.kill9()?;
            operator = start(&world).await?;
        }
        kube_vip.ignore_changes(ignores);
        let known = recreations(&operator, name).len();
        let (gap, is_recreated) = move_to(&world, &kube_vip, name, pool).await?;
        println!("{name} to {pool}, known of kube-vip: {history}: {gap:.1?} without an address");
        let limit = Duration::from_secs(match history {
            "Unknown" => 3,
            "Followed" => 8,
            _ => 1,
        });
        ensure!(
            is_recreated == ignores,
            "{name}: recreated is {is_recreated}"
        );
        if ignores {
            let expected = limit.saturating_sub(EARLY)..limit + LATE;
            ensure!(
                expected.contains(&gap),
                "{name}: {gap:?} without an address, and the limit is {limit:?}"
            );
        } else {
            ensure!(gap < limit, "{name}: {gap:?}");
        }
        let now = recreations(&operator, name);
        let wanted: &[&str] = if ignores { &[history] } else { &[] };
        ensure!(
            now.get(known..).unwrap_or_default() == wanted,
            "{name}: recreated for {now:?}, not {wanted:?}"
        );
    }
    for pool in [p, q] {
        eventually("addresses are released", SOON, || async {
            let status = world.pools().get(pool).await?.status.unwrap_or_default();
            let held = status.allocated.unwrap_or_default().len();
            Ok((held == if pool == p { 2 } else { 1 }).then_some(()))
        })
        .await?;
    }
    operator.end().await
}
