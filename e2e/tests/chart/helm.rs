//! Runs helm as an administrator would, on the chart of this repository or on a copy of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::repository;
use serde_json::{Value, json};

/// The namespace of Harvester's own release, and of the releases of these tests.
pub const NAMESPACE: &str = "harvester-system";
/// Name of the releases.
pub const RELEASE: &str = "harvester-lb";
/// Timeout of a command. Helm's own timeouts are shorter and say more.
const LIMIT: Duration = Duration::from_mins(5);

/// Files with values are numbered.
static FILES: AtomicU32 = AtomicU32::new(0);

/// The chart of this repository.
pub fn chart() -> PathBuf {
    repository().join("charts/harvester-load-balancer")
}

/// What a command has said.
#[derive(Debug)]
pub struct Said {
    pub success: bool,
    pub out: String,
    pub error: String,
}

/// Runs a command of helm.
pub async fn helm(world: &World, args: &[&str]) -> anyhow::Result<Said> {
    let command = tokio::process::Command::new("helm")
        .args(args)
        .args(["--namespace", NAMESPACE])
        .env("KUBECONFIG", world.cluster.kubeconfig("admin")?)
        .env("HOME", world.cluster.folder())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, command)
        .await
        .with_context(|| format!("helm {} does not end", args.join(" ")))?
        .context("helm cannot be started")?;
    Ok(Said {
        success: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a command that must succeed, and returns its standard output.
pub async fn helm_does(world: &World, args: &[&str]) -> anyhow::Result<String> {
    Ok(succeeds(world, args).await?.out)
}

/// Runs a command that must succeed, and returns the logs of its hooks, which are on standard error.
pub async fn hooks_of(world: &World, args: &[&str]) -> anyhow::Result<String> {
    Ok(succeeds(world, args).await?.error)
}

async fn succeeds(world: &World, args: &[&str]) -> anyhow::Result<Said> {
    let said = helm(world, args).await?;
    let (out, error) = (&said.out, &said.error);
    ensure!(said.success, "helm {}:\n{out}\n{error}", args.join(" "));
    Ok(said)
}

/// A file with values, for `-f`. YAML, as JSON is.
pub fn file(world: &World, values: &Value) -> anyhow::Result<String> {
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = world.cluster.folder().join(format!("values-{number}.yaml"));
    std::fs::write(&path, values.to_string())?;
    text(&path)
}

/// `helm install` or `helm upgrade` of a chart with values.
pub async fn deploy(
    world: &World,
    command: &str,
    chart: &Path,
    values: &Value,
    flags: &[&str],
) -> anyhow::Result<Said> {
    let (chart, values) = (text(chart)?, file(world, values)?);
    let args = [command, RELEASE, &chart, "-f", &values];
    helm(world, &[&args[..], flags].concat()).await
}

/// [`deploy`] that must succeed.
pub async fn deploys(
    world: &World,
    command: &str,
    chart: &Path,
    values: &Value,
    flags: &[&str],
) -> anyhow::Result<String> {
    let said = deploy(world, command, chart, values, flags).await?;
    let (out, error) = (&said.out, &said.error);
    ensure!(said.success, "helm {command}:\n{out}\n{error}");
    Ok(said.out)
}

/// The objects that the chart renders, hooks and tests included.
pub async fn rendered(world: &World, values: &Value) -> anyhow::Result<Vec<Value>> {
    let (chart, values) = (text(&chart())?, file(world, values)?);
    let args = ["template", RELEASE, &chart, "-f", &values];
    documents(&helm_does(world, &args).await?)
}

/// The documents of a YAML text.
pub fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(all.into_iter().filter(|d| !d.is_null()).collect())
}

/// Removes the release of an earlier test, without its hooks. CRDs and their objects stay.
pub async fn uninstalled(world: &World) -> anyhow::Result<()> {
    let args = [
        "uninstall",
        RELEASE,
        "--ignore-not-found",
        "--no-hooks",
        "--wait",
    ];
    helm_does(world, &args).await.map(drop)
}

/// Removes the release of an earlier test, our CRDs and all their objects: a cluster without any of ours.
pub async fn bare(world: &World) -> anyhow::Result<()> {
    uninstalled(world).await?;
    let all = ["loadbalancers", "ippools", "ipallocations"];
    for kind in all {
        let name = format!("{kind}.loadbalancer.harvesterhci.io");
        let args = ["delete", "crd", &name, "--ignore-not-found", "--wait"];
        world.cluster.kubectl(&args).await?;
    }
    Ok(())
}

/// Finds an object by kind and name.
pub fn object<'a>(objects: &'a [Value], kind: &str, name: &str) -> anyhow::Result<&'a Value> {
    let found = objects
        .iter()
        .find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
    found.with_context(|| {
        let all: Vec<String> = objects.iter().map(id).collect();
        format!("no {kind} {name} in {all:?}")
    })
}

/// Kind, namespace and name.
pub fn id(object: &Value) -> String {
    let metadata = &object["metadata"];
    let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{} {}/{}",
        part(&object["kind"]),
        part(&metadata["namespace"]),
        part(&metadata["name"])
    )
}

/// Values with an image that no Pod gets: for tests without Pods.
pub fn without_pods() -> Value {
    json!({"replicaCount": 0})
}

fn text(path: &Path) -> anyhow::Result<String> {
    Ok(path.to_str().context("the path is no text")?.to_owned())
}
