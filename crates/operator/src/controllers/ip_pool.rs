//! The pool controller: writes the status of pools, late and coalesced (POOL-3), and processes manual releases (6.4).

use std::time::Duration;

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{IPPool, LoadBalancer, keys};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, Lb, Pool};
use harvester_lb_core::pool_status::{self, MAPS_LIMIT};
use harvester_lb_core::status::event_drafts;
use harvester_lb_core::time;
use harvester_lb_ipam::PoolName;
use harvester_lb_ipam::manual_release::Verdict;
use harvester_lb_object::Key;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::clock;
use crate::context::Context;
use crate::controllers::invalid_object;
use crate::controllers::takeover;
use crate::controllers::{live, records};
use crate::index::queues::Singleton;

/// Writes a pool's status once its throttle allows it, and processes the annotation for a manual release. History beyond
/// the limits is deleted by another controller (POOL-5).
pub async fn reconcile(ctx: &Context, name: &PoolName) -> Result<Requeue, WriteError> {
    match ctx.index.pool_throttle.due_in(name, Instant::now()) {
        Duration::ZERO => write_now(ctx, name).await,
        delay => Ok(Requeue::After(delay)),
    }
}

/// Imports what is left of the pool's maps, processes a manual release and writes the status. A refused release does not
/// delay the status; a missing IPAllocation of a map's entry does (RUN-1).
async fn write_now(ctx: &Context, name: &PoolName) -> Result<Requeue, WriteError> {
    // The status is not written before every entry of its maps has an IPAllocation.
    takeover::import_pool(ctx, name).await?;
    ctx.index.queues.history.add(Singleton);
    let key = Key::new("", name);
    let Some(entry) = ctx.index.stores.pools.entry(&key) else {
        ctx.index.pool_throttle.forget(name);
        return Ok(Requeue::AwaitChange);
    };
    let pool = entry.value;
    if let Err(error) = &pool.spec {
        ctx.index.pool_throttle.deciding(name, Instant::now());
        // Its maps are unknown, so its status must not be overwritten.
        invalid_object::report::<IPPool>(ctx, &key, &pool.meta, error).await?;
        return Ok(Requeue::AwaitChange);
    }
    let requested = annotation(&pool.meta, keys::ANNOTATION_MANUALLY_RELEASE_IP)
        .filter(|v| !v.trim().is_empty())
        .map(ToOwned::to_owned);
    let released = match &requested {
        Some(requested) => release_manually(ctx, name, requested).await,
        None => Ok(()),
    };
    // If the API server refuses the release, the annotation stays for a retry and the status is still written.
    let refused = released.as_ref().is_err_and(WriteError::is_refusal);
    if !refused {
        released?;
        return write_status(ctx, name, &key, &pool, requested.is_some()).await;
    }
    write_status(ctx, name, &key, &pool, false).await?;
    released.map(|()| Requeue::AwaitChange)
}

/// Writes a pool's status, annotations and finalizers if they differ from the stored ones. `release_processed`: the
/// annotation for a manual release was processed and is removed.
async fn write_status(
    ctx: &Context,
    name: &PoolName,
    key: &Key,
    pool: &Pool,
    release_processed: bool,
) -> Result<Requeue, WriteError> {
    ctx.index.pool_throttle.deciding(name, Instant::now());
    let snapshot = ctx.index.pool_snapshot(name);
    let Some(projection) = snapshot.map(|snapshot| snapshot.project(MAPS_LIMIT)) else {
        return Ok(Requeue::AwaitChange);
    };
    let now = time::rfc3339(clock::now());
    // A change in the meantime queues the pool again.
    let Some(conditions) = ctx.index.pool_conditions(name, pool, &projection, &now) else {
        return Ok(Requeue::AwaitChange);
    };
    let Some(patch) = pool_status::patch(pool, &projection, &conditions, release_processed) else {
        return Ok(Requeue::AwaitChange);
    };
    let started = Instant::now();
    let written = ctx
        .client
        .patch_json::<IPPool>(key, Value::Array(patch))
        .await;
    let (took, ended) = (started.elapsed(), Instant::now());
    match written {
        Ok(_) => {
            ctx.index.pool_throttle.wrote(name, took, ended);
            for draft in event_drafts(Some(&pool.conditions), &conditions) {
                ctx.notify_pool(&pool.meta, &draft);
            }
            Ok(Requeue::AwaitChange)
        }
        Err(error) => {
            ctx.index.pool_throttle.failed(name, took, ended);
            if !error.is_stale() {
                return Err(error);
            }
            let wait = ctx.index.pool_throttle.changed(name, false, Instant::now());
            Ok(Requeue::After(wait))
        }
    }
}

