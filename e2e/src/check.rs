//! Runs the subcommand `check` as an administrator would.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::world::World;

/// Timeout of the command: a read takes a second, and it waits for the status of pools, 75 s at most.
const LIMIT: Duration = Duration::from_mins(2);

/// The result of the command.
#[derive(Debug)]
pub struct Checked {
    /// Its exit code.
    pub code: i32,
    /// Its output.
    pub json: Value,
}

/// Checks with all permissions.
pub async fn check(world: &World) -> anyhow::Result<Checked> {
    let kubeconfig = world.cluster.kubeconfig("admin")?;
    check_as(world, kubeconfig.to_str().context("the path is no text")?).await
}

/// Checks with the permissions of a kubeconfig.
pub async fn check_as(world: &World, kubeconfig: &str) -> anyhow::Result<Checked> {
    let command = tokio::process::Command::new(world.binary())
        .args(["check", "--output=json", "--recheck-after=2s"])
        .env("KUBECONFIG", kubeconfig)
        .env("LOGLEVEL", "warn")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, command)
        .await
        .context("the command does not end")?
        .context("the command cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).with_context(|| said.into_owned())?;
    let code = output.status.code().context("the command was killed")?;
    Ok(Checked { code, json })
}

/// Checks, and fails unless there is no error.
pub async fn passes(world: &World) -> anyhow::Result<Checked> {
    let checked = check(world).await?;
    ensure!(checked.code == 0, "check: {:#}", checked.json);
    Ok(checked)
}

impl Checked {
    /// The findings of this reason, as `namespace/name` of their objects.
    pub fn objects(&self, reason: &str) -> BTreeSet<String> {
        let findings = self.json["findings"].as_array().into_iter().flatten();
        let those = findings.filter(|finding| finding["reason"] == reason);
        let part = |finding: &Value, field: &str| {
            let part = finding["object"][field].as_str();
            part.unwrap_or_default().to_owned()
        };
        those
            .map(|finding| format!("{}/{}", part(finding, "namespace"), part(finding, "name")))
            .collect()
    }

    /// The reasons of the findings of severity error.
    pub fn errors(&self) -> BTreeSet<&str> {
        let findings = self.json["findings"].as_array().into_iter().flatten();
        let errors = findings.filter(|finding| finding["severity"] == "error");
        errors
            .filter_map(|finding| finding["reason"].as_str())
            .collect()
    }
}
