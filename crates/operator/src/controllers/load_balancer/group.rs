//! Load balancers that share an address (SHR-1 to SHR-7): the stored objects of a group, and with whom a load balancer shares.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::LoadBalancer;
use harvester_lb_core::cached::{self, CachedService, Lb};
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::dhcp::Mode;
use harvester_lb_core::dhcp::claim::asks_for_lease;
use harvester_lb_core::plan::{Objects, Primary, Secondary, Sharing};
use harvester_lb_core::sharing::group::{self, Role};
use harvester_lb_core::sharing::naming;
use harvester_lb_core::sharing::refusals::Refusals;
use harvester_lb_core::sharing::service::{self, Others};
use harvester_lb_core::sharing::snapshot::{Party, Snapshot};
use harvester_lb_core::sharing::telling;
use harvester_lb_core::spec::{self, Checked, Refusal, VmSpec};
use harvester_lb_core::status;
use harvester_lb_core::validation::Violation;
use harvester_lb_ipam::{Phase, Record};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::context::Context;

/// The stored objects of a group.
pub struct Group {
    key: Key,
    parties: Vec<StoredParty>,
    /// EndpointSlices of the Service that are none of the parties'.
    left: Vec<Arc<EndpointSlice>>,
    offers: Vec<(String, String)>,
    service: Option<Arc<CachedService>>,
    records: Vec<Record>,
    refusals: Option<Arc<(Refusals, Duration)>>,
}

struct StoredParty {
    lb: Arc<Lb>,
    slice: Option<Arc<EndpointSlice>>,
    secondary: Option<Key>,
    is_left_alone: bool,
    names_others: bool,
}

impl Group {
    /// Takes them from the stores. `None` if nobody shares the address of this name, or asks for it, or has an EndpointSlice of its Service.
    pub fn of(ctx: &Context, key: &Key) -> Option<Self> {
        let members = ctx.index.group(key)?;
        let stores = &ctx.index.stores;
        let mut parties = Vec::new();
        let mut slices = members.slices;
        // Of a group with a record that tells nothing more.
        let names_others =
            |lb: &LoadBalancer| members.records.is_empty() && names_others(ctx, key, lb);
        for (lb_key, secondary) in members.parties {
            if let Some(lb) = stores.lbs.get(&lb_key) {
                slices.retain(|it| *it != lb_key);
                parties.push(StoredParty {
                    is_left_alone: ctx.index.stores.unsupported(lb.meta()).is_some(),
                    names_others: lb.as_valid().is_some_and(names_others),
                    slice: stores.slices.get(&lb_key),
                    secondary,
                    lb,
                });
            }
        }
        let left = slices.iter().filter_map(|it| stores.slices.get(it));
        Some(Self {
            key: key.clone(),
            parties,
            left: left.collect(),
            offers: members.offers,
            service: stores.services.get(key),
            records: members.records,
            refusals: members.refusals,
        })
    }

    /// The roles, and what follows from them.
    pub fn snapshot(&self) -> Snapshot<'_> {
        let parties = self.parties.iter().map(|party| Party {
            lb: &party.lb,
            slice: party.slice.as_deref(),
            secondary: party.secondary.as_ref().map(|key| &*key.name),
            is_left_alone: party.is_left_alone,
            names_others: party.names_others,
        });
        let mut snapshot = Snapshot::of(
            &self.key,
            parties.collect(),
            self.own_service(),
            &self.records,
        );
        snapshot.left = self.left.iter().map(|slice| &**slice).collect();
        snapshot.offers.clone_from(&self.offers);
        snapshot.refusals.clone_from(&self.refusals);
        snapshot
    }

    /// Whether somebody is to own the record of the address.
    pub fn has_holder(&self) -> bool {
        self.snapshot().holder().is_some()
    }

    /// The records that an earlier load balancer of the name has left besides that of the address, `main`, whoever they were handed over
    /// to. Not what the status of one of them names.
    pub fn left_records(&self, main: &Record) -> Vec<Record> {
        let mut parties = self.parties.iter().map(|party| &party.lb);
        let primary = parties.find(|lb| lb.meta().name.as_deref() == Some(&*self.key.name));
        let owner = primary.map(|lb| spec::owner(lb.meta()));
        let named: Vec<IpAddr> = self.lbs().filter_map(status::allocated_addr).collect();
        let is_left = |record: &&Record| {
            let it = &record.spec;
            it.addr != main.spec.addr
                && Some(&it.owner) != owner.as_ref()
                && !named.contains(&it.addr)
        };
        self.records.iter().filter(is_left).cloned().collect()
    }

    /// Those whose status says that they share the address: one for each address, since all have the same but amid a change.
    pub fn told(&self) -> Vec<&LoadBalancer> {
        let mut told: Vec<_> = self
            .lbs()
            .filter(|lb| telling::was_of(lb, &self.key.name))
            .collect();
        told.sort_by_key(|lb| status::allocated_addr(lb));
        told.dedup_by_key(|lb| status::allocated_addr(lb));
        told
    }

    /// Those of the parties that can be decoded.
    pub fn lbs(&self) -> impl Iterator<Item = &LoadBalancer> {
        self.parties.iter().filter_map(|party| party.lb.as_valid())
    }

    fn own_service(&self) -> Option<&Service> {
        let service = self.service.as_deref()?;
        // Of one that cannot be decoded the owners are known, which tell who shares the address.
        self.is_own(service).then_some(&**service)
    }

    /// Whether a Service of the group's name is that of the group: that of the load balancer of its name, or of others that name it. Of
    /// these alone, and without our label, it is a load balancer's all the same (SVC-1).
    pub fn is_own(&self, service: &CachedService) -> bool {
        let mut uids = self
            .parties
            .iter()
            .filter_map(|it| it.lb.meta().uid.as_deref());
        desired::ownership(&service.metadata, &self.key.name) == Ownership::Ours
            || uids.any(|uid| group::is_owner(Some(service), uid))
    }

    /// Whether somebody else has a Service of the group's name (SVC-1).
    pub fn is_name_taken(&self) -> bool {
        let service = self.service.as_deref();
        service.is_some_and(|service| !self.is_own(service))
    }

    /// Why a load balancer with these ports has to wait although it may share the address: somebody else has a Service of the name, or
    /// the Service has another port under one of its names. `is_holder`: it is to own the record of the address. Then it keeps that:
    /// nobody else has it, and it is served once the name is free.
    pub fn hindrance(&self, lb: &LoadBalancer, is_holder: bool) -> Option<(&'static str, String)> {
        let service = self.service.as_deref()?;
        let name = &self.key.name;
        let vm = spec::check(lb).ok()?.vm?;
        if self.is_name_taken() {
            return (!is_holder).then(|| (status::NAME_CONFLICT, telling::group_name_taken(name)));
        }
        // The ports of a primary that is gone go once this one has its first.
        (!is_holder && service::has_name_of(service, &vm.ports))
            .then(|| (status::WAITING_FOR_PRIMARY, telling::port_name_taken(name)))
    }
}

