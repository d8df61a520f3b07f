//! What is done under the key of a group's name besides the reconcile of the load balancer of that name: the record and the Service of
//! those that share an address, while no plan of a primary writes them (SHR-5, SHR-6).

use std::net::IpAddr;
use std::time::Duration;

use harvester_lb_api::LoadBalancer;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, Lb};
use harvester_lb_core::kube_vip_annotations::Source;
use harvester_lb_core::plan::{self, Address, Objects, View};
use harvester_lb_core::sharing::group::Role;
use harvester_lb_core::sharing::service::{self, Others};
use harvester_lb_core::sharing::snapshot::Snapshot;
use harvester_lb_core::sharing::{telling, told};
use harvester_lb_core::{spec, status};
use harvester_lb_ipam::{Owner, Record, addr};
use harvester_lb_object::Key;

use crate::clock;
use crate::context::Context;
use crate::controllers::load_balancer::announcement;
use crate::controllers::load_balancer::apply;
use crate::controllers::load_balancer::group::{Group, members};
use crate::controllers::load_balancer::observe::Stored;
use crate::controllers::load_balancer::release;
use crate::controllers::load_balancer::unserved;
use crate::controllers::{live, records};

/// Wakes the load balancers of a group that a reconcile under its name may concern: those that have not acted on their present role yet,
/// and those that wait for an address which the primary has by now, for ports which the Service has, or for ports that another one had
/// (SHR-2), or are not told why their ports do not come.
pub fn wake(ctx: &Context, group: &Group) {
    let snapshot = group.snapshot();
    let mut wakes = ctx.index.outdated_roles(snapshot.key, &snapshot.roles);
    let named = service::named_ports(&snapshot);
    for (party, ports) in snapshot.parties() {
        let name = party.lb.meta().name.as_deref().unwrap_or_default();
        // The reconcile of the primary is this one. One that is about to leave says that it waits until its ports are off the Service.
        let is_member = matches!(snapshot.roles.get(name), Some(Role::Member { .. }));
        if !is_member || *name == *snapshot.key.name {
            continue;
        }
        let lb = party.lb.as_valid();
        let waits = lb.is_some_and(|it| telling::may_wait_for_ports(it, &snapshot.key.name));
        let has_none = lb.and_then(status::allocated).is_none();
        let refused = snapshot.refusal(name);
        let is_carried =
            || ports.is_some_and(|it| service::carries(snapshot.service, party.slice, it));
        let has_address = snapshot.record.is_some() && !snapshot.is_unnamed;
        let is_ready = (refused.is_none() && is_carried()) || (has_none && has_address);
        let is_told_otherwise =
            lb.is_some_and(|lb| telling::is_told_otherwise(lb, &snapshot.key.name, refused));
        let may_add =
            ports.is_some_and(|it| service::may_add(&snapshot.key.name, party.slice, it, &named));
        // One with an address of its own that waits for another name of a port, or until somebody else's Service is gone.
        let may_join = has_address
            && lb.is_some_and(|lb| told::is_refused(lb) && group.hindrance(lb, false).is_none());
        if (waits && is_ready) || may_add || may_join || (!is_ready && is_told_otherwise) {
            wakes.push(Key::new(&snapshot.key.namespace, name));
        }
    }
    for key in wakes {
        ctx.index.queues.lbs.add(key);
    }
}

/// Keeps the record and the Service of those that share an address up to date. Not called if the plan of a primary has just done so:
/// it is gone, its spec is refused, it stays as it is for another reason, or it is a later one of the name. After it the annotations for
/// kube-vip are those of the holder, once they are edited (KVA-1). `has_failed`: the reconcile of the primary.
pub async fn keep_up(
    ctx: &Context,
    group: &Group,
    has_failed: bool,
) -> Result<Requeue, WriteError> {
    let snapshot = group.snapshot();
    let Some(holder) = snapshot.holder() else {
        if snapshot.is_left {
            unserved::end_service_left(ctx, snapshot.key).await?;
        }
        return Ok(Requeue::AwaitChange);
    };
    let to = spec::owner(holder);
    let key = snapshot.key;
    let Some(record) = snapshot.record else {
        return restore(ctx, &snapshot, &to).await;
    };
    let exists = ctx.index.stores.lbs.get(key).is_some();
    if !exists {
        ctx.index.withdraw(key);
    }
    let is_new = record.spec.owner != to;
    if is_new {
        hand_over(ctx, &snapshot, exists, record, &to).await?;
    }
    // IPA-6: the status of a primary that has the address from now on, or is to keep it after all, names it before the Service has it.
    // While that cannot be written, nobody joins or leaves. One whose spec is refused may not name it. A Service that asks for the address
    // all the same, as the move to the one that the status names is refused, goes on.
    let service = ctx.index.stores.services.get(key);
    let asked = service.as_deref().and_then(|it| cached::asked_address(it));
    let is_asked = asked.and_then(addr::parse) == Some(record.spec.addr);
    let unnamed = unnamed(ctx, key, record.spec.addr, &to);
    if let Some(primary) = unnamed.filter(|_| is_new || !is_asked) {
        if has_failed || is_new {
            return Ok(Requeue::AwaitChange);
        }
        if spec::check(&primary).is_ok() {
            return Ok(Requeue::Backoff);
        }
    }
    let stored = Stored::of(ctx, key);
    let objects = Objects {
        // That of a primary that is gone; that of a later one of the name is its own.
        slice: stored.objects(key).slice.filter(|_| !exists),
        ..stored.objects(key)
    };
    let (others, members) = (Others::of(&snapshot, true), members(&snapshot));
    let address = record.spec.addr.to_string();
    let allowed = &ctx.index.settings.interfaces;
    let annotations = Source::of_group(&key.name, holder, allowed, objects.service.is_none());
    let plan =
        plan::share::without_primary(&objects, &others, &members, &address, &annotations, !exists);
    let none = LoadBalancer::default();
    apply::apply(ctx, &View::of(&none, objects), &plan).await?;
    let left = group.left_records(record);
    let recreate_in = move_on(ctx, key, record, &left).await?;
    // An existing one releases itself what it has left; nobody else does it for one that is gone, or whose name is taken.
    let is_taken = matches!(snapshot.roles.get(&*key.name), Some(Role::NameTaken));
    if !exists || is_taken {
        let is_done = release::release_left(ctx, key, left).await?;
        if is_done && !exists {
            ctx.index.cleanup_complete(key);
        }
    }
    Ok(recreate_in.map_or(Requeue::AwaitChange, Requeue::After))
}

