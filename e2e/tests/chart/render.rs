//! What the chart renders: accepted by a real API server, least privileges, CRDs, alerts.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::prometheus::{DashboardQueries, documented_alerts, promtool};
use harvester_lb_e2e::world::repository;
use harvester_lb_fixtures::with;
use serde_json::{Value, json};

use crate::helm::{
    NAMESPACE, chart, documents, file, helm_does, id, object, rendered, rendered_in,
};
use crate::values::{of_the_go_operator, of_the_managed_chart};

/// Names of Harvester's own release.
const OF_HARVESTER: [&str; 2] = ["harvester-load-balancer", "harvester-load-balancer-webhook"];

/// Namespaces and the CRDs of the Prometheus operator, which a Harvester cluster has.
pub async fn set_up(world: &World) -> anyhow::Result<()> {
    for name in [NAMESPACE, "cattle-dashboards"] {
        world.namespace(name).await?;
    }
    let definitions = world.cluster.folder().join("monitoring.yaml");
    let all: Vec<String> = [
        ("ServiceMonitor", "servicemonitors"),
        ("PrometheusRule", "prometheusrules"),
    ]
    .map(|(kind, plural)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        })
        .to_string()
    })
    .into();
    std::fs::write(&definitions, all.join("\n---\n"))?;
    world.cluster.apply_crds(&definitions).await
}

/// Values with everything for monitoring.
pub fn monitored() -> Value {
    json!({
        "serviceMonitor": {"enabled": true, "interval": "15s", "labels": {"release": "m"}},
        "prometheusRule": {"enabled": true, "labels": {"release": "m"}},
        "dashboard": {"enabled": true, "namespace": "cattle-dashboards"},
    })
}

/// Kinds of clusters and of wishes.
fn cases() -> Vec<(&'static str, Value)> {
    let webhook = |more: Value| json!({ "webhook": more });
    vec![
        ("defaults", json!({})),
        ("the Go operator's", of_the_go_operator()),
        ("the managed chart's", of_the_managed_chart()),
        (
            "beside Harvester's release",
            json!({"crds": {"manage": "own"}}),
        ),
        ("no CRDs", json!({"crds": {"manage": "none"}})),
        (
            "one node",
            json!({"replicaCount": 1, "podDisruptionBudget": {"enabled": false}}),
        ),
        ("monitoring", json!({"monitoring": monitored()})),
        ("no webhook", webhook(json!({"enabled": false}))),
        (
            "leases of its own",
            json!({
                "dhcpMode": "builtin", "dhcp": {"enabled": true, "interface": "mgmt-br"},
                "serviceInterfaces": ["vlan20", "storage"],
            }),
        ),
        (
            "webhook of another name",
            webhook(json!({"serviceName": "lb-admission", "securityContext": {"runAsUser": 7}})),
        ),
        (
            "nothing that can be left out",
            json!({
                "hooks": {"enabled": false}, "networkPolicy": {"enabled": false},
                "podDisruptionBudget": {"enabled": false}, "priorityClassName": "", "crds": {"manage": "none"},
                "serviceAccount": {"create": false, "name": "made-elsewhere"}, "webhook": {"enabled": false}, "podLabels": null,
            }),
        ),
        (
            "everything",
            with(
                json!({
                    "nameOverride": "lb2", "logLevel": "info,kube=debug", "backendMetricsLimit": 2_000_000,
                    "backendDenyCIDRs": ["10.52.0.0/16", "fd00::/8"], "imagePullSecrets": [{"name": "registry"}],
                    "extraEnv": [{"name": "RUST_BACKTRACE", "value": "1"}], "podLabels": {"a": "b"},
                    "podAnnotations": {"c": "d"}, "adminPort": 9081,
                    "networkPolicy": {"adminFrom": [{"namespaceSelector": {"matchLabels": {"monitoring": "yes"}}}]},
                    "lease": {"duration": "30s", "renewDeadline": "20s", "retryPeriod": "500ms"},
                    "monitoring": monitored(),
                }),
                webhook(
                    json!({"logLevel": "warn", "image": {"tag": "v2", "pullPolicy": "Always"}}),
                ),
            ),
        ),
    ]
}

