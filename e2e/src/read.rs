//! What objects say, in short.

use harvester_lb_api::LoadBalancer;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ObjectMeta;

/// Status, reason and message of the condition Ready.
pub fn ready(lb: &LoadBalancer) -> Option<(String, String, String)> {
    let conditions = lb.status.as_ref()?.conditions.as_deref()?;
    let ready = harvester_lb_api::condition::find(conditions, "Ready")?;
    Some((
        ready.status.clone(),
        ready.reason.clone().unwrap_or_default(),
        ready.message.clone().unwrap_or_default(),
    ))
}

/// Message of a condition that holds.
pub fn condition(lb: &LoadBalancer, type_: &str) -> Option<String> {
    let conditions = lb.status.as_ref()?.conditions.as_deref()?;
    let found = harvester_lb_api::condition::find(conditions, type_)?;
    (found.status == "True").then(|| found.message.clone().unwrap_or_default())
}

/// Namespace and name, as messages have them.
pub fn id(meta: &ObjectMeta) -> String {
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}

/// The allocated address.
pub fn allocated(lb: &LoadBalancer) -> Option<String> {
    lb.status.as_ref()?.allocated_address.as_ref()?.ip.clone()
}

/// Addresses of a slice's endpoints that are ready, or that are not, in order.
pub fn endpoints(slice: &EndpointSlice, ready: bool) -> Vec<&str> {
    slice
        .endpoints
        .iter()
        .filter(|e| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true) == ready)
        .flat_map(|e| e.addresses.iter().map(String::as_str))
        .collect()
}
