//! The rules of the contract, one by one, held against a real API server. No traffic flows: what kube-vip and the
//! guest agent report is written by the tests.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::ExitCode;

use harvester_lb_e2e::run;

mod rules {
    pub(crate) mod allocation;
    pub(crate) mod support;
    pub(crate) mod vm;
}

fn main() -> ExitCode {
    let mut tests = rules::allocation::tests();
    tests.extend(rules::vm::tests());
    run(
        rules::support::small_bed(),
        &["promtool"],
        4,
        rules::support::one_operator,
        tests,
    )
}
