//! Owns the facts about the test binaries: which may run concurrently, and how long each takes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::binaries::{TargetKind, TestBinary};

/// Which binaries may run concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Computes: two at a time, before all others.
    CpuBound,
    /// Starts a test cluster and mostly waits for it: several at a time.
    WaitBound,
    /// Measures something that a concurrent binary would disturb: alone, after all others.
    Exclusive,
}

/// A row of the table: a package, a target or `*`, its lane, and why.
type Row = (&'static str, &'static str, Lane, &'static str);

/// The first matching row counts. A binary without one is CPU-bound: slower than necessary for one that waits, never
/// wrong.
const TABLE: &[Row] = &[
    (
        "harvester-lb-e2e",
        "*",
        Lane::WaitBound,
        "a test cluster; waits for watches, leases, health checks and time limits",
    ),
    (
        "harvester-lb-testkit",
        "*",
        Lane::WaitBound,
        "the test clusters themselves",
    ),
];

/// The lane of a binary. Unit tests never start a test cluster.
pub(crate) fn lane(binary: &TestBinary) -> Lane {
    if binary.kind != TargetKind::Test {
        return Lane::CpuBound;
    }
    TABLE
        .iter()
        .find(|(package, target, ..)| {
            *package == binary.package && (*target == "*" || *target == binary.target)
        })
        .map_or(Lane::CpuBound, |(.., lane, _)| *lane)
}

/// Names of the binaries whose tests run the container image, which is built first.
const WITH_IMAGE: [&str; 1] = ["e2e/image"];

/// Whether the tests of a binary, by its display name, run the image.
pub(crate) fn needs_image(name: &str) -> bool {
    WITH_IMAGE.contains(&name)
}

/// Most concurrent CPU-bound binaries: many end with one long test, beside which the other core would be idle.
pub(crate) const MOST_COMPUTING: usize = 2;
/// Most concurrent test clusters. With four of them two cores are idle for a sixth of the time.
const MOST_CLUSTERS: usize = 5;
/// Memory of a test cluster with the operator and the test: 1.3 GiB, plus a margin.
const CLUSTER_KIB: u64 = 1_792 * 1_024;

/// Number of test clusters that this machine has memory for.
pub(crate) fn clusters() -> usize {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    clusters_within(available_kib(&meminfo))
}

fn clusters_within(kib: Option<u64>) -> usize {
    let room = kib.map_or(1, |kib| kib / CLUSTER_KIB);
    usize::try_from(room)
        .unwrap_or(MOST_CLUSTERS)
        .clamp(1, MOST_CLUSTERS)
}

fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|l| l.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Duration of each binary when it last passed; the longest start first.
#[derive(Debug, Default)]
pub(crate) struct Seconds {
    file: PathBuf,
    of: BTreeMap<String, f64>,
}

impl Seconds {
    /// Reads the durations of an earlier run. Without them there are guesses.
    pub(crate) fn load(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        Self {
            file: file.to_owned(),
            of: parse(&text),
        }
    }

    /// Expected duration of a binary, in seconds. Without an earlier run, its number of tests decides: on a new machine the longest
    /// must start first, too.
    pub(crate) fn of(&self, name: &str, lane: Lane, tests: usize) -> f64 {
        let per_test = match lane {
            Lane::CpuBound => 0.1,
            Lane::WaitBound | Lane::Exclusive => 10.0,
        };
        let guess = || per_test * f64::from(u32::try_from(tests).unwrap_or(u32::MAX));
        self.of.get(name).copied().unwrap_or_else(guess)
    }

    /// Records the duration of a binary that passed.
    pub(crate) fn remember(&mut self, name: &str, seconds: f64) {
        self.of.insert(name.to_owned(), seconds);
    }

    /// Stores the durations for the next run.
    pub(crate) fn store(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        for (name, seconds) in &self.of {
            let _ = writeln!(text, "{seconds:.1}\t{name}");
        }
        std::fs::write(&self.file, text).with_context(|| self.file.display().to_string())
    }
}

fn parse(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .filter_map(|line| {
            let (seconds, name) = line.split_once('\t')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(package: &str, target: &str, kind: TargetKind) -> TestBinary {
        TestBinary {
            package: package.to_owned(),
            target: target.to_owned(),
            kind,
            path: PathBuf::new(),
            folder: PathBuf::new(),
        }
    }

    #[test]
    fn tests_with_a_cluster_wait_and_all_others_compute() {
        let lane_of = |package, target, kind| lane(&binary(package, target, kind));
        assert_eq!(
            lane_of("harvester-lb-e2e", "whatever", TargetKind::Test),
            Lane::WaitBound
        );
        assert_eq!(
            lane_of("harvester-lb-e2e", "harvester_lb_e2e", TargetKind::Lib),
            Lane::CpuBound
        );
        assert_eq!(
            lane_of("harvester-load-balancer", "schedules", TargetKind::Test),
            Lane::CpuBound
        );
        assert_eq!(lane_of("new", "new", TargetKind::Test), Lane::CpuBound);
    }

    #[test]
    fn tests_of_the_image_need_it() {
        let image = binary("harvester-lb-e2e", "image", TargetKind::Test);
        assert!(needs_image(&image.name()));
        let rules = binary("harvester-lb-e2e", "rules", TargetKind::Test);
        assert!(!needs_image(&rules.name()));
    }

    #[test]
    fn memory_bounds_the_clusters() {
        let gib = 1_024 * 1_024;
        assert_eq!(clusters_within(None), 1);
        assert_eq!(clusters_within(Some(gib)), 1);
        assert_eq!(clusters_within(Some(4 * gib)), 2);
        assert_eq!(clusters_within(Some(64 * gib)), MOST_CLUSTERS);
        let meminfo = "MemTotal:  8 kB\nMemAvailable:   12345 kB\n";
        assert_eq!(available_kib(meminfo), Some(12_345));
        assert_eq!(available_kib("MemTotal: 1 kB"), None);
    }

    #[test]
    fn without_an_earlier_run_more_tests_take_longer() {
        let seconds = Seconds::default();
        let of = |tests| seconds.of("e2e new", Lane::WaitBound, tests);
        assert!(of(30) > of(3));
    }

    #[test]
    fn times_of_the_last_run_are_read_again() {
        let mut seconds = Seconds {
            of: parse("12.5\te2e crash\nnonsense\nx\ty\n"),
            ..Seconds::default()
        };
        let longer = |seconds: &Seconds, a: &str, b: &str| {
            seconds.of(a, Lane::WaitBound, 6) > seconds.of(b, Lane::WaitBound, 6)
        };
        // An unknown binary counts as ten seconds a test.
        assert!(longer(&seconds, "e2e other", "e2e crash"));
        seconds.remember("e2e other", 7.0);
        assert!(longer(&seconds, "e2e crash", "e2e other"));
    }
}
