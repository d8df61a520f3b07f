//! Live reads that verify what was decided from a stored copy.
//!
//! Each kind has a watch of its own, so a copy may be older than the others, most of all on a new leader. A write with the
//! resource version of the copy detects that. A step that no such write precedes verifies the copy here first; its request
//! is not sent if the object has changed, and the next reconcile decides from what was read.

use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, meta};
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{Allocation, Lb};
use harvester_lb_core::plan::{SeenLease, SeenPool};
use harvester_lb_core::sharing::group::is_owner;
use harvester_lb_core::sharing::{index, told};
use harvester_lb_core::{cached, spec, status};
use harvester_lb_ipam::{Owner, Record, Request};
use harvester_lb_object::{Key, Version};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::context::Context;
use crate::controllers::records;
use crate::index::Index;

/// Verifies by a live read that an object exists and that `holds` is true of it.
///
/// # Errors
/// `Conflict` if not; the store has the current object. Otherwise that of the request.
pub async fn ensure<K>(
    ctx: &Context,
    key: &Key,
    holds: impl FnOnce(&K) -> bool,
) -> Result<(), WriteError>
where
    K: CachedResource<Index>,
{
    let current = ctx.client.get_live::<K>(key).await?;
    if current.as_ref().is_some_and(holds) {
        return Ok(());
    }
    Err(changed::<K>(key))
}

/// Verifies that an object still has this version, or is still absent.
///
/// # Errors
/// `Conflict` if not; the store has the current object. Otherwise that of the request.
async fn ensure_version<K>(
    ctx: &Context,
    key: &Key,
    version: Option<Version>,
) -> Result<(), WriteError>
where
    K: CachedResource<Index>,
{
    let current = ctx.client.get_live::<K>(key).await?;
    if current.map(|it| meta::version(it.meta())) == version {
        return Ok(());
    }
    Err(changed::<K>(key))
}

fn changed<K: CachedResource<Index>>(key: &Key) -> WriteError {
    WriteError::Conflict(format!(
        "{} {key} has been changed, deleted or recreated meanwhile",
        K::kind(&())
    ))
}

/// Verifies that the load balancer of this name still has this uid: a later one of the name may own its IPAllocations
/// (IPA-3).
pub async fn ensure_uid(ctx: &Context, owner: &Owner) -> Result<(), WriteError> {
    let is_owner = |lb: &LoadBalancer| spec::owner(&lb.metadata) == *owner;
    ensure(ctx, &cached::key(&owner.id), is_owner).await
}

/// Verifies that a load balancer is unchanged.
pub async fn ensure_unchanged(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
) -> Result<(), WriteError> {
    let version = &lb.metadata.resource_version;
    let is_same = |now: &LoadBalancer| now.metadata.resource_version == *version;
    ensure(ctx, key, is_same).await?;
    ctx.index.set_verified(key);
    Ok(())
}

/// As [`ensure_unchanged`], but at most once in a term: an earlier leader may have served a newer state than the copy that
/// this process has when it becomes leader. What is newer than the verified copy comes by the watch, in order, and no other
/// process writes the owned objects meanwhile, late requests of that leader apart (docs/internals/interleavings.md).
pub async fn ensure_caught_up(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
) -> Result<(), WriteError> {
    if ctx.index.is_verified(key) {
        return Ok(());
    }
    ensure_unchanged(ctx, key, lb).await
}

/// As [`ensure_caught_up`], for the EndpointSlice of a load balancer that shares an address: the names of its ports tell which ports of
/// the Service are its own (SHR-3).
pub async fn ensure_slice_caught_up(ctx: &Context, key: &Key) -> Result<(), WriteError> {
    let stored = || ctx.index.stores.slices.get(key);
    let version = |slice: Arc<EndpointSlice>| slice.metadata.resource_version.clone();
    let before = stored().map(version);
    catch_slice_up(ctx, key).await?;
    if stored().map(version) != before {
        return Err(changed::<EndpointSlice>(key));
    }
    Ok(())
}

/// Brings the stored EndpointSlice of a load balancer that shares an address up to the present, at most once in a term: an earlier
/// leader may have written what the watch has not brought (SHR-2).
pub async fn catch_slice_up(ctx: &Context, key: &Key) -> Result<(), WriteError> {
    if !ctx.index.is_slice_verified(key) {
        ctx.client.get_live::<EndpointSlice>(key).await?;
        ctx.index.set_slice_verified(key);
    }
    Ok(())
}

