//! What the operator may do and how it resists others: exactly the required permissions, no secret in its output, an
//! admin port that changes nothing, and invalid objects and CRDs. Also the tests that need an API server without other
//! objects ([`global`]).
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::{audited_cluster_options, run, tests};

mod alerts;
mod global;
mod hostile;
mod http;
mod lacks;
mod least;
mod misnamed;
mod port;
#[path = "../rules/requirement.rs"]
mod requirement;
mod secrets;
mod stage;
#[path = "../rules/support.rs"]
mod support;
mod taken;
mod undecodable;

use alerts::ops_1_alerts_fire_and_the_dashboard_has_data;
use lacks::section_1_each_right_that_lacks_is_named_and_waited_for;
use least::section_1_the_rights_are_those_that_are_used;
use port::{
    ops_1_the_admin_port_changes_nothing, ops_1_the_admin_port_is_bounded,
    ops_1_the_admin_port_takes_no_nonsense,
};
use secrets::{no_secret_in_anything_that_is_written, no_secret_in_what_is_said_of_a_kubeconfig};
use taken::{section_1_a_right_that_is_taken_away, section_1_the_right_to_the_lease_is_taken_away};

fn main() -> ExitCode {
    let tests = tests![
        section_1_the_rights_are_those_that_are_used,
        section_1_each_right_that_lacks_is_named_and_waited_for,
        section_1_a_right_that_is_taken_away,
        section_1_the_right_to_the_lease_is_taken_away,
        ops_1_the_admin_port_changes_nothing,
        ops_1_the_admin_port_takes_no_nonsense,
        ops_1_the_admin_port_is_bounded,
        ops_1_alerts_fire_and_the_dashboard_has_data,
        no_secret_in_what_is_said_of_a_kubeconfig,
        // Must be last, because it reads the logs of all the others.
        no_secret_in_anything_that_is_written,
    ];
    let others = [global::all(), undecodable::all(), hostile::all()];
    run(
        audited_cluster_options(),
        &["prometheus"],
        1,
        |_| Box::pin(async { Ok(()) }),
        [tests, others.concat()].concat(),
    )
}
