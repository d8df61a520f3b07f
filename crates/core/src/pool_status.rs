//! What the status of a pool says: counters, the two address maps, conditions (section 6.2).
//!
//! The maps are a projection of the records, written late and coalesced (POOL-3). Allocation never waits for them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use harvester_lb_api::condition::{self, ConditionStatus, READY};
use harvester_lb_api::meta::{annotation, finalizers_without};
use harvester_lb_api::{Condition, keys, projection};
use harvester_lb_ipam::{Ledger, OwnerId, PoolRanges};
use serde_json::{Value, json};

use crate::cached::Pool;
use crate::pool_spec::ranges_of;
use crate::status::UNSUPPORTED_ANNOTATION;
use crate::unsupported;

/// Bytes that the two maps may take in the object. The API server takes requests up to 3 MiB and etcd objects up to
/// 1.5 MiB; the rest of the object needs room too, and 1 MiB is what the contract promises.
pub const MAPS_LIMIT: usize = 1_000_000;

/// Reason of a pool that cannot be used.
pub const INVALID_RANGES: &str = "InvalidRanges";
/// Condition: the pool shares addresses with an older one (IPA-4).
pub const OVERLAPS: &str = "Overlaps";
/// Condition: addresses are held that the pool no longer has (IPA-7).
pub const ADDRESS_OUT_OF_POOL: &str = "AddressOutOfPool";
/// Condition: the maps do not fit into the object (POOL-3).
pub const ALLOCATED_MAP_TRUNCATED: &str = "AllocatedMapTruncated";

/// What a pool's status should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// `status.total`.
    pub total: i64,
    /// `status.available`.
    pub available: i64,
    /// `status.lastAllocated`.
    pub last_allocated: String,
    /// `status.allocated`.
    pub allocated: BTreeMap<String, String>,
    /// `status.allocatedHistory`.
    pub history: BTreeMap<String, String>,
    /// Held addresses that did not fit into the map.
    pub truncated: usize,
}

/// What the counters and maps of a pool follow from. It is taken under the leader's lock; what takes longer is done without.
#[derive(Debug)]
pub struct Snapshot {
    total: i64,
    available: i64,
    last_allocated: Option<IpAddr>,
    allocated: Vec<(IpAddr, OwnerId)>,
    /// Released last first.
    history: Vec<(IpAddr, OwnerId)>,
}

impl Snapshot {
    /// The pool as the ledger has it; none if there is no such pool.
    pub fn of(ledger: &Ledger, pool: &str) -> Option<Self> {
        let view = ledger.projection(pool)?;
        let mut allocated = Vec::with_capacity(view.allocated_len);
        allocated.extend(view.allocated().map(|(address, id)| (address, id.clone())));
        let history = view.remembered();
        Some(Self {
            total: view.total,
            available: view.available,
            last_allocated: view.last_allocated,
            allocated,
            history: history.map(|(address, id)| (address, id.clone())).collect(),
        })
    }

    /// The status in at most `limit` bytes of maps: what is held goes before what is remembered, and what was released last
    /// before what was released earlier.
    pub fn project(&self, limit: usize) -> Projection {
        let mut projection = Projection {
            total: self.total,
            available: self.available,
            last_allocated: self
                .last_allocated
                .map(|address| address.to_string())
                .unwrap_or_default(),
            ..Projection::default()
        };
        let mut room = limit;
        // Quotes, colon and comma of a JSON entry.
        let mut fits = |address: &str, id: &str| {
            let size = address.len() + id.len() + 6;
            let fits = size <= room;
            if fits {
                room -= size;
            }
            fits
        };
        for (address, id) in &self.allocated {
            let address = address.to_string();
            if fits(&address, id.as_str()) {
                projection.allocated.insert(address, id.to_string());
            } else {
                projection.truncated += 1;
            }
        }
        if projection.truncated > 0 {
            return projection;
        }
        for (address, id) in &self.history {
            let address = address.to_string();
            if !fits(&address, id.as_str()) {
                break;
            }
            projection.history.insert(address, id.to_string());
        }
        projection
    }
}

/// The projection of a pool's records, in at most `limit` bytes of maps.
pub fn project(ledger: &Ledger, pool: &str, limit: usize) -> Option<Projection> {
    Some(Snapshot::of(ledger, pool)?.project(limit))
}

