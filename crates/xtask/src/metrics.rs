//! docs/metrics.md lists exactly the metric families of the code, with the same type, labels and help text. The code's
//! families are read from its source, because a family without a series is not exported.

use std::collections::BTreeMap;
use std::path::Path;

use crate::repository::{Faults, files, read};

const SOURCES: [&str; 6] = [
    "crates/operator/src/process_metrics.rs",
    "crates/operator/src/metrics.rs",
    "crates/operator/src/runtime/gauges.rs",
    "crates/operator/src/webhook/metrics.rs",
    "crates/operator/src/dhcp/metrics.rs",
    "crates/operator/src/runtime/dhcp/clients.rs",
];
const DOCUMENT: &str = "docs/metrics.md";
const PREFIX: &str = "harvester_lb_";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Family {
    kind: String,
    labels: Vec<String>,
    help: String,
}

type Families = BTreeMap<String, Family>;

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut text = String::new();
    for source in SOURCES {
        text.push_str(&read(root, source)?);
    }
    let code = of_code(&text);
    let document = read(root, DOCUMENT)?;
    let mut faults = compare(&code, &of_document(&document));
    if code.len() < 20 {
        faults.push(format!("only {} families were found in {SOURCES:?}; crates/xtask/src/metrics.rs does not understand it any more", code.len()));
    }
    for path in files(root, "docs", &[".md"])?
        .into_iter()
        .chain(["README.md".to_owned()])
    {
        for name in names(&read(root, &path)?) {
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|s| name.strip_suffix(s));
            if !code.contains_key(&name) && !family.is_some_and(|f| code.contains_key(f)) {
                faults.push(format!("{path} speaks of {name}, which does not exist"));
            }
        }
    }
    Ok(faults)
}

fn compare(code: &Families, document: &Families) -> Faults {
    let mut faults = Vec::new();
    for (name, family) in code {
        match document.get(name) {
            None => faults.push(format!(
                "{DOCUMENT} lacks the row | `{name}` | {} | {} | {} |",
                family.kind,
                shown(&family.labels),
                family.help
            )),
            Some(said) if said != family => {
                faults.push(format!(
                    "{DOCUMENT} says of {name} {said:?}, the code says {family:?}"
                ));
            }
            Some(_) => {}
        }
    }
    for name in document.keys().filter(|n| !code.contains_key(*n)) {
        faults.push(format!(
            "{DOCUMENT} has a row for {name}, which does not exist"
        ));
    }
    faults
}

fn shown(labels: &[String]) -> String {
    labels
        .iter()
        .map(|l| format!("`{l}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Rows of tables: name, type, labels, help.
fn of_document(text: &str) -> Families {
    let mut families = Families::new();
    for line in text.lines() {
        let cells: Vec<&str> = line
            .trim()
            .trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        let [name, kind, labels, help] = cells.as_slice() else {
            continue;
        };
        let Some(name) = name.strip_prefix('`').and_then(|n| n.strip_suffix('`')) else {
            continue;
        };
        if !name.starts_with(PREFIX) {
            continue;
        }
        let family = Family {
            kind: (*kind).to_owned(),
            labels: labels
                .split(',')
                .map(|l| l.trim().trim_matches('`').to_owned())
                .filter(|l| !l.is_empty())
                .collect(),
            help: (*help).to_owned(),
        };
        families.insert(name.to_owned(), family);
    }
    families
}

/// Full names of metric families in a text.
fn names(text: &str) -> Vec<String> {
    text.match_indices(PREFIX)
        .map(|(at, _)| {
            text[at..]
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')
                .collect()
        })
        .filter(|name: &String| name.len() > PREFIX.len() && !name.ends_with('_'))
        .collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Word(String),
    Text(String),
    Mark(char),
}

/// Words, strings and punctuation, without comments.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                chars.by_ref().find(|c| *c == '\n');
            }
            '"' => {
                let mut text = String::new();
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        '\\' => text.extend(chars.next()),
                        c => text.push(c),
                    }
                }
                tokens.push(Token::Text(text));
            }
            c if c.is_alphanumeric() || c == '_' => {
                let mut word = c.to_string();
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
            c if c.is_whitespace() => {}
            c => tokens.push(Token::Mark(c)),
        }
    }
    tokens
}

/// Metric families in a source: calls of a constructor, or of a closure named after one, with two strings first.
fn of_code(source: &str) -> Families {
    let tokens = tokens(source);
    let mut families = Families::new();
    for at in 0..tokens.len() {
        let [
            Token::Mark('('),
            Token::Text(name),
            Token::Mark(','),
            Token::Text(help),
            rest @ ..,
        ] = &tokens[at..]
        else {
            continue;
        };
        let Some(kind) = kind(&tokens[..at]) else {
            continue;
        };
        let name = if name.starts_with(PREFIX) {
            name.clone()
        } else {
            format!("{PREFIX}{name}")
        };
        let family = Family {
            kind: kind.to_owned(),
            labels: labels(rest),
            help: help.clone(),
        };
        families.insert(name, family);
    }
    families
}

