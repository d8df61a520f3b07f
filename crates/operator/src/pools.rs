//! The status of pools: counters, the two address maps, conditions (section 6.2), and releases by hand (6.4).
//!
//! The maps are a projection of the records, written late and coalesced (POOL-3). Allocation never waits for them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use harvester_lb_api::condition::{self, ConditionStatus, READY};
use harvester_lb_api::meta::{self, annotation};
use harvester_lb_api::{Condition, IPPool, LoadBalancer, keys, projection};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, Lb, Pool};
use harvester_lb_core::pool_spec::ranges_of;
use harvester_lb_core::status::{UNSUPPORTED_ANNOTATION, notices};
use harvester_lb_core::{time, unsupported};
use harvester_lb_ipam::manual_release::{self, Verdict};
use harvester_lb_ipam::{Ledger, OwnerId, PoolName, PoolRanges};
use harvester_lb_object::Key;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::hub::Hub;
use crate::queues::Singleton;
use crate::{address, clock, start, undecodable};

/// Bytes that the two maps may take in the object. The API server takes requests up to 3 MiB and etcd objects up to
/// 1.5 MiB; the rest of the object needs room too, and 1 MiB is what the contract promises.
const MAPS_LIMIT: usize = 1_000_000;

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

/// Brings a pool's status up to date once its pace allows, and does what an administrator asked for by annotation. What is
/// too much of the past is forgotten elsewhere (POOL-5).
pub async fn reconcile(hub: &Hub, name: &PoolName) -> Result<Requeue, WriteError> {
    match hub.pacer.due_in(name) {
        Duration::ZERO => bring_up_to_date(hub, name).await,
        delay => Ok(Requeue::After(delay)),
    }
}

async fn bring_up_to_date(hub: &Hub, name: &PoolName) -> Result<Requeue, WriteError> {
    // Until all that its map says has become records, its status is not written (RUN-1).
    start::import_pool(hub, name).await?;
    hub.queues.history.add(Singleton);
    let key = Key::new("", name);
    let Some(entry) = hub.stores.pools.entry(&key) else {
        hub.pacer.forget(name);
        return Ok(Requeue::AwaitChange);
    };
    let pool = entry.value;
    if let Err(error) = &pool.spec {
        hub.pacer.deciding(name);
        // Its maps are not known, so its status must not be written.
        undecodable::tell::<IPPool>(hub, &key, &pool.meta, error).await?;
        return Ok(Requeue::AwaitChange);
    }
    let asked = annotation(&pool.meta, keys::ANNOTATION_MANUALLY_RELEASE_IP)
        .filter(|v| !v.trim().is_empty())
        .map(ToOwned::to_owned);
    let released = match &asked {
        Some(asked) => release_by_hand(hub, name, asked).await,
        None => Ok(()),
    };
    // A record that the API server refuses to release delays itself alone: the wish stays, to be tried again, and the status
    // is written all the same (RUN-1).
    let refused = released.as_ref().is_err_and(WriteError::is_refusal);
    if !refused {
        released?;
        return write_status(hub, name, &key, &pool, asked.is_some()).await;
    }
    write_status(hub, name, &key, &pool, false).await?;
    released.map(|()| Requeue::AwaitChange)
}

