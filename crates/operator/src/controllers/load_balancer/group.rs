//! Load balancers that share an address (SHR-1 to SHR-7): the stored objects of a group, and the standing of one load balancer in it.

use std::sync::Arc;

use harvester_lb_api::{Ipam, LoadBalancer, WorkloadType, keys};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, CachedService, Lb};
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::plan::{
    Address, Goal, Keep, Next, Objects, Primary, Secondary, Sharing, Waiting,
};
use harvester_lb_core::sharing::group::{self, Role};
use harvester_lb_core::sharing::index;
use harvester_lb_core::sharing::membership::fault_of;
use harvester_lb_core::sharing::naming;
use harvester_lb_core::sharing::service::{self, Others};
use harvester_lb_core::sharing::snapshot::{Party, Snapshot};
use harvester_lb_core::sharing::telling::{self, Shared};
use harvester_lb_core::spec::{self, Checked, VmSpec};
use harvester_lb_core::status::{self, Readiness};
use harvester_lb_ipam::{Record, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::context::Context;
use crate::controllers::load_balancer::allocate;

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
                    is_left_alone: ctx.index.stores.unsupported(lb.meta()).is_some(),
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

    /// The records that an earlier load balancer of the name has left besides that of the address, `main`. Not what the status of the
    /// present one names.
    pub fn left_records(&self, main: &Record) -> Vec<Record> {
        let mut parties = self.parties.iter().map(|party| &party.lb);
        let primary = parties.find(|lb| lb.meta().name.as_deref() == Some(&*self.key.name));
        let owner = primary.map(|lb| spec::owner(lb.meta()));
        let named = primary.and_then(|lb| addr::parse(status::allocated(lb.as_valid()?)?));
        let is_left = |record: &&Record| {
            let it = &record.spec;
            it.addr != main.spec.addr
                && it.owner.id == cached::id(&self.key)
                && Some(&it.owner) != owner.as_ref()
                && Some(it.addr) != named
        };
        self.records.iter().filter(is_left).cloned().collect()
    }

    fn own_service(&self) -> Option<&Service> {
        let service = self.service.as_deref()?;
        // Of one that cannot be decoded the owners are known, which tell who shares the address.
        self.is_own(service).then_some(&**service)
    }

    /// Whether a Service of the group's name is that of the group: that of the load balancer of its name, or of others that name it. Of
    /// these alone, and without our label, it is a load balancer's all the same (SVC-1).
    fn is_own(&self, service: &CachedService) -> bool {
        let mut uids = self
            .parties
            .iter()
            .filter_map(|it| it.lb.meta().uid.as_deref());
        desired::ownership(&service.metadata, &self.key.name) == Ownership::Ours
            || uids.any(|uid| group::is_owner(Some(service), uid))
    }

    /// Why a load balancer with these ports has to wait although it may share the address: somebody else has a Service of the name, or
    /// the Service has another port under one of its names.
    fn hindrance(&self, lb: &LoadBalancer) -> Option<(&'static str, String)> {
        let service = self.service.as_deref()?;
        let name = &self.key.name;
        let vm = spec::check(lb).ok()?.vm?;
        if !self.is_own(service) {
            let message = format!(
                "Service {name} exists and is not that of load balancer {name}, whose address this one asks for: rename that load balancer, or delete the Service"
            );
            return Some((status::NAME_CONFLICT, message));
        }
        service::has_name_of(service, &vm.ports).then(|| {
            let message = format!(
                "Service {name} has another port under the name that a port of this load balancer gets; if that stays, rename that listener of load balancer {name}"
            );
            (status::WAITING_FOR_PRIMARY, message)
        })
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
        Standing::Interrupted(reason, message) => {
            let readiness = Readiness::not(reason, message.clone());
            Ok(Goal::Keep(Keep::until(lb, readiness, Next::Resync)))
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
            let goal = allocate::goal(ctx, key, lb, checked, Some(shared)).await?;
            Ok(match goal {
                // Nothing is left of its own address, and it gets no other one.
                Goal::Wait(vm, waiting) => {
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
                goal => goal,
            })
        }
        Standing::Own(None) | Standing::Leaving(_) => {
            let group = Group::of(ctx, key);
            let snapshot = group.as_ref().map(Group::snapshot);
            let is_primary = |it: &Snapshot<'_>| it.secondaries().next().is_some();
            let snapshot = snapshot.filter(is_primary);
            let is_primary = snapshot.is_some();
            let own = |it: &&Record| it.spec.owner == spec::owner(&lb.metadata);
            let record = snapshot.and_then(|it| Some(it.record.filter(own)?.spec.addr));
            let shared = is_primary.then_some(Shared::Primary);
            let goal = allocate::goal(ctx, key, lb, checked, shared).await?;
            // Its address is that of others too: it stays until the load balancer can move (REL-4, SHR-5).
            Ok(match goal {
                Goal::Wait(_, waiting) if is_primary && ctx.index.holds_address(key) => {
                    let keep = Keep::until(lb, waiting.readiness, Next::Resync);
                    // The Service has it for them, so the status names it first (IPA-6).
                    let grant = record.and_then(|addr| ctx.index.grant_of(addr));
                    Goal::Keep(match grant {
                        Some(grant) => keep.naming(Address::granted(lb, grant, Vec::new())),
                        None => keep,
                    })
                }
                goal => goal,
            })
        }
    }
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
    if let (Some((named, asked)), None) = (asked, &refusal) {
        let snapshot = asked.snapshot();
        let role = snapshot.roles.get(&*key.name);
        ctx.index.saw_role(named, key, role);
        match (role, snapshot.record) {
            (Some(Role::Member { .. }), Some(_)) => match asked.hindrance(lb) {
                None => return Standing::Member(named.clone()),
                hindrance => refusal = hindrance,
            },
            (Some(Role::Member { .. }), None) => {
                let message = format!("load balancer {} has no address", named.name);
                // The record was deleted by hand. Without the Service too the address is gone: the primary has given it up just
                // when this one joined.
                let uid = lb.metadata.uid.as_deref().unwrap_or_default();
                let is_served = lb.spec.workload() == WorkloadType::Cluster
                    || group::is_owner(snapshot.service, uid);
                if telling::was_of_another(lb) && is_served {
                    return Standing::Interrupted(status::WAITING_FOR_PRIMARY, message);
                }
                refusal = Some((status::WAITING_FOR_PRIMARY, message));
            }
            (Some(role), _) => refusal = telling::refusal(role),
            // Its spec is refused.
            (None, _) => {}
        }
    }
    if let Some(role @ Role::NameTaken) = own_role
        && let Some((reason, message)) = telling::refusal(role)
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
fn named_by_slice(ctx: &Context, key: &Key) -> Option<Key> {
    let slice = ctx.index.stores.slices.get(key)?;
    let labels = slice.metadata.labels.as_ref()?;
    let of = labels.get(keys::LABEL_SERVICE_NAME)?;
    (*of != *key.name).then(|| Key::new(&key.namespace, &**of))
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
    let (names, now) = ctx.index.observe_names(key, &names);
    let contested = snapshot.and_then(|it| match it.roles.get(&*key.name) {
        Some(Role::PortConflict(why)) => Some(why.clone()),
        _ => None,
    });
    Some(Sharing::Primary(Box::new(Primary {
        others: snapshot.map(|it| Others::of(it, false)).unwrap_or_default(),
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
    ctx.index.observe_names(objects.key, &names(objects, vm));
}

/// The load balancers whose ports the Service carries besides the primary's.
pub fn members(snapshot: &Snapshot<'_>) -> Vec<Key> {
    let namespace = &snapshot.key.namespace;
    let all = snapshot.secondaries();
    all.map(|name| Key::new(namespace, name)).collect()
}
