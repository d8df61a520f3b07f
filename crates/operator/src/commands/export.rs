//! `export`: writes every pool's status from the IPAllocations (OPS-2, POOL-5).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, keys, meta};
use harvester_lb_controller_kit::client;
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use harvester_lb_core::cached::{self, Allocation, CachedService, Pool};
use harvester_lb_core::pool_spec::exclusions_of;
use harvester_lb_core::sharing::index;
use harvester_lb_core::{pool_status, time};
use harvester_lb_ipam::{Ledger, Micros, Phase, Settings, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};

use crate::clock;
use crate::commands::{clear_conditions, list};
use crate::index::leader_state::LeaderState;

/// Number of obstacles that the error names; the log has all.
const NAMED: usize = 20;
/// Number of times that the maps are computed, if other processes write pools meanwhile.
const ATTEMPTS: u32 = 5;
/// Pause before they are computed again: a running operator writes a pool at most once a second.
const PAUSE: Duration = Duration::from_secs(1);

/// The listed objects from which the maps and counters of pools are computed.
#[derive(Default)]
pub struct Read {
    /// The pools.
    pub pools: Vec<(Key, Pool)>,
    /// The IPAllocations with their names.
    pub records: Vec<(String, Allocation)>,
    /// The Services; their addresses are not available.
    pub services: Vec<(Key, CachedService)>,
    /// The metadata of the LoadBalancers.
    pub lbs: Vec<ObjectMeta>,
}

/// The write of one pool.
#[derive(Debug)]
pub struct Export {
    /// Name of the pool.
    pub pool: String,
    /// The JSON patch; `None` if the stored status is right.
    pub patch: Option<Vec<Value>>,
    /// Number of bound addresses.
    pub allocated: usize,
    /// Number of addresses in the history.
    pub history: usize,
}

/// The writes, and one message for each obstacle to a swap back: an object that the maps will lack (POOL-5), or that the Go
/// operator does not know (SHR-9). Pure.
pub fn plan(read: &Read, now: Micros) -> (Vec<Export>, Vec<String>) {
    let mut leader = LeaderState::new(Ledger::new(Settings::default()));
    let (mut exports, mut lacking) = (Vec::new(), unknown_to_go(read));
    for (key, pool) in &read.pools {
        leader.set_pool(key, pool);
    }
    let names: BTreeSet<&str> = read.pools.iter().map(|(key, _)| &*key.name).collect();
    // Load balancers with a lease that no Service shows, or not yet.
    let mut unshown = BTreeSet::new();
    for (name, allocation) in &read.records {
        leader.observe_allocation(name, allocation);
        match allocation {
            Allocation::Lease(record) => {
                unshown.insert(leader.set_lease(&record.spec, true));
            }
            Allocation::Unreadable { why, .. } if addr::parse_record_name(name).is_some() => {
                lacking.push(format!("IPAllocation {name} cannot be read: {why}"));
            }
            Allocation::Valid { record, .. } => {
                let pool = &record.spec.pool;
                if !names.contains(&**pool) && record.spec.phase == Phase::Bound {
                    let text = format!("IPAllocation {name}: there is no IPPool {pool}");
                    lacking.push(text);
                }
            }
            Allocation::Unreadable { .. }
            | Allocation::UnreadableLease(_)
            | Allocation::Reserved => {}
        }
    }
    for (key, service) in &read.services {
        leader.set_shown(key, Some(service));
        unshown.remove(key);
        if let Some(why) = &service.undecodable {
            lacking.push(format!(
                "Service {key} cannot be decoded, its addresses may be counted as available: {why}"
            ));
        }
    }
    for key in unshown {
        leader.set_shown(&key, None);
    }
    for (key, pool) in &read.pools {
        let name = &*key.name;
        if let Err(why) = &pool.spec {
            lacking.push(format!("IPPool {name} cannot be decoded: {why}"));
            continue;
        }
        if let Some(address) = not_recorded(&leader.ledger, pool) {
            // The map is the only evidence of the allocation.
            lacking.push(format!(
                "IPPool {name} is left as it is: its status, written by another program, says that {address} is held, and there is no IPAllocation of it"
            ));
            continue;
        }
        let Some(projection) = pool_status::project(&leader.ledger, name, usize::MAX) else {
            continue;
        };
        let conditions =
            pool_status::conditions(&leader.ledger, name, pool, &projection, &time::rfc3339(now));
        exports.push(Export {
            pool: name.to_owned(),
            patch: pool_status::patch(pool, &projection, &conditions, false),
            allocated: projection.allocated.len(),
            history: projection.history.len(),
        });
    }
    (exports, lacking)
}

