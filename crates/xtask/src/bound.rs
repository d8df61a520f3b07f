//! Programs that never outlive this one: an interrupt, a kill or a panic leaves no process running.
//!
//! The kernel can kill a process with its parent (`PR_SET_PDEATHSIG`), but safe Rust cannot ask for it between fork and
//! exec. So this program stands in between: as `xtask die-with-parent PARENT PROGRAM ARGUMENT...` it asks for itself
//! and then executes PROGRAM. It does not cover the children of PROGRAM; a test cluster ends with its test in the same
//! way.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// The argument that makes this program stand in between.
pub(crate) const WORD: &str = "die-with-parent";

/// A command that is killed if the thread that spawns it ends first. Arguments are added as to any command.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(WORD)
        .arg(std::process::id().to_string())
        .arg(program);
    forget_package(&mut command);
    command
}

/// Removes from a command's environment the variables that `cargo run` sets about this package. A cargo that inherits
/// them sees a change, and rebuilds every package with a build script that reads such a variable: `ring`, and half of
/// the crates that depend on it.
pub(crate) fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_package) {
            command.env_remove(name);
        }
    }
}

fn is_of_package(name: &str) -> bool {
    let prefixes = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ];
    name == "OUT_DIR" || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Executes the program that the arguments name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_says_of_a_package_is_not_handed_on() {
        for name in [
            "CARGO_PKG_NAME",
            "CARGO_MANIFEST_DIR",
            "CARGO_MANIFEST_PATH",
            "OUT_DIR",
        ] {
            assert!(is_of_package(name), "{name}");
        }
        for name in [
            "CARGO",
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_JOBS",
            "PATH",
        ] {
            assert!(!is_of_package(name), "{name}");
        }
    }
}
