//! The output of a run, printed, and written as JSON and Markdown: `target/bench.json`, `target/bench.md`.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

use super::facts::Facts;
use harvester_lb_e2e::world::repository;

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// At most this multiple of the baseline.
    Times(f64),
}

/// A row: one figure or several of the same kind, of which the median counts, with their baseline.
#[must_use]
#[derive(Clone, Debug)]
pub(crate) struct Row {
    what: String,
    unit: &'static str,
    figures: Vec<f64>,
    limits: Vec<f64>,
    target: Option<Target>,
    note: String,
}

impl Row {
    /// A row with one figure.
    pub(crate) fn one(what: &str, unit: &'static str, figure: f64) -> Self {
        Self::of(what, unit, vec![figure])
    }

    /// A row with one figure per round.
    pub(crate) fn of(what: &str, unit: &'static str, figures: Vec<f64>) -> Self {
        Self {
            what: what.to_owned(),
            unit,
            figures,
            limits: Vec::new(),
            target: None,
            note: String::new(),
        }
    }

    /// The baseline of the same work on this machine: one figure per round.
    pub(crate) fn limits(mut self, limits: Vec<f64>) -> Self {
        self.limits = limits;
        self
    }

    /// The target: at most this.
    pub(crate) fn at_most(mut self, target: f64) -> Self {
        self.target = Some(Target::AtMost(target));
        self
    }

    /// The target: at least this.
    pub(crate) fn at_least(mut self, target: f64) -> Self {
        self.target = Some(Target::AtLeast(target));
        self
    }

    /// The target: at most this multiple of the baseline.
    pub(crate) fn at_most_times(mut self, target: f64) -> Self {
        self.target = Some(Target::Times(target));
        self
    }

    /// An additional note.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    fn figure(&self) -> f64 {
        median(&self.figures)
    }

    fn limit(&self) -> Option<f64> {
        (!self.limits.is_empty()).then(|| median(&self.limits))
    }

    fn ratio(&self) -> Option<f64> {
        self.limit().map(|limit| self.figure() / limit)
    }

    fn met(&self) -> Option<bool> {
        Some(match self.target? {
            Target::AtMost(most) => self.figure() <= most,
            Target::AtLeast(least) => self.figure() >= least,
            Target::Times(most) => self.ratio()? <= most,
        })
    }

    fn verdict(&self) -> &'static str {
        match self.met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        }
    }

    fn target_text(&self) -> String {
        match self.target {
            Some(Target::AtMost(most)) => format!("<= {} {}", short(most), self.unit),
            Some(Target::AtLeast(least)) => format!(">= {} {}", short(least), self.unit),
            Some(Target::Times(most)) => format!("<= {} x", short(most)),
            None => String::new(),
        }
        .trim_end()
        .to_owned()
    }

    fn json(&self) -> Value {
        let of = |all: &[f64]| {
            json!({
                "median": median(all), "rounds": all,
                "min": all.iter().copied().reduce(f64::min), "max": all.iter().copied().reduce(f64::max),
            })
        };
        let mut row = json!({
            "row": self.what, "unit": self.unit, "figure": of(&self.figures),
            "target": self.target_text(), "met": self.met(), "note": self.note,
        });
        if !self.limits.is_empty() {
            row["limit"] = of(&self.limits);
            row["ratio"] = json!(self.ratio());
        }
        row
    }
}

/// The rows of a run.
#[derive(Debug)]
pub(crate) struct Report {
    facts: Facts,
    rows: Vec<Row>,
    failures: Vec<String>,
}