/// Processes the annotation for a manual release of one address (6.4). It is refused if it names the wrong pool, owner or
/// address, or an existing load balancer.
async fn release_manually(ctx: &Context, pool: &PoolName, value: &str) -> Result<(), WriteError> {
    // The existence of the load balancer is checked by a live read below, as the store may be stale.
    let judged = || {
        let now = clock::now();
        ctx.index.manual_release_verdict(pool, value, now)
    };
    let refuse = |reason: &str| warn!(%pool, value, reason, "manual release refused");
    match judged()? {
        Verdict::Nothing => {}
        Verdict::Refused(refusal) => {
            refuse(&refusal.to_string());
        }
        Verdict::Release(record) => {
            let key = cached::key(&record.spec.owner.id);
            if ctx.index.may_be_shared(&record) {
                refuse("other load balancers share the address");
                return Ok(());
            }
            // A load balancer that cannot be decoded exists too.
            if matches!(
                ctx.index.stores.lbs.get(&key).as_deref(),
                Some(Lb::Invalid(..))
            ) {
                refuse("the load balancer exists, and cannot be decoded");
                return Ok(());
            }
            let shows = cached::key(&record.spec.address_of());
            let service = ctx.index.stores.services.get(&shows);
            if service.is_some_and(|service| service.undecodable.is_some()) {
                refuse("the Service cannot be decoded, and may show the address");
                return Ok(());
            }
            if ctx.client.get_live::<LoadBalancer>(&key).await?.is_some() {
                refuse("the load balancer exists; delete it instead");
                return Ok(());
            }
            let shown = live::shown_addresses(ctx, &shows).await?;
            if shown.contains(&record.spec.addr) {
                refuse("the Service still shows the address");
                return Ok(());
            }
            // During the live reads a Service may have got the address (IPA-3). The annotation then stays for the next
            // reconcile, as after any conflict.
            let Verdict::Release(record) = judged()? else {
                return Err(WriteError::Conflict(format!(
                    "the holder or Service of {} has changed",
                    record.spec.addr
                )));
            };
            // A reconcile that began before may still create the Service, from a copy of the load balancer. Those that begin now know
            // from the live read that it is gone.
            if ctx.index.queues.lbs.is_working(&key) || ctx.index.queues.lbs.is_working(&shows) {
                return Err(WriteError::Conflict(format!(
                    "LoadBalancer {key} is being reconciled"
                )));
            }
            let address = record.spec.addr;
            if ctx.index.may_be_shared(&record) || !ctx.index.begin_release(address) {
                return Err(WriteError::Conflict(format!(
                    "a load balancer shares {address}, or is about to"
                )));
            }
            let released = records::release(ctx, &record).await;
            ctx.index.release_ended(address);
            released?;
            info!(%pool, value, "manual release done");
        }
    }
    Ok(())
}

/// Writes every outdated pool status without throttling, before the Lease is released (POOL-3).
pub async fn flush(ctx: &Context) {
    for (key, _) in ctx.index.stores.pools.all() {
        let name = PoolName::from(&*key.name);
        if let Err(error) = write_now(ctx, &name).await {
            warn!(pool = %name, %error, "pool status not written; the next leader writes it");
        }
    }
}

#[cfg(test)]
mod tests;
