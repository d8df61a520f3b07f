//! The Helm chart: what it renders for all kinds of values ([`render`], [`defaults`], [`pods`], [`values`]), its life on a cluster, whose
//! Pods run ([`install`], [`dhcp`], [`crds`]), also if a hook fails ([`failed_hooks`]), and both ways onto a Harvester cluster
//! ([`takeover`]), whose data path the test cluster has. Also the commands of helm in the documents ([`documents`]).
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test")]

use std::process::ExitCode;

use harvester_lb_e2e::{run, tests};
use harvester_lb_testkit::{DataPath, TestClusterOptions};

mod bare;
mod crds;
mod defaults;
mod dhcp;
mod documents;
mod failed_hooks;
mod harvester;
mod helm;
mod install;
mod monitored;
mod pods;
mod release;
mod render;
mod takeover;
mod values;

use crds::{
    chart_beside_harvester_s_release, chart_serves_v1alpha1_only_where_it_is_converted,
    chart_takes_crds_over_only_if_told_to, chart_upgrade_upgrades_the_crds,
};
use defaults::chart_defaults_are_for_two_nodes_without_monitoring;
use dhcp::chart_leases_by_a_process_of_its_own;
use documents::every_helm_command_of_the_documents_is_understood;
use failed_hooks::chart_stops_at_a_hook_that_fails;
use install::chart_lives_and_ends_under_traffic;
use pods::{
    chart_images_have_a_tag_or_a_digest, chart_jobs_end_when_helm_waits_no_more,
    chart_names_are_text_whatever_yaml_makes_of_them,
    chart_pods_have_a_priority_and_may_reach_the_api_server,
};
use render::{
    chart_alerts_are_the_documented_ones, chart_crds_are_those_of_the_repository,
    chart_removes_the_webhook_s_registration_in_time, chart_renders_what_the_api_server_takes,
    section_1_chart_grants_what_is_used,
};
use takeover::{
    ops_2_takeover_beside_harvester_s_release, ops_2_takeover_inside_harvester_s_release,
};
use values::{
    chart_refuses_wrong_values, chart_takes_legal_values,
    chart_takes_the_values_of_the_go_operator_s_chart,
};

fn main() -> ExitCode {
    run(
        TestClusterOptions {
            data_path: DataPath::HARVESTER,
            audit: true,
            ..TestClusterOptions::default()
        },
        &["helm", "promtool", "prometheus", "dnsmasq"],
        1,
        |world| Box::pin(async move { render::set_up(&world).await }),
        tests![
            every_helm_command_of_the_documents_is_understood,
            chart_refuses_wrong_values,
            chart_takes_legal_values,
            chart_takes_the_values_of_the_go_operator_s_chart,
            chart_renders_what_the_api_server_takes,
            chart_defaults_are_for_two_nodes_without_monitoring,
            chart_jobs_end_when_helm_waits_no_more,
            chart_pods_have_a_priority_and_may_reach_the_api_server,
            chart_images_have_a_tag_or_a_digest,
            chart_names_are_text_whatever_yaml_makes_of_them,
            section_1_chart_grants_what_is_used,
            chart_removes_the_webhook_s_registration_in_time,
            chart_crds_are_those_of_the_repository,
            chart_alerts_are_the_documented_ones,
            chart_takes_crds_over_only_if_told_to,
            chart_beside_harvester_s_release,
            chart_upgrade_upgrades_the_crds,
            chart_serves_v1alpha1_only_where_it_is_converted,
            chart_lives_and_ends_under_traffic,
            chart_leases_by_a_process_of_its_own,
            chart_stops_at_a_hook_that_fails,
            ops_2_takeover_beside_harvester_s_release,
            ops_2_takeover_inside_harvester_s_release,
        ],
    )
}
