//! Annotations that are a part of the spec (section 15): the webhook judges a change of one of them, and is asked for no other.

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::Replica;
use harvester_lb_fixtures::{cluster_spec, subnet};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::admission::{NS, namespace};
use crate::stage::{finish, one};
use crate::table::{Accepted, Refused, Wanted, api, judge, try_patch};

/// How often the webhook has judged an object of a kind.
async fn judged(replica: &Replica, kind: &str) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for result in ["allowed", "refused"] {
        let labels = format!("admission=\"validating\",kind=\"{kind}\",result=\"{result}\"");
        let series = format!("harvester_lb_admission_requests_total{{{labels}}}");
        sum += replica.metric(&series).await?;
    }
    Ok(sum)
}

pub async fn exc_1_req_1_annotations_are_judged_as_the_spec_is(
    world: Arc<World>,
) -> anyhow::Result<()> {
    const EXCLUDE: &str = keys::ANNOTATION_EXCLUDE;
    const REQUESTED: &str = keys::ANNOTATION_REQUESTED_ADDRESS;
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let ranges = json!({"ranges": [subnet("10.24.7.0/24")]});
    let lbs = api(&world, "LoadBalancer", NS).await?;
    let pools = api(&world, "IPPool", "").await?;
    world.pool("annotated", ranges).await?;
    world.lb(NS, "annotated", cluster_spec()).await?;
    // What is stored, what is tried, the answer, and whether the webhook is asked.
    let none = Value::Null;
    let rows: Vec<(&str, &str, Value, Value, Wanted, bool)> = vec![
        (
            "IPPool",
            EXCLUDE,
            none.clone(),
            json!({EXCLUDE: "10.24.7.x"}),
            Refused("annotation loadbalancer.harvesterhci.io/exclude"),
            true,
        ),
        (
            "IPPool",
            EXCLUDE,
            none.clone(),
            json!({EXCLUDE: "10.24.7.5"}),
            Accepted,
            true,
        ),
        (
            "IPPool",
            EXCLUDE,
            json!("10.24.7.5"),
            json!({EXCLUDE: "10.24.7.9-10.24.7.8"}),
            Refused("annotation loadbalancer.harvesterhci.io/exclude"),
            true,
        ),
        (
            "IPPool",
            EXCLUDE,
            json!("10.24.7.5"),
            json!({EXCLUDE: none}),
            Accepted,
            true,
        ),
        (
            "IPPool",
            EXCLUDE,
            json!("10.24.7.5"),
            json!({EXCLUDE: "10.24.7.5", "example.com/a": "b"}),
            Accepted,
            false,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            none.clone(),
            json!({REQUESTED: "10.24.7.x"}),
            Refused("annotation loadbalancer.harvesterhci.io/requested-address"),
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            none.clone(),
            json!({REQUESTED: "10.24.7.9"}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            json!("10.24.7.9"),
            json!({REQUESTED: ""}),
            Refused("annotation loadbalancer.harvesterhci.io/requested-address"),
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            json!("10.24.7.9"),
            json!({REQUESTED: none}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            json!("10.24.7.9"),
            json!({keys::ANNOTATION_NETWORK: "default/a"}),
            Accepted,
            false,
        ),
    ];
    for (kind, key, stored, tried, wanted, is_asked) in rows {
        let api = if kind == "IPPool" { &pools } else { &lbs };
        let annotations = |all: &Value| json!({"metadata": {"annotations": all}});
        let patch = Patch::Merge(annotations(&json!({ key: stored })));
        api.patch("annotated", &PatchParams::default(), &patch)
            .await?;
        let before = judged(&replica, kind).await?;
        let answer = try_patch(api, "annotated", annotations(&tried)).await;
        judge(&format!("{key} {stored} to {tried}"), wanted, answer)?;
        let more = judged(&replica, kind).await? - before;
        ensure!(
            (more > 0.0) == is_asked,
            "{stored} to {tried}: judged {more} times"
        );
    }
    finish(&world, &[&replica]).await
}
