//! From what the ledger proposes to what the API server has decided (section 6).
//!
//! The ledger proposes an address; creating the object that is named after it decides. Whoever comes second is refused
//! by the API server, reads what is there, and asks the ledger again (ALC-8).

use std::net::IpAddr;

use harvester_lb_api::{AllocatedAddress, IPAllocation, LoadBalancer};
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::Allocation;
use harvester_lb_core::{cached, spec};
use harvester_lb_ipam::{
    Decision, Grant, Lost, Micros, Owner, Record, RecordSpec, Request, WaitReason, addr,
};
use harvester_lb_object::{Key, Version};
use kube::api::ObjectMeta;
use serde_json::json;
use tracing::{info, warn};

use crate::clock;
use crate::context::Context;
use crate::index::Index;

/// How often one reconcile asks the ledger again after somebody else was faster. Each round the ledger has learned of
/// one more address that is taken; a process that meets more than this is better off behind the others.
const ROUNDS: usize = 16;

/// What came of asking for an address.
#[derive(Debug)]
pub enum Acquired {
    /// The record is there.
    Granted {
        /// The address.
        grant: Grant,
        /// Further records of this load balancer, to be released once nothing shows their addresses.
        surplus: Vec<Record>,
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
        lost: Option<Lost>,
        /// As above.
        surplus: Vec<Record>,
        /// What it serves at stays as it is, the address in its status and the further records too.
        stays: bool,
    },
}

/// Gets the address of a load balancer recorded (ALC-1 to ALC-8).
pub async fn acquire(ctx: &Context, request: &Request) -> Result<Acquired, WriteError> {
    stay_off(ctx, request)?;
    let mut in_doubt = request.status.as_ref().map(|status| status.addr);
    for _ in 0..ROUNDS {
        let now = clock::now();
        let Some(decision) = ctx
            .index
            .with_leader(|leader| leader.ledger.decide(request, now))
        else {
            return Err(WriteError::Fenced);
        };
        if let Some(named) = in_doubt
            .take_if(|named| gives_up(request, &decision, *named) && is_readable(ctx, *named))
        {
            // What is known of records may be old, as after standing by behind a watch that had died. Before a load
            // balancer loses what it serves at, the record is read live (IPA-7).
            if let Decision::Take { spec, .. } = &decision {
                ctx.index
                    .with_leader(|leader| leader.ledger.abandon(&spec.owner.id, spec.addr));
            }
            ctx.client
                .get_live::<IPAllocation>(&record_key(named))
                .await?;
            continue;
        }
        if let Some(acquired) = carry_out(ctx, request, decision).await? {
            return Ok(acquired);
        }
        ctx.metrics.allocation_conflicts.inc();
    }
    Err(too_many_rounds())
}

/// Keeps recorded what a load balancer has that cannot be served (ALC-10); it gets no new address. Answers the further
/// records of its name, which are to be released.
pub async fn keep(ctx: &Context, request: &Request) -> Result<Vec<Record>, WriteError> {
    stay_off(ctx, request)?;
    let mut in_doubt = request.status.as_ref().map(|status| status.addr);
    for _ in 0..ROUNDS {
        let now = clock::now();
        let Some(kept) = ctx
            .index
            .with_leader(|leader| leader.ledger.keep(request, now))
        else {
            return Err(WriteError::Fenced);
        };
        let loses = |named: IpAddr| {
            kept.as_ref()
                .map_or(true, |decision| gives_up(request, decision, named))
        };
        if let Some(named) = in_doubt.take_if(|named| loses(*named) && is_readable(ctx, *named)) {
            ctx.client
                .get_live::<IPAllocation>(&record_key(named))
                .await?;
            continue;
        }
        match kept {
            Err(left) => {
                earlier_ones_only(ctx, request, &left).await?;
                return Ok(left);
            }
            Ok(decision) => {
                if let Some(Acquired::Granted { surplus, .. } | Acquired::Waiting { surplus, .. }) =
                    carry_out(ctx, request, decision).await?
                {
                    return Ok(surplus);
                }
            }
        }
        ctx.metrics.allocation_conflicts.inc();
    }
    Err(too_many_rounds())
}

/// RUN-1: a load balancer does not lose its address to one that is gone, only because the record of that one could not be
/// released yet; it waits for that.
fn stay_off(ctx: &Context, request: &Request) -> Result<(), WriteError> {
    let gone = ctx
        .index
        .with_leader(|leader| leader.waits_for_release(request));
    match gone.ok_or(WriteError::Fenced)? {
        None => Ok(()),
        Some(gone) => Err(WriteError::Refused(format!(
            "its address is still recorded for LoadBalancer {gone}, which is gone; that record could not be released yet"
        ))),
    }
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
    lives(ctx, &request.owner).await
}

fn too_many_rounds() -> WriteError {
    WriteError::Conflict(format!(
        "{ROUNDS} addresses in a row were taken by somebody else"
    ))
}

