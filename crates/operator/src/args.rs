//! Command line flags and environment variables (section 1).

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use harvester_lb_api::keys;
use harvester_lb_controller_kit::lease::Settings as LeaseSettings;
use harvester_lb_core::backend_addresses::{Cidr, Denied};
use harvester_lb_core::dhcp::Mode;
use harvester_lb_core::kube_vip_annotations::Interfaces;

use crate::duration;
use crate::settings::Settings;
use crate::timings::Timings;

pub mod dhcp;
pub mod lease;
pub mod webhook;

pub use dhcp::DhcpArgs;
pub use lease::LeaseArgs;
pub use webhook::WebhookArgs;

/// Minimum number of workers that reconcile load balancers. A worker mostly waits for the API server.
const MIN_WORKERS: usize = 16;

/// Stable addresses in front of virtual machines and of the Services of guest clusters on Harvester.
#[derive(Debug, Parser)]
#[command(
    name = "harvester-load-balancer",
    version,
    propagate_version = true,
    about
)]
pub struct Args {
    /// The subcommand; without one, the controllers run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Log level: error, warn, info, debug, trace, or a filter such as `info,kube=debug`.
    #[arg(long, env = "LOGLEVEL", default_value = "info", global = true)]
    pub loglevel: String,
    /// Number of load balancers that are reconciled concurrently; values below 16 count as 16.
    #[arg(long, env = "THREADINESS", default_value_t = MIN_WORKERS)]
    pub threadiness: usize,
    /// Address of the admin port: /healthz, /readyz, /metrics.
    #[arg(long, env = "ADMIN_ADDRESS", default_value = "[::]:8081")]
    pub admin_address: SocketAddr,
    /// The DHCP client for load balancers with `ipam: dhcp`.
    #[arg(long, env = "DHCP_MODE", value_enum, default_value_t = DhcpMode::KubeVip, global = true)]
    pub dhcp_mode: DhcpMode,
    /// Maximum number of backends with a metric series each.
    #[arg(long, env = "BACKEND_METRICS_LIMIT", default_value_t = 2000)]
    pub backend_metrics_limit: usize,
    /// Range of addresses that no backend may have, such as 10.0.0.0/8. The flag is repeatable and takes a comma list, as
    /// does the environment variable.
    #[arg(long, env = "BACKEND_DENY_CIDR", global = true)]
    pub backend_deny_cidr: Vec<Denied>,
    /// Interface of the nodes that LoadBalancers may name with the annotation kube-vip.io/serviceInterface; without it none. The
    /// flag is repeatable and takes a comma list, as does the environment variable.
    #[arg(long, env = "SERVICE_INTERFACES", global = true)]
    pub service_interfaces: Vec<Interfaces>,
    /// The leader election.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Overrides of [`Timings::default`], for tests.
    #[cfg(debug_assertions)]
    #[arg(long, env = "HLB_TIMINGS", hide = true, value_parser = Timings::parse)]
    pub timings: Option<Timings>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check all objects against each other, before and after a swap or an upgrade. Nothing is written. Exit code 0: no
    /// errors; 1: errors; 2: something could not be read.
    Check(CheckArgs),
    /// Print the CustomResourceDefinitions as YAML.
    Crd,
    /// Lease addresses of load balancers with `ipam: dhcp` from DHCP servers, with --dhcp-mode=builtin; otherwise give back
    /// what was leased. Needs the network of the host and the capability NET_RAW.
    Dhcp(DhcpArgs),
    /// Serve admission and conversion. Also started by the program name `harvester-load-balancer-webhook`.
    Webhook(WebhookArgs),
    /// Remove the registration of the webhook, and its Secrets, so that no request depends on it any more. Refused while
    /// LoadBalancers are stored in a version that cannot be read without it.
    UninstallWebhook(webhook::UninstallArgs),
    /// Write the complete address maps of every IPPool, so that the Go operator can take over. Objects that cannot be read
    /// or written are listed, and the exit code is not 0.
    Export {
        /// Exit with 0 even if the maps are incomplete: for hooks that must not fail.
        #[arg(long)]
        allow_incomplete: bool,
        /// Also remove the conditions AddressAllocated, Announced and BackendsHealthy from every LoadBalancer, which the Go
        /// operator would not update. Refused while a process holds the Lease; with --allow-incomplete left out then.
        #[arg(long)]
        clear_conditions: bool,
    },
    /// Scale an operator's Deployment to 0 and wait until its Pods are gone and the Lease is free, for hooks. The Lease of
    /// another process is not waited for. A Deployment that does not exist is stopped.
    StopOperator(StopOperatorArgs),
}

