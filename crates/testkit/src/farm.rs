//! Owns the probe farm: one namespace that answers on 65,536 addresses, with faults per address.

use std::sync::Arc;

use crate::layout::{self, lan};
use crate::netns::Netns;
use crate::serve::Server;
use crate::test_cluster::TestCluster;

/// The addresses of the farm.
const RANGE: &str = "10.99.0.0/16";

const RULES: &str = "table ip faults {
    set blackhole { type ipv4_addr; flags interval; }
    set lossy { type ipv4_addr; flags interval; }
    set refuse { type ipv4_addr; flags interval; }
    chain pre {
        type filter hook prerouting priority -300;
        ip daddr @blackhole counter drop
        ip daddr @lossy numgen random mod 100 < 30 counter drop
    }
    chain inp {
        type filter hook input priority 0;
        ip daddr @refuse meta l4proto tcp counter reject with tcp reset
    }
}
";

/// The fault of an address of the farm.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// No answer at all.
    Blackhole,
    /// Connections are refused.
    Refuse,
    /// Three of ten packets are dropped.
    Lossy,
}

impl Fault {
    const fn set(self) -> &'static str {
        match self {
            Self::Blackhole => "blackhole",
            Self::Refuse => "refuse",
            Self::Lossy => "lossy",
        }
    }
}

/// A namespace with 10.99.0.0/16, each address a probe target. The nodes have a route to it.
#[derive(Debug)]
pub struct Farm {
    netns: Netns,
    _servers: Vec<Server>,
}

impl Farm {
    /// Creates the namespace `farm` and answers HTTP on the given ports of all addresses.
    pub fn start(cluster: &TestCluster, ports: &[u16]) -> anyhow::Result<Self> {
        let netns = cluster.layout.add("farm", layout::FARM)?;
        netns.ip(&format!("route add local {RANGE} dev lo\n"))?;
        netns.sysctl("net/core/somaxconn", "4096")?;
        netns.nft(RULES)?;
        for node in cluster.nodes() {
            cluster.ip(
                &node,
                &format!("route replace {RANGE} via {}", lan(layout::FARM)),
            )?;
        }
        let servers = ports
            .iter()
            .map(|port| Server::http(&netns, *port, "farm", &Arc::default()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            netns,
            _servers: servers,
        })
    }

    /// Its namespace.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Breaks addresses: one (`10.99.0.1`), a range (`10.99.0.1-10.99.0.100`) or several, separated by commas.
    pub fn fault(&self, fault: Fault, addresses: &str) -> anyhow::Result<()> {
        self.netns.nft(&format!(
            "add element ip faults {} {{ {addresses} }}\n",
            fault.set()
        ))
    }

    /// Reverts [`Self::fault`] with the same arguments.
    pub fn repair(&self, fault: Fault, addresses: &str) -> anyhow::Result<()> {
        self.netns.nft(&format!(
            "delete element ip faults {} {{ {addresses} }}\n",
            fault.set()
        ))
    }
}
