//! Kinds of other programs of a Harvester cluster, which no test runs: definitions for the objects that our documents show.

use anyhow::Context;
use serde_json::{Value, json};

use crate::world::World;

/// Defines a kind whose objects are in namespaces. `spec` is the schema of their spec; the API server serves the kind a moment
/// later.
pub async fn define(
    world: &World,
    api_version: &str,
    kind: &str,
    spec: &Value,
) -> anyhow::Result<()> {
    let (group, version) = api_version.split_once('/').context("no group")?;
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    world.cluster.apply(&definition).await.map(drop)
}
