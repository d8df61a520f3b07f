//! Owns the state of a soak between two calls: the progress of each test, and every failure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::parts::Unit;
use crate::runner::duration;

/// Progress of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Progress {
    /// Seed of the first unit.
    pub(crate) first: u64,
    /// Units that were run.
    pub(crate) done: u64,
    /// Units to run.
    pub(crate) total: u64,
    /// Duration of the units that were run, in seconds.
    pub(crate) seconds: f64,
}

impl Progress {
    /// Units that are left.
    pub(crate) const fn left(&self) -> u64 {
        self.total.saturating_sub(self.done)
    }

    /// Seed of the next unit.
    pub(crate) const fn next_seed(&self) -> u64 {
        self.first.wrapping_add(self.done)
    }

    /// Duration of a unit, in seconds; `None` before the first.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn seconds_of_one(&self) -> Option<f64> {
        (self.done > 0).then(|| self.seconds / self.done as f64)
    }

    /// Adds units that were run in that time.
    pub(crate) fn add(&mut self, count: u64, took: Duration) {
        self.done += count;
        self.seconds += took.as_secs_f64();
    }

    fn words(&self, unit: Unit) -> String {
        let mut text = format!("{} of {} {}", self.done, self.total, unit.name());
        if self.done > 0 {
            let took = duration(Duration::from_secs_f64(self.seconds));
            let last = self.first.wrapping_add(self.done - 1);
            let _ = match unit {
                Unit::Rounds | Unit::Schedules => {
                    write!(text, ", seeds {} to {last}, in {took}", self.first)
                }
                Unit::Cases | Unit::Objects | Unit::Seconds | Unit::Runs => {
                    write!(text, ", from seed {}, in {took}", self.first)
                }
            };
        }
        text
    }
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Part and test.
    pub(crate) track: String,
    /// The message of the test.
    pub(crate) found: String,
    /// The command that reproduces it.
    pub(crate) command: String,
    /// The log file with all output.
    pub(crate) log: String,
}

impl Failure {
    /// Its text for display.
    pub(crate) fn text(&self) -> String {
        format!(
            "{}: {}\n  repeat: {}\n  log: {}\n",
            self.track, self.found, self.command, self.log
        )
    }
}

/// The whole state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    progress: BTreeMap<String, Progress>,
    /// Every failure, in the order found.
    pub(crate) failures: Vec<Failure>,
}

impl State {
    /// Reads the state; a missing file is an empty state.
    pub(crate) fn load(file: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(&text).with_context(|| {
                format!(
                    "{} is no state of a soak; --new starts over",
                    file.display()
                )
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| file.display().to_string()),
        }
    }

    /// Writes the state atomically: an interrupt leaves the old state or the new one.
    pub(crate) fn store(&self, file: &Path) -> anyhow::Result<()> {
        let part = file.with_extension("part");
        std::fs::write(&part, self.text()).with_context(|| part.display().to_string())?;
        std::fs::rename(&part, file).with_context(|| file.display().to_string())
    }

    /// Registers a test from this seed on, unless it has started already.
    pub(crate) fn begin(&mut self, track: &str, total: u64, seed: u64) {
        let fresh = Progress {
            first: seed,
            done: 0,
            total,
            seconds: 0.0,
        };
        let progress = self.progress.entry(track.to_owned()).or_insert(fresh);
        progress.total = total;
    }

    /// Progress of a test.
    pub(crate) fn of(&self, track: &str) -> Option<&Progress> {
        self.progress.get(track)
    }

    /// Progress of a test, mutable.
    pub(crate) fn of_mut(&mut self, track: &str) -> Option<&mut Progress> {
        self.progress.get_mut(track)
    }

    /// Progress of these tests, what is left, and every failure, also of other tests.
    pub(crate) fn summary(&self, tracks: &[(&str, Unit)]) -> String {
        let mut text = String::from("Played so far:\n");
        let mut left = 0.0;
        let mut unknown = 0;
        for (track, unit) in tracks {
            let Some(progress) = self.of(track) else {
                continue;
            };
            let mark = if progress.left() == 0 { "done" } else { "    " };
            let _ = writeln!(text, "{mark}  {track}: {}", progress.words(*unit));
            match progress.seconds_of_one() {
                #[allow(clippy::cast_precision_loss, reason = "an estimate")]
                Some(seconds) => left += seconds * progress.left() as f64,
                None => unknown += 1,
            }
        }
        if left > 0.0 || unknown > 0 {
            let _ = write!(text, "Left: {}", duration(Duration::from_secs_f64(left)));
            if unknown > 0 {
                let _ = write!(text, ", and {unknown} tests that have not begun");
            }
            text.push('\n');
        }
        if self.failures.is_empty() {
            text.push_str("Nothing wrong was found.\n");
        } else {
            let _ = writeln!(text, "\nFound wrong: {}", self.failures.len());
            for failure in &self.failures {
                text.push_str(&failure.text());
            }
        }
        text
    }

