//! `export --clear-conditions` (OPS-2): removes the detail conditions from every LoadBalancer, because nothing updates them
//! afterwards: the Go operator keeps conditions that it does not know, and updates only `Ready`.
//!
//! The operator must not run meanwhile: it would write them again.

use anyhow::ensure;
use futures::{StreamExt, stream};
use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use harvester_lb_core::details;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use tracing::info;

use crate::commands::lease_holder;
use crate::commands::list::{WRITERS, pages};

/// Number of attempts to write a LoadBalancer that others write at the same time.
const ATTEMPTS: usize = 5;

/// Checks that no process holds the Lease of the operator.
///
/// # Errors
/// One holds it, or the Lease cannot be read.
pub async fn ensure_stopped(client: &Client) -> anyhow::Result<()> {
    let holder = lease_holder::current(client).await?;
    ensure!(
        holder.is_none(),
        "the Lease {}/{} is held by {}: stop the operator first, it would write the conditions again",
        keys::LEASE_NAMESPACE,
        keys::LEASE_NAME,
        holder.unwrap_or_default()
    );
    Ok(())
}

/// Removes the detail conditions. Returns one message for each LoadBalancer that cannot be written, and one if there is no such
/// kind and therefore no condition.
///
/// # Errors
/// The LoadBalancers cannot be listed.
pub async fn run(client: &Client) -> anyhow::Result<Vec<String>> {
    let resource = LoadBalancer::api_resource();
    // One that cannot be decoded has conditions too.
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = match pages(&all, Some).await {
        Err(WriteError::NotFound(_)) => {
            let text = "kind LoadBalancer does not exist, there are no conditions to remove";
            return Ok(vec![text.to_owned()]);
        }
        found => found?,
    };
    let mut each = stream::iter(found)
        .map(|lb| async {
            let (namespace, name) = (lb.namespace().unwrap_or_default(), lb.name_any());
            let api = Api::namespaced_with(client.clone(), &namespace, &resource);
            clear(&api, lb).await.map_err(|error| format!(
                "the conditions of LoadBalancer {namespace}/{name} cannot be removed, run the command again: {error}"
            ))
        })
        .buffer_unordered(WRITERS);
    let (mut lacking, mut cleared) = (Vec::new(), 0_usize);
    while let Some(done) = each.next().await {
        match done {
            Ok(is_written) => cleared += usize::from(is_written),
            Err(error) => lacking.push(error),
        }
    }
    info!(cleared, "conditions removed");
    Ok(lacking)
}

/// Removes the detail conditions of one LoadBalancer. Returns whether it had any.
async fn clear(api: &Api<DynamicObject>, mut lb: DynamicObject) -> Result<bool, WriteError> {
    for attempt in 1.. {
        let Some(patch) = patch(&lb) else {
            return Ok(false);
        };
        let (name, params) = (lb.name_any(), PatchParams::default());
        match bounded(api.patch(&name, &params, &Patch::Merge(patch))).await {
            Ok(_) => return Ok(true),
            Err(WriteError::NotFound(_)) => return Ok(false),
            Err(WriteError::Conflict(_)) if attempt < ATTEMPTS => {
                match bounded(api.get_opt(&name)).await? {
                    Some(now) => lb = now,
                    None => return Ok(false),
                }
            }
            Err(other) => return Err(other),
        }
    }
    Ok(false)
}

/// The merge patch that removes the detail conditions from this version of a LoadBalancer; `None` if it has none.
fn patch(lb: &DynamicObject) -> Option<Value> {
    let conditions = lb.data["status"]["conditions"].as_array()?;
    let is_detail = |c: &&Value| c["type"].as_str().is_some_and(details::is_detail);
    let kept: Vec<&Value> = conditions.iter().filter(|c| !is_detail(c)).collect();
    (kept.len() < conditions.len()).then(|| {
        json!({
            "metadata": {"resourceVersion": lb.metadata.resource_version},
            "status": {"conditions": kept},
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use http::Method;
    use jiff::Timestamp;

    use crate::commands::lease_holder::tests::{PATH, lease};
    use crate::fake::FakeApiServer;

    #[tokio::test]
    async fn ops_2_a_held_lease_is_refused_with_its_holder() {
        let server = FakeApiServer::default();
        let client = server.client();
        ensure_stopped(&client).await.unwrap();
        let held = lease("node1_u", &Timestamp::now().to_string());
        server.put(PATH, serde_json::to_value(held).unwrap());
        let refusal = ensure_stopped(&client).await.unwrap_err().to_string();
        assert!(refusal.contains("is held by node1_u"), "{refusal}");
    }

    fn lb(status: &Value) -> DynamicObject {
        let meta = json!({"namespace": "n", "name": "a", "resourceVersion": "7"});
        serde_json::from_value(json!({
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
            "metadata": meta, "spec": {}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn ops_2_only_the_detail_conditions_are_removed() {
        let condition = |type_: &str| json!({"type": type_, "status": "True"});
        let all = [
            "Ready",
            "AddressAllocated",
            "AddressLost",
            "Announced",
            "BackendsHealthy",
        ];
        let status = json!({"address": "10.0.0.2", "conditions": all.map(condition)});
        let kept = ["Ready", "AddressLost"].map(condition);
        assert_eq!(
            patch(&lb(&status)),
            Some(json!({
                "metadata": {"resourceVersion": "7"},
                "status": {"conditions": kept},
            }))
        );
        for status in [
            json!({}),
            json!({"conditions": "none"}),
            json!({"conditions": [condition("Ready")]}),
        ] {
            assert_eq!(patch(&lb(&status)), None, "{status}");
        }
    }

    #[tokio::test]
    async fn ops_2_without_the_kind_there_is_nothing_to_remove() {
        let told = run(&FakeApiServer::default().client()).await.unwrap();
        assert!(
            matches!(&told[..], [one] if one.contains("kind LoadBalancer does not exist")),
            "{told:?}"
        );
    }

    #[tokio::test]
    async fn ops_2_one_that_cannot_be_written_is_named() {
        const ALL: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers";
        const ONE: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/n/loadbalancers/a";
        let server = FakeApiServer::default();
        let told = json!({"conditions": [{"type": "Announced", "status": "True"}]});
        let object = serde_json::to_value(lb(&told)).unwrap();
        server.put(ALL, json!({"metadata": {}, "items": [object]}));
        server.put(ONE, object);
        server.refuse(Method::PATCH, "loadbalancers");
        let client = server.client();
        let lacking = run(&client).await.unwrap();
        assert!(
            lacking.len() == 1 && lacking[0].contains("n/a"),
            "{lacking:?}"
        );
        server.admit();
        assert_eq!(run(&client).await.unwrap(), [""; 0]);
        let conditions = &server.get(ONE).unwrap()["status"]["conditions"];
        assert_eq!(*conditions, json!([]));
    }
}
