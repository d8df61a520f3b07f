//! The Pod runner: Deployments, Jobs and DaemonSets of the real controller manager, with this test binary as their
//! program. Shared by its tests: the runner, namespaces, manifests.

pub(crate) mod ends;
pub(crate) mod inside;
pub(crate) mod network;
pub(crate) mod nodes;

use std::path::Path;

use anyhow::{Context, ensure};
use harvester_lb_testkit::{Image, PodRunner, PodRunnerOptions, TestCluster, eventually};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::program::PROGRAM;
use crate::support::SOON;

/// Name of the image with this binary.
pub(crate) const IMAGE: &str = "test/program:1";

/// The image with this binary; once in each cluster.
pub(crate) fn image(cluster: &TestCluster) -> anyhow::Result<Image> {
    let folder = cluster.folder().join("program");
    let image = Image::of_program(Path::new("/proc/self/exe"), &folder)?;
    Ok(image.entrypoint(&["/program", PROGRAM]).user(65532, 65532))
}

/// A runner of all Pods of the cluster.
pub(crate) async fn start(cluster: &TestCluster, image: Image) -> anyhow::Result<PodRunner> {
    let mut options = PodRunnerOptions::default();
    options.images.insert(IMAGE.into(), image);
    PodRunner::start(cluster, options).await
}

/// A namespace in which Pods can be created.
pub(crate) async fn namespace(cluster: &TestCluster, name: &str) -> anyhow::Result<()> {
    cluster
        .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), name);
    eventually("default ServiceAccount", SOON, || async {
        Ok(accounts.get_opt("default").await?.map(|_| ()))
    })
    .await
}

/// A container that serves, with a readiness probe each second; `more` overrides its fields.
pub(crate) fn serving(more: &Value) -> Value {
    let mut container = json!({
        "name": "main", "image": IMAGE, "args": ["serve"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    container
}

/// A Deployment of a container; `pod` has further fields of the Pod's spec.
pub(crate) fn deployment(
    namespace: &str,
    name: &str,
    replicas: u8,
    container: &Value,
    pod: &Value,
) -> Value {
    let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 5});
    for (field, value) in pod.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}

/// Each Pod on a node of its own.
pub(crate) fn apart(name: &str) -> Value {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}});
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

/// A Service for the Pods of a Deployment.
pub(crate) fn service(namespace: &str, name: &str, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": name}, "ports": ports},
    })
}

/// A Pod of its own, with a container that serves.
pub(crate) fn pod(namespace: &str, name: &str, container: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    })
}

pub(crate) fn pods(cluster: &TestCluster, namespace: &str) -> Api<Pod> {
    Api::namespaced(cluster.client(), namespace)
}

/// Waits until a Deployment is complete, and returns its Pods.
pub(crate) async fn available(
    cluster: &TestCluster,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Vec<Pod>> {
    eventually(&format!("Deployment {name} available"), SOON, || async {
        let found = cluster.get("apps/v1", "Deployment", Some(namespace), name);
        let data = found.await?.context("no Deployment")?;
        let number = |path: &str| data.data.pointer(path).and_then(Value::as_i64).unwrap_or(0);
        let generation = data.metadata.generation;
        let labelled = ListParams::default().labels(&format!("app={name}"));
        let list = pods(cluster, namespace).list(&labelled).await?.items;
        let wanted = number("/spec/replicas");
        for path in [
            "/status/replicas",
            "/status/updatedReplicas",
            "/status/availableReplicas",
        ] {
            ensure!(number(path) == wanted, "{}", statuses(&list));
        }
        ensure!(Some(number("/status/observedGeneration")) == generation);
        let lives = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
        Ok(Some(list.into_iter().filter(lives).collect()))
    })
    .await
}

/// What the Pods say about themselves, for messages of tests.
fn statuses(pods: &[Pod]) -> String {
    let status = |pod: &Pod| serde_json::to_string(&pod.status).unwrap_or_default();
    pods.iter().map(status).collect::<Vec<_>>().join("\n")
}

/// Waits until a Pod satisfies a condition.
pub(crate) async fn pod_until(
    cluster: &TestCluster,
    namespace: &str,
    name: &str,
    condition: impl Fn(&Pod) -> bool,
) -> anyhow::Result<Pod> {
    let api = pods(cluster, namespace);
    eventually(&format!("Pod {name}"), SOON, || async {
        let pod = api.get(name).await?;
        ensure!(condition(&pod), "{:?}", pod.status);
        Ok(Some(pod))
    })
    .await
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

pub(crate) fn node_of(pod: &Pod) -> String {
    pod.spec
        .as_ref()
        .and_then(|s| s.node_name.clone())
        .unwrap_or_default()
}

pub(crate) fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

/// Waits until a Pod does not exist.
pub(crate) async fn gone(cluster: &TestCluster, namespace: &str, name: &str) -> anyhow::Result<()> {
    let api = pods(cluster, namespace);
    eventually(&format!("Pod {name} gone"), SOON, || async {
        Ok(api.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}
