//! Conversion by the API server (2.4), and a cold start with objects of v1alpha1 alone (CNV-1).

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::API_VERSION;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{
    DEFINITION, Replica, alpha, answers, definition, endpoints, uninstall,
};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{machine, subnet};
use harvester_lb_testkit::eventually;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::stage::{bare, finish, one, store};
use crate::table::api;

/// The VirtualMachineInstance, the pool and the IPAllocation of the example.
async fn furnish(world: &World) -> anyhow::Result<()> {
    if world
        .cluster
        .get("v1", "Namespace", None, "web")
        .await?
        .is_none()
    {
        world.namespace("web").await?;
    }
    let labels = json!({"app": "web"});
    world
        .cluster
        .apply(&machine("web", "vm7", &labels, Some("10.10.1.7")))
        .await?;
    world
        .pool("p", json!({"ranges": [subnet("10.10.9.0/24")]}))
        .await?;
    world
        .cluster
        .apply(&json!({
            "apiVersion": API_VERSION, "kind": "IPAllocation", "metadata": {"name": "10.10.9.4"},
            "spec": {
                "address": "10.10.9.4", "pool": "p", "phase": "Bound",
                "owner": {"namespace": "web", "name": "a", "uid": "u"},
            },
        }))
        .await?;
    Ok(())
}

fn example(name: &str) -> Value {
    json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": name, "namespace": "web"},
        "spec": {
            "ipam": "pool", "backendServers": ["10.10.1.7"],
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
            "healthCheck": {
                "port": 8080, "successThreshold": 1, "failureThreshold": 3, "PeriodSeconds": 7, "timeoutSeconds": 2,
            },
        },
        "status": {"address": "10.10.9.4"},
    })
}

/// The result of the example, in v1beta1.
fn is_example(object: &DynamicObject) -> anyhow::Result<()> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    ensure!(spec["ipPool"] == "p", "{spec}");
    ensure!(
        spec["backendServerSelector"] == json!({"harvesterhci.io/vmName": ["vm7"]}),
        "{spec}"
    );
    ensure!(spec["healthCheck"]["periodSeconds"] == 7, "{spec}");
    ensure!(status["backendServers"] == json!(["10.10.1.7"]), "{status}");
    ensure!(status["address"] == "10.10.9.4", "{status}");
    let allocated = &status["allocatedAddress"];
    ensure!(
        allocated["ip"] == "10.10.9.4" && allocated["ipPool"] == "p",
        "{status}"
    );
    Ok(())
}

pub async fn section_2_4_the_example_by_the_api_server(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    furnish(&world).await?;
    let (old, new) = (
        alpha(&world, "web").await?,
        api(&world, "LoadBalancer", "web").await?,
    );
    let object: DynamicObject = serde_json::from_value(example("a"))?;
    // Written in v1alpha1, stored in v1beta1: converted when it is written.
    eventually("the example is converted", SOON, || async {
        let made = old.create(&PostParams::default(), &object).await;
        made.context("create")?;
        let stored = new.get("a").await?;
        if let Err(error) = is_example(&stored) {
            old.delete("a", &DeleteParams::default()).await?;
            return Err(error);
        }
        Ok(Some(()))
    })
    .await?;
    let back = old.get("a").await?;
    let wanted = example("a");
    for field in ["ipam", "backendServers", "listeners", "healthCheck"] {
        ensure!(
            back.data["spec"][field] == wanted["spec"][field],
            "{field}: {back:?}"
        );
    }
    ensure!(back.data["spec"].get("ipPool").is_none(), "{back:?}");
    ensure!(back.data["status"] == wanted["status"], "{back:?}");
    // Lists and patches too.
    let listed = old.list(&ListParams::default()).await?;
    ensure!(listed.items.len() == 1);
    let patch = Patch::Merge(json!({"spec": {"description": "d"}}));
    old.patch("a", &PatchParams::default(), &patch).await?;
    let stored = new.get("a").await?;
    is_example(&stored)?;
    ensure!(stored.data["spec"]["description"] == "d");
    let counted = replica
        .metric("harvester_lb_conversion_requests_total{result=\"allowed\"}")
        .await?;
    ensure!(counted >= 4.0, "{counted}");
    finish(&world, &[&replica]).await
}

/// Waits until the API server lists the one object: after a change of the definition its cache begins empty, and a list is
/// answered with 429 until it is filled.
async fn is_listed(api: &Api<DynamicObject>) -> anyhow::Result<()> {
    eventually("it is listed", SOON, || async {
        let listed = api.list(&ListParams::default()).await?;
        ensure!(listed.items.len() == 1, "{listed:?}");
        is_example(&listed.items[0])?;
        Ok(Some(()))
    })
    .await
}

pub async fn cnv_1_a_cold_start_with_objects_of_v1alpha1_alone(
    world: Arc<World>,
) -> anyhow::Result<()> {
    bare(&world).await?;
    endpoints(&world, &["node1"]).await?;
    furnish(&world).await?;
    // As a cluster of an old version left them.
    store(&world, "v1alpha1").await?;
    let old = alpha(&world, "web").await?;
    let object: DynamicObject = serde_json::from_value(example("a"))?;
    eventually("it is stored in v1alpha1", SOON, || async {
        let made = old.create(&PostParams::default(), &object).await;
        made.context("create")?;
        // The API server learns of its own definitions by a watch. Until then it stores v1beta1, without the backends.
        let stored = old.get("a").await?;
        if stored.data["spec"]["backendServers"] != object.data["spec"]["backendServers"] {
            old.delete("a", &DeleteParams::default()).await?;
            return Ok(None);
        }
        Ok(Some(()))
    })
    .await?;
    store(&world, "v1beta1").await?;
    // With the stanza, and nobody behind it, LoadBalancers cannot be listed.
    let replica = Replica::spawn(&world, "node1", "").await?;
    replica.ready().await?;
    replica.registered().await?;
    answers(&world).await?;
    let new = api(&world, "LoadBalancer", "web").await?;
    eventually("it is read in v1beta1", SOON, || async {
        is_example(&new.get("a").await?)?;
        Ok(Some(()))
    })
    .await?;
    is_listed(&new).await?;
    // Again, with the registration in place: listing the stored objects calls the webhook that is starting.
    replica.process.kill9()?;
    let replica = Replica::spawn(&world, "node1", "").await?;
    replica.ready().await?;
    eventually("it is read in v1beta1 again", SOON, || async {
        is_example(&new.get("a").await?)?;
        Ok(Some(()))
    })
    .await?;
    is_listed(&new).await?;
    stored_again(&world).await?;
    finish(&world, &[&replica]).await
}

/// `uninstall-webhook` stores what is stored in v1alpha1 in v1beta1, and only then switches conversion off.
async fn stored_again(world: &World) -> anyhow::Result<()> {
    let definitions = definition(world).await?;
    let before = definitions.get(DEFINITION).await?;
    let versions = before.data["status"]["storedVersions"].clone();
    ensure!(
        versions == json!(["v1beta1", "v1alpha1"]) || versions == json!(["v1alpha1", "v1beta1"]),
        "{versions}"
    );
    uninstall(world).await?;
    let after = definitions.get(DEFINITION).await?;
    ensure!(
        after.data["status"]["storedVersions"] == json!(["v1beta1"]),
        "{after:?}"
    );
    ensure!(
        after.data["spec"]["conversion"]["strategy"] == "None",
        "{after:?}"
    );
    let new = api(world, "LoadBalancer", "web").await?;
    is_example(&new.get("a").await?)
}
