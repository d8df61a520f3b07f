//! Several test clusters, in one process and in two, and what is left of one that was killed or panicked: nothing.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use harvester_lb_testkit::{TestCluster, TestClusterOptions, apart, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::pods;
use crate::support::SOON;

/// Set in a second process of this binary, to its task.
pub(crate) const ROLE: &str = "BED_TEST_ROLE";

/// Marks the second process and its children.
const MARKER: &str = "BED_TEST_MARKER";

pub(crate) async fn two_beds_in_one_process(cluster: &TestCluster) -> anyhow::Result<()> {
    let options = TestClusterOptions {
        nodes: 1,
        kube_vip: false,
        audit: true,
        ..Default::default()
    };
    let other = TestCluster::start(options).await?;
    let audit = std::fs::read_to_string(other.audit())?;
    ensure!(
        audit.contains("\"username\":\"system:kube-proxy\""),
        "{audit}"
    );
    let (vm, twin) = (cluster.add_vm("twin")?, other.add_vm("twin")?);
    vm.listen(8080)?;
    ensure!(other.kubectl(&["get", "nodes", "-o", "name"]).await?.trim() == "node/node1");
    let refused = other
        .client_get(twin.address(), 8080)
        .await
        .map_err(|e| e.kind());
    ensure!(refused == Err(ErrorKind::ConnectionRefused), "{refused:?}");
    pods_of_another_runner(&other).await?;
    let pid = other.process("etcd")?.pid();
    drop(other);
    ensure!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "etcd outlives its bed"
    );
    ensure!(cluster.client_get(vm.address(), 8080).await? == "twin");
    Ok(())
}

/// Pods run in a test cluster that is not the first of its process, and another runner takes them on.
async fn pods_of_another_runner(cluster: &TestCluster) -> anyhow::Result<()> {
    let (ns, name) = ("pods-again", "again");
    pods::namespace(cluster, ns).await?;
    cluster
        .apply(&pods::pod(ns, name, &pods::serving(&json!({}))))
        .await?;
    let image = pods::image(cluster)?;
    let mut pids = Vec::new();
    for _ in 0..2 {
        let runner = pods::start(cluster, image.clone()).await?;
        let served = eventually("answer of the Pod", SOON, || async {
            let (code, body) = runner.get(ns, name, 8080, "/").await?;
            ensure!(code == 200, "{code}");
            Ok(Some(body))
        });
        ensure!(served.await? == name);
        let address = Some(runner.address(ns, name)?.to_string());
        pods::pod_until(cluster, ns, name, |pod| {
            let ip = pod.status.as_ref().and_then(|s| s.pod_ip.clone());
            pods::is_ready(pod) && ip == address
        })
        .await?;
        pids.push(runner.pid(ns, name, "main")?);
        runner.stop().await;
        // As if the next one gave it another address.
        let old = json!({"status": {"podIP": "10.52.1.99", "podIPs": [{"ip": "10.52.1.99"}]}});
        pods::pods(cluster, ns)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(old))
            .await?;
    }
    ensure!(pids[0] != pids[1], "{pids:?}");
    Ok(())
}

/// The task of a second process of this binary, in a separate test cluster.
pub(crate) async fn second_process(role: &str) -> ExitCode {
    let cluster = TestCluster::start(TestClusterOptions {
        nodes: 1,
        ..Default::default()
    })
    .await
    .unwrap();
    println!("ready {}", cluster.nodes().len());
    assert!(role != "panic", "as told");
    std::future::pending().await
}

fn start_second(role: &str, marker: &str) -> anyhow::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    apart(&mut command)
        .env(ROLE, role)
        .env(MARKER, marker)
        .stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    if line.trim() != "ready 1" {
        bail!("the second process said {line:?}");
    }
    Ok(child)
}

/// Number of processes with the marker in their environment. Processes of inner pid namespaces appear in the outer
/// /proc too.
fn marked(marker: &str) -> anyhow::Result<usize> {
    let wanted = format!("{MARKER}={marker}");
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        // A process can end while its files are read.
        let environ = std::fs::read(entry?.path().join("environ")).unwrap_or_default();
        count += usize::from(environ.split(|b| *b == 0).any(|v| v == wanted.as_bytes()));
    }
    Ok(count)
}

async fn none_left(marker: &str) -> anyhow::Result<()> {
    eventually("nothing outlives the bed", SOON, || async {
        let left = marked(marker)?;
        ensure!(left == 0, "{left} processes left");
        Ok(Some(()))
    })
    .await
}

pub(crate) async fn two_beds_in_two_processes_and_nothing_outlives_a_kill(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let mut child = start_second("hold", "killed")?;
    // Three of this binary, etcd, API server, controller manager, proxy; kube-vip has a different environment.
    let count = marked("killed")?;
    ensure!(count >= 7, "only {count} processes are marked");
    ensure!(
        cluster
            .kubectl(&["get", "nodes", "-o", "name"])
            .await?
            .contains("node2")
    );
    child.kill()?;
    child.wait()?;
    none_left("killed").await
}

pub(crate) async fn nothing_outlives_a_panic(_bed: &TestCluster) -> anyhow::Result<()> {
    let mut child = start_second("panic", "panicked")?;
    let status = child.wait()?;
    ensure!(!status.success(), "{status}");
    none_left("panicked").await
}
