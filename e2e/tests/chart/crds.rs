//! CRDs: taken over, shared with Harvester's release, upgraded, and never deleted.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::repository;
use harvester_lb_fixtures::{cluster_spec, harvester, subnet, with};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::bare::{bare, uninstalled};
use crate::helm::{
    NAMESPACE, RELEASE, chart, copy_of_chart, deploy, deploys, documents, helm_does, without_pods,
};

pub const LOAD_BALANCERS: &str = "loadbalancers.loadbalancer.harvesterhci.io";
pub const OWN: &str = "ipallocations.loadbalancer.harvesterhci.io";

/// A definition as the API server has it.
pub async fn definition(world: &World, name: &str) -> anyhow::Result<Value> {
    let kind = "CustomResourceDefinition";
    let found = world
        .cluster
        .get("apiextensions.k8s.io/v1", kind, None, name)
        .await?;
    Ok(serde_json::to_value(
        found.with_context(|| format!("no CRD {name}"))?,
    )?)
}

pub fn owner(definition: &Value) -> Option<&str> {
    definition["metadata"]["annotations"]["meta.helm.sh/release-name"].as_str()
}

pub async fn chart_takes_crds_over_only_if_told_to(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    let crds = repository().join("crds/crds.yaml");
    world.cluster.apply_crds(&crds).await?;
    let values = without_pods();
    let said = deploy(&world, "install", &chart(), &values, &[]).await?;
    ensure!(
        !said.success && said.error.contains("ownership"),
        "{said:?}"
    );
    let values_without = with(without_pods(), json!({"crds": {"manage": "none"}}));
    deploys(&world, "install", &chart(), &values_without, &[]).await?;
    ensure!(owner(&definition(&world, OWN).await?).is_none());
    uninstalled(&world).await?;
    deploys(&world, "install", &chart(), &values, &["--take-ownership"]).await?;
    ensure!(owner(&definition(&world, OWN).await?) == Some(RELEASE));
    uninstalled(&world).await?;
    // They have stayed, and belong to the next release of the name.
    let before = definition(&world, LOAD_BALANCERS).await?;
    deploys(&world, "install", &chart(), &values, &[]).await?;
    let after = definition(&world, LOAD_BALANCERS).await?;
    ensure!(before["metadata"]["uid"] == after["metadata"]["uid"]);
    uninstalled(&world).await
}

/// Harvester's definitions of LoadBalancer and IPPool, as objects of its release.
pub fn of_harvester() -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(repository().join("crds/crds.yaml"))?;
    let mut all = documents(&text)?;
    all.retain(|d| d["metadata"]["name"] != OWN);
    for definition in &mut all {
        let is_pool = definition["spec"]["names"]["kind"] == "IPPool";
        definition["spec"]["versions"] = if is_pool {
            harvester::ip_pool_versions()
        } else {
            harvester::load_balancer_versions()
        };
        let metadata = &mut definition["metadata"];
        metadata["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        metadata["annotations"] = json!({
            "meta.helm.sh/release-name": "harvester", "meta.helm.sh/release-namespace": NAMESPACE,
        });
    }
    Ok(all)
}

/// Applies definitions, and waits until they are established.
pub async fn define(world: &World, definitions: &[Value]) -> anyhow::Result<()> {
    let text: Vec<String> = definitions.iter().map(ToString::to_string).collect();
    let file = world.cluster.folder().join("definitions.yaml");
    std::fs::write(&file, text.join("\n---\n"))?;
    world.cluster.apply_crds(&file).await
}

pub async fn chart_beside_harvester_s_release(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    define(&world, &of_harvester()?).await?;
    let before = definition(&world, LOAD_BALANCERS).await?;
    let said = deploy(&world, "install", &chart(), &without_pods(), &[]).await?;
    ensure!(
        !said.success && said.error.contains("harvester"),
        "{said:?}"
    );
    let own = with(without_pods(), json!({"crds": {"manage": "own"}}));
    deploys(&world, "install", &chart(), &own, &[]).await?;
    ensure!(owner(&definition(&world, OWN).await?) == Some(RELEASE));
    deploys(&world, "upgrade", &chart(), &own, &[]).await?;
    uninstalled(&world).await?;
    let after = definition(&world, LOAD_BALANCERS).await?;
    ensure!(owner(&after) == Some("harvester"), "{after:#}");
    ensure!(before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]);
    definition(&world, OWN).await.map(drop)
}