pub async fn chart_renders_what_the_api_server_takes(world: Arc<World>) -> anyhow::Result<()> {
    let chart = chart();
    let chart = chart.to_str().unwrap_or_default();
    let manifests = world.cluster.folder().join("manifests");
    std::fs::create_dir(&manifests)?;
    let mut seen = BTreeSet::new();
    for (name, values) in cases() {
        // The least and the most that is rendered.
        if ["defaults", "everything"].contains(&name) {
            let file = file(&world, &values)?;
            helm_does(&world, &["lint", "--strict", chart, "-f", &file])
                .await
                .with_context(|| name.to_owned())?;
            // Where roles for objects of other components are: no name may be there twice.
            for elsewhere in ["kube-system", "lb"] {
                let objects = rendered_in(&world, elsewhere, &values).await?;
                sound(&objects).with_context(|| format!("{name}, in {elsewhere}"))?;
            }
        }
        let objects = rendered(&world, &values).await?;
        sound(&objects).with_context(|| name.to_owned())?;
        // What several cases have alike is asked about once.
        let all = objects.into_iter().map(for_dry_run);
        let new: Vec<String> = all.filter(|text| seen.insert(text.clone())).collect();
        std::fs::write(manifests.join(format!("{name}.yaml")), new.join("\n---\n"))?;
    }
    // Unknown fields are errors. A refusal names the file.
    let args = [
        "apply",
        "--server-side",
        "--dry-run=server",
        "--force-conflicts",
        "--validate=strict",
        "-f",
        manifests.to_str().unwrap_or_default(),
    ];
    world.cluster.kubectl(&args).await?;
    let objects = rendered(&world, &cases().pop().context("no cases")?.1).await?;
    let operator = object(&objects, "Deployment", "lb2-operator")?;
    let container = &operator["spec"]["template"]["spec"]["containers"][0];
    let env = |name: &str| {
        let all = container["env"].as_array().into_iter().flatten();
        let mut found = all.filter(|var| var["name"] == name);
        found.next().map(|var| var["value"].clone())
    };
    for (name, wanted) in [
        ("BACKEND_METRICS_LIMIT", "2000000"),
        ("BACKEND_DENY_CIDR", "10.52.0.0/16,fd00::/8"),
        ("ADMIN_ADDRESS", "[::]:9081"),
        ("LOGLEVEL", "info,kube=debug"),
        ("RUST_BACKTRACE", "1"),
    ] {
        ensure!(env(name) == Some(wanted.into()), "{name}: {container}");
    }
    ensure!(env("POD_UID").is_some(), "{container}");
    Ok(())
}

/// The registration of the webhook is removed while it still answers, whichever way the release loses it.
pub async fn chart_removes_the_webhook_s_registration_in_time(
    world: Arc<World>,
) -> anyhow::Result<()> {
    for (is_enabled, wanted) in [(true, "pre-delete"), (false, "pre-upgrade,pre-rollback")] {
        let values = json!({"webhook": {"enabled": is_enabled}});
        let objects = rendered(&world, &values).await?;
        let events = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook"].clone();
        let job = object(&objects, "Job", "harvester-lb-uninstall-webhook")?;
        ensure!(events(job) == wanted, "{job:#}");
        let name = "harvester-lb-webhook-hooks";
        for kind in ["ServiceAccount", "ClusterRole", "Role"] {
            let needed = object(&objects, kind, name)?;
            ensure!(events(needed) == wanted, "{needed:#}");
        }
        let granted = &object(&objects, "Role", name)?["rules"];
        for (resource, verb) in [("deployments", "get"), ("deployments/scale", "patch")] {
            let rule = json!({
                "apiGroups": ["apps"], "resources": [resource],
                "resourceNames": ["harvester-lb-webhook"], "verbs": [verb],
            });
            let is_granted = granted.as_array().is_some_and(|all| all.contains(&rule));
            ensure!(is_granted, "{rule}: {granted}");
        }
        let command = &job["spec"]["template"]["spec"]["containers"][0]["command"];
        for flag in ["--service-name", "--deployment"] {
            let flag = json!(format!("{flag}=harvester-lb-webhook"));
            let has_flag = command.as_array().is_some_and(|all| all.contains(&flag));
            ensure!(has_flag, "{flag}: {command}");
        }
        let webhook = object(&objects, "Deployment", "harvester-lb-webhook");
        ensure!(
            webhook.is_ok() == is_enabled,
            "webhook.enabled={is_enabled}"
        );
    }
    // Helm prints the logs of containers, and not those of init containers.
    for hook in ["pre-delete", "pre-rollback"] {
        let objects = rendered(&world, &json!({})).await?;
        for step in ["stop", "export"] {
            let job = object(&objects, "Job", &format!("harvester-lb-{hook}-{step}"))?;
            let pod = &job["spec"]["template"]["spec"];
            ensure!(pod["initContainers"].is_null(), "{pod:#}");
            let policy = &job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"];
            ensure!(policy == "hook-succeeded,hook-failed", "{policy}");
        }
    }
    Ok(())
}

