//! Shared by the tests: a Service with an address and its EndpointSlice.

use std::net::Ipv4Addr;
use std::time::Duration;

use harvester_lb_testkit::TestCluster;
use serde_json::{Value, json};

/// Timeout of every wait here.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A Service with an address of the LAN and, if given, an EndpointSlice with these endpoints.
pub(crate) async fn expose(
    cluster: &TestCluster,
    name: &str,
    vip: Ipv4Addr,
    endpoints: Option<Vec<Value>>,
) -> anyhow::Result<()> {
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]);
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "loadBalancerIP": vip.to_string(), "ports": ports},
    }))
    .await?;
    match endpoints {
        Some(endpoints) => slice(cluster, name, endpoints).await,
        None => Ok(()),
    }
}

pub(crate) async fn slice(
    cluster: &TestCluster,
    name: &str,
    endpoints: Vec<Value>,
) -> anyhow::Result<()> {
    cluster.apply(&json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }))
    .await?;
    Ok(())
}

pub(crate) fn endpoint(address: Ipv4Addr, ready: bool) -> Value {
    json!({"addresses": [address.to_string()], "conditions": {"ready": ready}})
}
