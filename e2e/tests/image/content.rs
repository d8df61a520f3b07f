//! The files of the image, their size, and its bill of materials.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::image::{BILL, MOST_BYTES, unpack};
use harvester_lb_e2e::world::repository;
use serde_json::Value;

/// Name of the package and of its program.
const NAME: &str = "harvester-load-balancer";

/// All files and folders, by path: no shell, no library, no /tmp.
const FILES: [(&str, u32); 10] = [
    ("etc", 0o755),
    ("etc/group", 0o644),
    ("etc/passwd", 0o644),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/bin/harvester-load-balancer", 0o755),
    ("usr/share", 0o755),
    ("usr/share/harvester-load-balancer", 0o755),
    ("usr/share/harvester-load-balancer/LICENSE", 0o644),
    (BILL, 0o644),
];

pub async fn image_holds_the_program_and_nothing_else(world: Arc<World>) -> anyhow::Result<()> {
    let image = unpack(&world.cluster.folder().join("image-files"))?;
    let mut bytes = 0;
    let mut found = BTreeSet::new();
    let mut folders = vec![image.root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let data = path.symlink_metadata()?;
            let name = path.strip_prefix(image.root())?.display().to_string();
            if data.is_symlink() {
                ensure!(name == "usr/bin/harvester-load-balancer-webhook", "{name}");
                ensure!(std::fs::read_link(&path)? == Path::new(NAME));
                continue;
            }
            if data.is_dir() {
                folders.push(path);
            } else {
                bytes += data.len();
            }
            found.insert((name, data.permissions().mode() & 0o7777));
        }
    }
    let expected: BTreeSet<_> = FILES.map(|(name, mode)| (name.to_owned(), mode)).into();
    ensure!(found == expected, "{found:#?}");
    ensure!(
        image
            .root()
            .join("usr/bin/harvester-load-balancer-webhook")
            .is_symlink()
    );
    eprintln!("the files of the image have {bytes} bytes");
    ensure!(bytes <= MOST_BYTES, "{bytes} bytes, more than {MOST_BYTES}");
    let passwd = std::fs::read_to_string(image.root().join("etc/passwd"))?;
    ensure!(passwd.contains(":65532:65532:"), "{passwd}");
    Ok(())
}

pub async fn image_lists_each_linked_crate_once(world: Arc<World>) -> anyhow::Result<()> {
    let image = unpack(&world.cluster.folder().join("image-bill"))?;
    let bill: Value = serde_json::from_slice(&std::fs::read(image.root().join(BILL))?)?;
    ensure!(bill["bomFormat"] == "CycloneDX" && bill["specVersion"] == "1.5");
    ensure!(bill["metadata"]["component"]["name"] == NAME);
    let mut listed = BTreeSet::new();
    for component in bill["components"].as_array().context("no components")? {
        let (name, version) = (component["name"].as_str(), component["version"].as_str());
        ensure!(component["licenses"][0]["expression"].is_string());
        if matches!(name, Some("musl" | "rust-std")) {
            continue;
        }
        let (name, version) = name.zip(version).context("no name and version")?;
        let from_registry = component["purl"].is_string();
        ensure!(
            from_registry == component["hashes"][0]["content"].is_string(),
            "{component}"
        );
        ensure!(
            listed.insert(format!("{name} {version}")),
            "{name} {version} is there twice"
        );
    }
    // The allocator is for musl only.
    ensure!(
        listed.iter().any(|name| name.starts_with("mimalloc ")),
        "{listed:?}"
    );
    let linked = linked()?;
    let missing: Vec<_> = linked.difference(&listed).collect();
    let extra: Vec<_> = listed.difference(&linked).collect();
    ensure!(
        missing.is_empty() && extra.is_empty(),
        "linked and not listed: {missing:?}; listed and not linked: {extra:?}"
    );
    Ok(())
}

/// Name and version of each crate below the program, by cargo's resolution of features for the image's target.
fn linked() -> anyhow::Result<BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "--package", NAME])
        .args(["--target", &target, "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(repository())
        .stdin(Stdio::null())
        .output()
        .context("cargo cannot be started")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree: {error}");
    let text = String::from_utf8(output.stdout)?;
    let crates = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        (name != NAME).then(|| format!("{name} {version}"))
    });
    Ok(crates.collect())
}
