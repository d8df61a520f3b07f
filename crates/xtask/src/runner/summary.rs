//! Owns the verdict on each binary and on the whole run, and its text.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::events::{Outcome, TestResult};
use super::job::{Exit, Finished, Job};

/// Number of tests listed at the end.
const SLOWEST: usize = 10;
/// Lines of a binary's output that are shown if it failed without a failed test.
const TAIL: usize = 40;
/// Lines of a failed test's own output that are shown; the log has all.
const MOST_LINES: usize = 120;

/// The report of a binary that has run.
#[derive(Debug)]
pub(crate) struct Report {
    /// Its display name.
    pub(crate) name: String,
    command: String,
    log: PathBuf,
    needs_tests: bool,
    /// Tests that were listed and did not end.
    missing: Vec<String>,
    finished: Finished,
}

/// A failure.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    /// The test, if it is one of a test.
    test: Option<String>,
    /// The description.
    text: String,
}

impl Report {
    pub(crate) fn new(job: Job, finished: Finished) -> Self {
        let ended: BTreeSet<&str> = finished.tests.iter().map(|t| t.name.as_str()).collect();
        let missing = job
            .expected
            .into_iter()
            .filter(|name| !ended.contains(name.as_str()))
            .collect();
        Self {
            name: job.name,
            command: job.command,
            log: job.log,
            needs_tests: job.needs_tests,
            missing,
            finished,
        }
    }

    /// Its duration.
    pub(crate) fn seconds(&self) -> f64 {
        self.finished.took.as_secs_f64()
    }

    fn passed(&self) -> usize {
        let passed = |test: &&TestResult| test.outcome == Outcome::Passed;
        self.finished.tests.iter().filter(passed).count()
    }

    /// Number of failures.
    pub(crate) fn failed(&self) -> usize {
        self.faults().len()
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for test in &self.finished.tests {
            let text = match test.outcome {
                Outcome::Passed => continue,
                Outcome::Failed => test.output.clone(),
                Outcome::Ignored => "ignored; a test that cannot run fails here".to_owned(),
            };
            faults.push(Fault {
                test: Some(test.name.clone()),
                text,
            });
        }
        for name in &self.missing {
            let open = self.finished.open.contains(name);
            let text = if open {
                "did not come to its end"
            } else {
                "did not run"
            };
            faults.push(Fault {
                test: Some(name.clone()),
                text: format!("{text}; {}", self.end()),
            });
        }
        if faults.is_empty() && self.finished.exit != Exit::Code(0) {
            faults.push(Fault {
                test: None,
                text: format!("no test failed, but {}", self.end()),
            });
        }
        if faults.is_empty() && self.needs_tests && self.finished.tests.is_empty() {
            faults.push(Fault {
                test: None,
                text: "ran no test".to_owned(),
            });
        }
        faults
    }

    /// How the process ended, as text.
    fn end(&self) -> String {
        match &self.finished.exit {
            Exit::Code(code) => format!("the binary ended with exit code {code}"),
            Exit::Signal(signal) => format!("the binary was ended by signal {signal}"),
            Exit::TimedOut => format!(
                "the binary was killed after {}",
                duration(self.finished.took)
            ),
            Exit::Lost(why) => format!("the binary could not be run: {why}"),
        }
    }

    /// The line to print when it ends.
    pub(crate) fn line(&self) -> String {
        let (passed, failed) = (self.passed(), self.failed());
        let verdict = if failed == 0 { "done" } else { "FAILED" };
        let took = self.seconds();
        let mut line = format!("{verdict:>7} {took:>7.1} s  {}: {passed} passed", self.name);
        if failed > 0 {
            let _ = write!(line, ", {failed} failed");
        }
        line
    }

    /// Details of its failures.
    fn details(&self) -> String {
        let mut text = String::new();
        for fault in self.faults() {
            let name = fault.test.as_deref().unwrap_or("the binary");
            let _ = writeln!(text, "---- {}: {name}", self.name);
            let mut output = fault.text.trim_end().to_owned();
            if fault.test.is_none() || output.is_empty() {
                output = format!("{output}\n{}", self.tail());
            }
            let lines: Vec<&str> = output.trim().lines().collect();
            let left_out = lines.len().saturating_sub(MOST_LINES);
            if left_out > 0 {
                let _ = writeln!(text, "({left_out} lines are left out here)");
            }
            for line in &lines[left_out..] {
                let _ = writeln!(text, "{line}");
            }
            if let Some(test) = &fault.test {
                let _ = writeln!(text, "repeat: {} --exact {test}", self.command);
            } else {
                let _ = writeln!(text, "repeat: {}", self.command);
            }
            let _ = writeln!(text, "log: {}\n", self.log.display());
        }
        text
    }

