//! A cluster without any of ours, whatever the tests before have left: with a client, as each start of a program costs more than all
//! of its requests.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::Context;
use harvester_lb_api::{GROUP, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::helm::{CONFIGURATION, NAMESPACE, RELEASE, helm_does};

/// An object is gone: its objects, and their finalizers, may be before it.
const GONE: Duration = Duration::from_mins(1);

/// Removes the release of an earlier test, without its hooks. CRDs and their objects stay.
pub async fn uninstalled(world: &World) -> anyhow::Result<()> {
    let secrets = Api::<Secret>::namespaced(world.client(), NAMESPACE);
    let of_release = format!("owner=helm,name={RELEASE}");
    let of_release = ListParams::default().labels(&of_release);
    if secrets.list(&of_release).await?.items.is_empty() {
        return Ok(());
    }
    let args = ["uninstall", RELEASE, "--no-hooks", "--wait"];
    helm_does(world, &args).await.map(drop)
}

/// Removes the release of an earlier test, the webhook's registration, our CRDs and all their objects.
pub async fn bare(world: &World) -> anyhow::Result<()> {
    uninstalled(world).await?;
    let cluster = &world.cluster;
    for (version, kind, name) in [
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            CONFIGURATION,
        ),
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            CONFIGURATION,
        ),
        ("coordination.k8s.io/v1", "Lease", "harvester-load-balancer"),
    ] {
        let objects = cluster.api(version, kind, Some("kube-system")).await?;
        removed(&objects, name).await?;
    }
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definitions = cluster.api(version, kind, None).await?;
    for plural in ["loadbalancers", "ippools", "ipallocations"] {
        let name = format!("{plural}.{GROUP}");
        if definitions.get_opt(&name).await?.is_some() {
            let definition = without_conversion(&definitions, &name).await?;
            without_finalizers(world, plural, &definition).await?;
            removed(&definitions, &name).await?;
        }
    }
    // The garbage collector does not know the kind of their owners any more.
    let ours = ListParams::default().labels(keys::LABEL_SERVICELB);
    for service in Api::<Service>::all(world.client()).list(&ours).await? {
        let of = service.namespace().unwrap_or_default();
        removed(&world.services(&of), &service.name_any()).await?;
    }
    for slice in Api::<EndpointSlice>::all(world.client())
        .list(&ours)
        .await?
    {
        let of = slice.namespace().unwrap_or_default();
        removed(&world.slices(&of), &slice.name_any()).await?;
    }
    Ok(())
}

/// Objects that need a webhook that nobody serves could not be deleted.
async fn without_conversion(
    definitions: &Api<DynamicObject>,
    name: &str,
) -> anyhow::Result<DynamicObject> {
    let off = Patch::Merge(json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}}));
    definitions
        .patch(name, &PatchParams::default(), &off)
        .await
        .with_context(|| name.to_owned())
}

/// Nor those with the Go operator's finalizers.
async fn without_finalizers(
    world: &World,
    plural: &str,
    definition: &DynamicObject,
) -> anyhow::Result<()> {
    let spec = &definition.data["spec"];
    let versions = spec["versions"].as_array().into_iter().flatten();
    let mut stored = versions.filter(|version| version["storage"] == true);
    let version = stored.next().and_then(|version| version["name"].as_str());
    let kind = spec["names"]["kind"].as_str();
    let (version, kind) = version.zip(kind).context("no version, or no kind")?;
    let gvk = GroupVersionKind::gvk(GROUP, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let all = Api::<DynamicObject>::all_with(world.client(), &resource);
    // Until the API server has noticed the change of the conversion.
    let listed = eventually("the objects are listed", SOON, || async {
        Ok(Some(all.list(&ListParams::default()).await?.items))
    })
    .await?;
    let none = Patch::Merge(json!({"metadata": {"finalizers": Value::Null}}));
    for object in listed.iter().filter(|it| !it.finalizers().is_empty()) {
        let of = match object.namespace() {
            Some(namespace) => Api::namespaced_with(world.client(), &namespace, &resource),
            None => all.clone(),
        };
        let name = object.name_any();
        of.patch(&name, &PatchParams::default(), &none).await?;
    }
    Ok(())
}

/// Deletes an object if it is there, and waits until it is gone.
async fn removed<K>(objects: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    match objects.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        answer => answer.with_context(|| format!("delete {name}"))?,
    };
    eventually(&format!("{name} is gone"), GONE, || async {
        Ok(objects.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}
