//! The demo: the operator on a real control plane, with real requests through a LoadBalancer.
//!
//! `demo` shows what the operator does and checks it: exit code 0 if everything was as expected, else 1. `demo share` does so with
//! an address that two load balancers share, `demo dhcp` with one that is leased. `demo shell`
//! starts a shell in the same environment, or reads commands from standard input if that is not a terminal. `demo call`
//! implements the commands of that shell.

#[path = "../demo/dhcp.rs"]
mod dhcp;
#[path = "../demo/scene.rs"]
mod scene;
#[path = "../demo/screen.rs"]
mod screen;
#[path = "../demo/share.rs"]
mod share;
#[path = "../demo/shell.rs"]
mod shell;
#[path = "../demo/tour.rs"]
mod tour;

use std::io::Write;
use std::process::ExitCode;

use harvester_lb_e2e::World;
use harvester_lb_testkit::enter_with;
use tokio::runtime::Runtime;

use crate::scene::Scene;
use crate::screen::Screen;

#[derive(Clone, Copy)]
enum Mode {
    Tour,
    Share,
    Dhcp,
    Shell,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mode = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Mode::Tour,
        ["share"] => Mode::Share,
        ["dhcp"] => Mode::Dhcp,
        ["shell"] => Mode::Shell,
        ["call", ..] => return shell::call(&words[1..]),
        _ => {
            let _ = writeln!(std::io::stderr(), "usage: demo [share | dhcp | shell]");
            return ExitCode::from(2);
        }
    };
    let mut screen = Screen::new();
    // Set in the processes inside the test cluster.
    if std::env::var_os("HLB_BED_STAGE").is_none() {
        // `make demo` has built everything and reported it (e2e/demo.sh).
        if let Err(error) = World::build() {
            screen.failure(&error);
            return ExitCode::FAILURE;
        }
    }
    enter_with(&["prometheus", "kea-dhcp4"]);
    let outcome = Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(mode, &mut screen)));
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            screen.failure(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(mode: Mode, screen: &mut Screen) -> anyhow::Result<u8> {
    if let Mode::Dhcp = mode {
        dhcp::run(screen).await?;
    } else {
        let scene = Scene::start(screen).await?;
        match mode {
            Mode::Shell => return shell::run(screen, scene).await,
            Mode::Share => share::run(screen, &scene).await?,
            Mode::Tour | Mode::Dhcp => tour::run(screen, &scene).await?,
        }
    }
    screen.summary();
    Ok(0)
}
