//! Shared by the tests: a cluster with one replica of the webhook, and one without any.

use anyhow::Context;
use harvester_lb_api::LoadBalancer;
use harvester_lb_e2e::World;
use harvester_lb_e2e::quiet::reset;
use harvester_lb_e2e::webhook::{
    CONFIGURATION, DEFINITION, MUTATING, NAMESPACE, Replica, SERVICE, VALIDATING, definition,
    permissions,
};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

/// A cluster without load balancers, pools and webhooks.
pub async fn bare(world: &World) -> anyhow::Result<()> {
    unregister(world).await?;
    // A test that failed may have left another one.
    store(world, "v1beta1").await?;
    reset(world).await?;
    permissions(world).await
}

/// Removes what registers the webhook, as an administrator does it manually.
pub async fn unregister(world: &World) -> anyhow::Result<()> {
    for (version, kind) in [VALIDATING, MUTATING] {
        world
            .cluster
            .delete(version, kind, None, CONFIGURATION)
            .await?;
    }
    let patch = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    definition(world)
        .await?
        .patch(DEFINITION, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    for secret in [format!("{SERVICE}-ca"), format!("{SERVICE}-tls")] {
        world
            .cluster
            .delete("v1", "Secret", Some(NAMESPACE), &secret)
            .await?;
    }
    Ok(())
}

/// Makes a version the one that is stored.
pub async fn store(world: &World, version: &str) -> anyhow::Result<()> {
    let api = definition(world).await?;
    let mut object = api.get(DEFINITION).await?;
    let versions = object.data["spec"]["versions"].as_array_mut();
    let mut is_changed = false;
    for of in versions.context("no versions")? {
        let is_stored = json!(of["name"] == version);
        is_changed |= of["storage"] != is_stored;
        of["storage"] = is_stored;
    }
    if is_changed {
        object.metadata.managed_fields = None;
        let params = PostParams::default();
        api.replace(DEFINITION, &params, &object).await?;
    }
    Ok(())
}

/// A bare cluster with one replica, which is registered and answers.
pub async fn one(world: &World) -> anyhow::Result<Replica> {
    one_with(world, "").await
}

/// The same, with further timings.
pub async fn one_with(world: &World, timings: &str) -> anyhow::Result<Replica> {
    bare(world).await?;
    Replica::start(world, timings).await
}

/// Ends a replica, and leaves a cluster without webhook.
pub async fn finish(world: &World, replicas: &[&Replica]) -> anyhow::Result<()> {
    for replica in replicas {
        if replica.process.is_running() {
            replica.is_unharmed()?;
            replica.process.kill9()?;
        }
    }
    unregister(world).await?;
    let all: Api<LoadBalancer> = Api::all(world.client());
    for lb in all.list(&ListParams::default()).await? {
        let name = lb.metadata.name.unwrap_or_default();
        let namespace = lb.metadata.namespace.unwrap_or_default();
        let api = world.lbs(&namespace);
        let _ = api.delete(&name, &DeleteParams::default()).await;
    }
    Ok(())
}
