//! Kubernetes' garbage collector, which deletes what a deleted load balancer owned.

use std::time::Duration;

use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::world::World;

/// It looks for new kinds every 30 s.
const LIMIT: Duration = Duration::from_secs(90);
/// Longest time until it deletes an object whose owner is gone, once it knows the kind.
const PROMPT: Duration = Duration::from_secs(2);
/// Where the objects are made by which it is watched.
const NAMESPACE: &str = "default";

/// Waits until the garbage collector knows `LoadBalancer`. Before that it leaves what a deleted one owned, and comes back to it after
/// longer and longer pauses, so that an audit finds it.
pub async fn is_collected(world: &World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(world.client(), NAMESPACE);
    let orphan: ConfigMap = serde_json::from_value(json!({"metadata": {
        "generateName": "orphan-",
        "ownerReferences": [{
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "name": "gone",
            "uid": "00000000-0000-4000-8000-000000000000",
        }],
    }}))?;
    eventually("what has no owner is deleted", LIMIT, || async {
        // Another one each time: for the earlier ones the pauses may be long already.
        let name = api
            .create(&PostParams::default(), &orphan)
            .await?
            .name_any();
        eventually("it is deleted", PROMPT, || async {
            Ok(api.get_metadata_opt(&name).await?.is_none().then_some(()))
        })
        .await
        .map(Some)
    })
    .await
}