/// The conditions of a pool (POOL-1, POOL-2, IPA-4, IPA-7, POOL-3).
pub fn conditions(
    ledger: &Ledger,
    name: &str,
    pool: &Pool,
    projection: &Projection,
    now: &str,
) -> Vec<Condition> {
    let mut all = pool.conditions.clone();
    let refusal = match (
        PoolRanges::parse(&pool.spec.as_ref().map(ranges_of).unwrap_or_default()),
        unsupported::of_pool(&pool.meta),
    ) {
        (Err(error), _) => Some((INVALID_RANGES, format!("IPPool {name}: {error}"))),
        (Ok(_), Some(annotation)) => Some((
            UNSUPPORTED_ANNOTATION,
            format!(
                "IPPool {name}: this version does not support the annotation {annotation}, so nothing new is handed out; what is held stays"
            ),
        )),
        (Ok(_), None) => None,
    };
    let (ready, reason, message) = match &refusal {
        Some((reason, message)) => (ConditionStatus::False, *reason, &**message),
        None => (ConditionStatus::True, READY, ""),
    };
    condition::set(&mut all, READY, ready, reason, message, now);
    let mut hold = |type_: &str, message: Option<String>| match message {
        Some(message) => {
            condition::set(&mut all, type_, ConditionStatus::True, type_, &message, now);
        }
        None => condition::clear(&mut all, type_),
    };
    hold(
        OVERLAPS,
        ledger.overlaps(name).map(|older| {
            format!("shares addresses with the older IPPool {older}; what one gives out is taken for the other")
        }),
    );
    let outside = ledger.out_of_pool(name);
    hold(
        ADDRESS_OUT_OF_POOL,
        outside.first().map(|first| {
            format!(
                "{} held addresses are no longer in spec.ranges, the first is {} of LoadBalancer {}; they are kept until their owners go",
                outside.len(),
                first.spec.addr,
                first.spec.owner.id
            )
        }),
    );
    hold(
        ALLOCATED_MAP_TRUNCATED,
        (projection.truncated > 0).then(|| {
            format!(
                "status.allocated lacks {} addresses, they do not fit; see the IPAllocations. Going back to the Go operator is not possible",
                projection.truncated
            )
        }),
    );
    all
}

/// The JSON patch (RFC 6902) from the stored pool to the one that should be. The first operation makes the API server
/// refuse it for any other copy (IPA-5). `None` if there is nothing to write. `asked` if the wish of an administrator to
/// release an address is answered by this (6.4).
///
/// A JSON patch and not a merge patch, because the maps are replaced as a whole and a store does not keep them.
pub fn patch(
    pool: &Pool,
    projection: &Projection,
    conditions: &[Condition],
    asked: bool,
) -> Option<Vec<Value>> {
    let digest = &*projection::digest(Some(&projection.allocated), Some(&projection.history));
    let version = pool.meta.resource_version.as_deref().unwrap_or_default();
    let mut patch =
        vec![json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version})];
    let counters = (
        projection.total,
        projection.available,
        projection.last_allocated.clone(),
    );
    let ours = annotation(&pool.meta, keys::ANNOTATION_PROJECTION);
    let same_maps = pool.digest == digest && ours == Some(digest);
    if !same_maps || pool.counters.as_ref() != Some(&counters) || pool.conditions != conditions {
        patch.push(json!({"op": "add", "path": "/status", "value": {
            "total": projection.total,
            "available": projection.available,
            "lastAllocated": projection.last_allocated,
            "allocated": projection.allocated,
            "allocatedHistory": projection.history,
            "conditions": conditions,
        }}));
    }
    if ours != Some(digest) {
        if pool.meta.annotations.is_some() {
            patch.push(json!({
                "op": "add",
                "path": annotation_path(keys::ANNOTATION_PROJECTION),
                "value": digest,
            }));
        } else {
            patch.push(json!({
                "op": "add",
                "path": "/metadata/annotations",
                "value": { keys::ANNOTATION_PROJECTION: digest },
            }));
        }
    }
    if asked {
        patch.push(json!({
            "op": "remove",
            "path": annotation_path(keys::ANNOTATION_MANUALLY_RELEASE_IP),
        }));
    }
    if let Some(kept) = finalizers_without(&pool.meta, &keys::LEGACY_FINALIZERS) {
        patch.push(json!({"op": "add", "path": "/metadata/finalizers", "value": kept}));
    }
    (patch.len() > 1).then_some(patch)
}

/// A JSON pointer (RFC 6901) to an annotation.
fn annotation_path(key: &str) -> String {
    format!(
        "/metadata/annotations/{}",
        key.replace('~', "~0").replace('/', "~1")
    )
}

#[cfg(test)]
mod tests;
