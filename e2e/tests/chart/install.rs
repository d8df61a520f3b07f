//! The life of a release with Pods: install, test, drain of each node, upgrade, rollback, uninstall, and install again, while
//! requests to a load balancer are sent all the time.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::allocated;
use harvester_lb_fixtures::{self as fixtures, quick_check, with};
use harvester_lb_testkit::{PodRunner, PodRunnerOptions, Traffic};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::bare::bare;
use crate::helm::{RELEASE, chart, copy_of_chart, deploys, helm_does, hooks_of};
use crate::release::{
    NEXT_TAG, REPOSITORY, SOON, TAG, WAIT, ask, deployments, image, is_left_behind,
    is_unregistered, nodes, none_failed, serves, values,
};

/// Namespace, pool, load balancer and label of what is served.
const SERVED: &str = "chart-life";

/// A webhook configuration of somebody else.
fn of_others() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "of-others"},
        "webhooks": [{
            "name": "others.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore",
            "clientConfig": {"service": {"namespace": "others", "name": "others"}},
            "rules": [{
                "apiGroups": ["example.org"], "apiVersions": ["*"], "operations": ["DELETE"],
                "resources": ["others"],
            }],
        }],
    })
}

pub async fn chart_lives_and_ends_under_traffic(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    world.cluster.apply(&of_others()).await?;
    let runner = PodRunner::start(&world.cluster, PodRunnerOptions::default()).await?;
    let image = image(&world)?;
    for tag in [TAG, NEXT_TAG] {
        runner.add_image(&format!("{REPOSITORY}:{tag}"), image.clone());
    }
    let lived = life(&world, &runner).await;
    runner.stop().await;
    lived
}

/// A copy of the chart that is the next version.
fn next_version(world: &World) -> anyhow::Result<PathBuf> {
    let folder = copy_of_chart(world, "next-chart")?;
    let path = folder.join("Chart.yaml");
    let text = std::fs::read_to_string(&path)?;
    let lines = text.lines().map(|line| match line.split_once(": ") {
        Some(("version", _)) => "version: 99.0.0\n".to_owned(),
        Some(("appVersion", _)) => "appVersion: v99.0.0\n".to_owned(),
        _ => format!("{line}\n"),
    });
    let next: String = lines.collect();
    ensure!(next != text, "{text}");
    std::fs::write(&path, next)?;
    Ok(folder)
}

