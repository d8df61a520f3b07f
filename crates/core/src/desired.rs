//! The Service and the EndpointSlice of a load balancer of VM type (sections 8.2 and 8.3). Pure, and cannot fail.
//!
//! Each function starts from the object as it was observed and changes our fields only, so that what kube-vip, users
//! and the API server have set survives (rule: one writer of each field).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use harvester_lb_api::{API_VERSION, LoadBalancer, keys};
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::backends::Backend;
use crate::cached::State;
use crate::cached::{is_labelled, is_lb};
use crate::spec::Port;

const KIND: &str = "LoadBalancer";

/// Whose an object of the load balancer's name is (SVC-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// This operator made it, for this load balancer or for one of the same name before it.
    Ours,
    /// It belongs to other load balancers too, or to them alone: a version that knows of shared addresses made it, and
    /// this one does not touch it (IPA-9).
    Shared,
    /// Somebody else's; it is not touched.
    Foreign,
}

/// Whose an object of the load balancer's name is: ours if it has our label, or an ownerReference to a load balancer
/// of that name, and none to another.
pub fn ownership(meta: &ObjectMeta, lb_name: &str) -> Ownership {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let lbs = || owners.iter().filter(|o| is_lb(o));
    if !is_labelled(meta) && lbs().all(|o| o.name != lb_name) {
        Ownership::Foreign
    } else if lbs().any(|o| o.name != lb_name) {
        Ownership::Shared
    } else {
        Ownership::Ours
    }
}

/// The Service that should exist, from the one that does.
pub fn service(
    lb: &LoadBalancer,
    present: Option<&Service>,
    ports: &[Port],
    address: &str,
) -> Service {
    let mut service = present.cloned().unwrap_or_default();
    own(&mut service.metadata, lb);
    label(&mut service.metadata, keys::LABEL_SERVICELB, "true");
    let spec = service.spec.get_or_insert_default();
    let present_ports = spec.ports.take().unwrap_or_default();
    spec.ports = Some(
        ports
            .iter()
            .map(|port| service_port(port, &present_ports))
            .collect(),
    );
    if spec.type_.as_deref() != Some("LoadBalancer") {
        // New, or given another type by somebody. A node port for each listener would end at some 2,768 of them on
        // the whole host.
        spec.allocate_load_balancer_node_ports.get_or_insert(false);
        spec.type_ = Some("LoadBalancer".to_owned());
    }
    spec.load_balancer_ip = Some(address.to_owned());
    // With a selector the endpoint controller would fill the Service with pods.
    spec.selector = None;
    service
}

fn service_port(port: &Port, present: &[ServicePort]) -> ServicePort {
    let number = i32::from(port.port);
    let same = present
        .iter()
        .find(|p| p.port == number && p.protocol.as_deref().unwrap_or("TCP") == port.protocol);
    ServicePort {
        name: (!port.name.is_empty()).then(|| port.name.clone()),
        protocol: Some(port.protocol.to_owned()),
        port: number,
        target_port: Some(IntOrString::Int(i32::from(port.backend_port))),
        // A node port that was assigned once stays.
        node_port: same.and_then(|p| p.node_port),
        app_protocol: same.and_then(|p| p.app_protocol.clone()),
    }
}

/// Whether endpoints are ready, as far as is known: by uid and address (EPS-1).
pub fn known_readiness(present: Option<&EndpointSlice>) -> BTreeMap<(String, Ipv4Addr), bool> {
    let mut known = BTreeMap::new();
    for endpoint in present.iter().flat_map(|s| &s.endpoints) {
        // EPS-3: anything but one address and a target is no endpoint of ours.
        let [address] = endpoint.addresses.as_slice() else {
            continue;
        };
        let Ok(address) = address.parse() else {
            continue;
        };
        let Some(uid) = endpoint.target_ref.as_ref().and_then(|t| t.uid.clone()) else {
            continue;
        };
        let ready = endpoint
            .conditions
            .as_ref()
            .and_then(|c| c.ready)
            .unwrap_or(true);
        known.insert((uid, address), ready);
    }
    known
}

