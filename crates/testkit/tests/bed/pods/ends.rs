//! Ends of containers: SIGTERM and SIGKILL, probes that fail, crashes.

use anyhow::{Context, ensure};
use harvester_lb_testkit::{PodRunner, TestCluster, eventually};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

use super::{IMAGE, gone, is_ready, namespace, pod, pod_until, pods, serving};
use crate::support::SOON;

pub(crate) async fn pods_are_asked_to_end_and_then_killed(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let ns = "pods-end";
    namespace(cluster, ns).await?;
    let polite = serving(&json!({
        "env": [{"name": "LINGER_MS", "value": "300"}],
        "lifecycle": {"preStop": {"httpGet": {"path": "/unready", "port": 8080}}},
    }));
    cluster.apply(&pod(ns, "polite", &polite)).await?;
    let stubborn = json!({"name": "main", "image": IMAGE, "args": ["stubborn"]});
    let mut stubborn = pod(ns, "stubborn", &stubborn);
    stubborn["spec"]["terminationGracePeriodSeconds"] = 1.into();
    cluster.apply(&stubborn).await?;
    pod_until(cluster, ns, "polite", is_ready).await?;
    pod_until(cluster, ns, "stubborn", is_ready).await?;
    let pid = runner.pid(ns, "stubborn", "main")?;

    let api = pods(cluster, ns);
    let began = Instant::now();
    api.delete("polite", &DeleteParams::default()).await?;
    let ending = api.get("polite").await?;
    ensure!(ending.metadata.deletion_timestamp.is_some());
    pod_until(cluster, ns, "polite", |pod| !is_ready(pod)).await?;
    gone(cluster, ns, "polite").await?;
    let log = runner.log(ns, "polite", "main");
    ensure!(log.contains("serves\nSIGTERM\nbye"), "{log}");
    // Its grace period is 5 s, and it needs 300 ms.
    ensure!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());

    let began = Instant::now();
    api.delete("stubborn", &DeleteParams::default()).await?;
    gone(cluster, ns, "stubborn").await?;
    ensure!(began.elapsed().as_millis() >= 1000, "{:?}", began.elapsed());
    ensure!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    ensure!(runner.address(ns, "stubborn").is_err());

    // Deleted by force: the object goes at once, the process soon.
    cluster.apply(&stubborn).await?;
    pod_until(cluster, ns, "stubborn", is_ready).await?;
    let pid = runner.pid(ns, "stubborn", "main")?;
    api.delete("stubborn", &DeleteParams::default().grace_period(0))
        .await?;
    ensure!(api.get_opt("stubborn").await?.is_none());
    eventually("end of the process", SOON, || async {
        let there = std::path::Path::new(&format!("/proc/{pid}")).exists();
        Ok((!there).then_some(()))
    })
    .await
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

fn restarted(count: i32) -> impl Fn(&Pod) -> bool {
    move |pod| is_ready(pod) && container(pod).is_some_and(|c| c.restart_count == count)
}

pub(crate) async fn pods_start_failed_containers_again(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let (ns, name) = ("pods-restart", "restart");
    namespace(cluster, ns).await?;
    let probe = json!({"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 1, "failureThreshold": 2});
    let container_of = serving(&json!({"livenessProbe": probe}));
    cluster.apply(&pod(ns, name, &container_of)).await?;
    pod_until(cluster, ns, name, restarted(0)).await?;
    let last = |pod: &Pod| {
        let state = container(pod).and_then(|c| c.last_state.clone());
        state.and_then(|s| s.terminated).context("no last state")
    };

    runner.get(ns, name, 8080, "/break").await?;
    let pod = pod_until(cluster, ns, name, restarted(1)).await?;
    let end = last(&pod)?;
    ensure!(
        end.exit_code == 0 && end.reason.as_deref() == Some("Completed"),
        "{end:?}"
    );
    let log = runner.log(ns, name, "main");
    ensure!(log.matches("SIGTERM").count() == 1, "{log}");

    let before = runner.pid(ns, name, "main")?;
    runner.kill9(ns, name, "main")?;
    let pod = pod_until(cluster, ns, name, restarted(2)).await?;
    ensure!(last(&pod)?.exit_code == 137, "{:?}", last(&pod)?);
    ensure!(runner.pid(ns, name, "main")? != before);
    ensure!(runner.log(ns, name, "main").matches("serves").count() == 3);

    // One that ends at once waits longer each time.
    let crashing = json!({"name": "main", "image": IMAGE, "args": ["exit", "1"]});
    cluster.apply(&super::pod(ns, "crash", &crashing)).await?;
    let pod = pod_until(cluster, ns, "crash", |pod| {
        let waiting = container(pod).and_then(|c| c.state.clone()?.waiting);
        container(pod).is_some_and(|c| c.restart_count == 2)
            && waiting.is_some_and(|w| w.reason.as_deref() == Some("CrashLoopBackOff"))
    })
    .await?;
    ensure!(last(&pod)?.message.as_deref() == Some("as told: 1"));
    Ok(())
}
