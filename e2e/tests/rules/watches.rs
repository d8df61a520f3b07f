//! Watches that end and restart, and one whose connection has died (RUN-2).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::eventually;
use harvester_lb_testkit::proxy::{Fault, Frequency, Match, Proxy, Verb};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use serde_json::json;

use super::support::RuleHelpers;

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![run_2_a_dead_watch_is_noticed_and_a_quiet_one_lists_nothing]
}

/// A dead connection is detected within 45 s; then the watch restarts.
const NOTICED: Duration = Duration::from_secs(50);
/// Each watch lasts 40 s at most, so that in this time each of them has started three times.
const THRICE: Duration = Duration::from_secs(100);

/// On a standby: it watches as the leader does, and its metrics show its cache.
async fn run_2_a_dead_watch_is_noticed_and_a_quiet_one_lists_nothing(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "watches";
    world.namespace(ns).await?;
    let foreign: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": "foreign"}, "addressType": "IPv4", "endpoints": [],
    }))?;
    let slices = world.slices(ns);
    slices.create(&PostParams::default(), &foreign).await?;

    let (proxy, began) = (Proxy::start(&world.cluster).await?, Instant::now());
    let pools = Match::of(Verb::Watch, "ippools");
    let dead = proxy.rule(pools, Frequency::times(1), Fault::Swallow);
    let kubeconfig = proxy.kubeconfig("admin")?;
    let kubeconfig = kubeconfig.to_str().context("the path is no text")?;
    // A debug build renews its watches after 12 s at most. A release build ignores this; the test then takes longer.
    let env = [("KUBECONFIG", kubeconfig), ("HLB_TIMINGS", "watch=12s")];
    let standby = world.start_operator_with("node2", &[], &env).await?;
    eventually("the watch of pools has begun", NOTICED, || async {
        Ok((dead.hits() == 1).then_some(()))
    })
    .await?;
    // A standby exports the number of objects that it knows, and nothing of a pool.
    let pools = "harvester_lb_cached_objects{kind=\"IPPool\"}";
    let before = world.metric("node2", pools).await?;
    ensure!(before.is_some(), "{pools} is missing");
    world.ranges("unheard", &[subnet("10.96.0.0/24")]).await?;
    eventually("the pool is known", NOTICED, || async {
        Ok((world.metric("node2", pools).await? != before).then_some(()))
    })
    .await?;

    // The version advances, and the watch of EndpointSlices with our label has no event for it.
    let mut looks = 0;
    eventually("each watch has begun three times", THRICE, || {
        looks += 1;
        let note = json!({"metadata": {"annotations": {"looks": looks.to_string()}}});
        let (world, slices, proxy) = (&world, &slices, &proxy);
        async move {
            if looks % 20 == 1 {
                world.merge(slices, "foreign", note).await?;
            }
            let counts = proxy.counts();
            let watches = counts.iter().filter(|((verb, _), _)| *verb == Verb::Watch);
            let begun: Vec<u64> = watches.map(|(_, begun)| *begun).collect();
            ensure!(
                begun.len() >= 7 && begun.iter().all(|begun| *begun >= 3),
                "{counts:?}"
            );
            Ok(Some(()))
        }
    })
    .await?;
    // IPAllocations are also listed once a minute, because of RUN-3.
    let minutes = began.elapsed().as_secs() / 60;
    for ((verb, resource), count) in proxy.counts() {
        let further = if resource == "ipallocations" {
            minutes
        } else {
            0
        };
        ensure!(
            verb != Verb::List || (1..=1 + further).contains(&count),
            "{resource} were listed {count} times"
        );
    }
    standby.end().await
}
