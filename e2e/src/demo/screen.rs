//! Owns the look of the demo: numbered steps, indented text, checked results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";
const RED: &str = "31";
const CYAN: &str = "36";

/// Length of a bar that stands for all requests, in characters.
const BAR: usize = 60;

/// Standard output, with or without colours.
pub(crate) struct Screen {
    colour: bool,
    step: u32,
    began: Instant,
    proven: Vec<String>,
    /// The operator's log, once there is one.
    pub(crate) log: Option<PathBuf>,
}

impl Screen {
    /// Colours only on a terminal that supports them, and only if the user has not disabled them.
    pub(crate) fn new() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self {
            colour: std::io::stdout().is_terminal() && !unwanted,
            step: 0,
            began: Instant::now(),
            proven: Vec::new(),
            log: None,
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// A closed output (`| head`) is not an error of the demo.
    #[allow(
        clippy::unused_self,
        reason = "the writer holds the screen, so that steps do not mix"
    )]
    fn line(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{text}");
        let _ = out.flush();
    }

    /// Begins the next step.
    pub(crate) fn step(&mut self, text: &str) {
        self.step += 1;
        let head = self.paint(BOLD, &format!("{}. {text}", self.step));
        let at = format!("[{}]", seconds(self.began.elapsed()));
        self.line(&format!("\n{head}  {}", self.paint(DIM, &at)));
    }

    pub(crate) fn say(&self, text: &str) {
        self.line(&format!("   {text}"));
    }

    /// Text of several lines, for instance a file or a table.
    pub(crate) fn block(&self, text: &str) {
        for line in text.trim_end().lines() {
            let line = self.paint(CYAN, line.trim_end());
            self.line(format!("     {line}").trim_end());
        }
    }

    /// A command that the reader could type, and its output.
    pub(crate) fn command(&self, command: &str, output: &str) {
        self.say(&self.paint(BOLD, &format!("$ {command}")));
        self.block(output);
    }

    /// A checked result, also for the summary.
    pub(crate) fn proven(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.say(&format!("{}  {text}", self.paint(GREEN, "ok")));
        self.proven.push(text);
    }

    /// A bar for each of `names`: its share of the answers.
    pub(crate) fn bars(&self, names: &[&str], answers: &BTreeMap<String, usize>) {
        let total = answers.values().sum::<usize>().max(1);
        let width = names.iter().map(|n| n.len()).max().unwrap_or(0);
        let mut text = String::new();
        for name in names {
            let count = answers.get(*name).copied().unwrap_or(0);
            let _ = writeln!(
                text,
                "{name:width$}  {count:>5}  {:>3} %  {}",
                (count * 100 + total / 2) / total,
                "#".repeat((count * BAR).div_ceil(total))
            );
        }
        self.block(&text);
    }

    /// The end if everything was as expected.
    pub(crate) fn summary(&self) {
        let took = seconds(self.began.elapsed());
        let head = format!("Proven in {took}, on a real control plane with real traffic:");
        self.line(&format!("\n{}", self.paint(BOLD, &head)));
        for text in &self.proven {
            self.say(&format!("{}  {text}", self.paint(GREEN, "ok")));
        }
    }

    /// The end if something was not as expected.
    pub(crate) fn failure(&self, error: &anyhow::Error) {
        self.line(&format!("\n{}", self.paint(RED, "The demo failed:")));
        self.say(&format!("{error:#}"));
        let Some(path) = &self.log else { return };
        let log = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(30)..);
        self.line("\nThe end of the operator's log:");
        self.block(&tail.unwrap_or_default().join("\n"));
        self.line("\nWith BED_KEEP=<folder> in the environment all logs are kept in that folder.");
    }
}

/// A duration for display.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
