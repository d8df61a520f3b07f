//! The two webhook configurations: whether they are this webhook's, and their removal.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, bail};
use harvester_lb_controller_kit::writer::bounded;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use crate::webhook::desired::{Call, calls};
use crate::webhook_names::{CONFIGURATION, Names};

/// How often a removal is tried: a replica may be restoring at the same moment.
pub(super) const ATTEMPTS: usize = 5;
/// Time after which a removal is checked. A replica learns within milliseconds that it must not restore.
pub(super) const SETTLED: Duration = Duration::from_secs(2);

/// Removes those that are this webhook's.
pub(super) async fn remove_configurations(client: &Client, names: &Names) -> anyhow::Result<()> {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    remove(&validating, names, of_validating).await?;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    remove(&mutating, names, of_mutating).await
}

/// Whether one of them calls this webhook.
pub(super) async fn is_configured(client: &Client, names: &Names) -> anyhow::Result<bool> {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let calls = [
        find(&validating).await?.as_ref().map(of_validating),
        find(&mutating).await?.as_ref().map(of_mutating),
    ];
    Ok(calls
        .iter()
        .flatten()
        .flatten()
        .any(|call| call.is_of(names)))
}

fn of_validating(object: &ValidatingWebhookConfiguration) -> Vec<Call> {
    let webhooks = object.webhooks.iter().flatten();
    calls(webhooks.map(|w| &w.client_config))
}

fn of_mutating(object: &MutatingWebhookConfiguration) -> Vec<Call> {
    let webhooks = object.webhooks.iter().flatten();
    calls(webhooks.map(|w| &w.client_config))
}

async fn find<K>(api: &Api<K>) -> anyhow::Result<Option<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = bounded(api.get_opt(CONFIGURATION)).await;
    found.with_context(|| format!("{} {CONFIGURATION}", K::kind(&())))
}

/// Removes a configuration if all of its webhooks are this one.
async fn remove<K>(
    api: &Api<K>,
    names: &Names,
    calls: impl Fn(&K) -> Vec<Call>,
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    for _ in 0..ATTEMPTS {
        let Some(found) = find(api).await? else {
            info!(%kind, "no configuration");
            return Ok(());
        };
        if !calls(&found).iter().all(|call| call.is_of(names)) {
            warn!(%kind, "the configuration is another webhook's, left alone");
            return Ok(());
        }
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: found.uid(),
            resource_version: found.resource_version(),
        });
        match bounded(api.delete(CONFIGURATION, &params)).await {
            Ok(_) => info!(%kind, "configuration removed"),
            Err(error) if error.is_stale() => {}
            Err(error) => return Err(error).with_context(|| format!("{kind} {CONFIGURATION}")),
        }
        // A replica that was restoring it may have been faster.
        tokio::time::sleep(SETTLED).await;
    }
    bail!("{kind} {CONFIGURATION} is created again and again: stop the webhook first")
}