/// Verifies that there is no load balancer of this name.
///
/// # Errors
/// `Conflict` if there is one; the store has it.
pub async fn ensure_absent(ctx: &Context, key: &Key) -> Result<(), WriteError> {
    if ctx.client.get_live::<LoadBalancer>(key).await?.is_none() {
        return Ok(());
    }
    Err(WriteError::Conflict(format!(
        "LoadBalancer {key} exists, the store was behind"
    )))
}

/// Verifies that the owner of records, the load balancer of this name, is gone: there is none, or a later one whose status names none of
/// the addresses (IPA-3 a).
///
/// # Errors
/// `Conflict` if not; the store has it.
pub async fn ensure_gone(ctx: &Context, key: &Key, records: &[Record]) -> Result<(), WriteError> {
    let live = ctx.client.get_live::<LoadBalancer>(key).await?;
    let has_any = live.is_some_and(|lb| {
        let (owner, named) = (spec::owner(&lb.metadata), status::allocated_addr(&lb));
        let mut all = records.iter().map(|record| &record.spec);
        all.any(|it| it.owner == owner || Some(it.addr) == named)
    });
    if has_any {
        let why = format!("LoadBalancer {key} exists, the store was behind");
        return Err(WriteError::Conflict(why));
    }
    Ok(())
}

/// Verifies that the owner of a shared address, if it has another name than the group, shares it no longer: it is gone, names another
/// one, or its status does not name the address, which comes first for one that joins and goes last for one that leaves (SHR-5, IPA-3,
/// IPA-6). One of its name that was restored from a backup is that owner: its status names the address. Or it is the copy `seen`, of
/// which the rules say that it may not share it: another one has its port, or it names another pool.
///
/// # Errors
/// `Conflict` if it still shares it; the store has it.
pub async fn ensure_left(
    ctx: &Context,
    record: &Record,
    seen: Option<&ObjectMeta>,
) -> Result<(), WriteError> {
    if record.spec.group.is_none() {
        return Ok(());
    }
    let (key, group) = (
        cached::key(&record.spec.owner.id),
        cached::key(&record.spec.address_of()),
    );
    let named = |lb: &LoadBalancer| status::allocated_addr(lb);
    let version = seen.and_then(|seen| seen.resource_version.as_ref());
    let shares = |lb: &LoadBalancer| {
        index::named_group(&key, &lb.metadata).as_ref() == Some(&group)
            && named(lb) == Some(record.spec.addr)
            && (version.is_none() || lb.metadata.resource_version.as_ref() != version)
    };
    let is_shared = match ctx.client.get_live::<LoadBalancer>(&key).await {
        Ok(lb) => lb.as_ref().is_some_and(shares),
        // Of such a copy the rules see the metadata: it stays a member as long as it names the group.
        Err(WriteError::Undecodable(_)) if is_undecodable_elsewhere(ctx, &key, &group) => false,
        Err(error) => return Err(error),
    };
    if is_shared {
        return Err(WriteError::Conflict(format!(
            "LoadBalancer {key} shares {}, the store was behind",
            record.spec.addr
        )));
    }
    Ok(())
}

/// Whether the stored copy of a load balancer cannot be decoded, and does not name this group any more.
fn is_undecodable_elsewhere(ctx: &Context, key: &Key, group: &Key) -> bool {
    let stored = ctx.index.stores.lbs.get(key);
    match stored.as_deref() {
        Some(Lb::Invalid(meta, _)) => index::named_group(key, meta).as_ref() != Some(group),
        _ => false,
    }
}

/// Verifies that the status of the owner of a shared address, if it has another name than the group, does not name the address: it goes
/// last for one that leaves, as for one that moves (IPA-3, IPA-6). One of its name that was restored from a backup is that owner.
///
/// # Errors
/// `Conflict` if it does; the store has it.
pub async fn ensure_unnamed(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    if record.spec.group.is_none() {
        return Ok(());
    }
    let key = cached::key(&record.spec.owner.id);
    let names = |lb: &LoadBalancer| {
        let is_its = spec::owner(&lb.metadata) == record.spec.owner || told::is_of_another(lb);
        is_its && status::allocated_addr(lb) == Some(record.spec.addr)
    };
    match ctx.client.get_live::<LoadBalancer>(&key).await? {
        Some(lb) if names(&lb) => Err(WriteError::Conflict(format!(
            "the status of LoadBalancer {key} still names {}",
            record.spec.addr
        ))),
        _ => Ok(()),
    }
}

