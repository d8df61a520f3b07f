//! The rules of the contract, one by one, held against a real API server. No traffic flows: what kube-vip and the
//! guest agent report is written by the tests.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::ExitCode;

use harvester_lb_e2e::run;
use harvester_lb_testkit::BedOptions;

mod rules {
    pub(crate) mod allocation;
    pub(crate) mod backends;
    pub(crate) mod endpoints;
    pub(crate) mod guests;
    pub(crate) mod input;
    pub(crate) mod metrics;
    pub(crate) mod others;
    pub(crate) mod pools;
    pub(crate) mod records;
    pub(crate) mod release;
    pub(crate) mod requirement;
    pub(crate) mod selection;
    pub(crate) mod status;
    pub(crate) mod support;
    pub(crate) mod vm;
    pub(crate) mod watches;
}

fn main() -> ExitCode {
    let tests = [
        // First: it mostly waits, beside all others.
        rules::watches::tests(),
        rules::allocation::tests(),
        rules::vm::tests(),
        rules::others::tests(),
        rules::backends::tests(),
        rules::endpoints::tests(),
        rules::selection::tests(),
        rules::release::tests(),
        rules::pools::tests(),
        rules::records::tests(),
        rules::status::tests(),
        rules::input::tests(),
        rules::guests::tests(),
        rules::metrics::tests(),
    ];
    let bed = BedOptions {
        nodes: 2,
        ..rules::support::small_bed()
    };
    run(
        bed,
        &["promtool"],
        5,
        rules::support::one_operator,
        tests.into_iter().flatten().collect(),
    )
}
