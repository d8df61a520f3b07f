//! The tests whose objects the webhook refuses, each with the rules that do it. They run once it is uninstalled: such objects
//! are older than the webhook, or were written while it was not registered.

use harvester_lb_e2e::Test;

use super::allocation::alc_10_one_that_is_refused_gets_no_new_address;
use super::endpoints::hc_7_a_check_port_of_no_listener_is_served_and_named;
use super::exclusions::exc_1_nothing_new_from_a_pool_with_an_invalid_list;
use super::guests::fin_2_finalizers_of_load_balancers_and_pools;
use super::input::{
    input_health_checks_that_cannot_be, input_listeners_that_cannot_be, input_ten_thousand_ranges,
};
use super::metrics::ops_1_values_match_and_series_go;
use super::pools::pool_2_invalid_ranges;
use super::records::{
    ipa_4_overlapping_pools, ipa_7_a_deleted_pool_keeps_the_address,
    ipa_7_an_edit_keeps_the_address,
};
use super::release::rel_2_deleted_in_each_phase;
use super::requested::req_1_what_is_no_address_of_a_pool_is_refused;
use super::selection::sel_5_priority_then_name;
use super::sharing::shr_1_what_no_edit_of_others_cures_is_refused;
use super::sharing_changes::rel_4_one_whose_spec_is_refused_moves_with_the_address_that_it_shares;
use super::status::section_9_the_reasons_in_their_order;

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        // WV-1: load balancers without a listener.
        alc_10_one_that_is_refused_gets_no_new_address,
        // WV-6: a health check of the front port.
        hc_7_a_check_port_of_no_listener_is_served_and_named,
        // WV-1: a load balancer without a listener.
        fin_2_finalizers_of_load_balancers_and_pools,
        // WV-1, WV-2, WV-3, WV-5: the listeners.
        input_listeners_that_cannot_be,
        // WV-6: a health check of port 65536.
        input_health_checks_that_cannot_be,
        // PV-1: an edit to a range that is invalid.
        input_ten_thousand_ranges,
        // PV-9: the deletion of a pool with an allocated address.
        ops_1_values_match_and_series_go,
        // PV-1: edits to ranges that are invalid, and to none.
        pool_2_invalid_ranges,
        // EXC-1: an invalid list of exclusions.
        exc_1_nothing_new_from_a_pool_with_an_invalid_list,
        // REQ-1: requests that are no address of a pool.
        req_1_what_is_no_address_of_a_pool_is_refused,
        // SHR-1: requests to share an address that only an edit of the load balancer itself cures.
        shr_1_what_no_edit_of_others_cures_is_refused,
        // WV-1: an edit that removes the listeners.
        rel_4_one_whose_spec_is_refused_moves_with_the_address_that_it_shares,
        // PV-3: pools that share addresses.
        ipa_4_overlapping_pools,
        // PV-4: an edit that leaves an allocated address out.
        ipa_7_an_edit_keeps_the_address,
        // PV-9: the deletion of a pool with an allocated address.
        ipa_7_a_deleted_pool_keeps_the_address,
        // PV-9: the deletion of a pool with an allocated address.
        rel_2_deleted_in_each_phase,
        // PV-7: pools with the same priority.
        sel_5_priority_then_name,
        // WV-1: an edit that removes the listeners.
        section_9_the_reasons_in_their_order,
    ]
}