/// What this or a later version made, and the Go operator would serve wrongly: shared addresses, exclusions, leases
/// (SHR-9). One message for each object.
fn unknown_to_go(read: &Read) -> Vec<String> {
    let shared = read
        .lbs
        .iter()
        .filter(|lb| meta::annotation(lb, keys::ANNOTATION_PRIMARY).is_some());
    let shared = shared.map(|lb| {
        format!(
            "LoadBalancer {} shares an address (annotation {}), and would get another one",
            meta::key(lb),
            keys::ANNOTATION_PRIMARY
        )
    });
    let services = read.services.iter();
    let services = services.filter(|(_, service)| index::is_shared(&service.metadata));
    let services = services.map(|(key, _)| {
        format!("Service {key} has the ports of several load balancers, and would lose them")
    });
    let pools = read.pools.iter().filter_map(|(key, pool)| {
        // An invalid list excludes nothing yet, and will.
        let is_empty = exclusions_of(&pool.meta).is_ok_and(|excluded| excluded.is_empty());
        let (name, annotation) = (&key.name, keys::ANNOTATION_EXCLUDE);
        (!is_empty).then(|| {
            format!(
                "IPPool {name} has the annotation {annotation}, and what it excludes would be allocated"
            )
        })
    });
    let leases = read.records.iter().map(|(name, _)| name);
    let leases = leases.filter(|name| name.starts_with(keys::LEASE_RECORD_PREFIX));
    let leases =
        leases.map(|name| format!("IPAllocation {name} is a lease, which no program would renew"));
    let all = shared.chain(services).chain(pools).chain(leases);
    all.map(|what| format!("{what}: the Go operator does not know it"))
        .collect()
}

/// An address that is allocated only in a map of another writer and has no IPAllocation (IPA-1).
fn not_recorded<'a>(ledger: &Ledger, pool: &'a Pool) -> Option<&'a str> {
    let allocated = pool
        .foreign_maps
        .iter()
        .flat_map(|maps| maps.allocated.keys());
    allocated
        .map(String::as_str)
        .find(|text| addr::parse(text).is_some_and(|addr| ledger.record(addr).is_none()))
}

/// Writes every pool's status from the IPAllocations, with complete maps (POOL-3). An object that cannot be read or written
/// does not affect other pools; it is listed and makes the result an error, unless `allow_incomplete` is set (POOL-5), and so
/// does one that the Go operator does not know (SHR-9).
///
/// A kind that does not exist is an error before anything is written; with `allow_incomplete` it counts as empty and is listed,
/// see `read`.
///
/// Needs no leadership: each write carries the resource version that it was computed from, and a running operator writes
/// the same. With `clear_conditions` no operator may run, see [`clear_conditions`]; if one does, that is an error, or with
/// `allow_incomplete` the conditions stay and are listed.
///
/// # Errors
/// Something is incomplete, the objects cannot be listed, or an operator runs.
pub async fn run(allow_incomplete: bool, clear_conditions: bool) -> anyhow::Result<()> {
    let clients = client::connect(Arc::new(client::Unobserved)).await?;
    let client = &clients.write;
    let (clears_conditions, running) =
        may_clear(client, allow_incomplete, clear_conditions).await?;
    let mut lacking = maps(client, allow_incomplete).await?;
    lacking.extend(running);
    if clears_conditions {
        lacking.extend(clear_conditions::run(client).await?);
    }
    for what in &lacking {
        warn!(what, "not ready for the Go operator");
    }
    let more = match lacking.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more, which are in the log"),
    };
    lacking.truncate(NAMED);
    ensure!(
        lacking.is_empty() || allow_incomplete,
        "not ready for the Go operator: {}{more}",
        lacking.join("; ")
    );
    Ok(())
}

