//! Release of addresses, and the cleanup after a deleted load balancer (section 6.3, IPA-3).
//!
//! An address is released last: after its owner is known to be deleted, and after no Service shows it.

use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_api::{LoadBalancer, meta};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, CachedService, Lb};
use harvester_lb_core::desired::Ownership;
use harvester_lb_core::plan::{self, View};
use harvester_lb_ipam::{Blocked, Phase, Record};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use tracing::debug;

use crate::clock;
use crate::context::Context;
use crate::controllers::load_balancer::announcement;
use crate::controllers::load_balancer::apply;
use crate::controllers::load_balancer::group::Group;
use crate::controllers::load_balancer::observe::Stored;
use crate::controllers::load_balancer::standing;
use crate::controllers::{live, records};
use crate::index::leader_ops::ReleaseVerdict;

/// Cleans up after a deleted load balancer: health checks, Service, EndpointSlice, IPAllocations (REL-2, REL-3).
pub async fn deleted_lb(ctx: &Context, key: &Key) -> Result<Requeue, WriteError> {
    let none = LoadBalancer::default();
    let mut is_verified = false;
    let cleanup = loop {
        let Ok(left) = ctx.index.left_behind(key) else {
            return Ok(Requeue::AwaitChange);
        };
        let uid = left.deleted.as_ref().map(|deleted| &*deleted.uid);
        if let Some(group) = standing::held_elsewhere(ctx, key, key, uid) {
            // Its ports go off the Service that it shared first (SHR-4); the event of that brings it back.
            ctx.index.queues.lbs.add(group);
            return Ok(Requeue::Resync);
        }
        let stored = Stored::of(ctx, key);
        let objects = stored.objects(key);
        let mut owners = objects.other_owners().into_iter();
        let is_awaited = owners.any(|it| standing::named_by_slice(ctx, &it).as_ref() == Some(key));
        let Some(cleanup) = plan::cleanup(left, &objects, is_awaited) else {
            ctx.index.withdraw(key);
            return Ok(Requeue::AwaitChange);
        };
        ensure_none_joined(ctx, key).await?;
        if !cleanup.verify_absence || is_verified {
            ctx.index.withdraw(key);
            apply::apply(ctx, &View::of(&none, objects), &cleanup.plan).await?;
            break cleanup;
        }
        if ctx.client.get_live::<LoadBalancer>(key).await?.is_some() {
            // Absent from a list or a stale store, but it exists (IPA-3 a). The watch or this read puts it back into the
            // store, and the next reconcile treats it as existing.
            return Ok(Requeue::Resync);
        }
        // What is stored may have changed meanwhile.
        is_verified = true;
    };
    let mut shown = Vec::new();
    let before = own_service(ctx, key);
    if cleanup.verify_service && !shows_all(before.as_deref(), &cleanup.release) {
        // The store may be stale; the address must not be released while it is announced (IPA-3 b).
        shown = live::shown_addresses(ctx, key).await?;
        let now = own_service(ctx, key);
        let version = |it: &Arc<CachedService>| it.metadata.resource_version.clone();
        if now.is_some() && now.as_ref().map(version) != before.as_ref().map(version) {
            // It may be that of a later load balancer of the name; the next reconcile looks at its owner.
            return Err(WriteError::Conflict(format!(
                "Service {key} exists, the store was behind"
            )));
        }
    }
    if release_records(ctx, key, cleanup.release, &shown).await? {
        ctx.index.cleanup_complete(key);
        return Ok(Requeue::AwaitChange);
    }
    Ok(Requeue::Resync)
}

/// Verifies, at most once in a term, that those who name a deleted load balancer do not share its address: an earlier leader may have told
/// them so (SHR-5).
///
/// # Errors
/// `Conflict` if one has changed, or shares it; the store has it.
async fn ensure_none_joined(ctx: &Context, key: &Key) -> Result<(), WriteError> {
    let Some(group) = Group::of(ctx, key) else {
        return Ok(());
    };
    for lb in group.lbs() {
        live::ensure_caught_up(ctx, &meta::key(&lb.metadata), lb).await?;
    }
    // What was read just now may share it after all.
    if Group::of(ctx, key).is_some_and(|it| it.has_holder()) {
        return Err(WriteError::Conflict(format!(
            "others share the address of {key}"
        )));
    }
    Ok(())
}

