//! Owns the run of one binary: its process, its output, its timeout.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::binaries::{self, Built, TargetKind, TestBinary};
use super::events::{Event, Format, TestResult};
use super::table::{self, Lane};
use crate::bound;
use crate::cargo::cargo;

/// A binary that runs longer hangs: several times the duration of the slowest on two busy cores.
const TIME_LIMIT: Duration = Duration::from_mins(30);
/// Pause between two polls of a running binary.
const LOOK: Duration = Duration::from_millis(50);
/// The file to which a binary with test clusters writes its report (`harvester_lb_testkit::report`).
const REPORT: &str = "HLB_TEST_REPORT";
/// The operator for the end-to-end tests; without it each would ask cargo for it.
const OPERATOR: &str = "HLB_OPERATOR";
/// For the programs of a test cluster: garbage is collected only when one has this much memory, which most never have. With Go's
/// default, collecting takes a quarter of their time. [`table::clusters`] knows how much it makes together.
const GO: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "640MiB")];
/// The archive of the image, for the tests of [`table::needs_image`].
pub(crate) const IMAGE: &str = "HLB_IMAGE";

/// A binary and how to run it.
#[derive(Debug)]
pub(crate) struct Job {
    /// Its display name.
    pub(crate) name: String,
    /// Which binaries may run concurrently.
    pub(crate) lane: Lane,
    /// Names of the tests that must run. Unknown for doc tests, where cargo's exit code has to do.
    pub(crate) expected: Vec<String>,
    /// Whether it is an error that it has no tests.
    pub(crate) needs_tests: bool,
    /// The command that runs its tests, for display, without a test name.
    pub(crate) command: String,
    /// All its output except the report.
    pub(crate) log: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    env: Vec<(&'static str, PathBuf)>,
    /// Where it writes its report.
    report_file: PathBuf,
    /// Whether the report is its standard output.
    on_stdout: bool,
    format: Format,
}

/// How a binary ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It was killed after the timeout.
    TimedOut,
    /// It did not start or could not be observed.
    Lost(String),
}

/// The result of a binary.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// Tests that have ended.
    pub(crate) tests: Vec<TestResult>,
    /// Tests that have started and not ended.
    pub(crate) open: Vec<String>,
    /// How it ended.
    pub(crate) exit: Exit,
    /// Its duration.
    pub(crate) took: Duration,
}

impl Job {
    /// How to run a binary; `None` if the filter matches none of its tests.
    pub(crate) fn of(
        binary: &TestBinary,
        built: &Built,
        filter: Option<&str>,
        logs: &Path,
    ) -> anyhow::Result<Option<Self>> {
        let expected = binaries::list(binary, filter)?;
        let needs_tests = binary.kind == TargetKind::Test && filter.is_none();
        if expected.is_empty() && !needs_tests {
            return Ok(None);
        }
        let name = binary.name();
        let file = |ending: &str| logs.join(format!("{}.{ending}", name.replace('/', "-")));
        let report_file = file("json");
        let standard = binaries::has_standard_harness(binary)?;
        let mut arguments = Vec::new();
        let mut env = vec![
            ("CARGO", cargo().into()),
            ("CARGO_MANIFEST_DIR", binary.folder.clone()),
        ];
        if standard {
            // On a stable toolchain the harness reports times only with this variable. It concerns the test process,
            // not a compiler.
            env.push(("RUSTC_BOOTSTRAP", "1".into()));
            let flags = ["-Zunstable-options", "--format=json", "--report-time"];
            arguments.extend(flags.map(str::to_owned));
        } else {
            env.push((REPORT, report_file.clone()));
            env.extend(built.operator.clone().map(|path| (OPERATOR, path)));
        }
        arguments.extend(filter.map(str::to_owned));
        Ok(Some(Self {
            lane: table::lane(binary),
            expected,
            needs_tests,
            command: binary.command(),
            log: file("log"),
            program: binary.path.clone(),
            arguments,
            folder: binary.folder.clone(),
            env,
            report_file,
            on_stdout: standard,
            format: Format::Json,
            name,
        }))
    }

    /// Whether its tests run the image.
    pub(crate) fn needs_image(&self) -> bool {
        table::needs_image(&self.name)
    }