/// Writes the maps of all pools. A pool that another process has written meanwhile, such as a running operator, is computed
/// anew from all objects. Returns what is incomplete.
///
/// # Errors
/// The objects cannot be listed.
async fn maps(client: &Client, allow_incomplete: bool) -> anyhow::Result<Vec<String>> {
    let pools: Api<DecodeGuard<IPPool>> = Api::all(client.clone());
    let mut attempt = 1;
    loop {
        let (read, missing) = read(client, allow_incomplete).await?;
        let (exports, mut lacking) = plan(&read, clock::now());
        lacking.extend(missing);
        let mut is_stale = false;
        for export in exports {
            let (allocated, history) = (export.allocated, export.history);
            match write(&pools, &export).await {
                Ok(()) => info!(pool = export.pool, allocated, history, "maps written"),
                Err(error) => {
                    is_stale |= error.is_stale();
                    lacking.push(format!(
                        "IPPool {} cannot be written, run the command again: {error}",
                        export.pool
                    ));
                }
            }
        }
        if !is_stale || attempt == ATTEMPTS {
            return Ok(lacking);
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes the maps of one pool, unless the stored ones are right.
async fn write(pools: &Api<DecodeGuard<IPPool>>, export: &Export) -> Result<(), WriteError> {
    let Some(patch) = &export.patch else {
        return Ok(());
    };
    let patch = Patch::Json::<()>(to_patch(patch)?);
    bounded(pools.patch(&export.pool, &PatchParams::default(), &patch))
        .await
        .map(|_| ())
}

fn to_patch(operations: &[Value]) -> Result<json_patch::Patch, WriteError> {
    serde_json::from_value(Value::Array(operations.to_vec()))
        .map_err(|error| WriteError::Refused(error.to_string()))
}

/// Whether the conditions are to be removed, and what forbids it.
///
/// # Errors
/// A process holds the Lease, and `allow_incomplete` is not set.
async fn may_clear(
    client: &Client,
    allow_incomplete: bool,
    asked: bool,
) -> anyhow::Result<(bool, Option<String>)> {
    if !asked {
        return Ok((false, None));
    }
    match clear_conditions::ensure_stopped(client).await {
        Ok(()) => Ok((true, None)),
        Err(error) if allow_incomplete => {
            let text = format!("the conditions of LoadBalancers stay: {error:#}");
            Ok((false, Some(text)))
        }
        Err(error) => Err(error),
    }
}

/// The objects, and with `allow_incomplete` one message for each kind that does not exist, of which there are none: a definition
/// that is gone took its objects along. Without the kind IPAllocation no pool is read: its map, the only evidence that is left,
/// would be written empty.
///
/// # Errors
/// Objects cannot be listed, or a kind does not exist and `allow_incomplete` is not set.
async fn read(client: &Client, allow_incomplete: bool) -> anyhow::Result<(Read, Vec<String>)> {
    let mut read = Read::default();
    let mut missing = Vec::new();
    for decoded in all::<IPPool>(client, &mut missing).await? {
        let key = meta::key(decoded.meta());
        read.pools.push((key, Pool::from_watch(decoded.0)));
    }
    let before = missing.len();
    for decoded in all::<IPAllocation>(client, &mut missing).await? {
        let name = decoded.meta().name.clone().unwrap_or_default();
        read.records.push((name, Allocation::from_watch(decoded.0)));
    }
    if missing.len() > before {
        read.pools.clear();
    }
    for decoded in all::<Service>(client, &mut missing).await? {
        let key = meta::key(decoded.meta());
        read.services
            .extend(cached::service(decoded.0).map(|service| (key, service)));
    }
    for decoded in all::<LoadBalancer>(client, &mut missing).await? {
        read.lbs.push(decoded.meta().clone());
    }
    ensure!(
        missing.is_empty() || allow_incomplete,
        "{}: apply what `harvester-load-balancer crd` prints, or leave it out with --allow-incomplete",
        missing.join("; ")
    );
    Ok((read, missing))
}

/// All objects of a kind; if there is no such kind, none and a message.
async fn all<K>(client: &Client, missing: &mut Vec<String>) -> anyhow::Result<Vec<DecodeGuard<K>>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match list::list(client, |_| true).await {
        Err(WriteError::NotFound(_)) => {
            let (kind, version) = (K::kind(&()), K::api_version(&()));
            missing.push(format!("kind {kind} of {version} does not exist"));
            Ok(Vec::new())
        }
        list => list.with_context(|| format!("objects of kind {} cannot be listed", K::kind(&()))),
    }
}

#[cfg(test)]
mod tests;
