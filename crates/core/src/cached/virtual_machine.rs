//! The cached forms of VirtualMachineInstance and VirtualMachine.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use harvester_lb_api::keys;
use harvester_lb_api::kubevirt::{
    Interface, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceStatus,
};
use harvester_lb_api::meta::{Decoded, annotation, finalizers_without};
use harvester_lb_ipam::Micros;

use crate::time;

/// A cached VirtualMachineInstance.
#[derive(Debug, PartialEq, Eq)]
pub struct Vmi {
    /// Its uid; empty if the metadata has none.
    pub uid: String,
    /// Its labels, which selectors match (BE-1).
    pub labels: BTreeMap<String, String>,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
    /// Its address as a backend; `None` if it reports no usable one (BE-2).
    pub address: Option<Ipv4Addr>,
    /// Its state as far as that concerns traffic (BE-5).
    pub state: VmiState,
    /// The finalizers that stay when the legacy ones are removed; `None` if it has no legacy finalizer (FIN-1).
    pub finalizers_to_keep: Option<Vec<String>>,
}

impl Vmi {
    /// Converts an object from the watch. One that cannot be decoded has no address.
    pub fn from_watch(decoded: Decoded<VirtualMachineInstance>) -> Self {
        let (meta, status) = match decoded {
            Ok(object) => (object.metadata, object.status),
            Err(invalid) => (invalid.metadata, None),
        };
        Self {
            address: status
                .as_ref()
                .and_then(|s| backend_address(s.interfaces.as_deref())),
            state: status.as_ref().map(VmiState::of).unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers_to_keep: finalizers_without(&meta, &keys::LEGACY_VM_FINALIZERS),
            uid: meta.uid.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
        }
    }
}

/// A cached VirtualMachine: what cleanup of guest clusters reads of it (GC-1).
#[derive(Debug, PartialEq, Eq)]
pub struct Vm {
    /// The guest cluster in its label, if that is not empty.
    pub guest_cluster: Option<String>,
    /// Whether the label says that Rancher's node driver created it.
    pub from_node_driver: bool,
    /// Whether Rancher's annotation says that its guest cluster is being removed.
    pub cluster_removed: bool,
    /// Its deletionTimestamp.
    pub deleted_at: Option<Micros>,
    /// The finalizers that stay when the legacy ones are removed; `None` if it has no legacy finalizer (FIN-1).
    pub finalizers_to_keep: Option<Vec<String>>,
}

impl Vm {
    /// Converts an object from the watch. Its metadata is enough, so one that cannot be decoded is like any other.
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

/// The state of a VirtualMachineInstance as far as that concerns traffic, from the one that takes it first to the one that takes it
/// last (BE-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VmiState {
    /// Any other phase, and none: it may answer.
    #[default]
    Running,
    /// It has the condition `Paused`: its CPUs are stopped until a user resumes it.
    Paused,
    /// Phase `Succeeded`: it was shut down and does not start again.
    Succeeded,
    /// Phase `Failed`: it crashed and does not start again.
    Failed,
}

impl VmiState {
    /// The state from the phase and conditions that KubeVirt reports. A pause by the migration monitor is too short to
    /// matter and counts as [`VmiState::Running`].
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

    /// Whether it has terminated: `Succeeded` or `Failed`. It gets no traffic.
    pub const fn has_terminated(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The address of a VirtualMachineInstance as a backend (BE-2): the first usable IPv4 address; IPv6 addresses are no backends
/// (BE-4). Interfaces with a name (those of the spec) come before the others, and `ipAddress` before `ipAddresses`.
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

/// Whether an EndpointSlice may contain the address. The API server rejects a whole slice because of one other.
fn is_usable(ip: Ipv4Addr) -> bool {
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_link_local() || ip.is_multicast())
}

#[cfg(test)]
mod tests;
