//! A real Prometheus scrapes the webhook: the documented alerts on its certificates and its registration fire (OPS-1).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_e2e::World;
use harvester_lb_e2e::prometheus::{DashboardQueries, Prometheus, documented_alerts, rules};
use harvester_lb_e2e::webhook::{ACCOUNT, Replica, answers, endpoints, permissions};
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::eventually;

use crate::stage::{bare, finish};

const EXPIRES: &str = "HarvesterLoadBalancerWebhookCertificateExpires";
const NOT_REGISTERED: &str = "HarvesterLoadBalancerWebhookNotRegistered";
const ABSENT: &str = "HarvesterLoadBalancerWebhookAbsent";
const WATCH_FAILING: &str = "HarvesterLoadBalancerWatchFailing";
/// A life that ends sooner than the alert allows, and is long enough for this test.
const SHORT: &str = "webhook-authority-life=300m,webhook-certificate-life=300m";

pub async fn ops_1_alerts_of_the_webhook_fire(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    endpoints(&world, &["node1"]).await?;
    // It cannot list anything, so it never becomes ready.
    let (group, kind) = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");
    world.cluster.delete(group, kind, None, ACCOUNT).await?;
    let replica = Replica::spawn(&world, "node1", "").await?;
    // The times for which they must hold are tested by promtool.
    let rules = rules(&documented_alerts()?, true);
    let prometheus = Prometheus::start_for(&world, &[replica.admin], &rules).await?;
    // It is there before it is ready.
    prometheus.fires(&[NOT_REGISTERED, WATCH_FAILING]).await?;
    prometheus.is_silent(&[ABSENT]).await?;

    permissions(&world).await?;
    replica.ready().await?;
    replica.registered().await?;
    prometheus
        .is_silent(&[NOT_REGISTERED, EXPIRES, ABSENT, WATCH_FAILING])
        .await?;
    each_panel_has_data(&world, &prometheus).await?;
    let expiry = "harvester_lb_webhook_certificate_expiry_timestamp_seconds - time()";
    let left = prometheus.query(expiry).await?;
    ensure!(left.len() == 2, "authority and serving: {left:?}");

    // Its successor makes certificates anew, which end soon.
    finish(&world, &[&replica]).await?;
    prometheus.fires(&[ABSENT]).await?;
    let replica = Replica::spawn(&world, "node1", SHORT).await?;
    replica.ready().await?;
    replica.registered().await?;
    prometheus.fires(&[EXPIRES]).await?;
    prometheus.is_silent(&[NOT_REGISTERED]).await?;
    prometheus.end().await?;
    finish(&world, &[&replica]).await
}

/// Each query of the dashboard about the webhook has data, once it has been asked.
async fn each_panel_has_data(world: &World, prometheus: &Prometheus) -> anyhow::Result<()> {
    for query in DashboardQueries::of_chart()?.webhook {
        eventually("the query has data", SOON, || async {
            // A rate needs requests between two scrapes.
            answers(world).await?;
            prometheus.has_data(&query).await.map(Some)
        })
        .await?;
    }
    Ok(())
}