/// Writes a pool's status and what goes with it, if that differs from what is stored; `asked`: the wish of an administrator is
/// dealt with.
async fn write_status(
    hub: &Hub,
    name: &PoolName,
    key: &Key,
    pool: &Pool,
    asked: bool,
) -> Result<Requeue, WriteError> {
    hub.pacer.deciding(name);
    let snapshot = hub.lead(|lead| Snapshot::of(&lead.ledger, name)).flatten();
    let Some(projection) = snapshot.map(|snapshot| snapshot.project(MAPS_LIMIT)) else {
        return Ok(Requeue::AwaitChange);
    };
    let now = time::rfc3339(clock::now());
    // What has changed meanwhile makes the status due again.
    let Some(conditions) = hub.lead(|lead| conditions(&lead.ledger, name, pool, &projection, &now))
    else {
        return Ok(Requeue::AwaitChange);
    };
    let digest = projection::digest(Some(&projection.allocated), Some(&projection.history));
    let patch = patch(pool, &projection, &conditions, &digest, asked);
    if patch.len() == 1 {
        return Ok(Requeue::AwaitChange);
    }
    let started = Instant::now();
    let written = hub.patch_json::<IPPool>(key, Value::Array(patch)).await;
    // How long a write took that did not succeed says nothing about the maps.
    let took = written
        .as_ref()
        .map_or(Duration::ZERO, |_| started.elapsed());
    hub.pacer.wrote(name, took);
    match written {
        Ok(_) => {
            for notice in notices(Some(&pool.conditions), &conditions) {
                hub.notify_pool(&pool.meta, &notice);
            }
            Ok(Requeue::AwaitChange)
        }
        Err(error) if error.is_stale() => Ok(Requeue::After(hub.pacer.changed(name, false))),
        Err(other) => Err(other),
    }
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
/// refuse it for any other copy (IPA-5); alone, it means that there is nothing to write.
///
/// A JSON patch and not a merge patch, because the maps are replaced as a whole and a store does not keep them.
pub fn patch(
    pool: &Pool,
    projection: &Projection,
    conditions: &[Condition],
    digest: &str,
    asked: bool,
) -> Vec<Value> {
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
    if let Some(kept) = meta::finalizers_without(&pool.meta, &keys::LEGACY_FINALIZERS) {
        patch.push(json!({"op": "add", "path": "/metadata/finalizers", "value": kept}));
    }
    patch
}

/// A JSON pointer (RFC 6901) to an annotation.
fn annotation_path(key: &str) -> String {
    format!(
        "/metadata/annotations/{}",
        key.replace('~', "~0").replace('/', "~1")
    )
}

/// An administrator's wish to release one address (6.4). It is refused without harm when it names the wrong pool,
/// owner or address, or a load balancer that lives.
async fn release_by_hand(hub: &Hub, pool: &PoolName, value: &str) -> Result<(), WriteError> {
    // Whether the load balancer lives is asked of the API server, not of a store that may lag.
    let judged = || {
        hub.lead(|lead| manual_release::judge(&lead.ledger, pool, value, |_| false, clock::now()))
            .ok_or(WriteError::Fenced)
    };
    match judged()? {
        Verdict::Nothing => {}
        Verdict::Refused(refusal) => {
            warn!(%pool, value, %refusal, "not released by hand");
        }
        Verdict::Release(record) => {
            let key = cached::key(&record.spec.owner.id);
            if hub.lead(|lead| lead.unsupported.shares_record(&record)) != Some(false) {
                warn!(%pool, value, "not released by hand: other load balancers share the address");
                return Ok(());
            }
            // One that cannot be decoded exists too.
            if matches!(hub.stores.lbs.get(&key).as_deref(), Some(Lb::Invalid(..))) {
                warn!(%pool, value, "not released by hand: the load balancer exists, and cannot be decoded");
                return Ok(());
            }
            if hub.refresh::<LoadBalancer>(&key).await?.is_some() {
                warn!(%pool, value, "not released by hand: the load balancer exists");
                return Ok(());
            }
            // Meanwhile a Service may have come to show the address (IPA-3). The annotation stays for the next look, as it
            // does if somebody else is faster.
            let Verdict::Release(record) = judged()? else {
                return Err(WriteError::Conflict(format!(
                    "what is known of {} has just changed",
                    record.spec.addr
                )));
            };
            address::release(hub, &record).await?;
            info!(%pool, value, "released by hand");
        }
    }
    Ok(())
}

/// Writes every pool's status that is behind, whatever its pace: before leadership is given up (POOL-3).
pub async fn flush(hub: &Hub) {
    for (key, _) in hub.stores.pools.all() {
        let name = PoolName::from(&*key.name);
        if let Err(error) = bring_up_to_date(hub, &name).await {
            warn!(pool = %name, %error, "the pool's status could not be brought up to date; the next leader does it");
        }
    }
}

#[cfg(test)]
mod tests;