/// The type of a metric family, from the words before the call. A parenthesis that does not follow a word is no call: it would
/// be taken for one of the call before it.
fn kind(before: &[Token]) -> Option<&'static str> {
    if !matches!(before.last(), Some(Token::Word(_))) {
        return None;
    }
    let words: Vec<&str> = before
        .iter()
        .rev()
        .take(12)
        .filter_map(|t| match t {
            Token::Word(w) => Some(w.as_str()),
            _ => None,
        })
        .collect();
    match words.as_slice() {
        ["counters" | "counter", ..]
        | ["new", "IntCounter" | "Counter", ..]
        | ["new", "Opts", "new", "IntCounterVec" | "CounterVec", ..] => Some("counter"),
        ["gauges" | "gauge", ..]
        | ["new", "IntGauge" | "Gauge", ..]
        | ["new", "Opts", "new", "IntGaugeVec" | "GaugeVec", ..] => Some("gauge"),
        ["histograms" | "histogram", ..] => Some("histogram"),
        _ => None,
    }
}

/// The labels after name and help: the next list of strings before the end of the statement.
fn labels(rest: &[Token]) -> Vec<String> {
    for at in 0..rest.len() {
        match &rest[at..] {
            [Token::Mark('?' | ';'), ..] => return Vec::new(),
            [Token::Mark('&'), Token::Mark('['), list @ ..] => {
                return list
                    .iter()
                    .take_while(|t| **t != Token::Mark(']'))
                    .filter_map(|t| match t {
                        Token::Text(label) => Some(label.clone()),
                        _ => None,
                    })
                    .collect();
            }
            _ => {}
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(kind: &str, labels: &[&str], help: &str) -> Family {
        Family {
            kind: kind.to_owned(),
            labels: labels.iter().map(|l| (*l).to_owned()).collect(),
            help: help.to_owned(),
        }
    }

    const CODE: &str = r#"
        // counters("not_this", "A comment.", &["kind"])
        let counters = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(format!("harvester_lb_{name}"), help), labels)
        };
        a: counters("a_total", "A.", &["kind", "code"])?,
        b: IntCounter::new("harvester_lb_b_total", "B; b.")?,
        c: HistogramVec::new(histogram("c_seconds", "C.", &BUCKETS), &["verb"])?,
        d: Histogram::with_opts(histogram("d_seconds", "D.", &BUCKETS))?,
        e: GaugeVec::new(Opts::new("harvester_lb_e", "E."), &["pool"])?,
        f: gauge("f", "F.")?,
        g: gauges("g", "G.", &["kind"])?,
        h: families.histograms("h_seconds", "H.", &BUCKETS, &["verb"])?,
        i: families.counter("i_total", "I.")?,
        ("LoadBalancer", "no family")
    "#;

    #[test]
    fn families_of_code() {
        let expected: Families = [
            (
                "harvester_lb_a_total",
                family("counter", &["kind", "code"], "A."),
            ),
            ("harvester_lb_b_total", family("counter", &[], "B; b.")),
            ("harvester_lb_i_total", family("counter", &[], "I.")),
            (
                "harvester_lb_h_seconds",
                family("histogram", &["verb"], "H."),
            ),
            (
                "harvester_lb_c_seconds",
                family("histogram", &["verb"], "C."),
            ),
            ("harvester_lb_d_seconds", family("histogram", &[], "D.")),
            ("harvester_lb_e", family("gauge", &["pool"], "E.")),
            ("harvester_lb_f", family("gauge", &[], "F.")),
            ("harvester_lb_g", family("gauge", &["kind"], "G.")),
        ]
        .into_iter()
        .map(|(name, family)| (name.to_owned(), family))
        .collect();
        assert_eq!(of_code(CODE), expected);
    }

    #[test]
    fn families_of_a_document() {
        let text = "| name | type | labels | meaning |\n|---|---|---|---|\n\
                    | `harvester_lb_a_total` | counter | `kind`, `code` | A. |\n\
                    | `harvester_lb_f` | gauge | | F. |\n";
        let families = of_document(text);
        assert_eq!(families.len(), 2);
        assert_eq!(
            families["harvester_lb_a_total"],
            family("counter", &["kind", "code"], "A.")
        );
        assert_eq!(families["harvester_lb_f"], family("gauge", &[], "F."));
    }

    #[test]
    fn differences() {
        let code = of_code(CODE);
        assert_eq!(compare(&code, &code), Faults::new());
        let mut document = code.clone();
        document.remove("harvester_lb_f");
        document.insert("harvester_lb_x".to_owned(), family("gauge", &[], "X."));
        document.insert("harvester_lb_g".to_owned(), family("gauge", &[], "G."));
        assert_eq!(compare(&code, &document).len(), 3);
    }

    #[test]
    fn names_in_prose() {
        assert_eq!(
            names("`harvester_lb_leader` and rate(harvester_lb_c_seconds_sum[5m]), harvester_lb_*"),
            ["harvester_lb_leader", "harvester_lb_c_seconds_sum"]
        );
    }
}
