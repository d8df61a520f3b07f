//! The definitions of LoadBalancer and IPPool in a test cluster, ours or Harvester's (API-1). That of IPAllocation is always ours.

pub mod whose;

use anyhow::ensure;
use harvester_lb_api::{IPPool, LoadBalancer};
use harvester_lb_fixtures::{cluster_spec, harvester, with};
use harvester_lb_testkit::eventually;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// `spec.versions` of both definitions.
#[derive(Clone)]
pub struct Definitions {
    load_balancer: Value,
    ip_pool: Value,
    /// Whether they refuse a negative number.
    has_minimum: bool,
}

impl Definitions {
    /// Ours, as they are stored.
    pub async fn read(world: &World) -> anyhow::Result<Self> {
        Ok(Self {
            load_balancer: stored(world, "loadbalancers").await?,
            ip_pool: stored(world, "ippools").await?,
            has_minimum: true,
        })
    }

    /// Harvester's.
    pub fn of_harvester() -> Self {
        Self {
            load_balancer: harvester::load_balancer_versions(),
            ip_pool: harvester::ip_pool_versions(),
            has_minimum: false,
        }
    }

    fn all(&self) -> [(&'static str, &Value); 2] {
        [
            ("loadbalancers", &self.load_balancer),
            ("ippools", &self.ip_pool),
        ]
    }

    /// Replaces the versions and leaves the rest, as Helm does, and waits until they are in force. A webhook would refuse what is
    /// tried.
    pub async fn apply(&self, world: &World) -> anyhow::Result<()> {
        for (plural, versions) in self.all() {
            change(world, plural, json!({ "versions": versions })).await?;
        }
        eventually("the definitions are in force", SOON, || async {
            let refused = refuse_negative_numbers(world).await?;
            Ok((refused == [self.has_minimum; 2]).then_some(()))
        })
        .await
    }

    /// Fails unless these are stored.
    pub async fn are_stored(&self, world: &World) -> anyhow::Result<()> {
        for (plural, versions) in self.all() {
            let stored = stored(world, plural).await?;
            for (n, wanted) in versions.as_array().into_iter().flatten().enumerate() {
                for part in ["name", "schema", "additionalPrinterColumns"] {
                    let now = &stored[n][part];
                    ensure!(*now == wanted[part], "{part} of {plural}: {now:#}");
                }
            }
        }
        Ok(())
    }
}

async fn definitions(world: &World) -> anyhow::Result<Api<DynamicObject>> {
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    world.cluster.api(version, kind, None).await
}

fn name_of(plural: &str) -> String {
    format!("{plural}.loadbalancer.harvesterhci.io")
}

async fn stored(world: &World, plural: &str) -> anyhow::Result<Value> {
    let definition = definitions(world).await?.get(&name_of(plural)).await?;
    Ok(definition.data["spec"]["versions"].clone())
}

/// Changes the spec of a definition by a merge patch.
pub async fn change(world: &World, plural: &str, spec: Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    let (api, name) = (definitions(world).await?, name_of(plural));
    api.patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Whether each of the two refuses a negative number. Nothing is stored.
async fn refuse_negative_numbers(world: &World) -> anyhow::Result<[bool; 2]> {
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
    let lb = world.lbs("default").create(&dry_run, &lb).await.map(drop);
    let pool = world.pools().create(&dry_run, &pool).await.map(drop);
    Ok([is_refused(lb)?, is_refused(pool)?])
}

fn is_refused(outcome: kube::Result<()>) -> anyhow::Result<bool> {
    match outcome {
        Ok(()) => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(true),
        Err(error) => Err(error.into()),
    }
}
