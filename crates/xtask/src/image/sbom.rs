//! Owns the bill of materials of the program: CycloneDX 1.5, one component for each crate that is linked, with version,
//! licence and checksum, and what each depends on. No times and no random numbers: the same build gives the same text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::arch::Arch;
use super::program::NAME;
use crate::graph;
use crate::repository::read;

/// The bill of a program that these packages are linked into, as JSON.
pub(crate) fn of_program(
    root: &Path,
    arch: Arch,
    linked: &BTreeSet<String>,
) -> anyhow::Result<String> {
    let target = arch.target();
    let metadata = graph::metadata(root, &["--filter-platform", &target])?;
    let lock = read(root, "Cargo.lock")?;
    let checksums = checksums(&lock);
    let bill = document(&metadata, linked, &checksums, &target, &rust_version(root)?)?;
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// Version of the compiler, whose standard library is linked too.
fn rust_version(root: &Path) -> anyhow::Result<String> {
    let output = Command::new("rustc")
        .arg("--version")
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .context("rustc cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().nth(1);
    Ok(version.context("rustc says no version")?.to_owned())
}

/// SHA-256 of each crate's archive in `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            package.lines().find_map(|line| {
                let value = line.strip_prefix(name)?.strip_prefix(" = \"")?;
                value.strip_suffix('"')
            })
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (field("name"), field("version"), field("checksum"))
        {
            found.insert((name, version), checksum);
        }
    }
    found
}

/// A package of cargo's metadata.
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    licence: &'a str,
    /// Ours, and not from a registry.
    own: bool,
}

impl<'a> Package<'a> {
    fn read(value: &'a Value) -> Option<Self> {
        Some(Self {
            name: value["name"].as_str()?,
            version: value["version"].as_str()?,
            licence: value["license"].as_str().unwrap_or_default(),
            own: value["source"].is_null(),
        })
    }

