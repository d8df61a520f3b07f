//! The result as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use harvester_lb_audit::{Finding, Leader, ObjectRef, Severity, State};
use serde_json::{Value, json};

use super::outcome::Outcome;

/// Waiting load balancers that the text names for each reason.
const NAMED: usize = 5;

/// Text for people: numbers, findings by object with the worst first, and a last line with the result.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_text(&mut out, outcome);
    out
}

fn write_text(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    if outcome.is_read {
        summary(out, outcome)?;
    }
    for (severity, object, findings) in by_object(outcome) {
        writeln!(out, "\n{} {object}", severity.as_str().to_uppercase())?;
        for (severity, finding) in findings {
            writeln!(
                out,
                "  {}{}: {}",
                finding.kind.reason,
                rule(finding),
                finding.text
            )?;
            writeln!(out, "    severity: {}", severity.as_str())?;
            writeln!(out, "    meaning:  {}", finding.kind.meaning)?;
            writeln!(out, "    action:   {}", finding.kind.action)?;
        }
    }
    for what in &outcome.not_read {
        writeln!(out, "\nNOT READ {what}")?;
    }
    writeln!(out)?;
    if outcome.passing > 0 {
        let passing = outcome.passing;
        writeln!(
            out,
            "{passing} more findings were gone in the next read: changes in progress"
        )?;
    }
    writeln!(out, "{}", result(outcome))
}

fn summary(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let report = &outcome.report;
    writeln!(out, "IPPools: {}", outcome.pools)?;
    writeln!(out, "LoadBalancers: {}", report.load_balancers)?;
    for (reason, names) in waiting(outcome) {
        let shown: Vec<&str> = names.iter().take(NAMED).map(|name| &**name).collect();
        let more = if names.len() > NAMED { ", ..." } else { "" };
        let number = names.len();
        let shown = shown.join(", ");
        writeln!(
            out,
            "  {number} without an address ({reason}): {shown}{more}"
        )?;
    }
    let (bound, released) = (report.bound, report.released);
    writeln!(out, "IPAllocations: {bound} Bound, {released} Released")?;
    if let Some(preview) = &outcome.preview {
        let (bound, released) = (preview.bound, preview.released);
        writeln!(
            out,
            "  not imported yet: at its next start this operator creates IPAllocations for {bound} addresses in use, and for {released} that it remembers"
        )?;
    }
    let leader = match &outcome.leader {
        Some(Leader::This(holder)) => format!("{holder}, a process of this operator"),
        Some(Leader::Go(holder)) => format!("{holder}, a process of the Go operator"),
        Some(Leader::None) => "none".to_owned(),
        None => "not read".to_owned(),
    };
    writeln!(out, "Leader: {leader}")
}

/// Load balancers without an address, by reason.
fn waiting(outcome: &Outcome) -> BTreeMap<&str, Vec<String>> {
    let mut waiting: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for lb in &outcome.report.waiting {
        let reason = match &*lb.reason {
            "" => "no reason given",
            reason => reason,
        };
        waiting.entry(reason).or_default().push(lb.lb.to_string());
    }
    waiting
}

/// The rule in parentheses, if it is one of docs/internals/rules.md.
fn rule(finding: &Finding) -> String {
    match finding.rule {
        section if section.starts_with("section") => String::new(),
        rule => format!(" ({rule})"),
    }
}

type OfObject<'a> = (Severity, &'a ObjectRef, Vec<&'a (Severity, Finding)>);

/// The findings of each object, with the worst severity; the worst objects first.
fn by_object(outcome: &Outcome) -> Vec<OfObject<'_>> {
    let mut groups: BTreeMap<&ObjectRef, Vec<&(Severity, Finding)>> = BTreeMap::new();
    for found in &outcome.findings {
        groups.entry(&found.1.object).or_default().push(found);
    }
    let mut groups: Vec<OfObject<'_>> = groups
        .into_iter()
        .filter_map(|(object, findings)| {
            let worst = findings.iter().map(|(severity, _)| *severity).min()?;
            Some((worst, object, findings))
        })
        .collect();
    groups.sort_by_key(|(severity, object, _)| (*severity, *object));
    groups
}

fn number(outcome: &Outcome, severity: Severity) -> usize {
    let findings = outcome.findings.iter();
    findings.filter(|(other, _)| *other == severity).count()
}

fn result(outcome: &Outcome) -> String {
    let numbers = [Severity::Error, Severity::Warning, Severity::Info];
    let [errors, warnings, infos] = numbers.map(|severity| number(outcome, severity));
    let found = format!("{errors} errors, {warnings} warnings, {infos} infos");
    match outcome.not_read.len() {
        0 => found,
        _ if !outcome.is_read => "nothing was checked: some objects could not be read".to_owned(),
        unread => format!("{found}; {unread} could not be read"),
    }
}

/// The same for programs. Fields are added only.
pub(super) fn json(outcome: &Outcome) -> anyhow::Result<String> {
    let findings: Vec<Value> = outcome
        .findings
        .iter()
        .map(|(severity, finding)| {
            json!({
                "severity": severity.as_str(),
                "reason": finding.kind.reason,
                "rule": finding.rule,
                "object": {
                    "kind": finding.object.kind,
                    "namespace": finding.object.namespace,
                    "name": finding.object.name,
                },
                "message": finding.text,
                "meaning": finding.kind.meaning,
                "action": finding.kind.action,
            })
        })
        .collect();
    let leader = match &outcome.leader {
        Some(Leader::This(holder)) => json!({"operator": "this", "holder": holder}),
        Some(Leader::Go(holder)) => json!({"operator": "go", "holder": holder}),
        Some(Leader::None) => json!({"operator": "none", "holder": ""}),
        None => Value::Null,
    };
    let import = outcome
        .preview
        .as_ref()
        .map(|preview| json!({"bound": preview.bound, "released": preview.released}));
    let waiting: Vec<Value> = outcome
        .report
        .waiting
        .iter()
        .map(|waiting| {
            let (namespace, name) = (&*waiting.lb.namespace, &*waiting.lb.name);
            json!({"namespace": namespace, "name": name, "reason": waiting.reason})
        })
        .collect();
    let all = json!({
        "imported": outcome.state == State::Imported,
        "import": import,
        "leader": leader,
        "pools": outcome.pools,
        "loadBalancers": outcome.report.load_balancers,
        "waiting": waiting,
        "bound": outcome.report.bound,
        "released": outcome.report.released,
        "findings": findings,
        "passing": outcome.passing,
        "notRead": outcome.not_read,
        "checked": outcome.is_read,
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