/// Moves the Service of a group to its address, as the primary's plan would (REL-4).
async fn move_on(
    ctx: &Context,
    key: &Key,
    record: &Record,
    left: &[Record],
) -> Result<Option<Duration>, WriteError> {
    let Some(service) = ctx.index.stores.services.get(key) else {
        return Ok(None);
    };
    let Some(grant) = ctx.index.grant_of(record.spec.addr) else {
        return Ok(None);
    };
    let address = Address::granted(&LoadBalancer::default(), grant, left.to_vec());
    announcement::move_on(ctx, key, &service, &address).await
}

/// The primary, if the address of the group belongs to it and its status does not name it.
fn unnamed(ctx: &Context, key: &Key, addr: IpAddr, owner: &Owner) -> Option<LoadBalancer> {
    let primary = ctx.index.stores.lbs.get(key)?;
    let lb = primary.as_valid()?;
    let is_unnamed =
        spec::owner(&lb.metadata) == *owner && status::allocated_addr(lb) != Some(addr);
    is_unnamed.then(|| lb.clone())
}

/// Writes the next owner into the record of a group (SHR-5). That the present one is gone, or shares the address no longer, a live
/// read confirms (IPA-3 a).
async fn hand_over(
    ctx: &Context,
    snapshot: &Snapshot<'_>,
    exists: bool,
    record: &Record,
    to: &Owner,
) -> Result<(), WriteError> {
    let owner = &record.spec.owner.id;
    if *owner != to.id {
        live::ensure_left(ctx, record, snapshot.meta(owner.name())).await?;
    }
    if !exists && record.spec.group.is_none() {
        live::ensure_absent(ctx, snapshot.key).await?;
    }
    // The answer for one that cannot be decoded could not be decoded either.
    let stored = ctx.index.stores.lbs.get(&cached::key(&to.id));
    if !matches!(stored.as_deref(), Some(Lb::Invalid(..))) {
        live::ensure_uid(ctx, to).await?;
    }
    // By what was read just now, it may have left.
    let now = Group::of(ctx, snapshot.key);
    let now = now.as_ref().map(Group::snapshot);
    if now.and_then(|it| it.holder().map(spec::owner)).as_ref() != Some(to) {
        return Err(WriteError::Conflict(format!(
            "{} is not to own the IPAllocation of {} any more",
            to.id, record.spec.addr
        )));
    }
    let next = ctx.index.hand_over(record.spec.addr, to)?;
    // Of the version that was verified.
    let Some(next) = next.filter(|next| next.version == record.version) else {
        return Err(WriteError::Conflict(format!(
            "the IPAllocation of {} has changed",
            record.spec.addr
        )));
    };
    records::hand_over(ctx, &next).await
}

/// Creates the record of a group's address again after it was deleted by hand (IPA-7), unless the primary itself does.
async fn restore(
    ctx: &Context,
    snapshot: &Snapshot<'_>,
    to: &Owner,
) -> Result<Requeue, WriteError> {
    let key = snapshot.key;
    let is_primary = matches!(
        snapshot.roles.get(&*key.name),
        Some(Role::Member { .. } | Role::PortConflict(_))
    );
    if is_primary {
        return Ok(Requeue::AwaitChange);
    }
    let stored = ctx.index.stores.lbs.get(&cached::key(&to.id));
    let allocated = match stored.as_deref() {
        Some(Lb::Valid(lb)) => lb
            .status
            .as_ref()
            .and_then(|it| it.allocated_address.as_ref()),
        _ => None,
    };
    let pool = allocated.and_then(|it| it.ip_pool.as_deref());
    // Of cluster type there is no Service, and a new leader remembers no record: the status names the address.
    let named = allocated.and_then(|it| addr::parse(it.ip.as_deref()?));
    let restored = ctx
        .index
        .restore_shared(key, to, named, pool, clock::now())?;
    if let Some((spec, replaces)) = restored {
        live::ensure_uid(ctx, to).await?;
        records::rewrite(ctx, &spec, replaces).await?;
        // The event of the IPAllocation brings the group back.
    }
    Ok(Requeue::AwaitChange)
}
