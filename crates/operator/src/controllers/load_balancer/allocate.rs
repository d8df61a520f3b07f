//! API requests of allocations, and writes of IPAllocations (section 6).
//!
//! [`Allocation`] decides on the requests: the ledger proposes an address, and the creation of the IPAllocation named after
//! it succeeds for one owner only (ALC-8). The ledger sees each response before the next step.

use std::net::IpAddr;

use harvester_lb_api::{AllocatedAddress, IPAllocation, LoadBalancer};
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::{cached, spec};
use harvester_lb_ipam::allocation::{Allocation, GiveUp, ROUNDS, Step};
use harvester_lb_ipam::{
    AddressConflict, Grant, Micros, Owner, Record, RecordSpec, Request, WaitReason, addr,
};
use harvester_lb_object::{Key, Version};
use kube::api::ObjectMeta;
use serde_json::json;
use tracing::{info, warn};

use crate::clock;
use crate::context::Context;
use crate::controllers::load_balancer::live;
use crate::index::Index;

/// The result of [`acquire`].
#[derive(Debug)]
pub enum Acquired {
    /// The load balancer has a Bound IPAllocation.
    Granted {
        /// The address.
        grant: Grant,
        /// Further records of this load balancer, to be released once no Service shows their addresses.
        extra_records: Vec<Record>,
        /// Whether the IPAllocation has just been written.
        written: bool,
    },
    /// There is no address; the ledger has queued the load balancer as a waiter.
    Waiting {
        /// The reason of the condition.
        reason: WaitReason,
        /// The candidate pools, and why each was not used.
        message: String,
        /// An address that the status names and that is not this load balancer's.
        address_conflict: Option<AddressConflict>,
        /// As for [`Acquired::Granted`].
        extra_records: Vec<Record>,
        /// Whether the address in the status, the Service and the extra records stay as they are.
        keep_service: bool,
    },
}

/// Allocates the address of a load balancer (ALC-1 to ALC-8).
pub async fn acquire(ctx: &Context, request: &Request) -> Result<Acquired, WriteError> {
    match last_step(ctx, request, Allocation::acquire(request)).await? {
        Step::Done {
            grant,
            extra_records,
            written,
        } => Ok(Acquired::Granted {
            grant,
            extra_records,
            written,
        }),
        Step::Wait {
            reason,
            explanation,
            address_conflict,
            extra_records,
            keep_service,
        } => Ok(Acquired::Waiting {
            reason,
            message: explanation.to_string(),
            address_conflict,
            extra_records,
            keep_service,
        }),
        other => Err(unexpected_step(&other)),
    }
}

/// Keeps the address of a load balancer whose spec is refused recorded (ALC-10); it gets no new one. Returns the extra
/// records of its name, which the caller releases.
pub async fn keep(ctx: &Context, request: &Request) -> Result<Vec<Record>, WriteError> {
    match last_step(ctx, request, Allocation::keep(request)).await? {
        Step::Done { extra_records, .. }
        | Step::Wait { extra_records, .. }
        | Step::Nothing { extra_records } => Ok(extra_records),
        other => Err(unexpected_step(&other)),
    }
}

/// Executes an allocation, one request for each step. Returns the final step, which needs no request.
async fn last_step(
    ctx: &Context,
    request: &Request,
    mut allocation: Allocation<'_>,
) -> Result<Step, WriteError> {
    loop {
        let now = clock::now();
        let step = ctx.index.next_step(&mut allocation, now);
        let conflicts = allocation.take_conflicts();
        ctx.metrics.allocation_conflicts.inc_by(conflicts);
        match step? {
            Step::ReadRecord(addr) => {
                ctx.client
                    .get_live::<IPAllocation>(&record_key(addr))
                    .await?;
            }
            Step::VerifyOwner => live::ensure_uid(ctx, &request.owner).await?,
            Step::VerifyStatus(addr) => verify_status(ctx, &request.owner, addr).await?,
            Step::Delete(record) => forget_stale(ctx, &record).await?,
            Step::Write {
                spec,
                replaces,
                reason,
            } => {
                if write(ctx, &spec, replaces).await? {
                    allocation.accepted();
                    let reason =
                        reason.map_or_else(|| "Adopted".to_owned(), |why| format!("{why:?}"));
                    info!(owner = %spec.owner.id, address = %spec.addr, pool = %spec.pool, reason, "address allocated");
                }
            }
            Step::GiveUp(why) => return Err(give_up_error(&why)),
            last => return Ok(last),
        }
    }
}

/// The error of an allocation that gave up.
fn give_up_error(why: &GiveUp) -> WriteError {
    match why {
        GiveUp::Unreleased(gone) => WriteError::Refused(format!(
            "its address still belongs to LoadBalancer {gone}, which is deleted; that IPAllocation could not be released yet"
        )),
        GiveUp::TooManyRounds => WriteError::Conflict(format!(
            "lost {ROUNDS} addresses in a row to other load balancers"
        )),
    }
}

/// The error of an allocation that ends with a step of another kind of allocation.
fn unexpected_step(step: &Step) -> WriteError {
    WriteError::Conflict(format!("unexpected end of an allocation: {step:?}"))
}

