//! The copy of a pool.

use std::collections::BTreeMap;

use harvester_lb_api::meta::{Decoded, annotation};
use harvester_lb_api::{Condition, IPPool, IPPoolSpec, keys, projection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::trim::pruned;

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
