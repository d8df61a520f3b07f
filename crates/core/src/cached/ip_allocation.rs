//! The copy of an IPAllocation, and the record of the ledger that it is.

use harvester_lb_api::meta::{self, Decoded};
use harvester_lb_api::{IPAllocation, Owner as ApiOwner, Phase as ApiPhase};
use harvester_lb_ipam::{Micros, Owner, OwnerId, Phase, Record, RecordSpec, Uid, addr};
use harvester_lb_object::{Key, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::time;

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
                version: meta::version(&invalid.metadata),
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
                version: meta::version(&object.metadata),
                why,
            },
        }
    }
}

/// Whether the name of an IPAllocation is none that an address has (IPA-8).
fn is_reserved(meta: &ObjectMeta) -> bool {
    let name = meta.name.as_deref().unwrap_or_default();
    addr::parse_record_name(name).is_none()
}

/// Reads a record. Its name must be that of its address, else it would not lock what it speaks of.
pub fn record(object: &IPAllocation) -> Result<Record, String> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let spec = &object.spec;
    let addr = addr::parse(&spec.address)
        .ok_or_else(|| format!("spec.address {:?} is no address", spec.address))?;
    let expected = addr::record_name(addr);
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
        version: meta::version(&object.metadata),
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

/// The id of an object in the ledger.
pub fn id(key: &Key) -> OwnerId {
    OwnerId::new(&key.namespace, &key.name)
}

/// The key of an id.
pub fn key(id: &OwnerId) -> Key {
    Key::new(id.namespace(), id.name())
}