/// Does what a decision asks for. `None` if somebody else was faster: the ledger has learned what is there, and is to be
/// asked again.
async fn carry_out(
    ctx: &Context,
    request: &Request,
    decision: Decision,
) -> Result<Option<Acquired>, WriteError> {
    let granted = |grant, surplus, written| {
        Some(Acquired::Granted {
            grant,
            surplus,
            written,
        })
    };
    Ok(match decision {
        Decision::Held { grant, surplus } => granted(grant, surplus, false),
        Decision::Adopt {
            grant,
            record,
            surplus,
        } => {
            // What is known of load balancers may be old too: the later one of two of a name must not lose its record to
            // the one that is gone.
            lives(ctx, &request.owner).await?;
            info!(owner = %request.owner.id, address = %grant.addr, "taking over the address of a load balancer of the same name");
            write(ctx, &record.spec, Some(record.version))
                .await?
                .then_some(())
                .and_then(|()| granted(grant, surplus, true))
        }
        Decision::Take {
            grant,
            spec,
            over,
            why,
            surplus,
            stale,
        } => {
            for record in stale {
                forget_stale(ctx, &record).await?;
            }
            if ctx
                .index
                .with_leader(|leader| leader.keep_unimported(spec.addr, &spec.owner))
                == Some(true)
            {
                return Ok(None);
            }
            if names(request, spec.addr) {
                // No write of the status is to follow that would find out what has become of it. What is known of it may be
                // old, and then it may have given the address up, or be another (IPA-6).
                still_names(ctx, request, spec.addr).await?;
            }
            if write(ctx, &spec, over).await? {
                info!(owner = %request.owner.id, address = %grant.addr, pool = %grant.pool, ?why, "address taken");
                granted(grant, surplus, true)
            } else {
                None
            }
        }
        Decision::Wait {
            reason,
            explanation,
            lost,
            surplus,
            stays,
        } => Some(Acquired::Waiting {
            reason,
            message: explanation.to_string(),
            lost,
            surplus,
            stays,
        }),
    })
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
pub async fn lives(ctx: &Context, owner: &Owner) -> Result<(), WriteError> {
    let key = cached::key(&owner.id);
    let living = ctx.client.get_live::<LoadBalancer>(&key).await?;
    if living.is_some_and(|lb| spec::owner(&lb.metadata) == *owner) {
        return Ok(());
    }
    Err(WriteError::Conflict(format!(
        "LoadBalancer {key} has been made anew"
    )))
}

fn names(request: &Request, addr: IpAddr) -> bool {
    let status = request.status.as_ref();
    status.is_some_and(|status| status.addr == addr)
}

/// Makes sure by a live read that a load balancer is the one of its name, and that its status names the address.
async fn still_names(ctx: &Context, request: &Request, addr: IpAddr) -> Result<(), WriteError> {
    let key = cached::key(&request.owner.id);
    let living = ctx.client.get_live::<LoadBalancer>(&key).await?;
    let now = living.as_ref().map(spec::request);
    if now.is_some_and(|now| now.owner == request.owner && names(&now, addr)) {
        return Ok(());
    }
    ctx.index
        .with_leader(|leader| leader.ledger.abandon(&request.owner.id, addr));
    Err(WriteError::Conflict(format!(
        "LoadBalancer {key} does not name {addr} any more"
    )))
}

/// Whether a decision takes the address that the status names from a load balancer without a record of its own that says so.
/// One of an earlier load balancer of the name may be an old copy of what is this one's by now.
fn gives_up(request: &Request, decision: &Decision, named: IpAddr) -> bool {
    if let Decision::Wait { stays: true, .. } = decision {
        // Nothing is taken away, and a read would not tell more.
        return false;
    }
    let (granted, surplus) = match decision {
        Decision::Held { grant, surplus }
        | Decision::Adopt { grant, surplus, .. }
        | Decision::Take { grant, surplus, .. } => (Some(grant.addr), surplus),
        Decision::Wait { surplus, .. } => (None, surplus),
    };
    let says_so = |record: &Record| record.spec.addr == named && record.spec.owner == request.owner;
    granted != Some(named) && !surplus.iter().any(says_so)
}

/// Creates a record, or replaces it in that version. Answers whether it is ours now; if not, the ledger has learned
/// what is there instead.
pub async fn write(
    ctx: &Context,
    spec: &RecordSpec,
    over: Option<harvester_lb_object::Version>,
) -> Result<bool, WriteError> {
    let key = record_key(spec.addr);
    let written = match over {
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
async fn rewrite(
    ctx: &Context,
    spec: &RecordSpec,
    version: harvester_lb_object::Version,
) -> Result<(), WriteError> {
    if write(ctx, spec, Some(version)).await? {
        return Ok(());
    }
    Err(WriteError::Conflict(format!(
        "the record of {} has just changed",
        spec.addr
    )))
}

/// Whether a live read of an address' record could tell anything: one that is known and cannot be read is left alone (IPA-8).
fn is_readable(ctx: &Context, address: IpAddr) -> bool {
    let known = ctx.index.stores.allocations.get(&record_key(address));
    !matches!(known.as_deref(), Some(Allocation::Unreadable { .. }))
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
/// another or none, the record may have been surplus to some process, and its release may still be on its way; of the
/// newer copy the API server refuses that (IPA-5). Nothing else changes but a microsecond of the time.
pub async fn renew(ctx: &Context, addr: IpAddr) -> Result<(), WriteError> {
    let Some(record) = ctx
        .index
        .with_leader(|leader| leader.ledger.record(addr))
        .flatten()
    else {
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
        Some(Allocation::Valid { uid, .. }) => Some(uid.to_string()),
        _ => None,
    };
    let from = ObjectMeta {
        uid,
        resource_version: Some(record.version.0.to_string()),
        ..ObjectMeta::default()
    };
    ctx.client.delete::<IPAllocation>(&key, &from).await?;
    <IPAllocation as CachedResource<Index>>::remove(&ctx.index, &key, Version(record.version.0));
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
