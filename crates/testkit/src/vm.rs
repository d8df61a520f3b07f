//! Owns the backends: namespaces on the LAN with listeners, instead of virtual machines.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::layout::{GATEWAY, lan};
use crate::netns::Netns;
use crate::serve::Server;
use crate::test_cluster::TestCluster;

/// Last host part of a VM, so that 200 and up are free for Services.
const LAST_VM: u8 = 199;

/// A namespace on the LAN that answers HTTP with its name. Dropping it closes its ports; the namespace stays until the
/// end of the test cluster.
#[derive(Debug)]
pub struct Vm {
    name: String,
    netns: Netns,
    address: Mutex<Ipv4Addr>,
    listeners: Mutex<HashMap<(Protocol, u16), Server>>,
    served: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Protocol {
    Tcp,
    Udp,
}

impl TestCluster {
    /// A new VM with the next address: 192.168.100.101, .102 and so on to .199.
    pub fn add_vm(&self, name: &str) -> anyhow::Result<Vm> {
        let host = self.next_vm();
        if host > LAST_VM {
            bail!(
                "no address left for VM {name}: the last is {}",
                lan(LAST_VM)
            );
        }
        let netns = self
            .layout
            .add(name, host)
            .with_context(|| format!("VM {name}"))?;
        Ok(Vm {
            name: name.to_owned(),
            netns,
            address: Mutex::new(lan(host)),
            listeners: Mutex::default(),
            served: Arc::default(),
        })
    }
}

impl Vm {
    /// Its name, also that of its namespace and the body of its answers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the LAN.
    pub fn address(&self) -> Ipv4Addr {
        *self.address.lock()
    }

    /// Its namespace.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// HTTP requests answered so far.
    pub fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    /// Answers HTTP on a TCP port: status 200, body the VM's name.
    pub fn listen(&self, port: u16) -> anyhow::Result<()> {
        let server = Server::http(&self.netns, port, &self.name, &self.served)?;
        self.listeners.lock().insert((Protocol::Tcp, port), server);
        Ok(())
    }

    /// Answers on a UDP port: the VM's name, a space, and the request.
    pub fn listen_udp(&self, port: u16) -> anyhow::Result<()> {
        let server = Server::udp(&self.netns, port, &self.name)?;
        self.listeners.lock().insert((Protocol::Udp, port), server);
        Ok(())
    }

    /// Closes a port, TCP and UDP; connections are refused when this returns.
    pub async fn close(&self, port: u16) {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let server = self.listeners.lock().remove(&(protocol, port));
            if let Some(server) = server {
                server.close().await;
            }
        }
    }

    /// Pulls the cable (`false`: connections time out) or plugs it in again (`true`).
    pub fn set_link(&self, up: bool) -> anyhow::Result<()> {
        if up {
            self.netns.ip(&format!(
                "link set eth0 up\nroute replace default via {GATEWAY}\n"
            ))
        } else {
            self.netns.ip("link set eth0 down\n")
        }
    }

    /// Changes the address, like a new DHCP lease. It must be in the LAN.
    pub fn set_address(&self, new: Ipv4Addr) -> anyhow::Result<()> {
        let mut address = self.address.lock();
        // In this order: an address added to a network that has one already would be a secondary one and removed with
        // the first.
        self.netns.ip(&format!(
            "addr del {address}/24 dev eth0\naddr add {new}/24 dev eth0\n\
             route replace default via {GATEWAY}\n"
        ))?;
        *address = new;
        Ok(())
    }

    /// The VirtualMachineInstance that KubeVirt would have created, for [`TestCluster::apply`]. Its uid comes from the
    /// API server.
    pub fn vmi_manifest(&self, namespace: &str, labels: &[(&str, &str)]) -> Value {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), Value::from(*v)))
            .collect();
        let address = self.address().to_string();
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": self.name, "namespace": namespace, "labels": labels},
            "spec": {
                "domain": {"devices": {"interfaces": [{"name": "nic-1", "bridge": {}}]}},
                "networks": [{"name": "nic-1", "multus": {"networkName": "default/lan"}}],
            },
            "status": {
                "phase": "Running",
                "interfaces": [{"name": "nic-1", "ipAddress": address, "ipAddresses": [address]}],
            },
        })
    }
}
