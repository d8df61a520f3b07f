//! A real Prometheus scrapes the operator: the documented alerts fire, and each query of the dashboard has data (OPS-1).

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use harvester_lb_e2e::World;
use harvester_lb_e2e::prometheus::{DashboardQueries, Prometheus, documented_alerts, rules};
use harvester_lb_e2e::quiet::reset;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{part, subnet, with};
use harvester_lb_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{RuleHelpers, cluster, vm};

/// Longest time for which the operator is stopped, so that its health checks begin late.
const STOPPED: Duration = Duration::from_secs(4);
/// The alert on the absence of the webhook, which does not run here.
const NO_WEBHOOK: &str = "HarvesterLoadBalancerWebhookAbsent";

/// The last four hours of a pool of which an address a minute was allocated: samples for [`Prometheus::backfill`].
fn filling(pool: &str) -> anyhow::Result<String> {
    let metric = "harvester_lb_ippool_addresses";
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut samples = format!("# TYPE {metric} gauge\n");
    for state in ["allocated", "available"] {
        let labels = format!("pool=\"{pool}\",state=\"{state}\",instance=\"former\"");
        for minutes in (15..=240).rev() {
            let (allocated, at) = (240 - minutes, now - minutes * 60);
            let value = if state == "allocated" {
                allocated
            } else {
                254 - allocated
            };
            writeln!(samples, "{metric}{{{labels}}} {value} {at}")?;
        }
    }
    samples.push_str("# EOF\n");
    Ok(samples)
}

pub async fn ops_1_alerts_fire_and_the_dashboard_has_data(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, small, large) = ("alerts", "alerts-small", "alerts-large");
    reset(&world).await?;
    world.namespace(ns).await?;
    // With the times for which they must hold a test would take a quarter of an hour; promtool tests these.
    let rules = rules(&documented_alerts()?, true);
    // A trend takes hours.
    Prometheus::backfill(&world, &filling(large)?).await?;
    let prometheus = Prometheus::start(&world, &["node1", "node2"], &rules).await?;
    // Not even a target is there. The pool of the past is gone, and so is its trend.
    prometheus.fires(&["HarvesterLoadBalancerNoLeader"]).await?;

    let operator = world.start_operator("node1").await?;
    let standby = world.start_operator("node2").await?;
    let none = "HarvesterLoadBalancerNoLeader";
    prometheus.is_silent(&[none]).await?;
    // No webhook is scraped here.
    let firing = prometheus.firing().await?;
    ensure!(firing.iter().eq([NO_WEBHOOK]), "{firing:?} fire");

    // A pool of three addresses, which fills up.
    let of_three = part("10.76.0.0/24", "10.76.0.2", "10.76.0.4");
    world.ranges(small, &[of_three]).await?;
    world.ranges(large, &[subnet("10.77.0.0/24")]).await?;
    let free = "harvester_lb_ippool_addresses{pool=\"alerts-small\",state=\"available\"}";
    for left in [3.0, 2.0, 1.0, 0.0] {
        if left < 3.0 {
            world.served(ns, &format!("c{left}"), small).await?;
        }
        // Each number is scraped.
        eventually(&format!("{left} are free"), SOON, || async {
            let now = prometheus.query(free).await?;
            ensure!(
                now.iter().any(|(_, value)| (value - left).abs() < 0.5),
                "{now:?}"
            );
            Ok(Some(()))
        })
        .await?;
    }
    world.lb(ns, "waits", cluster(small)).await?;
    // Health checks that fail, and a name that no Service may have.
    world
        .fake_vmi(ns, "v", json!({"app": "web"}), Some("10.176.0.1"))
        .await?;
    let check =
        json!({"port": 8080, "failureThreshold": 1, "periodSeconds": 1, "timeoutSeconds": 1});
    let spec = with(vm(large, "web"), json!({"healthCheck": check}));
    world.announced(ns, "web", spec).await?;
    let long = "w".repeat(64);
    world.lb(ns, &long, vm(large, "none")).await?;
    world.lb_reason(ns, &long, "ApiError").await?;
    prometheus
        .fires(&[
            "HarvesterLoadBalancerPoolAlmostFull",
            "HarvesterLoadBalancerWaitingForAddress",
            "HarvesterLoadBalancerNotReady",
            "HarvesterLoadBalancerBackendNotReady",
            "HarvesterLoadBalancerNoReadyBackend",
            "HarvesterLoadBalancerWritesRefused",
            "HarvesterLoadBalancerReconcileFailing",
        ])
        .await?;
    // Seconds say nothing about a day: of the two pools that fill up, one has done so for hours.
    let trend = "ALERTS{alertname=\"HarvesterLoadBalancerPoolFillsUp\",alertstate=\"firing\"}";
    eventually("the alert on the trend fires", SOON, || async {
        let firing = prometheus.query(trend).await?;
        let pools: Vec<&Value> = firing.iter().map(|(labels, _)| &labels["pool"]).collect();
        ensure!(pools == [large], "{firing:?}");
        Ok(Some(()))
    })
    .await?;
    let named = prometheus
        .query("harvester_lb_load_balancer_ready == 0")
        .await?;
    let of = |name: &str| {
        named
            .iter()
            .any(|(labels, _)| labels["loadbalancer"] == name)
    };
    ensure!(of("waits") && of("web") && of(&long), "{named:?}");

    // Its health checks are late; the Lease outlives that.
    operator.stop()?;
    tokio::time::sleep(STOPPED).await;
    operator.cont()?;
    prometheus
        .fires(&["HarvesterLoadBalancerHealthChecksLate"])
        .await?;

    for query in DashboardQueries::of_chart()?.operator {
        prometheus.has_data(&query).await?;
    }
    // Each series of an object exists once, that of the leader.
    for metric in ["harvester_lb_load_balancer_ready", "harvester_lb_backends"] {
        let twice = prometheus
            .query(&format!("count without (instance) ({metric}) > 1"))
            .await?;
        ensure!(twice.is_empty(), "{twice:?}");
    }

    standby.end().await?;
    operator.end().await?;
    prometheus.fires(&[none]).await?;
    prometheus.end().await
}
