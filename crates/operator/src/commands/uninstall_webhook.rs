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
mod tests {
    use std::future::ready;

    use http::Method;
    use serde_json::Value;
    use tokio::time::sleep;

    use super::*;
    use crate::fake::{self, FakeApiServer};
    use crate::webhook::desired::Desired;

    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const ALL: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers";
    const ONE: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/n/loadbalancers/a";
    const AUTHORITY: &str = "/api/v1/namespaces/ns/secrets/svc-ca";
    const LEAF: &str = "/api/v1/namespaces/ns/secrets/svc-tls";
    const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/ns/deployments/hook";
    const SCALE: &str = "/apis/apps/v1/namespaces/ns/deployments/hook/scale";

    fn names() -> Names {
        Names {
            namespace: "ns".to_owned(),
            service: "svc".to_owned(),
        }
    }

    /// A registered conversion of objects that are stored in these versions, and the Secrets.
    fn server(stored: &[&str]) -> FakeApiServer {
        let server = FakeApiServer::default();
        server.put(
            &format!("{DEFINITIONS}/{DEFINITION}"),
            json!({
                "metadata": {"name": DEFINITION, "resourceVersion": "5"},
                "spec": {
                    "group": harvester_lb_api::GROUP, "scope": "Namespaced", "versions": [],
                    "names": {"kind": "LoadBalancer", "plural": "loadbalancers"},
                    "conversion": Desired::new(names(), "PEM").conversion(),
                },
                "status": {"storedVersions": stored},
            }),
        );
        for (path, name) in [(AUTHORITY, "svc-ca"), (LEAF, "svc-tls")] {
            let metadata = json!({"namespace": "ns", "name": name, "resourceVersion": "3"});
            server.put(path, json!({ "metadata": metadata }));
        }
        server
    }

    fn uninstall(server: &FakeApiServer, deployment: Option<&str>) -> Uninstall {
        Uninstall {
            client: server.client(),
            names: names(),
            deployment: deployment.map(ToOwned::to_owned),
        }
    }

    /// A Deployment that was scaled, as its controller last saw it.
    fn deployment(observed: i64, replicas: Option<i32>) -> Value {
        json!({
            "metadata": {"namespace": "ns", "name": "hook", "generation": 2},
            "status": {"observedGeneration": observed, "replicas": replicas},
        })
    }

    /// [`server`] with a Deployment that has two replicas, and whose controller has not seen yet that it is scaled.
    fn server_with_deployment() -> FakeApiServer {
        let server = server(&[STORED]);
        server.put(DEPLOYMENT, deployment(1, Some(2)));
        let metadata = json!({"namespace": "ns", "name": "hook", "resourceVersion": "7"});
        server.put(
            SCALE,
            json!({"metadata": metadata, "spec": {"replicas": 2}}),
        );
        server
    }

    /// Place of the only write of this kind.
    fn place(writes: &[(Method, String, Value)], method: &Method, path: &str) -> usize {
        let is_it = |(m, p, _): &(Method, String, Value)| m == method && p == path;
        assert_eq!(
            writes.iter().filter(|write| is_it(write)).count(),
            1,
            "{method} {path}: {writes:?}"
        );
        writes.iter().position(is_it).unwrap()
    }

    fn has_secrets(server: &FakeApiServer) -> bool {
        let found = [AUTHORITY, LEAF].map(|path| server.get(path).is_some());
        assert_eq!(found[0], found[1]);
        found[0]
    }

