//! Load balancers that share an address (SHR-1 to SHR-8), without traffic: the list of the tests, and what those of changes use too.

mod changes;
mod group;
mod membership;
mod ports;
mod refused;
mod without_primary;
mod writes;

use harvester_lb_e2e::Test;
use membership::{
    shr_1_who_may_not_share_is_told, shr_7_one_with_an_address_of_its_own_joins_and_leaves,
};
use ports::{
    shr_2_a_contested_port_stays_with_the_one_that_has_it,
    shr_3_several_load_balancers_on_one_address,
    shr_3_what_load_balancers_share_is_in_the_next_service_too,
};
use refused::{
    shr_3_a_refused_move_of_the_primary_ends_no_service,
    shr_3_who_waits_for_a_refused_service_is_told,
};
use without_primary::{
    shr_5_an_older_one_joins_and_the_holder_drops_out, shr_5_the_address_outlives_its_primary,
    shr_6_one_of_the_groups_name_waits_until_it_ends, shr_8_cluster_type,
};
use writes::shr_4_fifty_join_with_two_writes_each;

pub(crate) use membership::shr_1_what_no_edit_of_others_cures_is_refused;

pub(crate) use group::{
    carries, has_role, is_alone, name_primary, naming, on_ports, serves, slice_is, stage,
};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        shr_1_who_may_not_share_is_told,
        shr_2_a_contested_port_stays_with_the_one_that_has_it,
        shr_3_several_load_balancers_on_one_address,
        shr_3_what_load_balancers_share_is_in_the_next_service_too,
        shr_3_who_waits_for_a_refused_service_is_told,
        shr_3_a_refused_move_of_the_primary_ends_no_service,
        shr_4_fifty_join_with_two_writes_each,
        shr_5_the_address_outlives_its_primary,
        shr_5_an_older_one_joins_and_the_holder_drops_out,
        shr_6_one_of_the_groups_name_waits_until_it_ends,
        shr_7_one_with_an_address_of_its_own_joins_and_leaves,
        shr_8_cluster_type,
    ]
}
