//! The requests of an allocation, and the records that a load balancer has (section 6).
//!
//! What to send is [`Allocation`]'s to say: the ledger proposes an address, and creating the object that is named after it
//! decides (ALC-8). Every answer is known to the ledger before it is asked again.

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
use crate::index::Index;

/// What came of asking for an address.
#[derive(Debug)]
pub enum Acquired {
    /// The record is there.
    Granted {
        /// The address.
        grant: Grant,
        /// Further records of this load balancer, to be released once nothing shows their addresses.
        extra_records: Vec<Record>,
        /// The record has just been written.
        written: bool,
    },
    /// There is none; the ledger has enrolled the load balancer.
    Waiting {
        /// The condition's reason.
        reason: WaitReason,
        /// Which pools were looked at, and why each did not serve.
        message: String,
        /// An address that the status names and that is not this load balancer's.
        lost: Option<AddressConflict>,
        /// As above.
        extra_records: Vec<Record>,
        /// What it serves at stays as it is, the address in its status and the further records too.
        stays: bool,
    },
}

/// Gets the address of a load balancer recorded (ALC-1 to ALC-8).
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
            lost,
            extra_records,
            stays,
        } => Ok(Acquired::Waiting {
            reason,
            message: explanation.to_string(),
            lost,
            extra_records,
            stays,
        }),
        other => Err(no_end(&other)),
    }
}

/// Keeps recorded what a load balancer has that cannot be served (ALC-10); it gets no new address. Answers the further
/// records of its name, which are to be released.
pub async fn keep(ctx: &Context, request: &Request) -> Result<Vec<Record>, WriteError> {
    match last_step(ctx, request, Allocation::keep(request)).await? {
        Step::Done { extra_records, .. }
        | Step::Wait { extra_records, .. }
        | Step::Nothing { extra_records } => Ok(extra_records),
        other => Err(no_end(&other)),
    }
}

/// Carries an allocation out, one request for each step, and answers the last one, which asks for none.
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
            Step::VerifyOwner => ensure_uid_current(ctx, &request.owner).await?,
            Step::VerifyStatus(addr) => ensure_status_names(ctx, &request.owner, addr).await?,
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
                    info!(owner = %spec.owner.id, address = %spec.addr, pool = %spec.pool, reason, "address taken");
                }
            }
            Step::GiveUp(why) => return Err(gave_up(&why)),
            last => return Ok(last),
        }
    }
}

/// An allocation that has come to nothing.
fn gave_up(why: &GiveUp) -> WriteError {
    match why {
        GiveUp::Unreleased(gone) => WriteError::Refused(format!(
            "its address is still recorded for LoadBalancer {gone}, which is gone; that record could not be released yet"
        )),
        GiveUp::TooManyRounds => WriteError::Conflict(format!(
            "{ROUNDS} addresses in a row were taken by somebody else"
        )),
    }
}

/// An allocation has ended as those do that are for something else.
fn no_end(step: &Step) -> WriteError {
    WriteError::Conflict(format!("not an end of this allocation: {step:?}"))
}

/// Records that are to be released as those of an earlier load balancer of the name. What is known of load balancers may be
/// old: it may be the later one that has them (IPA-3).
pub async fn earlier_ones_only(
    ctx: &Context,
    request: &Request,
    records: &[Record],
) -> Result<(), WriteError> {
    let own = |record: &Record| record.spec.owner == request.owner;
    if records.iter().all(own) {
        return Ok(());
    }
    ensure_uid_current(ctx, &request.owner).await
}

/// Deletes a record of the past that is of no use any more (ALC-2). If that is refused, nobody has to wait for it: it is
/// named again the next time (RUN-1).
async fn forget_stale(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    match remove(ctx, record).await {
        Err(WriteError::Refused(why)) => {
            warn!(address = %record.spec.addr, why, "a record of the past cannot be deleted");
            Ok(())
        }
        other => other,
    }
}

/// Makes sure by a live read that a load balancer is the one of its name: a later one of the name may have its record.
pub async fn ensure_uid_current(ctx: &Context, owner: &Owner) -> Result<(), WriteError> {
    let key = cached::key(&owner.id);
    let living = ctx.client.get_live::<LoadBalancer>(&key).await?;
    if living.is_some_and(|lb| spec::owner(&lb.metadata) == *owner) {
        return Ok(());
    }
    Err(WriteError::Conflict(format!(
        "LoadBalancer {key} has been made anew"
    )))
}

/// Makes sure by a live read that a load balancer is the one of its name, and that its status names the address. If not, the
/// address is not kept for it any longer.
async fn ensure_status_names(ctx: &Context, owner: &Owner, addr: IpAddr) -> Result<(), WriteError> {
    let key = cached::key(&owner.id);
    let living = ctx.client.get_live::<LoadBalancer>(&key).await?;
    let now = living.as_ref().map(spec::request);
    if now.is_some_and(|now| now.owner == *owner && now.names(addr)) {
        return Ok(());
    }
    ctx.index.abandon(&owner.id, addr);
    Err(WriteError::Conflict(format!(
        "LoadBalancer {key} does not name {addr} any more"
    )))
}

/// Creates a record, or replaces it in that version. Answers whether it is ours now; if not, the ledger has learned
/// what is there instead.
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

/// Replaces a record in that version. If somebody else has written it meanwhile, the ledger has learned what, and the
/// error makes whoever decided it decide again.
async fn rewrite(ctx: &Context, spec: &RecordSpec, version: Version) -> Result<(), WriteError> {
    if write(ctx, spec, Some(version)).await? {
        return Ok(());
    }
    Err(WriteError::Conflict(format!(
        "the record of {} has just changed",
        spec.addr
    )))
}

/// The key of an address' record.
fn record_key(address: IpAddr) -> Key {
    Key::new("", addr::record_name(address))
}

/// All fields of a record, those that are not set as `null`, so that a merge leaves nothing of the record before.
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

/// Writes a record of a load balancer's own anew, before its status commits an address that it did not name. When it named
/// another or none, the record may have been an extra one to some process, and its release may still be on its way; of the
/// newer copy the API server refuses that (IPA-5). Nothing else changes but a microsecond of the time.
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

/// Writes a record as released (REL-1).
pub async fn release(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    rewrite(ctx, &record.spec, record.version).await?;
    info!(owner = %record.spec.owner.id, address = %record.spec.addr, pool = %record.spec.pool, "address released");
    Ok(())
}

/// Deletes a record of the past. If it is another by now, the ledger has learned what, and whoever decided it is to
/// decide again.
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

/// `status.allocatedAddress` of a granted address (ALC-6). What the pool cannot tell any more is kept as it was
/// (IPA-7).
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
            // What the Go operator writes where there is no gateway (ALC-6, ALC-9).
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
