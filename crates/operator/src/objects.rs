//! The copies that the stores keep: what is used of each object, and nothing else.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use harvester_lb_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use harvester_lb_api::{
    Condition, IPAllocation, IPPool, IPPoolSpec, LoadBalancer, Owner as ApiOwner,
    Phase as ApiPhase, keys, projection,
};
use harvester_lb_controller_kit::watch::Decoded;
use harvester_lb_controller_kit::{Key, Version};
use harvester_lb_ipam::{Micros, Owner, OwnerId, Phase, Record, RecordSpec, Uid};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::backends::{self, State};
use crate::refusal::ingress;
use crate::time;

/// A load balancer as it is stored.
#[derive(Debug)]
pub enum Lb {
    /// It could be decoded.
    Valid(Box<LoadBalancer>),
    /// It could not; its metadata and why.
    Invalid(Box<ObjectMeta>, String),
}

impl Lb {
    /// From the watch.
    pub fn from_watch(decoded: Decoded<LoadBalancer>) -> Self {
        match decoded {
            Ok(object) => Self::valid(object),
            Err(invalid) => Self::Invalid(Box::new(pruned(invalid.metadata)), invalid.error),
        }
    }

    /// A decoded object.
    pub fn valid(mut object: LoadBalancer) -> Self {
        object.metadata = pruned(object.metadata);
        // Free text of any length that nothing here reads; a patch of differences leaves it as it is.
        object.spec.description = None;
        Self::Valid(Box::new(object))
    }

    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Valid(object) => &object.metadata,
            Self::Invalid(meta, _) => meta,
        }
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }
}

/// A pool as it is stored. Its address maps, which can be large, are kept only if somebody else wrote them.
#[derive(Debug)]
pub struct Pool {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its spec, or why it could not be decoded.
    pub spec: Result<IPPoolSpec, String>,
    /// `status.total`, `status.available`, `status.lastAllocated`, if there is a status.
    pub counters: Option<(i64, i64, String)>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// Digest of the maps that are stored now.
    pub digest: String,
    /// The maps, if the annotation does not say that this operator wrote them (IPA-1).
    pub foreign_maps: Option<Maps>,
}

/// The address maps of a pool.
#[derive(Debug, Default, Clone)]
pub struct Maps {
    /// Address to id of the holder.
    pub allocated: BTreeMap<String, String>,
    /// Address to id of the last holder.
    pub history: BTreeMap<String, String>,
}

impl Pool {
    /// From the watch.
    pub fn from_watch(decoded: Decoded<IPPool>) -> Self {
        match decoded {
            Ok(object) => Self::valid(object),
            Err(invalid) => Self {
                meta: pruned(invalid.metadata),
                spec: Err(invalid.error),
                counters: None,
                conditions: Vec::new(),
                digest: String::new(),
                foreign_maps: None,
            },
        }
    }

    /// A decoded object.
    pub fn valid(object: IPPool) -> Self {
        let meta = pruned(object.metadata);
        let status = object.status;
        let counters = status
            .as_ref()
            .map(|s| (s.total, s.available, s.last_allocated.clone()));
        let (maps, conditions) = status.map_or_else(Default::default, |s| {
            let maps = Maps {
                allocated: s.allocated.unwrap_or_default(),
                history: s.allocated_history.unwrap_or_default(),
            };
            (maps, s.conditions.unwrap_or_default())
        });
        let digest = projection::digest(Some(&maps.allocated), Some(&maps.history));
        let ours = annotation(&meta, keys::ANNOTATION_PROJECTION) == Some(&*digest);
        let empty = maps.allocated.is_empty() && maps.history.is_empty();
        Self {
            meta,
            spec: Ok(object.spec),
            counters,
            conditions,
            digest,
            foreign_maps: (!ours && !empty).then_some(maps),
        }
    }

    /// Whether this operator wrote the status as it is.
    pub fn is_our_projection(&self) -> bool {
        annotation(&self.meta, keys::ANNOTATION_PROJECTION) == Some(&*self.digest)
    }
}

