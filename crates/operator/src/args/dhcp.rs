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
    /// Maximum number of leases on one interface.
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Args, Command, DhcpMode};

    fn parse(flags: &[&str]) -> Result<(Args, super::DhcpArgs), clap::Error> {
        let args = ["harvester-load-balancer"].iter().chain(flags);
        let args = Args::try_parse_from(args)?;
        match &args.command {
            Some(Command::Dhcp(dhcp)) => {
                let dhcp = dhcp.clone();
                Ok((args, dhcp))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn dhc_1_defaults_of_the_dhcp_process() {
        let (args, dhcp) = parse(&["dhcp"]).unwrap();
        assert_eq!(args.dhcp_mode, DhcpMode::KubeVip);
        assert_eq!((dhcp.dhcp_interface, dhcp.dhcp_lease_limit), (None, 4096));
        // It runs in the network namespace of the host.
        assert!(dhcp.admin_address.ip().is_loopback());
        let lease = dhcp.lease.settings("harvester-load-balancer-dhcp", "host");
        assert!(lease.check().is_ok());
    }

    #[test]
    fn dhc_1_flags_of_the_dhcp_process() {
        let flags = ["dhcp", "--dhcp-mode=builtin", "--dhcp-interface=mgmt-br"];
        let (args, dhcp) = parse(&flags).unwrap();
        assert_eq!(args.dhcp_mode, DhcpMode::Builtin);
        assert_eq!(dhcp.dhcp_interface.as_deref(), Some("mgmt-br"));
        for wrong in ["a/b", "sixteen-letters-", "a b", ""] {
            assert!(
                parse(&["dhcp", "--dhcp-interface", wrong]).is_err(),
                "{wrong}"
            );
        }
    }
}
