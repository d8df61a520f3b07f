//! The desired Service and EndpointSlice of a load balancer of VM type (sections 8.2 and 8.3). Pure and infallible.
//!
//! Each function starts from the observed object and changes the operator's fields only, so that fields set by kube-vip,
//! users and the API server survive (rule: one writer of each field), and objects of the Go operator change only where a rule
//! adds something (OPS-2).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use harvester_lb_api::{API_VERSION, LoadBalancer, keys};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::backends::Backend;
use crate::cached::VmiState;
use crate::cached::{is_labelled, is_lb};
use crate::spec::Port;

const KIND: &str = "LoadBalancer";

/// `addressType` of the EndpointSlices (section 8.3).
pub const ADDRESS_TYPE: &str = "IPv4";

/// The owner of a Service or EndpointSlice with the load balancer's name (SVC-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// This operator created it, for this load balancer, for an earlier one of the same name, or for those that share its address.
    Ours,
    /// Another owner's; the operator does not write it.
    Foreign,
}

/// Determines the owner of an object with the load balancer's name (SVC-1). It is ours if it has our label or an
/// ownerReference to a LoadBalancer of that name.
pub fn ownership(meta: &ObjectMeta, lb_name: &str) -> Ownership {
    let mut owners = meta.owner_references.iter().flatten();
    if is_labelled(meta) || owners.any(|o| is_lb(o) && o.name == lb_name) {
        Ownership::Ours
    } else {
        Ownership::Foreign
    }
}

/// Whether an object has an ownerReference to a LoadBalancer of this name with another uid: an earlier or later one of the
/// name (SVC-1).
pub fn is_owned_by_other_uid(meta: &ObjectMeta, lb_name: &str, uid: &str) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|o| is_lb(o) && o.name == lb_name && o.uid != uid)
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPort {
    /// Its name; may be empty if it is the only one.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'static str,
    /// 1 to 65535.
    pub port: u16,
    /// Port of the backends.
    pub target: IntOrString,
}

impl DesiredPort {
    /// A port as a Service has it; `None` if its protocol or number is unknown.
    pub fn stored(port: &ServicePort) -> Option<Self> {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let number = u16::try_from(port.port).ok()?;
        Some(Self {
            name: port.name.clone().unwrap_or_default(),
            protocol: ["TCP", "UDP", "SCTP"]
                .into_iter()
                .find(|it| *it == protocol)?,
            port: number,
            target: port
                .target_port
                .clone()
                .unwrap_or(IntOrString::Int(port.port)),
        })
    }

    /// The port of a listener.
    pub fn of_listener(port: &Port) -> Self {
        Self {
            name: port.name.clone(),
            protocol: port.protocol,
            port: port.port,
            target: IntOrString::Int(i32::from(port.backend_port)),
        }
    }
}

/// The desired Service of one load balancer (REC-3, REC-4), from the observed one if there is one. `address` is the value of
/// `spec.loadBalancerIP`: the allocated address, or 0.0.0.0 for DHCP (OPS-3).
pub fn service(
    lb: &LoadBalancer,
    present: Option<&Service>,
    ports: &[Port],
    address: &str,
) -> Service {
    let meta = &lb.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), &*name);
    let owners = [(name, meta.uid.clone().unwrap_or_default())];
    let ports: Vec<DesiredPort> = ports.iter().map(DesiredPort::of_listener).collect();
    shared_service(&key, present, &owners, &ports, address)
}

/// The desired Service of several load balancers: `owners` are their names and uids (SHR-3). `address` as for [`service`].
pub fn shared_service(
    key: &Key,
    present: Option<&Service>,
    owners: &[(String, String)],
    ports: &[DesiredPort],
    address: &str,
) -> Service {
    let mut service = present.cloned().unwrap_or_default();
    own(&mut service.metadata, key, owners);
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
        // A new Service, or one whose type was edited. With node ports the whole cluster could have 2,768 listeners, the
        // size of the node port range.
        spec.allocate_load_balancer_node_ports.get_or_insert(false);
        spec.type_ = Some("LoadBalancer".to_owned());
    }
    spec.load_balancer_ip = Some(address.to_owned());
    // With a selector the EndpointSlice controller would add slices of pods.
    spec.selector = None;
    service
}

fn service_port(port: &DesiredPort, present: &[ServicePort]) -> ServicePort {
    let number = i32::from(port.port);
    let same = present
        .iter()
        .find(|p| p.port == number && p.protocol.as_deref().unwrap_or("TCP") == port.protocol);
    ServicePort {
        name: (!port.name.is_empty()).then(|| port.name.clone()),
        protocol: Some(port.protocol.to_owned()),
        port: number,
        target_port: Some(port.target.clone()),
        // An assigned node port stays.
        node_port: same.and_then(|p| p.node_port),
        app_protocol: same.and_then(|p| p.app_protocol.clone()),
    }
}

