//! Load balancers that cannot be reconciled fully: undecodable, being deleted, with a refused spec, or unsupported by this
//! version. They keep their address, and their existing endpoints are kept up to date (BE-6).

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
use crate::controllers::load_balancer::owned_objects::{self, CheckSource};
use crate::controllers::load_balancer::served_backends::ServedBackends;
use crate::controllers::load_balancer::write_status::{drop_finalizers, write_status};
use crate::controllers::load_balancer::{allocate, release};

/// Handles an undecodable load balancer: it no longer waits for an address, and its condition shows the error.
pub async fn invalid(
    ctx: &Context,
    key: &Key,
    meta: &ObjectMeta,
    why: &str,
) -> Result<Requeue, WriteError> {
    ctx.index.dequeue(key);
    let updated = if meta.deletion_timestamp.is_none() || is_held_up(meta) {
        owned_objects::update_endpoints(ctx, key, meta, CheckSource::Unchanged).await
    } else {
        Ok(None)
    };
    invalid_object::report::<LoadBalancer>(ctx, key, meta, why).await?;
    updated?;
    Ok(Requeue::AwaitChange)
}

/// Handles a load balancer that is being deleted: removes legacy finalizers. Cleanup follows its deletion (FIN-2).
pub async fn deleting(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<Requeue, WriteError> {
    let updated = if is_held_up(&lb.metadata) {
        update_endpoints(ctx, key, lb).await
    } else {
        Ok(None)
    };
    let next = drop_finalizers(ctx, key, lb).await?;
    updated?;
    Ok(next)
}

/// Handles an unsupported load balancer: only its condition and the readiness of its endpoints are written (IPA-9).
pub async fn leave_alone(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    unsupported: &Unsupported,
) -> Result<Requeue, WriteError> {
    ctx.index.set_aside(key);
    let updated = update_endpoints(ctx, key, lb).await;
    let message = format!("LoadBalancer {key}: {unsupported}");
    let report = StatusUpdate::only(Readiness::not(status::UNSUPPORTED_ANNOTATION, message));
    write_status(ctx, key, lb, &report).await?;
    updated.map(|_| Requeue::AwaitChange)
}

/// Handles a load balancer with a refused spec: its condition is written even if another step fails (ALC-10).
pub async fn refused(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    error: &Refusal,
) -> Result<Requeue, WriteError> {
    let updated = update_endpoints(ctx, key, lb).await;
    let kept = keep_address(ctx, key, lb).await;
    let message = format!("LoadBalancer {key}: {error}");
    let readiness = Readiness::not(error.reason(), message);
    write_status(ctx, key, lb, &update_of(lb, readiness, &updated)).await?;
    kept.and(updated).map(|_| Requeue::AwaitChange)
}

/// Keeps the existing endpoints up to date, see [`owned_objects::update_endpoints`] (BE-6).
pub async fn update_endpoints(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
) -> Result<Option<ServedBackends>, WriteError> {
    let check = spec::health_check(lb).map_or(CheckSource::Unchanged, CheckSource::from);
    owned_objects::update_endpoints(ctx, key, &lb.metadata, check).await
}

/// The status of a load balancer of which only the endpoints are `updated`: everything stays except for its readiness and the
/// health of those endpoints.
pub fn update_of(
    lb: &LoadBalancer,
    readiness: Readiness,
    updated: &Result<Option<ServedBackends>, WriteError>,
) -> StatusUpdate {
    let backends = updated.as_ref().ok().and_then(Option::as_ref);
    let details = backends.and_then(|backends| backends.condition(status::conditions(lb)));
    StatusUpdate {
        details: details.into_iter().collect(),
        verdicts_changed: backends.is_some_and(|backends| backends.verdicts_changed),
        ..StatusUpdate::only(readiness)
    }
}

/// As [`update_endpoints`], after an error that ends the reconcile: a failed write of the IPAllocation must not stop
/// updates of the EndpointSlice. Returns that error.
pub async fn update_endpoints_after(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    error: WriteError,
) -> WriteError {
    if !matches!(error, WriteError::Fenced)
        && let Err(also) = update_endpoints(ctx, key, lb).await
    {
        debug!(lb = %key, error = %also, "EndpointSlice not updated");
    }
    error
}

/// Whether the deletion of an object waits for a foreign finalizer. Those of the garbage collector and the legacy ones
/// delay it only briefly (FIN-2).
fn is_held_up(meta: &ObjectMeta) -> bool {
    let passing = ["foregroundDeletion", "orphan"];
    let mut all = meta.finalizers.iter().flatten().map(String::as_str);
    all.any(|f| !passing.contains(&f) && !keys::LEGACY_FINALIZERS.contains(&f))
}

/// Keeps the address of a load balancer with a refused spec; it gets no new one and does not wait for one (ALC-10). Records
/// of an earlier load balancer of its name are released.
async fn keep_address(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let request = spec::request(lb);
    let further = match lb.spec.address_source() {
        Ipam::Pool => allocate::keep(ctx, &request).await?,
        Ipam::Dhcp => {
            let mut left = ctx.index.withdraw_from_pools(key);
            left.retain(|record| record.spec.owner != request.owner);
            allocate::ensure_earlier_owner(ctx, &request, &left).await?;
            left
        }
    };
    release::release_extra_records(ctx, key, lb, further).await
}
