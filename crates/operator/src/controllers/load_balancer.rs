//! The reconcile of one load balancer (section 8.1): address, Service, EndpointSlice, health check, status. Each step writes
//! only differences, so a load balancer in steady state causes no request (REC-5).
//!
//! The order is fixed: the IPAllocation reserves the address, the status commits it, the EndpointSlice and then the Service
//! follow (IPA-6, REC-3). So no address is announced without an IPAllocation or without endpoints.
//!
//! | step | where |
//! |---|---|
//! | observe the object and choose the case | `observe`; `release` if it is deleted, `unserved` if it cannot be served |
//! | determine its standing among those that share an address | `standing`, from `group` |
//! | validate its spec | [`spec::check`] |
//! | allocate its address | `allocate`; `lease`, if a DHCP server leases it |
//! | plan Service, EndpointSlice, health checks | `walk`, [`harvester_lb_core::plan`] |
//! | apply the plan | `apply` |
//! | write its status, then release extra records | `write_status`, `release` |
//! | do the same for those that share an address under its name | `upkeep` |

pub mod allocate;
pub mod announcement;
pub mod apply;
pub mod group;
pub mod join;
pub mod lease;
pub mod observe;
pub mod offer;
pub mod release;
pub mod standing;
pub mod unserved;
pub mod upkeep;
pub mod walk;
pub mod write_status;

use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::Lb;
use harvester_lb_core::plan::{Goal, Keep};
use harvester_lb_core::spec;
use harvester_lb_object::Key;

use self::group::Group;
use self::observe::{Case, Stored};
use self::standing::Standing;
use crate::context::Context;

/// Reconciles the load balancer of this key, or cleans up after a deleted one; then those that share an address under its name.
pub async fn reconcile(ctx: &Context, key: &Key) -> Result<Requeue, WriteError> {
    let shares = Group::of(ctx, key);
    let (own, writes_service) = match ctx.index.stores.lbs.get(key) {
        Some(stored) => reconcile_one(ctx, key, &stored).await,
        None if shares.as_ref().is_some_and(Group::has_holder) => (Ok(Requeue::AwaitChange), false),
        None => (release::deleted_lb(ctx, key).await, false),
    };
    if shares.is_none() || matches!(own, Err(WriteError::Fenced)) {
        return own;
    }
    let Some(group) = Group::of(ctx, key) else {
        return own;
    };
    // What becomes of one of them must not stop the others.
    let others = if writes_service {
        Ok(Requeue::AwaitChange)
    } else {
        upkeep::keep_up(ctx, &group, own.is_err()).await
    };
    if let Some(group) = Group::of(ctx, key) {
        upkeep::wake(ctx, &group);
    }
    Ok(others?.sooner(own?))
}

/// Reconciles one that exists. The flag says whether its plan wrote the Service of its name, or is to write it with the next attempt.
async fn reconcile_one(
    ctx: &Context,
    key: &Key,
    stored: &Lb,
) -> (Result<Requeue, WriteError>, bool) {
    ctx.index.untrack_endpoints(key);
    let (lb, standing) = match observe::case(ctx, key, stored) {
        Case::Invalid(meta, why) => return (unserved::invalid(ctx, key, meta, why).await, false),
        Case::Deleting(lb) => return (unserved::deleting(ctx, key, lb).await, false),
        Case::Unsupported(lb, why) => {
            return (unserved::leave_alone(ctx, key, lb, &why).await, false);
        }
        Case::Usual(lb, Standing::Leaving(group)) => {
            return (unserved::leaving(ctx, key, lb, group).await, false);
        }
        Case::Usual(lb, standing) => (lb, standing),
    };

    let checked = spec::check(lb).and_then(|checked| {
        let name = checked.vm.as_ref().and_then(|vm| vm.unusable_name.clone());
        match (name, &standing) {
            (Some(name), Standing::Own(_)) => {
                let stored = Stored::of(ctx, key);
                let objects = stored.objects(key);
                group::with_names(ctx, lb, &objects, checked, name)
            }
            _ => Ok(checked),
        }
    });
    let checked = match (checked, &standing) {
        (Ok(checked), _) => checked,
        (Err(why), Standing::NameTaken(..)) => {
            return (unserved::nameless(ctx, key, lb, &why).await, false);
        }
        (Err(why), _) => {
            return (
                unserved::refused(ctx, key, lb, &why, &standing).await,
                false,
            );
        }
    };

    let (goal, allocated) = match standing::goal(ctx, key, lb, checked, &standing).await {
        Ok(goal) => (goal, Ok(())),
        Err(WriteError::Fenced) => return (Err(WriteError::Fenced), true),
        // A failed write of the IPAllocation must not stop updates of the EndpointSlice (BE-6).
        Err(error) => (Goal::Keep(Keep::endpoints(lb)), Err(error)),
    };
    let goal = match (goal, &standing) {
        (Goal::Keep(keep), Standing::Own(_)) => {
            Goal::Keep(unserved::leaving_none(ctx, key, lb, keep))
        }
        (goal, _) => goal,
    };
    let of = standing.address_of(key);
    let writes_service = of == key && matches!(goal, Goal::Serve(..) | Goal::AddressOnly(_));
    let walked = walk::walk(ctx, key, lb, &goal, of).await;
    (allocated.and(walked), writes_service)
}

#[cfg(test)]
mod tests;