/// Asks the webhook, and for the replicas of the operator, again and again, until there is no answer or no replica.
async fn asks(world: &World) -> anyhow::Result<Infallible> {
    let mut asked = 0_usize;
    loop {
        let answer = ask(world, &[80]).await;
        answer.with_context(|| format!("request {asked} while the node is drained"))?;
        let operator = deployments(world).get("harvester-lb-operator").await?;
        let available = operator.status.and_then(|status| status.available_replicas);
        ensure!(
            available > Some(0),
            "no operator is available while the node is drained"
        );
        asked += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The nodes on which both Deployments have their replicas.
async fn are_on(world: &World, wanted: &[&str]) -> anyhow::Result<()> {
    for name in ["harvester-lb-operator", "harvester-lb-webhook"] {
        let nodes = nodes(world, name).await?;
        ensure!(nodes.iter().eq(wanted), "{name} runs on {nodes:?}");
    }
    Ok(())
}

/// Drains a node; the other one has all replicas then. Meanwhile no request to the webhook fails, and one operator at least is
/// available.
async fn drained(world: &World, runner: &PodRunner, node: &str, other: &str) -> anyhow::Result<()> {
    tokio::select! {
        drained = runner.drain(node, SOON) => drained?,
        failed = asks(world) => match failed? {},
    }
    serves(world, 2).await?;
    are_on(world, &[other]).await
}

/// Drains a node with one replica of each Deployment, and then the one with both: only the budgets keep one of these. The
/// first node is the only one for Pods afterwards.
async fn drained_in_turn(world: &World, runner: &PodRunner) -> anyhow::Result<()> {
    are_on(world, &["node1", "node2"]).await?;
    drained(world, runner, "node1", "node2").await?;
    runner.uncordon("node1").await?;
    drained(world, runner, "node2", "node1").await
}

/// The log of an uninstall's hooks says that the webhook ended before its Secrets went: without them a container that restarts
/// registers itself again.
fn ended_in_order(said: &str) -> anyhow::Result<()> {
    let at = |text: &str| {
        let found = said.find(text);
        found.with_context(|| format!("no {text:?} in the log:\n{said}"))
    };
    let off = at("conversion switched off")?;
    let ended = at("the replicas have ended")?;
    let removed = at("Secret removed")?;
    ensure!(off < ended && ended < removed, "{said}");
    Ok(())
}

async fn life(world: &World, runner: &PodRunner) -> anyhow::Result<()> {
    let ns = SERVED;
    deploys(world, "install", &chart(), &values(json!({})), &WAIT).await?;
    serves(world, 2).await?;

    world.namespace(ns).await?;
    let lan = json!({
        "subnet": "192.168.100.0/24", "gateway": "192.168.100.1",
        "rangeStart": "192.168.100.200", "rangeEnd": "192.168.100.203",
    });
    world.pool_for(ns, ns, &[lan]).await?;
    let vm = world.vm(ns, "c1", &[("app", ns)], 8080).await?;
    let spec = json!({"ipPool": ns, "healthCheck": quick_check()});
    world.lb(ns, ns, with(fixtures::vm_spec(ns), spec)).await?;
    let lb = world.lb_reason(ns, ns, "Ready").await?;
    let vip: Ipv4Addr = allocated(&lb).context("no address")?.parse()?;
    world.answered_by(vip, 80, &["c1"]).await?;
    let test = ["test", RELEASE, "--logs", "--timeout=2m"];
    let said = helm_does(world, &test).await?;
    ensure!(said.contains("Succeeded"), "{said}");
    // Its account may not write, so whether the operator may is not known: a remark, and no finding that fails.
    ensure!(
        said.contains("PermissionsNotChecked") && !said.contains("PermissionMissing"),
        "{said}"
    );

    let before = world.services(ns).get(ns).await?;
    let traffic = Traffic::start(&world.cluster, vip, 80, Duration::from_millis(50));
    drained_in_turn(world, runner).await?;
    // The next version, all of whose Pods and those of the version before are on the one node that is left.
    let next = values(json!({
        "replicaCount": 3, "backendDenyCIDRs": ["10.99.0.0/16"],
        "image": {"repository": REPOSITORY, "tag": NEXT_TAG},
    }));
    deploys(world, "upgrade", &next_version(world)?, &next, &WAIT).await?;
    serves(world, 3).await?;
    let args = ["rollback", RELEASE, "1", WAIT[0], WAIT[1]];
    let said = hooks_of(world, &args).await?;
    ensure!(said.contains("maps written"), "{said}");
    serves(world, 2).await?;
    runner.uncordon("node2").await?;
    helm_does(world, &test).await?;
    // Without the webhook, and with it again: nothing is left that would refuse a write.
    let without = values(json!({"webhook": {"enabled": false}}));
    deploys(world, "upgrade", &chart(), &without, &WAIT).await?;
    is_unregistered(world).await?;
    ask(world, &[80, 80]).await.context("nobody checks it")?;
    deploys(world, "upgrade", &chart(), &values(json!({})), &WAIT).await?;
    serves(world, 2).await?;
    none_failed(traffic).await?;

    // It is at work: what fails is noticed.
    vm.close(8080).await;
    world.lb_reason(ns, ns, "BackendsUnhealthy").await?;
    vm.listen(8080)?;
    world.lb_reason(ns, ns, "Ready").await?;
    world.answered_by(vip, 80, &["c1"]).await?;

    let traffic = Traffic::start(&world.cluster, vip, 80, Duration::from_millis(50));
    // What the Go operator does not know is named, and does not keep the release.
    let later = "chart-later";
    let exclude = json!({"loadbalancer.harvesterhci.io/exclude": "10.71.0.9"});
    let pool = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool",
        "metadata": {"name": later, "annotations": exclude},
        "spec": {"ranges": [fixtures::subnet("10.71.0.0/24")]},
    });
    world.cluster.apply(&pool).await?;
    let args = ["uninstall", RELEASE, WAIT[0], WAIT[1]];
    let said = hooks_of(world, &args).await?;
    ensure!(
        said.contains("maps written") && said.contains(&format!("IPPool {later}")),
        "{said}"
    );
    ended_in_order(&said)?;
    world
        .pools()
        .delete(later, &DeleteParams::default())
        .await?;
    is_left_behind(world, (ns, ns), vip).await?;
    let kind = "ValidatingWebhookConfiguration";
    let group = "admissionregistration.k8s.io/v1";
    let others = world.cluster.get(group, kind, None, "of-others").await?;
    ensure!(
        others.is_some(),
        "the webhook configuration of others is gone"
    );
    deploys(world, "install", &chart(), &values(json!({})), &WAIT).await?;
    serves(world, 2).await?;
    helm_does(world, &test).await?;
    let after = world.services(ns).get(ns).await?;
    ensure!(before.uid() == after.uid(), "another Service");
    helm_does(world, &args).await?;
    is_left_behind(world, (ns, ns), vip).await?;
    none_failed(traffic).await
}