/// Verifies that the Service of a group is not owned by this load balancer (SHR-7).
///
/// # Errors
/// `Conflict` if it is; the store has it.
pub async fn ensure_left_group(
    ctx: &Context,
    group: &Key,
    lb: &LoadBalancer,
) -> Result<(), WriteError> {
    let uid = lb.metadata.uid.as_deref().unwrap_or_default();
    let service = ctx.client.get_live::<Service>(group).await?;
    if is_owner(service.as_ref(), uid) {
        let why = format!("Service {group} has ports of the load balancer, the store was behind");
        return Err(WriteError::Conflict(why));
    }
    Ok(())
}

/// The pool that a load balancer names, to be taken before an allocation is decided; `None` if it names none.
pub fn seen_pool(ctx: &Context, request: &Request) -> Option<SeenPool> {
    let name = request.pool.clone()?;
    let stored = ctx.index.stores.pools.entry(&Key::new("", &*name));
    Some(SeenPool {
        name,
        version: stored.as_ref().map(|pool| pool.stamp.version),
        is_decodable: stored.is_none_or(|pool| pool.value.spec.is_ok()),
    })
}

/// Verifies that a pool, or its absence, is unchanged: the change of the load balancer may have been seen before that of its
/// pool. A pool that cannot be decoded is not read, because the answer could not be decoded either.
pub async fn ensure_pool_unchanged(ctx: &Context, seen: &SeenPool) -> Result<(), WriteError> {
    if !seen.is_decodable {
        return Ok(());
    }
    ensure_version::<IPPool>(ctx, &Key::new("", &*seen.name), seen.version).await
}

/// Verifies that an address has no IPAllocation of a pool of which `is_own` is true, and none that cannot be read.
///
/// # Errors
/// `Conflict` if it has; the store has the current IPAllocation. Otherwise that of the request.
pub async fn ensure_not_own(
    ctx: &Context,
    address: IpAddr,
    is_own: impl FnOnce(Record) -> bool,
) -> Result<(), WriteError> {
    let key = records::key(address);
    let live = ctx.client.get_live::<IPAllocation>(&key).await?;
    let may_be_own = match live.as_ref().map(Allocation::decoded) {
        Some(Allocation::Valid { record, .. }) => is_own(record),
        Some(Allocation::Unreadable { .. }) => true,
        _ => false,
    };
    if may_be_own {
        let why = format!("IPAllocation {key} may be that of the load balancer");
        return Err(WriteError::Conflict(why));
    }
    Ok(())
}

/// Verifies that the IPAllocation of an address, or its absence, is unchanged, before it decides that a load balancer has no address any
/// more: the watch of IPAllocations may be behind (SHR-4, SHR-6, IPA-7). One that cannot be read is not read again.
///
/// # Errors
/// `Conflict` if it has changed; the store has it.
pub async fn ensure_record_unchanged(ctx: &Context, addr: IpAddr) -> Result<(), WriteError> {
    let key = records::key(addr);
    let stored = ctx.index.stores.allocations.entry(&key);
    let is_readable = |it: &Allocation| matches!(it, Allocation::Valid { .. });
    if stored.as_ref().is_some_and(|it| !is_readable(&it.value)) {
        return Ok(());
    }
    let version = stored.map(|it| it.stamp.version);
    ensure_version::<IPAllocation>(ctx, &key, version).await
}

/// Verifies that the record of a DHCP lease, or its absence, is unchanged (DHC-3).
///
/// # Errors
/// `Conflict` if it has changed; the store has it.
pub async fn ensure_lease_unchanged(ctx: &Context, seen: &SeenLease) -> Result<(), WriteError> {
    ensure_version::<IPAllocation>(ctx, &Key::new("", &*seen.name), seen.version).await
}

/// Reads a Service live and returns the addresses that it shows, in case the stored copy is stale (IPA-3 b). Empty if there
/// is none.
pub async fn shown_addresses(ctx: &Context, key: &Key) -> Result<Vec<IpAddr>, WriteError> {
    let service = ctx.client.get_live::<Service>(key).await?;
    Ok(service.map_or_else(Vec::new, |service| cached::shown_addresses(&service)))
}
