//! The cached form of an IPPool.

use std::collections::BTreeMap;

use harvester_lb_api::meta::{Decoded, annotation};
use harvester_lb_api::{Condition, IPPool, IPPoolSpec, keys, projection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::trim::pruned;

/// A cached IPPool. Its address maps can be large and are kept only if another writer wrote them (IPA-1).
#[derive(Debug)]
pub struct Pool {
    /// Its metadata, trimmed.
    pub meta: ObjectMeta,
    /// Its spec, or the decoding error.
    pub spec: Result<IPPoolSpec, String>,
    /// `status.total`, `status.available` and `status.lastAllocated`; `None` without a status.
    pub counters: Option<(i64, i64, String)>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// Digest of the stored maps, see [`projection::digest`].
    pub digest: String,
    /// The maps, if they are not empty and the annotation `projection` does not match [`Pool::digest`]: another writer
    /// wrote them (IPA-1).
    pub foreign_maps: Option<Maps>,
}

/// The address maps in the status of a pool. Addresses and ids (`namespace/name`) are text as stored.
#[derive(Debug, Default, Clone)]
pub struct Maps {
    /// `status.allocated`: address to the id of the owner.
    pub allocated: BTreeMap<String, String>,
    /// `status.allocatedHistory`: address to the id of the last owner.
    pub history: BTreeMap<String, String>,
}

impl Pool {
    /// Converts an object from the watch.
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

    /// Converts a decoded object.
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

    /// Whether this operator wrote the stored maps: the annotation `projection` equals their digest (IPA-1).
    pub fn is_our_projection(&self) -> bool {
        annotation(&self.meta, keys::ANNOTATION_PROJECTION) == Some(&*self.digest)
    }
}

#[cfg(test)]
mod tests;
