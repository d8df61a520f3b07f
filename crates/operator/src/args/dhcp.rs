//! The command line of the DHCP process.

use std::net::SocketAddr;

use clap::Args;
use harvester_lb_core::kube_vip_annotations::is_interface_name;

use super::lease::LeaseArgs;

/// The flags of `dhcp`.
#[derive(Clone, Debug, Args)]
pub struct DhcpArgs {
    /// Interface of the leases of load balancers that name none [default: that of the default route].
    #[arg(long, env = "DHCP_INTERFACE", value_parser = interface)]
    pub dhcp_interface: Option<String>,
    /// Number of leases on one interface from which no new one is asked for. Recorded ones are kept, also beyond it.
    #[arg(long, env = "DHCP_LEASE_LIMIT", default_value_t = 4096)]
    pub dhcp_lease_limit: usize,
    /// Address of the admin port: /healthz, /readyz, /metrics.
    #[arg(long, env = "ADMIN_ADDRESS", default_value = "127.0.0.1:8082")]
    pub admin_address: SocketAddr,
    /// The leader election.
    #[command(flatten)]
    pub lease: LeaseArgs,
}

fn interface(text: &str) -> Result<String, String> {
    let text = text.trim();
    if is_interface_name(text) {
        Ok(text.to_owned())
    } else {
        Err("this is no name of an interface".to_owned())
    }
}
