//! Load balancers that share an address (SHR-1 to SHR-9): the stored objects of a group, the standing of each load balancer in it, and
//! what is done under the key of the group's name for those that are not the load balancer of that name.

use std::sync::Arc;

use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, CachedService, Lb};
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::plan::{self, Goal, Objects, Primary, Secondary, Sharing, View};
use harvester_lb_core::sharing::group::{self, Role};
use harvester_lb_core::sharing::index;
use harvester_lb_core::sharing::membership::fault_of;
use harvester_lb_core::sharing::naming;
use harvester_lb_core::sharing::service::{self, Others};
use harvester_lb_core::sharing::snapshot::{Party, Snapshot};
use harvester_lb_core::sharing::telling::{self, Shared};
use harvester_lb_core::spec::{self, Checked, VmSpec};
use harvester_lb_core::status;
use harvester_lb_ipam::{Owner, Record};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::clock;
use crate::context::Context;
use crate::controllers::load_balancer::{allocate, apply};
use crate::controllers::{live, records};

/// The stored objects of a group.
pub struct Group {
    key: Key,
    parties: Vec<StoredParty>,
    service: Option<Arc<CachedService>>,
    records: Vec<Record>,
}

struct StoredParty {
    lb: Arc<Lb>,
    slice: Option<Arc<EndpointSlice>>,
    secondary: Option<Key>,
    is_left_alone: bool,
}

impl Group {
    /// Takes them from the stores. `None` if nobody shares the address of this name, or asks for it.
    pub fn of(ctx: &Context, key: &Key) -> Option<Self> {
        let members = ctx.index.group(key)?;
        let stores = &ctx.index.stores;
        let mut parties = Vec::new();
        for (lb_key, secondary) in members.parties {
            if let Some(lb) = stores.lbs.get(&lb_key) {
                parties.push(StoredParty {
                    is_left_alone: ctx.index.unsupported(lb.meta()).is_some(),
                    slice: stores.slices.get(&lb_key),
                    secondary,
                    lb,
                });
            }
        }
        Some(Self {
            key: key.clone(),
            parties,
            service: stores.services.get(key),
            records: members.records,
        })
    }

    /// The roles, and what follows from them.
    pub fn snapshot(&self) -> Snapshot<'_> {
        let parties = self.parties.iter().map(|party| Party {
            lb: &party.lb,
            slice: party.slice.as_deref(),
            secondary: party.secondary.as_ref().map(|key| &*key.name),
            is_left_alone: party.is_left_alone,
        });
        Snapshot::of(
            &self.key,
            parties.collect(),
            self.own_service(),
            &self.records,
        )
    }

    /// Whether somebody is to own the record of the address.
    pub fn has_holder(&self) -> bool {
        self.snapshot().holder().is_some()
    }

    fn own_service(&self) -> Option<&Service> {
        let service = self.service.as_deref()?;
        let is_own = desired::ownership(&service.metadata, &self.key.name) == Ownership::Ours;
        (is_own && service.undecodable.is_none()).then_some(&**service)
    }
}

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
}

impl Standing {
    /// The group whose address a load balancer of this standing has; its own key, unless it shares that of another one.
    pub fn address_of<'a>(&'a self, key: &'a Key) -> &'a Key {
        match self {
            Self::Member(group) => group,
            Self::Own(_) | Self::NameTaken(..) | Self::Leaving(_) => key,
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
            let group = Group::of(ctx, group);
            let snapshot = group.as_ref().map(Group::snapshot);
            let record = snapshot.as_ref().and_then(|it| Some((it, it.record?)));
            let Some((snapshot, record)) = record else {
                return Err(WriteError::Conflict(format!(
                    "the group of {key} has changed"
                )));
            };
            let name = snapshot.key.name.to_string();
            let is_holder = record.spec.owner == spec::owner(&lb.metadata);
            let shared = if is_holder {
                Shared::Holder(name)
            } else {
                Shared::Secondary(name)
            };
            allocate::shared_goal(ctx, key, lb, checked, record, shared)
        }
        Standing::NameTaken(reason, message) => {
            let why = (*reason, message.clone());
            Ok(allocate::unshared_goal(ctx, key, checked, why, true))
        }
        Standing::Own(Some(why)) if !has_own(ctx, key, lb) => Ok(allocate::unshared_goal(
            ctx,
            key,
            checked,
            why.clone(),
            false,
        )),
        Standing::Own(Some((reason, message))) => {
            let shared = Shared::Refused(reason, message.clone());
            allocate::goal(ctx, key, lb, checked, Some(shared)).await
        }
        Standing::Own(None) | Standing::Leaving(_) => {
            let group = Group::of(ctx, key);
            let is_primary = group.is_some_and(|it| it.snapshot().secondaries().next().is_some());
            allocate::goal(ctx, key, lb, checked, is_primary.then_some(Shared::Primary)).await
        }
    }
}

