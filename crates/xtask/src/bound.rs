//! Programs that never outlive this one: an interrupt, a kill or a panic leaves nothing running.
//!
//! The kernel can kill a process with its parent (`PR_SET_PDEATHSIG`), but safe Rust has no way to ask for it between
//! fork and exec. So this program stands in between: as `xtask die-with-parent PARENT PROGRAM ARGUMENT...` it asks for
//! itself and then becomes PROGRAM. What PROGRAM starts is its own affair; a test cluster ends with its test in the same
//! way.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// The word that makes this program stand in between.
pub(crate) const WORD: &str = "die-with-parent";

/// A command that is killed if the thread that spawns it ends first. Arguments and all else are added as to any command.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(WORD)
        .arg(std::process::id().to_string())
        .arg(program);
    command
}

/// Becomes the program that the arguments name.
pub(crate) fn become_program(arguments: &[String]) -> ExitCode {
    let [parent, program, rest @ ..] = arguments else {
        eprintln!("usage: xtask {WORD} PARENT PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    if let Err(errno) = set_pdeathsig(Signal::SIGKILL) {
        eprintln!("xtask: parent death signal: {errno}");
        return ExitCode::FAILURE;
    }
    // The parent may have died before the line above took effect.
    if getppid().to_string() != *parent {
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(rest).exec();
    eprintln!("cannot start {program}: {error}");
    ExitCode::from(127)
}
