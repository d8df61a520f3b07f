//! Shared by the tests of releases with Pods: the image, the values, and what must hold while a release is there and after it.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{Phase, condition};
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::TEST_TIMINGS;
use harvester_lb_fixtures::{vm_spec, with};
use harvester_lb_testkit::{Image, Traffic, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use crate::crds::{LOAD_BALANCERS, definition};
use crate::helm::{CONFIGURATION, NAMESPACE};

/// Repository of the image of these tests.
pub const REPOSITORY: &str = "test/harvester-load-balancer";
/// Its tag.
pub const TAG: &str = "v1";
/// The tag of the version that follows. Its program is the same.
pub const NEXT_TAG: &str = "v2";
/// Longest time until a change of a release is done.
pub const SOON: Duration = Duration::from_mins(1);
/// Flags of helm.
pub const WAIT: [&str; 2] = ["--wait", "--timeout=4m"];

/// An image of the program that the tests run, with both names under which the charts call it. It is large and made once. Not
/// that of `make image`: a program as shipped ignores the intervals of tests.
pub fn image(world: &World) -> anyhow::Result<Image> {
    let root = world.cluster.folder().join("chart-image");
    let bin = root.join("usr/bin");
    let webhook = bin.join("harvester-load-balancer-webhook");
    if !webhook.is_symlink() {
        Image::of_program(world.binary(), &root)?;
        std::fs::create_dir_all(&bin)?;
        let program = bin.join("harvester-load-balancer");
        std::fs::rename(root.join("program"), &program)?;
        std::fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        symlink("harvester-load-balancer", webhook)?;
    }
    let image = Image::new(root).user(65532, 65532);
    Ok(image.env("HLB_TIMINGS", TEST_TIMINGS))
}

/// Values for this image.
pub fn values(more: Value) -> Value {
    with(
        json!({
            "image": {"repository": REPOSITORY, "tag": TAG},
            "logLevel": "info,harvester_load_balancer=debug",
        }),
        more,
    )
}

/// Deployments of the namespace of releases.
pub fn deployments(world: &World) -> Api<Deployment> {
    Api::namespaced(world.client(), NAMESPACE)
}

/// The leader, as the Lease names it; empty if it is free.
pub async fn leader(world: &World) -> anyhow::Result<String> {
    let leases: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    let lease = leases.get_opt("harvester-load-balancer").await?;
    let spec = lease.and_then(|lease| lease.spec);
    Ok(spec.and_then(|s| s.holder_identity).unwrap_or_default())
}

/// Waits until this number of operators are ready, and one of them is leader, and until the webhook answers.
pub async fn serves(world: &World, replicas: i32) -> anyhow::Result<()> {
    eventually("the operators of the release", SOON, || async {
        let found = deployments(world).get("harvester-lb-operator").await?;
        let status = found.status.unwrap_or_default();
        ensure!(status.available_replicas == Some(replicas), "{status:?}");
        let leader = leader(world).await?;
        ensure!(
            leader.starts_with("harvester-lb-operator-"),
            "leader: {leader:?}"
        );
        Ok(Some(()))
    })
    .await?;
    checked(world).await
}

/// Asks for a LoadBalancer without storing it; `ports` are those of its listeners.
pub async fn ask(world: &World, ports: &[i64]) -> kube::Result<()> {
    let listener = |port: &i64| harvester_lb_fixtures::listener("", "TCP", *port, 8080);
    let listeners: Vec<Value> = ports.iter().map(listener).collect();
    let spec = with(vm_spec("web"), json!({ "listeners": listeners }));
    let lb = json!({"metadata": {"name": "asked"}, "spec": spec});
    let lb = serde_json::from_value(lb).map_err(kube::Error::SerdeError)?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    world.lbs("default").create(&dry_run, &lb).await.map(drop)
}

/// Waits until the API server asks a webhook, which answers: a listener twice is refused by it alone (WV-3).
pub async fn checked(world: &World) -> anyhow::Result<()> {
    eventually("the webhook answers", SOON, || async {
        let (wrong, right) = (ask(world, &[80, 80]).await, ask(world, &[80]).await);
        let is_refused = matches!(&wrong, Err(kube::Error::Api(status)) if status.code == 422);
        ensure!(is_refused && right.is_ok(), "{wrong:?}, {right:?}");
        Ok(Some(()))
    })
    .await
}

/// The nodes that run the Pods of a Deployment.
pub async fn nodes(world: &World, deployment: &str) -> anyhow::Result<BTreeSet<String>> {
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/name={deployment}"));
    let list = pods.list(&ours).await?;
    let nodes = list
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
    Ok(nodes.collect())
}

/// Fails if the API server would still ask a webhook.
pub async fn is_unregistered(world: &World) -> anyhow::Result<()> {
    for kind in [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
    ] {
        let group = "admissionregistration.k8s.io/v1";
        let found = world.cluster.get(group, kind, None, CONFIGURATION).await?;
        ensure!(found.is_none(), "{kind} {CONFIGURATION} is still there");
    }
    let found = definition(world, LOAD_BALANCERS).await?;
    let conversion = &found["spec"]["conversion"];
    ensure!(conversion["strategy"] == "None", "{conversion}");
    let stored = &found["status"]["storedVersions"];
    ensure!(*stored == json!(["v1beta1"]), "{stored}");
    Ok(())
}

/// After an uninstall: what users have stays, complete and without conditions that nobody updates. The load balancer with its
/// address, and the pool of its namespace's name.
pub async fn is_left_behind(
    world: &World,
    (ns, name): (&str, &str),
    address: Ipv4Addr,
) -> anyhow::Result<()> {
    let gone = deployments(world).get_opt("harvester-lb-operator").await?;
    ensure!(gone.is_none(), "the Deployment is still there");
    is_unregistered(world).await?;
    ensure!(leader(world).await?.is_empty(), "the Lease is held");
    let lb = world.lbs(ns).get(name).await?;
    ensure!(allocated(&lb) == Some(address.to_string()), "{lb:?}");
    let status = lb.status.context("no status")?;
    let conditions = status.conditions.unwrap_or_default();
    ensure!(
        condition::find(&conditions, "Ready").is_some(),
        "{conditions:?}"
    );
    for detail in ["AddressAllocated", "Announced", "BackendsHealthy"] {
        ensure!(
            condition::find(&conditions, detail).is_none(),
            "{conditions:?}"
        );
    }
    world.services(ns).get(name).await?;
    world.slices(ns).get(name).await?;
    let record = world.records().get(&address.to_string()).await?;
    ensure!(record.spec.phase == Phase::Bound, "{:?}", record.spec);
    let pool = world.pools().get(ns).await?;
    let map = pool.status.context("no status")?.allocated;
    ensure!(
        serde_json::to_value(map)?[address.to_string()] == format!("{ns}/{name}"),
        "the map lacks {address}"
    );
    // Nothing of the release remains, its hooks included.
    for kind in ["clusterroles", "clusterrolebindings"] {
        let all = world.cluster.kubectl(&["get", kind, "-o=name"]).await?;
        ensure!(!all.contains("harvester-lb"), "{all}");
    }
    let kinds = "deployments,jobs,serviceaccounts,roles,rolebindings,services,networkpolicies,poddisruptionbudgets";
    for namespace in [NAMESPACE, "kube-system"] {
        let args = ["get", kinds, "-o=name", "-n", namespace];
        let all = world.cluster.kubectl(&args).await?;
        ensure!(!all.contains("harvester-lb"), "{all}");
    }
    Ok(())
}

/// Ends traffic of which no request may have failed.
pub async fn none_failed(traffic: Traffic) -> anyhow::Result<()> {
    let sent = traffic.records().len();
    let failed = traffic.into_failures().await;
    ensure!(failed.is_empty(), "of {sent} requests failed: {failed:?}");
    ensure!(sent > 50, "only {sent} requests");
    Ok(())
}
