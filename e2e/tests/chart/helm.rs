//! Runs helm as an administrator would, on the chart of this repository or on a copy of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::repository;
use harvester_lb_fixtures::with;
use serde_json::{Value, json};

/// The namespace of Harvester's own release, and of the releases of these tests.
pub const NAMESPACE: &str = "harvester-system";
/// Name of the webhook's configurations, whoever serves them.
pub const CONFIGURATION: &str = "harvester-load-balancer-webhook";
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
    helm_in(world, NAMESPACE, args).await
}

/// Runs a command of helm for a release in a namespace.
async fn helm_in(world: &World, namespace: &str, args: &[&str]) -> anyhow::Result<Said> {
    let command = tokio::process::Command::new("helm")
        .args(args)
        .args(["--namespace", namespace])
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
    Ok(succeeded(args, helm(world, args).await?)?.out)
}

/// Runs a command that must succeed, and returns the logs of its hooks, which are on standard error.
pub async fn hooks_of(world: &World, args: &[&str]) -> anyhow::Result<String> {
    Ok(succeeded(args, helm(world, args).await?)?.error)
}

fn succeeded(args: &[&str], said: Said) -> anyhow::Result<Said> {
    let (out, error) = (&said.out, &said.error);
    ensure!(said.success, "helm {}:\n{out}\n{error}", args.join(" "));
    Ok(said)
}

/// A file with values, for `-f`. YAML, as JSON is.
pub fn file(world: &World, values: &Value) -> anyhow::Result<String> {
    // Without an image nothing is rendered.
    let image = json!({"image": {"repository": "registry.example.com/harvester-load-balancer"}});
    let values = with(image, values.clone());
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
    rendered_in(world, NAMESPACE, values).await
}

/// [`rendered`] for a release in a namespace.
pub async fn rendered_in(
    world: &World,
    namespace: &str,
    values: &Value,
) -> anyhow::Result<Vec<Value>> {
    let (chart, values) = (text(&chart())?, file(world, values)?);
    let args = ["template", RELEASE, &chart, "-f", &values];
    let said = helm_in(world, namespace, &args).await?;
    documents(&succeeded(&args, said)?.out)
}

/// The documents of a YAML text.
pub fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(all.into_iter().filter(|d| !d.is_null()).collect())
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

/// Values for tests without Pods.
pub fn without_pods() -> Value {
    json!({"replicaCount": 0, "webhook": {"replicasCount": 0}})
}

/// A copy of the chart, which a test changes.
pub fn copy_of_chart(world: &World, name: &str) -> anyhow::Result<PathBuf> {
    let folder = world.cluster.folder().join(name);
    copy(&chart(), &folder)?;
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().context("no name")?);
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            std::fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

fn text(path: &Path) -> anyhow::Result<String> {
    Ok(path.to_str().context("the path is no text")?.to_owned())
}
