//! What happens to nodes: drained within a PodDisruptionBudget, switched off; and Pods that belong to each of them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_testkit::{PodRunner, TestCluster, eventually};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::{
    apart, available, deployment, gone, is_ready, names, namespace, node_of, pod, pod_until, pods,
    serving,
};
use crate::support::SOON;

pub(crate) async fn pods_are_evicted_within_a_budget(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let (ns, name) = ("pods-evict", "evict");
    namespace(cluster, ns).await?;
    let affinity = json!({"affinity": apart(name)});
    cluster
        .apply(&deployment(ns, name, 2, &serving(&json!({})), &affinity))
        .await?;
    cluster
        .apply(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": ns},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}},
        }))
        .await?;
    let found = available(cluster, ns, name).await?;
    eventually("one disruption allowed", SOON, || async {
        let budget = cluster
            .get("policy/v1", "PodDisruptionBudget", Some(ns), name)
            .await?;
        let status = budget.context("no budget")?.data["status"].clone();
        ensure!(status["disruptionsAllowed"] == 1, "{status}");
        Ok(Some(()))
    })
    .await?;

    // node1 is drained: its Pod goes, and has no other place.
    let (first, second): (Vec<_>, Vec<_>) = found.iter().partition(|pod| node_of(pod) == "node1");
    runner.drain("node1", SOON).await?;
    ensure!(
        pods(cluster, ns)
            .get_opt(&first[0].name_any())
            .await?
            .is_none()
    );
    let waiting = eventually("a Pod without a node", SOON, || async {
        let list = pods(cluster, ns).list(&ListParams::default()).await?;
        let waiting = list.items.into_iter().find(|pod| node_of(pod).is_empty());
        let waiting = waiting.context("none waits")?;
        let conditions = waiting.status.clone().and_then(|s| s.conditions);
        let reason = conditions
            .into_iter()
            .flatten()
            .find(|c| c.status == "False");
        let reason = reason.and_then(|c| c.message).context("no message")?;
        ensure!(
            reason.contains("1 node(s) had untolerated taint(s)"),
            "{reason}"
        );
        ensure!(
            reason.contains("1 node(s) didn't match pod anti-affinity rules"),
            "{reason}"
        );
        Ok(Some(waiting.name_any()))
    })
    .await?;
    // The other one must stay meanwhile.
    ensure!(!runner.evict(ns, &second[0].name_any()).await?);
    ensure!(runner.drain("node2", Duration::from_secs(1)).await.is_err());
    ensure!(is_ready(
        &pods(cluster, ns).get(&second[0].name_any()).await?
    ));
    runner.uncordon("node1").await?;
    runner.uncordon("node2").await?;
    let pod = pod_until(cluster, ns, &waiting, is_ready).await?;
    ensure!(node_of(&pod) == "node1");
    Ok(())
}

pub(crate) async fn pods_of_a_node_without_power_report_nothing(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let ns = "pods-power";
    namespace(cluster, ns).await?;
    let on = |name: &str, node: &str| {
        let mut pod = pod(ns, name, &serving(&json!({})));
        pod["spec"]["nodeName"] = node.into();
        pod
    };
    for (name, node) in [("off", "node1"), ("forgotten", "node1"), ("other", "node2")] {
        cluster.apply(&on(name, node)).await?;
    }
    for name in ["off", "forgotten", "other"] {
        pod_until(cluster, ns, name, is_ready).await?;
    }
    let pid = runner.pid(ns, "off", "main")?;
    let address = runner.address(ns, "off")?;
    runner.power_off("node1")?;
    eventually("end of the process", SOON, || async {
        let there = std::path::Path::new(&format!("/proc/{pid}")).exists();
        Ok((!there).then_some(()))
    })
    .await?;
    // Deleted while it is off: it stays, and so does what is said of the other.
    let api = pods(cluster, ns);
    api.delete("forgotten", &DeleteParams::default()).await?;
    runner.get(ns, "other", 8080, "/unready").await?;
    pod_until(cluster, ns, "other", |pod| !is_ready(pod)).await?;
    ensure!(is_ready(&api.get("off").await?));
    ensure!(api.get_opt("forgotten").await?.is_some());
    ensure!(runner.pid(ns, "off", "main").is_err());

    runner.power_on("node1")?;
    gone(cluster, ns, "forgotten").await?;
    pod_until(cluster, ns, "off", |pod| {
        let status = pod.status.clone().unwrap_or_default();
        let mut all = status.container_statuses.into_iter().flatten();
        is_ready(pod) && all.any(|c| c.restart_count == 1)
    })
    .await?;
    ensure!(runner.address(ns, "off")? == address);
    Ok(())
}

pub(crate) async fn pods_of_a_daemon_set_are_on_each_node(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let (ns, name) = ("pods-daemon", "daemon");
    namespace(cluster, ns).await?;
    // In the node's network, so on another port than other Pods.
    let port = json!([{"name": "http", "containerPort": 18080}]);
    let env = json!([{"name": "PORT", "value": "18080"}]);
    let container = serving(&json!({"ports": port, "env": env}));
    let mut set = deployment(ns, name, 0, &container, &json!({"hostNetwork": true}));
    set["kind"] = "DaemonSet".into();
    if let Some(spec) = set["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    cluster.apply(&set).await?;
    eventually("DaemonSet ready", SOON, || async {
        let set = cluster.get("apps/v1", "DaemonSet", Some(ns), name).await?;
        let status = set.context("no DaemonSet")?.data["status"].clone();
        ensure!(status["numberReady"] == 2, "{status}");
        Ok(Some(()))
    })
    .await?;
    let list = pods(cluster, ns).list(&ListParams::default()).await?;
    let nodes: BTreeSet<String> = list.iter().map(node_of).collect();
    ensure!(nodes == cluster.nodes().into_iter().collect(), "{nodes:?}");
    for pod in &list.items {
        let status = pod.status.clone().unwrap_or_default();
        ensure!(status.pod_ip == status.host_ip && status.host_ip.is_some());
        let (_, facts) = runner.get(ns, &pod.name_any(), 18080, "/facts").await?;
        let facts: Value = serde_json::from_str(&facts)?;
        ensure!(facts["env"]["HOSTNAME"] == node_of(pod), "{facts}");
    }
    ensure!(names(&list.items).len() == 2);
    Ok(())
}
