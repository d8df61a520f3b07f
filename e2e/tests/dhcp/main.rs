//! The DHCP process on a real control plane, with real DHCP servers: leases, renewal, kills, release, refusals, changes of the mode
//! (DHC-1 to DHC-6). But in [`hardware_address`], [`networks`], [`refused`] and [`versions`] the operator does not run: what it does with
//! a record, the tests do in its place.
//!
//! On Harvester's definitions of LoadBalancer and IPPool, `HLB_DEFINITIONS=own` on ours (API-1).
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

mod hardware_address;
mod leases;
mod modes;
mod networks;
mod refused;
mod servers;
mod versions;

use hardware_address::dhc_1_a_hardware_address_that_is_none_leases_nothing;
use leases::{
    dhc_1_a_lease_is_recorded, dhc_2_killed_and_restarted_it_keeps_its_address,
    dhc_3_an_interface_that_is_down_for_a_while,
    dhc_4_a_deleted_load_balancer_gives_its_lease_back,
    dhc_4_nothing_is_given_back_while_a_service_has_the_address,
    dhc_4_what_went_while_the_process_was_down, dhc_5_an_address_that_a_host_has,
    dhc_5_an_address_that_a_pool_holds,
    dhc_5_the_lease_of_a_host_with_the_same_hardware_address_is_not_declined,
    ipa_5_a_record_that_somebody_edits_meanwhile, section_1_a_lease_needs_net_raw_alone,
};
use modes::{
    dhc_6_kube_vip_takes_over, dhc_6_no_discover_while_kube_vip_has_a_client,
    section_1_each_right_of_the_dhcp_process_is_used,
};
use networks::dhc_1_a_lease_on_another_network_of_the_hosts;
use refused::dhc_3_the_service_ends_when_the_server_refuses_the_renewal;
use servers::{
    dhc_1_a_reservation_by_hardware_address, dhc_2_another_server_ends_no_lease,
    dhc_2_renewed_again_and_again_and_after_an_absence_of_the_server,
    dhc_5_the_lease_of_a_twin_is_renewed_again_and_again,
};
use versions::ipa_9_the_version_before_leads_in_turn;

const DEFINITIONS: Whose = Whose::Harvester;

async fn api_1_the_definitions_stay_to_the_end(world: Arc<World>) -> anyhow::Result<()> {
    DEFINITIONS.are_stored(&world).await
}

fn main() -> ExitCode {
    let tests = tests![
        dhc_1_a_lease_is_recorded,
        dhc_2_killed_and_restarted_it_keeps_its_address,
        dhc_3_an_interface_that_is_down_for_a_while,
        dhc_3_the_service_ends_when_the_server_refuses_the_renewal,
        dhc_4_a_deleted_load_balancer_gives_its_lease_back,
        dhc_4_nothing_is_given_back_while_a_service_has_the_address,
        dhc_4_what_went_while_the_process_was_down,
        dhc_5_an_address_that_a_host_has,
        dhc_5_an_address_that_a_pool_holds,
        dhc_5_the_lease_of_a_host_with_the_same_hardware_address_is_not_declined,
        dhc_5_the_lease_of_a_twin_is_renewed_again_and_again,
        dhc_6_no_discover_while_kube_vip_has_a_client,
        dhc_6_kube_vip_takes_over,
        dhc_1_a_lease_on_another_network_of_the_hosts,
        dhc_1_a_reservation_by_hardware_address,
        dhc_1_a_hardware_address_that_is_none_leases_nothing,
        dhc_2_another_server_ends_no_lease,
        dhc_2_renewed_again_and_again_and_after_an_absence_of_the_server,
        ipa_5_a_record_that_somebody_edits_meanwhile,
        section_1_a_lease_needs_net_raw_alone,
        section_1_each_right_of_the_dhcp_process_is_used,
        ipa_9_the_version_before_leads_in_turn,
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
