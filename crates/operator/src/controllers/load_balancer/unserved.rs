//! Load balancers that cannot be reconciled fully: undecodable, being deleted, unsupported by this version, or with a refused
//! spec. They keep their address, and their existing endpoints are kept up to date (BE-6).

use harvester_lb_api::LoadBalancer;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, Lb};
use harvester_lb_core::plan::{self, Goal, Keep, LeftBehind, Next, View};
use harvester_lb_core::sharing::group as membership;
use harvester_lb_core::sharing::told;
use harvester_lb_core::spec::{self, Refusal};
use harvester_lb_core::unsupported::Unsupported;
use harvester_lb_ipam::{Record, addr};
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::context::Context;
use crate::controllers::invalid_object;
use crate::controllers::live;
use crate::controllers::load_balancer::group::Group;
use crate::controllers::load_balancer::observe::Stored;
use crate::controllers::load_balancer::standing::{self, Standing};
use crate::controllers::load_balancer::walk::walk;
use crate::controllers::load_balancer::write_status::drop_finalizers;
use crate::controllers::load_balancer::{allocate, apply, lease, release};

/// Handles an undecodable load balancer: it no longer waits for an address, and its condition shows the error.
pub async fn invalid(
    ctx: &Context,
    key: &Key,
    meta: &ObjectMeta,
    why: &str,
) -> Result<Requeue, WriteError> {
    ctx.index.dequeue(meta);
    let lb = LoadBalancer {
        metadata: meta.clone(),
        ..LoadBalancer::default()
    };
    let updated = if meta.deletion_timestamp.is_none() || is_held_up(meta) {
        let keep = Keep::undecodable();
        walk(
            ctx,
            key,
            &lb,
            &Goal::Keep(leaving_none(ctx, key, &lb, keep)),
            key,
        )
        .await
    } else {
        Ok(Requeue::AwaitChange)
    };
    let lost = lease::end_lost(ctx, key, meta, None).await;
    invalid_object::report::<LoadBalancer>(ctx, key, meta, why).await?;
    lost.and(updated)
}