    /// The end of its output.
    fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

/// A duration for display.
pub(crate) fn duration(took: Duration) -> String {
    let seconds = took.as_secs();
    if seconds < 60 {
        format!("{:.1} s", took.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

/// Tests with their times, the slowest first.
fn by_time(reports: &[Report]) -> Vec<(f64, &str, &str)> {
    let mut all: Vec<(f64, &str, &str)> = reports
        .iter()
        .flat_map(|report| {
            report.finished.tests.iter().map(|test| {
                let seconds = test.seconds.unwrap_or_default();
                (seconds, report.name.as_str(), test.name.as_str())
            })
        })
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all
}

/// A line per test: seconds, binary, name; the slowest first.
pub(crate) fn times(reports: &[Report]) -> String {
    let mut text = String::new();
    for (seconds, binary, test) in by_time(reports) {
        let _ = writeln!(text, "{seconds:.3}\t{binary}\t{test}");
    }
    text
}

/// Duration of each part of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    /// The checks, if they ran.
    pub(crate) checks: Option<Duration>,
    /// The build of what was not built yet.
    pub(crate) build: Duration,
    /// The CPU-bound binaries, which come first.
    pub(crate) computing: Duration,
    /// All tests.
    pub(crate) tests: Duration,
}

/// Time budget on two cores once everything is built: checks, unit tests and models; and everything.
const DUE: (Duration, Duration) = (Duration::from_mins(4), Duration::from_mins(15));

impl Took {
    /// Seconds of each part and its budget.
    fn render(&self) -> String {
        let clusters = self.tests.saturating_sub(self.computing);
        let first = self.checks.unwrap_or_default() + self.computing;
        let all = self.checks.unwrap_or_default() + self.build + self.tests;
        let (due_first, due_all) = (duration(DUE.0), duration(DUE.1));
        let rows = [
            ("checks", self.checks, String::new()),
            ("unit tests and models", Some(self.computing), String::new()),
            (
                "both",
                self.checks.map(|_| first),
                format!("of {due_first}"),
            ),
            ("build", Some(self.build), String::new()),
            ("tests with a test cluster", Some(clusters), String::new()),
            ("all", Some(all), format!("of {due_all}")),
        ];
        let rows = rows.into_iter().filter_map(|(what, took, due)| {
            let took = duration(took?);
            Some(format!("{took:>14}  {what} {due}").trim_end().to_owned() + "\n")
        });
        rows.collect()
    }
}

/// The end of a run: the slowest tests, the durations of the parts, the failures, and as the last line the numbers.
pub(crate) fn render(reports: &[Report], took: Took) -> String {
    let mut text = format!("\nThe {SLOWEST} slowest tests; target/tests/times.tsv has all:\n");
    for (seconds, binary, test) in by_time(reports).into_iter().take(SLOWEST) {
        let _ = writeln!(text, "{seconds:>8.1} s  {binary}: {test}");
    }
    let _ = write!(text, "\n{}", took.render());
    let details: String = reports.iter().map(Report::details).collect();
    if !details.is_empty() {
        let _ = write!(text, "\nFailures:\n\n{details}");
    }
    let passed: usize = reports.iter().map(Report::passed).sum();
    let failed: usize = reports.iter().map(Report::failed).sum();
    let _ = writeln!(text, "\n{passed} passed, {failed} failed");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, outcome: Outcome, seconds: f64, output: &str) -> TestResult {
        TestResult {
            name: name.to_owned(),
            outcome,
            seconds: Some(seconds),
            output: output.to_owned(),
        }
    }

    fn report(tests: Vec<TestResult>, missing: &[&str], exit: Exit) -> Report {
        Report {
            name: "e2e/crash".to_owned(),
            command: "cargo test --test crash --".to_owned(),
            log: PathBuf::from("/nowhere/crash.log"),
            needs_tests: true,
            missing: missing.iter().map(|m| (*m).to_owned()).collect(),
            finished: Finished {
                tests,
                open: vec!["open".to_owned()],
                exit,
                took: Duration::from_secs(75),
            },
        }
    }

    #[test]
    fn what_passed_is_counted() {
        let tests = vec![
            test("a", Outcome::Passed, 1.0, ""),
            test("b", Outcome::Passed, 70.0, ""),
        ];
        let all = [report(tests, &[], Exit::Code(0))];
        assert_eq!(all[0].line(), "   done    75.0 s  e2e/crash: 2 passed");
        let took = Took {
            tests: Duration::from_secs(80),
            ..Took::default()
        };
        let text = render(&all, took);
        assert!(
            text.contains("    70.0 s  e2e/crash: b\n     1.0 s  e2e/crash: a\n"),
            "{text}"
        );
        assert!(text.contains("1 min 20 s  all of 15 min 00 s"), "{text}");
        assert!(!text.contains("Failures"), "{text}");
        assert!(text.ends_with("\n2 passed, 0 failed\n"), "{text}");
        assert_eq!(times(&all), "70.000\te2e/crash\tb\n1.000\te2e/crash\ta\n");
    }

    #[test]
    fn parts_of_a_run_have_times_of_their_own() {
        let took = Took {
            checks: Some(Duration::from_secs(50)),
            build: Duration::from_secs(5),
            computing: Duration::from_secs(75),
            tests: Duration::from_secs(200),
        };
        let text = took.render();
        let rows = text.lines().map(str::trim).collect::<Vec<_>>();
        assert_eq!(
            rows,
            [
                "50.0 s  checks",
                "1 min 15 s  unit tests and models",
                "2 min 05 s  both of 4 min 00 s",
                "5.0 s  build",
                "2 min 05 s  tests with a test cluster",
                "4 min 15 s  all of 15 min 00 s",
            ]
        );
        let without_checks = Took {
            checks: None,
            ..took
        };
        assert!(!without_checks.render().contains("both"));
    }

    #[test]
    fn a_failure_is_told_at_the_end_with_the_way_back_to_it() {
        let tests = vec![
            test("a", Outcome::Passed, 1.0, ""),
            test("b", Outcome::Failed, 2.0, "HLB_SEED=7: two holders"),
        ];
        let all = [report(tests, &[], Exit::Code(101))];
        assert!(all[0].line().contains("FAILED"));
        let text = render(&all, Took::default());
        for part in [
            "---- e2e/crash: b\nHLB_SEED=7: two holders\n",
            "repeat: cargo test --test crash -- --exact b\n",
            "log: /nowhere/crash.log\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(text.ends_with("\n1 passed, 1 failed\n"), "{text}");
    }

    #[test]
    fn what_did_not_run_has_failed() {
        let none = |missing: &[&str], exit| report(Vec::new(), missing, exit).faults();
        assert_eq!(none(&[], Exit::Code(0))[0].text, "ran no test");
        let lost = none(&["open", "other"], Exit::Signal(9));
        assert_eq!(lost.len(), 2);
        assert_eq!(
            lost[0].text,
            "did not come to its end; the binary was ended by signal 9"
        );
        assert!(lost[1].text.starts_with("did not run"));
        let ignored = vec![test("a", Outcome::Ignored, 0.0, "")];
        assert_eq!(report(ignored, &[], Exit::Code(0)).failed(), 1);
        let passed = vec![test("a", Outcome::Passed, 0.0, "")];
        let left = report(passed, &[], Exit::Code(1)).faults();
        assert_eq!(
            left[0].text,
            "no test failed, but the binary ended with exit code 1"
        );
    }

    #[test]
    fn a_long_output_is_cut_at_its_beginning() {
        let lines: Vec<String> = (0..500).map(|n| format!("line {n}")).collect();
        let output = lines.join("\n");
        let tests = vec![test("b", Outcome::Failed, 2.0, &output)];
        let text = report(tests, &[], Exit::Code(101)).details();
        assert!(
            text.contains("(380 lines are left out here)\nline 380\n"),
            "{text}"
        );
        assert!(text.contains("line 499\n"), "{text}");
    }
}