/// Whether a load balancer that may not share the address that it asks for has one of its own, and is served with it (SHR-7).
fn has_own(ctx: &Context, key: &Key, lb: &LoadBalancer) -> bool {
    let service = ctx.index.stores.services.get(key);
    let uid = lb.metadata.uid.as_deref().unwrap_or_default();
    let has_service = group::is_owner(service.as_ref().map(|service| &***service), uid);
    ctx.index.has_address(key) || has_service
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
    let mut refusal = fault_of(lb).map(|why| (why.reason(), why.to_string()));
    if let (Some((named, group)), None) = (asked, &refusal) {
        let snapshot = group.snapshot();
        match (snapshot.roles.get(&*key.name), snapshot.record) {
            (Some(Role::Member { .. }), Some(_)) => return Standing::Member(named.clone()),
            (Some(Role::Member { .. }), None) => {
                let message = format!("load balancer {} has no address yet", named.name);
                refusal = Some((status::WAITING_FOR_PRIMARY, message));
            }
            (Some(role), _) => refusal = telling::refusal(role),
            // Its spec is refused.
            (None, _) => {}
        }
    }
    if let Some(own) = Group::of(ctx, key)
        && let Some(role @ Role::NameTaken) = own.snapshot().roles.get(&*key.name)
        && let Some((reason, message)) = telling::refusal(role)
    {
        return Standing::NameTaken(reason, message);
    }
    Standing::Own(refusal)
}

/// The group whose Service still has the load balancer of this uid among its owners, although it is not `target`: its EndpointSlice
/// must stay until its ports are off that Service (SHR-7).
pub fn held_elsewhere(ctx: &Context, key: &Key, target: &Key, uid: Option<&str>) -> Option<Key> {
    let slice = ctx.index.stores.slices.get(key)?;
    let labels = slice.metadata.labels.as_ref()?;
    let of = labels.get(keys::LABEL_SERVICE_NAME)?;
    // One that joins still has a Service of its own.
    if *of == *target.name || *of == *key.name {
        return None;
    }
    let of = Key::new(&key.namespace, &**of);
    let service = ctx.index.stores.services.get(&of)?;
    let is_ours = desired::ownership(&service.metadata, &of.name) == Ownership::Ours;
    (is_ours && group::is_owner(Some(&service), uid?)).then_some(of)
}

/// With whom a load balancer with these ports shares its address. `of`: the group whose address it is; its own key, unless it shares
/// that of another one. `None`: it is no longer a member of that group.
pub fn sharing<'a>(
    ctx: &Context,
    objects: &Objects<'_>,
    vm: &VmSpec,
    of: &Key,
    snapshot: Option<&'a Snapshot<'a>>,
) -> Option<Sharing<'a>> {
    let key = objects.key;
    if of != key {
        let snapshot = snapshot?;
        let is_member = matches!(snapshot.roles.get(&*key.name), Some(Role::Member { .. }));
        let record = snapshot.record.filter(|_| is_member)?;
        return Some(Sharing::Secondary(Secondary {
            group: &snapshot.key.name,
            service: snapshot.service,
            holder: &record.spec.owner,
        }));
    }
    let names = names(objects, vm);
    if snapshot.is_none() && !service::are_shared(&vm.ports, &names) {
        ctx.index.forget_names(key);
        return Some(Sharing::Alone);
    }
    let (names, now) = ctx.index.observe_names(key, names);
    let contested = snapshot.and_then(|it| match it.roles.get(&*key.name) {
        Some(Role::PortConflict(why)) => Some(why.clone()),
        _ => None,
    });
    Some(Sharing::Primary(Box::new(Primary {
        others: snapshot.map(Others::of).unwrap_or_default(),
        members: snapshot.map(members).unwrap_or_default(),
        names,
        now,
        contested,
    })))
}

/// The names that the ports of the load balancer of this name have.
fn names(objects: &Objects<'_>, vm: &VmSpec) -> naming::Stored {
    let service = objects.service.map(|service| &**service);
    service::stored_names(&objects.key.name, &vm.ports, service, objects.slice)
}

/// Notes the names of the ports of a primary after they were written: they are there from now on.
pub fn names_written(ctx: &Context, objects: &Objects<'_>, vm: &VmSpec) {
    ctx.index.observe_names(objects.key, names(objects, vm));
}

/// The load balancers whose ports the Service carries besides the primary's.
fn members(snapshot: &Snapshot<'_>) -> Vec<Key> {
    let namespace = &snapshot.key.namespace;
    let all = snapshot.secondaries();
    all.map(|name| Key::new(namespace, name)).collect()
}

