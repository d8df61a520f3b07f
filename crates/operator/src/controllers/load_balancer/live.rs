//! Live reads that verify what was decided from a stored copy.
//!
//! Each kind has a watch of its own, so a copy may be older than the others, most of all on a new leader. A write with the
//! resource version of the copy detects that. A step that no such write precedes verifies the copy here first; its request
//! is not sent if the object has changed, and the next reconcile decides from what was read.

use harvester_lb_api::LoadBalancer;
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::{cached, spec};
use harvester_lb_ipam::Owner;
use harvester_lb_object::Key;

use crate::context::Context;
use crate::index::Index;

/// Verifies by a live read that an object exists and that `holds` is true of it.
///
/// # Errors
/// `Conflict` if not; the store has the current object. Otherwise that of the request.
pub async fn ensure<K>(
    ctx: &Context,
    key: &Key,
    holds: impl FnOnce(&K) -> bool,
) -> Result<(), WriteError>
where
    K: CachedResource<Index>,
{
    let current = ctx.client.get_live::<K>(key).await?;
    if current.as_ref().is_some_and(holds) {
        return Ok(());
    }
    Err(WriteError::Conflict(format!(
        "{} {key} has been changed, deleted or recreated meanwhile",
        K::kind(&())
    )))
}

/// Verifies that the load balancer of this name still has this uid: a later one of the name may own its IPAllocations
/// (IPA-3).
pub async fn ensure_uid(ctx: &Context, owner: &Owner) -> Result<(), WriteError> {
    let is_owner = |lb: &LoadBalancer| spec::owner(&lb.metadata) == *owner;
    ensure(ctx, &cached::key(&owner.id), is_owner).await
}

/// Verifies that a load balancer is unchanged.
pub async fn ensure_unchanged(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
) -> Result<(), WriteError> {
    let version = &lb.metadata.resource_version;
    let is_same = |now: &LoadBalancer| now.metadata.resource_version == *version;
    ensure(ctx, key, is_same).await
}
