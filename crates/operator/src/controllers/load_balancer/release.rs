//! Giving back: of load balancers that are gone, of addresses that are no longer needed, of Services that must not
//! serve any more (section 6.3, IPA-3).
//!
//! An address is given back last: after its owner is known to be gone, and after no Service shows it.

use harvester_lb_api::LoadBalancer;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::spec;
use harvester_lb_ipam::{Blocked, Phase, Record};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tracing::{debug, info};

use crate::clock;
use crate::context::Context;
use crate::controllers::load_balancer::allocate;
use crate::index::leader_ops::{LeftBehind, ReleaseVerdict};

/// What a load balancer that is gone has left behind (REL-2, REL-3).
pub async fn deleted_lb(ctx: &Context, key: &Key) -> Result<Requeue, WriteError> {
    let Ok(LeftBehind { deleted, bound }) = ctx.index.left_behind(key) else {
        return Ok(Requeue::AwaitChange);
    };
    if deleted.is_none() && bound.is_empty() {
        // Nobody to make a record again that was deleted by hand (IPA-7).
        ctx.index.withdraw(key);
        return Ok(Requeue::AwaitChange);
    }
    let is_gone = deleted.as_ref().is_some_and(|d| {
        !d.final_state_unknown && bound.iter().all(|r| r.spec.owner.uid.to_string() == d.uid)
    });
    if !is_gone && ctx.client.get_live::<LoadBalancer>(key).await?.is_some() {
        // Absent from a list, or from a store that lags, and there all the same (IPA-3 a). The watch or this read
        // puts it back into the store, and a living load balancer is reconciled as such.
        return Ok(Requeue::Resync);
    }

    ctx.index.withdraw(key);
    ctx.prober.remove_group(&key.to_string());
    if !ctx.index.has_shared_service(key) {
        delete_owned(ctx, key).await?;
    }
    let had_service = deleted.as_ref().is_none_or(|d| d.had_service);
    if had_service
        && !bound.is_empty()
        && ctx.index.stores.services.get(key).is_none()
        // The store may be behind; the address must not be given back while it is announced (IPA-3 b).
        && ctx.client.get_live::<Service>(key).await?.is_some()
    {
        delete_owned(ctx, key).await?;
    }
    let all = release_records(ctx, key, bound).await?;
    if all {
        ctx.index.nothing_left_of(key);
        return Ok(Requeue::AwaitChange);
    }
    Ok(Requeue::Resync)
}

/// Deletes the Service, then the EndpointSlice, of a load balancer that is gone or has no address. Does not wait: the
/// end of the Service is an event.
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

/// Deletes the Service alone.
pub async fn delete_service(ctx: &Context, key: &Key) -> Result<(), WriteError> {
    if let Some(service) = ctx.index.stores.services.get(key)
        && should_delete(&service.metadata, key)
    {
        info!(service = %key, "deleting the Service");
        ctx.client.delete::<Service>(key, &service.metadata).await?;
    }
    Ok(())
}

/// Whether an object of a load balancer's name is ours and not on its way out yet.
fn should_delete(meta: &ObjectMeta, key: &Key) -> bool {
    meta.deletion_timestamp.is_none() && desired::ownership(meta, &key.name) == Ownership::Ours
}

/// Releases further records of a load balancer that lives, as [`release_records`] does.
///
/// A late write of a process before this one may have committed one of them meanwhile, or made a Service that shows it, so
/// both are read live first (IPA-3, IPA-6).
pub async fn release_extra_records(
    ctx: &Context,
    key: &Key,
    records: Vec<Record>,
) -> Result<(), WriteError> {
    if records.iter().any(|r| r.spec.phase == Phase::Bound)
        && let Some(lb) = ctx.client.get_live::<LoadBalancer>(key).await?
        && let Some(named) = spec::request(&lb).status
        && records.iter().any(|r| r.spec.addr == named.addr)
    {
        return Err(WriteError::Conflict(format!(
            "LoadBalancer {key} has just been given {}",
            named.addr
        )));
    }
    if records.iter().any(|r| r.spec.phase == Phase::Bound)
        && ctx.index.stores.services.get(key).is_none()
    {
        ctx.client.get_live::<Service>(key).await?;
        if ctx.index.stores.services.get(key).is_some() {
            return Err(WriteError::Conflict(format!(
                "Service {key} has just been found"
            )));
        }
    }
    release_records(ctx, key, records).await?;
    Ok(())
}

/// Releases records that nobody needs any more. Answers whether all are released; one that a Service still shows is
/// released when that ends, which is an event.
pub async fn release_records(
    ctx: &Context,
    key: &Key,
    records: Vec<Record>,
) -> Result<bool, WriteError> {
    let service = ctx.index.stores.services.get(key);
    if service.is_some_and(|service| service.undecodable.is_some()) {
        debug!(lb = %key, "nothing is released, which addresses its Service shows is not known");
        return Ok(records.is_empty());
    }
    let mut all = true;
    let mut failed = None;
    for record in records {
        if record.spec.phase != Phase::Bound {
            continue;
        }
        match ctx.index.may_release(&record, clock::now())? {
            // IPA-9: whoever shares it ends, or leaves: that is an event.
            ReleaseVerdict::Shared => {
                debug!(lb = %key, address = %record.spec.addr, "not released, others share it");
                all = false;
            }
            ReleaseVerdict::Release(released) => match allocate::release(ctx, &released).await {
                // That of one address delays none of the others (RUN-1).
                Err(error) if error.is_refusal() => failed = Some(error),
                other => other?,
            },
            ReleaseVerdict::Blocked(why @ (Blocked::Shown { .. } | Blocked::Unreadable)) => {
                debug!(lb = %key, address = %record.spec.addr, %why, "not released yet");
                all = false;
            }
            // Released, taken over or gone meanwhile: nothing is left to do for this owner.
            ReleaseVerdict::Blocked(other) => {
                debug!(lb = %key, address = %record.spec.addr, ?other, "not released");
            }
        }
    }
    failed.map_or(Ok(all), Err)
}

#[cfg(test)]
mod tests;
