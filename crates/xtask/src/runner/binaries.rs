//! Owns the build of everything under test, and the binaries that cargo reports.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::bound;
use crate::cargo::cargo;

/// Kind of a cargo target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    /// Unit tests of a library.
    Lib,
    /// Unit tests of a program.
    Bin,
    /// An integration test.
    Test,
    /// An example, a benchmark.
    Other,
}

/// A test binary.
#[derive(Clone, Debug)]
pub(crate) struct TestBinary {
    /// Package that it belongs to.
    pub(crate) package: String,
    /// Name of the target.
    pub(crate) target: String,
    /// Kind of the target.
    pub(crate) kind: TargetKind,
    /// The program.
    pub(crate) path: PathBuf,
    /// Folder of the package, in which cargo runs it.
    pub(crate) folder: PathBuf,
}

impl TestBinary {
    /// Its display name; unique.
    pub(crate) fn name(&self) -> String {
        let package = self
            .package
            .strip_prefix("harvester-lb-")
            .unwrap_or(&self.package);
        match self.kind {
            TargetKind::Lib => package.to_owned(),
            TargetKind::Bin => format!("{package}/bin/{}", self.target),
            TargetKind::Test => format!("{package}/{}", self.target),
            TargetKind::Other => format!("{package}/other/{}", self.target),
        }
    }

    /// The command that runs its tests, without a test name.
    pub(crate) fn command(&self) -> String {
        let Self {
            package, target, ..
        } = self;
        match self.kind {
            TargetKind::Lib => format!("cargo test --locked --package {package} --lib --"),
            TargetKind::Bin => format!("cargo test --locked --package {package} --bin {target} --"),
            // With the features of the whole workspace, as built for this run.
            TargetKind::Test => format!("cargo test --workspace --locked --test {target} --"),
            TargetKind::Other => {
                format!("cargo test --locked --package {package} --all-targets --")
            }
        }
    }
}

/// The result of a build.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// Test binaries, in cargo's order.
    pub(crate) tests: Vec<TestBinary>,
    /// The operator for the end-to-end tests.
    pub(crate) operator: Option<PathBuf>,
}

/// Name of the operator's program.
const OPERATOR: &str = "harvester-load-balancer";

/// Builds all tests of the workspace. Output of cargo and the compiler goes to standard error.
pub(crate) fn build(root: &Path) -> anyhow::Result<Built> {
    let mut command = Command::new(cargo());
    bound::forget_package(&mut command);
    let mut child = command
        .args(["test", "--workspace", "--locked", "--no-run"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut built = Built::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            built.take(&line?);
        }
    }
    ensure!(child.wait()?.success(), "the tests do not build");
    ensure!(!built.tests.is_empty(), "cargo names no test binary");
    Ok(built)
}

impl Built {
    /// Reads a message of cargo.
    fn take(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let target = &message["target"];
        let (Some(path), Some(name)) = (message["executable"].as_str(), target["name"].as_str())
        else {
            return;
        };
        let kind = match target["kind"][0].as_str() {
            Some("lib" | "proc-macro") => TargetKind::Lib,
            Some("bin") => TargetKind::Bin,
            Some("test") => TargetKind::Test,
            _ => TargetKind::Other,
        };
        if message["profile"]["test"] == true {
            let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
            let folder = manifest.parent().unwrap_or(manifest).to_owned();
            let package = package_of(message["package_id"].as_str().unwrap_or_default());
            self.tests.push(TestBinary {
                package: package.unwrap_or(name).to_owned(),
                target: name.to_owned(),
                kind,
                path: path.into(),
                folder,
            });
        } else if kind == TargetKind::Bin && name == OPERATOR {
            self.operator = Some(path.into());
        }
    }
}

/// The name in a package id such as `path+file:///a/b#name@0.1.0`, or `path+file:///a/name#0.1.0` where the folder has
/// the package's name.
fn package_of(id: &str) -> Option<&str> {
    let (url, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name),
        None => url.rsplit('/').next(),
    }
}

/// Names of the tests in a binary, those with `filter` in their names if it is given.
pub(crate) fn list(binary: &TestBinary, filter: Option<&str>) -> anyhow::Result<Vec<String>> {
    let text = output(binary, &["--list"], filter)?;
    Ok(text
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

/// Whether a binary has the standard harness, which can write JSON with the time of each test.
pub(crate) fn has_standard_harness(binary: &TestBinary) -> anyhow::Result<bool> {
    Ok(output(binary, &["--help"], None)?.contains("--report-time"))
}

fn output(binary: &TestBinary, flags: &[&str], filter: Option<&str>) -> anyhow::Result<String> {
    let output = Command::new(&binary.path)
        .args(flags)
        .args(filter)
        .current_dir(&binary.folder)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", binary.path.display()))?;
    ensure!(
        output.status.success(),
        "{} {}: {}\n{}",
        binary.path.display(),
        flags.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo() {
        let mut built = Built::default();
        for line in [
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/ipam#harvester-lb-ipam@0.1.0","manifest_path":"/r/crates/ipam/Cargo.toml","target":{"kind":["lib"],"name":"harvester_lb_ipam"},"profile":{"test":true},"executable":"/r/target/debug/deps/ipam-1"}"#,
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/ipam#harvester-lb-ipam@0.1.0","target":{"kind":["lib"],"name":"harvester_lb_ipam"},"profile":{"test":false},"executable":null}"#,
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/xtask#0.1.0","manifest_path":"/r/crates/xtask/Cargo.toml","target":{"kind":["bin"],"name":"xtask"},"profile":{"test":true},"executable":"/r/target/debug/deps/xtask-1"}"#,
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/operator#harvester-load-balancer@0.1.0","target":{"kind":["bin"],"name":"harvester-load-balancer"},"profile":{"test":false},"executable":"/r/target/debug/harvester-load-balancer"}"#,
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r/e2e#harvester-lb-e2e@0.1.0","manifest_path":"/r/e2e/Cargo.toml","target":{"kind":["test"],"name":"crash"},"profile":{"test":true},"executable":"/r/target/debug/deps/crash-1"}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "no JSON",
        ] {
            built.take(line);
        }
        let names: Vec<String> = built.tests.iter().map(TestBinary::name).collect();
        assert_eq!(names, ["ipam", "xtask/bin/xtask", "e2e/crash"]);
        assert_eq!(built.tests[0].folder, Path::new("/r/crates/ipam"));
        assert_eq!(
            built.tests[2].command(),
            "cargo test --workspace --locked --test crash --"
        );
        assert_eq!(
            built.operator.as_deref(),
            Some(Path::new("/r/target/debug/harvester-load-balancer"))
        );
    }
}
