//! The copies of built-in kinds: Service, EndpointSlice, Node. What of them is this operator's, and the addresses they show.

use std::net::{IpAddr, Ipv4Addr};

use harvester_lb_api::keys;
use harvester_lb_api::meta::Decoded;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::cached::trim::pruned;

/// A Service, less what is never looked at.
pub fn service(decoded: Decoded<Service>) -> Option<Service> {
    // A built-in kind always decodes; what does not is not ours.
    let mut object = decoded.ok()?;
    object.metadata = pruned(object.metadata);
    Some(object)
}

/// An EndpointSlice, less what is never looked at.
pub fn slice(decoded: Decoded<EndpointSlice>) -> Option<EndpointSlice> {
    let mut object = decoded.ok()?;
    object.metadata = pruned(object.metadata);
    Some(object)
}

/// The addresses that a Service of this operator shows; none for a Service of somebody else (IPA-3).
pub fn shown_addresses(service: &Service) -> Vec<IpAddr> {
    if !is_labelled(&service.metadata) && !owned_by_any_lb(&service.metadata) {
        return Vec::new();
    }
    let wanted = service
        .spec
        .as_ref()
        .and_then(|s| s.load_balancer_ip.as_deref());
    let mut shown: Vec<IpAddr> = wanted
        .into_iter()
        .chain(ingress(service))
        .filter_map(|text| text.parse().ok())
        .filter(|ip: &IpAddr| !ip.is_unspecified())
        .collect();
    shown.sort();
    shown.dedup();
    shown
}

/// The addresses at which a Service is announced, as text.
pub fn ingress(service: &Service) -> impl Iterator<Item = &str> {
    let status = service.status.iter();
    status
        .filter_map(|s| s.load_balancer.as_ref())
        .flat_map(|l| l.ingress.iter().flatten())
        .filter_map(|i| i.ip.as_deref())
}

/// What is kept of a Node: its addresses of IPv4. Host names are none.
pub fn node(decoded: Decoded<Node>) -> Option<Vec<Ipv4Addr>> {
    let addresses = decoded.ok()?.status?.addresses.into_iter().flatten();
    Some(addresses.filter_map(|a| a.address.parse().ok()).collect())
}

/// Whether a Service or EndpointSlice carries our label.
pub fn is_labelled(meta: &ObjectMeta) -> bool {
    meta.labels
        .as_ref()
        .is_some_and(|l| l.get(keys::LABEL_SERVICELB).is_some_and(|v| v == "true"))
}

fn owned_by_any_lb(meta: &ObjectMeta) -> bool {
    meta.owner_references.iter().flatten().any(is_lb)
}

/// Whether an ownerReference is to a load balancer, in whatever version.
pub fn is_lb(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    owner.kind == "LoadBalancer" && group == Some(harvester_lb_api::GROUP)
}