/// Wakes the load balancers of a group that this reconcile concerns: those whose role has changed, and those whose ports it adds to
/// the Service.
pub fn wake(ctx: &Context, snapshot: &Snapshot<'_>) {
    let mut wakes = ctx.index.note_roles(snapshot.key, &snapshot.roles);
    let others = Others::of(snapshot);
    let added = others.secondaries.iter().filter(|it| !it.added.is_empty());
    wakes.extend(added.map(|part| Key::new(&snapshot.key.namespace, &*part.name)));
    for key in wakes {
        ctx.index.queues.lbs.add(key);
    }
}

/// Whether the load balancer of the group's name writes the Service in its own plan.
fn is_written_by_primary(snapshot: &Snapshot<'_>) -> bool {
    let name = &snapshot.key.name;
    let is_kept = |lb: &ObjectMeta| lb.name.as_deref() == Some(&**name);
    let mut parties = snapshot.parties();
    let takes_part = parties.any(|(party, ports)| is_kept(party.lb.meta()) && ports.is_some());
    takes_part && !matches!(snapshot.roles.get(&**name), None | Some(Role::NameTaken))
}

/// Keeps the record and the Service of those that share an address up to date, if no plan of a primary does: it is gone, its spec is
/// refused, or it is a later one of the name (SHR-5, SHR-6).
pub async fn keep_up(ctx: &Context, group: &Group) -> Result<Requeue, WriteError> {
    let snapshot = group.snapshot();
    if is_written_by_primary(&snapshot) {
        return Ok(Requeue::AwaitChange);
    }
    let Some(holder) = snapshot.holder() else {
        return Ok(Requeue::AwaitChange);
    };
    let to = spec::owner(holder);
    let key = snapshot.key;
    let Some(record) = snapshot.record else {
        return restore(ctx, key, &to).await;
    };
    let exists = ctx.index.stores.lbs.get(key).is_some();
    if record.spec.owner != to {
        hand_over(ctx, key, exists, record, &to, holder).await?;
    }
    let objects = Objects {
        key,
        service: group.service.as_deref(),
        slice: None,
    };
    let slice = (!exists)
        .then(|| ctx.index.stores.slices.get(key))
        .flatten();
    let objects = Objects {
        slice: slice.as_deref(),
        ..objects
    };
    let (others, members) = (Others::of(&snapshot), members(&snapshot));
    let address = record.spec.addr.to_string();
    let plan = plan::share::without_primary(&objects, &others, &members, &address, !exists);
    let none = LoadBalancer::default();
    apply::apply(ctx, &View::of(&none, objects), &plan).await?;
    if !exists {
        ctx.index.cleanup_complete(key);
    }
    Ok(Requeue::AwaitChange)
}

/// Writes the next owner into the record of a group (SHR-5). That the present one is gone, or has left, the store says; if only its
/// absence was observed, a live read confirms it (IPA-3 a).
async fn hand_over(
    ctx: &Context,
    key: &Key,
    exists: bool,
    record: &Record,
    to: &Owner,
    holder: &ObjectMeta,
) -> Result<(), WriteError> {
    if !exists
        && record.spec.group.is_none()
        && ctx.client.get_live::<LoadBalancer>(key).await?.is_some()
    {
        return Err(WriteError::Conflict(format!(
            "LoadBalancer {key} exists, the store was behind"
        )));
    }
    live::ensure_uid(ctx, to).await?;
    let Some(next) = ctx.index.hand_over(record.spec.addr, to)? else {
        return Err(WriteError::Conflict(format!(
            "the IPAllocation of {} has changed",
            record.spec.addr
        )));
    };
    records::hand_over(ctx, &next).await?;
    let _ = holder;
    Ok(())
}

/// Creates the record of a group's address again after it was deleted by hand (IPA-7).
async fn restore(ctx: &Context, key: &Key, to: &Owner) -> Result<Requeue, WriteError> {
    let pool = match ctx.index.stores.lbs.get(&cached::key(&to.id)).as_deref() {
        Some(Lb::Valid(lb)) => spec::request(lb).status.and_then(|it| it.pool),
        _ => None,
    };
    let restored = ctx
        .index
        .restore_shared(key, to, pool.as_deref(), clock::now())?;
    if let Some((spec, replaces)) = restored {
        live::ensure_uid(ctx, to).await?;
        // The event of the IPAllocation brings the group back.
        records::write(ctx, &spec, replaces).await?;
        return Ok(Requeue::AwaitChange);
    }
    Ok(Requeue::AwaitChange)
}