/// The flags of `stop-operator`.
#[derive(Debug, clap::Args)]
pub struct StopOperatorArgs {
    /// Namespace of the Deployment.
    #[arg(long, env = "NAMESPACE", default_value = "harvester-system")]
    pub namespace: String,
    /// Name of the Deployment.
    #[arg(long)]
    pub deployment: String,
    /// How long to wait.
    #[arg(long, default_value = "90s", value_parser = duration::parse)]
    pub timeout: Duration,
}

/// The flags of `check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Format of the result.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// An error counts if it is found again after this time; 0s: at once.
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    pub recheck_after: Duration,
    /// That no process of this operator leads is an error, not a warning: for the check of an installation.
    #[arg(long)]
    pub require_leader: bool,
}

/// The format of the result of `check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The DHCP client of load balancers with `ipam: dhcp` (OPS-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DhcpMode {
    /// kube-vip, for Services with the address 0.0.0.0.
    KubeVip,
    /// The subcommand `dhcp` of this program (DHC-1).
    Builtin,
}

impl Args {
    /// The arguments of this process. A program named like the webhook is the webhook.
    pub fn of_process() -> Self {
        Self::parse_from(webhook::with_subcommand(std::env::args_os()))
    }

    /// The number of workers that reconcile load balancers.
    pub fn workers(&self) -> usize {
        self.threadiness.max(MIN_WORKERS)
    }

    /// The ranges that are denied to backends (BE-8).
    pub fn denied_to_backends(&self) -> Vec<Cidr> {
        let lists = self.backend_deny_cidr.iter();
        lists.flat_map(|list| list.0.iter().copied()).collect()
    }

    /// The interfaces that load balancers may name (KVA-2).
    pub fn interfaces(&self) -> Interfaces {
        self.service_interfaces
            .iter()
            .flat_map(Interfaces::names)
            .collect()
    }

    /// Who leases addresses (OPS-3).
    pub const fn mode(&self) -> Mode {
        match self.dhcp_mode {
            DhcpMode::KubeVip => Mode::KubeVip,
            DhcpMode::Builtin => Mode::Builtin,
        }
    }

    /// The decisions of the administrator about load balancers.
    pub fn settings(&self) -> Settings {
        Settings {
            denied_to_backends: self.denied_to_backends(),
            interfaces: self.interfaces(),
            dhcp_mode: self.mode(),
        }
    }

    /// The timings of the controllers. Always the defaults in a release build.
    pub fn timings(&self) -> Timings {
        #[cfg(debug_assertions)]
        if let Some(timings) = self.timings {
            return timings;
        }
        Timings::default()
    }

    /// The settings of the Lease.
    pub fn lease(&self, host: &str) -> LeaseSettings {
        self.lease.settings(keys::LEASE_NAME, host)
    }
}

