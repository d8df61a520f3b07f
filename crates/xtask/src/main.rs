//! Checks of the repository beyond the compiler's. `cargo run -p xtask` runs all of them, `cargo run -p xtask -- NAME`
//! one. Each prints everything that is wrong, and fails if there is anything.
//!
//! | name | checks |
//! |---|---|
//! | `arrows` | which crate may depend on which, which folder of the operator may use which ([`layers`]), and what the pure crates may not use ([`arrows`]) |
//! | `circles` | no files that use each other in a cycle ([`circles`]) |
//! | `licences` | licences, one version of each crate, forbidden crates ([`licences`]) |
//! | `metrics` | docs/metrics.md matches the code ([`metrics`]) |
//! | `rbac` | the roles of docs/examples grant exactly what the operator needs, under names that no release uses ([`rbac`]) |
//! | `flags` | docs/configuration.md has every flag, and each command that a document shows exists ([`flags`]) |
//! | `keys` | docs/configuration.md has every annotation, label and finalizer ([`keys`]) |
//! | `reasons` | docs/operations.md has every reason and every alert ([`reasons`]) |
//! | `api-reference` | docs/api.md is what the CRDs say ([`api`]) |
//! | `figures` | the figures of README.md are those of docs/performance.md ([`figures`]) |
//! | `rules` | docs/internals/rules.md has a row for each rule that the sources cite, with a file that implements it; each rule has a test ([`rules`]) |
//! | `chart` | the chart's copy of the CRDs, its version, and its values: described, in the schema, in its README ([`chart`]) |
//! | `docs` | links lead to files and headings, YAML shown in a document is a file that a test applies, and nothing is still to be filled in ([`docs`]) |
//!
//! `cargo run -p xtask -- test` runs all tests ([`runner`]), `cargo run -p xtask -- soak` the long forms of some
//! ([`soak`]), `cargo run -p xtask -- image` builds the container image ([`image`]), `cargo run -p xtask -- write-chart`
//! writes what `chart` compares, `cargo run -p xtask -- api` docs/api.md.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people"
)]

mod api;
mod arrows;
mod bound;
mod cargo;
mod chart;
mod circles;
mod docs;
mod figures;
mod flags;
mod graph;
mod image;
mod keys;
mod layers;
mod licences;
mod markdown;
mod metrics;
mod modules;
mod rbac;
mod reasons;
mod repository;
mod rules;
mod runner;
mod soak;

use std::path::Path;
use std::process::ExitCode;

use repository::Faults;

type Check = fn(&Path) -> anyhow::Result<Faults>;

const CHECKS: [(&str, Check); 13] = [
    ("arrows", arrows::check),
    ("circles", circles::check),
    ("licences", licences::check),
    ("metrics", metrics::check),
    ("rbac", rbac::check),
    ("flags", flags::check),
    ("keys", keys::check),
    ("reasons", reasons::check),
    ("api-reference", api::check),
    ("figures", figures::check),
    ("rules", rules::check),
    ("chart", chart::check),
    ("docs", docs::check),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(bound::WORD) => bound::become_program(&words[1..]),
        Some("image") => with_repository(|root| image::main(root, &words[1..])),
        Some("api") => with_repository(|root| write(root, api::write)),
        Some("soak") => with_repository(|root| soak::main(root, &words[1..])),
        Some("write-chart") => with_repository(|root| write(root, chart::write)),
        Some("test") => with_repository(|root| runner::main(root, &words[1..])),
        _ => with_repository(|root| checks(root, &words)),
    }
}

fn with_repository(work: impl FnOnce(&Path) -> ExitCode) -> ExitCode {
    match repository::root() {
        Ok(root) => work(&root),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes a file that follows from others.
fn write(root: &Path, write: fn(&Path) -> anyhow::Result<()>) -> ExitCode {
    match write(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the named checks, or all.
fn checks(root: &Path, wanted: &[String]) -> ExitCode {
    let known = |name: &String| CHECKS.iter().any(|(n, _)| n == name);
    if let Some(unknown) = wanted.iter().find(|w| !known(w)) {
        let names: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "xtask: there is no check {unknown:?}; there are: {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    }
    let mut failed = false;
    for (name, check) in CHECKS {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == name) {
            continue;
        }
        let faults = check(root).unwrap_or_else(|error| vec![format!("{error:#}")]);
        for fault in &faults {
            eprintln!("{name}: {fault}");
        }
        println!(
            "{name}: {}",
            if faults.is_empty() { "ok" } else { "FAILED" }
        );
        failed |= !faults.is_empty();
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