/// A record as it is stored.
#[derive(Debug)]
pub enum Allocation {
    /// It could be read.
    Valid {
        /// What it says.
        record: Record,
        /// The uid of the object that says so.
        uid: Uid,
    },
    /// It could not; it still blocks its name (IPA-1).
    Unreadable {
        /// Its resource version.
        version: Version,
        /// What is wrong with it.
        why: String,
    },
    /// Its name is no address: a kind of record that a later version makes (IPA-8). It says nothing of addresses here.
    Reserved,
}

impl Allocation {
    /// From the watch, or from the answer to a write.
    pub fn from_watch(decoded: Decoded<IPAllocation>) -> Self {
        match decoded {
            Ok(object) => Self::decoded(&object),
            Err(invalid) if is_reserved(&invalid.metadata) => Self::Reserved,
            Err(invalid) => Self::Unreadable {
                version: Version::of(&invalid.metadata),
                why: invalid.error,
            },
        }
    }

    /// A decoded object.
    pub fn decoded(object: &IPAllocation) -> Self {
        match record(object) {
            _ if is_reserved(&object.metadata) => Self::Reserved,
            Ok(record) => Self::Valid {
                record,
                uid: Uid::new(object.metadata.uid.as_deref().unwrap_or_default()),
            },
            Err(why) => Self::Unreadable {
                version: Version::of(&object.metadata),
                why,
            },
        }
    }
}

/// Whether the name of an IPAllocation is none that an address has (IPA-8).
fn is_reserved(meta: &ObjectMeta) -> bool {
    let name = meta.name.as_deref().unwrap_or_default();
    harvester_lb_ipam::addr::parse_record_name(name).is_none()
}

/// Reads a record. Its name must be that of its address, else it would not lock what it speaks of.
pub fn record(object: &IPAllocation) -> Result<Record, String> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let spec = &object.spec;
    let addr = harvester_lb_ipam::addr::parse(&spec.address)
        .ok_or_else(|| format!("spec.address {:?} is no address", spec.address))?;
    let expected = harvester_lb_ipam::addr::record_name(addr);
    if name != expected {
        return Err(format!(
            "spec.address {addr} belongs into an object of the name {expected}"
        ));
    }
    let created = time::created(&object.metadata);
    let bound_at = spec.bound_at.as_deref().and_then(time::parse);
    Ok(Record {
        spec: RecordSpec {
            addr,
            pool: spec.pool.as_str().into(),
            owner: Owner::new(&spec.owner.namespace, &spec.owner.name, &spec.owner.uid),
            phase: match spec.phase {
                ApiPhase::Bound => Phase::Bound,
                ApiPhase::Released => Phase::Released,
            },
            // Of the past it may not be known when the address was taken; to remember it now is to take nothing, and
            // must not move the place where the search goes on (ALC-3).
            bound_at: bound_at.unwrap_or(match spec.phase {
                ApiPhase::Bound => created,
                ApiPhase::Released => Micros::MIN,
            }),
            released_at: match spec.phase {
                ApiPhase::Bound => None,
                ApiPhase::Released => Some(
                    spec.released_at
                        .as_deref()
                        .and_then(time::parse)
                        .or(bound_at)
                        .unwrap_or(created),
                ),
            },
        },
        version: harvester_lb_ipam::Version(Version::of(&object.metadata).0),
    })
}

/// Writes a record.
pub fn allocation_spec(spec: &RecordSpec) -> harvester_lb_api::IPAllocationSpec {
    harvester_lb_api::IPAllocationSpec {
        address: spec.addr.to_string(),
        pool: spec.pool.to_string(),
        owner: ApiOwner {
            namespace: spec.owner.id.namespace().to_owned(),
            name: spec.owner.id.name().to_owned(),
            uid: spec.owner.uid.to_string(),
        },
        phase: match spec.phase {
            Phase::Bound => ApiPhase::Bound,
            Phase::Released => ApiPhase::Released,
        },
        bound_at: (spec.bound_at > Micros(0)).then(|| time::rfc3339_micros(spec.bound_at)),
        released_at: spec.released_at.map(time::rfc3339_micros),
    }
}

