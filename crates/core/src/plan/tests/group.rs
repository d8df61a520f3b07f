//! A model of several load balancers that share an address: the first is the primary, the others name it. What each of them is follows
//! from the objects at the API server, as in the operator.

use std::collections::BTreeSet;
use std::time::Duration;

use harvester_lb_api::keys;
use harvester_lb_fixtures as fixtures;
use harvester_lb_ipam::{Micros, Owner, Phase, Record, RecordSpec};
use harvester_lb_object::Version;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::world::{ADDRESS, World, address, lb_of};
use crate::cached::Lb;
use crate::desired::{self, Ownership};
use crate::plan::{Address, Goal, Next, Primary, Secondary, Sharing};
use crate::sharing::group::Role;
use crate::sharing::naming::{Observed, SETTLE};
use crate::sharing::service::{self, Others};
use crate::sharing::snapshot::{Party, Snapshot};
use crate::sharing::telling::Shared;
use crate::spec::{self, VmSpec};
use crate::status;

/// Several load balancers, and the state of this process.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The primary `a`, then those that name it.
    pub(super) parts: Vec<World>,
    names: Option<Observed>,
    now: Duration,
}

impl Group {
    /// The load balancers of these names with these specs.
    pub(super) fn new(specs: &[(&str, Value)]) -> Self {
        let part = |(name, spec): &(&str, Value)| {
            let mut lb = lb_of(name, spec);
            if *name != "a" {
                let annotations = lb.metadata.annotations.get_or_insert_default();
                annotations.insert(keys::ANNOTATION_PRIMARY.to_owned(), "a".to_owned());
            }
            World::new(lb)
        };
        Self {
            parts: specs.iter().map(part).collect(),
            names: None,
            now: Duration::ZERO,
        }
    }

    /// The objects of these kinds that are not the same. Ports and owners of the Service have the order in which they came.
    pub(super) fn differences(
        &self,
        other: &Self,
        is_compared: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let (own, theirs) = (self.objects(), other.objects());
        let differ = own
            .into_iter()
            .zip(theirs)
            .filter(|(own, theirs)| own != theirs);
        differ
            .flat_map(|(own, theirs)| {
                let kinds = ["lb", "service", "slice"].into_iter();
                let kinds = kinds.filter(|kind| is_compared(kind) && own[kind] != theirs[kind]);
                let tell = |kind| format!("{kind} {}\nand {}", own[kind], theirs[kind]);
                kinds.map(tell).collect::<Vec<_>>()
            })
            .collect()
    }

    fn objects(&self) -> Vec<Value> {
        let mut all: Vec<Value> = self.parts.iter().map(World::objects).collect();
        for place in [
            "/service/spec/ports",
            "/service/metadata/ownerReferences",
            "/slice/ports",
        ] {
            for object in &mut all {
                if let Some(Value::Array(list)) = object.pointer_mut(place) {
                    list.sort_by_key(Value::to_string);
                }
            }
        }
        all
    }

    /// As after a crash.
    pub(super) fn restart(&mut self) {
        self.names = None;
        for part in &mut self.parts {
            part.restart();
        }
    }

    /// kube-proxy has seen everything.
    pub(super) fn settle(&mut self) {
        self.now += SETTLE;
    }

    /// Walks one of them, see [`World::walk`]. `None`: it does not serve on the address now.
    pub(super) fn walk(&mut self, at: usize, budget: usize) -> Option<(Vec<String>, Option<Next>)> {
        let before = self.clone();
        let lbs = before.parts.iter().map(|part| Lb::valid(part.lb.clone()));
        let lbs: Vec<Lb> = lbs.collect();
        let parties = lbs.iter().zip(&before.parts).map(|(lb, part)| Party {
            lb,
            slice: part.slice.as_ref(),
            secondary: None,
            is_left_alone: false,
            names_others: false,
        });
        let key = before.parts[0].key();
        let service = before.own_service();
        let records = [record()];
        let snapshot = Snapshot::of(&key, parties.collect(), service, &records);
        let part = &before.parts[at];
        let vm = spec::check(&part.lb).unwrap().vm.unwrap();
        let role = snapshot.roles.get(&*part.key().name);
        if at == 0 {
            let shared = snapshot.secondaries().next().map(|_| Shared::Primary);
            let sharing = self.primary(&vm, &snapshot, role);
            let goal = Goal::Serve(Box::new(vm.clone()), with(shared));
            let walked = self.parts[0].walk_as(&goal, sharing, None, budget);
            if self.names.is_some() {
                self.observe(&vm);
            }
            return Some(walked);
        }
        let is_member = matches!(role, Some(Role::Member { .. }));
        if !is_member || before.hinders(&vm) {
            return None;
        }
        let sharing = Sharing::Secondary(Secondary {
            group: &key.name,
            service,
            holder: &records[0].spec.owner,
            is_name_taken: false,
            elsewhere: service::elsewhere(&snapshot, &part.key().name),
            refused: None,
        });
        let goal = Goal::Serve(Box::new(vm), with(Some(Shared::Secondary("a".to_owned()))));
        Some(self.parts[at].walk_as(&goal, sharing, service, budget))
    }

