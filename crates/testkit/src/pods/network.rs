//! Owns the network of one Pod: a namespace with one interface, connected to its node, which routes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context;

use super::host::{Addresses, Machine};
use crate::layout::{POD_RANGE, pod};
use crate::netns::{Netns, ip};

/// The network of a Pod. Dropping it removes it, unless it is the node's own.
#[derive(Debug)]
pub(crate) struct PodNetwork {
    pub(crate) netns: Netns,
    pub(crate) address: Ipv4Addr,
    _own: Option<Own>,
}

/// A network namespace that belongs to one Pod.
struct Own {
    machine: Arc<Machine>,
    name: String,
    host: u8,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl PodNetwork {
    /// The network of a Pod with `hostNetwork`.
    pub(crate) fn of_node(machine: &Machine) -> Self {
        Self {
            netns: machine.netns.clone(),
            address: machine.address,
            _own: None,
        }
    }

    /// Creates a Pod's network; about 30 ms, blocking.
    pub(crate) fn create(machine: &Arc<Machine>) -> anyhow::Result<Self> {
        let host = machine.addresses.lock().take();
        let host =
            host.with_context(|| format!("{} has no free address for a Pod", machine.name))?;
        let own = Own {
            machine: Arc::clone(machine),
            name: format!("{}-{host}", machine.prefix),
            host,
        };
        let name = &own.name;
        let (address, gateway) = (
            pod(machine.number, host),
            pod(machine.number, Addresses::NODE),
        );
        let peer = own.peer();
        ip(&[], &format!("netns add {name}\n"))?;
        ip(
            &[],
            &format!(
                "link add eth0 netns {name} type veth peer name {peer} netns {}\n",
                machine.netns.name()
            ),
        )?;
        let netns = Netns::open(name)?;
        netns.ip(&format!(
            "link set lo up\nlink set eth0 up\naddr add {address}/32 dev eth0\n\
             route add {gateway} dev eth0 scope link\nroute add default via {gateway}\n"
        ))?;
        machine.netns.ip(&format!(
            "link set {peer} up\naddr add {gateway}/32 dev {peer}\n\
             route add {address} dev {peer} src {gateway}\n"
        ))?;
        // As containerd does it: a program without capabilities may use any port.
        netns.sysctl("net/ipv4/ip_unprivileged_port_start", "0")?;
        Ok(Self {
            netns,
            address,
            _own: Some(own),
        })
    }
}

impl Own {
    /// Name of the node's end.
    fn peer(&self) -> String {
        format!("pod{}", self.host)
    }
}

impl Drop for Own {
    /// An error is ignored: the end of the process removes everything anyway.
    fn drop(&mut self) {
        // Both ends of the cable at once, also where a process that has not ended yet keeps the namespace.
        let _ = self
            .machine
            .netns
            .ip(&format!("link del {}\n", self.peer()));
        let _ = ip(&[], &format!("netns del {}\n", self.name));
        self.machine.addresses.lock().free(self.host);
    }
}

/// Lets the Pods of a node reach what has no route back to them, with the node's address: the LAN, for instance.
pub(crate) fn masquerade(machine: &Machine) -> anyhow::Result<()> {
    let own = pod(machine.number, 0);
    machine.netns.nft(&format!(
        "table ip pods
         delete table ip pods
         table ip pods {{
             chain out {{
                 type nat hook postrouting priority srcnat;
                 ip saddr {own}/24 ip daddr != {POD_RANGE} masquerade
             }}
         }}
         "
    ))
}