/// Handles a load balancer that is being deleted: removes legacy finalizers. Cleanup follows its deletion (FIN-2).
pub async fn deleting(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<Requeue, WriteError> {
    let updated = if is_held_up(&lb.metadata) {
        let keep = Keep::endpoints(lb);
        walk(
            ctx,
            key,
            lb,
            &Goal::Keep(leaving_none(ctx, key, lb, keep)),
            key,
        )
        .await
    } else {
        Ok(Requeue::AwaitChange)
    };
    let lost = lease::end_lost(ctx, key, &lb.metadata, Some(lb)).await;
    let next = drop_finalizers(ctx, key, lb).await?;
    lost.and(updated).map(|_| next)
}

/// Handles an unsupported load balancer: only its condition and the readiness of its endpoints are written (IPA-9).
pub async fn leave_alone(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    why: &Unsupported,
) -> Result<Requeue, WriteError> {
    ctx.index.set_aside(&lb.metadata);
    let goal = Goal::Keep(Keep::unsupported(key, lb, why));
    walk(ctx, key, lb, &goal, key).await
}

/// Handles a load balancer that is no member of a group any more whose Service still has its ports: it stays as it is until the
/// event by which they are off (SHR-7).
pub async fn leaving(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    group: Key,
) -> Result<Requeue, WriteError> {
    ctx.index.queues.lbs.add(group);
    let keep = Keep {
        next: Next::Resync,
        ..Keep::endpoints(lb)
    };
    walk(ctx, key, lb, &Goal::Keep(keep), key).await
}

/// Handles a load balancer whose spec is refused: its endpoints follow and its condition is written whatever becomes of its
/// address, which stays recorded; it gets no new one (ALC-10). One that shares an address moves with it (REL-4). What one that does not
/// has left of one that it shared goes: nobody may have that while a status names it (IPA-6).
pub async fn refused(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    why: &Refusal,
    standing: &Standing,
) -> Result<Requeue, WriteError> {
    let is_alone = matches!(standing, Standing::Own(_));
    let keep = Keep::refused(key, lb, why);
    let keep = if lease::is_lost(ctx, key, lb) {
        keep.without_lease()
    } else {
        keep
    };
    let (shared, changed) = match standing {
        Standing::Member(group) => match standing::shared_address(ctx, lb, group) {
            Ok(address) => (Some(Box::new(address)), Ok(())),
            Err(error) => (None, Err(error)),
        },
        _ => (None, Ok(())),
    };
    let keep = Keep { shared, ..keep };
    let goal = Goal::Keep(if is_alone && told::was_of_another(lb) {
        Keep {
            left: standing::named_by_slice(ctx, key),
            ..keep.without_address(lb)
        }
    } else {
        leaving_none(ctx, key, lb, keep)
    });
    let mut walked = walk(ctx, key, lb, &goal, standing.address_of(key)).await;
    if let (Goal::Keep(keep), Err(WriteError::Refused(_))) = (&goal, &walked)
        && keep.shared.is_some()
    {
        // The record cannot be written before its address is named (IPA-6): that stops neither the endpoints nor the condition (BE-6).
        let keep = Keep {
            shared: None,
            ..keep.clone()
        };
        let rest = Box::pin(walk(ctx, key, lb, &Goal::Keep(keep), key)).await;
        walked = rest.and(walked);
    }
    let kept = keep_address(ctx, key, lb).await;
    let lost = lease::end_lost(ctx, key, &lb.metadata, Some(lb)).await;
    kept.and(lost).and(changed).and(walked)
}

/// Handles a load balancer whose spec is refused and whose name others share: its condition is written, and nothing else (SHR-6).
pub async fn nameless(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    why: &Refusal,
) -> Result<Requeue, WriteError> {
    ctx.index.set_aside(&lb.metadata);
    let goal = Goal::Keep(Keep::refused(key, lb, why));
    walk(ctx, key, lb, &goal, key).await
}

/// What a load balancer keeps, without an EndpointSlice that belongs to the Service of a group which it has left (SHR-7).
pub fn leaving_none(ctx: &Context, key: &Key, lb: &LoadBalancer, keep: Keep) -> Keep {
    let left = standing::left(ctx, key, lb.metadata.uid.as_deref());
    Keep { left, ..keep }
}

/// Keeps the address of such a load balancer recorded, and releases the records of an earlier one of its name.
async fn keep_address(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let further = allocate::keep(ctx, key, lb).await?;
    let stored = ctx.index.stores.lbs.get(key);
    // With the status that was just written.
    let newest = match stored.as_deref() {
        Some(Lb::Valid(newest)) if is_as_decided(lb, newest) => newest,
        _ => lb,
    };
    end_earlier_service(ctx, key, newest, &further).await?;
    release::release_extra_records(ctx, key, newest, further).await
}

/// Whether what was decided from a copy of a load balancer holds for this one too: it differs only in what no decision about its
/// records rests on. One of the name that was created meanwhile has other records to keep (IPA-3).
fn is_as_decided(copy: &LoadBalancer, newest: &LoadBalancer) -> bool {
    spec::request(copy) == spec::request(newest)
        && copy.spec == newest.spec
        && copy.metadata.annotations == newest.metadata.annotations
}

/// Deletes the Service of an earlier load balancer of the name for one that does not do so with its own plan, as it is being deleted or
/// left alone: those that have left the group wait for that (SHR-7).
pub async fn end_service_left(ctx: &Context, key: &Key) -> Result<(), WriteError> {
    let stored = ctx.index.stores.lbs.get(key);
    let Some(Lb::Valid(lb)) = stored.as_deref() else {
        return Ok(());
    };
    let has_no_plan = lb.metadata.deletion_timestamp.is_some()
        || ctx.index.stores.unsupported(&lb.metadata).is_some();
    if !has_no_plan {
        return Ok(());
    }
    let records = ctx.index.bound_records_of(&cached::id(key));
    end_earlier_service(ctx, key, lb, &records).await
}

/// Deletes the Service of an earlier load balancer of the name, whose address is to be released (REL-3): the garbage collector leaves it
/// as long as another object owns it too.
async fn end_earlier_service(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    records: &[Record],
) -> Result<(), WriteError> {
    let stored = Stored::of(ctx, key);
    let objects = stored.objects(key);
    let Some(service) = objects.service else {
        return Ok(());
    };
    let owner = spec::owner(&lb.metadata);
    let asked = cached::asked_address(service).and_then(addr::parse);
    let is_left = |it: &&Record| Some(it.spec.addr) == asked && it.spec.owner != owner;
    let left: Vec<Record> = records.iter().filter(is_left).cloned().collect();
    let uid = lb.metadata.uid.as_deref().unwrap_or_default();
    let is_shared = || Group::of(ctx, key).is_some_and(|group| group.has_holder());
    if left.is_empty() || membership::is_owner(Some(service), uid) || is_shared() {
        return Ok(());
    }
    let left = LeftBehind {
        deleted: None,
        bound: left,
    };
    if let Some(cleanup) = plan::cleanup(left, &objects, false) {
        // From an old copy: it may be valid by now, and about to take the Service over.
        live::ensure_unchanged(ctx, key, lb).await?;
        apply::apply(ctx, &View::of(lb, objects), &cleanup.plan).await?;
    }
    Ok(())
}

/// Whether the deletion of an object waits for a foreign finalizer (BE-6). Those of the garbage collector delay it only briefly; a
/// legacy one may stay, if the API server refuses its removal (FIN-2).
fn is_held_up(meta: &ObjectMeta) -> bool {
    let passing = ["foregroundDeletion", "orphan"];
    let mut all = meta.finalizers.iter().flatten().map(String::as_str);
    all.any(|f| !passing.contains(&f))
}
