//! No address is allocated twice or lost: over a swap from the Go operator and back, with owners created and deleted
//! while no operator runs, with IPAllocations changed by hand, with two operators, and with late writes
//! ([`interleavings`]).
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::webhook::ROUTING;
use harvester_lb_e2e::{audited_cluster_options, run_in_turn, tests};
use harvester_lb_testkit::TestClusterOptions;

mod back;
mod check;
mod follow;
mod interleavings;
mod kube_vip;
mod leaders;
mod moves;
mod owners;
mod resumed;
mod rules;
mod stage;
mod swap;
mod versions;

use back::{
    ops_2_conditions_of_ours_are_removed_for_the_go_operator, ops_2_swap_back_and_forth,
    pool_3_the_maps_are_written_before_the_lease_is_given_up, pool_5_export_writes_what_it_can,
};
use check::{
    ops_2_check_names_what_is_wrong, ops_2_check_needs_the_rights_of_its_example_and_writes_nothing,
};
use follow::be_6_endpoints_follow_after_a_restart;
use kube_vip::mig_1_mig_5_the_worked_example;
use leaders::{
    ipa_5_a_leader_that_was_paused_breaks_nothing,
    run_5_who_has_lost_the_lease_to_another_probes_no_more, section_1_only_the_leader_writes,
    section_1_the_lease_of_a_go_holder_is_honoured, section_1_the_same_pod_takes_over_at_once,
    section_1_work_met_by_a_closed_fence_is_still_owed,
};
use moves::rel_4_a_changed_address_that_is_ignored;
use owners::{
    ipa_3_a_restored_backup, ipa_3_a_service_that_shows_the_address_blocks,
    ipa_3_a_service_without_an_owner_reference_goes_first, ipa_3_forged_owners,
    ipa_3_owners_that_go_while_nobody_looks,
};
use resumed::ipa_5_leaders_stopped_and_resumed_amid_their_work;
use rules::{
    ipa_1_an_unreadable_record_blocks_its_name, ipa_4_pools_that_overlap,
    ipa_5_stale_copies_are_refused, ipa_6_several_records_of_one_load_balancer,
    ipa_7_records_that_somebody_deletes_or_alters, ipa_7_released_by_hand_while_another_waits,
};
use swap::{
    ipa_1_holders_come_before_those_that_wait, ipa_1_maps_of_our_own_are_not_read,
    ipa_2_one_address_two_load_balancers, ops_2_ipa_1_swap_from_the_go_operator,
    run_1_an_address_that_is_refused_delays_itself_alone,
};
use versions::ipa_9_two_versions_lead_in_turn;

fn main() -> ExitCode {
    let tests = tests![
        ops_2_ipa_1_swap_from_the_go_operator,
        ipa_2_one_address_two_load_balancers,
        ipa_1_maps_of_our_own_are_not_read,
        run_1_an_address_that_is_refused_delays_itself_alone,
        ipa_1_holders_come_before_those_that_wait,
        ops_2_swap_back_and_forth,
        ops_2_conditions_of_ours_are_removed_for_the_go_operator,
        pool_3_the_maps_are_written_before_the_lease_is_given_up,
        pool_5_export_writes_what_it_can,
        ops_2_check_names_what_is_wrong,
        ops_2_check_needs_the_rights_of_its_example_and_writes_nothing,
        mig_1_mig_5_the_worked_example,
        ipa_3_owners_that_go_while_nobody_looks,
        ipa_3_a_restored_backup,
        ipa_3_a_service_that_shows_the_address_blocks,
        ipa_3_a_service_without_an_owner_reference_goes_first,
        ipa_3_forged_owners,
        ipa_4_pools_that_overlap,
        ipa_5_stale_copies_are_refused,
        ipa_6_several_records_of_one_load_balancer,
        ipa_7_records_that_somebody_deletes_or_alters,
        ipa_7_released_by_hand_while_another_waits,
        ipa_1_an_unreadable_record_blocks_its_name,
        be_6_endpoints_follow_after_a_restart,
        rel_4_a_changed_address_that_is_ignored,
        section_1_only_the_leader_writes,
        ipa_5_a_leader_that_was_paused_breaks_nothing,
        run_5_who_has_lost_the_lease_to_another_probes_no_more,
        ipa_5_leaders_stopped_and_resumed_amid_their_work,
        section_1_work_met_by_a_closed_fence_is_still_owed,
        section_1_the_same_pod_takes_over_at_once,
        section_1_the_lease_of_a_go_holder_is_honoured,
        ipa_9_two_versions_lead_in_turn,
    ];
    let options = TestClusterOptions {
        apiserver_args: vec![ROUTING.to_owned()],
        ..audited_cluster_options()
    };
    run_in_turn(options, &[], [tests, interleavings::all()].concat())
}
