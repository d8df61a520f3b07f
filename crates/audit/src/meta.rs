//! Accessors for fields of objects.

use std::net::{IpAddr, Ipv6Addr};

use harvester_lb_api::{IPAllocation, LoadBalancer, keys};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Namespace and name.
pub(crate) fn key_of(meta: &ObjectMeta) -> Key {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    Key::new(part(&meta.namespace), part(&meta.name))
}

/// Whether the operator owns a Service or an EndpointSlice (SVC-1): it has the operator's label, or the LoadBalancer of
/// its name as an owner.
pub(crate) fn is_ours(meta: &ObjectMeta) -> bool {
    let name = meta.name.as_deref();
    let owners = meta.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.kind == "LoadBalancer");
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(keys::LABEL_SERVICELB))
        .map(String::as_str)
        == Some("true")
        || owners.any(|owner| Some(&*owner.name) == name)
}

/// Whether an object has one owner, of this uid (section 8.2).
pub(crate) fn is_owned_by(meta: &ObjectMeta, uid: &str) -> bool {
    let owners: Vec<&OwnerReference> = meta.owner_references.iter().flatten().collect();
    matches!(owners[..], [owner] if owner.uid == uid)
}

/// `spec.loadBalancerIP` of a Service; empty if it requests none.
pub(crate) fn asked(service: &Service) -> &str {
    let spec = service.spec.as_ref();
    let asked = spec.and_then(|spec| spec.load_balancer_ip.as_deref());
    asked.unwrap_or_default()
}

/// The address that is announced for a Service; empty if there is none (REC-2).
pub(crate) fn announced(service: &Service) -> &str {
    let status = service.status.as_ref();
    let ingress =
        status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
    ingress
        .and_then(|ingress| ingress.ip.as_deref())
        .unwrap_or_default()
}

/// The requested and the announced address of a Service, without empty ones.
pub(crate) fn shown(service: &Service) -> impl Iterator<Item = &str> {
    [asked(service), announced(service)]
        .into_iter()
        .filter(|address| !address.is_empty())
}

/// The value of an annotation.
pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// `status.allocatedAddress.ip` of a load balancer; empty if there is none.
pub(crate) fn given(lb: &LoadBalancer) -> &str {
    let status = lb.status.as_ref();
    let given = status.and_then(|status| status.allocated_address.as_ref()?.ip.as_deref());
    given.unwrap_or_default()
}

/// The address that an IPAllocation is named after (section 6.5): the text of an IPv4 address, or the eight groups of an
/// IPv6 address with `-` between them. None for the name of a later kind of record (IPA-8).
pub(crate) fn address_of_name(name: &str) -> Option<IpAddr> {
    if !name.contains('-') {
        return name.parse().ok().map(IpAddr::V4);
    }
    let is_group = |group: &str| {
        let mut digits = group.bytes();
        group.len() == 4 && digits.all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let are_groups = name.split('-').count() == 8 && name.split('-').all(is_group);
    let address: Option<Ipv6Addr> = name.replace('-', ":").parse().ok();
    address.filter(|_| are_groups).map(IpAddr::V6)
}

/// Name of an IPAllocation.
pub(crate) fn name_of(record: &IPAllocation) -> &str {
    record.metadata.name.as_deref().unwrap_or_default()
}

/// Section 6.5: whether an IPAllocation is named after another address than its own.
pub(crate) fn is_misnamed(record: &IPAllocation) -> bool {
    let named = address_of_name(name_of(record));
    named.is_some() && named != record.spec.address.parse().ok()
}

/// The address that a load balancer requests; an error if it is none (REQ-1).
pub(crate) fn requested(lb: &LoadBalancer) -> Option<Result<IpAddr, ()>> {
    let text = annotation(&lb.metadata, keys::ANNOTATION_REQUESTED_ADDRESS)?;
    let address = text.trim().parse::<IpAddr>();
    Some(address.map(|it| it.to_canonical()).map_err(|_| ()))
}
