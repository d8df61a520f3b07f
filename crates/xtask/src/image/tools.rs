//! Owns the tools that the image is built with and that a machine may lack: a C compiler for musl, Rust's target, and
//! buildah. `e2e/tools.sh` unpacks Debian's packages to `target/image/tools`.
//!
//! The C sources of two crates, ring and mimalloc, need musl's headers, and nothing else of it: Rust's target brings its
//! own musl, and its own linker links. So any GCC will do, with these headers in place of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::arch::Arch;

/// A C compiler for an architecture, with musl's headers.
#[derive(Debug)]
pub(crate) struct Compiler {
    pub(crate) cc: PathBuf,
    pub(crate) ar: PathBuf,
}

/// Provides a C compiler: this machine's own, or Debian's cross compiler.
pub(crate) fn compiler(root: &Path, arch: Arch) -> anyhow::Result<Compiler> {
    let own = arch == Arch::of_this_machine()?;
    let (prefix, packages) = if own {
        (String::new(), vec!["musl-dev".to_owned()])
    } else {
        let (gnu, package) = (arch.gnu(), arch.cross_package());
        let program = format!("{gnu}-gcc={package}");
        let headers = format!("musl-dev:{}", arch.name());
        (format!("{gnu}-"), vec![program, headers])
    };
    let folder = provide(root, &format!("cc-{}", arch.name()), &packages)?;
    let headers = folder.join("root/usr/include").join(arch.musl());
    ensure!(
        headers.join("stdlib.h").is_file(),
        "musl's headers are not in {}",
        headers.display()
    );
    // The variables of the packages are for the cross compiler only: this machine's finds its libraries itself.
    let environment = if own {
        String::new()
    } else {
        format!(". '{}'\n", folder.join("env").display())
    };
    let cc = if own { "cc" } else { "gcc" };
    let line = format!(
        "exec {prefix}{cc} {} -nostdinc -isystem '{}' -isystem \"$({prefix}{cc} -print-file-name=include)\" \"$@\"",
        arch.compiler_flags(),
        headers.display()
    );
    Ok(Compiler {
        cc: script(&folder.join("cc"), &environment, &line)?,
        ar: script(
            &folder.join("ar"),
            &environment,
            &format!("exec {prefix}ar \"$@\""),
        )?,
    })
}

/// Writes a shell script, unless it is there already: a newer file would make cargo compile everything again.
fn script(path: &Path, environment: &str, line: &str) -> anyhow::Result<PathBuf> {
    let text = format!("#!/bin/sh\n{environment}{line}\n");
    if std::fs::read_to_string(path).ok().as_deref() != Some(text.as_str()) {
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(path.to_owned())
}

/// Adds Rust's target for an architecture, if it is not there.
pub(crate) fn rust_target(root: &Path, arch: Arch) -> anyhow::Result<()> {
    let target = arch.target();
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", &target])
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .context("rustc cannot be started")?;
    let folder = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && Path::new(folder.trim()).is_dir() {
        return Ok(());
    }
    let status = Command::new("rustup")
        .args(["target", "add", &target])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| {
            format!("Rust has no target {target}, and there is no rustup to add it")
        })?;
    ensure!(status.success(), "rustup cannot add the target {target}");
    Ok(())
}

/// Provides buildah; a file for a shell to source, which sets the variables that it needs.
pub(crate) fn buildah(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = provide(root, "buildah", &["buildah=buildah".to_owned()])?;
    Ok(folder.join("env"))
}

fn provide(root: &Path, name: &str, packages: &[String]) -> anyhow::Result<PathBuf> {
    let folder = root.join("target/image/tools").join(name);
    let status = Command::new(root.join("e2e/tools.sh"))
        .arg(&folder)
        .args(packages)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("e2e/tools.sh cannot be started")?;
    ensure!(
        status.success(),
        "e2e/tools.sh could not provide {}",
        packages.join(", ")
    );
    Ok(folder)
}
