//! Owns the tests' access to API objects of any kind: apply, read, delete, and CRDs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::Value;

use crate::eventually;
use crate::test_cluster::TestCluster;

/// Field manager of everything the tests apply.
const MANAGER: &str = "test-bed";
/// A CRD is established within a second; the rest is for busy machines.
const ESTABLISHED: Duration = Duration::from_secs(30);
/// CRDs of KubeVirt and Multus.
const FOREIGN_CRDS: &str = include_str!("../crds/foreign.yaml");

impl TestCluster {
    /// The API of any kind; `namespace` is ignored for cluster-scoped kinds, `None` is `default`.
    pub async fn api(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> anyhow::Result<Api<DynamicObject>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let known = self.resources.lock().get(&gvk).cloned();
        let (resource, capabilities) = if let Some(found) = known {
            found
        } else {
            let found = pinned_kind(&self.client(), &gvk)
                .await
                .with_context(|| format!("the API server knows no {api_version} {kind}"))?;
            self.resources.lock().insert(gvk, found.clone());
            found
        };
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(self.client(), &resource),
            Scope::Namespaced => {
                Api::namespaced_with(self.client(), namespace.unwrap_or("default"), &resource)
            }
        })
    }

    /// Creates or updates an object by server-side apply. Fields that other managers own and the object does not name
    /// stay, among them the status of kinds without a status subresource.
    pub async fn apply(&self, object: &Value) -> anyhow::Result<DynamicObject> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (Some(api_version), Some(kind), Some(name)) =
            (text("/apiVersion"), text("/kind"), text("/metadata/name"))
        else {
            bail!("no apiVersion, kind or metadata.name in {object}");
        };
        let api = self
            .api(api_version, kind, text("/metadata/namespace"))
            .await?;
        let params = PatchParams::apply(MANAGER).force();
        api.patch(name, &params, &Patch::Apply(object))
            .await
            .with_context(|| format!("apply {kind} {name}"))
    }

    /// Applies each document of a YAML text, in order.
    pub async fn apply_yaml(&self, text: &str) -> anyhow::Result<Vec<DynamicObject>> {
        let mut applied = Vec::new();
        for object in documents(text)? {
            applied.push(self.apply(&object).await?);
        }
        Ok(applied)
    }

    /// Reads an object.
    pub async fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<Option<DynamicObject>> {
        Ok(self
            .api(api_version, kind, namespace)
            .await?
            .get_opt(name)
            .await?)
    }

    /// Deletes an object; returns when the API server has accepted the request, which can be before the object is gone.
    /// A missing object is not an error.
    pub async fn delete(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<()> {
        let api = self.api(api_version, kind, namespace).await?;
        match api.delete(name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("delete {kind} {name}")),
        }
    }

    /// Applies the CRDs in a YAML file, or in all YAML files of a folder, and waits until they are established.
    pub async fn apply_crds(&self, path: impl AsRef<Path>) -> anyhow::Result<()> {
        let path = path.as_ref();
        let mut files = vec![path.to_path_buf()];
        if path.is_dir() {
            files = std::fs::read_dir(path)?
                .map(|entry| entry.map(|e| e.path()))
                .collect::<Result<_, _>>()?;
            files.retain(|f| f.extension().is_some_and(|e| e == "yaml" || e == "yml"));
            files.sort();
        }
        for file in files {
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("CRD file {}", file.display()))?;
            self.apply_crd_text(&text)
                .await
                .with_context(|| file.display().to_string())?;
        }
        Ok(())
    }

    /// Applies the CRDs of KubeVirt and Multus: VirtualMachine, VirtualMachineInstance (both without a status
    /// subresource) and NetworkAttachmentDefinition.
    pub async fn apply_foreign_crds(&self) -> anyhow::Result<()> {
        self.apply_crd_text(FOREIGN_CRDS).await
    }

    async fn apply_crd_text(&self, text: &str) -> anyhow::Result<()> {
        for crd in self.apply_yaml(text).await? {
            let types = crd.types.as_ref().context("no kind in the answer")?;
            let name = crd
                .metadata
                .name
                .as_deref()
                .context("no name in the answer")?;
            let api = self.api(&types.api_version, &types.kind, None).await?;
            eventually(&format!("CRD {name} established"), ESTABLISHED, || async {
                let conditions = api
                    .get(name)
                    .await?
                    .data
                    .pointer("/status/conditions")
                    .cloned();
                let established =
                    conditions
                        .as_ref()
                        .and_then(Value::as_array)
                        .is_some_and(|all| {
                            all.iter()
                                .any(|c| c["type"] == "Established" && c["status"] == "True")
                        });
                Ok(established.then_some(()))
            })
            .await?;
        }
        Ok(())
    }
}

fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let all: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| anyhow!("YAML: {error}"))?;
    Ok(all.into_iter().filter(|d| !d.is_null()).collect())
}
