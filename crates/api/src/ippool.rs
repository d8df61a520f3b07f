//! IPPool v1beta1, with its columns of `kubectl get` (OPS-5). The maps of the status are atomic: a
//! write of granular ones takes the API server about ten times as long (POOL-4).

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Condition;

/// Address ranges, and the load balancers that they serve.
#[derive(
    CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema,
)]
#[kube(
    group = "loadbalancer.harvesterhci.io",
    version = "v1beta1",
    kind = "IPPool",
    plural = "ippools",
    singular = "ippool",
    shortname = "pool",
    shortname = "pools",
    status = "IPPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A pool of addresses for load balancers.",
    printcolumn = r#"{"name":"DESCRIPTION","type":"string","jsonPath":".spec.description"}"#,
    printcolumn = r#"{"name":"RANGES","type":"string","jsonPath":".spec.ranges"}"#,
    printcolumn = r#"{"name":"Priority","type":"string","jsonPath":".spec.selector.priority"}"#,
    printcolumn = r#"{"name":"TOTAL","type":"integer","jsonPath":".status.total"}"#,
    printcolumn = r#"{"name":"AVAILABLE","type":"integer","jsonPath":".status.available"}"#,
    printcolumn = r#"{"name":"READY","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct IPPoolSpec {
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The addresses, in the order in which they are allocated.
    pub ranges: Vec<Range>,
    /// Load balancers that the pool serves; absent: only those that name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
}

/// A range of addresses inside a subnet.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// The subnet as address/prefix length.
    pub subnet: String,
    /// First address; absent: the one after the network address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_start: Option<String>,
    /// Last address; absent: the one before the broadcast address (IPv4), the last one (IPv6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_end: Option<String>,
    /// The gateway, never allocated; absent: the address after the network address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

/// Load balancers that a pool serves.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Among matching pools the highest priority wins; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))]
    pub priority: Option<i64>,
    /// `<namespace>/<NetworkAttachmentDefinition>` of the network that the addresses belong to; absent: serves only load
    /// balancers that require no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Load balancers that may use the pool: one matching entry is enough, without entries none matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Vec<Tuple>>,
}

/// One entry of a scope. `*` matches everything, an absent field only a load balancer without that requirement.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tuple {
    /// Rancher project as `<cluster>/<project>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Namespace of the load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Guest cluster of the load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_cluster: Option<String>,
}

/// What the operator reports. The maps are a projection of the IPAllocations (POOL-3).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPPoolStatus {
    /// Number of addresses in the ranges, without gateways and excluded addresses.
    #[serde(default)]
    pub total: i64,
    /// Number of addresses that are still free.
    #[serde(default)]
    pub available: i64,
    /// The address that was allocated last; may be empty.
    #[serde(default)]
    pub last_allocated: String,
    /// Address to `<namespace>/<name>` of the load balancer that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub allocated: Option<BTreeMap<String, String>>,
    /// Address to `<namespace>/<name>` of the load balancer that held it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub allocated_history: Option<BTreeMap<String, String>>,
    /// Observations about the pool; `Ready` is always among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