/// The `ready` value of each endpoint in the observed EndpointSlice, by uid and address (EPS-1). Absent means ready, as in
/// the Kubernetes API.
pub fn known_readiness(present: Option<&EndpointSlice>) -> BTreeMap<(String, Ipv4Addr), bool> {
    let mut known = BTreeMap::new();
    for endpoint in present.iter().flat_map(|s| &s.endpoints) {
        let Some((_, uid, address)) = identity(endpoint) else {
            continue;
        };
        let ready = endpoint
            .conditions
            .as_ref()
            .and_then(|c| c.ready)
            .unwrap_or(true);
        known.insert((uid.to_owned(), address), ready);
    }
    known
}

/// Target, uid of the target and address of an endpoint. `None`: it does not have exactly one IPv4 address, or no target with
/// a uid, and is replaced (EPS-3).
fn identity(endpoint: &Endpoint) -> Option<(&ObjectReference, &str, Ipv4Addr)> {
    let [address] = endpoint.addresses.as_slice() else {
        return None;
    };
    let target = endpoint.target_ref.as_ref()?;
    Some((target, target.uid.as_deref()?, address.parse().ok()?))
}

/// The desired EndpointSlice, from the observed one if there is one. Each backend comes with its `ready` value. The stand-in
/// is present exactly when no backend is ready (EPS-2).
pub fn endpoint_slice(
    lb: &LoadBalancer,
    present: Option<&EndpointSlice>,
    ports: &[Port],
    backends: &[(Backend, bool)],
) -> EndpointSlice {
    let of = lb.metadata.name.as_deref().unwrap_or_default();
    let ports: Vec<DesiredPort> = ports.iter().map(DesiredPort::of_listener).collect();
    shared_endpoint_slice(lb, of, present, &ports, backends)
}

/// As [`endpoint_slice`], for the Service of this name, under which several load balancers share an address (SHR-3).
pub fn shared_endpoint_slice(
    lb: &LoadBalancer,
    service: &str,
    present: Option<&EndpointSlice>,
    ports: &[DesiredPort],
    backends: &[(Backend, bool)],
) -> EndpointSlice {
    let mut slice = present.cloned().unwrap_or_default();
    let meta = &lb.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), &*name);
    let owners = [(name, meta.uid.clone().unwrap_or_default())];
    own(&mut slice.metadata, &key, &owners);
    label(&mut slice.metadata, keys::LABEL_SERVICELB, "true");
    label(&mut slice.metadata, keys::LABEL_SERVICE_NAME, service);
    label(&mut slice.metadata, keys::LABEL_MANAGED_BY, keys::MANAGER);
    ADDRESS_TYPE.clone_into(&mut slice.address_type);
    // The API server answers an empty list with none.
    slice.ports = (!ports.is_empty()).then(|| ports.iter().map(slice_port).collect());
    slice.endpoints = endpoints(&lb.metadata, backends);
    slice
}

/// The backends in an EndpointSlice, without malformed endpoints (EPS-3). Their state is unknown here and set to
/// [`VmiState::Running`].
pub fn backends(slice: &EndpointSlice) -> Vec<Backend> {
    real_endpoints(slice)
        .filter_map(|endpoint| {
            let (target, uid, address) = identity(endpoint)?;
            Some(Backend {
                name: target.name.as_deref()?.into(),
                uid: uid.to_owned(),
                address,
                state: VmiState::default(),
            })
        })
        .collect()
}

/// The observed EndpointSlice with other backends and nothing else changed: for a load balancer whose other fields cannot be
/// derived, as its spec is refused (BE-6). Each backend comes with its `ready` value.
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

/// The endpoints of these backends, and the stand-in exactly when none of them is ready (EPS-2).
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

fn slice_port(port: &DesiredPort) -> EndpointPort {
    EndpointPort {
        // The API server stores an absent name as an empty one, and it must equal the Service port's.
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.to_owned()),
        port: match port.target {
            IntOrString::Int(number) => Some(number),
            IntOrString::String(_) => None,
        },
        ..EndpointPort::default()
    }
}

/// The endpoints of an EndpointSlice without the stand-in (EPS-2).
pub fn real_endpoints(slice: &EndpointSlice) -> impl Iterator<Item = &Endpoint> {
    slice.endpoints.iter().filter(|e| {
        e.target_ref
            .as_ref()
            .is_none_or(|t| t.uid.as_deref() != Some(keys::DUMMY_ENDPOINT_UID))
    })
}

/// Sets name, namespace and the ownerReferences to load balancers: their names and uids. References to others of them are removed,
/// such as that to a deleted one of the same name (SVC-1); those to other kinds stay.
fn own(meta: &mut ObjectMeta, key: &Key, owners: &[(String, String)]) {
    meta.namespace = Some(key.namespace.to_string());
    meta.name = Some(key.name.to_string());
    let references = meta.owner_references.get_or_insert_default();
    let mut wanted: Vec<OwnerReference> = owners
        .iter()
        .map(|(name, uid)| OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            name: name.clone(),
            uid: uid.clone(),
            ..OwnerReference::default()
        })
        .collect();
    references.retain(|o| wanted.contains(o) || !is_lb(o));
    wanted.retain(|o| !references.contains(o));
    references.append(&mut wanted);
}

fn label(meta: &mut ObjectMeta, key: &str, value: &str) {
    meta.labels
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
}

#[cfg(test)]
mod tests;
