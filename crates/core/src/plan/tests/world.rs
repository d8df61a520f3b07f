//! A model of the API server for one load balancer, to which steps are applied. What the executor adds to them (guards, failures)
//! is tested with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::LoadBalancer;
use harvester_lb_fixtures as fixtures;
use harvester_lb_ipam::Standing;
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::backends::DiscoveredBackends;
use crate::cached::{self, CachedService, Vmi, VmiState};
use crate::desired;
use crate::plan::step::Probes;
use crate::plan::{
    Address, Applied, Checks, Goal, Guarded, Next, Objects, Plan, ServiceOf, Sharing, Step, View,
    Waiting, Write, plan,
};
use crate::spec;
use crate::status::{self, Readiness, StatusUpdate, StatusWrite};

const NOW: &str = "2026-01-01T00:00:00Z";
/// The pool's address of the load balancer.
pub(super) const ADDRESS: &str = "10.0.0.2";

pub(super) fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) fn key() -> Key {
    Key::new("n", "a")
}

/// A load balancer of VM type with this spec, which has not been reconciled yet.
pub(super) fn lb(spec: &Value) -> LoadBalancer {
    lb_of("a", spec)
}

/// The same under this name.
pub(super) fn lb_of(name: &str, spec: &Value) -> LoadBalancer {
    let uid = format!("u-{name}");
    let lb = fixtures::load_balancer("n", name, &uid, spec);
    object(fixtures::stored(lb, &uid, 1))
}

/// Its Service, with an ingress address if there is one.
pub(super) fn service(asks: &str, shows: Option<&str>) -> CachedService {
    let mut service = fixtures::service(&fixtures::owned_by("n", "a", "u-a"), asks);
    if let Some(shows) = shows {
        service["status"] = fixtures::announced(shows);
    }
    let service = object(fixtures::stored(service, "u-service", 2));
    cached::service(Ok(service)).unwrap()
}

/// A Service of another owner.
pub(super) fn foreign_service() -> CachedService {
    let service =
        json!({"metadata": {"namespace": "n", "name": "a"}, "spec": {"type": "ClusterIP"}});
    let service = object(fixtures::stored(service, "u-foreign", 2));
    cached::service(Ok(service)).unwrap()
}

/// Its EndpointSlice with these ready endpoints: name and address.
pub(super) fn slice(endpoints: &[(&str, &str)]) -> EndpointSlice {
    let endpoint = |(name, address): &(&str, &str)| {
        fixtures::endpoint(address, "n", name, &format!("u-{name}"))
    };
    let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
    let slice = fixtures::endpoint_slice(&fixtures::owned_by("n", "a", "u-a"), &endpoints);
    object(fixtures::stored(slice, "u-slice", 3))
}

/// A virtual machine that every load balancer here selects.
pub(super) fn machine(name: &str, address: &str, state: VmiState) -> (String, Arc<Vmi>) {
    let vmi = Vmi {
        uid: format!("u-{name}"),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        deleting: false,
        address: Some(address.parse().unwrap()),
        state,
        finalizers_to_keep: None,
    };
    (name.to_owned(), Arc::new(vmi))
}

/// The goal of a load balancer that has [`ADDRESS`].
pub(super) fn serve(lb: &LoadBalancer) -> Goal {
    let vm = spec::check(lb).unwrap().vm.unwrap();
    Goal::Serve(Box::new(vm), address(ADDRESS))
}

pub(super) fn address(ip: &str) -> Address {
    let allocated = json!({
        "ip": ip, "ipPool": "p", "mask": "255.255.255.0", "gateway": "10.0.0.1",
    });
    Address {
        allocated: object(allocated),
        load_balancer_ip: ip.to_owned(),
        extra_records: Vec::new(),
        address_conflict: None,
        standing: Standing::InPool,
        unserved: None,
        shared: None,
        origin: crate::plan::Origin::Pool,
    }
}

