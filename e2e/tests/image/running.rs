//! Operator and webhook as Pods of the image, without a shell, a writable file system or any right on their node. The
//! operator finds the API server by the name of its Service; the API server calls the webhook over TLS.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::image::{NAME, unpack};
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_e2e::{World, webhook};
use harvester_lb_fixtures::with;
use harvester_lb_testkit::{Dns, PodRunner, PodRunnerOptions, TestCluster, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

/// Namespace of the ServiceAccounts of rbac.yaml and rbac-webhook.yaml.
const NS: &str = webhook::NAMESPACE;
const ACCOUNT: &str = "harvester-lb-operator";
const POD: &str = "operator";
const WEBHOOK: &str = "webhook";
const CONTAINER: &str = "main";
/// Name of the API server's Service, which its certificate has too.
const SERVER: &str = "kubernetes.default.svc";
/// A name with the same address, which its certificate does not have.
const OTHER: &str = "elsewhere.default.svc";
/// Address of the API server's Service.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 1);
/// Timeout of a command: `check` waits 10 s for the status of pools.
const LIMIT: Duration = Duration::from_mins(1);

pub async fn image_runs_resolves_names_and_verifies_the_api_server(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let cluster = &world.cluster;
    world.namespace(NS).await?;
    for file in ["rbac.yaml", "rbac-check.yaml"] {
        let path = repository().join("docs/examples").join(file);
        cluster.apply_yaml(&std::fs::read_to_string(path)?).await?;
    }
    for server in [SERVER, OTHER] {
        cluster.apply(&kubeconfig(server)).await?;
    }
    let dns = Dns::dnsmasq(cluster, &[(SERVER, SERVICE), (OTHER, SERVICE)]).await?;
    let runner = runner(cluster, "image-running").await?;
    let pods: Api<Pod> = Api::namespaced(world.client(), NS);

    let mut wrong = operator("wrong-name", OTHER, &["check"]);
    wrong["spec"]["restartPolicy"] = json!("Never");
    cluster.apply(&wrong).await?;
    cluster.apply(&operator(POD, SERVER, &[])).await?;
    eventually("the operator is ready", SOON, || async {
        let pod = pods.get(POD).await?;
        let log = runner.log(NS, POD, CONTAINER);
        ensure!(is_ready(&pod), "{:?}\n{log}", pod.status);
        Ok(Some(()))
    })
    .await?;
    let log = dns.process().log();
    ensure!(log.contains(&format!("{SERVER} is {SERVICE}")), "{log}");

    commands(&runner).await?;
    huge_pages_are_off(&runner)?;

    let ended = eventually("the wrong name is refused", LIMIT, || async {
        Ok(terminated(&pods.get("wrong-name").await?))
    })
    .await?;
    let log = runner.log(NS, "wrong-name", CONTAINER);
    ensure!(ended.exit_code == 2, "{ended:?}\n{log}");
    ensure!(log.contains("certificate"), "{log}");

    // As process 1 it gets no signal that it does not handle.
    let leases: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    pods.delete(POD, &DeleteParams::default()).await?;
    eventually("the operator has given up its Lease", SOON, || async {
        let lease = leases.get("harvester-load-balancer").await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        let gone = pods.get_opt(POD).await?.is_none();
        let holder = holder.unwrap_or_default();
        ensure!(gone && holder.is_empty(), "{gone}: {holder:?}");
        Ok(Some(()))
    })
    .await?;
    runner.stop().await;
    Ok(())
}

pub async fn image_serves_tls_to_the_api_server(world: Arc<World>) -> anyhow::Result<()> {
    let cluster = &world.cluster;
    webhook::permissions(&world).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": NS, "name": webhook::SERVICE},
        "spec": {
            "selector": {"app": WEBHOOK},
            "ports": [{"name": "https", "port": 443, "targetPort": webhook::HTTPS}],
        },
    });
    cluster.apply(&service).await?;
    // Nobody else refuses or completes a pool.
    webhook::is_unasked(&world).await?;
    let runner = runner(cluster, "image-serving").await?;
    // It finds the API server by the variables that each Pod has.
    let container = json!({"command": ["harvester-load-balancer-webhook"]});
    let webhook_pod = pod(WEBHOOK, webhook::ACCOUNT, container);
    cluster.apply(&webhook_pod).await?;
    // Asked through its Service: a wrong pool is refused with 422, a right one completed.
    let answered = webhook::answers(&world).await;
    answered.with_context(|| runner.log(NS, WEBHOOK, CONTAINER))?;
    runner.stop().await;
    Ok(())
}