    /// Gives its tests the image, if they need it.
    pub(crate) fn take_image(&mut self, archive: &Path) {
        if self.needs_image() {
            self.env.push((IMAGE, archive.to_owned()));
        }
    }

    /// The examples in the documentation, which only cargo can run.
    pub(crate) fn doc_tests(root: &Path, logs: &Path) -> Self {
        let arguments = ["test", "--workspace", "--locked", "--doc", "--no-fail-fast"];
        Self {
            name: "doc tests".to_owned(),
            lane: Lane::CpuBound,
            expected: Vec::new(),
            needs_tests: false,
            command: "cargo test --workspace --locked --doc --".to_owned(),
            log: logs.join("doc-tests.log"),
            program: cargo().into(),
            arguments: arguments.map(str::to_owned).to_vec(),
            folder: root.to_owned(),
            env: Vec::new(),
            report_file: logs.join("doc-tests.txt"),
            on_stdout: true,
            format: Format::Text,
        }
    }

    /// Runs it to its end; calls `on_test` for each test that has ended.
    pub(crate) fn run(&self, on_test: impl FnMut(&TestResult)) -> Finished {
        let mut reader = ReportReader::new(self.format, on_test);
        let began = Instant::now();
        let exit = self
            .watch(&mut reader, began)
            .unwrap_or_else(|error| Exit::Lost(format!("{error:#}")));
        Finished {
            tests: reader.tests,
            open: reader.open,
            exit,
            took: began.elapsed(),
        }
    }

    fn watch(
        &self,
        reader: &mut ReportReader<impl FnMut(&TestResult)>,
        began: Instant,
    ) -> anyhow::Result<Exit> {
        let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
        let log = create(&self.log)?;
        let written = create(&self.report_file)?;
        let mut read = File::open(&self.report_file)?;
        let mut child = bound::command(&self.program)
            .args(&self.arguments)
            .envs(GO)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(if self.on_stdout { written } else { log })
            .spawn()
            .context("cannot start a process")?;
        loop {
            let status = child.try_wait()?;
            // Read after polling the process, so that its last output is included.
            reader.read(&mut read)?;
            if let Some(status) = status {
                return Ok(exit(status));
            }
            if began.elapsed() > TIME_LIMIT {
                child.kill()?;
                child.wait()?;
                return Ok(Exit::TimedOut);
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Lost(status.to_string()),
    }
}

/// State of a binary's tests, from its report so far.
struct ReportReader<F> {
    format: Format,
    on_test: F,
    /// A line that is still incomplete.
    rest: Vec<u8>,
    tests: Vec<TestResult>,
    open: Vec<String>,
}

impl<F: FnMut(&TestResult)> ReportReader<F> {
    fn new(format: Format, on_test: F) -> Self {
        Self {
            format,
            on_test,
            rest: Vec::new(),
            tests: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Reads what was written since the last call.
    fn read(&mut self, from: &mut impl Read) -> std::io::Result<()> {
        from.read_to_end(&mut self.rest)?;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            match self.format.read(&String::from_utf8_lossy(&line)) {
                Some(Event::Started(name)) => self.open.push(name),
                Some(Event::Ended(test)) => {
                    self.open.retain(|name| *name != test.name);
                    (self.on_test)(&test);
                    self.tests.push(test);
                }
                None => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::events::Outcome;

    #[test]
    fn a_report_is_read_piece_by_piece() {
        let mut seen = Vec::new();
        let mut reader = ReportReader::new(Format::Json, |test: &TestResult| {
            seen.push((test.name.clone(), test.outcome));
        });
        for piece in [
            "{\"type\":\"test\",\"event\":\"started\",\"name\":\"a\"}\nprinted\n{\"type\":\"test\",\"eve",
            "nt\":\"started\",\"name\":\"b\"}\n{\"type\":\"test\",\"event\":\"ok\",\"name\":\"a\"}",
            "\n",
        ] {
            reader.read(&mut piece.as_bytes()).unwrap();
        }
        assert_eq!(reader.open, ["b"]);
        drop(reader);
        assert_eq!(seen, [("a".to_owned(), Outcome::Passed)]);
    }

    #[test]
    fn the_end_of_a_process() {
        assert_eq!(exit(ExitStatus::from_raw(101 << 8)), Exit::Code(101));
        assert_eq!(exit(ExitStatus::from_raw(9)), Exit::Signal(9));
    }
}