/// An object of a manifest. Of a Pod the API server looks its ServiceAccount up, which a dry run does not create.
fn for_dry_run(mut object: Value) -> String {
    if object["kind"] == "Pod" {
        object["spec"]["serviceAccountName"] = "default".into();
    }
    object.to_string()
}

/// Checks of all that is rendered: names, namespaces, and Pods without privileges.
fn sound(objects: &[Value]) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for object in objects {
        let id = id(object);
        ensure!(seen.insert(id.clone()), "{id} twice");
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().context("no name")?;
        ensure!(!OF_HARVESTER.contains(&name), "{id} is a name of Harvester");
        let kind = object["kind"].as_str().context("no kind")?;
        let is_cluster_wide = kind.starts_with("Cluster") || kind == "CustomResourceDefinition";
        ensure!(is_cluster_wide == metadata["namespace"].is_null(), "{id}");
        ensure!(
            metadata["labels"]["app.kubernetes.io/part-of"] == "harvester-load-balancer",
            "{id}: {}",
            metadata["labels"]
        );
        let pod = match kind {
            "Deployment" | "Job" => &object["spec"]["template"]["spec"],
            "Pod" => &object["spec"],
            _ => continue,
        };
        unprivileged(pod).with_context(|| id.clone())?;
        let is_dhcp = name.ends_with("-dhcp");
        of_the_host(pod, is_dhcp).with_context(|| id)?;
    }
    Ok(())
}

fn unprivileged(pod: &Value) -> anyhow::Result<()> {
    let of_pod = &pod["securityContext"];
    ensure!(of_pod["runAsNonRoot"] == true, "{of_pod}");
    ensure!(
        of_pod["seccompProfile"]["type"] == "RuntimeDefault",
        "{of_pod}"
    );
    for kind in ["containers", "initContainers"] {
        for container in pod[kind].as_array().into_iter().flatten() {
            let context = &container["securityContext"];
            ensure!(context["readOnlyRootFilesystem"] == true, "{container}");
            ensure!(context["allowPrivilegeEscalation"] == false, "{container}");
            ensure!(
                context["capabilities"]["drop"] == json!(["ALL"]),
                "{container}"
            );
            ensure!(
                container["resources"]["requests"].is_object(),
                "{container}"
            );
            let image = container["image"].as_str().unwrap_or_default();
            ensure!(image.contains(':') && !image.ends_with(':'), "{image:?}");
        }
    }
    Ok(())
}

/// What a Pod has of its host: the DHCP process its network and NET_RAW, which only root can have, and nothing else; all others
/// nothing.
fn of_the_host(pod: &Value, is_dhcp: bool) -> anyhow::Result<()> {
    let network = if is_dhcp { json!(true) } else { Value::Null };
    ensure!(pod["hostNetwork"] == network, "hostNetwork: {pod}");
    ensure!(pod["hostPID"].is_null() && pod["hostIPC"].is_null() && pod["volumes"].is_null());
    for container in pod["containers"].as_array().into_iter().flatten() {
        let context = &container["securityContext"];
        let added = &context["capabilities"]["add"];
        if is_dhcp {
            ensure!(*added == json!(["NET_RAW"]), "{container}");
            ensure!(context["runAsUser"] == 0, "{container}");
            let seccomp = &context["seccompProfile"]["type"];
            ensure!(*seccomp == "RuntimeDefault", "{container}");
            // It has no port on the interfaces of the host.
            ensure!(container["ports"].is_null(), "{container}");
            let env = container["env"].as_array().into_iter().flatten();
            let admin = env.filter(|it| it["name"] == "ADMIN_ADDRESS");
            let admin: Vec<&str> = admin.filter_map(|it| it["value"].as_str()).collect();
            ensure!(admin == ["127.0.0.1:8082"], "{container}");
        } else {
            ensure!(added.is_null() && context["runAsUser"] != 0, "{container}");
        }
    }
    Ok(())
}

