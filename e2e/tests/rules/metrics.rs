//! The figures (OPS-1).

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::support::{More, subnet, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![ops_1_promtool_is_content, ops_1_values_match_and_series_go]
}

async fn ops_1_promtool_is_content(world: Arc<World>) -> anyhow::Result<()> {
    let (code, text) = world.get("node1", "/metrics").await?;
    ensure!(code == 200, "{code}");
    let mut promtool = tokio::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("promtool")?;
    let mut input = promtool.stdin.take().context("no input")?;
    input.write_all(text.as_bytes()).await?;
    drop(input);
    let output = promtool.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "{said}");
    for line in text.lines().filter(|l| l.starts_with("# TYPE ")) {
        let mut words = line.split(' ').skip(2);
        let (name, type_) = (words.next().context(line.to_owned())?, words.next());
        ensure!(name.starts_with("harvester_lb_"), "{name}");
        ensure!(
            type_ != Some("gauge") || !name.ends_with("_total"),
            "{line}"
        );
    }
    Ok(())
}

async fn ops_1_values_match_and_series_go(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("figures", "figures");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.75.0.0/24")]).await?;
    let label = json!({"app": "web"});
    world
        .fake_vmi(ns, "a", label.clone(), Some("10.175.0.1"))
        .await?;
    world.fake_vmi(ns, "b", label, Some("10.175.0.2")).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    world.served(ns, "guest", pool).await?;
    let is = async |series: &str, wanted: Option<f64>| {
        eventually(&format!("{series} is {wanted:?}"), SOON, || async {
            let now = world.metric("node1", series).await?;
            ensure!(now == wanted, "it is {now:?}");
            Ok(Some(()))
        })
        .await
    };
    let addresses =
        |state: &str| format!("harvester_lb_ippool_addresses{{pool=\"{pool}\",state=\"{state}\"}}");
    is(&addresses("total"), Some(253.0)).await?;
    is(&addresses("available"), Some(251.0)).await?;
    is(&addresses("allocated"), Some(2.0)).await?;
    let of = |name: &str, key: &str, value: &str| {
        let mut labels = [("namespace", ns), ("loadbalancer", "web"), (key, value)];
        labels.sort_unstable();
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
        format!("harvester_lb_{name}{{{}}}", labels.join(","))
    };
    is(&of("backends", "state", "ready"), Some(2.0)).await?;
    is(&of("backends", "state", "not_ready"), Some(0.0)).await?;
    is(&of("backend_up", "backend", "a"), Some(1.0)).await?;
    is("harvester_lb_leader", Some(1.0)).await?;
    // All down: the stand-in is no backend.
    let check =
        json!({"port": 8080, "failureThreshold": 1, "periodSeconds": 1, "timeoutSeconds": 1});
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"healthCheck": check}}),
        )
        .await?;
    is(&of("backends", "state", "ready"), Some(0.0)).await?;
    is(&of("backends", "state", "not_ready"), Some(2.0)).await?;
    is(&of("backend_up", "backend", "a"), Some(0.0)).await?;
    world.vmis(ns).delete("a", &DeleteParams::default()).await?;
    is(&of("backend_up", "backend", "a"), None).await?;
    is(&of("backends", "state", "not_ready"), Some(1.0)).await?;
    world.delete_lb(ns, "web").await?;
    for gone in ["ready", "not_ready"] {
        is(&of("backends", "state", gone), None).await?;
    }
    is(&of("backend_up", "backend", "b"), None).await?;
    is(&addresses("allocated"), Some(1.0)).await?;
    world.delete_pool(pool).await?;
    is(&addresses("total"), None).await?;
    is(&addresses("available"), None).await?;
    Ok(())
}
