//! The reconcile of one load balancer (section 8.1): address, Service, EndpointSlice, health check, status. Each step writes
//! only differences, so a load balancer in steady state causes no request (REC-5).
//!
//! The order is fixed: the IPAllocation reserves the address, the status commits it, the EndpointSlice and then the Service
//! follow (IPA-6, REC-3). So no address is announced without an IPAllocation or without endpoints.
//!
//! | step | where |
//! |---|---|
//! | observe the object and choose the case | `observe`; `release` if it is deleted, `unserved` if it cannot be served |
//! | validate its spec | [`spec::check`] |
//! | allocate its address | `allocate` |
//! | plan Service, EndpointSlice, health checks | `walk`, [`harvester_lb_core::plan`] |
//! | apply the plan | `apply` |
//! | write its status, then release extra records | `write_status`, `release` |

pub mod allocate;
pub mod announcement;
pub mod apply;
pub mod observe;
pub mod release;
pub mod unserved;
pub mod walk;
pub mod write_status;

use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::plan::{Goal, Keep};
use harvester_lb_core::spec;
use harvester_lb_object::Key;

use self::observe::Case;
use crate::context::Context;

/// Reconciles the load balancer of this key, or cleans up after a deleted one.
pub async fn reconcile(ctx: &Context, key: &Key) -> Result<Requeue, WriteError> {
    let Some(stored) = ctx.index.stores.lbs.get(key) else {
        return release::deleted_lb(ctx, key).await;
    };
    ctx.index.untrack_endpoints(key);
    let lb = match observe::case(ctx, key, &stored) {
        Case::Invalid(meta, why) => return unserved::invalid(ctx, key, meta, why).await,
        Case::Deleting(lb) => return unserved::deleting(ctx, key, lb).await,
        Case::Unsupported(lb, why) => return unserved::leave_alone(ctx, key, lb, &why).await,
        Case::Usual(lb) => lb,
    };

    let checked = match spec::check(lb) {
        Err(why) => return unserved::refused(ctx, key, lb, &why).await,
        Ok(checked) => checked,
    };

    let (goal, allocated) = match allocate::goal(ctx, key, lb, checked).await {
        Ok(goal) => (goal, Ok(())),
        Err(WriteError::Fenced) => return Err(WriteError::Fenced),
        // A failed write of the IPAllocation must not stop updates of the EndpointSlice (BE-6).
        Err(error) => (Goal::Keep(Keep::endpoints(lb)), Err(error)),
    };
    let walked = walk::walk(ctx, key, lb, &goal).await;
    allocated.and(walked)
}

#[cfg(test)]
mod tests;
