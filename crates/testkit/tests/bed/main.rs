//! Tests of the test cluster: real traffic through a real VIP ([`vips`]), what else a test cluster has ([`parts`]),
//! several test clusters, and that nothing outlives one ([`clusters`]); of the proxy in front of its API server
//! ([`proxy`]); and of the runner of its Pods ([`pods`]), which run this binary too ([`program`]).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::process::ExitCode;
use std::sync::Arc;

use harvester_lb_testkit::{
    DataPath, PodRunner, TestCluster, TestClusterOptions, TestReport, enter_with,
};
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::time::Instant;

mod clusters;
mod parts;
mod pods;
mod program;
mod proxy;
mod support;
mod vips;

use clusters::{
    ROLE, nothing_outlives_a_panic, second_process, two_beds_in_one_process,
    two_beds_in_two_processes_and_nothing_outlives_a_kill,
};
use parts::{
    farm_breaks_single_addresses, kube_vip_leases_from_both_dhcp_servers,
    program_is_stopped_continued_and_killed, service_account_has_its_own_rights,
    vm_ports_links_and_addresses, vmi_object_is_kept_as_written,
};
use pods::ends::{pods_are_asked_to_end_and_then_killed, pods_start_failed_containers_again};
use pods::inside::{
    pods_find_what_their_spec_says, pods_name_and_await_what_is_missing,
    pods_of_jobs_end_as_their_programs_do,
};
use pods::network::{
    pods_are_rolled_without_a_lost_request, pods_are_spread_and_reachable,
    pods_serve_webhooks_by_service,
};
use pods::nodes::{
    pods_are_evicted_within_a_budget, pods_of_a_daemon_set_are_on_each_node,
    pods_of_a_node_without_power_report_nothing,
};
use proxy::{
    cuts_lists_and_pages, ends_watches, ends_with_its_handle, held_request_outlives_its_sender,
    holds_a_request_before_and_after, is_reached_from_a_node, is_unavailable,
    loses_answers_of_what_was_done, passes_everything_on_with_the_senders_rights,
    refuses_in_the_api_servers_words, shares_delays_and_counts, swallows_events_of_a_watch,
};
use vips::{
    vip_moves_when_a_node_dies, vip_reaches_both_vms_and_follows_readiness,
    vip_without_ready_endpoint_refuses,
};

fn main() -> ExitCode {
    if let Some(code) = program::run() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    let of_harvester = DataPath::HARVESTER.programs();
    enter_with(&[&["dnsmasq", "kea-dhcp4"], of_harvester.as_slice()].concat());
    // The tests share a test cluster, and one of them disconnects a node.
    arguments.test_threads = Some(1);
    let runtime = Arc::new(Runtime::new().unwrap());
    if let Ok(role) = std::env::var(ROLE) {
        return runtime.block_on(second_process(&role));
    }
    if arguments.list {
        libtest_mimic::run(&arguments, trials(&runtime, &Arc::default())).exit();
    }
    let shared = Arc::default();
    let conclusion = libtest_mimic::run(&arguments, trials(&runtime, &shared));
    // Before the runtime, on which its tasks run.
    drop(shared);
    conclusion.exit_code()
}

/// Each is started by the first test that needs it.
#[derive(Default)]
struct Shared {
    // Dropped in this order.
    runner: OnceCell<PodRunner>,
    cluster: OnceCell<TestCluster>,
}

async fn cluster(shared: &Shared) -> anyhow::Result<&TestCluster> {
    let cell = &shared.cluster;
    cell.get_or_try_init(|| async {
        let start = Instant::now();
        let cluster = TestCluster::start(TestClusterOptions::default()).await?;
        println!("bed ready after {:.1?}", start.elapsed());
        cluster.apply_foreign_crds().await?;
        Ok(cluster)
    })
    .await
}

fn trials(runtime: &Arc<Runtime>, shared: &Arc<Shared>) -> Vec<Trial> {
    macro_rules! trial {
        ($name:ident) => {
            trial!($name, |cluster, _shared| $name(cluster))
        };
        ($name:ident with Pods) => {
            trial!($name, |cluster, shared| async {
                let start = || async { pods::start(cluster, pods::image(cluster)?).await };
                $name(cluster, shared.runner.get_or_try_init(start).await?).await
            })
        };
        ($name:ident, |$cluster:ident, $shared:ident| $body:expr) => {{
            let (runtime, $shared) = (Arc::clone(runtime), Arc::clone(shared));
            Trial::test(stringify!($name), move || {
                let mut report = TestReport::begin(stringify!($name));
                let result = runtime.block_on(async {
                    let $cluster = cluster(&$shared).await?;
                    report.set_up_done();
                    $body.await
                });
                report
                    .end(result)
                    .map_err(|e: anyhow::Error| format!("{e:#}").into())
            })
        }};
    }
    vec![
        trial!(vip_reaches_both_vms_and_follows_readiness),
        trial!(vip_without_ready_endpoint_refuses),
        trial!(vip_moves_when_a_node_dies),
        trial!(vm_ports_links_and_addresses),
        trial!(vmi_object_is_kept_as_written),
        trial!(farm_breaks_single_addresses),
        trial!(kube_vip_leases_from_both_dhcp_servers),
        trial!(program_is_stopped_continued_and_killed),
        trial!(service_account_has_its_own_rights),
        trial!(two_beds_in_one_process),
        trial!(two_beds_in_two_processes_and_nothing_outlives_a_kill),
        trial!(nothing_outlives_a_panic),
        trial!(passes_everything_on_with_the_senders_rights),
        trial!(is_reached_from_a_node),
        trial!(refuses_in_the_api_servers_words),
        trial!(loses_answers_of_what_was_done),
        trial!(shares_delays_and_counts),
        trial!(holds_a_request_before_and_after),
        trial!(held_request_outlives_its_sender),
        trial!(ends_watches),
        trial!(swallows_events_of_a_watch),
        trial!(cuts_lists_and_pages),
        trial!(is_unavailable),
        trial!(ends_with_its_handle),
        trial!(pods_are_spread_and_reachable with Pods),
        trial!(pods_find_what_their_spec_says with Pods),
        trial!(pods_name_and_await_what_is_missing with Pods),
        trial!(pods_of_jobs_end_as_their_programs_do with Pods),
        trial!(pods_serve_webhooks_by_service with Pods),
        trial!(pods_are_asked_to_end_and_then_killed with Pods),
        trial!(pods_start_failed_containers_again with Pods),
        trial!(pods_are_rolled_without_a_lost_request with Pods),
        trial!(pods_are_evicted_within_a_budget with Pods),
        trial!(pods_of_a_node_without_power_report_nothing with Pods),
        trial!(pods_of_a_daemon_set_are_on_each_node with Pods),
    ]
}
