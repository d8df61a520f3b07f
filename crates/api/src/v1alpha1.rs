//! LoadBalancer v1alpha1, which guest clusters with a cloud provider v0.1.x use. Served, deprecated
//! and never stored. The operator does not decode it: the API server converts it (section 2.4).

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Condition, Ipam};

/// What a guest cluster asks for.
#[derive(
    CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema,
)]
#[kube(
    group = "loadbalancer.harvesterhci.io",
    version = "v1alpha1",
    kind = "LoadBalancer",
    plural = "loadbalancers",
    singular = "loadbalancer",
    shortname = "lb",
    shortname = "lbs",
    namespaced,
    status = "LoadBalancerStatus",
    derive = "Default",
    derive = "PartialEq",
    storage = false,
    deprecated,
    doc = "A stable address in front of virtual machines.",
    printcolumn = r#"{"name":"DESCRIPTION","type":"string","jsonPath":".spec.description"}"#,
    printcolumn = r#"{"name":"IPAM","type":"string","jsonPath":".spec.ipam"}"#,
    printcolumn = r#"{"name":"ADDRESS","type":"string","jsonPath":".status.address"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerSpec {
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where the address comes from: `pool`, an IPPool, or `dhcp`. Fixed once created.
    pub ipam: Ipam,
    /// The ports that are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Vec<Listener>>,
    /// IPv4 addresses of the virtual machines behind the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_servers: Option<Vec<String>>,
    /// TCP health check of the backends; absent, or port 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

/// One port that is served.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Name of the port, unique in the load balancer.
    pub name: String,
    /// Port at the address, 1 to 65535.
    #[schemars(with = "i32")]
    pub port: i64,
    /// Transport protocol: TCP, UDP or SCTP.
    #[serde(default = "default_protocol")]
    #[schemars(default = "default_protocol")]
    pub protocol: String,
    /// Port of the backends, 1 to 65535; absent: the same as `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub backend_port: Option<i64>,
}

fn default_protocol() -> String {
    "TCP".to_owned()
}

/// TCP health check. A value that is 0 stands for its default: 1 success, 3 failures, every 5 s, within 3 s.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Backend port that is connected to; 0 turns the check off.
    pub port: i64,
    /// Successes in a row that make a backend ready.
    pub success_threshold: i64,
    /// Failures in a row that make a backend not ready.
    pub failure_threshold: i64,
    /// Seconds from one probe to the next. The name begins with a capital in this version.
    #[serde(rename = "PeriodSeconds")]
    pub period_seconds: i64,
    /// Seconds after which a connection attempt has failed.
    pub timeout_seconds: i64,
}

/// What the operator reports.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerStatus {
    /// The address in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Observations about the load balancer; `Ready` is always among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
