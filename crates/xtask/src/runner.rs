//! `cargo run -p xtask -- test [FILTER]`: builds every test binary of the workspace once and runs them: first the
//! CPU-bound ones one by one, then those that mostly wait, several at a time. `cargo test` runs the same tests, one
//! binary after another.
//!
//! Nothing is skipped silently: a test that was listed and did not run, an ignored test and an integration test without
//! tests are failures. The last line is `N passed, N failed`.
//!
//! | module | owns |
//! |---|---|
//! | [`binaries`] | the build, and the resulting binaries |
//! | [`table`] | which binaries may run concurrently, and how long each takes |
//! | [`schedule`] | which binary starts next |
//! | [`job`] | one binary: its process, its output, its timeout |
//! | [`events`] | what a test binary reports about its tests |
//! | [`summary`] | the verdict and the final text |

mod binaries;
mod events;
mod job;
mod schedule;
mod summary;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

pub(crate) use binaries::{Built, build, list};
pub(crate) use summary::duration;

use events::{Outcome, TestResult};
use job::{Finished, Job};
use schedule::{Limits, Waiting};
use summary::{Report, Took};
use table::{Lane, Seconds};

/// A unit test is printed while the tests run only if it takes longer than this, in seconds; all are in `times.tsv`.
const WORTH_A_LINE: f64 = 1.0;

/// Command line options.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Only tests whose name contains this.
    filter: Option<String>,
    /// Most concurrent test clusters; by default the machine's memory decides.
    clusters: Option<usize>,
    /// Duration of the checks that ran before.
    checks: Option<Duration>,
}

impl Options {
    fn parse<S: AsRef<str>>(arguments: &[S]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter().map(AsRef::as_ref);
        while let Some(argument) = arguments.next() {
            if argument == "--clusters" {
                let number = arguments.next().and_then(|n| n.parse().ok());
                let number = number.filter(|n| *n > 0);
                options.clusters = Some(number.context("--clusters takes a number above 0")?);
            } else if argument == "--checks" {
                let seconds = arguments.next().and_then(|n| n.parse().ok());
                let seconds = seconds.context("--checks takes seconds")?;
                options.checks = Some(Duration::from_secs(seconds));
            } else if argument.starts_with('-') || options.filter.is_some() {
                bail!(
                    "unexpected argument {argument:?}; usage: xtask test [--clusters N] [--checks SECONDS] [FILTER]"
                );
            } else {
                options.filter = Some(argument.to_owned());
            }
        }
        Ok(options)
    }
}

