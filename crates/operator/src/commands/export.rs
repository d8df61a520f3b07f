//! `export`: every pool's status from the records (OPS-2, POOL-5).

use std::fmt::Debug;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, IPPool, meta};
use harvester_lb_controller_kit::client;
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::writer::bounded;
use harvester_lb_core::cached::{self, Allocation, Pool};
use harvester_lb_core::pool_status;
use harvester_lb_core::time;
use harvester_lb_ipam::{Ledger, Micros, Phase, Settings, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};

use crate::clock;
use crate::index::leader_state::LeaderState;
use crate::metrics::Metrics;

/// Everything that the maps and counters of pools follow from.
#[derive(Default)]
pub struct Read {
    /// The pools.
    pub pools: Vec<(Key, Pool)>,
    /// The records, by name.
    pub records: Vec<(String, Allocation)>,
    /// The Services: the addresses that they show are taken.
    pub services: Vec<(Key, Service)>,
}

/// A pool that is to be written.
#[derive(Debug)]
pub struct Export {
    /// Its name.
    pub pool: String,
    /// The JSON patch, if there is anything to write.
    pub patch: Option<Vec<Value>>,
    /// Addresses held.
    pub allocated: usize,
    /// Addresses remembered.
    pub history: usize,
}

/// What is to be written, and what the maps will lack, a sentence each (POOL-5). Pure.
pub fn plan(read: &Read, now: Micros) -> (Vec<Export>, Vec<String>) {
    let mut leader = LeaderState::new(Ledger::new(Settings::default()));
    let (mut exports, mut lacking) = (Vec::new(), Vec::new());
    for (key, pool) in &read.pools {
        leader.set_pool(key, pool);
    }
    for (name, allocation) in &read.records {
        leader.observe_allocation(name, allocation);
        match allocation {
            Allocation::Unreadable { why, .. } if addr::parse_record_name(name).is_some() => {
                lacking.push(format!("IPAllocation {name} cannot be read: {why}"));
            }
            Allocation::Valid { record, .. } => {
                let pool = &record.spec.pool;
                let is_there = read.pools.iter().any(|(key, _)| *key.name == **pool);
                if !is_there && record.spec.phase == Phase::Bound {
                    let text = format!("IPAllocation {name}: there is no IPPool {pool}");
                    lacking.push(text);
                }
            }
            Allocation::Unreadable { .. } | Allocation::Reserved => {}
        }
    }
    for (key, service) in &read.services {
        let shown = cached::shown_addresses(service);
        leader.ledger.set_shown(&cached::id(key), &shown);
    }
    for (key, pool) in &read.pools {
        let name = &*key.name;
        if let Err(why) = &pool.spec {
            lacking.push(format!("IPPool {name} cannot be decoded: {why}"));
            continue;
        }
        if let Some(address) = not_recorded(&leader.ledger, pool) {
            // The map is the only proof of it.
            lacking.push(format!(
                "IPPool {name} is left as it is: somebody else wrote that {address} is held, and there is no IPAllocation of it"
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

/// An address that only the map of somebody else says is held (IPA-1).
fn not_recorded<'a>(ledger: &Ledger, pool: &'a Pool) -> Option<&'a str> {
    let allocated = pool
        .foreign_maps
        .iter()
        .flat_map(|maps| maps.allocated.keys());
    allocated
        .map(String::as_str)
        .find(|text| addr::parse(text).is_some_and(|addr| ledger.record(addr).is_none()))
}

/// Writes every pool's status from the records, its maps in full (POOL-3). What cannot be read or written keeps no other
/// pool away; it is listed and makes the outcome an error, unless `allow_incomplete` (POOL-5).
///
/// Needs no leadership: each write carries the resource version of the pool that it was made from, and a running operator
/// writes the same.
pub async fn run(allow_incomplete: bool) -> anyhow::Result<()> {
    let clients = client::connect(Arc::new(Metrics::new()?)).await?;
    let client = &clients.write;
    let mut read = Read::default();
    for decoded in list::<IPPool>(client).await? {
        let key = meta::key(decoded.meta());
        read.pools.push((key, Pool::from_watch(decoded.0)));
    }
    for decoded in list::<IPAllocation>(client).await? {
        let name = decoded.meta().name.clone().unwrap_or_default();
        read.records.push((name, Allocation::from_watch(decoded.0)));
    }
    for decoded in list::<Service>(client).await? {
        let key = meta::key(decoded.meta());
        read.services
            .extend(decoded.0.ok().map(|service| (key, service)));
    }
    let (exports, mut lacking) = plan(&read, clock::now());
    let pools: Api<DecodeGuard<IPPool>> = Api::all(client.clone());
    for export in exports {
        let pool = export.pool;
        if let Some(patch) = export.patch {
            let patch: json_patch::Patch = serde_json::from_value(Value::Array(patch))?;
            let patch = Patch::<()>::Json(patch);
            if let Err(error) = bounded(pools.patch(&pool, &PatchParams::default(), &patch)).await {
                lacking.push(format!(
                    "IPPool {pool} cannot be written, run the command again: {error}"
                ));
                continue;
            }
        }
        let (allocated, history) = (export.allocated, export.history);
        info!(pool, allocated, history, "the maps are written");
    }
    for what in &lacking {
        warn!(what, "the maps are incomplete");
    }
    ensure!(
        lacking.is_empty() || allow_incomplete,
        "the maps are incomplete: {}",
        lacking.join("; ")
    );
    Ok(())
}

/// All objects of a kind, each decoded on its own.
async fn list<K>(client: &Client) -> anyhow::Result<Vec<DecodeGuard<K>>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<DecodeGuard<K>> = Api::all(client.clone());
    let list = bounded(api.list(&ListParams::default())).await;
    let list =
        list.with_context(|| format!("objects of kind {} cannot be listed", K::kind(&())))?;
    Ok(list.items)
}

#[cfg(test)]
mod tests;
