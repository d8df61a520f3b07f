//! The files in docs/examples, and the permissions in them.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::repository;
use serde_json::{Value, json};

/// All documents of all examples, files by name.
pub fn documents() -> anyhow::Result<Vec<(String, Value)>> {
    let folder = repository().join("docs/examples");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&file)?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| name.clone().into_owned())?;
        let documents = documents.into_iter().filter(|d| !d.is_null());
        all.extend(documents.map(|d| (name.clone().into_owned(), d)));
    }
    Ok(all)
}

/// The documents of one file.
pub fn rbac(name: &str) -> anyhow::Result<Vec<Value>> {
    let all = documents()?.into_iter();
    let permissions: Vec<Value> = all
        .filter(|(file, _)| file == name)
        .map(|(_, document)| document)
        .collect();
    ensure!(!permissions.is_empty(), "docs/examples/{name} is not there");
    Ok(permissions)
}

/// Applies a document, and creates its namespace if necessary.
pub async fn apply(world: &World, object: &Value) -> anyhow::Result<()> {
    if let Some(namespace) = object["metadata"]["namespace"].as_str() {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}
        });
        world.cluster.apply(&namespace).await?;
    }
    world.cluster.apply(object).await?;
    Ok(())
}

/// A kubeconfig of the only ServiceAccount among the documents.
pub async fn kubeconfig(world: &World, permissions: &[Value]) -> anyhow::Result<String> {
    let account = permissions.iter().find(|o| o["kind"] == "ServiceAccount");
    let metadata = &account.context("no ServiceAccount")?["metadata"];
    let (namespace, name) = (
        metadata["namespace"].as_str().context("no namespace")?,
        metadata["name"].as_str().context("no name")?,
    );
    let path = world.cluster.service_account_kubeconfig(namespace, name);
    Ok(path.await?.to_str().context("the path")?.to_owned())
}