impl Report {
    /// A report without rows, of this machine.
    pub(crate) fn new(facts: Facts) -> Self {
        say(&facts.sentence());
        Self {
            facts,
            rows: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// The facts of the run.
    pub(crate) fn facts(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Prints and adds a row.
    pub(crate) fn row(&mut self, row: Row) {
        say(&line(&row));
        self.rows.push(row);
    }

    /// Rows that could not be measured.
    pub(crate) fn failed(&mut self, rows: &str, error: &anyhow::Error) {
        let failure = format!("{rows}: not measured: {error:#}");
        say(&failure);
        self.failures.push(failure);
    }

    /// Whether all rows were measured.
    pub(crate) fn is_complete(&self) -> bool {
        self.failures.is_empty()
    }

    /// Prints all rows again, and writes them as JSON and Markdown.
    pub(crate) fn write(&mut self) -> anyhow::Result<()> {
        self.facts.end();
        say("");
        for row in &self.rows {
            say(&line(row));
        }
        for failure in &self.failures {
            say(failure);
        }
        let with_target: Vec<bool> = self.rows.iter().filter_map(Row::met).collect();
        say(&format!(
            "{} of {} targets are met",
            with_target.iter().filter(|met| **met).count(),
            with_target.len()
        ));
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let all = json!({"machine": self.facts.json(), "rows": rows, "failures": self.failures});
        put("target/bench.json", &serde_json::to_string_pretty(&all)?)?;
        put("target/bench.md", &self.markdown())
    }

    fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.facts.sentence());
        text.push_str("| row | figure | limit | ratio | target | |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let note = if row.note.is_empty() {
                String::new()
            } else {
                format!(" ({})", row.note)
            };
            let limit = row.limit().map_or_else(String::new, |_| {
                format!("{} {}", spread(&row.limits), row.unit)
            });
            let ratio = row.ratio().map_or_else(String::new, |r| format!("{r:.2}"));
            let _ = writeln!(
                text,
                "| {}{note} | {} {} | {limit} | {ratio} | {} | {} |",
                row.what,
                spread(&row.figures),
                row.unit,
                row.target_text(),
                row.verdict()
            );
        }
        for failure in &self.failures {
            let _ = writeln!(text, "\n{failure}");
        }
        text
    }
}

/// A row as one line of text.
fn line(row: &Row) -> String {
    let mut line = format!(
        "{:<74} {:>24} {:<5}",
        row.what,
        spread(&row.figures),
        row.unit
    );
    if let (Some(_), Some(ratio)) = (row.limit(), row.ratio()) {
        let _ = write!(
            line,
            "  limit {:>22}  ratio {ratio:.2}",
            spread(&row.limits)
        );
    }
    if row.target.is_some() {
        let _ = write!(line, "  target {}: {}", row.target_text(), row.verdict());
    }
    if !row.note.is_empty() {
        let _ = write!(line, "  ({})", row.note);
    }
    line.trim_end().to_owned()
}

/// The median, with minimum and maximum in brackets if there are several figures.
fn spread(all: &[f64]) -> String {
    let mid = short(median(all));
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if all.len() < 2 {
        return mid;
    }
    format!("{mid} [{}, {}]", short(least), short(most))
}

/// Three significant digits.
fn short(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    // 1234567 is easily misread; 1,234,567 is not.
    let (sign, digits) = text.strip_prefix('-').map_or(("", &*text), |d| ("-", d));
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// The median; of an even number of figures the mean of the middle two. NaN without figures.
pub(crate) fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    match (all.len(), all.get(all.len() / 2)) {
        (0, _) | (_, None) => f64::NAN,
        (n, Some(upper)) if n % 2 == 1 => *upper,
        (n, Some(upper)) => f64::midpoint(*upper, all.get(n / 2 - 1).copied().unwrap_or(*upper)),
    }
}

/// Prints a line.
#[allow(clippy::print_stdout, reason = "what the program is for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

fn put(path: &str, text: &str) -> anyhow::Result<()> {
    let path: PathBuf = repository().join(path);
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!(median(&[]).is_nan());
        assert!((median(&[3.0]) - 3.0).abs() < f64::EPSILON);
        assert!((median(&[9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn figures_are_read_at_a_glance() {
        assert_eq!(short(1_234_567.0), "1,234,567");
        assert_eq!(short(-1_234.5), "-1,234");
        assert_eq!(short(12.34), "12.3");
        assert_eq!(short(0.5), "0.50");
        assert_eq!(short(0.0123), "0.0123");
        assert_eq!(short(0.0), "0");
        assert_eq!(spread(&[1.0]), "1");
        assert_eq!(spread(&[3.0, 1.0, 2.5]), "2.50 [1, 3]");
    }

    #[test]
    fn targets_are_met_or_not() {
        let row = Row::one("row", "s", 3.0);
        assert_eq!(row.met(), None);
        assert_eq!(row.clone().at_most(3.0).met(), Some(true));
        assert_eq!(row.clone().at_most(2.9).verdict(), "MISSED");
        assert_eq!(row.clone().at_least(3.1).met(), Some(false));
        assert_eq!(
            row.clone().at_most_times(1.5).met(),
            None,
            "without a limit"
        );
        let row = row.limits(vec![2.0]);
        assert_eq!(row.clone().at_most_times(1.5).met(), Some(true));
        assert_eq!(row.at_most_times(1.4).met(), Some(false));
        assert_eq!(
            Row::one("row", "", f64::NAN).at_most(1.0).met(),
            Some(false)
        );
    }
}