/// Verifies that records of another uid belong to an earlier load balancer of the name (IPA-3).
pub async fn ensure_earlier_owner(
    ctx: &Context,
    request: &Request,
    records: &[Record],
) -> Result<(), WriteError> {
    if records.iter().all(|r| r.spec.owner == request.owner) {
        return Ok(());
    }
    live::ensure_uid(ctx, &request.owner).await
}

/// Deletes an unusable Released IPAllocation (ALC-2). A refusal does not block the allocation; the deletion is retried with
/// the next one (RUN-1).
async fn forget_stale(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    match remove(ctx, record).await {
        Err(WriteError::Refused(why)) => {
            warn!(address = %record.spec.addr, why, "Released IPAllocation not deleted, will retry");
            Ok(())
        }
        other => other,
    }
}

/// Verifies that the status still names the address (IPA-6). If not, the address is not reserved for it any longer.
async fn verify_status(ctx: &Context, owner: &Owner, addr: IpAddr) -> Result<(), WriteError> {
    let names = |lb: &LoadBalancer| {
        let now = spec::request(lb);
        now.owner == *owner && now.names(addr)
    };
    let verified = live::ensure(ctx, &cached::key(&owner.id), names).await;
    if matches!(verified, Err(WriteError::Conflict(_))) {
        ctx.index.abandon(&owner.id, addr);
    }
    verified
}

/// Creates an IPAllocation, or replaces the given version. Returns whether it was written; on a conflict the ledger has the
/// current object afterwards.
pub async fn write(
    ctx: &Context,
    spec: &RecordSpec,
    replaces: Option<Version>,
) -> Result<bool, WriteError> {
    let key = record_key(spec.addr);
    let written = match replaces {
        None => {
            let object = IPAllocation {
                metadata: ObjectMeta {
                    name: Some(key.name.to_string()),
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
            ctx.client.patch(&key, &from, spec_patch(spec)).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        Err(error) if error.is_stale() => Ok(false),
        Err(other) => Err(other),
    }
}

/// Replaces the given version of an IPAllocation. On a conflict the ledger has the current object afterwards, and the error
/// requeues the caller's key.
async fn rewrite(ctx: &Context, spec: &RecordSpec, version: Version) -> Result<(), WriteError> {
    if write(ctx, spec, Some(version)).await? {
        return Ok(());
    }
    Err(WriteError::Conflict(format!(
        "the IPAllocation of {} has changed",
        spec.addr
    )))
}

/// The key of the IPAllocation of an address.
fn record_key(address: IpAddr) -> Key {
    Key::new("", addr::record_name(address))
}

/// All fields of a record, absent ones as `null`, so that the merge patch removes the old values.
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
pub async fn touch_record(ctx: &Context, addr: IpAddr) -> Result<(), WriteError> {
    let Some(record) = ctx.index.record(addr) else {
        return Ok(());
    };
    let spec = RecordSpec {
        bound_at: Micros(record.spec.bound_at.0.saturating_add(1)),
        ..record.spec
    };
    rewrite(ctx, &spec, record.version).await
}

/// Writes a record that the ledger has set to Released (REL-1).
pub async fn release(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    rewrite(ctx, &record.spec, record.version).await?;
    info!(owner = %record.spec.owner.id, address = %record.spec.addr, pool = %record.spec.pool, "address released");
    Ok(())
}

/// Deletes a Released IPAllocation. On a conflict the ledger has the current object afterwards, and the error requeues the
/// caller's key.
pub async fn remove(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    let key = record_key(record.spec.addr);
    let uid = match ctx.index.stores.allocations.get(&key).as_deref() {
        Some(cached::Allocation::Valid { uid, .. }) => Some(uid.to_string()),
        _ => None,
    };
    let from = ObjectMeta {
        uid,
        resource_version: Some(record.version.0.to_string()),
        ..ObjectMeta::default()
    };
    ctx.client.delete::<IPAllocation>(&key, &from).await?;
    <IPAllocation as CachedResource<Index>>::remove(&ctx.index, &key, record.version);
    Ok(())
}

/// `status.allocatedAddress` of a granted address (ALC-6, ALC-9). Mask and gateway that the pool no longer has stay as they are in
/// the status (IPA-7).
pub fn allocated_address(lb: &LoadBalancer, grant: &Grant) -> AllocatedAddress {
    let ip = grant.addr.to_string();
    let before = lb
        .status
        .as_ref()
        .and_then(|s| s.allocated_address.as_ref())
        .filter(|a| a.ip.as_deref() == Some(&*ip));
    if grant.mask.is_none()
        && let Some(before) = before
    {
        return AllocatedAddress {
            ip_pool: Some(grant.pool.to_string()),
            // The Go operator writes `<nil>` if there is no gateway (ALC-6, ALC-9).
            gateway: before.gateway.clone().filter(|text| text != "<nil>"),
            ..before.clone()
        };
    }
    AllocatedAddress {
        ip_pool: Some(grant.pool.to_string()),
        ip: Some(ip),
        mask: grant.mask.clone(),
        gateway: grant.gateway.map(|g| g.to_string()),
    }
}
