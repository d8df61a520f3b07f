//! The address of a load balancer, and what it is to have with it or without it (section 6, OPS-3).
//!
//! [`Allocation`] decides on the requests: the ledger proposes an address, and the creation of the IPAllocation named after
//! it succeeds for one owner only (ALC-8). The ledger sees each response before the next step.

use std::net::IpAddr;

use harvester_lb_api::{IPAllocation, Ipam, LoadBalancer};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached;
use harvester_lb_core::plan::{Address, Goal, Keep, Next, SeenPool, Waiting};
use harvester_lb_core::sharing::group::Role;
use harvester_lb_core::sharing::telling::Shared;
use harvester_lb_core::sharing::told;
use harvester_lb_core::spec::{self, Checked, Source};
use harvester_lb_core::spec_annotations::unavailable;
use harvester_lb_core::status::{self, Readiness};
use harvester_lb_ipam::allocation::{Allocation, GiveUp, ROUNDS, Step};
use harvester_lb_ipam::{Owner, Record, Request, WaitReason};
use harvester_lb_object::Key;
use tracing::{info, warn};

use crate::clock;
use crate::context::Context;
use crate::controllers::load_balancer::group::Group;
use crate::controllers::load_balancer::lease;
use crate::controllers::{live, records};

/// Allocates the address of a load balancer with a valid spec, or finds its present one, and returns what it is to have.
///
/// # Errors
/// Those of the requests. A refusal for the IPAllocation is none: the load balancer keeps what it has, and its status says so.
pub async fn goal(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    checked: Checked,
    shared: Option<Shared>,
) -> Result<Goal, WriteError> {
    let vm = checked.vm.map(Box::new);
    let mut address = match checked.source {
        Source::Dhcp => match vm {
            Some(vm) => {
                let mut goal = lease::goal(ctx, key, lb, vm);
                if let Goal::Serve(_, address) = &mut goal {
                    address.shared = shared;
                }
                return Ok(goal);
            }
            // The guest is the DHCP client (REC-1).
            None => Address::by_dhcp(ctx.index.withdraw_from_pools(key), None, None),
        },
        Source::Pool(_) => {
            let request = own_request(ctx, key, lb);
            let pool = live::seen_pool(ctx, &request);
            match acquire(ctx, &request).await {
                Ok(Step::Done {
                    grant,
                    extra_records,
                    ..
                }) => Address::granted(lb, grant, extra_records),
                Ok(step) => return waiting(lb, vm, step, pool),
                Err(WriteError::Refused(message)) => {
                    let message = format!("the IPAllocation of {key} cannot be written: {message}");
                    let readiness = Readiness::not(status::API_ERROR, message);
                    return Ok(Goal::Keep(Keep::until(lb, readiness, Next::Backoff)));
                }
                Err(other) => return Err(other),
            }
        }
    };
    address.shared = shared;
    Ok(with_address(lb, vm, address))
}

/// What a load balancer is to have with an address.
fn with_address(lb: &LoadBalancer, vm: Option<Box<spec::VmSpec>>, address: Address) -> Goal {
    match vm {
        None => Goal::AddressOnly(address),
        Some(_) if address.is_ipv6() => Goal::Keep(Keep::ipv6(lb, address)),
        Some(vm) => Goal::Serve(vm, address),
    }
}

/// What a load balancer is to have that shares this address: of cluster type the address alone (SHR-8). What it has itself becomes extra
/// records (SHR-7).
pub fn shared_goal(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    checked: Checked,
    address: Address,
) -> Goal {
    let address = Address {
        extra_records: ctx.index.withdraw_from_pools(key),
        ..address
    };
    with_address(lb, checked.vm.map(Box::new), address)
}

