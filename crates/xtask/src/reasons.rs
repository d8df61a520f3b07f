//! docs/operations.md has a row for each reason and type of a condition, for each reason of an Event, and for each alert. A
//! row is about what the code spans of its first cell name. The rows of the alerts also match docs/metrics.md, and the
//! rules of the chart, if it has any.
//!
//! In the sources these reasons and types are strings in CamelCase, or constants that are one capitalised word.

use std::collections::BTreeSet;
use std::path::Path;

use crate::markdown;
use crate::metrics::{Token, tokens};
use crate::repository::{Faults, files, is_test, read};

const DOCUMENT: &str = "docs/operations.md";
const METRICS: &str = "docs/metrics.md";
/// The section of the alerts, in the document and in docs/metrics.md.
const ALERTS: [&str; 2] = ["Alerts", "What to alert on"];
/// Folders whose strings in CamelCase are reasons, types of conditions, or kinds of objects.
const FOLDERS: [&str; 4] = [
    "crates/core/src",
    "crates/ipam/src/ledger",
    "crates/operator/src/controllers",
    "crates/operator/src/webhook",
];
/// Strings in CamelCase that are something else: kinds of objects, names of types, and names and values of others' fields.
const OTHERS: [&str; 24] = [
    "AdmissionReview",
    "ConfigMap",
    "ConversionReview",
    "CustomResourceDefinition",
    "EndpointSlice",
    "GuestCluster",
    "IPAllocation",
    "IPAllocations",
    "IPPool",
    "IPPools",
    "IPv4",
    "IPv6",
    "JSONPatch",
    "LoadBalancer",
    "MutatingWebhookConfiguration",
    "PausedByMigrationMonitor",
    "PeriodSeconds",
    "ServiceAccount",
    "StoredSecret",
    "ValidatingWebhookConfiguration",
    "VirtualMachine",
    "VirtualMachineInstance",
    "VirtualMachineInstances",
    "VirtualMachines",
];
/// Ends the part of a source that is compiled into the operator.
const INLINE_TESTS: &str = "\nmod tests {";

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut reasons = BTreeSet::new();
    for folder in FOLDERS {
        for path in files(root, folder, &[".rs"])? {
            if !is_test(&path) {
                reasons.append(&mut of_source(&read(root, &path)?));
            }
        }
    }
    let text = read(root, DOCUMENT)?;
    let mut faults = Vec::new();
    let described = subjects(&text, |_| true);
    for reason in reasons.difference(&described) {
        faults.push(format!("{DOCUMENT} has no row that begins with `{reason}`"));
    }
    if reasons.len() < 25 {
        faults.push(format!(
            "only {} reasons were found; crates/xtask/src/reasons.rs does not understand the sources any more",
            reasons.len()
        ));
    }
    let remedies = subjects(&text, |section| section == ALERTS[0]);
    let metrics = names(&read(root, METRICS)?, ALERTS[1]);
    faults.extend(compare(METRICS, &metrics, &remedies));
    let rules = of_chart(root)?;
    if !rules.is_empty() {
        faults.extend(compare("the chart", &rules, &remedies));
    }
    Ok(faults)
}

/// Compares the alerts of a place with the rows that say what to do.
fn compare(place: &str, alerts: &BTreeSet<String>, remedies: &BTreeSet<String>) -> Faults {
    let mut faults = Vec::new();
    for alert in alerts.difference(remedies) {
        faults.push(format!(
            "{DOCUMENT} does not say what to do about {alert} of {place}"
        ));
    }
    for alert in remedies.difference(alerts) {
        faults.push(format!(
            "{DOCUMENT} has a row for {alert}, which {place} does not have"
        ));
    }
    faults
}

/// Strings that are reasons: CamelCase of two words or more, and capitalised constants.
fn of_source(source: &str) -> BTreeSet<String> {
    let source = source.split(INLINE_TESTS).next().unwrap_or_default();
    // A quote as a character would begin a string.
    let tokens = tokens(&source.replace("'\"'", "' '"));
    let mut found = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let Token::Text(text) = token else { continue };
        let is_reason = is_camel_case(text) || (is_capitalised(text) && is_constant(&tokens[..at]));
        if is_reason && !OTHERS.contains(&text.as_str()) {
            found.insert(text.clone());
        }
    }
    found
}

/// Whether the tokens before a string make it the value of a constant.
fn is_constant(before: &[Token]) -> bool {
    let word = |token: &Token, text: &str| *token == Token::Word(text.to_owned());
    matches!(before, [.., first, Token::Word(_), Token::Mark(':'), Token::Mark('&'), last, Token::Mark('=')]
        if word(first, "const") && word(last, "str"))
}

/// Whether a text is one word of letters and digits that begins with a capital and has small letters.
fn is_capitalised(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric())
        && text.chars().any(|c| c.is_ascii_lowercase())
}

/// Whether a text is CamelCase of two words or more.
fn is_camel_case(text: &str) -> bool {
    is_capitalised(text) && text.chars().filter(char::is_ascii_uppercase).count() >= 2
}

/// What the rows of the chosen sections are about.
fn subjects(text: &str, section: impl Fn(&str) -> bool) -> BTreeSet<String> {
    markdown::rows(text)
        .iter()
        .filter(|row| section(&row.section))
        .flat_map(markdown::Row::subjects)
        .map(str::to_owned)
        .collect()
}

/// The first cells of a section, which are names without backticks, but for the header.
fn names(text: &str, section: &str) -> BTreeSet<String> {
    markdown::rows(text)
        .into_iter()
        .filter(|row| row.section == section)
        .filter_map(|row| row.cells.into_iter().next())
        .filter(|name| is_camel_case(name))
        .collect()
}

/// The alerts of the rules in the charts.
fn of_chart(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for path in files(root, "charts", &[".yaml", ".yml"])? {
        for line in read(root, &path)?.lines() {
            let line = line.trim_start().trim_start_matches("- ");
            if let Some(name) = line.strip_prefix("alert: ") {
                found.insert(name.trim().to_owned());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn reasons_of_a_source() {
        let source = r#"
            /// "NotThis"
            pub const A: &str = "NoBackend";
            pub const QUOTE: char = '"';
            pub const B: &str = "Ready";
            match x { B => "ApiError", C => "Succeeded", D => "LoadBalancer", E => "a NoBackend", F => "AND" }
            mod tests {
                const T: &str = "InATest";
            }
        "#;
        // The mark of the tests begins a line.
        let source = source.replace("            mod tests", "mod tests");
        assert_eq!(of_source(&source), set(&["ApiError", "NoBackend", "Ready"]));
    }

    #[test]
    fn rows_are_about_their_first_cells() {
        let text = "## Alerts\n| alert | what to do |\n|---|---|\n| `OneAlert`, `TwoAlert` | see `ThreeAlert` |\n";
        assert_eq!(
            subjects(text, |section| section == "Alerts"),
            set(&["OneAlert", "TwoAlert"])
        );
        assert!(subjects(text, |section| section == "Events").is_empty());
        let text = "## What\n| alert | expression |\n|---|---|\n| OneAlert | `up == 0` |\n";
        assert_eq!(names(text, "What"), set(&["OneAlert"]));
    }

    #[test]
    fn alerts_without_a_remedy_and_remedies_without_an_alert() {
        let (one, both) = (set(&["OneAlert"]), set(&["OneAlert", "TwoAlert"]));
        assert_eq!(compare("x", &both, &both), Faults::new());
        assert_eq!(compare("x", &both, &one).len(), 1);
        assert_eq!(compare("x", &one, &both).len(), 1);
    }
}
