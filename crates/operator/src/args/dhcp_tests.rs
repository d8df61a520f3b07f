//! The command line of the DHCP process.

use clap::Parser;

use super::{Args, Command, DhcpArgs, DhcpMode};

fn parse(flags: &[&str]) -> Result<(Args, DhcpArgs), clap::Error> {
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
