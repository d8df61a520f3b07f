//! The status of a pool: counters, the two address maps, conditions (section 6.2).
//!
//! The maps are a projection of the IPAllocations, written late and coalesced (POOL-3). Allocation never waits for them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use harvester_lb_api::condition::{self, ConditionStatus, READY};
use harvester_lb_api::meta::{annotation, finalizers_without};
use harvester_lb_api::{Condition, keys, projection};
use harvester_lb_ipam::{Ledger, OwnerId, PoolRanges};
use serde_json::{Value, json};

use crate::cached::Pool;
use crate::pool_spec::{exclusions_of, ranges_of};
use crate::wording;

pub use crate::reasons::ADDRESS_EXCLUDED;

/// Bytes that both maps together may take in the object (POOL-3). The API server accepts requests up to 3 MiB and etcd
/// objects up to 1.5 MiB. The rules promise complete maps below 1 MiB, less the room for the rest of the object.
pub const MAPS_LIMIT: usize = 1_000_000;

/// Reason of `Ready` False: the ranges of the pool are invalid, or its spec cannot be decoded (POOL-2).
pub const INVALID_RANGES: &str = "InvalidRanges";
/// Reason of `Ready` False: the list of excluded addresses is invalid (EXC-1).
pub const INVALID_EXCLUDE: &str = "InvalidExclude";
/// Condition: the pool shares addresses with an older pool (IPA-4).
pub const OVERLAPS: &str = "Overlaps";
/// Condition: bound addresses are no longer in the ranges of the pool (IPA-7).
pub const ADDRESS_OUT_OF_POOL: &str = "AddressOutOfPool";
/// Condition: `status.allocated` is incomplete, as it exceeds [`MAPS_LIMIT`] (POOL-3).
pub const ALLOCATED_MAP_TRUNCATED: &str = "AllocatedMapTruncated";

/// The desired counters and maps of a pool's status (POOL-1, POOL-3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// `status.total`: addresses in the ranges, without gateways; saturates at [`i64::MAX`] (RNG-8).
    pub total: i64,
    /// `status.available`: addresses that are not held, blocked or excluded (ALC-11).
    pub available: i64,
    /// `status.lastAllocated`; empty before the first allocation.
    pub last_allocated: String,
    /// `status.allocated`: address to `namespace/name` of the owner.
    pub allocated: BTreeMap<String, String>,
    /// `status.allocatedHistory`: released address to `namespace/name` of the last owner. It may be incomplete.
    pub history: BTreeMap<String, String>,
    /// Number of bound addresses that did not fit into [`Projection::allocated`].
    pub truncated: usize,
}

/// The input of a [`Projection`], copied from the ledger. It is taken under the leader's lock; the projection, which takes
/// longer, is computed without the lock.
#[derive(Debug)]
pub struct Snapshot {
    total: i64,
    available: i64,
    last_allocated: Option<IpAddr>,
    allocated: Vec<(IpAddr, OwnerId)>,
    /// Most recently released first.
    history: Vec<(IpAddr, OwnerId)>,
}

impl Snapshot {
    /// Copies the state of a pool; `None` if the ledger has no such pool.
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

    /// Computes the status with at most `limit` bytes of maps. Bound addresses take precedence over history, and recent
    /// history over older (POOL-3).
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

/// [`Snapshot::of`] and [`Snapshot::project`] in one; `None` if the ledger has no such pool.
pub fn project(ledger: &Ledger, pool: &str, limit: usize) -> Option<Projection> {
    Some(Snapshot::of(ledger, pool)?.project(limit))
}

/// The desired conditions of a pool, from the stored ones (POOL-1, POOL-2, IPA-4, IPA-7, EXC-1, EXC-3, POOL-3). `now` is RFC 3339
/// and is used for conditions that change.
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
        exclusions_of(&pool.meta),
    ) {
        (Err(error), _) => Some((INVALID_RANGES, format!("IPPool {name}: {error}"))),
        (Ok(_), Err(error)) => Some((
            INVALID_EXCLUDE,
            format!(
                "IPPool {name}: annotation {}: {error}; until it is corrected no new address is allocated, and addresses in use stay allocated",
                keys::ANNOTATION_EXCLUDE
            ),
        )),
        (Ok(_), Ok(_)) => None,
    };
    let (ready, reason, message) = match &refusal {
        Some((reason, message)) => (ConditionStatus::False, *reason, &**message),
        None => (ConditionStatus::True, READY, ""),
    };
    wording::set(&mut all, READY, ready, reason, message, now);
    let mut set_or_clear = |type_: &str, message: Option<String>| match message {
        Some(message) => {
            wording::set(&mut all, type_, ConditionStatus::True, type_, &message, now);
        }
        None => condition::clear(&mut all, type_),
    };
    set_or_clear(
        OVERLAPS,
        ledger.overlaps(name).map(|older| {
            format!("shares addresses with the older IPPool {older}; an address allocated from one is taken in both")
        }),
    );
    let outside = ledger.out_of_pool(name);
    set_or_clear(
        ADDRESS_OUT_OF_POOL,
        outside.first().map(|first| {
            format!(
                "{} held addresses are no longer in spec.ranges, the first is {} of LoadBalancer {}; they stay allocated until their owners are deleted",
                outside.len(),
                first.spec.addr,
                first.spec.owner.id
            )
        }),
    );
    let excluded = ledger.excluded(name);
    set_or_clear(
        ADDRESS_EXCLUDED,
        excluded.first().map(|first| {
            let (addr, owner) = (first.spec.addr, &first.spec.owner.id);
            match excluded.len() {
                1 => format!(
                    "1 excluded address is held, {addr} of LoadBalancer {owner}; it stays allocated until its owner is deleted, and is not allocated again"
                ),
                held => format!(
                    "{held} excluded addresses are held, the first is {addr} of LoadBalancer {owner}; they stay allocated until their owners are deleted, and are not allocated again"
                ),
            }
        }),
    );
    set_or_clear(
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

/// The JSON patch (RFC 6902) from the stored to the desired pool; `None` if nothing changes (REC-5). Its first operation
/// carries the resource version, so that the API server answers a stale patch with a conflict (IPA-5). Legacy finalizers are
/// removed (FIN-2). `release_processed`: the annotation of a manual release was processed and is removed (section 6.4).
///
/// A JSON patch and no merge patch, because the maps are replaced as a whole and the store does not have the old ones.
pub fn patch(
    pool: &Pool,
    projection: &Projection,
    conditions: &[Condition],
    release_processed: bool,
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
    if release_processed {
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