/// Whether the Service cannot be decoded; a live read could not decode it either.
fn is_undecodable(ctx: &Context, key: &Key) -> bool {
    Stored::of(ctx, key).objects(key).is_service_undecodable()
}

/// The Service of this name in the store, if it is ours.
fn own_service(ctx: &Context, key: &Key) -> Option<Arc<CachedService>> {
    let stored = Stored::of(ctx, key);
    let owner = stored.objects(key).service_owner()?;
    stored.service.filter(|_| owner != Ownership::Foreign)
}

/// Whether a Service shows the address of each of these records; a live read could not show more.
fn shows_all(service: Option<&CachedService>, records: &[Record]) -> bool {
    service.is_some_and(|service| {
        let shown = cached::shown_addresses(service);
        let mut all = records.iter().map(|record| record.spec.addr);
        all.all(|addr| shown.contains(&addr))
    })
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
    if is_any_due(ctx, key, &records) {
        live::ensure_unchanged(ctx, key, lb).await?;
        release_unshown(ctx, key, records).await?;
    }
    Ok(())
}

/// Releases what a load balancer has left besides the address that others share under its name, see `release_records`: it was moved
/// to that address when it was deleted (REL-2, REL-4). Returns whether all are released.
pub async fn release_left(
    ctx: &Context,
    key: &Key,
    records: Vec<Record>,
) -> Result<bool, WriteError> {
    // The answer for one of the name that cannot be decoded could not be decoded either.
    let stored = ctx.index.stores.lbs.get(key);
    let is_unreadable = matches!(stored.as_deref(), Some(Lb::Invalid(..)));
    if is_unreadable || !is_any_due(ctx, key, &records) {
        return Ok(records.is_empty());
    }
    live::ensure_gone(ctx, key, &records).await?;
    release_unshown(ctx, key, records).await
}

/// Whether the release of one of these records can be tried. While kube-vip announces another address than the Service asks for, none
/// is: it may announce each that the Service has asked for in between (REL-4). The event of the announcement brings them back.
fn is_any_due(ctx: &Context, key: &Key, records: &[Record]) -> bool {
    let is_due = |record: &Record| {
        let verdict = ctx.index.may_release(record, clock::now());
        let is_not_yet = matches!(
            verdict,
            Ok(ReleaseVerdict::Shared | ReleaseVerdict::Blocked(_))
        );
        record.spec.phase == Phase::Bound && !is_not_yet
    };
    let service = ctx.index.stores.services.get(key);
    let is_behind = service.is_some_and(|it| announcement::is_behind(ctx, key, &it));
    !is_behind && !is_undecodable(ctx, key) && records.iter().any(is_due)
}

/// Releases records after a live read of the Service, see `release_records`.
async fn release_unshown(
    ctx: &Context,
    key: &Key,
    records: Vec<Record>,
) -> Result<bool, WriteError> {
    let service = ctx.client.get_live::<Service>(key).await?;
    let is_behind = |it: &Service| announcement::is_behind(ctx, key, it);
    if service.as_ref().is_some_and(is_behind) {
        debug!(lb = %key, reason = "kube-vip has yet to announce the address that the Service asks for", "addresses not released");
        return Ok(false);
    }
    let shown = service.as_ref().map(cached::shown_addresses);
    release_records(ctx, key, records, &shown.unwrap_or_default()).await
}

/// Writes a Released record, once its owner is known not to share the address any more, and to have said so.
async fn release_one(ctx: &Context, from: &Record, released: &Record) -> Result<(), WriteError> {
    live::ensure_unnamed(ctx, from).await?;
    records::release(ctx, released).await
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
            ReleaseVerdict::Release(_) if !ctx.index.begin_release(record.spec.addr) => {
                debug!(lb = %key, address = %record.spec.addr, reason = "another load balancer joins", "address not released");
                all = false;
            }
            ReleaseVerdict::Release(released) => {
                let done = release_one(ctx, &record, &released).await;
                ctx.index.release_ended(record.spec.addr);
                match done {
                    // A refusal for one address does not delay the others (RUN-1).
                    Err(error) if error.is_refusal() => failed = Some(error),
                    other => other?,
                }
            }
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
