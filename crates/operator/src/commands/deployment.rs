//! A Deployment whose Pods a command ends: scaled to 0, and waited for. `patch` on its scale is enough for that; `patch` on
//! the Deployment would let its holder run anything.

use std::time::Duration;

use harvester_lb_controller_kit::writer::{WriteError, bounded};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tracing::info;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Scales a Deployment to 0, whatever it was: no copy of it is decided from, so the patch has no resource version.
///
/// # Errors
/// [`WriteError::NotFound`] if there is none, else what the API server says.
pub(super) async fn scale_to_0(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<(), WriteError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    bounded(deployments.patch_scale(name, &PatchParams::default(), &none)).await?;
    info!(namespace, name, "Deployment scaled to 0");
    Ok(())
}

/// Waits until none of its Pods runs that is not being deleted, for this time at most. Returns whether that is so.
///
/// # Errors
/// The API server refuses the request.
pub(super) async fn ended_within(
    limit: Duration,
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<bool, WriteError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let ended = async {
        loop {
            match bounded(deployments.get_opt(name)).await {
                Ok(found) if found.as_ref().is_none_or(is_ended) => return Ok(()),
                Err(error) if error.is_refusal() => return Err(error),
                // Time may help.
                Ok(_) | Err(_) => sleep(PAUSE).await,
            }
        }
    };
    match timeout(limit, ended).await {
        Ok(ended) => ended.map(|()| true),
        Err(_) => Ok(false),
    }
}

/// Whether its controller knows the present spec, and counts no replica. A Pod that is being deleted is none.
fn is_ended(deployment: &Deployment) -> bool {
    let status = deployment.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    let replicas = status.and_then(|status| status.replicas);
    observed >= deployment.metadata.generation && replicas.unwrap_or_default() == 0
}
