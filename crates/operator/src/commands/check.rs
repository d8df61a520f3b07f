//! `check`: an audit of everything that the operator reads and writes, for use before and after a swap or an upgrade
//! (OPS-2). Read-only.
//!
//! The rules are those of crate `audit`, which shares no decision with the operator. Objects of the Go operator that are
//! not imported yet are judged as such, with a preview of the import.

mod outcome;
mod preview;
mod read;
mod report;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use harvester_lb_audit::{
    Finding, Leader, ObjectRef, Severity, State, audit, audit_before_import, check_surroundings,
    kinds,
};
use harvester_lb_controller_kit::client;
use harvester_lb_controller_kit::preflight::{self, Missing};
use harvester_lb_core::backend_addresses::Cidr;
use kube::Client;
use tokio::time::Instant;

use crate::args::{CheckArgs, Output};
use crate::permissions::REQUIRED;
use outcome::Outcome;
use read::Read;

pub use outcome::NOT_READ;

/// How long the operator is given to repair what is wrong, as long as the errors become fewer: at its start it imports and
/// reconciles all objects, which takes a minute with 10,000 load balancers.
const REPAIR_LIMIT: Duration = Duration::from_mins(10);

/// How long the status of a pool may be behind (POOL-3): the longest pause after a slow write, or for the interim writes of
/// other pools, 60 s, and 15 s for the write before it and its own.
const POOL_STATUS_LIMIT: Duration = Duration::from_secs(75);

/// Checks, and prints the result. Returns the exit code.
pub async fn run(args: &CheckArgs, denied: &[Cidr]) -> anyhow::Result<ExitCode> {
    let clients = client::connect(Arc::new(client::Unobserved)).await?;
    let outcome = check(&clients.write, denied, args).await;
    let text = match args.output {
        Output::Text => report::text(&outcome),
        Output::Json => report::json(&outcome)?,
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .context("standard output is closed")?;
    Ok(ExitCode::from(outcome.code()))
}

/// Reads everything and judges it. An error counts only if it is found again `recheck_after` later: several kinds cannot be
/// read at one moment, and the operator may be at work. It is waited for as long as the errors become fewer, and for the
/// status of pools.
async fn check(client: &Client, denied: &[Cidr], args: &CheckArgs) -> Outcome {
    let (began, recheck_after) = (Instant::now(), args.recheck_after);
    let judged = async || judge(&read::all(client, denied).await, args.require_leader);
    let mut outcome = judged().await;
    while outcome.has_errors() && !recheck_after.is_zero() {
        tokio::time::sleep(recheck_after).await;
        let mut again = judged().await;
        if !again.is_read {
            return again;
        }
        again.confirmed_by(&outcome);
        let improves = again.is_led() && again.errors().count() < outcome.errors().count();
        outcome = again;
        let is_late = outcome.is_behind() && began.elapsed() <= POOL_STATUS_LIMIT;
        let is_repaired = improves && began.elapsed() <= REPAIR_LIMIT;
        if !is_late && !is_repaired {
            break;
        }
    }
    outcome
}

/// Judges what was read.
fn judge(read: &Read, require_leader: bool) -> Outcome {
    let leader = read.leader.clone();
    let state = State::of(&read.snapshot, leader.as_ref().unwrap_or(&Leader::None));
    let (mut report, preview) = match state {
        State::Imported => (audit(&read.snapshot), None),
        State::NotImported => {
            let preview = preview::preview(read);
            (audit_before_import(&read.snapshot), Some(preview))
        }
    };
    let mut all = std::mem::take(&mut report.findings);
    all.extend(preview.iter().flat_map(|preview| preview.findings.clone()));
    all.extend(check_surroundings(&read.around, leader.as_ref()));
    all.extend(missing_findings(&read.missing, state));
    if !read.is_complete {
        // What depends on objects that were not read would be wrong.
        all.clear();
    }
    let is_leader = state == State::Imported && matches!(leader, Some(Leader::This(_)));
    let no_leader = [kinds::NO_LEADER.reason, kinds::GO_OPERATOR_LEADS.reason];
    let severity = |finding: &Finding| {
        if require_leader && no_leader.contains(&finding.kind.reason) {
            Severity::Error
        } else {
            finding.kind.class.severity(is_leader)
        }
    };
    let mut findings: Vec<(Severity, Finding)> = all
        .into_iter()
        .map(|finding| (severity(&finding), finding))
        .collect();
    findings.sort_by(|(a, one), (b, other)| (&one.object, a).cmp(&(&other.object, b)));
    Outcome {
        state,
        leader,
        pools: read.snapshot.pools.len(),
        report,
        preview,
        findings,
        not_read: read.failed.clone(),
        is_read: read.is_complete,
        passing: 0,
    }
}

/// The kinds that the operator needs, and its permissions, in one finding: most users of this command are not the operator. One
/// that may write nothing is not, or has lost everything.
fn missing_findings(missing: &[Missing], state: State) -> Vec<Finding> {
    let definition = |kind: &str| {
        let name = kind.split('/').next().unwrap_or_default();
        ObjectRef::cluster("CustomResourceDefinition", name)
    };
    let mut findings = Vec::new();
    let mut rights = Vec::new();
    for what in missing {
        let text = what.to_string();
        match what {
            Missing::Kind { kind } => {
                let is_new = kind.starts_with("ipallocations.") && state == State::NotImported;
                let of = if is_new {
                    &kinds::CRD_TO_CREATE
                } else {
                    &kinds::CRD_MISSING
                };
                findings.push(Finding::new(of, "section 2", definition(kind), text));
            }
            Missing::PlainStatus { kind } => {
                let object = definition(kind);
                findings.push(Finding::new(
                    &kinds::STATUS_SUBRESOURCE,
                    "API-1",
                    object,
                    text,
                ));
            }
            Missing::Right(right) => rights.push(right.to_string()),
        }
    }
    if !rights.is_empty() {
        let (of, text) = if preflight::may_write(REQUIRED, missing) {
            let text = format!("no right to {}", rights.join(", "));
            (&kinds::PERMISSION_MISSING, text)
        } else {
            let text = format!(
                "this user lacks {} of the rights that the operator needs",
                rights.len()
            );
            (&kinds::PERMISSIONS_NOT_CHECKED, text)
        };
        let user = ObjectRef::cluster("User", "(of this command)");
        findings.push(Finding::new(of, "section 1", user, text));
    }
    findings
}

#[cfg(test)]
mod tests;
