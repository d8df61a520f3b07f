//! Owns what is done before the test bed is entered, where the package registry can be reached: the operator's build.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use harvester_lb_e2e::world::repository;

/// Builds the operator. What cargo says is passed on, but for its line that all is built: that is the normal case.
pub(crate) fn operator() -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let colour = if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        "always"
    } else {
        "never"
    };
    let mut child = Command::new(cargo)
        .args(["build", "--color", colour])
        .args(["--package", "harvester-load-balancer"])
        .current_dir(repository())
        .stderr(Stdio::piped())
        .spawn()
        .context("cargo cannot be started")?;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            if !line.contains("Finished") {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
    }
    ensure!(child.wait()?.success(), "the operator does not build");
    Ok(())
}