    /// Its name inside the bill.
    fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    fn component(&self, checksum: Option<&str>) -> Value {
        let mut component = json!({
            "type": "library",
            "bom-ref": self.reference(),
            "name": self.name,
            "version": self.version,
        });
        if !self.licence.is_empty() {
            // Old crates write `A/B` for `A OR B`.
            let expression = self.licence.replace('/', " OR ");
            component["licenses"] = json!([{"expression": expression}]);
        }
        if !self.own {
            component["purl"] = format!("pkg:cargo/{}", self.reference()).into();
        }
        if let Some(checksum) = checksum {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    }
}

fn document(
    metadata: &Value,
    linked: &BTreeSet<String>,
    checksums: &BTreeMap<(&str, &str), &str>,
    target: &str,
    rust: &str,
) -> anyhow::Result<Value> {
    let mut packages = BTreeMap::new();
    for value in metadata["packages"].as_array().into_iter().flatten() {
        let id = value["id"].as_str().unwrap_or_default();
        if linked.contains(id) {
            let package = Package::read(value).context("cargo metadata has changed")?;
            packages.insert(id, package);
        }
    }
    let unknown: Vec<&String> = linked
        .iter()
        .filter(|id| !packages.contains_key(id.as_str()))
        .collect();
    ensure!(
        unknown.is_empty(),
        "cargo metadata does not know {unknown:?}, which were compiled"
    );
    let program = packages.values().find(|p| p.own && p.name == NAME);
    let program = program.context("the program itself is not among what is linked")?;

    let mut components: BTreeMap<String, Value> = packages
        .values()
        .filter(|package| package.name != NAME)
        .map(|package| {
            let checksum = checksums.get(&(package.name, package.version)).copied();
            (package.reference(), package.component(checksum))
        })
        .collect();
    // Both come with the compiler.
    components.insert(
        "rust-std".into(),
        json!({
            "type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": rust,
            "description": "Rust's standard library",
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        }),
    );
    components.insert(
        "musl".into(),
        json!({
            "type": "library", "bom-ref": "musl", "name": "musl",
            "description": format!("the C library, as Rust {rust} brings it for {target}"),
            "licenses": [{"expression": "MIT"}],
        }),
    );

    let mut dependencies: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let Some(package) = packages.get(node["id"].as_str().unwrap_or_default()) else {
            continue;
        };
        let below = dependencies.entry(package.reference()).or_default();
        for dependency in node["deps"].as_array().into_iter().flatten() {
            let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            let is_normal = kinds.any(|kind| kind["kind"].is_null());
            let other = packages.get(dependency["pkg"].as_str().unwrap_or_default());
            if let (true, Some(other)) = (is_normal, other) {
                below.insert(other.reference());
            }
        }
    }
    let own = dependencies.entry(program.reference()).or_default();
    own.extend(["rust-std".to_owned(), "musl".to_owned()]);
    let dependencies: Vec<Value> = dependencies
        .into_iter()
        .map(|(reference, below)| json!({"ref": reference, "dependsOn": below}))
        .collect();

    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": program.reference(),
                "name": program.name,
                "version": program.version,
                "licenses": [{"expression": program.licence}],
            },
            "properties": [{"name": "target", "value": target}],
        },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\n\
                        checksum = \"abc\"\ndependencies = [\n \"b\",\n]\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";

    fn metadata() -> Value {
        let package = |id: &str, name: &str, version: &str, source: Value| json!({"id": id, "name": name, "version": version, "license": "MIT/Apache-2.0", "source": source});
        let dep = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        json!({
            "packages": [
                package("p", NAME, "0.1.0", Value::Null),
                package("a1", "a", "1.0.0", json!("registry")),
                package("a2", "a", "2.0.0", json!("registry")),
                package("m", "macros", "1.0.0", json!("registry")),
            ],
            "resolve": {"nodes": [
                {"id": "p", "deps": [dep("a1", Value::Null), dep("m", Value::Null)]},
                {"id": "a1", "deps": [dep("a2", Value::Null), dep("p", json!("dev"))]},
                {"id": "a2", "deps": []},
                {"id": "m", "deps": []},
            ]},
        })
    }

    fn bill(linked: &[&str]) -> anyhow::Result<Value> {
        let linked = linked.iter().map(|id| (*id).to_owned()).collect();
        let checksums = checksums(LOCK);
        document(&metadata(), &linked, &checksums, "t", "1.2.3")
    }

    #[test]
    fn each_linked_crate_and_version_is_there_once() {
        let bill = bill(&["p", "a1", "a2"]).unwrap();
        let components = bill["components"].as_array().unwrap();
        let references: Vec<&str> = components
            .iter()
            .map(|c| c["bom-ref"].as_str().unwrap())
            .collect();
        assert_eq!(references, ["a@1.0.0", "a@2.0.0", "musl", "rust-std"]);
        assert_eq!(
            components[0],
            json!({
                "type": "library", "bom-ref": "a@1.0.0", "name": "a", "version": "1.0.0",
                "purl": "pkg:cargo/a@1.0.0", "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "hashes": [{"alg": "SHA-256", "content": "abc"}],
            })
        );
        assert_eq!(bill["metadata"]["component"]["name"], NAME);
        assert_eq!(
            bill["dependencies"],
            json!([
                {"ref": "a@1.0.0", "dependsOn": ["a@2.0.0"]},
                {"ref": "a@2.0.0", "dependsOn": []},
                {"ref": format!("{NAME}@0.1.0"), "dependsOn": ["a@1.0.0", "musl", "rust-std"]},
            ])
        );
    }

    #[test]
    fn what_cargo_does_not_know_is_an_error() {
        assert!(bill(&["p", "elsewhere"]).is_err());
        assert!(bill(&["a1"]).is_err());
    }

    #[test]
    fn checksums_are_by_name_and_version() {
        let checksums = checksums(LOCK);
        assert_eq!(checksums.get(&("a", "1.0.0")), Some(&"abc"));
        assert_eq!(checksums.len(), 1);
    }
}
