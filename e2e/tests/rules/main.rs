//! The rules of the contract, one by one, on a real API server. There is no traffic: the tests write what kube-vip and
//! the guest agent would report.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::ExitCode;

use harvester_lb_e2e::run;
use harvester_lb_testkit::TestClusterOptions;

mod allocation;
mod backends;
mod endpoints;
mod guests;
mod input;
mod metrics;
mod others;
mod pools;
mod records;
mod release;
mod requirement;
mod selection;
mod status;
mod support;
mod vm;
mod watches;

fn main() -> ExitCode {
    let tests = [
        // First: it mostly waits, while all others run.
        watches::tests(),
        allocation::tests(),
        vm::tests(),
        others::tests(),
        backends::tests(),
        endpoints::tests(),
        selection::tests(),
        release::tests(),
        pools::tests(),
        records::tests(),
        status::tests(),
        input::tests(),
        guests::tests(),
        metrics::tests(),
    ];
    let cluster = TestClusterOptions {
        nodes: 2,
        ..support::small_cluster_options()
    };
    run(
        cluster,
        &["promtool"],
        5,
        support::one_operator,
        tests.into_iter().flatten().collect(),
    )
}
