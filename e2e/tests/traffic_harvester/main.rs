//! The tests of `traffic` with kube-proxy, kube-vip and the nodes' network set up as Harvester sets them up, and what only
//! holds there.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::run;
use harvester_lb_testkit::{DataPath, TestClusterOptions};

#[allow(dead_code, reason = "those without traffic run in `traffic` alone")]
#[path = "../traffic/examples.rs"]
mod examples;
mod harvester;
#[path = "../traffic/operator.rs"]
mod operator;
#[path = "../traffic/vips.rs"]
mod vips;

fn main() -> ExitCode {
    let options = TestClusterOptions {
        data_path: DataPath::HARVESTER,
        ..TestClusterOptions::default()
    };
    run(
        options,
        &["dnsmasq"],
        3,
        |_| Box::pin(async { Ok(()) }),
        [examples::with_traffic(), vips::all(), harvester::all()].concat(),
    )
}
