//! Writes of IPAllocations (section 6.5). Each carries the version that it was decided from (IPA-5); on a conflict the ledger has
//! the current object afterwards.

use std::collections::BTreeMap;
use std::net::IpAddr;

use harvester_lb_api::{IPAllocation, keys};
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached;
use harvester_lb_ipam::{Micros, Record, RecordSpec, addr};
use harvester_lb_object::{Key, Version};
use kube::api::ObjectMeta;
use serde_json::json;
use tracing::info;

use crate::context::Context;
use crate::index::Index;

/// Creates an IPAllocation, or replaces the given version. Returns whether it was written; on a conflict the ledger has the
/// current object afterwards.
pub async fn write(
    ctx: &Context,
    spec: &RecordSpec,
    replaces: Option<Version>,
) -> Result<bool, WriteError> {
    let key = key(spec.addr);
    let written = match replaces {
        None => {
            let object = IPAllocation {
                metadata: ObjectMeta {
                    name: Some(key.name.to_string()),
                    annotations: spec.group.as_deref().map(group_annotation),
                    ..ObjectMeta::default()
                },
                spec: cached::allocation_spec(spec),
            };
            ctx.client.create(&key, &object).await
        }
        Some(version) => {
            let from = ObjectMeta {
                resource_version: Some(version.0.to_string()),
                ..ObjectMeta::default()
            };
            let stored = ctx.index.stores.allocations.get(&key);
            let is_marked = matches!(
                stored.as_deref(),
                Some(cached::Allocation::Valid {
                    is_marked: true,
                    ..
                })
            );
            ctx.client.patch(&key, &from, patch(spec, is_marked)).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        Err(error) if error.is_stale() => Ok(false),
        Err(other) => Err(other),
    }
}

/// As [`write()`], for a caller that does not decide again: on a conflict the ledger has the current object afterwards, and the
/// error requeues the caller's key.
pub async fn rewrite(
    ctx: &Context,
    spec: &RecordSpec,
    replaces: Option<Version>,
) -> Result<(), WriteError> {
    if write(ctx, spec, replaces).await? {
        return Ok(());
    }
    Err(WriteError::Conflict(format!(
        "the IPAllocation of {} has changed",
        spec.addr
    )))
}

/// The key of the IPAllocation of an address.
pub fn key(address: IpAddr) -> Key {
    Key::new("", addr::record_name(address))
}

/// The annotation of a record whose address is that of a group (SHR-5).
fn group_annotation(group: &str) -> BTreeMap<String, String> {
    [(keys::ANNOTATION_PRIMARY.to_owned(), group.to_owned())].into()
}

/// All fields of a record, absent ones as `null`, so that the merge patch removes the old values. `is_marked`: the stored object
/// has the annotation of a group.
fn patch(spec: &RecordSpec, is_marked: bool) -> serde_json::Value {
    let mut patch = spec_patch(spec);
    if is_marked || spec.group.is_some() {
        let group = spec.group.as_deref();
        patch["metadata"] = json!({ "annotations": { keys::ANNOTATION_PRIMARY: group } });
    }
    patch
}

fn spec_patch(spec: &RecordSpec) -> serde_json::Value {
    let spec = cached::allocation_spec(spec);
    json!({ "spec": {
        "address": spec.address,
        "pool": spec.pool,
        "owner": spec.owner,
        "phase": spec.phase,
        "boundAt": spec.bound_at,
        "releasedAt": spec.released_at,
    }})
}

/// Rewrites the record of a load balancer before its status commits an address that it did not name so far. Until then an
/// earlier process may have seen an extra record in it, and its release may be in flight; the new resource version makes
/// that release a conflict (IPA-5). Only `boundAt` changes, by one microsecond.
pub async fn touch(ctx: &Context, addr: IpAddr) -> Result<(), WriteError> {
    let Some(record) = ctx.index.record(addr) else {
        return Ok(());
    };
    let spec = RecordSpec {
        bound_at: Micros(record.spec.bound_at.0.saturating_add(1)),
        ..record.spec
    };
    rewrite(ctx, &spec, Some(record.version)).await
}

/// Writes a record that the ledger has set to Released (REL-1).
pub async fn release(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    rewrite(ctx, &record.spec, Some(record.version)).await?;
    info!(owner = %record.spec.owner.id, address = %record.spec.addr, pool = %record.spec.pool, "address released");
    Ok(())
}

/// Writes the next owner of a shared address into its record (SHR-5).
pub async fn hand_over(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    rewrite(ctx, &record.spec, Some(record.version)).await?;
    info!(owner = %record.spec.owner.id, address = %record.spec.addr, group = record.spec.group.as_deref(), "shared address handed over");
    Ok(())
}

/// Deletes a Released IPAllocation. Returns whether it is gone: not while a finalizer holds it. On a conflict the ledger has the current object afterwards, and the error requeues the
/// caller's key.
pub async fn remove(ctx: &Context, record: &Record) -> Result<bool, WriteError> {
    let key = key(record.spec.addr);
    let uid = match ctx.index.stores.allocations.get(&key).as_deref() {
        Some(cached::Allocation::Valid { uid, .. }) => Some(uid.to_string()),
        _ => None,
    };
    let from = ObjectMeta {
        uid,
        resource_version: Some(record.version.0.to_string()),
        ..ObjectMeta::default()
    };
    // One that a finalizer holds stays: its address cannot be allocated (IPA-1).
    let is_gone = ctx.client.delete::<IPAllocation>(&key, &from).await?;
    if is_gone {
        <IPAllocation as CachedResource<Index>>::remove(&ctx.index, &key, record.version);
    }
    Ok(is_gone)
}
