//! The cached form of an IPAllocation, and its conversion from and to a record of the ledger.

use harvester_lb_api::meta::{self, Decoded};
use harvester_lb_api::{IPAllocation, Owner as ApiOwner, Phase as ApiPhase, keys};
use harvester_lb_ipam::{Micros, Owner, OwnerId, Phase, Record, RecordSpec, Uid, addr};
use harvester_lb_object::{Key, Version, is_dns_label, is_dns_subdomain};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::dhcp::record::{self as lease_record, LeaseRecord};
use crate::time;

/// A cached IPAllocation.
#[derive(Debug)]
pub enum Allocation {
    /// A readable object.
    Valid {
        /// Its content.
        record: Record,
        /// The uid of the IPAllocation itself, a precondition of its deletion (IPA-5).
        uid: Uid,
        /// Whether it has the annotation of a group, in any phase.
        is_marked: bool,
    },
    /// Its name is an address, and its content is unreadable. The address stays blocked, the object is left alone (IPA-1,
    /// IPA-8).
    Unreadable {
        /// Its resource version.
        version: Version,
        /// What is wrong with it.
        why: String,
    },
    /// A DHCP lease (DHC-1). Boxed: there are few leases beside the addresses of pools, which are smaller.
    Lease(Box<LeaseRecord>),
    /// The record of a DHCP lease that cannot be read: why. It is left alone, and so is its load balancer.
    UnreadableLease(String),
    /// Its name is no address: reserved for later kinds of record. Allocation, projection and export ignore it (IPA-8).
    Reserved,
}

impl Allocation {
    /// Converts an object from the watch or from the response to a write.
    pub fn from_watch(decoded: Decoded<IPAllocation>) -> Self {
        match decoded {
            Ok(object) => Self::decoded(&object),
            Err(invalid) if is_lease(&invalid.metadata) => Self::UnreadableLease(invalid.error),
            Err(invalid) if is_reserved(&invalid.metadata) => Self::Reserved,
            Err(invalid) => Self::Unreadable {
                version: meta::version(&invalid.metadata),
                why: invalid.error,
            },
        }
    }

    /// Converts a decoded object. Its content may still be unreadable, see [`record`].
    pub fn decoded(object: &IPAllocation) -> Self {
        if is_lease(&object.metadata) {
            return match LeaseRecord::read(object) {
                Ok(record) => Self::Lease(Box::new(record)),
                Err(why) => Self::UnreadableLease(why),
            };
        }
        match record(object) {
            _ if is_reserved(&object.metadata) => Self::Reserved,
            Ok(record) => Self::Valid {
                record,
                uid: Uid::new(object.metadata.uid.as_deref().unwrap_or_default()),
                is_marked: meta::annotation(&object.metadata, keys::ANNOTATION_PRIMARY).is_some(),
            },
            Err(why) => Self::Unreadable {
                version: meta::version(&object.metadata),
                why,
            },
        }
    }
}

/// Whether the name of an IPAllocation is that of a DHCP lease.
fn is_lease(meta: &ObjectMeta) -> bool {
    let name = meta.name.as_deref().unwrap_or_default();
    lease_record::owner_of(name).is_some()
}

/// Whether the name of an IPAllocation is not that of an address (IPA-8).
fn is_reserved(meta: &ObjectMeta) -> bool {
    let name = meta.name.as_deref().unwrap_or_default();
    addr::parse_record_name(name).is_none()
}

/// Reads the record of an IPAllocation. An absent time becomes the creation time of the object, an absent `boundAt` of a
/// Released one [`Micros::MIN`].
///
/// # Errors
/// `spec.address` is no address, no load balancer can have the name of its owner, its phase is one of a DHCP lease, or the object is not named after it: then it would not lock that address (ALC-8).
pub fn record(object: &IPAllocation) -> Result<Record, String> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let spec = &object.spec;
    let addr = addr::parse(&spec.address)
        .ok_or_else(|| format!("spec.address {:?} is not an IP address", spec.address))?;
    let expected = addr::record_name(addr);
    if name != expected {
        return Err(format!(
            "spec.address {addr} requires the object name {expected}"
        ));
    }
    let phase = match spec.phase {
        ApiPhase::Bound => Phase::Bound,
        ApiPhase::Released => Phase::Released,
        ApiPhase::Pending | ApiPhase::Releasing => {
            return Err(format!(
                "spec.phase {:?} is for DHCP leases; an address of a pool is Bound or Released",
                spec.phase
            ));
        }
    };
    let owner = &spec.owner;
    if !is_dns_label(&owner.namespace) || !is_dns_subdomain(&owner.name) {
        return Err(format!(
            "spec.owner {:?} is not namespace and name of a load balancer",
            format!("{}/{}", owner.namespace, owner.name)
        ));
    }
    let created = time::created(&object.metadata);
    let bound_at = spec.bound_at.as_deref().and_then(time::parse);
    Ok(Record {
        spec: RecordSpec {
            addr,
            pool: spec.pool.as_str().into(),
            owner: Owner::new(&spec.owner.namespace, &spec.owner.name, &spec.owner.uid),
            phase,
            // An imported Released record may lack boundAt. It is no allocation and must not move the round robin's
            // position (ALC-3).
            bound_at: bound_at.unwrap_or(match phase {
                Phase::Bound => created,
                Phase::Released => Micros::MIN,
            }),
            released_at: match phase {
                Phase::Bound => None,
                Phase::Released => Some(
                    spec.released_at
                        .as_deref()
                        .and_then(time::parse)
                        .or(bound_at)
                        .unwrap_or(created),
                ),
            },
            group: group(object).map(Into::into),
        },
        version: meta::version(&object.metadata),
    })
}

/// The name of the group whose address a Bound IPAllocation has, if that is not its owner's (SHR-5). It is an annotation, because a
/// definition of an earlier version would prune a field.
fn group(object: &IPAllocation) -> Option<&str> {
    let group = meta::annotation(&object.metadata, keys::ANNOTATION_PRIMARY)?;
    let is_of_group = object.spec.phase == ApiPhase::Bound
        && is_dns_subdomain(group)
        && group != object.spec.owner.name;
    is_of_group.then_some(group)
}

/// The spec of the IPAllocation of a record, the inverse of [`record`], its group apart. Times are RFC 3339 with microseconds; an unknown
/// `boundAt` is left out.
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
        lease: None,
    }
}

/// The ledger's id of the load balancer of this key.
pub fn id(key: &Key) -> OwnerId {
    OwnerId::new(&key.namespace, &key.name)
}

/// The key of the load balancer of this ledger id, the inverse of [`id`].
pub fn key(id: &OwnerId) -> Key {
    Key::new(id.namespace(), id.name())
}

#[cfg(test)]
mod tests;