#[cfg(test)]
mod dhcp_tests;
#[cfg(test)]
mod webhook_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Args {
        Args::try_parse_from(std::iter::once("harvester-load-balancer").chain(args.iter().copied()))
            .unwrap()
    }

    #[test]
    fn section_1_defaults() {
        let args = parse(&[]);
        assert_eq!(args.loglevel, "info");
        assert_eq!(args.workers(), 16);
        assert_eq!(args.admin_address.to_string(), "[::]:8081");
        assert_eq!(args.dhcp_mode, DhcpMode::KubeVip);
        let lease = args.lease("host");
        assert_eq!(
            (lease.namespace.as_str(), lease.name.as_str()),
            ("kube-system", "harvester-load-balancer")
        );
        assert_eq!(
            (lease.duration, lease.renew_deadline, lease.retry),
            (
                Duration::from_secs(15),
                Duration::from_secs(10),
                Duration::from_secs(2)
            )
        );
        assert!(lease.check().is_ok());
    }

    #[test]
    fn timings_are_a_debug_build_s_to_shorten() {
        assert_eq!(parse(&[]).timings(), Timings::default());
        let args = Args::try_parse_from(["harvester-load-balancer", "--timings", "recheck=2s"]);
        assert_eq!(args.is_ok(), cfg!(debug_assertions));
        if let Ok(args) = args {
            assert_eq!(args.timings().recheck, Duration::from_secs(2));
        }
    }

    #[test]
    fn section_1_the_duration_of_the_lease_is_whole_seconds() {
        let check = |args: &[&str]| parse(args).lease("host").check();
        let refused = check(&["--lease-duration=1500ms", "--lease-renew-deadline=1s"]);
        assert!(refused.unwrap_err().contains("1.5s"));
        // Renew deadline and retry period are not stored in the Lease.
        let fine = [
            "--lease-duration=3000ms",
            "--lease-renew-deadline=2500ms",
            "--lease-retry-period=500ms",
        ];
        assert_eq!(check(&fine), Ok(()));
    }

    #[test]
    fn section_1_threadiness_is_at_least_16() {
        assert_eq!(parse(&["--threadiness", "4"]).workers(), 16);
        assert_eq!(parse(&["--threadiness", "40"]).workers(), 40);
    }

    #[test]
    fn section_1_identity() {
        assert_eq!(
            parse(&["--pod-uid", "u1"]).lease.identity("host"),
            "host_u1"
        );
        let args = parse(&[]);
        assert_ne!(
            args.lease.identity("host"),
            args.lease.identity("host"),
            "two processes on a host differ"
        );
        assert!(args.lease.identity("host").starts_with("host_"));
    }

    #[test]
    fn ops_2_check_has_the_operator_s_denied_ranges() {
        let check = |args: &[&str]| {
            let args = parse(&[&["check"], args].concat());
            let denied = args.denied_to_backends().len();
            match args.command {
                Some(Command::Check(check)) => (check.output, check.recheck_after, denied),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(check(&[]), (Output::Text, Duration::from_secs(10), 0));
        let flags = [
            "-o",
            "json",
            "--recheck-after=0s",
            "--backend-deny-cidr=10.0.0.0/8",
        ];
        assert_eq!(check(&flags), (Output::Json, Duration::ZERO, 1));
    }

    #[test]
    fn kva_2_interfaces_that_load_balancers_may_name() {
        let interfaces = |args: &[&str]| parse(args).interfaces();
        let flag = "--service-interfaces";
        assert_eq!(interfaces(&[]), Interfaces::default());
        assert_eq!(interfaces(&[flag, ""]), Interfaces::default());
        let all = interfaces(&[flag, "a, b", flag, "c"]);
        assert_eq!(all, "a,b,c".parse().unwrap());
        assert_eq!(interfaces(&["webhook", flag, "a,b,c"]), all);
    }

    #[test]
    fn be_8_ranges_denied_to_backends() {
        let denied = |args: &[&str]| -> Vec<String> {
            let denied = parse(args).denied_to_backends();
            denied.iter().map(ToString::to_string).collect()
        };
        assert!(denied(&[]).is_empty());
        assert!(denied(&["--backend-deny-cidr", ""]).is_empty());
        let flag = "--backend-deny-cidr";
        assert_eq!(
            denied(&[flag, "10.0.0.0/8", flag, "192.0.2.0/24,fd00::/8"]),
            ["10.0.0.0/8", "192.0.2.0/24", "fd00::/8"]
        );
        let wrong = Args::try_parse_from(["harvester-load-balancer", flag, "10.0.0.0"]);
        assert!(wrong.unwrap_err().to_string().contains("10.0.0.0/8"));
    }
}
