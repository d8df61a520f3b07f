//! The status of pools is written, late and coalesced (POOL-3), and addresses are released by hand (6.4).

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
use crate::controllers::load_balancer::allocate;
use crate::controllers::takeover;
use crate::index::queues::Singleton;

/// Brings a pool's status up to date once its pace allows, and does what an administrator asked for by annotation. What is
/// too much of the past is forgotten elsewhere (POOL-5).
pub async fn reconcile(ctx: &Context, name: &PoolName) -> Result<Requeue, WriteError> {
    match ctx.index.pool_throttle.due_in(name, Instant::now()) {
        Duration::ZERO => bring_up_to_date(ctx, name).await,
        delay => Ok(Requeue::After(delay)),
    }
}

async fn bring_up_to_date(ctx: &Context, name: &PoolName) -> Result<Requeue, WriteError> {
    // Until all that its map says has become records, its status is not written (RUN-1).
    takeover::import_pool(ctx, name).await?;
    ctx.index.queues.history.add(Singleton);
    let key = Key::new("", name);
    let Some(entry) = ctx.index.stores.pools.entry(&key) else {
        ctx.index.pool_throttle.forget(name);
        return Ok(Requeue::AwaitChange);
    };
    let pool = entry.value;
    if let Err(error) = &pool.spec {
        ctx.index.pool_throttle.deciding(name);
        // Its maps are not known, so its status must not be written.
        invalid_object::report::<IPPool>(ctx, &key, &pool.meta, error).await?;
        return Ok(Requeue::AwaitChange);
    }
    let asked = annotation(&pool.meta, keys::ANNOTATION_MANUALLY_RELEASE_IP)
        .filter(|v| !v.trim().is_empty())
        .map(ToOwned::to_owned);
    let released = match &asked {
        Some(asked) => release_by_hand(ctx, name, asked).await,
        None => Ok(()),
    };
    // A record that the API server refuses to release delays itself alone: the wish stays, to be tried again, and the status
    // is written all the same (RUN-1).
    let refused = released.as_ref().is_err_and(WriteError::is_refusal);
    if !refused {
        released?;
        return write_status(ctx, name, &key, &pool, asked.is_some()).await;
    }
    write_status(ctx, name, &key, &pool, false).await?;
    released.map(|()| Requeue::AwaitChange)
}

/// Writes a pool's status and what goes with it, if that differs from what is stored; `asked`: the wish of an administrator is
/// dealt with.
async fn write_status(
    ctx: &Context,
    name: &PoolName,
    key: &Key,
    pool: &Pool,
    asked: bool,
) -> Result<Requeue, WriteError> {
    ctx.index.pool_throttle.deciding(name);
    let snapshot = ctx.index.pool_snapshot(name);
    let Some(projection) = snapshot.map(|snapshot| snapshot.project(MAPS_LIMIT)) else {
        return Ok(Requeue::AwaitChange);
    };
    let now = time::rfc3339(clock::now());
    // What has changed meanwhile makes the status due again.
    let Some(conditions) = ctx.index.pool_conditions(name, pool, &projection, &now) else {
        return Ok(Requeue::AwaitChange);
    };
    let Some(patch) = pool_status::patch(pool, &projection, &conditions, asked) else {
        return Ok(Requeue::AwaitChange);
    };
    let started = Instant::now();
    let written = ctx
        .client
        .patch_json::<IPPool>(key, Value::Array(patch))
        .await;
    // How long a write took that did not succeed says nothing about the maps.
    let took = written
        .as_ref()
        .map_or(Duration::ZERO, |_| started.elapsed());
    ctx.index.pool_throttle.wrote(name, took, Instant::now());
    match written {
        Ok(_) => {
            for draft in event_drafts(Some(&pool.conditions), &conditions) {
                ctx.notify_pool(&pool.meta, &draft);
            }
            Ok(Requeue::AwaitChange)
        }
        Err(error) if error.is_stale() => {
            let wait = ctx.index.pool_throttle.changed(name, false, Instant::now());
            Ok(Requeue::After(wait))
        }
        Err(other) => Err(other),
    }
}

/// An administrator's wish to release one address (6.4). It is refused without harm when it names the wrong pool,
/// owner or address, or a load balancer that lives.
async fn release_by_hand(ctx: &Context, pool: &PoolName, value: &str) -> Result<(), WriteError> {
    // Whether the load balancer lives is asked of the API server, not of a store that may lag.
    let judged = || {
        let now = clock::now();
        ctx.index.judge_manual_release(pool, value, now)
    };
    match judged()? {
        Verdict::Nothing => {}
        Verdict::Refused(refusal) => {
            warn!(%pool, value, %refusal, "not released by hand");
        }
        Verdict::Release(record) => {
            let key = cached::key(&record.spec.owner.id);
            if ctx.index.may_be_shared(&record) {
                warn!(%pool, value, "not released by hand: other load balancers share the address");
                return Ok(());
            }
            // One that cannot be decoded exists too.
            if matches!(
                ctx.index.stores.lbs.get(&key).as_deref(),
                Some(Lb::Invalid(..))
            ) {
                warn!(%pool, value, "not released by hand: the load balancer exists, and cannot be decoded");
                return Ok(());
            }
            let service = ctx.index.stores.services.get(&key);
            if service.is_some_and(|service| service.undecodable.is_some()) {
                warn!(%pool, value, "not released by hand: the Service cannot be decoded, and may show the address");
                return Ok(());
            }
            if ctx.client.get_live::<LoadBalancer>(&key).await?.is_some() {
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
            allocate::release(ctx, &record).await?;
            info!(%pool, value, "released by hand");
        }
    }
    Ok(())
}

/// Writes every pool's status that is behind, whatever its pace: before leadership is given up (POOL-3).
pub async fn flush(ctx: &Context) {
    for (key, _) in ctx.index.stores.pools.all() {
        let name = PoolName::from(&*key.name);
        if let Err(error) = bring_up_to_date(ctx, &name).await {
            warn!(pool = %name, %error, "the pool's status could not be brought up to date; the next leader does it");
        }
    }
}

#[cfg(test)]
mod tests;
