//! Owns the network of a test cluster: namespaces, bridges, addresses, routes.
//!
//! ```text
//! lan    bridges br-lan 192.168.100.0/24, br-vlan20 192.168.120.0/24 and br-mgmt 10.251.N.0/24 (N: number of the test cluster)
//! cp     10.251.N.1: etcd, kube-apiserver, kube-controller-manager; has routes to all Pods
//! gw     192.168.100.1: the nodes' default gateway, leads nowhere; a place for DHCP and DNS servers
//! client 192.168.100.50, vlan20 192.168.120.50
//! node1  mgmt0 10.251.N.11, eth0 192.168.100.11: kube-proxy, kube-vip; node2 .12 and so on
//!        (as on Harvester: eth0 in a bridge, which has its address), vlan20 192.168.120.11 and so on
//!        10.52.1.0/24: Pods of node1 ([`crate::PodRunner`]), 10.52.2.0/24 those of node2 and so on
//! (this process) 10.251.N.254
//! ```
//!
//! The bridges have a separate namespace without packet filter rules: where the kernel passes bridged frames to the
//! filter of the bridge's namespace, rules of kube-proxy would change them.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context;
use parking_lot::Mutex;

use crate::data_path::DataPath;
use crate::netns::{Netns, ip};

/// Address of the namespace `client`.
pub const CLIENT: Ipv4Addr = lan(50);
/// Address of the namespace `gw`.
pub const GATEWAY: Ipv4Addr = lan(1);
/// Host part of the first VM's address, so VMs are 192.168.100.101 and up.
pub(crate) const FIRST_VM: u8 = 101;
/// Host part of the farm's address.
pub(crate) const FARM: u8 = 60;
/// Addresses of Pods: 10.52.N.0/24 on node N.
pub(crate) const POD_RANGE: &str = "10.52.0.0/16";
/// Most nodes of a test cluster: host parts 11 to 40.
pub(crate) const MAX_NODES: u8 = 30;

/// Number of the LAN in hardware addresses and names of interfaces.
const LAN: u8 = 1;
/// Number of the management network, likewise.
const MGMT: u8 = 2;
/// Number of a further network, likewise. Nodes and client have the interface [`VLAN_INTERFACE`] in it.
const VLAN: u8 = 3;
/// Name of the interface of nodes and client in a network besides LAN and management.
pub const VLAN_INTERFACE: &str = "vlan20";

/// A fixed hardware address makes captures and neighbour tables readable.
fn hardware_address(network: u8, host: u8) -> String {
    format!("02:00:00:00:{network:02x}:{host:02x}")
}

/// An address of the LAN by its host part.
pub const fn lan(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, host)
}

/// An address of the network of [`VLAN_INTERFACE`] by its host part.
pub const fn vlan(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 120, host)
}

/// An address of the management network of test cluster number `cluster`.
pub(crate) const fn mgmt(cluster: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 251, cluster, host)
}

/// An address of the Pods of a node.
pub(crate) const fn pod(node: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 52, node, host)
}

/// Host part of a node's addresses in both networks; nodes count from 1.
pub(crate) const fn node_host(node: u8) -> u8 {
    10 + node
}

/// The number of a node by its name.
pub(crate) fn node_number(name: &str) -> anyhow::Result<u8> {
    let number = name.strip_prefix("node").and_then(|n| n.parse().ok());
    number.with_context(|| format!("{name:?} is not a node"))
}

/// The namespaces of one test cluster.
#[derive(Debug)]
pub(crate) struct Layout {
    cluster: u8,
    nodes: u8,
    /// Names of the namespaces created so far.
    made: Mutex<Vec<String>>,
}

