//! `harvester-load-balancer`: the program. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use harvester_load_balancer::args::{Args, Command};
use harvester_load_balancer::{app, export};

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.command {
        Some(Command::Crd) => export::print_crds(),
        Some(Command::Export { allow_incomplete }) => {
            app::block_on(&args, export::run(allow_incomplete))
        }
        None => app::block_on(&args, app::run(&args)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "ended");
            eprintln_if_unlogged(&error);
            ExitCode::FAILURE
        }
    }
}

/// An error from before the log began would otherwise be lost.
#[allow(clippy::print_stderr, reason = "there is no log yet")]
fn eprintln_if_unlogged(error: &anyhow::Error) {
    if !tracing::dispatcher::has_been_set() {
        eprintln!("harvester-load-balancer: {error:#}");
    }
}
