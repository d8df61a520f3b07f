//! What the operator may do and what others can do to it: no right too many and none too few, no secret in what it
//! writes, and an admin port that changes nothing.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::{run_in_turn, tests};
use harvester_lb_testkit::BedOptions;

#[path = "guard/http.rs"]
mod http;
#[path = "guard/lacks.rs"]
mod lacks;
#[path = "guard/least.rs"]
mod least;
#[path = "guard/port.rs"]
mod port;
#[path = "guard/secrets.rs"]
mod secrets;
#[path = "guard/stage.rs"]
mod stage;
#[path = "guard/taken.rs"]
mod taken;

use lacks::section_1_each_right_that_lacks_is_named_and_waited_for;
use least::section_1_the_rights_are_those_that_are_used;
use port::{
    ops_1_the_admin_port_changes_nothing, ops_1_the_admin_port_is_bounded,
    ops_1_the_admin_port_takes_no_nonsense,
};
use secrets::{no_secret_in_anything_that_is_written, no_secret_in_what_is_said_of_a_kubeconfig};
use taken::{section_1_a_right_that_is_taken_away, section_1_the_right_to_the_lease_is_taken_away};

fn main() -> ExitCode {
    let options = BedOptions {
        nodes: 2,
        kube_vip: false,
        audit: true,
        ..BedOptions::default()
    };
    run_in_turn(
        options,
        tests![
            section_1_the_rights_are_those_that_are_used,
            section_1_each_right_that_lacks_is_named_and_waited_for,
            section_1_a_right_that_is_taken_away,
            section_1_the_right_to_the_lease_is_taken_away,
            ops_1_the_admin_port_changes_nothing,
            ops_1_the_admin_port_takes_no_nonsense,
            ops_1_the_admin_port_is_bounded,
            no_secret_in_what_is_said_of_a_kubeconfig,
            // The last, because it reads the logs of all the others too.
            no_secret_in_anything_that_is_written,
        ],
    )
}
