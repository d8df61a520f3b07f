//! Load balancers that are not served as they ask: one that cannot be decoded, is being deleted, has a spec that is refused, or
//! is not this version's to touch. What they have stays theirs, and the endpoints that are served follow the world (BE-6).

use harvester_lb_api::{Ipam, LoadBalancer, keys};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::spec::{self, Refusal};
use harvester_lb_core::status::{self, Readiness, StatusUpdate};
use harvester_lb_core::unsupported::Unsupported;
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tracing::debug;

use crate::context::Context;
use crate::controllers::invalid_object;
use crate::controllers::load_balancer::owned_objects::{self, Checking};
use crate::controllers::load_balancer::write_status::{drop_finalizers, write_status};
use crate::controllers::load_balancer::{allocate, release};

/// One that cannot be decoded waits for no address any more, and is told why.
pub async fn invalid(
    ctx: &Context,
    key: &Key,
    meta: &ObjectMeta,
    why: &str,
) -> Result<Requeue, WriteError> {
    ctx.index.dequeue(key);
    let followed = if meta.deletion_timestamp.is_none() || is_held_up(meta) {
        owned_objects::follow(ctx, key, meta, Checking::AsItIs).await
    } else {
        Ok(())
    };
    invalid_object::report::<LoadBalancer>(ctx, key, meta, why).await?;
    followed?;
    Ok(Requeue::AwaitChange)
}

/// One that is being deleted loses the finalizers of old; the rest follows when it is gone (FIN-2).
pub async fn deleting(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<Requeue, WriteError> {
    let followed = if is_held_up(&lb.metadata) {
        follow(ctx, key, lb).await
    } else {
        Ok(())
    };
    let next = drop_finalizers(ctx, key, lb).await?;
    followed?;
    Ok(next)
}

/// A load balancer that is not this version's to touch: its readiness is told, and that of its endpoints (IPA-9).
pub async fn leave_alone(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    unsupported: &Unsupported,
) -> Result<Requeue, WriteError> {
    ctx.index.set_aside(key);
    let followed = follow(ctx, key, lb).await;
    let message = format!("LoadBalancer {key}: {unsupported}");
    let report = StatusUpdate::only(Readiness::not(status::UNSUPPORTED_ANNOTATION, message));
    write_status(ctx, key, lb, &report).await?;
    followed.map(|()| Requeue::AwaitChange)
}

/// One whose spec is refused is told what is wrong with it, whatever comes of what it has (ALC-10).
pub async fn refused(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    error: &Refusal,
) -> Result<Requeue, WriteError> {
    let followed = follow(ctx, key, lb).await;
    let kept = keep_what_it_has(ctx, key, lb).await;
    let message = format!("LoadBalancer {key}: {error}");
    let report = StatusUpdate::only(Readiness::not(error.reason(), message));
    write_status(ctx, key, lb, &report).await?;
    kept.and(followed).map(|()| Requeue::AwaitChange)
}

/// Lets the endpoints that are served follow the world (BE-6).
pub async fn follow(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let check = spec::health_check(lb).map_or(Checking::AsItIs, Checking::from);
    owned_objects::follow(ctx, key, &lb.metadata, check).await
}

/// As [`follow`], after an error that ends the work: what keeps the record from being written need not keep the
/// EndpointSlice. Answers that error.
pub async fn follow_after(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    error: WriteError,
) -> WriteError {
    if !matches!(error, WriteError::Fenced)
        && let Err(also) = follow(ctx, key, lb).await
    {
        debug!(lb = %key, error = %also, "its endpoints could not follow");
    }
    error
}

/// Whether an object that is being deleted waits for somebody's finalizer. Those of the garbage collector and those of old
/// keep it for a moment only (FIN-2).
fn is_held_up(meta: &ObjectMeta) -> bool {
    let passing = ["foregroundDeletion", "orphan"];
    let mut all = meta.finalizers.iter().flatten().map(String::as_str);
    all.any(|f| !passing.contains(&f) && !keys::LEGACY_FINALIZERS.contains(&f))
}

/// A load balancer that cannot be served as it is gets no new address and waits for none; what it has stays its own
/// (ALC-10). What an earlier load balancer of its name has left is released.
async fn keep_what_it_has(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let request = spec::request(lb);
    let further = match lb.spec.address_source() {
        Ipam::Pool => allocate::keep(ctx, &request).await?,
        Ipam::Dhcp => {
            let mut left = ctx.index.withdraw_from_pools(key);
            left.retain(|record| record.spec.owner != request.owner);
            allocate::earlier_ones_only(ctx, &request, &left).await?;
            left
        }
    };
    release::release_extra_records(ctx, key, further).await
}
