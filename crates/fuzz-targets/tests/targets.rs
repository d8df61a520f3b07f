//! Each fuzz target with its seeds and with mutations of them, the same in each run. Inputs that got past the decoder
//! are mutated further, so that they diverge and stay decodable. Unlike `make fuzz`, this is not guided by coverage.
//!
//! `HLB_SEED` selects other mutations; `HLB_FUZZ_INPUT=file` runs only the input in that file.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "targets/mutations.rs"]
mod mutations;

use std::path::{Path, PathBuf};

use harvester_lb_fuzz_targets::{TARGETS, Target};
use mutations::{Mutations, words};

/// Inputs per target: a second or two.
const INPUTS: usize = 10_000;
/// Least percentage of inputs that get past the decoder; with fewer the target itself would hardly run.
const REACHED: usize = 20;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn target(name: &str) -> Target {
    TARGETS.iter().find(|(n, _)| *n == name).unwrap().1
}

/// Seeds of a target, ordered by name.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(folder().join("seeds").join(name)).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// Stores the input if the test panics while running it.
struct Culprit<'a>(&'a str, &'a [u8]);

impl Drop for Culprit<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(name, input) = self;
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
            eprintln!("{name}: {:?}", String::from_utf8_lossy(input));
            match std::fs::write(&file, input) {
                Ok(()) => eprintln!("HLB_FUZZ_INPUT={} repeats it", file.display()),
                Err(error) => eprintln!("{}: {error}", file.display()),
            }
        }
    }
}

fn play(name: &str, input: &[u8]) -> bool {
    let _culprit = Culprit(name, input);
    target(name)(input)
}

fn drive(name: &str) {
    if let Some(file) = std::env::var_os("HLB_FUZZ_INPUT") {
        target(name)(&std::fs::read(file).unwrap());
        return;
    }
    let seed = std::env::var("HLB_SEED").map_or(0, |seed| seed.parse().unwrap());
    let seeds = seeds(name);
    for seed in &seeds {
        assert!(
            play(name, seed),
            "{name}: a seed does not get past the decoder"
        );
    }
    let words = words(&std::fs::read_to_string(folder().join("words.dict")).unwrap());
    let mut mutations = Mutations::new(seed, seeds, words);
    let mut reached = 0;
    for _ in 0..INPUTS {
        let input = mutations.input();
        if play(name, &input) {
            reached += 1;
            mutations.keep(input);
        }
    }
    eprintln!("{name}: {reached} of {INPUTS} inputs got past the decoder");
    assert!(
        reached * 100 >= INPUTS * REACHED,
        "{name}: only {reached} did"
    );
}

#[test]
fn ranges() {
    drive("ranges");
}

#[test]
fn ledger() {
    drive("ledger");
}

#[test]
fn vmi() {
    drive("vmi");
}

#[test]
fn pool() {
    drive("pool");
}

#[test]
fn loadbalancer() {
    drive("loadbalancer");
}

#[test]
fn record() {
    drive("record");
}

#[test]
fn admission() {
    drive("admission");
}

#[test]
fn conversion() {
    drive("conversion");
}

#[test]
fn dhcp() {
    drive("dhcp");
}

/// A new target needs seeds, a test above, a program for libFuzzer and an entry in `fuzz/run.sh`.
#[test]
fn every_target_is_driven() {
    let script = std::fs::read_to_string(folder().join("run.sh")).unwrap();
    let this = include_str!("targets.rs");
    for (name, _) in TARGETS {
        assert!(!seeds(name).is_empty());
        assert!(
            this.contains(&format!("drive({name:?})")),
            "{name} has no test"
        );
        let program = folder().join(format!("targets/{name}.rs"));
        let program = std::fs::read_to_string(program).unwrap();
        assert!(
            program.contains(&format!("::{name}::run(data)")),
            "{program}"
        );
        assert!(script.contains(name), "fuzz/run.sh does not know {name}");
    }
    let programs = std::fs::read_dir(folder().join("targets")).unwrap();
    assert_eq!(programs.count(), TARGETS.len());
}
