//! `uninstall-webhook`: removes the registration of the webhook, so that no request depends on a Service that is about to go.
//!
//! The order keeps every LoadBalancer readable. The replicas are told not to register again, and told so again and again
//! while this lasts: if it fails and is not repeated, they go back to work. They continue to answer. The
//! two configurations go. Objects that are stored as v1alpha1 are written once, which stores them as v1beta1, and the
//! definition's `storedVersions` is trimmed. Only then conversion is switched off, the replicas end if their Deployment is
//! named, and the Secrets go. If one step fails, those after it are left out, and the replicas go back to work at once:
//! everything can be run again.
//!
//! Without conversion an object that is stored as v1alpha1 is read without what v1beta1 has elsewhere, and every write stores
//! that. So nothing is done if conversion is off while there may be such objects, and whether it still is on is read again
//! and again while they are written.
//!
//! The Secrets go last because of a container that restarts: without the mark on them it makes a new authority and registers
//! itself, with failurePolicy Fail and maybe just before its Service is deleted.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_api::{LoadBalancer, meta};
use harvester_lb_controller_kit::client;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::args::webhook::UninstallArgs;
use crate::commands::deployment::{ended_within, scale_to_0};
use crate::commands::list::{WRITERS, pages};
use crate::commands::uninstall_webhook::conversion::{
    Converter, STORED, definition, stored_versions,
};
use crate::webhook::desired::{Call, calls};
use crate::webhook::metrics::{self, Metrics};
use crate::webhook::secrets::patch_params;
use crate::webhook_names::{
    ANNOTATION_UNINSTALLED, CONFIGURATION, DEFINITION, Names, UNINSTALLATION,
    UNINSTALLATION_INTERVAL,
};

mod conversion;

/// How often a removal is tried: a replica may be restoring at the same moment.
const ATTEMPTS: usize = 5;
/// Time after which a removal is checked. A replica learns within milliseconds that it must not restore.
const SETTLED: Duration = Duration::from_secs(2);
/// How often the write of one LoadBalancer is tried, if others write it at the same time.
const WRITES: usize = 5;
/// LoadBalancers that are written before it is looked whether they are still converted, and the replicas may be told again.
const CHUNK: usize = 100;
/// Longest wait for the end of the replicas. Their Pods need not be gone, so it takes about a second.
const END: Duration = Duration::from_mins(1);

/// Runs the command.
///
/// # Errors
/// Something could not be read, rewritten or removed; what was not done is left as it was.
pub async fn run(args: &UninstallArgs) -> anyhow::Result<()> {
    let names = args.place.names()?;
    let metrics = Arc::new(Metrics::new()?);
    let client = client::connect(metrics::observer(&metrics)).await?.write;
    let uninstall = Uninstall {
        client,
        names,
        deployment: args.deployment.clone(),
    };
    uninstall.all().await
}

struct Uninstall {
    client: Client,
    names: Names,
    /// The Deployment of the replicas, if they are to end.
    deployment: Option<String>,
}

impl Uninstall {
    async fn all(&self) -> anyhow::Result<()> {
        let done = self.steps().await;
        if done.is_err() {
            self.let_replicas_work().await;
        }
        done
    }

    async fn steps(&self) -> anyhow::Result<()> {
        // Before anything is changed.
        definition(&self.client, &self.names).await?;
        self.remove_registration().await?;
        if let Some(deployment) = &self.deployment {
            // A replica that starts during the wait is told as well.
            self.tell_replicas().await?;
            if let Some(remains) = self.end_replicas(deployment).await? {
                warn!("{remains}");
            }
        }
        self.remove_secrets().await?;
        // A replica that has started since then was not told. Without one this is a few reads.
        self.remove_registration().await
    }

