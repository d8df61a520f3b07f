//! `make bench`: figures of the operator, compared with what the API server and the kernel can do.
//!
//! Each row is measured in the same run, on the same machine, as its baseline: the same requests, sent by a bare client
//! over the same number of connections with the same watches open. Nothing is asserted here: a missed target is shown
//! as missed, and only rows that cannot be measured at all make the exit code 1. Everything is printed, and written to
//! `target/bench.json` and `target/bench.md`.
//!
//! Arguments: names of rows; none: all.

#[path = "../bench/mod.rs"]
mod bench;

use std::process::ExitCode;

use harvester_lb_testkit::enter_with;

#[allow(clippy::print_stderr, reason = "the way to the user")]
fn main() -> ExitCode {
    enter_with(&["kea-dhcp4"]);
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(bench::run(&wanted)) {
        Ok(true) => ExitCode::SUCCESS,
        // Rows that could not be measured have been reported.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
