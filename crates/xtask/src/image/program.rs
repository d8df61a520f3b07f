//! Owns the build of the static program, and what went into it: cargo's own account of each crate that it compiled for
//! the target.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::arch::Arch;
use super::tools;
use crate::bound;
use crate::cargo::cargo;

/// Name of the package and of its program.
pub(crate) const NAME: &str = "harvester-load-balancer";

/// How the program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As shipped.
    Release,
    /// For tests.
    ImageTest,
}

impl Profile {
    /// Its name in `Cargo.toml`.
    const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::ImageTest => "image-test",
        }
    }
}

/// What makes the program smaller: functions with the same code are linked once, relocations are packed, functions have no unwind
/// tables of their own (a panic aborts), and what is called from many places is copied into fewer of them.
const SMALLER: &str = "-C force-unwind-tables=no -C llvm-args=-inline-threshold=100 \
                       -C link-arg=--icf=all -C link-arg=--pack-dyn-relocs=relr";

/// The program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// Cargo's ids of the packages that are linked into it, its own included.
    pub(crate) linked: BTreeSet<String>,
}

/// Builds the program. Output of cargo and the compiler goes to standard error.
pub(crate) fn build(root: &Path, arch: Arch, profile: Profile) -> anyhow::Result<Program> {
    tools::rust_target(root, arch)?;
    let compiler = tools::compiler(root, arch)?;
    let (target, variable) = (arch.target(), arch.target_variable());
    let mut command = Command::new(cargo());
    bound::forget_package(&mut command);
    let mut child = command
        .args(["build", "--locked", "--package", NAME, "--bin", NAME])
        .args(["--target", &target, "--profile", profile.name()])
        .args(["--message-format", "json-render-diagnostics"])
        .env(format!("CC_{variable}"), compiler.cc)
        .env(format!("AR_{variable}"), compiler.ar)
        // Part of Rust: the same linker on every machine and for every architecture.
        .env(
            format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()),
            "rust-lld",
        )
        .env(
            format!("CARGO_TARGET_{}_RUSTFLAGS", variable.to_uppercase()),
            SMALLER,
        )
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut account = Account::new(&target);
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            account.take(&line?);
        }
    }
    ensure!(
        child.wait()?.success(),
        "the program does not build for {target}"
    );
    Ok(Program {
        path: account.program.context("cargo names no program")?,
        linked: account.linked,
    })
}

/// What cargo says about a build.
struct Account {
    /// Folder with everything that is compiled for the target; what runs during the build is elsewhere.
    folder: String,
    program: Option<PathBuf>,
    linked: BTreeSet<String>,
}

impl Account {
    fn new(target: &str) -> Self {
        Self {
            folder: format!("/{target}/"),
            program: None,
            linked: BTreeSet::new(),
        }
    }

    /// Reads a message of cargo.
    fn take(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let Some(id) = message["package_id"].as_str() else {
            return;
        };
        let mut files = message["filenames"].as_array().into_iter().flatten();
        let is_inside = |file: &Value| file.as_str().is_some_and(|f| f.contains(&self.folder));
        if message["reason"] != "compiler-artifact" || !files.any(is_inside) {
            return;
        }
        self.linked.insert(id.to_owned());
        if message["target"]["name"] == NAME
            && let Some(path) = message["executable"].as_str()
        {
            self.program = Some(path.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_during_the_build_is_not_linked() {
        let mut account = Account::new("x86_64-unknown-linux-musl");
        for line in [
            r#"{"reason":"compiler-artifact","package_id":"r#serde@1.0.1","target":{"name":"serde"},"filenames":["/t/x86_64-unknown-linux-musl/release/deps/libserde.rlib"],"executable":null}"#,
            r#"{"reason":"compiler-artifact","package_id":"r#cc@1.0.0","target":{"name":"cc"},"filenames":["/t/release/deps/libcc.rlib"],"executable":null}"#,
            r#"{"reason":"build-script-executed","package_id":"r#ring@0.17.0","out_dir":"/t/x86_64-unknown-linux-musl/release/build/ring/out"}"#,
            r#"{"reason":"compiler-artifact","package_id":"p#harvester-load-balancer@0.1.0","target":{"name":"harvester-load-balancer"},"filenames":["/t/x86_64-unknown-linux-musl/release/harvester-load-balancer"],"executable":"/t/x86_64-unknown-linux-musl/release/harvester-load-balancer"}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "no JSON",
        ] {
            account.take(line);
        }
        let linked: Vec<&String> = account.linked.iter().collect();
        assert_eq!(linked, ["p#harvester-load-balancer@0.1.0", "r#serde@1.0.1"]);
        assert_eq!(
            account.program.as_deref(),
            Some(Path::new(
                "/t/x86_64-unknown-linux-musl/release/harvester-load-balancer"
            ))
        );
    }
}