/// A running virtual machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Vmi {
    /// Its uid.
    pub uid: String,
    /// Its labels, which selectors look at.
    pub labels: BTreeMap<String, String>,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// Its address as a backend (BE-2).
    pub address: Option<Ipv4Addr>,
    /// What it is at, as far as that matters to its traffic (BE-5).
    pub state: State,
    /// Finalizers that must remain when ours of old are taken off; `None` if it carries none of those (FIN-1).
    pub finalizers_to_keep: Option<Vec<String>>,
}

impl Vmi {
    /// From the watch. An object that cannot be decoded is a backend without an address.
    pub fn from_watch(decoded: Decoded<VirtualMachineInstance>) -> Self {
        let (meta, status) = match decoded {
            Ok(object) => (object.metadata, object.status),
            Err(invalid) => (invalid.metadata, None),
        };
        Self {
            address: status
                .as_ref()
                .and_then(|s| backends::address(s.interfaces.as_deref())),
            state: status.as_ref().map(State::of).unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers_to_keep: without_legacy(&meta, &keys::LEGACY_VM_FINALIZERS),
            uid: meta.uid.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
        }
    }
}

/// A virtual machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Vm {
    /// The guest cluster that it is a node of, if the node driver made it.
    pub guest_cluster: Option<String>,
    /// Whether the node driver made it.
    pub from_node_driver: bool,
    /// Whether its guest cluster is being removed.
    pub cluster_removed: bool,
    /// Since when it is on its way out.
    pub deleted_at: Option<Micros>,
    /// As for a [`Vmi`].
    pub finalizers_to_keep: Option<Vec<String>>,
}

impl Vm {
    /// From the watch.
    pub fn from_watch(decoded: Decoded<VirtualMachine>) -> Self {
        let meta = match decoded {
            Ok(object) => object.metadata,
            Err(invalid) => invalid.metadata,
        };
        let label = |name: &str| meta.labels.as_ref().and_then(|l| l.get(name));
        Self {
            guest_cluster: label(keys::LABEL_GUEST_CLUSTER)
                .filter(|c| !c.is_empty())
                .cloned(),
            from_node_driver: label(keys::LABEL_CREATOR)
                .is_some_and(|c| c == keys::CREATOR_NODE_DRIVER),
            cluster_removed: annotation(&meta, keys::ANNOTATION_REMOVE_ALL_PVCS) == Some("true"),
            deleted_at: meta.deletion_timestamp.as_ref().map(time::of),
            finalizers_to_keep: without_legacy(&meta, &keys::LEGACY_VM_FINALIZERS),
        }
    }
}

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

/// The value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations
        .as_ref()
        .and_then(|a| a.get(name))
        .map(String::as_str)
}

/// The finalizers without the given ones, or `None` if it has none of them.
pub fn without_legacy(meta: &ObjectMeta, legacy: &[&str]) -> Option<Vec<String>> {
    let all = meta.finalizers.as_ref()?;
    let kept: Vec<String> = all
        .iter()
        .filter(|f| !legacy.contains(&f.as_str()))
        .cloned()
        .collect();
    (kept.len() != all.len()).then_some(kept)
}

/// The id of an object in the ledger.
pub fn id(key: &Key) -> OwnerId {
    OwnerId::new(&key.namespace, &key.name)
}

/// The key of an id.
pub fn key(id: &OwnerId) -> Key {
    Key::new(id.namespace(), id.name())
}

fn pruned(mut meta: ObjectMeta) -> ObjectMeta {
    meta.managed_fields = None;
    // kubectl keeps a copy of the whole object here; up to 256 KiB that nobody reads.
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    meta
}

#[cfg(test)]
mod tests;
