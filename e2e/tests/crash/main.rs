//! The operator is killed in the middle of its work, and the API server has faults or is unavailable ([`faults`]); no
//! address is allocated twice or lost.
//!
//! `HLB_SEED` runs another round than that of the test, `HLB_ROUNDS` more of them, `HLB_SOAK` as many as `make soak`
//! does.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::{run_in_turn, tests};
use harvester_lb_testkit::TestClusterOptions;

mod definitions;
mod faults;
mod outage;
mod plan;
mod rounds;
mod writes;

use definitions::api_1_harvester_s_definitions_come_back_under_load;
use outage::{
    alc_8_api_server_is_killed, alc_8_api_server_stands_still, run_3_a_restored_etcd_is_noticed,
    run_5_what_died_while_nobody_led_gets_no_traffic,
};
use plan::the_seeds_cover_what_they_say;
use rounds::{
    alc_1_killed_amid_names_that_come_back_under_new_uids,
    alc_8_killed_amid_creations_and_deletions, alc_8_killed_amid_creations_undone_within_50_ms,
};
use writes::{
    rec_5_nothing_is_written_at_rest, shr_4_writes_for_each_join,
    writes_for_each_cluster_load_balancer, writes_for_each_vm_load_balancer,
};

fn main() -> ExitCode {
    let options = TestClusterOptions {
        nodes: 2,
        kube_proxy: false,
        kube_vip: false,
        ..TestClusterOptions::default()
    };
    let tests = tests![
        the_seeds_cover_what_they_say,
        alc_8_killed_amid_creations_and_deletions,
        alc_8_killed_amid_creations_undone_within_50_ms,
        alc_1_killed_amid_names_that_come_back_under_new_uids,
        writes_for_each_cluster_load_balancer,
        writes_for_each_vm_load_balancer,
        shr_4_writes_for_each_join,
        rec_5_nothing_is_written_at_rest,
        alc_8_api_server_stands_still,
        run_5_what_died_while_nobody_led_gets_no_traffic,
        alc_8_api_server_is_killed,
        run_3_a_restored_etcd_is_noticed,
        api_1_harvester_s_definitions_come_back_under_load,
    ];
    run_in_turn(options, &[], [tests, faults::all()].concat())
}
