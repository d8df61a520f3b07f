//! The webhook on a real API server: admission, conversion, certificates, registration, shutdown, hostile clients. The API
//! server reaches it through its Service and EndpointSlice.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::webhook::ROUTING;
use harvester_lb_e2e::{run_in_turn, tests};
use harvester_lb_testkit::TestClusterOptions;

mod additions;
mod admission;
mod alerts;
mod annotations;
mod certificates;
mod conversion;
mod ends;
mod guests;
mod hostile;
mod least;
mod load;
mod pools;
mod registration;
mod stage;
mod table;
mod tls;
mod versions;
mod warned;

use additions::{
    val_1_rng_9_warnings_reach_the_client, wm_1_wm_2_wm_3_annotations_of_load_balancers,
    wm_4_health_checks_are_completed,
};
use admission::{
    wv_1_to_wv_9_specs_of_load_balancers, wv_7_numbers_that_nobody_completed,
    wv_10_a_guest_cluster_that_is_being_removed,
};
use alerts::ops_1_alerts_of_the_webhook_fire;
use annotations::{
    exc_1_req_1_shr_1_kva_2_annotations_are_judged_as_the_spec_is,
    shr_1_shr_2_shr_6_requests_to_share_are_warned_about,
    shr_9_the_deletion_of_a_primary_is_warned_about,
};
use certificates::{
    section_1_both_secrets_are_lost_without_a_refused_request,
    section_1_certificates_rotate_without_a_refused_request,
};
use conversion::{
    cnv_1_a_cold_start_with_objects_of_v1alpha1_alone, section_2_4_the_example_by_the_api_server,
};
use ends::{section_1_one_of_two_replicas_ends, section_1_one_of_two_replicas_is_killed};
use guests::gen_1_a_v0_1_guest_and_its_watch;
use hostile::{
    section_1_hostile_bodies, section_1_hostile_connections, section_1_objects_of_many_values,
    section_1_responses_that_are_not_read,
};
use least::section_1_each_right_of_the_webhook_is_used;
use pools::{
    pv_1_to_pv_3_ranges_of_pools, pv_4_pv_9_allocated_addresses_are_kept,
    pv_5_to_pv_8_scopes_of_pools, wm_5_labels_of_pools,
};
use registration::{
    section_1_another_registration_stays_until_an_endpoint_is_ready,
    section_1_nothing_is_registered_before_an_endpoint_is_ready,
    section_1_the_registration_is_restored, section_1_the_secrets_of_the_go_webhook_are_replaced,
    section_1_the_webhook_is_uninstalled,
};
use versions::section_1_versions_of_tls_and_of_reviews;
use warned::exc_1_req_3_kva_1_kva_2_annotations_without_effect_are_warned_about;

fn main() -> ExitCode {
    let tests = tests![
        // While the audit log is short.
        section_1_each_right_of_the_webhook_is_used,
        wv_1_to_wv_9_specs_of_load_balancers,
        wv_7_numbers_that_nobody_completed,
        wv_10_a_guest_cluster_that_is_being_removed,
        val_1_rng_9_warnings_reach_the_client,
        wm_1_wm_2_wm_3_annotations_of_load_balancers,
        wm_4_health_checks_are_completed,
        wm_5_labels_of_pools,
        pv_1_to_pv_3_ranges_of_pools,
        pv_4_pv_9_allocated_addresses_are_kept,
        pv_5_to_pv_8_scopes_of_pools,
        exc_1_req_1_shr_1_kva_2_annotations_are_judged_as_the_spec_is,
        exc_1_req_3_kva_1_kva_2_annotations_without_effect_are_warned_about,
        shr_1_shr_2_shr_6_requests_to_share_are_warned_about,
        shr_9_the_deletion_of_a_primary_is_warned_about,
        section_2_4_the_example_by_the_api_server,
        cnv_1_a_cold_start_with_objects_of_v1alpha1_alone,
        gen_1_a_v0_1_guest_and_its_watch,
        section_1_certificates_rotate_without_a_refused_request,
        ops_1_alerts_of_the_webhook_fire,
        section_1_both_secrets_are_lost_without_a_refused_request,
        section_1_nothing_is_registered_before_an_endpoint_is_ready,
        section_1_another_registration_stays_until_an_endpoint_is_ready,
        section_1_the_registration_is_restored,
        section_1_the_secrets_of_the_go_webhook_are_replaced,
        section_1_the_webhook_is_uninstalled,
        section_1_one_of_two_replicas_ends,
        section_1_one_of_two_replicas_is_killed,
        section_1_hostile_connections,
        section_1_hostile_bodies,
        section_1_objects_of_many_values,
        section_1_responses_that_are_not_read,
        section_1_versions_of_tls_and_of_reviews,
    ];
    let options = TestClusterOptions {
        nodes: 2,
        kube_proxy: false,
        kube_vip: false,
        audit: true,
        apiserver_args: vec![ROUTING.to_owned()],
        ..TestClusterOptions::default()
    };
    run_in_turn(options, &["prometheus"], tests)
}
