//! The program `harvester-load-balancer`. All logic is in the library.

use std::process::ExitCode;

use harvester_load_balancer::args::{Args, Command};
use harvester_load_balancer::commands::{check, crd, export, stop_operator, uninstall_webhook};
use harvester_load_balancer::runtime::{self, dhcp, webhook};

/// musl's own allocator serialises all threads: with it a start with 10,000 load balancers takes twice as long
/// (docs/internals/decisions/0014-allocator.md).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::of_process();
    let outcome = match &args.command {
        Some(Command::Check(options)) => {
            let denied = args.denied_to_backends();
            let code = runtime::block_on(&args, check::run(options, &denied));
            return code.unwrap_or_else(|error| {
                report(&error);
                ExitCode::from(check::NOT_READ)
            });
        }
        Some(Command::Crd) => crd::print_crds(),
        Some(Command::Dhcp(options)) => runtime::block_on(&args, dhcp::run(&args, options)),
        Some(Command::Export {
            allow_incomplete,
            clear_conditions,
        }) => runtime::block_on(&args, export::run(*allow_incomplete, *clear_conditions)),
        Some(Command::Webhook(options)) => runtime::block_on(&args, webhook::run(&args, options)),
        Some(Command::UninstallWebhook(options)) => {
            runtime::block_on(&args, uninstall_webhook::run(options))
        }
        Some(Command::StopOperator(options)) => {
            runtime::block_on(&args, stop_operator::run(options))
        }
        None => runtime::block_on(&args, runtime::run(&args)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

fn report(error: &anyhow::Error) {
    tracing::error!(error = format!("{error:#}"), "exiting");
    eprintln_if_unlogged(error);
}

/// Prints an error that occurs before logging is initialized.
#[allow(clippy::print_stderr, reason = "there is no log yet")]
fn eprintln_if_unlogged(error: &anyhow::Error) {
    if !tracing::dispatcher::has_been_set() {
        eprintln!("harvester-load-balancer: {error:#}");
    }
}