/// What a load balancer is to have that has no address and gets none for now, for this reason. If others share the address of an
/// earlier one of its name, that stays theirs, and what it has itself goes (SHR-6).
pub fn unshared_goal(
    ctx: &Context,
    lb: &LoadBalancer,
    checked: Checked,
    (reason, message): (&'static str, String),
    is_name_taken: bool,
) -> Goal {
    let owner = spec::owner(&lb.metadata);
    let mut own = ctx.index.withdraw_from_pools(&cached::key(&owner.id));
    own.retain(|record| !is_name_taken || record.spec.owner == owner);
    let waiting = Waiting {
        is_name_taken,
        ..Waiting::because(reason, message, own)
    };
    Goal::Wait(checked.vm.map(Box::new), waiting)
}

/// What a load balancer is to have that gets no address.
fn waiting(
    lb: &LoadBalancer,
    vm: Option<Box<spec::VmSpec>>,
    step: Step,
    pool: Option<SeenPool>,
) -> Result<Goal, WriteError> {
    let Step::Wait {
        reason,
        explanation,
        address_conflict,
        extra_records,
        keep_service,
    } = step
    else {
        return Err(unexpected_step(&step));
    };
    let message = match reason {
        WaitReason::RequestedAddressUnavailable => unavailable(&lb.metadata, &explanation),
        _ => explanation.to_string(),
    };
    let readiness = Readiness::not(reason.as_str(), message);
    // No other load balancer has the address, so the Service stays until the IPAllocation or the pool is readable.
    if keep_service {
        return Ok(Goal::Keep(Keep {
            extra_records,
            ..Keep::until(lb, readiness, Next::Resync)
        }));
    }
    let waiting = Waiting {
        readiness,
        address_conflict,
        extra_records,
        pool,
        lease: None,
        is_name_taken: false,
    };
    Ok(Goal::Wait(vm, waiting))
}

/// The request of a load balancer. What the status of one that asks for the address of another one names is its own only if something
/// else says so (SHR-3).
fn own_request(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Request {
    let mut request = spec::request(lb);
    let named = request.status.as_ref().map(|status| status.addr);
    if told::is_of_another(lb) && named.is_some_and(|addr| !ctx.index.is_address_of(addr, key)) {
        request.status = None;
    }
    request
}

/// Keeps the address of a load balancer recorded that gets no new one and does not wait for one. Returns the records of an
/// earlier load balancer of its name, to be released (ALC-10).
pub async fn keep(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<Vec<Record>, WriteError> {
    let request = own_request(ctx, key, lb);
    match lb.spec.address_source() {
        Ipam::Pool => match last_step(ctx, &request, Allocation::keep(&request)).await? {
            Step::Done { extra_records, .. }
            | Step::Wait { extra_records, .. }
            | Step::Nothing { extra_records } => Ok(extra_records),
            other => Err(unexpected_step(&other)),
        },
        Ipam::Dhcp => {
            let mut left = ctx.index.withdraw_from_pools(key);
            left.retain(|record| record.spec.owner != request.owner);
            if !left.is_empty() {
                // They belong to an earlier load balancer of the name only if this one still has its uid (IPA-3).
                live::ensure_uid(ctx, &request.owner).await?;
            }
            Ok(left)
        }
    }
}

/// Allocates the address of a load balancer (ALC-1 to ALC-8): [`Step::Done`] or [`Step::Wait`]. An earlier record that the status
/// did not name so far is written anew (IPA-5).
async fn acquire(ctx: &Context, request: &Request) -> Result<Step, WriteError> {
    let last = last_step(ctx, request, Allocation::acquire(request)).await?;
    if let Step::Done { grant, written, .. } = &last
        && !written
        && !request.names(grant.addr)
        && !ctx.index.is_settled(grant.addr)
    {
        records::touch(ctx, grant.addr).await?;
        ctx.index.settle(grant.addr);
    }
    Ok(last)
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
                let key = records::key(addr);
                ctx.client.get_live::<IPAllocation>(&key).await?;
            }
            Step::VerifyOwner => {
                live::ensure_uid(ctx, &request.owner).await?;
                ensure_unshared(ctx, &request.owner).await?;
            }
            Step::VerifyStatus(addr) => verify_status(ctx, &request.owner, addr).await?,
            Step::Delete(record) => forget_stale(ctx, &record).await?,
            Step::Write {
                spec,
                replaces,
                reason,
            } => {
                if records::write(ctx, &spec, replaces).await? {
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

/// Verifies that nobody shares the addresses of an earlier load balancer of the name, which they keep as long as they do (SHR-6).
///
/// # Errors
/// `Conflict` if somebody does.
async fn ensure_unshared(ctx: &Context, owner: &Owner) -> Result<(), WriteError> {
    let key = cached::key(&owner.id);
    let group = Group::of(ctx, &key);
    let snapshot = group.as_ref().map(Group::snapshot);
    let role = snapshot.as_ref().and_then(|it| it.roles.get(&*key.name));
    if matches!(role, Some(Role::NameTaken)) {
        let why = format!("others share the address of an earlier {key}");
        return Err(WriteError::Conflict(why));
    }
    for record in ctx.index.bound_records_of(&owner.id) {
        let owner = record.spec.owner.id.name();
        let seen = snapshot.as_ref().and_then(|it| it.meta(owner));
        live::ensure_left(ctx, &record, seen).await?;
    }
    Ok(())
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

/// Deletes an unusable Released IPAllocation (ALC-2). A refusal does not block the allocation; the deletion is retried with
/// the next one (RUN-1).
async fn forget_stale(ctx: &Context, record: &Record) -> Result<(), WriteError> {
    match records::remove(ctx, record).await {
        Err(WriteError::Refused(why)) => {
            warn!(address = %record.spec.addr, why, "Released IPAllocation not deleted, will retry");
            Ok(())
        }
        other => other.map(drop),
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
