//! A Prometheus that scrapes a release as its ServiceMonitors say, in the place of the Prometheus operator.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::prometheus::{Prometheus, documented_alerts, rules};
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::eventually;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::helm::NAMESPACE;

/// The job of a ServiceMonitor: port and path that it names, of all Pods behind the Services that it selects. That many Pods
/// are expected.
async fn job(world: &World, name: &str, pods: usize) -> anyhow::Result<Value> {
    let (version, kind) = ("monitoring.coreos.com/v1", "ServiceMonitor");
    let found = world.cluster.get(version, kind, Some(NAMESPACE), name);
    let monitor = found.await?.with_context(|| format!("no {kind} {name}"))?;
    let spec = &monitor.data["spec"];
    let labels: BTreeMap<String, String> =
        serde_json::from_value(spec["selector"]["matchLabels"].clone())?;
    let labels: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let selected = ListParams::default().labels(&labels.join(","));
    let endpoint = &spec["endpoints"][0];
    let mut targets = Vec::new();
    for service in world.services(NAMESPACE).list(&selected).await? {
        let label = format!("kubernetes.io/service-name={}", service.name_any());
        let of_service = ListParams::default().labels(&label);
        for slice in world.slices(NAMESPACE).list(&of_service).await? {
            let mut ports = slice.ports.iter().flatten();
            let port = ports.find(|port| endpoint["port"] == json!(port.name));
            let port = port.and_then(|port| port.port).context("no such port")?;
            let addresses = slice.endpoints.iter().flat_map(|it| &it.addresses);
            targets.extend(addresses.map(|address| format!("{address}:{port}")));
        }
    }
    ensure!(targets.len() == pods, "{name} selects {targets:?}");
    Ok(json!({
        "job_name": name, "metrics_path": endpoint["path"],
        "honor_labels": endpoint["honorLabels"] == true, "static_configs": [{"targets": targets}],
    }))
}

/// A Prometheus for a release with this number of operators and of webhooks, which scrapes all of them. Its alerts do not wait:
/// promtool tests how long they must hold.
pub async fn prometheus(world: &World, replicas: usize) -> anyhow::Result<Prometheus> {
    let mut jobs = Vec::new();
    for name in ["harvester-lb-operator", "harvester-lb-webhook"] {
        jobs.push(job(world, name, replicas).await?);
    }
    let alerts = rules(&documented_alerts()?, true);
    let prometheus = Prometheus::start_with(world, &jobs, &alerts).await?;
    eventually("all Pods are scraped", SOON, || async {
        let up = prometheus.query("up == 1").await?;
        ensure!(up.len() == replicas * jobs.len(), "{up:?}");
        Ok(Some(()))
    })
    .await?;
    Ok(prometheus)
}
