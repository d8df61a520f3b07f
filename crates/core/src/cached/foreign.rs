//! The copies of built-in kinds: Service, EndpointSlice, Node. What of them is this operator's, and the addresses they show.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;

use harvester_lb_api::keys;
use harvester_lb_api::meta::{Decoded, Undecodable};
use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, LoadBalancerStatus, Node, Service, ServiceSpec, ServiceStatus,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::cached::trim::pruned;

/// A Service, less what is never looked at. Of one that cannot be decoded its metadata are there, and of its addresses what
/// can be read: they must not look as if nobody had them (BE-8, IPA-3).
#[derive(Clone, Debug, PartialEq)]
pub struct CachedService {
    service: Service,
    /// Why it could not be decoded; then it has further fields that are not known, and is not to be altered.
    pub undecodable: Option<String>,
}

impl Deref for CachedService {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

/// From the watch, or from the answer to a write. Always something, as all that watches convert with may answer nothing.
pub fn service(decoded: Decoded<Service>) -> Option<CachedService> {
    let (mut service, undecodable) = match decoded {
        Ok(service) => (service, None),
        Err(invalid) => (readable(&invalid), Some(invalid.error)),
    };
    service.metadata = pruned(service.metadata);
    Some(CachedService {
        service,
        undecodable,
    })
}

/// What can be read of a Service that cannot be decoded.
fn readable(invalid: &Undecodable) -> Service {
    let texts = |path: &[&str]| {
        let found = invalid.texts(path).into_iter().map(ToOwned::to_owned);
        found.collect::<Vec<_>>()
    };
    let first = |path: &[&str]| texts(path).into_iter().next();
    let ingress = texts(&["status", "loadBalancer", "ingress", "ip"]);
    let ingress = ingress.into_iter().map(|ip| LoadBalancerIngress {
        ip: Some(ip),
        ..LoadBalancerIngress::default()
    });
    Service {
        metadata: invalid.metadata.clone(),
        spec: Some(ServiceSpec {
            cluster_ip: first(&["spec", "clusterIP"]),
            cluster_ips: Some(texts(&["spec", "clusterIPs"])),
            external_ips: Some(texts(&["spec", "externalIPs"])),
            load_balancer_ip: first(&["spec", "loadBalancerIP"]),
            ..ServiceSpec::default()
        }),
        status: Some(ServiceStatus {
            load_balancer: Some(LoadBalancerStatus {
                ingress: Some(ingress.collect()),
            }),
            ..ServiceStatus::default()
        }),
    }
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

/// What is kept of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Its addresses of IPv4. Host names are none.
    pub addresses: Vec<Ipv4Addr>,
    /// It could not be decoded: it may have more of them (BE-8).
    pub undecodable: bool,
}

/// From the watch. Of a Node that cannot be decoded the addresses that can be read.
pub fn node(decoded: Decoded<Node>) -> Option<NodeAddresses> {
    let v4 = |text: &str| text.parse().ok();
    Some(match decoded {
        Ok(node) => {
            let addresses = node.status.and_then(|s| s.addresses).unwrap_or_default();
            NodeAddresses {
                addresses: addresses.iter().filter_map(|a| v4(&a.address)).collect(),
                undecodable: false,
            }
        }
        Err(invalid) => {
            let addresses = invalid.texts(&["status", "addresses", "address"]);
            let bare = invalid.texts(&["status", "addresses"]);
            NodeAddresses {
                addresses: addresses.into_iter().chain(bare).filter_map(v4).collect(),
                undecodable: true,
            }
        }
    })
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
