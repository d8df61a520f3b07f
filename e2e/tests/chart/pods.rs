//! What all Pods of the chart have in common: image, priority, a NetworkPolicy that lets them reach the API server; the end of
//! the Jobs; and that names are text, whatever YAML makes of them.

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::documents::kubectl_commands;
use harvester_lb_fixtures::with;
use serde_json::{Value, json};

use crate::helm::{chart, documents, file, helm_does, id, object, rendered};

/// Of the operator and the webhook a Deployment each, of the hooks five Jobs, of `helm test` a Pod.
const PODS: usize = 8;

/// The selector by which docs/install.md deletes the Jobs that Helm has left.
pub fn documented_selector() -> anyhow::Result<String> {
    let mut commands = kubectl_commands()?.into_iter();
    let command = commands
        .find(|command| command.text.contains("delete jobs"))
        .context("no document deletes Jobs")?;
    let selector = command.text.split('\'').nth(1);
    Ok(selector.context("no selector in quotes")?.to_owned())
}

/// The objects with Pods, each with the metadata of a Pod and its spec.
fn pods(objects: &[Value]) -> impl Iterator<Item = (&Value, &Value, &Value)> {
    objects.iter().filter_map(|object| {
        let pod = match object["kind"].as_str()? {
            "Deployment" | "Job" => &object["spec"]["template"],
            "Pod" => object,
            _ => return None,
        };
        Some((object, &pod["metadata"], &pod["spec"]))
    })
}

pub async fn chart_jobs_end_when_helm_waits_no_more(world: Arc<World>) -> anyhow::Result<()> {
    let selector = documented_selector()?;
    let (label, names) = selector.split_once(" in ").context("no list of names")?;
    let names: Vec<&str> = names
        .trim_matches(['(', ')'])
        .split(',')
        .map(str::trim)
        .collect();
    for (values, seconds) in [
        (json!({}), 300),
        (json!({"hooks": {"deadlineSeconds": 1800}}), 1800),
    ] {
        let objects = rendered(&world, &values).await?;
        let mut jobs = 0;
        for (object, metadata, _) in pods(&objects) {
            let is_job = object["kind"] == "Job";
            jobs += usize::from(is_job);
            let deadline = &object["spec"]["activeDeadlineSeconds"];
            let wanted = if is_job { json!(seconds) } else { Value::Null };
            ensure!(*deadline == wanted, "{}: {deadline}", id(object));
            for metadata in [&object["metadata"], metadata] {
                let name = metadata["labels"][label].as_str().unwrap_or_default();
                ensure!(names.contains(&name) == is_job, "{}: {name}", id(object));
            }
        }
        ensure!(jobs == 5, "{jobs} Jobs");
    }
    Ok(())
}

pub async fn chart_pods_have_a_priority_and_may_reach_the_api_server(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let urgent = json!({"priorityClassName": "urgent", "nameOverride": "lb2"});
    let none = json!({"priorityClassName": "", "networkPolicy": {"enabled": false}});
    for (values, class) in [
        (json!({}), json!("system-cluster-critical")),
        (urgent, json!("urgent")),
        (none, Value::Null),
    ] {
        let objects = rendered(&world, &values).await?;
        let policies = || objects.iter().filter(|o| o["kind"] == "NetworkPolicy");
        let is_enabled = !class.is_null();
        ensure!((policies().count() == 3) == is_enabled, "{values}");
        ensure!(pods(&objects).count() == PODS, "{values}");
        for (object, metadata, spec) in pods(&objects) {
            let found = &spec["priorityClassName"];
            ensure!(*found == class, "{}: {found}", id(object));
            let allowing = policies().filter(|policy| {
                let to_tcp = json!([{"ports": [{"protocol": "TCP"}]}]);
                policy["spec"]["egress"] == to_tcp
                    && selects(&policy["spec"]["podSelector"], &metadata["labels"])
            });
            let allowing = allowing.count();
            ensure!(allowing == usize::from(is_enabled), "{}", id(object));
        }
    }
    Ok(())
}

