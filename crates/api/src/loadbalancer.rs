//! LoadBalancer v1beta1, with its columns of `kubectl get` (OPS-5).

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Condition;

/// What a user or a guest cluster asks for.
#[derive(
    CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema,
)]
#[kube(
    group = "loadbalancer.harvesterhci.io",
    version = "v1beta1",
    kind = "LoadBalancer",
    plural = "loadbalancers",
    singular = "loadbalancer",
    shortname = "lb",
    shortname = "lbs",
    namespaced,
    status = "LoadBalancerStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A stable address in front of virtual machines, or of a Service of a guest cluster.",
    printcolumn = r#"{"name":"DESCRIPTION","type":"string","jsonPath":".spec.description"}"#,
    printcolumn = r#"{"name":"WORKLOADTYPE","type":"string","jsonPath":".spec.workloadType"}"#,
    printcolumn = r#"{"name":"IPAM","type":"string","jsonPath":".spec.ipam"}"#,
    printcolumn = r#"{"name":"ADDRESS","type":"string","jsonPath":".status.address"}"#,
    printcolumn = r#"{"name":"READY","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"POOL","type":"string","jsonPath":".status.allocatedAddress.ipPool","priority":1}"#,
    printcolumn = r#"{"name":"REASON","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason","priority":1}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerSpec {
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What stands behind the address: `vm`, virtual machines of the namespace (also when absent), or `cluster`, a
    /// Service of a guest cluster. Fixed once created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_type: Option<WorkloadType>,
    /// Where the address comes from: `pool`, an IPPool (also when absent), or `dhcp`. Fixed once created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<Ipam>,
    /// Name of the IPPool to take the address from; absent: chosen by the pools' selectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_pool: Option<String>,
    /// The ports that are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Vec<Listener>>,
    /// Labels of the virtual machines behind the address: every key must match, with one of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_server_selector: Option<BTreeMap<String, Vec<String>>>,
    /// TCP health check of the backends; absent, or port 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

/// What stands behind the address: virtual machines of the namespace (vm, also when absent), or a Service of a guest cluster
/// (cluster). Immutable.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadType {
    /// Virtual machines of the load balancer's namespace.
    #[default]
    Vm,
    /// A Service of a guest cluster, which brings its own data path.
    Cluster,
}

/// Where the address comes from: an IPPool (pool, also when absent), or a DHCP server (dhcp). Immutable.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ipam {
    /// An IPPool.
    #[default]
    Pool,
    /// A DHCP server.
    Dhcp,
}

/// One port that is served.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Name of the port, unique in the load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Port at the address, 1 to 65535.
    #[schemars(with = "i32")]
    pub port: i64,
    /// Transport protocol: TCP, UDP or SCTP.
    #[serde(default = "default_protocol")]
    #[schemars(default = "default_protocol")]
    pub protocol: String,
    /// Port of the backends, 1 to 65535.
    #[schemars(with = "i32")]
    pub backend_port: i64,
}

fn default_protocol() -> String {
    "TCP".to_owned()
}

/// TCP health check. A value that is 0 or absent stands for its default: 1 success, 3 failures, every 5 s, within 3 s.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Backend port that is connected to; 0 turns the check off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub port: Option<i64>,
    /// Successes in a row that make a backend ready; 0 or absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub success_threshold: Option<i64>,
    /// Failures in a row that make a backend not ready; 0 or absent: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failure_threshold: Option<i64>,
    /// Seconds from one probe to the next; 0 or absent: 5, above 86400: 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub period_seconds: Option<i64>,
    /// Seconds after which a connection attempt has failed; 0 or absent: 3, above 120: 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub timeout_seconds: Option<i64>,
}

/// What the operator, and for cluster type also the guest, report.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerStatus {
    /// IPv4 addresses of the chosen virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_servers: Option<Vec<String>>,
    /// The address that was given, and where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_address: Option<AllocatedAddress>,
    /// The address in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Observations about the load balancer; `Ready` is always among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// An address with what a guest needs to use it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocatedAddress {
    /// Name of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_pool: Option<String>,
    /// The address; 0.0.0.0 for DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Network mask of the pool's range, dotted for IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
    /// Gateway of the pool's range; absent where the range has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

impl LoadBalancerSpec {
    /// The workload type; [`WorkloadType::Vm`] if the field is absent.
    pub fn workload(&self) -> WorkloadType {
        self.workload_type.unwrap_or_default()
    }

    /// The source of the address; [`Ipam::Pool`] if the field is absent.
    pub fn address_source(&self) -> Ipam {
        self.ipam.unwrap_or_default()
    }
}
