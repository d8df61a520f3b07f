//! The life of a release with Pods: install, test, upgrade, rollback, uninstall, and install again, while requests to a load
//! balancer are sent all the time.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{Phase, condition};
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::TEST_TIMINGS;
use harvester_lb_fixtures::{self as fixtures, quick_check, with};
use harvester_lb_testkit::{Image, PodRunner, PodRunnerOptions, Traffic, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::helm::{NAMESPACE, RELEASE, bare, chart, deploys, helm_does, hooks_of};

/// Repository and tag of the image of the operator of these tests.
const REPOSITORY: &str = "test/harvester-load-balancer";
const TAG: &str = "v1";
/// Namespace, pool, load balancer and label of what is served.
const SERVED: &str = "chart-life";
/// Longest time until a change of the release is done.
const SOON: Duration = Duration::from_mins(1);
const WAIT: [&str; 2] = ["--wait", "--timeout=2m"];

/// An image with the operator that the tests run, under the name that the chart calls.
fn image(world: &World) -> anyhow::Result<Image> {
    let root = world.cluster.folder().join("chart-image");
    let image = Image::of_program(world.binary(), &root)?;
    let bin = root.join("usr/local/bin");
    std::fs::create_dir_all(&bin)?;
    let program = bin.join("harvester-load-balancer");
    std::fs::rename(root.join("program"), &program)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    Ok(image.entrypoint(&[]).user(65532, 65532))
}

fn values(more: Value) -> Value {
    with(
        json!({
            "image": {"repository": REPOSITORY, "tag": TAG},
            "logLevel": "info,harvester_load_balancer=debug",
            "extraEnv": [{"name": "HLB_TIMINGS", "value": TEST_TIMINGS}],
        }),
        more,
    )
}

fn deployments(world: &World) -> Api<Deployment> {
    Api::namespaced(world.client(), NAMESPACE)
}

/// The leader, as the Lease names it; empty if it is free.
async fn leader(world: &World) -> anyhow::Result<String> {
    let leases: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    let lease = leases.get_opt("harvester-load-balancer").await?;
    let spec = lease.and_then(|lease| lease.spec);
    Ok(spec.and_then(|s| s.holder_identity).unwrap_or_default())
}

/// Waits until this number of operators are ready on all nodes, and one of them is leader.
async fn serves(world: &World, replicas: i32) -> anyhow::Result<()> {
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
    .await
}

/// The number of nodes that run the operators.
async fn nodes(world: &World) -> anyhow::Result<usize> {
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let ours = ListParams::default().labels("app.kubernetes.io/name=harvester-lb-operator");
    let list = pods.list(&ours).await?;
    let nodes = list
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
    Ok(nodes.collect::<std::collections::BTreeSet<_>>().len())
}

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

/// After an uninstall: what users have stays, complete and without conditions that nobody updates.
async fn is_left_behind(world: &World, address: Ipv4Addr) -> anyhow::Result<()> {
    let gone = deployments(world).get_opt("harvester-lb-operator").await?;
    ensure!(gone.is_none(), "the Deployment is still there");
    ensure!(leader(world).await?.is_empty(), "the Lease is held");
    let lb = world.lbs(SERVED).get(SERVED).await?;
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
    world.services(SERVED).get(SERVED).await?;
    world.slices(SERVED).get(SERVED).await?;
    let record = world.records().get(&address.to_string()).await?;
    ensure!(record.spec.phase == Phase::Bound, "{:?}", record.spec);
    let pool = world.pools().get(SERVED).await?;
    let map = pool.status.context("no status")?.allocated;
    ensure!(
        serde_json::to_value(map)?[address.to_string()] == format!("{SERVED}/{SERVED}"),
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

pub async fn chart_lives_and_ends_under_traffic(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    world.cluster.apply(&of_others()).await?;
    let runner = PodRunner::start(&world.cluster, PodRunnerOptions::default()).await?;
    runner.add_image(&format!("{REPOSITORY}:{TAG}"), image(&world)?);
    let lived = life(&world).await;
    runner.stop().await;
    lived
}

async fn life(world: &World) -> anyhow::Result<()> {
    let ns = SERVED;
    deploys(world, "install", &chart(), &values(json!({})), &WAIT).await?;
    serves(world, 2).await?;
    ensure!(nodes(world).await? == 2, "both replicas are on one node");

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

    let before = world.services(ns).get(ns).await?;
    let traffic = Traffic::start(&world.cluster, vip, 80, Duration::from_millis(50));
    let three = values(json!({"replicaCount": 3, "backendDenyCIDRs": ["10.99.0.0/16"]}));
    deploys(world, "upgrade", &chart(), &three, &WAIT).await?;
    serves(world, 3).await?;
    let args = ["rollback", RELEASE, "1", WAIT[0], WAIT[1]];
    let said = hooks_of(world, &args).await?;
    ensure!(said.contains("maps written"), "{said}");
    serves(world, 2).await?;
    helm_does(world, &test).await?;
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
    world
        .pools()
        .delete(later, &DeleteParams::default())
        .await?;
    is_left_behind(world, vip).await?;
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
    is_left_behind(world, vip).await?;
    none_failed(traffic).await
}

/// Ends traffic of which no request may have failed.
async fn none_failed(traffic: Traffic) -> anyhow::Result<()> {
    let sent = traffic.records().len();
    let failed = traffic.into_failures().await;
    ensure!(failed.is_empty(), "of {sent} requests failed: {failed:?}");
    ensure!(sent > 50, "only {sent} requests");
    Ok(())
}
