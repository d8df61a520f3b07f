//! Real traffic with kube-proxy, kube-vip and the nodes' network set up as Harvester sets them up, on Harvester's definitions of
//! LoadBalancer and IPPool, and with the webhook in the path of every write: the tests of `traffic` whose outcome depends on the
//! data path, shared and leased addresses, what only holds there, backends that come, go and fail, and the examples of the
//! documentation.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::webhook::ROUTING;
use harvester_lb_e2e::{Phase, run_in_phases};
use harvester_lb_testkit::{DataPath, TestClusterOptions};

mod backends;
#[path = "../traffic/documents.rs"]
mod documents;
mod examples;
mod harvester;
#[path = "../traffic/leases.rs"]
#[allow(dead_code, reason = "one of its tests runs here")]
mod leases;
#[path = "../traffic/operator.rs"]
mod operator;
#[path = "../traffic/sharing.rs"]
mod sharing;
#[path = "../traffic/vips.rs"]
mod vips;

fn main() -> ExitCode {
    let options = TestClusterOptions {
        data_path: DataPath::HARVESTER,
        apiserver_args: vec![ROUTING.to_owned()],
        ..TestClusterOptions::default()
    };
    let phases = vec![
        Phase {
            set_up: harvester::definitions_and_webhook,
            tests: [
                examples::all(),
                vips::all(),
                sharing::all(),
                leases::on_any_data_path(),
                backends::all(),
                harvester::all(),
            ]
            .concat(),
        },
        Phase {
            set_up: |_| Box::pin(async { Ok(()) }),
            tests: harvester::last(),
        },
    ];
    run_in_phases(options, &["dnsmasq"], 3, phases)
}
