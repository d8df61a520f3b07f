//! The program `harvester-load-balancer`. All logic is in the library.

use std::process::ExitCode;

use clap::Parser;
use harvester_load_balancer::args::{Args, Command};
use harvester_load_balancer::commands::{crd, export};
use harvester_load_balancer::runtime;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.command {
        Some(Command::Crd) => crd::print_crds(),
        Some(Command::Export {
            allow_incomplete,
            clear_conditions,
        }) => runtime::block_on(&args, export::run(allow_incomplete, clear_conditions)),
        None => runtime::block_on(&args, runtime::run(&args)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "exiting");
            eprintln_if_unlogged(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints an error that occurs before logging is initialized.
#[allow(clippy::print_stderr, reason = "there is no log yet")]
fn eprintln_if_unlogged(error: &anyhow::Error) {
    if !tracing::dispatcher::has_been_set() {
        eprintln!("harvester-load-balancer: {error:#}");
    }
}
