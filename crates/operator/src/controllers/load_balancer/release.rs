//! Release of addresses, and deletion of Services and EndpointSlices that are no longer needed (section 6.3, IPA-3).
//!
//! An address is released last: after its owner is known to be deleted, and after no Service shows it.

use std::net::IpAddr;

use harvester_lb_api::LoadBalancer;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_ipam::{Blocked, Phase, Record};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tracing::{debug, info};

use crate::clock;
use crate::context::Context;
use crate::controllers::load_balancer::live::SeenPool;
use crate::controllers::load_balancer::{allocate, live};
use crate::index::leader_ops::{LeftBehind, ReleaseVerdict};

/// Cleans up after a deleted load balancer: health checks, Service, EndpointSlice, IPAllocations (REL-2, REL-3).
pub async fn deleted_lb(ctx: &Context, key: &Key) -> Result<Requeue, WriteError> {
    let Ok(LeftBehind { deleted, bound }) = ctx.index.left_behind(key) else {
        return Ok(Requeue::AwaitChange);
    };
    if deleted.is_none() && bound.is_empty() {
        // A record that was deleted by hand is not recreated without an owner (IPA-7).
        ctx.index.withdraw(key);
        return Ok(Requeue::AwaitChange);
    }
    let is_gone = deleted.as_ref().is_some_and(|d| {
        !d.final_state_unknown
            && bound.iter().all(|r| r.spec.owner.uid.to_string() == d.uid)
            && !is_owned_by_other_uid(ctx, key, &d.uid)
    });
    if !is_gone && ctx.client.get_live::<LoadBalancer>(key).await?.is_some() {
        // Absent from a list or a stale store, but it exists (IPA-3 a). The watch or this read puts it back into the store,
        // and the next reconcile treats it as existing.
        return Ok(Requeue::Resync);
    }

    ctx.index.withdraw(key);
    ctx.prober.remove_group(&key.to_string());
    if !ctx.index.has_shared_service(key) {
        delete_owned(ctx, key).await?;
    }
    let had_service = deleted.as_ref().is_none_or(|d| d.had_service);
    let mut shown = Vec::new();
    if had_service && !bound.is_empty() && !has_own_service(ctx, key) {
        // The store may be stale; the address must not be released while it is announced (IPA-3 b).
        shown = live::shown_addresses(ctx, key).await?;
        if has_own_service(ctx, key) {
            // It may be that of a later load balancer of the name; the next reconcile looks at its owner.
            return Err(WriteError::Conflict(format!(
                "Service {key} exists, the store was behind"
            )));
        }
    }
    let all = release_records(ctx, key, bound, &shown).await?;
    if all {
        ctx.index.cleanup_complete(key);
        return Ok(Requeue::AwaitChange);
    }
    Ok(Requeue::Resync)
}

/// Deletes the Service, then the EndpointSlice, of a load balancer that is deleted or has no address. Does not wait: the
/// deletion event of the Service queues the load balancer.
pub async fn delete_owned(ctx: &Context, key: &Key) -> Result<(), WriteError> {
    delete_service(ctx, key).await?;
    if let Some(slice) = ctx.index.stores.slices.get(key)
        && should_delete(&slice.metadata, key)
    {
        ctx.client
            .delete::<EndpointSlice>(key, &slice.metadata)
            .await?;
    }
    Ok(())
}

/// As [`delete_owned`], for an existing load balancer that no longer needs them. No write with its resource version precedes
/// the deletion, so a stale copy of it, or of the pool from which it gets no address, must not decide on it (REL-4).
pub async fn delete_owned_of(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    pool: Option<&SeenPool>,
) -> Result<(), WriteError> {
    if has_owned(ctx, key) {
        live::ensure_unchanged(ctx, key, lb).await?;
        if let Some(pool) = pool {
            live::ensure_pool_unchanged(ctx, pool).await?;
        }
    }
    ctx.prober.remove_group(&key.to_string());
    delete_owned(ctx, key).await
}

/// Whether there is something to delete for [`delete_owned`].
pub fn has_owned(ctx: &Context, key: &Key) -> bool {
    let stores = &ctx.index.stores;
    let service = stores.services.get(key);
    let slice = stores.slices.get(key);
    service.is_some_and(|service| should_delete(&service.metadata, key))
        || slice.is_some_and(|slice| should_delete(&slice.metadata, key))
}

/// Deletes the Service alone.
pub async fn delete_service(ctx: &Context, key: &Key) -> Result<(), WriteError> {
    if let Some(service) = ctx.index.stores.services.get(key)
        && should_delete(&service.metadata, key)
    {
        info!(service = %key, "deleting Service");
        ctx.client.delete::<Service>(key, &service.metadata).await?;
    }
    Ok(())
}