/// The goal of a load balancer that gets no address.
pub(super) fn wait(lb: &LoadBalancer) -> Goal {
    let vm = spec::check(lb).ok().and_then(|checked| checked.vm);
    let waiting = Waiting {
        readiness: Readiness::not("NoAvailableIP", "no pool has an address"),
        address_conflict: None,
        extra_records: Vec::new(),
        pool: None,
        lease: None,
        is_name_taken: false,
    };
    Goal::Wait(vm.map(Box::new), waiting)
}

/// The objects at the API server, and the state of this process.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) lb: LoadBalancer,
    pub(super) service: Option<CachedService>,
    pub(super) slice: Option<EndpointSlice>,
    pub(super) machines: BTreeMap<String, Arc<Vmi>>,
    pub(super) checks: Checks,
    pub(super) has_foreign_slice: bool,
    pub(super) verdict_pause: Duration,
    /// The newest resource version.
    version: u64,
}

impl World {
    pub(super) fn new(lb: LoadBalancer) -> Self {
        Self {
            lb,
            service: None,
            slice: None,
            machines: BTreeMap::new(),
            checks: Checks::default(),
            has_foreign_slice: false,
            verdict_pause: Duration::ZERO,
            version: 10,
        }
    }

    pub(super) fn key(&self) -> Key {
        Key::new("n", self.lb.metadata.name.as_deref().unwrap())
    }

    /// The objects as they are compared: without resource versions.
    pub(super) fn objects(&self) -> Value {
        let mut all = json!({
            "lb": self.lb, "service": self.service.as_deref(), "slice": self.slice,
        });
        for object in ["lb", "service", "slice"] {
            if let Some(meta) = all[object]["metadata"].as_object_mut() {
                meta.remove("resourceVersion");
            }
        }
        all
    }

    /// As after a crash: the next process knows no verdicts.
    pub(super) fn restart(&mut self) {
        self.checks = Checks::default();
    }

    pub(super) fn view<'a>(&'a self, key: &'a Key, goal: &Goal) -> View<'a> {
        let mut found = DiscoveredBackends::default();
        match goal {
            Goal::Serve(vm, _) => {
                for (name, vmi) in &self.machines {
                    found.add_if_selected(&vm.selector, &Key::new("n", name), vmi);
                }
            }
            Goal::Keep(_) => {
                for endpoint in self.slice.iter().flat_map(desired::backends) {
                    let vmi = self.machines.get(&*endpoint.name);
                    found.retain_endpoint(endpoint, vmi.map(|vmi| &**vmi));
                }
            }
            Goal::AddressOnly(_) | Goal::Wait(..) => {}
        }
        let objects = Objects {
            key,
            service: self.service.as_ref(),
            slice: self.slice.as_ref(),
        };
        View {
            has_foreign_slice: self.has_foreign_slice,
            found,
            checks: self.checks.clone(),
            verdict_pause: self.verdict_pause,
            ..View::of(&self.lb, objects)
        }
    }

    /// Plans the way to a goal and applies at most `budget` writes of it, the status at its end included. Returns what was
    /// written, and the requeue if the plan was applied to its end.
    pub(super) fn walk(&mut self, goal: &Goal, budget: usize) -> (Vec<String>, Option<Next>) {
        self.walk_as(goal, Sharing::Alone, None, budget)
    }

    /// As [`World::walk`], of one that shares an address. `shared`: the Service of a secondary's group.
    pub(super) fn walk_as(
        &mut self,
        goal: &Goal,
        sharing: Sharing<'_>,
        shared: Option<&Service>,
        budget: usize,
    ) -> (Vec<String>, Option<Next>) {
        let key = self.key();
        let before = self.clone();
        let view = View {
            sharing,
            ..before.view(&key, goal)
        };
        let plan = plan(&view, goal);
        let mut written = Vec::new();
        for Guarded { step, .. } in &plan.steps {
            if let Step::HealthChecks(probes) = step {
                self.probe(probes);
                continue;
            }
            if written.len() == budget {
                return (written, None);
            }
            if let Some(text) = self.apply(step) {
                written.push(text);
            }
        }
        if written.len() == budget {
            return (written, None);
        }
        let next = self.conclude(plan, &view, shared, &mut written);
        (written, Some(next))
    }

