//! Shared addresses: two sound load balancers in the namespace of the hostile ones, which share an address, and what becomes of a
//! hostile one that names them, another hostile one, or itself (SHR-1, SHR-2).

use std::collections::BTreeMap;

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{API_VERSION, LoadBalancer, keys};
use harvester_lb_core::cached::Lb;
use harvester_lb_core::sharing::group::Role;
use harvester_lb_core::sharing::index::{Index, named_group};
use harvester_lb_core::sharing::membership::fault_of;
use harvester_lb_core::sharing::snapshot::{Party, Snapshot};
use harvester_lb_core::sharing::telling::{self, Shared};
use harvester_lb_core::spec_annotations::shown;
use harvester_lb_core::status::{Readiness, StatusUpdate, allocated_addr};
use harvester_lb_fixtures::{listener, load_balancer, owned_by, stored, vm_spec, with};
use harvester_lb_ipam::Record;
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::scene::{LOUD, bound, object};

/// The address that the sound ones share.
const SHARED: &str = "10.66.0.2";
/// The sound ones, the primary first, and the ports that the Service carries for them. Hostile ones ask for that of the secondary, and are
/// older.
const SOUND: [(&str, &str, i64); 2] = [("a", "TCP", 443), ("b", "UDP", 53)];

/// All load balancers of the namespace, and the objects of the sound ones.
pub(crate) struct Groups {
    index: Index,
    lbs: BTreeMap<Key, Lb>,
    slices: BTreeMap<Key, EndpointSlice>,
    service: Service,
    records: [Record; 1],
}

impl Groups {
    pub(crate) fn new() -> Self {
        let [(primary, ..), _] = SOUND;
        let owners = SOUND.map(|(name, ..)| json!({"apiVersion": API_VERSION, "kind": "LoadBalancer", "name": name, "uid": uid(name)}));
        let ports = SOUND.map(
            |(name, protocol, port)| json!({"name": name, "protocol": protocol, "port": port}),
        );
        let service = object(json!({
            "metadata": with(owned_by(LOUD, primary, &uid(primary)), json!({"ownerReferences": owners})),
            "spec": {"type": "LoadBalancer", "loadBalancerIP": SHARED, "ports": ports},
        }));
        let mut groups = Self {
            index: Index::default(),
            lbs: BTreeMap::new(),
            slices: BTreeMap::new(),
            service,
            records: [bound(SHARED, "loud", LOUD, primary, &uid(primary))],
        };
        groups
            .index
            .set_service(&Key::new(LOUD, primary), Some(&groups.service));
        for (name, protocol, port) in SOUND {
            let key = Key::new(LOUD, name);
            groups.slices.insert(key.clone(), slice(name));
            groups.set(
                &key,
                Lb::valid(sound(name, &listener("", protocol, port, 8080))),
            );
        }
        groups
    }

    /// Replaces a load balancer. Returns it, and its role in the group that it names, if it names one.
    pub(crate) fn set(&mut self, key: &Key, lb: Lb) -> (&Lb, Option<Role>) {
        self.index.set_lb(key, Some(&lb));
        self.lbs.insert(key.clone(), lb);
        // Also as the primary of those that name it.
        self.roles(key);
        let group = named_group(key, self.lbs[key].meta());
        let role = group.and_then(|group| self.roles(&group).remove(&*key.name));
        self.nobody_is_harmed();
        (&self.lbs[key], role)
    }

    /// The roles in a group.
    fn roles(&self, group: &Key) -> BTreeMap<String, Role> {
        let shared = Key::new(LOUD, SOUND[0].0);
        let is_theirs = *group == shared;
        let naming = self.index.naming(group).filter(|key| *key != group);
        let keys = [group].into_iter().chain(naming);
        let addrs = |lb: &Lb| lb.as_valid().and_then(allocated_addr);
        let parties = keys.filter_map(|key| {
            let lb = self.lbs.get(key)?;
            let addrs: Vec<_> = addrs(lb).into_iter().collect();
            Some(Party {
                lb,
                slice: self.slices.get(key),
                secondary: self.index.secondary_of(key, &addrs).map(|key| &*key.name),
                is_left_alone: false,
                names_others: false,
            })
        });
        let (service, records) = if is_theirs {
            (Some(&self.service), &self.records[..])
        } else {
            (None, &[][..])
        };
        Snapshot::of(group, parties.collect(), service, records).roles
    }

    /// Checks that the sound ones go on to serve on their address.
    fn nobody_is_harmed(&self) {
        let [(primary, ..), (secondary, ..)] = SOUND;
        if self.lbs.len() < SOUND.len() {
            return;
        }
        let roles = self.roles(&Key::new(LOUD, primary));
        for (name, is_holder) in [(primary, true), (secondary, false)] {
            assert_eq!(roles.get(name), Some(&Role::Member { is_holder }), "{name}");
        }
    }
}

/// What is told of one that does not share the address that it asks for, and serves on one of its own meanwhile (SHR-7). The message
/// names the annotation with its value, and the holder of its port.
pub(crate) fn refusal(lb: &LoadBalancer, role: Option<&Role>) -> Option<StatusUpdate> {
    let group = annotation(&lb.metadata, keys::ANNOTATION_PRIMARY).unwrap_or_default();
    let (reason, message) = match fault_of(lb) {
        Some(why) => (why.reason(), why.to_string()),
        None => telling::refusal(group, role?)?,
    };
    let named = format!("{} is {:?}", keys::ANNOTATION_PRIMARY, shown(group));
    assert!(message.contains(&named), "{message}");
    if let Some(Role::PortConflict(contested)) = role {
        assert!(message.contains(&contested.holder), "{message}");
    }
    let meanwhile = Shared::Refused(reason, message.clone()).condition(SHARED);
    Some(StatusUpdate {
        extras: vec![meanwhile],
        ..StatusUpdate::only(Readiness::not(reason, message))
    })
}

fn uid(name: &str) -> String {
    format!("u-{name}")
}

fn sound(name: &str, listener: &Value) -> LoadBalancer {
    let spec = with(vm_spec("web"), json!({"listeners": [listener]}));
    let mut lb = stored(load_balancer(LOUD, name, &uid(name), &spec), &uid(name), 5);
    lb["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    let mut conditions = Value::Null;
    if name != SOUND[0].0 {
        lb["metadata"]["annotations"] = json!({keys::ANNOTATION_PRIMARY: SOUND[0].0});
        conditions = json!([{"type": "AddressShared", "status": "True", "reason": "Secondary"}]);
    }
    lb["status"] =
        json!({"allocatedAddress": {"ip": SHARED, "ipPool": "loud"}, "conditions": conditions});
    object(lb)
}

fn slice(name: &str) -> EndpointSlice {
    let mut metadata = owned_by(LOUD, name, &uid(name));
    metadata["labels"][keys::LABEL_SERVICE_NAME] = json!(SOUND[0].0);
    object(
        json!({"metadata": metadata, "addressType": "IPv4", "endpoints": [], "ports": [{"name": name}]}),
    )
}
