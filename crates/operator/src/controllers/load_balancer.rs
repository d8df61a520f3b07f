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
//! | allocate its address | `address`, `allocate` |
//! | apply Service, EndpointSlice, health checks | `apply`, `owned_objects` |
//! | write its status, then release extra records | `write_status`, `release` |

pub mod address;
pub mod allocate;
pub mod apply;
pub mod detail_conditions;
pub mod live;
pub mod observe;
pub mod owned_objects;
pub mod release;
pub mod served_backends;
pub mod unserved;
pub mod write_status;

use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::spec;
use harvester_lb_object::Key;

use self::observe::Observed;
use crate::context::Context;

/// Reconciles the load balancer of this key, or cleans up after a deleted one.
pub async fn reconcile(ctx: &Context, key: &Key) -> Result<Requeue, WriteError> {
    let Some(stored) = ctx.index.stores.lbs.get(key) else {
        return release::deleted_lb(ctx, key).await;
    };
    ctx.index.untrack_endpoints(key);
    let lb = match observe::observe(ctx, key, &stored) {
        Observed::Invalid(meta, why) => return unserved::invalid(ctx, key, meta, why).await,
        Observed::Deleting(lb) => return unserved::deleting(ctx, key, lb).await,
        Observed::Unsupported(lb, why) => return unserved::leave_alone(ctx, key, lb, &why).await,
        Observed::Usual(lb) => lb,
    };

    let checked = match spec::check(lb) {
        Ok(checked) => checked,
        Err(error) => return unserved::refused(ctx, key, lb, &error).await,
    };

    let obtained = match address::obtain(ctx, key, lb, &checked.source).await {
        Ok(obtained) => obtained,
        Err(error) => return Err(unserved::update_endpoints_after(ctx, key, lb, error).await),
    };

    let applied = apply::apply(ctx, key, lb, checked.vm.as_ref(), obtained).await?;

    let written = write_status::write_status(ctx, key, &applied.lb, &applied.report).await?;
    release::release_extra_records(ctx, key, &written, applied.extra_records).await?;
    applied.next
}

#[cfg(test)]
mod tests;