    async fn remove_registration(&self) -> anyhow::Result<()> {
        self.tell_replicas().await?;
        self.remove_configurations().await?;
        self.tell_replicas().await?;
        self.remove_conversion().await
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.names.namespace)
    }

    /// Marks the authority's Secret: replicas that see it register nothing for a while.
    async fn tell_replicas(&self) -> anyhow::Result<()> {
        self.mark(Some(Timestamp::now())).await
    }

    /// Removes the mark. If that fails, the replicas wait until it counts no more.
    async fn let_replicas_work(&self) {
        if let Err(error) = self.mark(None).await {
            let (error, wait) = (format!("{error:#}"), UNINSTALLATION);
            warn!(
                error,
                ?wait,
                "the replicas are not told of the failure, they register nothing for a while"
            );
        }
    }

    async fn mark(&self, at: Option<Timestamp>) -> anyhow::Result<()> {
        let name = self.names.authority_secret();
        let at = at.map(|at| at.to_string());
        let patch = json!({"metadata": {"annotations": {ANNOTATION_UNINSTALLED: at}}});
        match bounded(
            self.secrets()
                .patch(&name, &patch_params(), &Patch::Merge(patch)),
        )
        .await
        {
            Ok(_) | Err(WriteError::NotFound(_)) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("Secret {name}")),
        }
    }

    async fn remove_configurations(&self) -> anyhow::Result<()> {
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        self.remove_configuration(&validating, |object| {
            let webhooks = object.webhooks.iter().flatten();
            calls(webhooks.map(|w| &w.client_config))
        })
        .await?;
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        self.remove_configuration(&mutating, |object| {
            let webhooks = object.webhooks.iter().flatten();
            calls(webhooks.map(|w| &w.client_config))
        })
        .await
    }

    /// Removes a configuration if all of its webhooks are this one.
    async fn remove_configuration<K>(
        &self,
        api: &Api<K>,
        calls: impl Fn(&K) -> Vec<Call>,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let kind = K::kind(&());
        for _ in 0..ATTEMPTS {
            let found = bounded(api.get_opt(CONFIGURATION)).await;
            let Some(found) = found.with_context(|| format!("{kind} {CONFIGURATION}"))? else {
                info!(%kind, "no configuration");
                return Ok(());
            };
            if !calls(&found).iter().all(|call| call.is_of(&self.names)) {
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

    /// Switches conversion off, once nothing is stored that needs it.
    async fn remove_conversion(&self) -> anyhow::Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for _ in 0..ATTEMPTS {
            let found = definition(&self.client, &self.names).await?;
            let Some((found, converter)) = found else {
                return Ok(());
            };
            match converter {
                Converter::This => {}
                Converter::Other => {
                    warn!("conversion is another webhook's, left alone");
                    return Ok(());
                }
                Converter::Nobody => {
                    info!("conversion is off");
                    return Ok(());
                }
            }
            let stored = stored_versions(&found);
            if stored != [STORED] {
                ensure!(
                    stored.iter().any(|version| version == STORED) || stored.is_empty(),
                    "the definition {DEFINITION} stores {stored:?} and not {STORED}: apply the present definition first"
                );
                self.store_again().await?;
                self.trim_stored_versions(&api, &found).await?;
                continue;
            }
            let patch = json!({
                "metadata": {"resourceVersion": found.resource_version()},
                "spec": {"conversion": {"strategy": "None", "webhook": null}},
            });
            match bounded(api.patch(DEFINITION, &patch_params(), &Patch::Merge(patch))).await {
                Ok(_) => info!("conversion switched off"),
                Err(error) if error.is_stale() => continue,
                Err(error) => return Err(error).with_context(|| DEFINITION.to_owned()),
            }
            tokio::time::sleep(SETTLED).await;
        }
        bail!(
            "the definition {DEFINITION} is changed by others again and again: stop the webhook first"
        )
    }

    /// Writes every LoadBalancer as it is: the API server stores it in the storage version then.
    async fn store_again(&self) -> anyhow::Result<()> {
        let all: Api<PartialObjectMeta<LoadBalancer>> = Api::all(self.client.clone());
        let objects = pages(&all, Some)
            .await
            .context("the LoadBalancers cannot be listed")?;
        // The list may have taken a while: each object is converted.
        self.tell_replicas().await?;
        info!(
            objects = objects.len(),
            "storing all LoadBalancers in the version {STORED}"
        );
        let mut told = Instant::now();
        for some in objects.chunks(CHUNK) {
            // Without conversion a write would store what is left of an object.
            let found = definition(&self.client, &self.names).await?;
            ensure!(
                matches!(found, Some((_, Converter::This))),
                "the definition {DEFINITION} was changed and names this webhook no more, the LoadBalancers were not all stored as {STORED}: run this command again once the webhook has restored conversion"
            );
            if told.elapsed() > UNINSTALLATION_INTERVAL {
                self.tell_replicas().await?;
                told = Instant::now();
            }
            let each = stream::iter(some).map(Ok);
            each.try_for_each_concurrent(WRITERS, |object| self.store_one_again(&object.metadata))
                .await?;
        }
        Ok(())
    }

    /// Nothing of it changes but the version in the storage.
    async fn store_one_again(&self, found: &ObjectMeta) -> anyhow::Result<()> {
        let key = meta::key(found);
        let api: Api<PartialObjectMeta<LoadBalancer>> =
            Api::namespaced(self.client.clone(), &key.namespace);
        let mut version = found.resource_version.clone();
        for attempt in 1.. {
            let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}}));
            match bounded(api.patch(&key.name, &patch_params(), &patch)).await {
                Ok(_) | Err(WriteError::NotFound(_)) => break,
                Err(WriteError::Conflict(_)) if attempt < WRITES => {
                    let live = bounded(api.get_opt(&key.name)).await;
                    match live.with_context(|| format!("LoadBalancer {key}"))? {
                        Some(live) => version = live.metadata.resource_version,
                        None => break,
                    }
                }
                Err(error) => return Err(error).with_context(|| format!("LoadBalancer {key}")),
            }
        }
        Ok(())
    }

    async fn trim_stored_versions(
        &self,
        api: &Api<CustomResourceDefinition>,
        found: &CustomResourceDefinition,
    ) -> anyhow::Result<()> {
        let patch = json!({
            "metadata": {"resourceVersion": found.resource_version()},
            "status": {"storedVersions": [STORED]},
        });
        let (params, patch) = (patch_params(), Patch::Merge(patch));
        match bounded(api.patch_status(DEFINITION, &params, &patch)).await {
            Ok(_) => {
                info!("stored versions trimmed");
                Ok(())
            }
            // Read again, and everything is decided anew.
            Err(error) if error.is_stale() => Ok(()),
            Err(error) => Err(error).context("the status of the definition"),
        }
    }

    /// Scales the Deployment to 0, and waits until it has no replicas; returns what remains after [`END`].
    ///
    /// A Pod that is being deleted is no replica (`FilterActivePods` of Kubernetes), and need not be waited for: its containers
    /// are not restarted, what runs in it was told, restores nothing after SIGTERM, and is no ready endpoint, without which
    /// nothing is registered anew.
    async fn end_replicas(&self, name: &str) -> anyhow::Result<Option<String>> {
        let (client, namespace) = (&self.client, &*self.names.namespace);
        let full_name = || format!("Deployment {namespace}/{name}");
        match scale_to_0(client, namespace, name).await {
            Ok(()) => {}
            Err(WriteError::NotFound(_)) => {
                info!(namespace, name, "no such Deployment, no replicas to end");
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(full_name),
        }
        let ended = ended_within(END, client, namespace, name).await;
        if ended.with_context(full_name)? {
            info!(namespace, name, "the replicas have ended");
            return Ok(None);
        }
        Ok(Some(format!(
            "{} still has replicas {END:?} after it was scaled to 0: a container that restarts registers the webhook again",
            full_name()
        )))
    }

    async fn remove_secrets(&self) -> anyhow::Result<()> {
        for name in [self.names.leaf_secret(), self.names.authority_secret()] {
            match bounded(self.secrets().delete(&name, &DeleteParams::default())).await {
                Ok(_) => info!(name, "Secret removed"),
                Err(WriteError::NotFound(_)) => {}
                Err(error) => return Err(error).with_context(|| format!("Secret {name}")),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
