//! Owns the parsing of a test binary's report.
//!
//! Binaries with the standard harness write JSON lines; those of the test clusters write lines in the same format to a
//! file (`harvester_lb_testkit::report`); cargo's doc tests write only text.

use serde_json::Value;

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It was ignored.
    Ignored,
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestResult {
    /// Its name in its binary.
    pub(crate) name: String,
    /// Its result.
    pub(crate) outcome: Outcome,
    /// Its duration, if known.
    pub(crate) seconds: Option<f64>,
    /// Its output, if it failed.
    pub(crate) output: String,
}

/// The meaning of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// A test has begun.
    Started(String),
    /// A test has ended.
    Ended(TestResult),
}

/// Format of a binary's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON lines.
    Json,
    /// `test NAME ... ok`.
    Text,
}

impl Format {
    /// Parses a line; `None` if it is not about a test.
    pub(crate) fn read(self, line: &str) -> Option<Event> {
        match self {
            Self::Json => from_json(line),
            Self::Text => from_text(line),
        }
    }
}

fn from_json(line: &str) -> Option<Event> {
    // Skips most other lines without parsing them.
    if !line.starts_with('{') {
        return None;
    }
    let value: Value = serde_json::from_str(line).ok()?;
    if value["type"] != "test" {
        return None;
    }
    let name = value["name"].as_str()?.to_owned();
    let outcome = match value["event"].as_str()? {
        "started" => return Some(Event::Started(name)),
        "ok" => Outcome::Passed,
        "failed" => Outcome::Failed,
        "ignored" => Outcome::Ignored,
        // For example `timeout`: the harness warns about a slow test.
        _ => return None,
    };
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let output = [text("message"), text("reason"), text("stdout")]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n");
    Some(Event::Ended(TestResult {
        name,
        outcome,
        seconds: value["exec_time"].as_f64(),
        output,
    }))
}

fn from_text(line: &str) -> Option<Event> {
    let (name, verdict) = line.trim().strip_prefix("test ")?.rsplit_once(" ... ")?;
    let outcome = match verdict.split([' ', ',']).next()? {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        "ignored" => Outcome::Ignored,
        _ => return None,
    };
    Some(Event::Ended(TestResult {
        name: name.to_owned(),
        outcome,
        seconds: None,
        output: String::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(name: &str, outcome: Outcome, seconds: Option<f64>, output: &str) -> Event {
        Event::Ended(TestResult {
            name: name.to_owned(),
            outcome,
            seconds,
            output: output.to_owned(),
        })
    }

    #[test]
    fn lines_of_the_standard_harness() {
        let read = |line| Format::Json.read(line);
        assert_eq!(
            read(r#"{ "type": "test", "event": "started", "name": "a::b" }"#),
            Some(Event::Started("a::b".to_owned()))
        );
        assert_eq!(
            read(r#"{ "type": "test", "name": "a::b", "event": "ok", "exec_time": 0.25 }"#),
            Some(ended("a::b", Outcome::Passed, Some(0.25), ""))
        );
        let failed = r#"{ "type": "test", "name": "c", "event": "failed", "exec_time": 1.5, "stdout": "left: 1\nright: 2" }"#;
        assert_eq!(
            read(failed),
            Some(ended("c", Outcome::Failed, Some(1.5), "left: 1\nright: 2"))
        );
        assert_eq!(
            read(r#"{ "type": "test", "name": "d", "event": "ignored", "message": "slow" }"#),
            Some(ended("d", Outcome::Ignored, None, "slow"))
        );
        for other in [
            r#"{ "type": "suite", "event": "started", "test_count": 2 }"#,
            r#"{ "type": "test", "event": "timeout", "name": "a" }"#,
            "{ this is no JSON",
            "something a test printed",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn lines_of_doc_tests() {
        let read = |line| Format::Text.read(line);
        assert_eq!(
            read("test crates/prober/src/lib.rs - (line 7) - compile ... ok"),
            Some(ended(
                "crates/prober/src/lib.rs - (line 7) - compile",
                Outcome::Passed,
                None,
                ""
            ))
        );
        assert_eq!(
            read("test a ... FAILED"),
            Some(ended("a", Outcome::Failed, None, ""))
        );
        assert_eq!(
            read("test a ... ignored, slow"),
            Some(ended("a", Outcome::Ignored, None, ""))
        );
        for other in [
            "test result: ok. 3 passed; 0 failed",
            "running 3 tests",
            "tests",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
