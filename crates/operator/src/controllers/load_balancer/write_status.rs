//! Writes of LoadBalancer objects, as merge patches of the differences.

use harvester_lb_api::condition::{self, Condition, READY};
use harvester_lb_api::{LoadBalancer, keys, meta};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::detail_events;
use harvester_lb_core::merge_patch::difference;
use harvester_lb_core::status::{self, StatusUpdate, StatusWrite};
use harvester_lb_core::time;
use harvester_lb_object::Key;
use tokio::time::{Duration, Instant};
use tracing::info;

use crate::clock;
use crate::context::Context;

/// Writes a load balancer's status if it changes, and publishes the Events of the change. If only detail conditions change, it
/// is written at the earliest [`Timings::detail_interval`](crate::timings::Timings::detail_interval) after its last write; until
/// then it stays, and the load balancer is queued for that time.
pub async fn write_status(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    report: &StatusUpdate,
) -> Result<LoadBalancer, WriteError> {
    let wanted = match status::decide(lb, report, &time::rfc3339(clock::now())) {
        StatusWrite::None => return Ok(lb.clone()),
        StatusWrite::Now(wanted) => wanted,
        StatusWrite::Paced(wanted) => {
            let wait = ctx.detail_throttle.due_in(key, Instant::now());
            if !wait.is_zero() {
                ctx.index.queues.lbs.add_after(key.clone(), wait);
                return Ok(lb.clone());
            }
            wanted
        }
    };
    let Some(patch) = difference(lb, &*wanted) else {
        return Ok(*wanted);
    };
    // The API server may apply a write at its start or just before its end.
    let mark = || {
        ctx.detail_throttle
            .wrote(key, Duration::ZERO, Instant::now());
    };
    mark();
    let written = ctx.client.patch(key, &lb.metadata, patch).await;
    mark();
    if let Err(WriteError::Unavailable(_)) = &written {
        // It may have been done: the next step that acts on the status reads it first (IPA-6).
        ctx.index.set_unverified(key);
    }
    let written = written?;
    ctx.index.set_verified(key);
    let before = lb.status.as_ref().and_then(|s| s.conditions.as_deref());
    let after = wanted
        .status
        .as_ref()
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    let ready = |all: &[Condition]| {
        condition::find(all, READY).map(|c| (c.reason.clone(), c.message.clone()))
    };
    let now = ready(after);
    if now != ready(before.unwrap_or_default())
        && let Some((reason, message)) = now
    {
        info!(lb = %key, reason, message, "status changed");
    }
    let drafts = status::event_drafts(before, after);
    for draft in drafts
        .iter()
        .chain(&detail_events::event_drafts(lb, &wanted))
    {
        ctx.notify_lb(&lb.metadata, draft);
    }
    Ok(written)
}

/// Removes legacy finalizers of an object that is being deleted (FIN-2). Its address is released after its deletion (6.3).
pub async fn drop_finalizers(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
) -> Result<Requeue, WriteError> {
    ctx.index.set_aside(&lb.metadata);
    let mut wanted = lb.clone();
    if let Some(kept) = meta::finalizers_without(&lb.metadata, &keys::LEGACY_FINALIZERS) {
        wanted.metadata.finalizers = (!kept.is_empty()).then_some(kept);
    }
    if let Some(patch) = difference(lb, &wanted) {
        match ctx
            .client
            .patch::<LoadBalancer>(key, &lb.metadata, patch)
            .await
        {
            // Removing the last finalizer deletes the object.
            Ok(_) | Err(WriteError::NotFound(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(Requeue::AwaitChange)
}
