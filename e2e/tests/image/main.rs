//! The container image: what is in it ([`content`]), operator and webhook as Pods of it ([`running`]), and the way to a
//! cluster without internet access ([`air_gap`]).
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::image::provide;
use harvester_lb_e2e::{Phase, run_in_phases, tests};
use harvester_lb_testkit::TestClusterOptions;

mod air_gap;
mod content;
mod running;

use air_gap::{air_gap_the_chart_goes_into_an_object, air_gap_the_image_goes_through_a_registry};
use content::{image_holds_the_program_and_nothing_else, image_lists_each_linked_crate_once};
use running::{
    image_runs_resolves_names_and_verifies_the_api_server, image_serves_tls_to_the_api_server,
};

fn main() -> ExitCode {
    if let Err(error) = provide(&["skopeo=skopeo", "docker-registry=docker-registry"]) {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    let options = TestClusterOptions {
        nodes: 1,
        kube_vip: false,
        ..TestClusterOptions::default()
    };
    let phases = vec![
        Phase {
            set_up: |_| Box::pin(async { Ok(()) }),
            tests: tests![
                image_runs_resolves_names_and_verifies_the_api_server,
                image_holds_the_program_and_nothing_else,
                image_lists_each_linked_crate_once,
                air_gap_the_image_goes_through_a_registry,
                air_gap_the_chart_goes_into_an_object,
            ],
        },
        // Later: there is one Pod runner at a time, and nobody else may write once the webhook has to be asked.
        Phase {
            set_up: |_| Box::pin(async { Ok(()) }),
            tests: tests![image_serves_tls_to_the_api_server],
        },
    ];
    run_in_phases(options, &["dnsmasq", "helm"], 3, phases)
}
