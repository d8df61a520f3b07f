//! The migration from kube-vip's ConfigMaps, once, at the first start (MIG-1 to MIG-5).

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{Phase, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::check::passes;
use harvester_lb_e2e::quiet::audited;
use harvester_lb_e2e::webhook::Replica;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::{cluster, holds, record_is, set, start};

const CONFIG_NAMESPACE: &str = "kube-system";
const CONFIG: &str = "kubevip";

async fn config_map(world: &World, namespace: &str, data: Value) -> anyhow::Result<()> {
    world
        .cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": CONFIG}, "data": data,
        }))
        .await?;
    Ok(())
}

fn services(all: &[(&str, &str)]) -> Value {
    let services = all.iter();
    let services: Vec<Value> = services
        .map(|(vip, name)| json!({"vip": vip, "port": 80, "serviceName": name, "uid": "u"}))
        .collect();
    json!({"kubevip-services": json!({"services": services}).to_string()})
}

/// The webhook's reviews of IPPools that it has allowed.
const ALLOWED: &str = "harvester_lb_admission_requests_total{admission=\"validating\",kind=\"IPPool\",result=\"allowed\"}";

/// With the webhook in the path: pools that it refuses would stop the migration.
pub async fn mig_1_mig_5_the_worked_example(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "shop").await?;
    let webhook = Replica::start(&world, "").await?;
    let done = the_worked_example(&world, &webhook).await;
    // The other tests write what it refuses.
    let retired = webhook.retire(&world).await;
    done.and(retired)
}

async fn the_worked_example(world: &World, webhook: &Replica) -> anyhow::Result<()> {
    let allowed = webhook.metric(ALLOWED).await?;
    world.namespace("data").await?;
    let ranges = json!({
        "cidr-shop": "10.10.7.0/24", "range-global": "10.10.8.10-10.10.8.30", "cidr-Bad": "10.10.9.0/24",
    });
    config_map(world, CONFIG_NAMESPACE, ranges).await?;
    let shop = services(&[("10.10.7.9", "web"), ("0.0.0.0", "dh")]);
    config_map(world, "shop", shop).await?;
    let data = services(&[("10.10.8.12", "db"), ("10.10.9.9", "x")]);
    config_map(world, "data", data).await?;

    // They exist before the pools do: the migration comes before any allocation.
    cluster(world, "shop", "web").await?;
    cluster(world, "shop", "other").await?;
    cluster(world, "data", "db").await?;
    let operator = start(world).await?;
    holds(world, "shop", "web", "10.10.7.9").await?;
    holds(world, "data", "db", "10.10.8.12").await?;
    let other = world.lb_address("shop", "other").await?;
    ensure!(other.starts_with("10.10.7."), "{other}");
    audited(world, "node1", &["shop", "global"]).await?;
    passes(world).await?;
    let reviewed = webhook.metric(ALLOWED).await? - allowed;
    ensure!(reviewed >= 2.0, "{reviewed} reviews of two pools");
    let scope =
        |namespace: &str| json!([{"project": "*", "namespace": namespace, "guestCluster": "*"}]);
    for (name, ranges, namespace) in [
        ("shop", json!([{"subnet": "10.10.7.0/24"}]), "shop"),
        (
            "global",
            json!([{"subnet": "10.10.8.0/27", "rangeStart": "10.10.8.10", "rangeEnd": "10.10.8.30"}]),
            "*",
        ),
    ] {
        let spec = serde_json::to_value(world.pools().get(name).await?.spec)?;
        ensure!(spec["ranges"] == ranges, "{name}: {spec:#}");
        ensure!(
            spec["selector"]["scope"] == scope(namespace),
            "{name}: {spec:#}"
        );
    }
    for none in ["10.10.9.9", "0.0.0.0"] {
        ensure!(world.records().get_opt(none).await?.is_none(), "{none}");
    }
    let api: Api<ConfigMap> = Api::namespaced(world.client(), CONFIG_NAMESPACE);
    let migrated = api.get(CONFIG).await?;
    let marks = migrated.metadata.annotations.clone().unwrap_or_default();
    let mark = marks.get(keys::ANNOTATION_AFTER_CONVERSION);
    ensure!(mark.map(String::as_str) == Some("true"), "{marks:?}");
    for text in [
        "NotMigrated: key \"cidr-Bad\"",
        "Migrated: 2 IPPools created, 2 addresses",
    ] {
        world
            .event(CONFIG_NAMESPACE, "ConfigMap", CONFIG, text)
            .await?;
    }

    // Once: what is deleted or changed afterwards stays so.
    world.delete_lb("data", "db").await?;
    record_is(world, "10.10.8.12", Phase::Released, "data/db").await?;
    operator.end().await?;
    // The webhook learns by its watch that the address is released (PV-9).
    eventually("pool global is deleted", SOON, || async {
        let params = DeleteParams::default();
        world.pools().delete("global", &params).await?;
        Ok(Some(()))
    })
    .await?;
    let operator = start(world).await?;
    audited(world, "node1", &["shop"]).await?;
    ensure!(
        world.pools().get_opt("global").await?.is_none(),
        "made again"
    );
    let now = api.get(CONFIG).await?;
    ensure!(
        now.metadata.resource_version == migrated.metadata.resource_version,
        "the ConfigMap was written again: {now:?}"
    );
    operator.end().await?;
    for namespace in [CONFIG_NAMESPACE, "shop", "data"] {
        let api: Api<ConfigMap> = Api::namespaced(world.client(), namespace);
        api.delete(CONFIG, &DeleteParams::default()).await?;
    }
    eventually("it is gone", SOON, || async {
        let left = api.get_opt(CONFIG).await?;
        Ok(left.is_none().then_some(()))
    })
    .await
    .context("the ConfigMap")
}