/// A copy of the chart whose CRDs lack the columns.
fn older(world: &World) -> anyhow::Result<PathBuf> {
    let folder = copy_of_chart(world, "older-chart")?;
    let path = folder.join("files/crds.yaml");
    let mut all = documents(&std::fs::read_to_string(&path)?)?;
    for definition in &mut all {
        let versions = definition["spec"]["versions"].as_array_mut();
        for version in versions.context("no versions")? {
            let fields = version.as_object_mut().context("no version")?;
            fields.remove("additionalPrinterColumns");
        }
    }
    let mut text = String::from("# Definitions.\n");
    for definition in &all {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(definition)?);
    }
    std::fs::write(&path, text)?;
    Ok(folder)
}

fn columns(definition: &Value) -> usize {
    let columns = &definition["spec"]["versions"][0]["additionalPrinterColumns"];
    columns.as_array().map_or(0, Vec::len)
}

pub async fn chart_upgrade_upgrades_the_crds(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "upgraded";
    bare(&world).await?;
    let (older, values) = (older(&world)?, without_pods());
    deploys(&world, "install", &older, &values, &[]).await?;
    let before = definition(&world, LOAD_BALANCERS).await?;
    // An absent list is the age alone.
    ensure!(columns(&before) <= 1, "{before:#}");
    let args = [
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd",
    ];
    for name in [LOAD_BALANCERS, OWN, "ippools.loadbalancer.harvesterhci.io"] {
        world
            .cluster
            .kubectl(&[&args[..], &[name]].concat())
            .await?;
    }
    world.namespace(ns).await?;
    world.pool_for(ns, ns, &[subnet("10.70.0.0/24")]).await?;
    let lb = world.lb(ns, "a", cluster_spec()).await?;

    deploys(&world, "upgrade", &chart(), &values, &[]).await?;
    let after = definition(&world, LOAD_BALANCERS).await?;
    ensure!(columns(&after) > 5, "{after:#}");
    ensure!(before["metadata"]["uid"] == after["metadata"]["uid"]);
    // A rollback is an upgrade too, and deletes nothing.
    helm_does(&world, &["rollback", RELEASE, "1", "--no-hooks"]).await?;
    ensure!(columns(&definition(&world, LOAD_BALANCERS).await?) <= 1);
    uninstalled(&world).await?;
    ensure!(world.lbs(ns).get("a").await?.uid() == lb.uid());
    world.pools().get(ns).await?;
    Ok(())
}

/// The definition's conversion calls a Service of this name.
async fn is_converted_by(world: &World, service: &str) -> anyhow::Result<()> {
    let client = json!({"service": {"namespace": NAMESPACE, "name": service, "path": "/convert"}});
    let patch = json!({"spec": {"conversion": {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    }}});
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let api = world.cluster.api(version, kind, None).await?;
    let params = PatchParams::default();
    api.patch(LOAD_BALANCERS, &params, &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// A write in v1alpha1 that nothing converts loses fields. So the version is served only where a webhook converts it.
pub async fn chart_serves_v1alpha1_only_where_it_is_converted(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let serves = async |wanted: bool, what: &str| {
        let present = definition(&world, LOAD_BALANCERS).await?;
        let versions = present["spec"]["versions"].as_array();
        let mut all = versions.context("no versions")?.iter();
        let old = all.find(|version| version["name"] == "v1alpha1");
        let is_served = &old.context("no v1alpha1")?["served"];
        ensure!(*is_served == wanted, "{what}: {is_served}");
        anyhow::Ok(())
    };
    bare(&world).await?;
    let hooks = json!({"hooks": {"enabled": false}});
    let with_webhook = with(without_pods(), hooks);
    let without = with(with_webhook.clone(), json!({"webhook": {"enabled": false}}));
    deploys(&world, "install", &chart(), &without, &[]).await?;
    serves(false, "no webhook").await?;
    deploys(&world, "upgrade", &chart(), &with_webhook, &[]).await?;
    serves(true, "this release's webhook").await?;
    is_converted_by(&world, "harvester-lb-webhook").await?;
    deploys(&world, "upgrade", &chart(), &without, &[]).await?;
    serves(false, "this release's webhook goes").await?;
    is_converted_by(&world, "harvester-load-balancer-webhook").await?;
    deploys(&world, "upgrade", &chart(), &without, &[]).await?;
    serves(true, "the webhook of another release").await?;
    uninstalled(&world).await
}
