//! The kubectl commands that the documents show, run one after the other as a reader would, on the objects that the
//! documents speak of: the first load balancer of the README, its virtual machines, kube-vip's Pods as Harvester names them.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::documents::{Command, kubectl_commands};
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_e2e::{Test, World, foreign, tests};
use harvester_lb_testkit::{Image, PodRunner, PodRunnerOptions, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::operator::restarted;

/// Namespace of Harvester's own Pods.
const SYSTEM: &str = "harvester-system";
/// A Pod of the operator, as the documents name it.
const OPERATOR: &str = "harvester-lb-operator-7d9f6c5b4-x2k8w";
/// The image of the stand-in for kube-vip's Pods.
const IMAGE: &str = "test/kube-vip:1";
/// Longest time for a command; those that wait have their own limits.
const LIMIT: Duration = Duration::from_secs(90);
/// Longest time in which the operator recreates what was deleted.
const RECREATED: Duration = Duration::from_secs(10);
/// Pause before a command is repeated.
const PAUSE: Duration = Duration::from_millis(500);

/// All tests.
pub fn all() -> Vec<Test> {
    tests![every_kubectl_command_of_the_documents_runs]
}

async fn every_kubectl_command_of_the_documents_runs(world: Arc<World>) -> anyhow::Result<()> {
    let commands = kubectl_commands()?;
    let _alone = restarted(&world).await?;
    managed_chart(&world).await?;
    let pods = kube_vip(&world).await?;
    operator_s_pod(&world).await?;
    let labels = [("app", "web")];
    let _first = world.vm("default", "web-1", &labels, 8080).await?;
    let _second = world.vm("default", "web-2", &labels, 8080).await?;

    let mut failed = Vec::new();
    for command in &commands {
        if let Err(error) = succeeds(&world, command).await {
            let Command {
                document,
                line,
                text,
            } = command;
            failed.push(format!("{document}:{line}: {text}: {error:#}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));

    let now = world.lb_reason("default", "hello", "Ready").await;
    now.context("the first load balancer after all commands")?;
    world.delete_lb("default", "hello").await?;
    world.gone(&world.lbs("default"), "hello").await?;
    world.gone(&world.services("default"), "hello").await?;
    // Other examples have pools of the same network.
    let delete = DeleteParams::default();
    world.pools().delete("lan", &delete).await?;
    for name in ["web-1", "web-2"] {
        world.vmis("default").delete(name, &delete).await?;
    }
    world
        .cluster
        .delete("v1", "Pod", Some(SYSTEM), OPERATOR)
        .await?;
    world
        .cluster
        .delete("apps/v1", "DaemonSet", Some(SYSTEM), "kube-vip")
        .await?;
    pods.stop().await;
    Ok(())
}

/// Runs a command until it succeeds: what an earlier one has deleted is recreated a moment later.
async fn succeeds(world: &World, command: &Command) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let result = run(world, command).await;
        if result.is_ok() || began.elapsed() > RECREATED {
            return result;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs a command in a shell at the root of the repository.
async fn run(world: &World, command: &Command) -> anyhow::Result<()> {
    let folder = world.cluster.folder();
    let path = std::env::var("PATH").unwrap_or_default();
    let shell = tokio::process::Command::new("sh")
        .args(["-c", &command.text])
        .current_dir(repository())
        .env("KUBECONFIG", world.cluster.kubeconfig("admin")?)
        .env("HOME", folder)
        .env("PATH", format!("{}:{path}", folder.join("bin").display()))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, shell)
        .await
        .context("it does not end")??;
    let error = String::from_utf8_lossy(&output.stderr);
    // The documents create what may be there already.
    let is_there = error
        .lines()
        .all(|line| line.starts_with("Error from server (AlreadyExists)"));
    ensure!(
        output.status.success() || (is_there && !error.is_empty()),
        "{}: {}",
        output.status,
        error.trim()
    );
    Ok(())
}

/// The chart of Harvester's release, as far as a reader patches it.
async fn managed_chart(world: &World) -> anyhow::Result<()> {
    let api_version = "management.cattle.io/v3";
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    foreign::define(world, api_version, "ManagedChart", &spec).await?;
    namespace(world, "fleet-local").await?;
    let chart = json!({
        "apiVersion": api_version, "kind": "ManagedChart",
        "metadata": {"name": "harvester", "namespace": "fleet-local"},
        "spec": {"values": {}},
    });
    eventually("ManagedChart harvester", SOON, || async {
        world.cluster.apply(&chart).await.map(Some)
    })
    .await
    .map(drop)
}

async fn namespace(world: &World, name: &str) -> anyhow::Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    world.cluster.apply(&object).await.map(drop)
}

/// A Pod in whose place the operator runs as a program: the API server finds it at the Pod's address.
async fn operator_s_pod(world: &World) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": OPERATOR, "namespace": SYSTEM,
            "labels": {"app.kubernetes.io/part-of": "harvester-load-balancer"},
        },
        "spec": {
            "schedulerName": "nobody", "containers": [{"name": "operator", "image": IMAGE}],
        },
    });
    world.cluster.apply(&pod).await?;
    let address = world.node_address("node1")?.to_string();
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    let pods: Api<Pod> = Api::namespaced(world.client(), SYSTEM);
    let (params, patch) = (PatchParams::default(), Patch::Merge(status));
    pods.patch_status(OPERATOR, &params, &patch).await?;
    Ok(())
}

/// Pods with the names and labels of Harvester's kube-vip, which write a log. The test cluster's kube-vip is no Pod.
async fn kube_vip(world: &World) -> anyhow::Result<PodRunner> {
    let cluster = &world.cluster;
    let folder = cluster.folder().join("kube-vip-image");
    // Prints a file, and then waits for more of it.
    let image = Image::of_program(Path::new("/usr/bin/tail"), &folder)?;
    let image = image.entrypoint(&["/program", "-f", "/etc/hosts"]);
    let mut options = PodRunnerOptions {
        namespaces: vec![SYSTEM.to_owned()],
        ..PodRunnerOptions::default()
    };
    options.images.insert(IMAGE.to_owned(), image);
    let pods = PodRunner::start(cluster, options).await?;
    namespace(world, SYSTEM).await?;
    let labels = json!({
        "app.kubernetes.io/name": "kube-vip", "app.kubernetes.io/instance": "harvester",
    });
    cluster
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "kube-vip", "namespace": SYSTEM},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "containers": [{"name": "kube-vip", "image": IMAGE}],
                    "terminationGracePeriodSeconds": 1,
                }},
            },
        }))
        .await?;
    eventually("kube-vip's Pods", SOON, || async {
        let rollout = ["rollout", "status", "daemonset/kube-vip", "--timeout=1s"];
        let all = [&["--namespace", SYSTEM][..], &rollout[..]].concat();
        cluster.kubectl(&all).await.map(Some)
    })
    .await?;
    Ok(pods)
}