/// With whom a load balancer with these ports shares its address. `of`: the group whose address it is; its own key, unless it shares
/// that of another one. `None`: it is no longer a member of that group.
pub fn sharing<'a>(
    ctx: &Context,
    objects: &Objects<'_>,
    vm: &VmSpec,
    of: &Key,
    group: Option<(&Group, &'a Snapshot<'a>)>,
) -> Option<Sharing<'a>> {
    let snapshot = group.map(|(_, snapshot)| snapshot);
    let key = objects.key;
    if of != key {
        let (group, snapshot) = group?;
        let is_member = matches!(snapshot.roles.get(&*key.name), Some(Role::Member { .. }));
        let record = snapshot.record.filter(|_| is_member)?;
        return Some(Sharing::Secondary(Secondary {
            group: &snapshot.key.name,
            service: snapshot.service,
            holder: &record.spec.owner,
            is_name_taken: group.is_name_taken(),
            elsewhere: service::elsewhere(snapshot, &key.name),
            refused: snapshot.refusal(&key.name).map(Into::into),
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

/// The spec of one with an address of its own and a name that its Service cannot have (section 8.2): the API server would refuse the
/// Service, and the EndpointSlice with all that has changed in it. A Service that is shared has other names, also after the last one has
/// left; that of a leased address is not shared, and the DHCP process, which reads the spec alone, asks for no lease then (DHC-1).
///
/// # Errors
/// The name, if the Service is to have it.
pub fn with_names(
    ctx: &Context,
    lb: &LoadBalancer,
    objects: &Objects<'_>,
    checked: Checked,
    name: Violation,
) -> Result<Checked, Refusal> {
    if ctx.index.settings.dhcp_mode == Mode::Builtin && asks_for_lease(&lb.spec) {
        return Err(name.into());
    }
    let group = Group::of(ctx, objects.key);
    let is_primary = group.is_some_and(|it| it.snapshot().secondaries().next().is_some());
    let are_shared = |vm: &VmSpec| service::are_shared(&vm.ports, &names(objects, vm));
    if is_primary || checked.vm.as_ref().is_none_or(are_shared) {
        Ok(checked)
    } else {
        Err(name.into())
    }
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

/// Whether the address that the status of a load balancer names has the record of one outside of the group.
pub fn names_others(ctx: &Context, group: &Key, lb: &LoadBalancer) -> bool {
    let addr = status::allocated_addr(lb);
    let record = addr.and_then(|addr| ctx.index.record(addr));
    record.is_some_and(|it| {
        it.spec.phase == Phase::Bound && cached::key(&it.spec.address_of()) != *group
    })
}

/// The load balancers whose ports the Service carries besides the primary's.
pub fn members(snapshot: &Snapshot<'_>) -> Vec<Key> {
    let namespace = &snapshot.key.namespace;
    let all = snapshot.secondaries();
    all.map(|name| Key::new(namespace, name)).collect()
}