/// What can be executed in the operator's container, and what cannot.
async fn commands(runner: &PodRunner) -> anyhow::Result<()> {
    let version = format!(" {}\n", env!("CARGO_PKG_VERSION"));
    for command in ["harvester-load-balancer", "harvester-load-balancer-webhook"] {
        let (code, output) = exec(runner, &[command, "--version"]).await?;
        ensure!(code == 0 && output.ends_with(&version), "{code}: {output}");
    }
    let (code, output) = exec(runner, &["harvester-load-balancer", "check"]).await?;
    ensure!(code == 0, "check: {code}: {output}");
    for shell in ["sh", "/bin/sh", "/bin/busybox"] {
        let (code, output) = exec(runner, &[shell, "-c", "true"]).await?;
        ensure!(code == 126, "{shell}: {code}: {output}");
    }
    Ok(())
}

async fn exec(runner: &PodRunner, command: &[&str]) -> anyhow::Result<(i32, String)> {
    runner.exec(NS, POD, CONTAINER, command, LIMIT).await
}

/// The setting of the allocator is compiled in (.cargo/config.toml).
fn huge_pages_are_off(runner: &PodRunner) -> anyhow::Result<()> {
    let pid = runner.pid(NS, POD, CONTAINER)?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("THP_enabled:"));
    let value = line.context("the kernel does not say whether huge pages are enabled")?;
    ensure!(value.trim() == "0", "THP_enabled: {value}");
    eprintln!(
        "largest resident memory of the operator: {} KiB",
        runner.peak_memory_kib(NS, POD, CONTAINER)?
    );
    Ok(())
}

/// Runs Pods of the image, unpacked to this folder.
async fn runner(cluster: &TestCluster, folder: &str) -> anyhow::Result<PodRunner> {
    let mut options = PodRunnerOptions {
        namespaces: vec![NS.to_owned()],
        ..PodRunnerOptions::default()
    };
    let image = unpack(&cluster.folder().join(folder))?;
    options.images.insert(NAME.into(), image);
    PodRunner::start(cluster, options).await
}

/// A kubeconfig with the API server at this name, in a ConfigMap of that name. Credentials are those of the Pod.
fn kubeconfig(server: &str) -> Value {
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "main",
        "clusters": [{"name": "main", "cluster": {
            "server": format!("https://{server}"), "certificate-authority": format!("{account}/ca.crt"),
        }}],
        "users": [{"name": "main", "user": {"tokenFile": format!("{account}/token")}}],
        "contexts": [{"name": "main", "context": {"cluster": "main", "user": "main"}}],
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": server, "namespace": NS},
        "data": {"kubeconfig": config.to_string()},
    })
}

/// A Pod of the operator that finds the API server by this name.
fn operator(name: &str, server: &str, args: &[&str]) -> Value {
    let container = json!({
        "command": ["harvester-load-balancer"], "args": args,
        "env": [
            {"name": "KUBECONFIG", "value": "/config/kubeconfig"},
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": true}],
    });
    let mut pod = pod(name, ACCOUNT, container);
    pod["spec"]["volumes"] = json!([{"name": "config", "configMap": {"name": server}}]);
    pod
}

/// A Pod of the image, under the restricted Pod Security Standard; `container` is what its container has besides.
fn pod(name: &str, account: &str, container: Value) -> Value {
    let of_all = json!({
        "name": CONTAINER, "image": NAME,
        "ports": [{"name": "admin", "containerPort": 8081}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "admin"}, "periodSeconds": 1},
        "securityContext": {
            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NS, "labels": {"app": name}},
        "spec": {
            "serviceAccountName": account,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [with(of_all, container)],
        },
    })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// How the container of a Pod has ended.
fn terminated(pod: &Pod) -> Option<ContainerStateTerminated> {
    let status = pod.status.as_ref()?;
    let container = status.container_statuses.as_ref()?.first()?;
    container.state.as_ref()?.terminated.clone()
}
