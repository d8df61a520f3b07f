//! Features of later versions of the operator, whose objects this version must not touch (IPA-9).

use std::collections::BTreeSet;

use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta::{annotation, given, is_ours, key_of, name_of, shown};
use crate::snapshot::Snapshot;

/// Whether a load balancer has an annotation that only a later version supports.
pub(crate) fn asks_for_more(lb: &LoadBalancer) -> bool {
    let annotations = lb.metadata.annotations.as_ref();
    let asked = [
        keys::ANNOTATION_PRIMARY,
        keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
    ];
    annotations.is_some_and(|all| asked.iter().any(|name| all.contains_key(*name)))
}

/// Uids of the load balancers with a DHCP lease: an IPAllocation of this name, decoded or not.
pub(crate) fn leases(snapshot: &Snapshot) -> BTreeSet<&str> {
    let unknown = snapshot.undecodable.iter();
    let unknown = unknown.filter(|object| object.kind == "IPAllocation");
    let unknown = unknown.map(|object| &*object.name);
    let names = snapshot.records.iter().map(name_of).chain(unknown);
    names
        .filter_map(|name| name.strip_prefix(keys::LEASE_RECORD_PREFIX))
        .collect()
}

/// Load balancers that share addresses.
#[derive(Default)]
pub(crate) struct Sharing<'a> {
    /// Load balancers that own a Service together with others.
    pub(crate) parts: BTreeSet<Key>,
    /// Load balancers whose address others of the namespace share, by their annotation.
    pub(crate) primaries: BTreeSet<Key>,
    /// Namespace and address of shared addresses, and of those that shared Services show.
    pub(crate) addresses: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Sharing<'a> {
    pub(crate) fn read(lbs: &'a [LoadBalancer], services: &'a [Service]) -> Self {
        let mut all = Self::default();
        for lb in lbs {
            let meta = &lb.metadata;
            if let Some(primary) = annotation(meta, keys::ANNOTATION_PRIMARY) {
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                all.primaries.insert(Key::new(namespace, primary));
                all.addresses.insert((namespace, given(lb)));
            }
        }
        for service in services {
            let meta = &service.metadata;
            let key = key_of(meta);
            if !is_shared(meta) {
                continue;
            }
            let owners = owners(meta).map(|name| Key::new(&key.namespace, name));
            all.parts.extend(owners);
            all.parts.insert(key);
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let addresses = shown(service).map(|address| (namespace, address));
            all.addresses.extend(addresses);
        }
        all
    }
}

/// Names of the load balancers that own an object.
fn owners(meta: &ObjectMeta) -> impl Iterator<Item = &str> {
    let owners = meta.owner_references.iter().flatten();
    let owners = owners.filter(|owner| owner.kind == "LoadBalancer");
    owners.map(|owner| &*owner.name)
}

/// Whether an object that the operator owns has other owners than the load balancer of its name.
pub(crate) fn is_shared(meta: &ObjectMeta) -> bool {
    let name = meta.name.as_deref();
    is_ours(meta) && owners(meta).any(|owner| Some(owner) != name)
}