    #[tokio::test(start_paused = true)]
    async fn cnv_1_conversion_stays_while_an_object_cannot_be_stored_again() {
        let server = server(&["v1alpha1", "v1beta1"]);
        let object = json!({
            "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
            "metadata": {"namespace": "n", "name": "a", "resourceVersion": "7"},
        });
        server.put(ALL, json!({"metadata": {}, "items": [object]}));
        server.put(ONE, object);
        server.refuse(Method::PATCH, "/loadbalancers/a");
        let error = uninstall(&server, None).all().await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("LoadBalancer n/a"), "{error}");
        let now = server.get(&format!("{DEFINITIONS}/{DEFINITION}")).unwrap();
        assert_eq!(now["spec"]["conversion"]["strategy"], "Webhook");
        assert_eq!(
            now["status"]["storedVersions"],
            json!(["v1alpha1", "v1beta1"])
        );
        // The replicas were told when, and at the end that they may go on.
        let marks = marks(&server.writes());
        let (last, before) = marks.split_last().unwrap();
        assert!(last.is_null() && !before.is_empty(), "{marks:?}");
        for at in before {
            let at: Timestamp = at.as_str().unwrap().parse().unwrap();
            assert!(Timestamp::now().as_second() - at.as_second() < 60);
        }
        assert_eq!(mark(&server), Value::Null);
    }

    /// What the replicas were told, in order.
    fn marks(writes: &[(Method, String, Value)]) -> Vec<Value> {
        let to_secret = writes
            .iter()
            .filter(|(method, path, _)| method == Method::PATCH && path == AUTHORITY);
        to_secret
            .map(|(_, _, patch)| patch["metadata"]["annotations"][ANNOTATION_UNINSTALLED].clone())
            .collect()
    }

    /// What the Secret says.
    fn mark(server: &FakeApiServer) -> Value {
        let secret = server.get(AUTHORITY).unwrap();
        secret["metadata"]["annotations"][ANNOTATION_UNINSTALLED].clone()
    }

    /// Somebody replaces the definition: nothing is converted any more.
    fn switch_conversion_off(server: &FakeApiServer) {
        let path = format!("{DEFINITIONS}/{DEFINITION}");
        let mut object = server.get(&path).unwrap();
        object["spec"]["conversion"] = json!({"strategy": "None"});
        server.put(&path, object);
    }

    /// [`server`] with LoadBalancers that are stored in both versions.
    fn server_with_objects(count: usize) -> FakeApiServer {
        let server = server(&["v1alpha1", STORED]);
        let object = |n: usize| {
            json!({
                "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
                "metadata": {"namespace": "n", "name": format!("a{n}"), "resourceVersion": "7"},
            })
        };
        let objects: Vec<Value> = (0..count).map(object).collect();
        for (n, object) in objects.iter().enumerate() {
            server.put(&format!("{ONE}{n}"), object.clone());
        }
        server.put(ALL, json!({"metadata": {}, "items": objects}));
        server
    }

    /// Runs the command; before a request to a path with this part the conversion is switched off.
    async fn uninstall_without_conversion_from(
        server: &FakeApiServer,
        part: &'static str,
    ) -> String {
        let answers = server.clone();
        let client = fake::client(move |request| {
            let is_it = request.method == Method::PATCH && request.path.contains(part);
            if is_it {
                switch_conversion_off(&answers);
            }
            ready(if is_it && part == "/status" {
                fake::failure(409, "Conflict")
            } else {
                answers.answer(request)
            })
        });
        let uninstall = Uninstall {
            client,
            ..uninstall(server, None)
        };
        format!("{:#}", uninstall.all().await.unwrap_err())
    }

    #[tokio::test(start_paused = true)]
    async fn cnv_1_nothing_is_removed_if_conversion_is_off_while_objects_may_need_it() {
        let server = server(&["v1alpha1", STORED]);
        switch_conversion_off(&server);
        let error = uninstall(&server, None).all().await.unwrap_err();
        assert!(error.to_string().contains("start the webhook"), "{error}");
        assert!(has_secrets(&server));
        // The replicas may restore it, whatever an earlier attempt has told them.
        let writes = server.writes();
        assert_eq!(marks(&writes), [Value::Null]);
        assert_eq!(writes.len(), 1, "{writes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn cnv_1_no_object_is_stored_again_once_conversion_is_lost() {
        let server = server_with_objects(3 * CHUNK);
        let error = uninstall_without_conversion_from(&server, "/loadbalancers/a").await;
        assert!(error.contains("start the webhook"), "{error}");
        let writes = server.writes();
        let stored = writes.iter().filter(|(_, path, _)| path.starts_with(ONE));
        assert_eq!(stored.count(), CHUNK, "those that were under way");
        assert!(has_secrets(&server));
        assert_eq!(mark(&server), Value::Null);
    }

    #[tokio::test(start_paused = true)]
    async fn cnv_1_conversion_that_is_lost_before_the_versions_are_trimmed_is_an_error() {
        let server = server_with_objects(1);
        let error = uninstall_without_conversion_from(&server, "/status").await;
        assert!(error.contains("start the webhook"), "{error}");
        assert!(has_secrets(&server));
    }

    #[tokio::test(start_paused = true)]
    async fn section_1_without_a_deployment_nothing_is_scaled() {
        let server = server_with_deployment();
        uninstall(&server, None).all().await.unwrap();
        assert!(!has_secrets(&server));
        let writes = server.writes().into_iter().map(|(_, path, _)| path);
        for path in writes.chain(server.reads()) {
            assert!(!path.starts_with("/apis/apps/"), "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn section_1_the_replicas_end_before_the_secrets_go() {
        let server = server_with_deployment();
        let uninstall = uninstall(&server, Some("hook"));
        let began = Instant::now();
        let (done, ()) = tokio::join!(uninstall.all(), async {
            // Conversion is off after `SETTLED`. Neither state says that nothing runs any more.
            for state in [deployment(1, None), deployment(2, Some(1))] {
                sleep(Duration::from_millis(2600)).await;
                assert_eq!(server.get(SCALE).unwrap()["spec"]["replicas"], 0);
                assert!(has_secrets(&server), "{state}");
                server.put(DEPLOYMENT, state);
            }
            sleep(Duration::from_millis(2600)).await;
            assert!(has_secrets(&server));
            server.put(DEPLOYMENT, deployment(2, None));
        });
        done.unwrap();
        assert!(!has_secrets(&server));
        let took = began.elapsed();
        assert!(
            took > Duration::from_millis(7800) && took < Duration::from_secs(9),
            "{took:?}"
        );
        let writes = server.writes();
        let definition = format!("{DEFINITIONS}/{DEFINITION}");
        let off = place(&writes, &Method::PATCH, &definition);
        let scaled = place(&writes, &Method::PATCH, SCALE);
        let removed = place(&writes, &Method::DELETE, AUTHORITY);
        assert!(off < scaled && scaled < removed, "{writes:?}");
        let told = &writes[scaled - 1];
        assert_eq!((&told.0, &*told.1), (&Method::PATCH, AUTHORITY));
        // At the end it is looked once more for what a container that restarted may have registered.
        let reads = server.reads();
        let ended = reads.iter().rposition(|path| path == DEPLOYMENT).unwrap();
        for kind in [
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
        ] {
            assert!(
                reads[ended..].iter().any(|path| path.contains(kind)),
                "{kind}: {reads:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn section_1_a_deployment_that_does_not_exist_has_no_replicas() {
        let server = server(&[STORED]);
        let uninstall = uninstall(&server, Some("hook"));
        uninstall.all().await.unwrap();
        assert!(!has_secrets(&server));
        place(&server.writes(), &Method::PATCH, SCALE);
        assert_eq!(uninstall.end_replicas("hook").await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn section_1_replicas_that_do_not_end_are_named_and_not_waited_for() {
        let server = server_with_deployment();
        let uninstall = uninstall(&server, Some("hook"));
        let began = Instant::now();
        let remains = uninstall.end_replicas("hook").await.unwrap().unwrap();
        assert_eq!(began.elapsed(), END);
        assert!(remains.contains("Deployment ns/hook"), "{remains}");
        uninstall.all().await.unwrap();
        assert!(!has_secrets(&server));
    }

    #[tokio::test(start_paused = true)]
    async fn section_1_the_secrets_stay_if_the_replicas_cannot_be_ended() {
        let server = server_with_deployment();
        server.refuse(Method::PATCH, "/scale");
        let error = uninstall(&server, Some("hook")).all().await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("Deployment ns/hook"), "{error}");
        assert!(has_secrets(&server));
    }
}
