//! The copies of virtual machines, running or not.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use harvester_lb_api::keys;
use harvester_lb_api::kubevirt::{
    Interface, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceStatus,
};
use harvester_lb_api::meta::{Decoded, annotation, finalizers_without};
use harvester_lb_ipam::Micros;

use crate::time;

/// A running virtual machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Vmi {
    /// Its uid.
    pub uid: String,
    /// Its labels, which selectors look at.
    pub labels: BTreeMap<String, String>,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// Its address as a backend (BE-2).
    pub address: Option<Ipv4Addr>,
    /// What it is at, as far as that matters to its traffic (BE-5).
    pub state: State,
    /// Finalizers that must remain when ours of old are taken off; `None` if it carries none of those (FIN-1).
    pub finalizers_to_keep: Option<Vec<String>>,
}

impl Vmi {
    /// From the watch. An object that cannot be decoded is a backend without an address.
    pub fn from_watch(decoded: Decoded<VirtualMachineInstance>) -> Self {
        let (meta, status) = match decoded {
            Ok(object) => (object.metadata, object.status),
            Err(invalid) => (invalid.metadata, None),
        };
        Self {
            address: status
                .as_ref()
                .and_then(|s| backend_address(s.interfaces.as_deref())),
            state: status.as_ref().map(State::of).unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers_to_keep: finalizers_without(&meta, &keys::LEGACY_VM_FINALIZERS),
            uid: meta.uid.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
        }
    }
}

/// A virtual machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Vm {
    /// The guest cluster that it is a node of, if the node driver made it.
    pub guest_cluster: Option<String>,
    /// Whether the node driver made it.
    pub from_node_driver: bool,
    /// Whether its guest cluster is being removed.
    pub cluster_removed: bool,
    /// Since when it is on its way out.
    pub deleted_at: Option<Micros>,
    /// As for a [`Vmi`].
    pub finalizers_to_keep: Option<Vec<String>>,
}

impl Vm {
    /// From the watch.
    pub fn from_watch(decoded: Decoded<VirtualMachine>) -> Self {
        let meta = match decoded {
            Ok(object) => object.metadata,
            Err(invalid) => invalid.metadata,
        };
        let label = |name: &str| meta.labels.as_ref().and_then(|l| l.get(name));
        Self {
            guest_cluster: label(keys::LABEL_GUEST_CLUSTER)
                .filter(|c| !c.is_empty())
                .cloned(),
            from_node_driver: label(keys::LABEL_CREATOR)
                .is_some_and(|c| c == keys::CREATOR_NODE_DRIVER),
            cluster_removed: annotation(&meta, keys::ANNOTATION_REMOVE_ALL_PVCS) == Some("true"),
            deleted_at: meta.deletion_timestamp.as_ref().map(time::of),
            finalizers_to_keep: finalizers_without(&meta, &keys::LEGACY_VM_FINALIZERS),
        }
    }
}

/// What a virtual machine is at, as far as that matters to its traffic (BE-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing that is known keeps it from answering.
    #[default]
    Running,
    /// Its processors stand still until somebody lets it go on.
    Paused,
    /// It was shut down and does not start again.
    Succeeded,
    /// It has died and does not start again.
    Failed,
}

impl State {
    /// From what KubeVirt reports. A pause that is part of a migration is over before anybody could tell, and is none.
    pub fn of(status: &VirtualMachineInstanceStatus) -> Self {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let is_paused = conditions.iter().any(|c| {
            c.type_.as_deref() == Some("Paused")
                && c.status.as_deref() == Some("True")
                && c.reason.as_deref() != Some("PausedByMigrationMonitor")
        });
        match status.phase.as_deref() {
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            _ if is_paused => Self::Paused,
            _ => Self::Running,
        }
    }

    /// Whether it answers nobody any more.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The address of a virtual machine as a backend (BE-2): the first usable IPv4 address, looked for at the interfaces
/// with a name (those of the spec) before the others, and at each in `ipAddress` before `ipAddresses`.
pub fn backend_address(interfaces: Option<&[Interface]>) -> Option<Ipv4Addr> {
    let interfaces = interfaces.unwrap_or_default();
    let named = |i: &&Interface| i.name.as_deref().is_some_and(|n| !n.is_empty());
    interfaces
        .iter()
        .filter(named)
        .chain(interfaces.iter().filter(|i| !named(i)))
        .flat_map(|i| i.ip_address.iter().chain(i.ip_addresses.iter().flatten()))
        .filter_map(|text| text.parse().ok())
        .find(|ip| is_usable(*ip))
}

/// Whether an EndpointSlice may name the address; the API server refuses a slice with any other as a whole.
fn is_usable(ip: Ipv4Addr) -> bool {
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_link_local() || ip.is_multicast())
}