/// Runs the tests.
pub(crate) fn main(root: &Path, arguments: &[String]) -> ExitCode {
    let outcome = Options::parse(arguments).and_then(|options| run(root, &options));
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tests: {error:#}");
            println!("\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Runs the tests and returns the number of failures.
fn run(root: &Path, options: &Options) -> anyhow::Result<usize> {
    let folder = root.join("target/tests");
    let logs = folder.join("logs");
    // Output of an earlier run would be mistaken for this one's.
    if logs.exists() {
        std::fs::remove_dir_all(&logs).with_context(|| logs.display().to_string())?;
    }
    std::fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let mut seconds = Seconds::load(&folder.join("seconds.tsv"));

    let began = Instant::now();
    println!("building the tests");
    let built = build(root)?;
    println!("built in {}", duration(began.elapsed()));

    let mut jobs = Vec::new();
    for binary in &built.tests {
        if let Some(job) = Job::of(binary, &built, options.filter.as_deref(), &logs)? {
            jobs.push(job);
        }
    }
    if options.filter.is_none() {
        jobs.push(Job::doc_tests(root, &logs));
    }
    if jobs.is_empty() {
        let filter = options.filter.as_deref().unwrap_or_default();
        bail!("no test's name contains {filter:?}");
    }
    if jobs.iter().any(Job::needs_image) {
        let image = image(root)?;
        for job in &mut jobs {
            job.take_image(&image);
        }
    }
    let build = began.elapsed();

    let began = Instant::now();
    let limits = Limits {
        clusters: options.clusters.unwrap_or_else(table::clusters),
    };
    println!(
        "{} tests in {} binaries, at most {} test clusters side by side",
        jobs.iter().map(|j| j.expected.len()).sum::<usize>(),
        jobs.len(),
        limits.clusters,
    );
    let Ran { reports, computing } = run_all(jobs, limits, &mut seconds)?;
    // A part of a binary says nothing about how long all of it takes, which decides what starts first.
    if options.filter.is_none() {
        seconds.store()?;
    }
    let times = folder.join("times.tsv");
    std::fs::write(&times, summary::times(&reports))
        .with_context(|| times.display().to_string())?;
    let took = Took {
        checks: options.checks,
        build,
        computing,
        tests: began.elapsed(),
    };
    print!("{}", summary::render(&reports, took));
    Ok(reports.iter().map(Report::failed).sum())
}

/// The archive of the image for the tests: the one that the environment names, else built for them.
fn image(root: &Path) -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(job::IMAGE) {
        return PathBuf::from(path).canonicalize().context(job::IMAGE);
    }
    let began = Instant::now();
    println!("building the image");
    let archive = crate::image::for_tests(root)?;
    println!("built in {}", duration(began.elapsed()));
    Ok(archive)
}

/// What has run.
#[derive(Default)]
struct Ran {
    reports: Vec<Report>,
    /// Until the last CPU-bound binary ended, before all others.
    computing: Duration,
}

/// Runs all jobs, as many at a time as the limits allow.
fn run_all(jobs: Vec<Job>, limits: Limits, seconds: &mut Seconds) -> anyhow::Result<Ran> {
    let began = Instant::now();
    let (sender, messages) = mpsc::channel();
    let mut jobs: Vec<Option<Job>> = jobs.into_iter().map(Some).collect();
    let mut running: Vec<(usize, Lane)> = Vec::new();
    let mut ran = Ran::default();
    loop {
        loop {
            let waiting: Vec<Waiting> = jobs
                .iter()
                .enumerate()
                .filter_map(|(id, job)| {
                    let job = job.as_ref()?;
                    Some(Waiting {
                        id,
                        lane: job.lane,
                        estimate: seconds.of(&job.name, job.lane, job.expected.len()),
                    })
                })
                .collect();
            let lanes: Vec<Lane> = running.iter().map(|(_, lane)| *lane).collect();
            let Some(id) = schedule::next(&waiting, &lanes, limits) else {
                break;
            };
            let Some(job) = jobs[id].take() else { break };
            running.push((id, job.lane));
            let sender = sender.clone();
            std::thread::spawn(move || {
                let finished = job.run(|test| {
                    // The receiver is gone only if this program ends.
                    let _ = sender.send(Message::Test(job.name.clone(), job.lane, test.clone()));
                });
                let _ = sender.send(Message::Done(id, Box::new((job, finished))));
            });
        }
        if running.is_empty() {
            return Ok(ran);
        }
        match messages.recv().context("a thread of the runner is gone")? {
            Message::Test(binary, lane, test) => announce(began.elapsed(), &binary, lane, &test),
            Message::Done(id, done) => {
                running.retain(|(other, _)| *other != id);
                let (job, finished) = *done;
                if job.lane == Lane::CpuBound {
                    ran.computing = began.elapsed();
                }
                let report = Report::new(job, finished);
                if report.failed() == 0 {
                    seconds.remember(&report.name, report.seconds());
                }
                println!("{} {}", clock(began.elapsed()), report.line());
                ran.reports.push(report);
            }
        }
    }
}

enum Message {
    Test(String, Lane, TestResult),
    Done(usize, Box<(Job, Finished)>),
}

/// Prints a line for a test that has ended, if it is worth one.
fn announce(at: Duration, binary: &str, lane: Lane, test: &TestResult) {
    let seconds = test.seconds.unwrap_or_default();
    let passed = test.outcome == Outcome::Passed;
    if passed && lane == Lane::CpuBound && seconds < WORTH_A_LINE {
        return;
    }
    let verdict = match test.outcome {
        Outcome::Passed => "ok",
        Outcome::Failed => "FAILED",
        Outcome::Ignored => "IGNORED",
    };
    println!(
        "{} {verdict:>7} {seconds:>7.1} s  {binary}: {}",
        clock(at),
        test.name
    );
}

/// Time since the start of the tests, for the margin.
fn clock(at: Duration) -> String {
    let seconds = at.as_secs();
    format!("{:>2}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_filter_and_a_number_of_clusters() {
        assert_eq!(Options::parse::<&str>(&[]).unwrap(), Options::default());
        let all = Options::parse(&["--clusters", "2", "alc_8"]).unwrap();
        assert_eq!(
            (all.clusters, all.filter.as_deref()),
            (Some(2), Some("alc_8"))
        );
        let checks = Options::parse(&["--checks", "52"]).unwrap().checks;
        assert_eq!(checks, Some(Duration::from_secs(52)));
        for wrong in [
            &["--clusters"][..],
            &["--clusters", "0"],
            &["--checks", "long"],
            &["a", "b"],
            &["--fast"],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_margin_shows_minutes_and_seconds() {
        assert_eq!(clock(Duration::from_secs(5)), " 0:05");
        assert_eq!(clock(Duration::from_secs(754)), "12:34");
    }
}
