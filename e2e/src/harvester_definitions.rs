//! Harvester's definitions of LoadBalancer and IPPool in a test cluster, in place of ours (API-1). That of IPAllocation is always
//! ours.

use anyhow::{Context, ensure};
use harvester_lb_api::{IPPool, LoadBalancer};
use harvester_lb_fixtures::{cluster_spec, harvester, with};
use harvester_lb_testkit::eventually;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// Version and kind of a definition.
const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// Names of both definitions, with Harvester's versions.
fn all() -> [(&'static str, Value); 2] {
    [
        (
            "loadbalancers.loadbalancer.harvesterhci.io",
            harvester::load_balancer_versions(),
        ),
        (
            "ippools.loadbalancer.harvesterhci.io",
            harvester::ip_pool_versions(),
        ),
    ]
}

impl World {
    /// Replaces the versions and leaves the rest, as Helm does at an upgrade of Harvester, and waits until they are in force.
    /// Before a webhook is there, which would refuse what is tried.
    pub async fn apply_harvester_definitions(&self) -> anyhow::Result<()> {
        let (version, kind) = DEFINITION;
        let api = self.cluster.api(version, kind, None).await?;
        for (name, versions) in all() {
            let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
            api.patch(name, &PatchParams::default(), &patch).await?;
        }
        eventually("Harvester's definitions are in force", SOON, || async {
            Ok(self.admits_negative_numbers().await?.then_some(()))
        })
        .await
    }

    /// Fails unless both definitions are Harvester's.
    pub async fn has_harvester_definitions(&self) -> anyhow::Result<()> {
        let (version, kind) = DEFINITION;
        for (name, versions) in all() {
            let stored = self.cluster.get(version, kind, None, name).await?;
            let stored = &stored.with_context(|| format!("no {name}"))?.data["spec"];
            for (n, wanted) in versions.as_array().into_iter().flatten().enumerate() {
                for part in ["name", "schema", "additionalPrinterColumns"] {
                    let now = &stored["versions"][n][part];
                    ensure!(*now == wanted[part], "{part} of {name}: {now:#}");
                }
            }
        }
        Ok(())
    }

    /// Ours have minima. Nothing is stored.
    async fn admits_negative_numbers(&self) -> anyhow::Result<bool> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let check = json!({"healthCheck": {"periodSeconds": -1}});
        let lb: LoadBalancer = serde_json::from_value(json!({
            "metadata": {"name": "negative"}, "spec": with(cluster_spec(), check),
        }))?;
        let pool: IPPool = serde_json::from_value(json!({
            "metadata": {"name": "negative"}, "spec": {"ranges": [], "selector": {"priority": -1}},
        }))?;
        let lb = self.lbs("default").create(&dry_run, &lb).await.map(drop);
        let pool = self.pools().create(&dry_run, &pool).await.map(drop);
        for outcome in [lb, pool] {
            match outcome {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.code == 422 => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}