/// The rules of the roles with a prefix, each with its namespace, sorted.
fn rules(objects: &[Value], name: &str) -> Vec<String> {
    let roles = objects.iter().filter(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind.ends_with("Role") && object["metadata"]["name"] == name
    });
    let mut all: Vec<String> = roles
        .flat_map(|role| {
            let rules = role["rules"].as_array().into_iter().flatten();
            rules.map(|rule| format!("{} {rule}", role["metadata"]["namespace"]))
        })
        .collect();
    all.sort();
    all
}

/// What the bindings of a name bind: role, and subjects as kind, namespace and name.
fn bindings(objects: &[Value], name: &str) -> Vec<String> {
    let bindings = objects.iter().filter(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind.ends_with("Binding") && object["metadata"]["name"] == name
    });
    let mut all: Vec<String> = bindings
        .map(|b| {
            format!(
                "{} {} {}",
                b["metadata"]["namespace"], b["roleRef"], b["subjects"]
            )
        })
        .collect();
    all.sort();
    all
}

pub async fn section_1_chart_grants_what_is_used(world: Arc<World>) -> anyhow::Result<()> {
    let (operator, check) = ("harvester-lb-operator", "harvester-lb-check");
    let webhook = "harvester-lb-webhook";
    // The example is for the default name of its Service, which the Secrets follow.
    let of_service = json!({"webhook": {"serviceName": OF_HARVESTER[1]}});
    // Tests of the programs show that the permissions of the examples are sufficient, and that each is used.
    let examples = [
        ("rbac.yaml", operator, json!({})),
        ("rbac-check.yaml", check, json!({})),
        ("rbac-webhook.yaml", webhook, of_service),
    ];
    for (file, name, values) in examples {
        let path = repository().join("docs/examples").join(file);
        let example = documents(&std::fs::read_to_string(path)?)?;
        let objects = rendered(&world, &values).await?;
        let (wanted, found) = (rules(&example, name), rules(&objects, name));
        ensure!(wanted.len() > 6, "{file}: {wanted:?}");
        ensure!(found == wanted, "{file}: {found:#?}");
        let (wanted, found) = (bindings(&example, name), bindings(&objects, name));
        if name == check {
            // For the operator's Pods, as in the example, and for `helm test`.
            for binding in &found {
                ensure!(binding.contains(operator), "{binding}");
            }
            ensure!(found.len() == wanted.len(), "{found:#?}");
        } else {
            ensure!(found == wanted, "{file}: {found:#?}");
        }
    }
    // No others, except those of the hooks, which exist while they run.
    let known = [operator, check, webhook];
    for object in &rendered(&world, &json!({})).await? {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let is_hook = object["metadata"]["annotations"]["helm.sh/hook"].is_string();
        if kind.ends_with("Role") || kind.ends_with("Binding") || kind == "ServiceAccount" {
            ensure!(known.contains(&name) || is_hook, "{}", id(object));
        }
    }
    Ok(())
}

pub async fn chart_crds_are_those_of_the_repository(world: Arc<World>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(repository().join("crds/crds.yaml"))?;
    let all = documents(&text)?;
    ensure!(all.len() == 3, "{} definitions", all.len());
    let own: Vec<Value> = all
        .iter()
        .filter(|d| d["spec"]["names"]["kind"] == "IPAllocation")
        .cloned()
        .collect();
    for (manage, wanted) in [("all", all), ("own", own), ("none", Vec::new())] {
        let objects = rendered(&world, &json!({"crds": {"manage": manage}})).await?;
        let definitions = objects.into_iter();
        let definitions = definitions.filter(|o| o["kind"] == "CustomResourceDefinition");
        let mut found: Vec<Value> = definitions.collect();
        for definition in &mut found {
            let metadata = definition["metadata"]
                .as_object_mut()
                .context("no metadata")?;
            let annotations = metadata.remove("annotations");
            let kept = json!({"helm.sh/resource-policy": "keep"});
            ensure!(annotations == Some(kept), "{annotations:?}");
            metadata.remove("labels");
        }
        // Helm sorts by kind and name.
        let by_name = |one: &Value, other: &Value| id(one).cmp(&id(other));
        let mut wanted = wanted;
        found.sort_by(by_name);
        wanted.sort_by(by_name);
        ensure!(found == wanted, "crds.manage={manage} renders other CRDs");
    }
    Ok(())
}

