//! The permissions in docs/examples/rbac.yaml: what the operator does while one is missing, and that the account of Harvester's
//! release keeps its own.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_testkit::eventually;
use serde_json::{Value, json};

use crate::documents::{apply, kubeconfig, rbac};
use crate::operator::without;

/// Node of these operators.
const NODE: &str = "node2";

/// All tests.
pub fn all() -> Vec<Test> {
    tests![
        a_missing_right_is_named_and_waited_for,
        the_account_of_harvesters_release_gains_rights_and_loses_none,
    ]
}

/// The same permissions under other names, for a separate operator.
fn renamed(mut permissions: Vec<Value>) -> Vec<Value> {
    let rename = |name: &mut Value| {
        if let Some(text) = name.as_str() {
            *name = format!("{text}-other").into();
        }
    };
    for object in &mut permissions {
        // The namespace is shared.
        if object["kind"] == "Namespace" {
            continue;
        }
        rename(&mut object["metadata"]["name"]);
        if let Some(role) = object.pointer_mut("/roleRef/name") {
            rename(role);
        }
        if let Some(subjects) = object
            .pointer_mut("/subjects")
            .and_then(Value::as_array_mut)
        {
            for subject in subjects {
                rename(&mut subject["name"]);
            }
        }
    }
    permissions
}

/// Removes a verb on a resource; returns the unchanged document.
fn take_away(permissions: &mut [Value], resource: &str, verb: &str) -> anyhow::Result<Value> {
    for object in permissions {
        let whole = object.clone();
        let mut found = false;
        let rules = object.pointer_mut("/rules").and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            let concerned = rule["resources"].as_array().unwrap();
            if !concerned.iter().any(|r| r == resource) {
                continue;
            }
            let verbs = rule["verbs"].as_array_mut().context("no verbs")?;
            let before = verbs.len();
            verbs.retain(|v| v != verb);
            found |= verbs.len() < before;
        }
        if found {
            return Ok(whole);
        }
    }
    bail!("rbac.yaml has no {verb} on {resource}")
}

async fn a_missing_right_is_named_and_waited_for(world: Arc<World>) -> anyhow::Result<()> {
    let _alone = without().await?;
    let mut permissions = renamed(rbac("rbac.yaml")?);
    let whole = take_away(&mut permissions, "endpointslices", "create")?;
    for object in &permissions {
        apply(&world, object).await?;
    }
    let kubeconfig = kubeconfig(&world, &permissions).await?;
    let operator = world.spawn_operator(NODE, &[], &[("KUBECONFIG", &kubeconfig)])?;
    let complaint = "no right to create endpointslices.discovery.k8s.io";
    eventually("/readyz names the missing right", SOON, || async {
        let (code, text) = world.get(NODE, "/readyz").await?;
        ensure!(
            code == 503 && text.contains(complaint),
            "{code}, it says {text}"
        );
        Ok(Some(()))
    })
    .await?;
    ensure!(
        operator.log().contains(complaint),
        "the log does not name it:\n{}",
        operator.tail()
    );
    // It retries.
    let before = requests(&world).await?;
    eventually("more looks", SOON, || async {
        Ok((requests(&world).await? > 3.0 * before).then_some(()))
    })
    .await?;
    ensure!(operator.is_running(), "it ended:\n{}", operator.tail());
    let said = operator.log().matches(complaint).count();
    ensure!(said == 1, "it says so {said} times");
    let (code, _) = world.get(NODE, "/healthz").await?;
    ensure!(code == 200, "/healthz is {code}");

    apply(&world, &whole).await?;
    operator
        .ready(SOON, || async {
            Ok(world
                .get(NODE, "/readyz")
                .await
                .is_ok_and(|(code, _)| code == 200))
        })
        .await
        .context("the right was given")?;
    operator.end().await
}

/// Number of requests of the operator that lacks a permission.
async fn requests(world: &World) -> anyhow::Result<f64> {
    let figures = MetricsSnapshot::read(world, NODE).await?;
    Ok(figures.sum("harvester_lb_api_requests_total", |_| true))
}

/// The objects of Harvester's release, as its chart creates them: the ServiceAccount of the Go operator with a role of
/// the same name.
fn release() -> [Value; 3] {
    let name = "harvester-load-balancer";
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "harvester-system"});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let verbs = ["get", "watch", "list", "update", "create"];
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "harvester-system"},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [
                {"apiGroups": ["loadbalancer.harvesterhci.io"], "resources": ["loadbalancers", "ippools"], "verbs": verbs},
                {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": verbs},
                {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstances"], "verbs": verbs},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name}, "roleRef": role, "subjects": [subject],
        }),
    ]
}

async fn the_account_of_harvesters_release_gains_rights_and_loses_none(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _alone = without().await?;
    let release = release();
    let all = release
        .iter()
        .cloned()
        .chain(rbac("rbac.yaml")?)
        .chain(rbac("rbac-release-account.yaml")?);
    for object in all {
        apply(&world, &object).await?;
    }
    for object in &release {
        let (kind, version) = (text(object, "kind")?, text(object, "apiVersion")?);
        let namespace = object["metadata"]["namespace"].as_str();
        let name = text(&object["metadata"], "name")?;
        let now = world.cluster.get(version, kind, namespace, name).await?;
        let now = serde_json::to_value(now.with_context(|| format!("{kind} is gone"))?)?;
        for field in ["rules", "roleRef", "subjects"] {
            ensure!(
                now[field] == object[field],
                "{kind}: {field} is {} now",
                now[field]
            );
        }
    }

    let kubeconfig = kubeconfig(&world, &release).await?;
    let operator = world.spawn_operator(NODE, &[], &[("KUBECONFIG", &kubeconfig)])?;
    operator
        .ready(SOON, || async {
            let (code, text) = world.get(NODE, "/readyz").await?;
            ensure!(code == 200, "{text}");
            Ok(true)
        })
        .await?;
    operator.end().await
}

fn text<'a>(object: &'a Value, field: &str) -> anyhow::Result<&'a str> {
    object[field].as_str().with_context(|| field.to_owned())
}