impl Layout {
    /// Creates everything; about 0.2 s.
    pub(crate) fn create(cluster: u8, nodes: u8, path: &DataPath) -> anyhow::Result<Self> {
        let layout = Self {
            cluster,
            nodes,
            made: Mutex::default(),
        };
        let mut all: Vec<String> = ["lan", "cp", "gw", "client"].map(String::from).into();
        all.extend((1..=nodes).map(|n| format!("node{n}")));
        for name in &all {
            layout.make(name)?;
        }
        layout.open("lan")?.ip("link set lo up
            link add br-lan type bridge
            link add br-mgmt type bridge
            link add br-vlan20 type bridge
            link set br-lan up
            link set br-mgmt up
            link set br-vlan20 up
            ")?;
        layout.plug("cp", "mgmt0", 1)?;
        layout.plug("gw", "eth0", 1)?;
        layout.plug("client", "eth0", 50)?;
        layout.plug("client", VLAN_INTERFACE, 50)?;
        for node in 1..=nodes {
            let name = format!("node{node}");
            layout.plug(&name, "mgmt0", node_host(node))?;
            layout.plug_node(&name, node_host(node), path)?;
            layout.plug(&name, VLAN_INTERFACE, node_host(node))?;
            let netns = layout.open(&name)?;
            netns.sysctl("net/ipv4/ip_forward", "1")?;
            forget_unanswered(&netns)?;
            layout.node_routes(node)?;
        }
        layout.open("cp")?.ip(&layout.pod_routes(None)?)?;
        layout.open("gw")?.sysctl("net/ipv4/ip_forward", "1")?;
        layout.plug_self()?;
        Ok(layout)
    }

    /// Name of a namespace for `ip netns`: unchanged in the first test cluster of a process, prefixed with the number
    /// in others.
    pub(crate) fn name(&self, short: &str) -> String {
        if self.cluster == 0 {
            short.to_owned()
        } else {
            format!("b{}-{short}", self.cluster)
        }
    }

    pub(crate) fn open(&self, short: &str) -> anyhow::Result<Netns> {
        Netns::open(&self.name(short))
    }

    pub(crate) const fn nodes(&self) -> u8 {
        self.nodes
    }

    pub(crate) const fn server(&self) -> Ipv4Addr {
        mgmt(self.cluster, 1)
    }

    pub(crate) const fn node_mgmt(&self, node: u8) -> Ipv4Addr {
        mgmt(self.cluster, node_host(node))
    }

    /// A new namespace with an interface in the LAN and a default route.
    pub(crate) fn add(&self, short: &str, host: u8) -> anyhow::Result<Netns> {
        self.make(short)?;
        self.plug(short, "eth0", host)?;
        self.default_route(short)?;
        self.open(short)
    }

    fn make(&self, short: &str) -> anyhow::Result<()> {
        let name = self.name(short);
        ip(&[], &format!("netns add {name}\n"))?;
        self.made.lock().push(name);
        Ok(())
    }

    /// A node needs one even for its own connections to a ClusterIP: the route is looked up before the packet filter
    /// inserts the backend's address.
    pub(crate) fn default_route(&self, short: &str) -> anyhow::Result<()> {
        self.open(short)?
            .ip(&format!("route replace default via {GATEWAY}\n"))
    }

    /// The routes of a node, which the kernel drops with its interfaces: the default route, and those to the Pods of the
    /// other nodes.
    pub(crate) fn node_routes(&self, node: u8) -> anyhow::Result<()> {
        let name = format!("node{node}");
        self.default_route(&name)?;
        self.open(&name)?.ip(&self.pod_routes(Some(node))?)
    }

    /// Commands for the routes to the Pods of all nodes but one, through the management network.
    fn pod_routes(&self, except: Option<u8>) -> anyhow::Result<String> {
        let mut commands = String::new();
        for node in (1..=self.nodes).filter(|node| Some(*node) != except) {
            let (network, via) = (pod(node, 0), self.node_mgmt(node));
            writeln!(commands, "route replace {network}/24 via {via}")?;
        }
        Ok(commands)
    }

    /// An interface in a bridge, with an address: `eth0` in the LAN, `mgmt0` in the management network, [`VLAN_INTERFACE`].
    fn plug(&self, short: &str, interface: &str, host: u8) -> anyhow::Result<()> {
        self.connect(short, interface, host)?;
        let address = match interface {
            "eth0" => lan(host),
            VLAN_INTERFACE => vlan(host),
            _ => mgmt(self.cluster, host),
        };
        self.open(short)?
            .ip(&format!("addr add {address}/24 dev {interface}\n"))
    }

    /// A node's interface in the LAN: eth0, or a bridge that holds it.
    fn plug_node(&self, short: &str, host: u8, path: &DataPath) -> anyhow::Result<()> {
        let Some(bridge) = path.bridge else {
            return self.plug(short, "eth0", host);
        };
        self.connect(short, "eth0", host)?;
        let (netns, address) = (self.open(short)?, lan(host));
        netns.ip(&format!(
            "link add {bridge} address {} type bridge\nlink set eth0 master {bridge}\n\
             link set {bridge} up\naddr add {address}/24 dev {bridge}\n",
            hardware_address(LAN, host)
        ))?;
        // Without the kernel's module there is no such file, and what a bridge forwards reaches no packet filter.
        let sysctl = "net/bridge/bridge-nf-call-iptables";
        if path.bridge_calls_iptables || Path::new("/proc/sys").join(sysctl).exists() {
            let value = u8::from(path.bridge_calls_iptables).to_string();
            netns.sysctl(sysctl, &value)?;
        }
        Ok(())
    }

    /// An interface in a bridge, without an address.
    fn connect(&self, short: &str, interface: &str, host: u8) -> anyhow::Result<()> {
        let (bridge, network) = match interface {
            "eth0" => ("br-lan", LAN),
            VLAN_INTERFACE => ("br-vlan20", VLAN),
            _ => ("br-mgmt", MGMT),
        };
        let peer = format!("p{network}-{host}");
        let (lan, name) = (self.name("lan"), self.name(short));
        ip(
            &[],
            &format!(
                "link add {interface} netns {name} address {} type veth peer name {peer} netns {lan}\n",
                hardware_address(network, host)
            ),
        )?;
        self.open("lan")?.ip(&format!(
            "link set {peer} master {bridge}\nlink set {peer} up\n"
        ))?;
        self.open(short)?
            .ip(&format!("link set lo up\nlink set {interface} up\n"))
    }

    /// An interface of the calling process's namespace in the management network.
    fn plug_self(&self) -> anyhow::Result<()> {
        let (own, lan) = (format!("mgmt{}", self.cluster), self.name("lan"));
        let mut commands = String::new();
        writeln!(
            commands,
            "link add {own} type veth peer name p2-254 netns {lan}"
        )?;
        writeln!(commands, "link set {own} up")?;
        writeln!(
            commands,
            "addr add {}/24 dev {own}",
            mgmt(self.cluster, 254)
        )?;
        ip(&[], &commands)?;
        self.open("lan")?
            .ip("link set p2-254 master br-mgmt\nlink set p2-254 up\n")
    }
}

impl Drop for Layout {
    /// Removes the names; a namespace itself ends with its last process and socket. Matters only where one process
    /// starts several test clusters.
    fn drop(&mut self) {
        let mut commands = String::new();
        for name in self.made.get_mut() {
            let _ = writeln!(commands, "netns del {name}");
        }
        let _ = writeln!(commands, "link del mgmt{}", self.cluster);
        // An error is ignored: the end of the process cleans up everything anyway.
        let _ = ip(&["-force"], &commands);
    }
}

/// A node forgets within seconds, and not after two minutes, where it has sent a SYN that was not answered. A client that connects again
/// from the same port would be sent there, although there is an endpoint by now.
fn forget_unanswered(node: &Netns) -> anyhow::Result<()> {
    // Without the kernel's module, or in a namespace that is not its owner's, there is no such file.
    let sysctl = "net/netfilter/nf_conntrack_tcp_timeout_syn_sent";
    if node.run(|| Path::new("/proc/sys").join(sysctl).exists())? {
        node.sysctl(sysctl, "2")?;
    }
    Ok(())
}
