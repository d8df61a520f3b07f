//! The rules, one by one, on a real API server. There is no traffic: the tests write what kube-vip and
//! the guest agent would report.
//!
//! The webhook is in the path of every write. Then it is uninstalled, and the tests follow whose objects it refuses. In the end
//! Harvester's definitions replace ours, and the tests of addresses on request run again.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::ExitCode;

use harvester_lb_e2e::webhook::ROUTING;
use harvester_lb_e2e::{Phase, run_in_phases};
use harvester_lb_testkit::TestClusterOptions;

mod allocation;
mod backends;
mod endpoints;
mod exclusions;
mod guests;
mod harvester;
mod input;
mod kube_vip_annotations;
mod metrics;
mod others;
mod pools;
mod records;
mod refused;
mod release;
mod requested;
mod requirement;
mod selection;
mod sharing;
mod sharing_changes;
mod status;
mod support;
mod vm;
mod watches;
mod webhook;
mod worked_examples;

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
        exclusions::tests(),
        requested::tests(),
        sharing::tests(),
        sharing_changes::tests(),
        kube_vip_annotations::tests(),
        status::tests(),
        input::tests(),
        guests::tests(),
        metrics::tests(),
    ];
    let cluster = TestClusterOptions {
        nodes: 2,
        apiserver_args: vec![ROUTING.to_owned()],
        ..support::small_cluster_options()
    };
    let phases = vec![
        Phase {
            set_up: webhook::operator_and_webhook,
            tests: tests.into_iter().flatten().collect(),
        },
        Phase {
            set_up: |_| Box::pin(async { Ok(()) }),
            tests: worked_examples::tests(),
        },
        Phase {
            set_up: |_| Box::pin(async { Ok(()) }),
            tests: webhook::tests(),
        },
        Phase {
            set_up: webhook::uninstalled,
            tests: refused::tests(),
        },
        Phase {
            set_up: harvester::definitions,
            tests: harvester::tests(),
        },
        Phase {
            set_up: |_| Box::pin(async { Ok(()) }),
            tests: harvester::last(),
        },
    ];
    run_in_phases(cluster, &["promtool"], 5, phases)
}
