//! The standing of one load balancer among those that share addresses, and what it is to have (SHR-1, SHR-2, SHR-5 to SHR-7).

use std::collections::BTreeSet;
use std::net::IpAddr;

use harvester_lb_api::{Ipam, LoadBalancer, WorkloadType};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::plan::{Address, Goal, Keep, Next, Waiting};
use harvester_lb_core::sharing::group::{self, Role};
use harvester_lb_core::sharing::index;
use harvester_lb_core::sharing::membership::fault_of;
use harvester_lb_core::sharing::snapshot::Snapshot;
use harvester_lb_core::sharing::telling::{self, Shared};
use harvester_lb_core::sharing::told;
use harvester_lb_core::spec::{self, Checked};
use harvester_lb_core::status::{self, Readiness};
use harvester_lb_ipam::Record;
use harvester_lb_object::Key;

use crate::context::Context;
use crate::controllers::live;
use crate::controllers::load_balancer::allocate;
use crate::controllers::load_balancer::group::{Group, names_others};

/// What an existing load balancer is with respect to shared addresses.
#[derive(Debug)]
pub enum Standing {
    /// It has an address of its own, or is to get one. The refusal, if it asks for that of another one: reason and message.
    Own(Option<(&'static str, String)>),
    /// It shares the address of this group.
    Member(Key),
    /// Others share the address of an earlier load balancer of its name (SHR-6): reason and message.
    NameTaken(&'static str, String),
    /// The Service of this group still has its ports, although it does not share its address any more (SHR-7).
    Leaving(Key),
    /// It shares an address whose record is gone for the moment: it stays as it is. Reason and message.
    Interrupted(&'static str, String),
}

impl Standing {
    /// The group whose address a load balancer of this standing has; its own key, unless it shares that of another one.
    pub fn address_of<'a>(&'a self, key: &'a Key) -> &'a Key {
        match self {
            Self::Member(group) => group,
            Self::Own(_) | Self::NameTaken(..) | Self::Leaving(_) | Self::Interrupted(..) => key,
        }
    }
}

/// What a load balancer of this standing is to have.
///
/// # Errors
/// As [`allocate::goal`].
pub async fn goal(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    checked: Checked,
    standing: &Standing,
) -> Result<Goal, WriteError> {
    match standing {
        Standing::Member(group) => {
            let address = shared_address(ctx, lb, group)?;
            Ok(allocate::shared_goal(ctx, key, lb, checked, address))
        }
        Standing::Interrupted(reason, message) => {
            let readiness = Readiness::not(reason, message.clone());
            Ok(Goal::Keep(Keep::until(lb, readiness, Next::Resync)))
        }
        Standing::NameTaken(reason, message) => {
            ensure_taken(ctx, key, lb).await?;
            let why = (*reason, message.clone());
            Ok(allocate::unshared_goal(ctx, lb, checked, why, true))
        }
        Standing::Own(Some(why)) if !has_own(ctx, key, lb) => {
            let addr = status::allocated_addr(lb);
            if let Some(addr) = addr.filter(|_| told::was_of_another(lb)) {
                live::ensure_record_unchanged(ctx, addr).await?;
            }
            let why = why.clone();
            Ok(allocate::unshared_goal(ctx, lb, checked, why, false))
        }
        Standing::Own(refusal) => own_goal(ctx, key, lb, checked, refusal.as_ref()).await,
        Standing::Leaving(_) => own_goal(ctx, key, lb, checked, None).await,
    }
}

/// The address of a group for a load balancer that shares it, and how it does.
///
/// # Errors
/// `Conflict` if the group has none any more.
pub fn shared_address(
    ctx: &Context,
    lb: &LoadBalancer,
    group: &Key,
) -> Result<Address, WriteError> {
    let now = Group::of(ctx, group);
    let snapshot = now.as_ref().map(Group::snapshot);
    let record = snapshot.as_ref().and_then(|it| it.record);
    let granted = record.and_then(|it| Some((it, ctx.index.grant_of(it.spec.addr)?)));
    let Some((record, grant)) = granted else {
        let why =
            format!("the address of the load balancers that share that of {group} has changed");
        return Err(WriteError::Conflict(why));
    };
    let name = group.name.to_string();
    let shared = if record.spec.owner == spec::owner(&lb.metadata) {
        Shared::Holder(name)
    } else {
        Shared::Secondary(name)
    };
    Ok(Address {
        shared: Some(shared),
        ..Address::granted(lb, grant, Vec::new())
    })
}

/// What a load balancer is to have with an address of its own, which others may share. `refusal`: why it may not share the one that it
/// asks for.
async fn own_goal(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    checked: Checked,
    refusal: Option<&(&'static str, String)>,
) -> Result<Goal, WriteError> {
    let group = Group::of(ctx, key);
    let snapshot = group.as_ref().map(Group::snapshot);
    let is_primary = |it: &Snapshot<'_>| it.secondaries().next().is_some();
    let snapshot = snapshot.filter(is_primary);
    let is_primary = snapshot.is_some();
    let own = |it: &&Record| it.spec.owner == spec::owner(&lb.metadata);
    let record = snapshot.and_then(|it| Some(it.record.filter(own)?.spec.addr));
    if let Some(group) = group.as_ref().filter(|_| record.is_none()) {
        ensure_none_shares(ctx, group).await?;
    }
    let shared = match refusal {
        Some((reason, message)) => Some(Shared::Refused(reason, message.clone())),
        None => is_primary.then_some(Shared::Primary),
    };
    let goal = allocate::goal(ctx, key, lb, checked, shared).await?;
    Ok(match (goal, refusal) {
        // Its address is that of others too: it stays until the load balancer can move (REL-4, SHR-5).
        (Goal::Wait(_, waiting), _) if is_primary && ctx.index.holds_address(key) => {
            let keep = Keep::until(lb, waiting.readiness, Next::Resync);
            let Some(addr) = record else {
                return Ok(Goal::Keep(keep));
            };
            // What it has moved away from is released all the same.
            let mut extra_records = waiting.extra_records;
            extra_records.retain(|extra| extra.spec.addr != addr);
            let keep = Keep {
                extra_records,
                ..keep
            };
            // The Service has it for them, so the status names it first (IPA-6).
            Goal::Keep(match ctx.index.grant_of(addr) {
                Some(grant) => keep.naming(Address::granted(lb, grant, Vec::new())),
                None => keep,
            })
        }
        // Nothing is left of its own address, and it gets no other one.
        (Goal::Wait(vm, waiting), Some((reason, message))) => {
            ctx.index.dequeue(&lb.metadata);
            let readiness = Readiness::not(reason, message.clone());
            Goal::Wait(
                vm,
                Waiting {
                    readiness,
                    ..waiting
                },
            )
        }
        (goal, _) => goal,
    })
}

/// Verifies that no record of the group's address is unseen, before one of its name gets an address: others may share that of an earlier
/// one of the name (SHR-6), and keep it (SHR-5).
///
/// # Errors
/// `Conflict` if there is one; the store has it.
async fn ensure_none_shares(ctx: &Context, group: &Group) -> Result<(), WriteError> {
    for addr in group.told().into_iter().filter_map(status::allocated_addr) {
        live::ensure_record_unchanged(ctx, addr).await?;
    }
    Ok(())
}

/// Verifies the records by which others share the address of an earlier load balancer of the name, before a later one loses that of its
/// status to them: by an old copy an address is still theirs that the later one has got since (SHR-6, IPA-7).
///
/// # Errors
/// `Conflict` if one of them has changed; the store has it.
async fn ensure_taken(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let Some(named) = status::allocated_addr(lb) else {
        return Ok(());
    };
    let group = Group::of(ctx, key);
    let record = group.as_ref().and_then(|it| it.snapshot().record.cloned());
    let shared = record.map(|record| record.spec.addr);
    let addrs: BTreeSet<IpAddr> = shared.into_iter().chain([named]).collect();
    for addr in addrs {
        live::ensure_record_unchanged(ctx, addr).await?;
    }
    Ok(())
}

/// Whether a load balancer that may not share the address that it asks for has one of its own, and is served with it (SHR-7).
fn has_own(ctx: &Context, key: &Key, lb: &LoadBalancer) -> bool {
    let service = ctx.index.stores.services.get(key);
    let uid = lb.metadata.uid.as_deref().unwrap_or_default();
    let has_service = group::is_owner(service.as_ref().map(|service| &***service), uid);
    let is_leased = lb.spec.address_source() == Ipam::Dhcp
        && lb
            .status
            .as_ref()
            .is_some_and(|it| it.allocated_address.is_some());
    ctx.index.has_address(key) || has_service || is_leased
}

/// Determines the standing of a load balancer that is neither undecodable nor being deleted.
pub fn standing(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Standing {
    let named = index::named_group(key, &lb.metadata);
    let asked = named.as_ref().and_then(|named| Group::of(ctx, named));
    let standing = wanted(ctx, key, lb, named.as_ref().zip(asked.as_ref()));
    let target = match &standing {
        Standing::Member(group) => group,
        _ => key,
    };
    match held_elsewhere(ctx, key, target, lb.metadata.uid.as_deref()) {
        Some(left) => Standing::Leaving(left),
        None => standing,
    }
}

fn wanted(ctx: &Context, key: &Key, lb: &LoadBalancer, asked: Option<(&Key, &Group)>) -> Standing {
    // Also of one that shares the address of another one, while others ask for that of this one.
    let own = Group::of(ctx, key);
    let own = own.as_ref().map(Group::snapshot);
    let own_role = own.as_ref().and_then(|it| it.roles.get(&*key.name));
    if own.is_some() {
        ctx.index.saw_role(key, key, own_role);
    }
    let mut refusal = fault_of(lb).map(|why| (why.reason(), why.to_string()));
    // Of a spec that is refused nothing counts: it stays what it is (BE-6).
    let is_at_fault = refusal.is_some() && spec::check(lb).is_ok();
    if let (Some((named, asked)), false) = (asked, is_at_fault) {
        let snapshot = asked.snapshot();
        let role = snapshot.roles.get(&*key.name);
        ctx.index.saw_role(named, key, role);
        match (role, snapshot.record.filter(|_| !snapshot.is_unnamed)) {
            (Some(Role::Member { is_holder }), Some(_)) => match asked.hindrance(lb, *is_holder) {
                None => return Standing::Member(named.clone()),
                hindrance => refusal = hindrance,
            },
            (Some(Role::Member { .. }), None) => {
                let message = telling::primary_has_none(&named.name);
                // The record was deleted by hand. Without the Service too the address is gone: the primary has given it up just
                // when this one joined.
                let uid = lb.metadata.uid.as_deref().unwrap_or_default();
                let is_served = match lb.spec.workload() {
                    WorkloadType::Cluster => !names_others(ctx, named, lb),
                    WorkloadType::Vm => group::is_owner(snapshot.service, uid),
                };
                if told::was_of_another(lb) && is_served {
                    return Standing::Interrupted(status::WAITING_FOR_PRIMARY, message);
                }
                refusal = Some((status::WAITING_FOR_PRIMARY, message));
            }
            (Some(role), _) => refusal = telling::refusal(&named.name, role),
            // Its spec is refused.
            (None, _) => {}
        }
    }
    if let Some(role @ Role::NameTaken) = own_role
        && let Some((reason, message)) = telling::refusal(&key.name, role)
    {
        return Standing::NameTaken(reason, message);
    }
    Standing::Own(refusal)
}

/// The group whose Service still has the load balancer of this uid among its owners, although it is not `target`: its EndpointSlice
/// must stay until its ports are off that Service (SHR-7).
pub fn held_elsewhere(ctx: &Context, key: &Key, target: &Key, uid: Option<&str>) -> Option<Key> {
    let of = named_by_slice(ctx, key)?;
    let service = ctx.index.stores.services.get(&of)?;
    let is_groups = || Group::of(ctx, &of).is_some_and(|group| group.is_own(&service));
    let is_ours = desired::ownership(&service.metadata, &of.name) == Ownership::Ours || is_groups();
    (of != *target && is_ours && group::is_owner(Some(&service), uid?)).then_some(of)
}

/// The group whose Service the EndpointSlice of a load balancer names although that one, of this uid, is none of its owners.
pub fn left(ctx: &Context, key: &Key, uid: Option<&str>) -> Option<Key> {
    let of = named_by_slice(ctx, key)?;
    let service = ctx.index.stores.services.get(&of)?;
    (!group::is_owner(Some(&service), uid?)).then_some(of)
}

/// The group whose Service the EndpointSlice of a load balancer names, unless that is its own: one that joins still has that.
pub fn named_by_slice(ctx: &Context, key: &Key) -> Option<Key> {
    let slice = ctx.index.stores.slices.get(key)?;
    let of = index::service_of(&slice)?;
    (*of != *key.name).then(|| Key::new(&key.namespace, of))
}