/// Whether the Service cannot be decoded; a live read could not decode it either.
pub fn is_undecodable(ctx: &Context, key: &Key) -> bool {
    let service = ctx.index.stores.services.get(key);
    service.is_some_and(|service| service.undecodable.is_some())
}

/// Whether the store has a Service of this name that is ours.
fn has_own_service(ctx: &Context, key: &Key) -> bool {
    let service = ctx.index.stores.services.get(key);
    service.is_some_and(|s| desired::ownership(&s.metadata, &key.name) != Ownership::Foreign)
}

/// Whether the stored Service or EndpointSlice belongs to a load balancer of this name with another uid. Then that of this
/// uid was recreated, and the event of it is still to come.
fn is_owned_by_other_uid(ctx: &Context, key: &Key, uid: &str) -> bool {
    let stores = &ctx.index.stores;
    let of_another = |meta: &ObjectMeta| desired::is_owned_by_other_uid(meta, &key.name, uid);
    stores
        .services
        .get(key)
        .is_some_and(|it| of_another(&it.metadata))
        || stores
            .slices
            .get(key)
            .is_some_and(|it| of_another(&it.metadata))
}

/// Whether an object of a load balancer's name is ours and not being deleted yet.
fn should_delete(meta: &ObjectMeta, key: &Key) -> bool {
    meta.deletion_timestamp.is_none() && desired::ownership(meta, &key.name) == Ownership::Ours
}

/// Releases extra records of an existing load balancer, see `release_records`. `lb`: as its status was written, or found
/// unchanged.
///
/// A late write of an earlier process may have committed one of them meanwhile, or created a Service with its address, so
/// both are read live first (IPA-3, IPA-6).
pub async fn release_extra_records(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    records: Vec<Record>,
) -> Result<(), WriteError> {
    let mut shown = Vec::new();
    let is_due = |record: &Record| {
        let verdict = ctx.index.may_release(record, clock::now());
        !matches!(
            verdict,
            Ok(ReleaseVerdict::Shared | ReleaseVerdict::Blocked(_))
        )
    };
    if !is_undecodable(ctx, key)
        && records
            .iter()
            .any(|r| r.spec.phase == Phase::Bound && is_due(r))
    {
        live::ensure_unchanged(ctx, key, lb).await?;
        shown = live::shown_addresses(ctx, key).await?;
    }
    release_records(ctx, key, records, &shown).await?;
    Ok(())
}

/// Releases records that are no longer needed. Returns whether all are released. A record whose address a Service still
/// shows, as stored or as read live (`shown`), or another load balancer may share (IPA-9), is released after the event that
/// ends it.
async fn release_records(
    ctx: &Context,
    key: &Key,
    records: Vec<Record>,
    shown: &[IpAddr],
) -> Result<bool, WriteError> {
    if is_undecodable(ctx, key) {
        debug!(lb = %key, reason = "the Service cannot be decoded, and may show the address", "address not released");
        return Ok(records.is_empty());
    }
    let mut all = true;
    let mut failed = None;
    for record in records {
        if record.spec.phase != Phase::Bound {
            continue;
        }
        if shown.contains(&record.spec.addr) {
            debug!(lb = %key, address = %record.spec.addr, reason = "the Service shows it", "address not released");
            all = false;
            continue;
        }
        match ctx.index.may_release(&record, clock::now())? {
            // IPA-9: released after the event by which the last load balancer stops sharing it.
            ReleaseVerdict::Shared => {
                debug!(lb = %key, address = %record.spec.addr, reason = "other load balancers share the address", "address not released");
                all = false;
            }
            ReleaseVerdict::Release(released) => match allocate::release(ctx, &released).await {
                // A refusal for one address does not delay the others (RUN-1).
                Err(error) if error.is_refusal() => failed = Some(error),
                other => other?,
            },
            ReleaseVerdict::Blocked(why @ (Blocked::Shown { .. } | Blocked::Unreadable)) => {
                debug!(lb = %key, address = %record.spec.addr, reason = %why, "address not released");
                all = false;
            }
            // Released, taken over or deleted meanwhile: nothing is left to release for this owner.
            ReleaseVerdict::Blocked(other) => {
                debug!(lb = %key, address = %record.spec.addr, reason = %other, "address not released");
            }
        }
    }
    failed.map_or(Ok(all), Err)
}

#[cfg(test)]
mod tests;
