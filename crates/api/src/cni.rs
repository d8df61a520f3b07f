//! The fields of NetworkAttachmentDefinitions that are read, see [`crate::kubevirt`].

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// A network of virtual machines (multus).
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    plural = "network-attachment-definitions",
    namespaced,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
pub struct NetworkAttachmentDefinitionSpec {
    /// Configuration of the CNI plugin, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}
