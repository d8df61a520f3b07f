//! `uninstall-webhook`: removes the registration of the webhook, so that no request depends on a Service that is about to go.
//!
//! The order keeps every LoadBalancer readable. The replicas are told not to register again, and told so again and again
//! while this lasts: if it fails and is not repeated, they go back to work. They continue to answer. The
//! two configurations go. Objects that are stored as v1alpha1 are written once, which stores them as v1beta1, and the
//! definition's `storedVersions` is trimmed. Only then conversion is switched off, the replicas end if their Deployment is
//! named, and the Secrets go. If one step fails, those after it are left out, and the replicas go back to work at once, as long
//! as there is a Secret that can tell them: everything can be run again.
//!
//! Without conversion an object that is stored as v1alpha1 is read without what v1beta1 has elsewhere, and every write stores
//! that. So nothing is done if conversion is off while there may be such objects, and whether it still is on is read again
//! and again while they are written. Without configurations and authority of this webhook there is nothing to do either way.
//!
//! The Secrets go last because of a container that restarts: without the mark on them it makes a new authority and registers
//! itself, with failurePolicy Fail and maybe just before its Service is deleted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_api::{LoadBalancer, meta};
use harvester_lb_controller_kit::client;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::args::webhook::UninstallArgs;
use crate::commands::deployment::{ended_within, scale_to_0};
use crate::commands::list::{WRITERS, pages};
use crate::commands::uninstall_webhook::configurations::{
    ATTEMPTS, SETTLED, is_configured, remove_configurations,
};
use crate::commands::uninstall_webhook::conversion::{
    Converter, STORED, definition, missing, stored_versions,
};
use crate::webhook::secrets::patch_params;
use crate::webhook_names::{
    ANNOTATION_UNINSTALLED, DEFINITION, Names, UNINSTALLATION, UNINSTALLATION_INTERVAL,
};

mod configurations;
mod conversion;

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
    let clients = client::connect(Arc::new(client::Unobserved)).await?;
    let uninstall = Uninstall {
        client: clients.write,
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
        // Before anything is changed.
        let found = definition(&self.client, &self.names).await;
        let is_unconverted = matches!(found, Ok(Some((_, Converter::Missing))));
        let done = match found {
            Ok(Some((found, Converter::Missing))) => Err(missing(&found)),
            Ok(_) => self.steps().await,
            Err(error) => Err(error),
        };
        let Err(error) = done else { return Ok(()) };
        let has_authority = self.let_replicas_work().await;
        // An upgrade of a release without the webhook must not fail because of what others store.
        if is_unconverted && !has_authority && !is_configured(&self.client, &self.names).await? {
            let error = format!("{error:#}");
            warn!(
                error,
                "this webhook is not there, nothing is uninstalled, but no webhook converts LoadBalancers"
            );
            return Ok(());
        }
        Err(error)
    }

    async fn steps(&self) -> anyhow::Result<()> {
        self.remove_registration().await?;
        if let Some(deployment) = &self.deployment {
            // A replica that starts during the wait is told as well.
            self.tell_replicas().await?;
            if let Some(remains) = self.end_replicas(deployment).await? {
                warn!("{remains}");
            }
        }
        self.remove_secrets().await?;
        // A replica that has started since then was not told, and a write may have been under way. Without one this is a few
        // reads.
        tokio::time::sleep(SETTLED).await;
        let has_authority = self.remove_registration().await?;
        if has_authority {
            self.remove_secrets().await?;
        }
        Ok(())
    }

    /// Returns whether there is an authority.
    async fn remove_registration(&self) -> anyhow::Result<bool> {
        self.tell_replicas().await?;
        remove_configurations(&self.client, &self.names).await?;
        let has_authority = self.tell_replicas().await?;
        self.remove_conversion().await?;
        Ok(has_authority)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.names.namespace)
    }

    /// Marks the authority's Secret: replicas that see it register nothing for a while. Returns whether there is one.
    async fn tell_replicas(&self) -> anyhow::Result<bool> {
        self.mark(Some(Timestamp::now())).await
    }

    /// Removes the mark. If that fails, the replicas wait until it counts no more. Returns whether there may be an authority.
    async fn let_replicas_work(&self) -> bool {
        self.mark(None).await.unwrap_or_else(|error| {
            let (error, wait) = (format!("{error:#}"), UNINSTALLATION);
            warn!(
                error,
                ?wait,
                "mark of the uninstallation not removed; replicas register nothing until it expires"
            );
            true
        })
    }

    /// Returns whether there is an authority.
    async fn mark(&self, at: Option<Timestamp>) -> anyhow::Result<bool> {
        let name = self.names.authority_secret();
        let at = at.map(|at| at.to_string());
        let patch = json!({"metadata": {"annotations": {ANNOTATION_UNINSTALLED: at}}});
        match bounded(
            self.secrets()
                .patch(&name, &patch_params(), &Patch::Merge(patch)),
        )
        .await
        {
            Ok(_) => Ok(true),
            Err(WriteError::NotFound(_)) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("Secret {name}")),
        }
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
                Converter::Missing => return Err(missing(&found)),
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
            if let Some((found, Converter::Missing)) = &found {
                return Err(missing(found));
            }
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