/// The EndpointSlice that should exist, from the one that does. `ready` says for each backend whether it takes
/// traffic. The stand-in is there exactly when none does (EPS-2).
pub fn endpoint_slice(
    lb: &LoadBalancer,
    present: Option<&EndpointSlice>,
    ports: &[Port],
    backends: &[(Backend, bool)],
) -> EndpointSlice {
    let mut slice = present.cloned().unwrap_or_default();
    own(&mut slice.metadata, lb);
    label(&mut slice.metadata, keys::LABEL_SERVICELB, "true");
    label(
        &mut slice.metadata,
        keys::LABEL_SERVICE_NAME,
        lb.metadata.name.as_deref().unwrap_or_default(),
    );
    label(&mut slice.metadata, keys::LABEL_MANAGED_BY, keys::MANAGER);
    "IPv4".clone_into(&mut slice.address_type);
    slice.ports = Some(ports.iter().map(slice_port).collect());
    slice.endpoints = endpoints(&lb.metadata, backends);
    slice
}

/// The backends that an EndpointSlice names. What is no endpoint of ours is left out (EPS-3); what they are at is not known from
/// here.
pub fn backends(slice: &EndpointSlice) -> Vec<Backend> {
    real_endpoints(slice)
        .filter_map(|endpoint| {
            let target = endpoint.target_ref.as_ref()?;
            let [address] = endpoint.addresses.as_slice() else {
                return None;
            };
            Some(Backend {
                name: target.name.as_deref()?.into(),
                uid: target.uid.clone()?,
                address: address.parse().ok()?,
                state: State::default(),
            })
        })
        .collect()
}

/// The EndpointSlice as it is, with these backends: for a load balancer of which nothing else can be told (BE-6).
pub fn with_backends(
    lb: &ObjectMeta,
    present: &EndpointSlice,
    backends: &[(Backend, bool)],
) -> EndpointSlice {
    EndpointSlice {
        endpoints: endpoints(lb, backends),
        ..present.clone()
    }
}

/// The endpoints of these backends, and the stand-in exactly when none of them takes traffic (EPS-2).
fn endpoints(lb: &ObjectMeta, backends: &[(Backend, bool)]) -> Vec<Endpoint> {
    let namespace = lb.namespace.clone();
    let mut endpoints: Vec<Endpoint> = backends
        .iter()
        .map(|(backend, ready)| Endpoint {
            addresses: vec![backend.address.to_string()],
            conditions: Some(conditions(*ready)),
            target_ref: Some(ObjectReference {
                kind: Some("VirtualMachineInstance".to_owned()),
                namespace: namespace.clone(),
                name: Some(backend.name.to_string()),
                uid: Some(backend.uid.clone()),
                ..ObjectReference::default()
            }),
            ..Endpoint::default()
        })
        .collect();
    if !backends.iter().any(|(_, ready)| *ready) {
        endpoints.push(Endpoint {
            addresses: vec![keys::DUMMY_ENDPOINT_ADDRESS.to_owned()],
            conditions: Some(conditions(true)),
            target_ref: Some(ObjectReference {
                namespace,
                name: lb.name.clone(),
                uid: Some(keys::DUMMY_ENDPOINT_UID.to_owned()),
                ..ObjectReference::default()
            }),
            ..Endpoint::default()
        });
    }
    endpoints
}

fn conditions(ready: bool) -> EndpointConditions {
    EndpointConditions {
        ready: Some(ready),
        ..EndpointConditions::default()
    }
}

fn slice_port(port: &Port) -> EndpointPort {
    EndpointPort {
        // The API server stores an absent name as an empty one, and it must equal the Service port's.
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.to_owned()),
        port: Some(i32::from(port.backend_port)),
        ..EndpointPort::default()
    }
}

/// The endpoints of a slice without the stand-in.
pub fn real_endpoints(slice: &EndpointSlice) -> impl Iterator<Item = &Endpoint> {
    slice.endpoints.iter().filter(|e| {
        e.target_ref
            .as_ref()
            .is_none_or(|t| t.uid.as_deref() != Some(keys::DUMMY_ENDPOINT_UID))
    })
}

/// Names the object after the load balancer and ties it to it. A reference to a load balancer of that name that is
/// gone is replaced (SVC-1); references of others stay.
fn own(meta: &mut ObjectMeta, lb: &LoadBalancer) {
    let name = lb.metadata.name.clone().unwrap_or_default();
    meta.namespace.clone_from(&lb.metadata.namespace);
    meta.name = Some(name.clone());
    let references = meta.owner_references.get_or_insert_default();
    let reference = OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: KIND.to_owned(),
        name: name.clone(),
        uid: lb.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    references.retain(|o| *o == reference || !(is_lb(o) && o.name == name));
    if !references.contains(&reference) {
        references.push(reference);
    }
}

fn label(meta: &mut ObjectMeta, key: &str, value: &str) {
    meta.labels
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
}

#[cfg(test)]
mod tests;