    fn text(&self) -> String {
        let progress: serde_json::Map<String, Value> = self
            .progress
            .iter()
            .map(|(track, p)| {
                let value = json!({
                    "first": p.first, "done": p.done, "total": p.total, "seconds": p.seconds,
                });
                (track.clone(), value)
            })
            .collect();
        let failures: Vec<Value> = self
            .failures
            .iter()
            .map(
                |w| json!({"track": w.track, "found": w.found, "command": w.command, "log": w.log}),
            )
            .collect();
        format!(
            "{:#}\n",
            json!({"progress": progress, "failures": failures})
        )
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let mut state = Self::default();
        for (track, p) in value["progress"].as_object().context("no progress")? {
            let number = |key: &str| p[key].as_u64().with_context(|| format!("{track}: {key}"));
            let progress = Progress {
                first: number("first")?,
                done: number("done")?,
                total: number("total")?,
                seconds: p["seconds"].as_f64().context("seconds")?,
            };
            state.progress.insert(track.clone(), progress);
        }
        // Older state files have the key "wrongs".
        let failures = value.get("failures").or_else(|| value.get("wrongs"));
        let failures = failures.and_then(Value::as_array).context("no failures")?;
        for w in failures {
            let text = |key: &str| {
                let text = w[key].as_str().map(str::to_owned);
                text.with_context(|| format!("a failure has no {key}"))
            };
            state.failures.push(Failure {
                track: text("track")?,
                found: text("found")?,
                command: text("command")?,
                log: text("log")?,
            });
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let mut state = State::default();
        state.begin("crash/a", 200, 1_000);
        state.begin("model/b", 5, 7);
        let progress = state.of_mut("crash/a").unwrap();
        progress.add(40, Duration::from_secs(400));
        state
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let mut before = state();
        before.failures.push(Failure {
            track: "crash/a".to_owned(),
            found: "two \"holders\"".to_owned(),
            command: "HLB_SEED=7 cargo test".to_owned(),
            log: "a.log".to_owned(),
        });
        assert_eq!(State::parse(&before.text()).unwrap(), before);
        let older = before.text().replacen("failures", "wrongs", 1);
        assert_eq!(State::parse(&older).unwrap(), before);
        assert!(State::parse("{}").is_err());
        assert_eq!(
            State::load(Path::new("/nowhere")).unwrap(),
            State::default()
        );
    }

    #[test]
    fn a_test_that_has_begun_goes_on_from_its_seed() {
        let mut state = state();
        state.begin("crash/a", 300, 5);
        let progress = state.of("crash/a").unwrap();
        assert_eq!((progress.next_seed(), progress.left()), (1_040, 260));
        assert_eq!(progress.seconds_of_one(), Some(10.0));
        assert_eq!(state.of("model/b").unwrap().seconds_of_one(), None);
    }

    #[test]
    fn the_summary_says_what_was_played_what_is_left_and_what_failed() {
        let tracks = [("crash/a", Unit::Rounds), ("model/b", Unit::Schedules)];
        let text = state().summary(&tracks);
        for part in [
            "crash/a: 40 of 200 rounds, seeds 1000 to 1039, in 6 min 40 s",
            "model/b: 0 of 5 schedules\n",
            "Left: 26 min 40 s, and 1 tests that have not begun",
            "Nothing wrong was found.",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let mut failure = state();
        failure.failures.push(Failure {
            track: "faults/c".to_owned(),
            found: "lost".to_owned(),
            command: "HLB_SEED=7 cargo test".to_owned(),
            log: "c.log".to_owned(),
        });
        // Of a test that was not selected now.
        let text = failure.summary(&tracks);
        assert!(
            text.contains("Found wrong: 1\nfaults/c: lost\n  repeat: HLB_SEED=7 cargo test\n"),
            "{text}"
        );
    }
}
