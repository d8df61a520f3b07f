//! The container image under test: the archive that `HLB_IMAGE` names, else the one that `xtask image --test` builds, with
//! the same root file system and a program that was compiled faster.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use harvester_lb_testkit::Image;

use crate::world::repository;

/// The variable with the path of the archive, from the repository's root; `make test` sets it.
const IMAGE: &str = "HLB_IMAGE";

/// The name that Pods of tests give to the image.
pub const NAME: &str = "rancher/harvester-load-balancer:v0.1.0";
/// Path of the bill of materials in the image.
pub const BILL: &str = "usr/share/harvester-load-balancer/sbom.cdx.json";
/// Largest size of all files of the image together, in bytes.
pub const MOST_BYTES: u64 = 20_000_000;

/// Builds the image, unless `HLB_IMAGE` names one, and provides further programs of Debian packages, as `e2e/tools.sh`
/// names them, for [`with_tools`]. Call it first in `main`: it does something only outside of the test cluster, where the
/// package registries can be reached.
pub fn provide(tools: &[&str]) -> anyhow::Result<()> {
    let outside = std::env::var_os("HLB_BED_STAGE").is_none();
    if !outside || std::env::args().any(|argument| argument == "--list") {
        return Ok(());
    }
    if std::env::var_os(IMAGE).is_none() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = ["run", "--quiet", "--locked", "--package", "xtask", "--"];
        run(Command::new(cargo)
            .args(arguments)
            .args(["image", "--test"]))?;
    }
    let mut command = Command::new(repository().join("e2e/tools.sh"));
    run(command.arg(tools_folder()).args(tools))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .current_dir(repository())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("{name} cannot be started"))?;
    ensure!(status.success(), "{name} failed; its messages are above");
    Ok(())
}

/// Path of the archive.
pub fn archive() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(IMAGE).map(|path| repository().join(path));
    let path = named.map_or_else(built, Ok)?;
    ensure!(path.is_file(), "there is no image {}", path.display());
    Ok(path)
}

/// Path of the archive that `xtask image --test` builds.
fn built() -> anyhow::Result<PathBuf> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => anyhow::bail!("there is no image for {other}"),
    };
    let name = format!("harvester-load-balancer-{architecture}.oci.tar");
    Ok(repository().join("target/image/test").join(name))
}

/// Unpacks the image to a folder that must not exist.
pub fn unpack(folder: &Path) -> anyhow::Result<Image> {
    Image::unpack(&archive()?, folder)
}

/// A shell command that runs with the programs of [`provide`] on `PATH`; its arguments follow as `$1` and so on.
pub fn with_tools(command: &str) -> Vec<String> {
    let env = tools_folder().join("env");
    let script = format!(". '{}'; {command}", env.display());
    vec!["-euc".to_owned(), script, "sh".to_owned()]
}

fn tools_folder() -> PathBuf {
    repository().join("target/image/tools/tests")
}
