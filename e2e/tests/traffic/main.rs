//! Real traffic: clients in a separate network reach virtual machines through kube-vip and kube-proxy, and the commands of the
//! documentation work as they say.
//!
//! On our definitions of LoadBalancer and IPPool, `HLB_DEFINITIONS=harvester` on Harvester's (API-1).
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

use harvester_lb_e2e::definitions::whose::Whose;
use harvester_lb_e2e::run;
use harvester_lb_testkit::TestClusterOptions;

mod commands;
mod documents;
mod kube_vip_annotations;
mod leases;
mod operator;
mod rights;
mod sharing;
mod vips;

fn main() -> ExitCode {
    run(
        TestClusterOptions::default(),
        &["dnsmasq", "kea-dhcp4"],
        3,
        |world| Box::pin(async move { Whose::Own.apply(&world).await }),
        [
            rights::all(),
            commands::all(),
            vips::all(),
            sharing::all(),
            kube_vip_annotations::all(),
            leases::all(),
        ]
        .concat(),
    )
}
