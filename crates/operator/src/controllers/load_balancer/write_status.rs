//! Writes of LoadBalancer objects, as merge patches of the differences.

use harvester_lb_api::condition::{self, Condition, READY};
use harvester_lb_api::{LoadBalancer, keys, meta};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::merge_patch::difference;
use harvester_lb_core::status::{self, StatusUpdate};
use harvester_lb_core::time;
use harvester_lb_object::Key;
use tracing::info;

use crate::clock;
use crate::context::Context;

/// Writes a load balancer's status if it changes, and publishes the Events of the change.
pub async fn write_status(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    report: &StatusUpdate,
) -> Result<LoadBalancer, WriteError> {
    let wanted = status::apply(lb, report, &time::rfc3339(clock::now()));
    let Some(patch) = difference(lb, &wanted) else {
        return Ok(wanted);
    };
    let written = ctx.client.patch(key, &lb.metadata, patch).await?;
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
    for draft in status::event_drafts(before, after) {
        ctx.notify_lb(&lb.metadata, &draft);
    }
    Ok(written)
}

/// Removes legacy finalizers of an object that is being deleted (FIN-2). Its address is released after its deletion (6.3).
pub async fn drop_finalizers(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
) -> Result<Requeue, WriteError> {
    ctx.index.set_aside(key);
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
