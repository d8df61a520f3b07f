//! The cached form of the built-in kinds Service, EndpointSlice and Node: ownership and addresses.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;

use harvester_lb_api::keys;
use harvester_lb_api::meta::{self, Decoded, Undecodable};
use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, LoadBalancerStatus, Node, Service, ServiceSpec, ServiceStatus,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::cached::trim::{pruned, shrink};

/// A cached Service without the fields that the operator never reads. One that cannot be decoded has its metadata and the
/// addresses that can be read, because those must not count as free (BE-8, IPA-3).
#[derive(Clone, Debug, PartialEq)]
pub struct CachedService {
    service: Service,
    /// The decoding error, if the Service could not be decoded. It then has unknown fields and must not be written.
    pub undecodable: Option<String>,
}

impl Deref for CachedService {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

/// Converts a Service from the watch or from the response to a write. Never `None`; the `Option` is the signature of
/// every converter.
pub fn service(decoded: Decoded<Service>) -> Option<CachedService> {
    let (mut service, undecodable) = match decoded {
        Ok(service) => (service, None),
        Err(invalid) => (readable(&invalid), Some(invalid.error)),
    };
    service.metadata = pruned(service.metadata);
    if let Some(spec) = &mut service.spec {
        shrink(&mut spec.ports);
    }
    Some(CachedService {
        service,
        undecodable,
    })
}

/// The readable metadata and addresses of a Service that cannot be decoded.
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

/// Converts an EndpointSlice from the watch or from the response to a write: without the fields that the operator never
/// reads. `None` if it cannot be decoded.
pub fn slice(decoded: Decoded<EndpointSlice>) -> Option<EndpointSlice> {
    let mut object = decoded.ok()?;
    object.metadata = pruned(object.metadata);
    shrink(&mut object.ports);
    object.endpoints.shrink_to_fit();
    for endpoint in &mut object.endpoints {
        endpoint.addresses.shrink_to_fit();
    }
    Some(object)
}

/// The address that a Service asks for, `spec.loadBalancerIP`, as text.
pub fn asked_address(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.load_balancer_ip.as_deref()
}

/// The addresses in `spec.loadBalancerIP` and `status.loadBalancer.ingress` of a Service of this operator, sorted, each
/// once, without the unspecified address. Empty for a Service of another owner (IPA-3).
pub fn shown_addresses(service: &Service) -> Vec<IpAddr> {
    if !is_ours(&service.metadata) {
        return Vec::new();
    }
    let mut shown: Vec<IpAddr> = asked_address(service)
        .into_iter()
        .chain(ingress(service))
        .filter_map(|text| text.parse().ok())
        .filter(|ip: &IpAddr| !ip.is_unspecified())
        .collect();
    shown.sort();
    shown.dedup();
    shown
}

/// The address that is announced for a Service of this operator although it asks for another one; `None` if a user requests it of
/// kube-vip by annotation, or a DHCP server chooses it.
pub fn announced_instead(service: &Service) -> Option<IpAddr> {
    let meta = &service.metadata;
    let is_told = meta::annotation(meta, keys::ANNOTATION_KUBE_VIP_ADDRESSES).is_some();
    let parsed = |text: &str| text.parse::<IpAddr>().ok();
    let wanted = parsed(asked_address(service)?)?;
    let external = parsed(ingress(service).next()?)?;
    let is_another = wanted != external && !wanted.is_unspecified();
    (is_ours(meta) && is_another && !is_told).then_some(external)
}

/// The `ip` of each entry of `status.loadBalancer.ingress`, as text. Entries without one are skipped (REC-2).
pub fn ingress(service: &Service) -> impl Iterator<Item = &str> {
    let status = service.status.iter();
    status
        .filter_map(|s| s.load_balancer.as_ref())
        .flat_map(|l| l.ingress.iter().flatten())
        .filter_map(|i| i.ip.as_deref())
}

/// A cached Node: its addresses alone (BE-8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// The IPv4 addresses in `status.addresses`. Host names are skipped.
    pub addresses: Vec<Ipv4Addr>,
    /// Whether the Node could not be decoded. It may then have further addresses (BE-8).
    pub undecodable: bool,
}

/// Converts a Node from the watch. If it cannot be decoded, the readable addresses are returned. Never `None`; the `Option`
/// is the signature of every converter.
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

/// Whether a Service or EndpointSlice has the label `loadbalancer.harvesterhci.io/servicelb: "true"` (SVC-1).
pub fn is_labelled(meta: &ObjectMeta) -> bool {
    meta.labels
        .as_ref()
        .is_some_and(|l| l.get(keys::LABEL_SERVICELB).is_some_and(|v| v == "true"))
}

/// Whether a Service or EndpointSlice belongs to a load balancer: by its label, or by an ownerReference (SVC-1).
pub fn is_ours(meta: &ObjectMeta) -> bool {
    is_labelled(meta) || meta.owner_references.iter().flatten().any(is_lb)
}

/// Whether an ownerReference is to a LoadBalancer of our API group, in any version (SVC-1).
pub fn is_lb(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    owner.kind == "LoadBalancer" && group == Some(harvester_lb_api::GROUP)
}

#[cfg(test)]
mod tests;