pub async fn chart_alerts_are_the_documented_ones(world: Arc<World>) -> anyhow::Result<()> {
    let objects = rendered(&world, &json!({"monitoring": monitored()})).await?;
    let rule = object(&objects, "PrometheusRule", "harvester-lb-operator")?;
    let path = chart().join("files/alerts.yaml");
    let mut file = documents(&std::fs::read_to_string(&path)?)?;
    // A webhook of another namespace does not hide the loss of this one.
    let absent = "HarvesterLoadBalancerWebhookAbsent";
    let rules = file[0]["groups"][0]["rules"].as_array_mut();
    let mut rules = rules.into_iter().flatten();
    let of_webhook = rules.find(|rule| rule["alert"] == absent);
    let own = format!("absent(harvester_lb_webhook_connections{{namespace=\"{NAMESPACE}\"}})");
    of_webhook.context(absent)?["expr"] = own.into();
    ensure!(
        file == [rule["spec"].clone()],
        "the PrometheusRule is not the file: {rule:#}"
    );
    let alerts = documented_alerts()?;
    let rules = rule["spec"]["groups"][0]["rules"].as_array();
    ensure!(rules.map(Vec::len) == Some(alerts.len()), "{rules:?}");
    // Where no webhook runs, none is missing.
    let without = json!({"monitoring": monitored(), "webhook": {"enabled": false}});
    let without = rendered(&world, &without).await?;
    let without = object(&without, "PrometheusRule", "harvester-lb-operator")?;
    let mut wanted = rule["spec"].clone();
    if let Some(rules) = wanted["groups"][0]["rules"].as_array_mut() {
        rules.retain(|rule| rule["alert"] != absent);
        ensure!(rules.len() == alerts.len() - 1, "{rules:?}");
    }
    ensure!(without["spec"] == wanted, "{without:#}");
    let output = tokio::process::Command::new("promtool")
        .args(["check", "rules"])
        .arg(&path)
        .output()
        .await
        .context("promtool")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    webhook_of_this_namespace_is_missed(&world, &rule["spec"], absent).await?;
    let map = object(&objects, "ConfigMap", "harvester-lb-dashboard")?;
    let labels = &map["metadata"]["labels"];
    ensure!(labels["grafana_dashboard"] == "1", "{labels}");
    let text = map["data"]["harvester-load-balancer.json"].as_str();
    let dashboard: Value = serde_json::from_str(text.context("no dashboard")?)?;
    let queries = DashboardQueries::of(&dashboard);
    ensure!(!queries.operator.is_empty() && !queries.webhook.is_empty());
    let monitor = object(&objects, "ServiceMonitor", "harvester-lb-operator")?;
    let service = object(&objects, "Service", "harvester-lb-operator")?;
    let selected = monitor["spec"]["selector"]["matchLabels"].as_object();
    for (label, value) in selected.context("no selector")? {
        ensure!(service["metadata"]["labels"][label] == *value, "{label}");
    }
    ensure!(service["spec"]["ports"][0]["name"] == monitor["spec"]["endpoints"][0]["port"]);
    Ok(())
}

/// The alert on the absence of the webhook, as the chart renders it, on a real promtool.
async fn webhook_of_this_namespace_is_missed(
    world: &World,
    rules: &Value,
    alert: &str,
) -> anyhow::Result<()> {
    let scraped_in = |namespace: &str| {
        let series = format!("harvester_lb_webhook_connections{{namespace=\"{namespace}\"}}");
        json!({"series": series, "values": "0x12"})
    };
    let test = |fires: bool, namespace: &str| {
        let firing = format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})");
        json!({
            "interval": "1m", "input_series": [scraped_in(namespace)],
            "promql_expr_test": [{
                "expr": format!("{firing} or vector(0)"),
                "eval_time": "11m", "exp_samples": [{"labels": "{}", "value": u8::from(fires)}],
            }],
        })
    };
    let tests = [test(true, "elsewhere"), test(false, NAMESPACE)];
    promtool(world, "rendered", rules, &tests).await
}
