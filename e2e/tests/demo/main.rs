//! The demo as a user runs it: the script of `make demo`, all but its call of cargo, which has built the programs for this test
//! already. The demo checks what it shows, and fails if anything is not as it says.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::repository;
use harvester_lb_testkit::TestReport;
use libtest_mimic::{Arguments, Failed, Trial};

/// The tests: each form of the demo, by the argument of the script.
const TESTS: [(&str, &[&str]); 3] = [
    ("make_demo_proves_what_it_shows", &[]),
    ("make_demo_share_proves_what_it_shows", &["share"]),
    ("make_demo_dhcp_proves_what_it_shows", &["dhcp"]),
];
/// What the script runs as cargo.
const NO_BUILD: &str = "true";
/// Begins the last part of the demo, which repeats what was checked.
const SUMMARY: &str = "\nProven in ";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = TESTS.map(|(name, words)| {
        Trial::test(name, move || {
            let report = TestReport::begin(name);
            let result = report.end(demo(words));
            result.map_err(|error| Failed::from(format!("{error:#}")))
        })
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

fn demo(words: &[&str]) -> anyhow::Result<()> {
    World::build()?;
    let program = Path::new(env!("CARGO_BIN_EXE_demo"));
    let target = program.ancestors().nth(2).context("no folder")?;
    ensure!(
        target.join("debug/demo") == program,
        "the script runs a debug build, this is {}",
        program.display()
    );
    let output = Command::new(repository().join("e2e/demo.sh"))
        .args(words)
        .env("CARGO", NO_BUILD)
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .context("the script cannot be started")?;
    let shown = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && shown.contains(SUMMARY),
        "{}; it has shown:\n{shown}",
        output.status
    );
    Ok(())
}