    /// The first write of a secondary whose group has this address now. `refused`: why the API server refuses its ports.
    pub(super) fn commit(&mut self, at: usize, ip: &str, refused: Option<&str>) -> Vec<String> {
        let service = self.own_service().cloned();
        let record = record();
        let sharing = Sharing::Secondary(Secondary {
            group: "a",
            service: service.as_ref(),
            holder: &record.spec.owner,
            is_name_taken: false,
            elsewhere: BTreeSet::new(),
            refused: refused.map(str::to_owned),
        });
        let part = &mut self.parts[at];
        let vm = spec::check(&part.lb).unwrap().vm.unwrap();
        let address = Address {
            shared: Some(Shared::Secondary("a".to_owned())),
            ..address(ip)
        };
        let goal = Goal::Serve(Box::new(vm), address);
        let (written, _) = part.walk_as(&goal, sharing, service.as_ref(), 1);
        written
    }

    fn primary(
        &mut self,
        vm: &VmSpec,
        snapshot: &Snapshot<'_>,
        role: Option<&Role>,
    ) -> Sharing<'static> {
        let names = self.observe(vm);
        Sharing::Primary(Box::new(Primary {
            others: Others::of(snapshot, false),
            members: Vec::new(),
            names,
            now: self.now,
            contested: match role {
                Some(Role::PortConflict(why)) => Some(why.clone()),
                _ => None,
            },
        }))
    }

    fn observe(&mut self, vm: &VmSpec) -> Observed {
        let primary = &self.parts[0];
        let service = primary.service.as_deref();
        let stored = service::stored_names("a", &vm.ports, service, primary.slice.as_ref());
        let observed = Observed::after(self.names.as_ref(), stored, self.now);
        self.names.insert(observed).clone()
    }

    /// Whether the primary gets none of its ports, according to its status.
    pub(super) fn is_primary_contested(&self) -> bool {
        let all = status::conditions(&self.parts[0].lb);
        all.iter()
            .any(|it| it.reason.as_deref() == Some(status::PORT_CONFLICT))
    }

    fn own_service(&self) -> Option<&Service> {
        let service = self.parts[0].service.as_deref()?;
        (desired::ownership(&service.metadata, "a") == Ownership::Ours).then_some(service)
    }

    /// Whether one with these ports has to wait although it may share the address.
    fn hinders(&self, vm: &VmSpec) -> bool {
        let Some(present) = self.parts[0].service.as_deref() else {
            return false;
        };
        desired::ownership(&present.metadata, "a") == Ownership::Foreign
            || service::has_name_of(present, &vm.ports)
    }
}

/// The address, with what the status says of its being shared.
fn with(shared: Option<Shared>) -> Address {
    Address {
        shared,
        ..address(ADDRESS)
    }
}

/// The record of the address: the primary's.
fn record() -> Record {
    let spec = RecordSpec {
        addr: ADDRESS.parse().unwrap(),
        pool: "p".into(),
        owner: Owner::new("n", "a", "u-a"),
        phase: Phase::Bound,
        bound_at: Micros(1),
        released_at: None,
        group: None,
    };
    Record {
        spec,
        version: Version(1),
    }
}

/// The Service of its own that one had before it named the primary.
pub(super) fn service_of(name: &str) -> Value {
    let service = fixtures::service(
        &fixtures::owned_by("n", name, &format!("u-{name}")),
        "10.0.0.7",
    );
    fixtures::stored(service, "u-own", 2)
}

/// A spec with these of the listeners below.
pub(super) fn spec_with(chosen: impl IntoIterator<Item = usize>) -> Value {
    let all = [
        fixtures::listener("http", "TCP", 80, 8080),
        fixtures::listener("https", "TCP", 443, 8443),
        fixtures::listener("dns", "UDP", 53, 5353),
        fixtures::listener("", "TCP", 25, 2525),
        fixtures::listener("443-tcp", "", 81, 8081),
        fixtures::listener("82-tcp", "TCP", 82, 8082),
    ];
    let listeners: Vec<Value> = chosen.into_iter().map(|at| all[at].clone()).collect();
    fixtures::with(fixtures::vm_spec("web"), json!({ "listeners": listeners }))
}

/// Number of listeners to choose from.
pub(super) const LISTENERS: usize = 6;
/// The one without a name.
pub(super) const UNNAMED: usize = 3;
/// The one with the name that [`ITS_NAMESAKE`] gets when it is shared.
pub(super) const MISNAMED: usize = 4;
/// See [`MISNAMED`].
pub(super) const ITS_NAMESAKE: usize = 1;
