//! The life cycle of a guest cluster with a cloud provider v0.1.x (section 12): it uses v1alpha1, watches one LoadBalancer
//! and waits 5 s for its address.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::{StreamExt, pin_mut};
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::alpha;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, for_namespace, machine, subnet};
use harvester_lb_testkit::eventually;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::stage::{finish, one};

const NS: &str = "guest-v01";
/// The guest gives up after this time, and starts again.
const PATIENCE: Duration = Duration::from_secs(5);

pub async fn gen_1_a_v0_1_guest_and_its_watch(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let operator = world.start_operator("node2").await?;
    world.namespace(NS).await?;
    let kube_vip = harvester_lb_e2e::fake_kube_vip::FakeKubeVip::start(&world.client());
    for (name, address) in [("n1", "10.10.1.11"), ("n2", "10.10.1.12")] {
        // As Harvester labels every machine; the selector that the conversion makes is about this label.
        let labels = json!({keys::LABEL_VM_NAME: name});
        world
            .cluster
            .apply(&machine(NS, name, &labels, Some(address)))
            .await?;
    }
    world
        .pool(
            "guests",
            json!({"ranges": [subnet("10.24.1.0/24")], "selector": for_namespace(NS)}),
        )
        .await?;
    let api = alpha(&world, NS).await?;
    // The webhook learns of the machines by its watch.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1", "kind": "LoadBalancer",
        "metadata": {
            "name": "svc", "namespace": NS,
            "labels": {"cloudprovider.harvesterhci.io/cluster": "gc"},
            "annotations": {"cloudprovider.harvesterhci.io/service-uuid": "u"},
        },
        "spec": {
            "ipam": "pool", "backendServers": ["10.10.1.11", "10.10.1.12"],
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 30080}],
        },
    }))?;
    let made = api.create(&PostParams::default(), &object).await?;
    let created = Instant::now();
    let params = WatchParams::default().fields("metadata.name=svc");
    let version = made.metadata.resource_version.context("no version")?;
    let watching = api.watch(&params, &version).await?;
    pin_mut!(watching);
    let address = timeout(PATIENCE, async {
        loop {
            match watching.next().await.context("the watch ended")?? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let types = object.types.clone().context("no types")?;
                    ensure!(types.api_version.ends_with("/v1alpha1"), "{types:?}");
                    let address = object.data["status"]["address"].as_str();
                    if let Some(address) = address.filter(|a| !a.is_empty()) {
                        return Ok(address.to_owned());
                    }
                }
                WatchEvent::Bookmark(_) => {}
                other => anyhow::bail!("{other:?}"),
            }
        }
    })
    .await
    .context("no address within 5 s")??;
    eprintln!("address {address} after {:?}", created.elapsed());
    let lb = world.lb_reason(NS, "svc", "Ready").await?;
    let selector = lb.spec.backend_server_selector.unwrap_or_default();
    ensure!(
        selector
            .get(keys::LABEL_VM_NAME)
            .is_some_and(|names| names == &["n1", "n2"]),
        "{selector:?}"
    );
    a_later_guest(&world, &address).await?;
    // A node goes: the guest writes the whole spec again, and the address stays.
    eventually("the guest's write", SOON, || async {
        // The operator may write the status at the same moment.
        let mut again = api.get("svc").await?;
        again.data["spec"]["backendServers"] = json!(["10.10.1.12"]);
        api.replace("svc", &PostParams::default(), &again).await?;
        Ok(Some(()))
    })
    .await?;
    eventually("one backend is left", SOON, || async {
        let lb = world.lbs(NS).get("svc").await?;
        let selector = lb.spec.backend_server_selector.unwrap_or_default();
        let named = selector.get(keys::LABEL_VM_NAME);
        Ok(named.is_some_and(|names| names == &["n2"]).then_some(()))
    })
    .await?;
    let lb = world.lb_reason(NS, "svc", "Ready").await?;
    let status = lb.status.unwrap_or_default();
    ensure!(status.address.as_deref() == Some(&*address), "{status:?}");
    // A write of the metadata in v1alpha1 strips nothing.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    api.patch("svc", &PatchParams::default(), &patch).await?;
    let lb = world.lbs(NS).get("svc").await?;
    ensure!(lb.spec.ip_pool.as_deref() == Some("guests"), "{lb:?}");
    world.delete_lb(NS, "svc").await?;
    world.gone(&world.lbs(NS), "svc").await?;
    drop(kube_vip);
    operator.end().await?;
    finish(&world, &[&replica]).await
}

/// A guest cluster with a cloud provider v0.2 or later, beside one that holds `other`: it writes v1beta1, polls, and then
/// writes the address into the status itself.
async fn a_later_guest(world: &World, other: &str) -> anyhow::Result<()> {
    let metadata = json!({
        "namespace": NS, "name": "later", "labels": {keys::LABEL_CLOUDPROVIDER_CLUSTER: "gc2"},
        "annotations": {
            keys::ANNOTATION_CLUSTER: "gc2", keys::ANNOTATION_PROJECT: "own", keys::ANNOTATION_NAMESPACE: "",
        },
    });
    world.lb_with(metadata, cluster_spec()).await?;
    let address = timeout(Duration::from_secs(10), world.lb_address(NS, "later")).await;
    let address = address.context("no address within 10 s")??;
    ensure!(address != other, "{address} was allocated twice");
    let status = json!({"status": {"address": address}});
    world.merge(&world.lbs(NS), "later", status).await?;
    let lb = world.lb_reason(NS, "later", "Ready").await?;
    let annotations = lb.metadata.annotations.unwrap_or_default();
    for (key, value) in [
        (keys::ANNOTATION_NAMESPACE, NS),
        (keys::ANNOTATION_PROJECT, ""),
        (keys::ANNOTATION_NETWORK, ""),
    ] {
        let found = annotations.get(key).map(String::as_str);
        ensure!(found == Some(value), "{key}: {annotations:?}");
    }
    world.delete_lb(NS, "later").await?;
    world.gone(&world.lbs(NS), "later").await
}