    fn conclude(
        &mut self,
        plan: Plan<'_>,
        view: &View<'_>,
        shared: Option<&Service>,
        written: &mut Vec<String>,
    ) -> Next {
        let (lb, service) = (self.lb.clone(), self.service.clone());
        let view = View {
            lb: &lb,
            ..view.clone()
        };
        let slice = self.slice.clone();
        let applied = Applied {
            slice: slice.as_ref(),
            service: match plan.service {
                ServiceOf::Group => shared,
                ServiceOf::Own | ServiceOf::None => service.as_deref(),
            },
            ..Applied::default()
        };
        let conclusion = plan.conclude(&view, &applied);
        if let Some(update) = &conclusion.status
            && self.write_status(update)
        {
            written.push("write status".to_owned());
        }
        conclusion.next
    }

    fn probe(&mut self, probes: &Probes) {
        self.checks = std::mem::take(&mut self.checks).after(probes);
    }

    /// Applies a write. `None`: there was nothing to write.
    fn apply(&mut self, step: &Step) -> Option<String> {
        let version = self.next_version();
        match step {
            Step::HealthChecks(_) => return None,
            Step::Commit(update) => {
                return self.write_status(update).then(|| step.to_string());
            }
            Step::Slice(write) => {
                self.slice = written(self.slice.as_ref(), write, version);
            }
            Step::Service(write) => {
                let present = self.service.as_deref();
                let service: Option<Service> = written(present, write, version);
                self.service = service.and_then(|service| cached::service(Ok(service)));
            }
        }
        Some(step.to_string())
    }

    fn write_status(&mut self, update: &StatusUpdate) -> bool {
        match status::decide(&self.lb, update, NOW) {
            StatusWrite::None => false,
            StatusWrite::Now(lb) | StatusWrite::Paced(lb) => {
                self.lb = *lb;
                self.lb.metadata.resource_version = Some(self.next_version().to_string());
                true
            }
        }
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

/// The object after a write. As the API server does, it refuses what was decided from another copy.
fn written<K>(present: Option<&K>, write: &Write<K>, version: u64) -> Option<K>
where
    K: Clone + Serialize + DeserializeOwned,
{
    let copy = |object: &K| -> Value { serde_json::to_value(object).unwrap() };
    let is_present = |from: &ObjectMeta| {
        let stored = &copy(present.expect("there is such an object"))["metadata"];
        assert_eq!(
            stored["resourceVersion"].as_str(),
            from.resource_version.as_deref()
        );
    };
    let mut object = match write {
        Write::Create(object) => {
            assert!(present.is_none(), "exists already");
            let mut object = copy(object);
            assert_eq!(object["metadata"].get("resourceVersion"), None);
            assert_eq!(object["metadata"].get("uid"), None);
            object["metadata"]["uid"] = "u-new".into();
            object
        }
        Write::Patch(from, patch) => {
            is_present(from);
            let mut object = copy(present?);
            json_patch::merge(&mut object, patch);
            object
        }
        Write::Delete(from) => {
            is_present(from);
            return None;
        }
    };
    object["metadata"]["resourceVersion"] = version.to_string().into();
    Some(self::object(object))
}

/// The spec of VM type that selects every [`machine`], with a health check if asked for.
pub(super) fn spec_of(is_checked: bool) -> Value {
    let spec = fixtures::vm_spec("web");
    if is_checked {
        fixtures::with(spec, json!({"healthCheck": fixtures::quick_check()}))
    } else {
        spec
    }
}

/// The name as it is shared.
pub(super) fn name(text: &str) -> Arc<str> {
    Arc::from(text)
}
