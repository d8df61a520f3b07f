//! The fields of KubeVirt's objects that are read. All are optional: an unexpected value in an unused field must not
//! stop a watch, and fields that are not declared here take no memory.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// A virtual machine, running or not.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachine",
    plural = "virtualmachines",
    namespaced,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
pub struct VirtualMachineSpec {}

/// A running virtual machine.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachineInstance",
    plural = "virtualmachineinstances",
    namespaced,
    schema = "disabled",
    status = "VirtualMachineInstanceStatus",
    derive = "Default",
    derive = "PartialEq"
)]
pub struct VirtualMachineInstanceSpec {}

/// A running virtual machine as the webhook reads it: with its networks. A type of its own, because the operator reads no
/// network, and an unexpected value there must not keep a backend's address from it.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachineInstance",
    root = "NetworkedInstance",
    plural = "virtualmachineinstances",
    namespaced,
    schema = "disabled",
    status = "VirtualMachineInstanceStatus",
    derive = "Default",
    derive = "PartialEq"
)]
pub struct NetworkedInstanceSpec {
    /// Its networks, in the order of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<Network>>,
}

/// A network in the spec of a virtual machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Set if it is a NetworkAttachmentDefinition, and not for example the pod network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multus: Option<MultusNetwork>,
}

/// A network of multus.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MultusNetwork {
    /// The NetworkAttachmentDefinition: `<namespace>/<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_name: Option<String>,
}

/// Status of a running virtual machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualMachineInstanceStatus {
    /// Lifecycle phase: `Running`, `Succeeded`, `Failed` and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Conditions, such as `Paused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<VmiCondition>>,
    /// Its network interfaces, in the order of KubeVirt's report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Vec<Interface>>,
}

/// A condition of a running virtual machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct VmiCondition {
    /// Its type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// `True`, `False` or `Unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Reason for the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A network interface of a running virtual machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Name of the network in the spec; absent for interfaces that exist only inside the guest OS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The first address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// All addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<Vec<String>>,
}
