//! The DHCP process on a real control plane when things go wrong: many leases at once, messages that are lost or forged, no address
//! that is left, kills in each state, other leaders, an API server that is away (DHC-1 to DHC-4). The operator runs in [`together`] alone.
//!
//! On our definitions of LoadBalancer and IPPool, `HLB_DEFINITIONS=harvester` on Harvester's (API-1).
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;
use std::sync::Arc;

use harvester_lb_e2e::definitions::whose::Whose;
use harvester_lb_e2e::{World, audited_cluster_options, run, tests};

mod away;
mod forged;
mod group;
mod killed;
mod leaders;
mod malformed;
mod many;
mod together;
mod wire;

use away::dhc_2_the_api_server_is_away;
use forged::dhc_3_what_no_server_has_sent_is_ignored;
use killed::{
    dhc_2_killed_after_a_decline, dhc_2_killed_in_each_state_and_restarted,
    dhc_2_killed_in_each_state_with_a_standby, dhc_2_killed_while_the_server_is_away,
};
use leaders::{
    dhc_2_a_leader_that_ends_hands_its_leases_over,
    dhc_2_a_paused_leader_sends_nothing_when_it_resumes,
};
use many::{
    dhc_1_a_hundred_leases_at_once, dhc_1_leases_while_three_of_ten_frames_are_lost,
    dhc_1_no_address_is_left, dhc_2_renewed_while_three_of_ten_frames_are_lost,
};
use together::dhc_2_operator_killed_in_each_state;

const DEFINITIONS: Whose = Whose::Own;

async fn api_1_the_definitions_stay_to_the_end(world: Arc<World>) -> anyhow::Result<()> {
    DEFINITIONS.are_stored(&world).await
}

fn main() -> ExitCode {
    let tests = tests![
        dhc_1_a_hundred_leases_at_once,
        dhc_1_no_address_is_left,
        dhc_1_leases_while_three_of_ten_frames_are_lost,
        dhc_2_renewed_while_three_of_ten_frames_are_lost,
        dhc_2_killed_in_each_state_and_restarted,
        dhc_2_killed_in_each_state_with_a_standby,
        dhc_2_killed_while_the_server_is_away,
        dhc_2_killed_after_a_decline,
        dhc_2_operator_killed_in_each_state,
        dhc_2_a_leader_that_ends_hands_its_leases_over,
        dhc_2_a_paused_leader_sends_nothing_when_it_resumes,
        dhc_2_the_api_server_is_away,
        dhc_3_what_no_server_has_sent_is_ignored,
        api_1_the_definitions_stay_to_the_end,
    ];
    // One DHCP server and one DHCP process at a time.
    let servers = ["dnsmasq", "kea-dhcp4"];
    run(
        audited_cluster_options(),
        &servers,
        1,
        |world| Box::pin(async move { DEFINITIONS.apply(&world).await }),
        tests,
    )
}
