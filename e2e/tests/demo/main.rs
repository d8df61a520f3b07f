//! The demo as a user runs it: the script of `make demo`, all but its call of cargo, which has built the programs for this test
//! already. The demo checks what it shows, and fails if anything is not as it says.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::repository;
use harvester_lb_testkit::TestReport;
use libtest_mimic::{Arguments, Failed, Trial};

/// The test.
const NAME: &str = "make_demo_proves_what_it_shows";
/// What the script runs as cargo.
const NO_BUILD: &str = "true";
/// Begins the last part of the demo, which repeats what was checked.
const SUMMARY: &str = "\nProven in ";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = Trial::test(NAME, || {
        let report = TestReport::begin(NAME);
        let result = report.end(demo());
        result.map_err(|error| Failed::from(format!("{error:#}")))
    });
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

fn demo() -> anyhow::Result<()> {
    World::build()?;
    let program = Path::new(env!("CARGO_BIN_EXE_demo"));
    let target = program.ancestors().nth(2).context("no folder")?;
    ensure!(
        target.join("debug/demo") == program,
        "the script runs a debug build, this is {}",
        program.display()
    );
    let output = Command::new(repository().join("e2e/demo.sh"))
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
