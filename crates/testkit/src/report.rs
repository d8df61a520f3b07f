//! The report of a test binary to the test runner: which test has begun, which has ended, its result and duration.
//!
//! The standard harness can report this on its standard output, the one of these binaries cannot. So they write lines
//! in the same format to the file that `HLB_TEST_REPORT` names. Without it nothing is written.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Instant;

use serde_json::{Value, json};

/// The variable with the file's path.
const FILE: &str = "HLB_TEST_REPORT";

/// A running test. If it is dropped without a result, because the test panicked, the test has failed.
#[derive(Debug)]
pub struct TestReport {
    name: String,
    file: Option<File>,
    began: Instant,
    ended: bool,
}

impl TestReport {
    /// A test begins.
    pub fn begin(name: &str) -> Self {
        let file = std::env::var_os(FILE)
            .and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok());
        let mut report = Self {
            name: name.to_owned(),
            file,
            began: Instant::now(),
            ended: false,
        };
        report.write(&json!({"type": "test", "event": "started", "name": name}));
        report
    }

    /// The setup shared with other tests is done; the time until now does not count.
    pub fn set_up_done(&mut self) {
        self.began = Instant::now();
    }

    /// The test has ended; returns the result unchanged.
    pub fn end<T, E: Display>(mut self, result: Result<T, E>) -> Result<T, E> {
        match &result {
            Ok(_) => self.result("ok", ""),
            Err(error) => self.result("failed", &format!("{error:#}")),
        }
        result
    }

    fn result(&mut self, event: &str, output: &str) {
        self.ended = true;
        let line = json!({
            "type": "test", "event": event, "name": self.name, "stdout": output,
            "exec_time": self.began.elapsed().as_secs_f64(),
        });
        self.write(&line);
    }

    /// A report that cannot be written is missed by the runner, which then fails; the test continues.
    fn write(&mut self, line: &Value) {
        if let Some(file) = &mut self.file {
            // In one write: concurrent tests write to the same file.
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl Drop for TestReport {
    fn drop(&mut self) {
        if !self.ended {
            self.result("failed", "panicked; the log has the message");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(report: impl FnOnce(TestReport)) -> Vec<Value> {
        let file = tempfile();
        let name = "a".to_owned();
        let (began, ended) = (Instant::now(), false);
        report(TestReport {
            name,
            file: Some(file.1),
            began,
            ended,
        });
        let text = std::fs::read_to_string(&file.0).unwrap();
        std::fs::remove_file(&file.0).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn tempfile() -> (std::path::PathBuf, File) {
        let name = format!(
            "report-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let path = std::env::temp_dir().join(name);
        let file = File::create(&path).unwrap();
        (path, file)
    }

    #[test]
    fn a_result_is_a_line() {
        let ok = lines(|report| {
            report.end(Ok::<_, String>(())).unwrap();
        });
        assert_eq!(
            (&ok[0]["event"], &ok[0]["name"]),
            (&json!("ok"), &json!("a"))
        );
        assert!(ok[0]["exec_time"].as_f64().is_some());
        let failed = lines(|report| {
            report.end(Err::<(), _>("two holders")).unwrap_err();
        });
        assert_eq!(failed[0]["event"], "failed");
        assert_eq!(failed[0]["stdout"], "two holders");
        assert_eq!(failed.len(), 1);
    }

    #[test]
    fn a_test_without_a_result_has_failed() {
        assert_eq!(lines(drop)[0]["event"], "failed");
    }
}