/// Whether a selector selects an object with these labels. Of the expressions only `In`, which the chart uses.
fn selects(selector: &Value, labels: &Value) -> bool {
    let mut exact = selector["matchLabels"].as_object().into_iter().flatten();
    let mut lists = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    exact.all(|(label, value)| labels[label] == *value)
        && lists.all(|list| {
            let label = list["key"].as_str().unwrap_or_default();
            let values = list["values"].as_array();
            list["operator"] == "In" && values.is_some_and(|all| all.contains(&labels[label]))
        })
}

pub async fn chart_images_have_a_tag_or_a_digest(world: Arc<World>) -> anyhow::Result<()> {
    let [one, other] = ["1", "2"].map(|digit| format!("sha256:{}", digit.repeat(64)));
    let lb = "r.example.com:5000/a/lb";
    let image = |more| with(json!({"repository": lb}), more);
    // The values of `image` and `webhook.image`, and the images of operator and webhook.
    let cases = [
        (
            image(json!({"tag": "v1"})),
            json!({}),
            [format!("{lb}:v1"), format!("{lb}:v1")],
        ),
        (
            image(json!({"tag": "v1", "digest": one})),
            json!({}),
            [format!("{lb}@{one}"), format!("{lb}@{one}")],
        ),
        (
            image(json!({"digest": one})),
            json!({"tag": "v2"}),
            [format!("{lb}@{one}"), format!("{lb}:v2")],
        ),
        (
            image(json!({"digest": one})),
            json!({"repository": "other", "digest": other}),
            [format!("{lb}@{one}"), format!("other@{other}")],
        ),
        (
            image(json!({"tag": "v1"})),
            json!({"digest": other}),
            [format!("{lb}:v1"), format!("{lb}@{other}")],
        ),
    ];
    for (image, of_webhook, [operator, webhook]) in cases {
        let values = json!({"image": image, "webhook": {"image": of_webhook}});
        let objects = rendered(&world, &values).await?;
        ensure!(pods(&objects).count() == PODS, "{values}");
        for (object, _, spec) in pods(&objects) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let wanted = if name.ends_with("webhook") {
                &webhook
            } else {
                &operator
            };
            let found = &spec["containers"][0]["image"];
            ensure!(*found == *wanted, "{values}: {}: {found}", id(object));
        }
    }
    Ok(())
}

/// A release `123`, an account `null` and the like are legal names.
pub async fn chart_names_are_text_whatever_yaml_makes_of_them(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let values = json!({
        "serviceAccount": {"name": "null"}, "priorityClassName": "123",
        "webhook": {"serviceName": "null"},
        "monitoring": {
            "serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true},
            "dashboard": {"enabled": true, "namespace": "123"},
        },
    });
    let (chart, file) = (chart(), file(&world, &values)?);
    let chart = chart.to_str().context("the path is no text")?;
    let args = ["template", "123", chart, "-f", &file];
    let objects = documents(&helm_does(&world, &args).await?)?;
    for object in &objects {
        let metadata = &object["metadata"];
        ensure!(metadata["name"].is_string(), "{metadata}");
        let namespace = metadata.get("namespace");
        ensure!(namespace.is_none_or(Value::is_string), "{metadata}");
        let labels = metadata["labels"].as_object().context("no labels")?;
        ensure!(labels.values().all(Value::is_string), "{metadata}");
        for subject in object["subjects"].as_array().into_iter().flatten() {
            let is_text = subject["name"].is_string() && subject["namespace"].is_string();
            ensure!(is_text, "{}: {subject}", id(object));
        }
    }
    for (object, metadata, spec) in pods(&objects) {
        let instance = &metadata["labels"]["app.kubernetes.io/instance"];
        ensure!(instance == "123", "{}: {instance}", id(object));
        let account = &spec["serviceAccountName"];
        ensure!(account.is_string(), "{}: {account}", id(object));
        let class = &spec["priorityClassName"];
        ensure!(class == "123", "{}: {class}", id(object));
    }
    for kind in ["ServiceAccount", "Service"] {
        object(&objects, kind, "null")?;
    }
    let dashboard = object(&objects, "ConfigMap", "harvester-lb-dashboard")?;
    ensure!(dashboard["metadata"]["namespace"] == "123", "{dashboard}");
    Ok(())
}
