//! The graph of crates as cargo resolves it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::cargo::cargo;

/// The supported platforms: that of the tests, and that of the image. Dependencies of others are left out.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl"];

/// A crate.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
    /// Whether it is ours.
    pub(crate) member: bool,
    /// Its dependencies.
    pub(crate) normal: BTreeSet<String>,
    /// Additional dependencies of its tests.
    pub(crate) dev: BTreeSet<String>,
}

/// All crates of the build, by cargo's id.
pub(crate) struct Graph(pub(crate) BTreeMap<String, Package>);

impl Graph {
    /// Reads the graph from cargo.
    pub(crate) fn load(root: &Path) -> anyhow::Result<Self> {
        let flags = PLATFORMS.map(|platform| ["--filter-platform", platform]);
        let metadata = metadata(root, &flags.concat())?;
        Self::parse(&metadata).context("cargo metadata has changed")
    }

    fn parse(metadata: &Value) -> Option<Self> {
        let text = |v: &Value| v.as_str().map(str::to_owned);
        let members: BTreeSet<&str> = metadata["workspace_members"]
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let mut graph = BTreeMap::new();
        for package in metadata["packages"].as_array()? {
            let id = text(&package["id"])?;
            graph.insert(
                id.clone(),
                Package {
                    name: text(&package["name"])?,
                    version: text(&package["version"])?,
                    licence: text(&package["license"]).unwrap_or_default(),
                    member: members.contains(&*id),
                    normal: BTreeSet::new(),
                    dev: BTreeSet::new(),
                },
            );
        }
        for node in metadata["resolve"]["nodes"].as_array()? {
            let package = graph.get_mut(node["id"].as_str()?)?;
            for dependency in node["deps"].as_array()? {
                let id = text(&dependency["pkg"])?;
                for kind in dependency["dep_kinds"].as_array()? {
                    match kind["kind"].as_str() {
                        Some("dev") => package.dev.insert(id.clone()),
                        _ => package.normal.insert(id.clone()),
                    };
                }
            }
        }
        Some(Self(graph))
    }

    /// Our crate of that name.
    pub(crate) fn member(&self, name: &str) -> Option<&Package> {
        self.0.values().find(|p| p.member && p.name == name)
    }

    /// Names of crates.
    pub(crate) fn names(&self, ids: &BTreeSet<String>) -> BTreeSet<&str> {
        ids.iter()
            .filter_map(|id| self.0.get(id))
            .map(|p| p.name.as_str())
            .collect()
    }

    /// Names of all direct and indirect dependencies of a crate.
    pub(crate) fn all_below(&self, package: &Package) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&String> = package.normal.iter().collect();
        while let Some(id) = open.pop() {
            if seen.insert(id)
                && let Some(package) = self.0.get(id)
            {
                open.extend(&package.normal);
            }
        }
        seen.into_iter()
            .filter_map(|id| self.0.get(id))
            .map(|p| p.name.as_str())
            .collect()
    }
}

/// Runs cargo metadata with these flags. `Cargo.lock` must be up to date.
pub(crate) fn metadata(root: &Path, flags: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(flags)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo cannot be started")?;
    ensure!(output.status.success(), "cargo metadata failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The folders of the crates of the workspace, as paths from the root.
pub(crate) fn members(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = metadata(root, &["--no-deps"])?;
    let root = root.canonicalize()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .map(|package| {
            let manifest = package["manifest_path"].as_str();
            let manifest = Path::new(manifest.context("a package without manifest_path")?);
            let folder = manifest.parent().context("a manifest without a folder")?;
            let folder = folder.canonicalize()?;
            Ok(folder.strip_prefix(&root)?.to_string_lossy().into_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_crate_is_built_with() {
        let package =
            |id: &str| json!({"id": id, "name": id, "version": "1.0.0", "license": "MIT"});
        let dep = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let graph = Graph::parse(&json!({
            "packages": [package("a"), package("b"), package("c"), package("d")],
            "workspace_members": ["a"],
            "resolve": {"nodes": [
                {"id": "a", "deps": [dep("b", Value::Null), dep("d", json!("dev"))]},
                {"id": "b", "deps": [dep("c", json!("build"))]},
                {"id": "c", "deps": []},
                {"id": "d", "deps": []},
            ]},
        }))
        .unwrap();
        let a = graph.member("a").unwrap();
        assert!(graph.member("b").is_none());
        assert_eq!(graph.names(&a.normal), ["b"].into());
        assert_eq!(graph.names(&a.dev), ["d"].into());
        assert_eq!(graph.all_below(a), ["b", "c"].into());
    }
}
