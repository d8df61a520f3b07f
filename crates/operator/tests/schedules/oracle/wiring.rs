//! Services and EndpointSlices, as kube-proxy joins them: by the names of their ports.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use harvester_lb_api::keys;
use harvester_lb_object::Key;
use serde_json::Value;

use super::objects::Lb;
use crate::api::{By, Event};
use crate::call::Positions;
use crate::kind::Kind;

/// A port of a Service: protocol and number.
pub(super) type Port = (String, u64);

/// Services and EndpointSlices, as kube-proxy joins them.
#[derive(Default)]
pub(super) struct Wiring {
    pub(super) services: BTreeMap<Key, Rc<Value>>,
    slices: BTreeMap<Key, Rc<Value>>,
    /// How far the watches of the operator had got when it decided to write an EndpointSlice.
    pub(super) written: BTreeMap<Key, Positions>,
    /// Services that somebody else has changed, or an EndpointSlice of theirs; or a late request has.
    pub(super) tampered: BTreeSet<Key>,
}

impl Wiring {
    pub(super) fn note(&mut self, event: &Event) {
        let all = match event.kind {
            Kind::Service => &mut self.services,
            _ => &mut self.slices,
        };
        match &event.after {
            Some(object) => all.insert(event.key.clone(), Rc::clone(object)),
            None => all.remove(&event.key),
        };
        if event.kind == Kind::Slice {
            match decided(event) {
                Some(seen) => self.written.insert(event.key.clone(), seen),
                None => self.written.remove(&event.key),
            };
        }
        if matches!(event.by, By::User | By::Late) {
            self.tampered.extend(services_of(event));
        }
    }

    /// The load balancers for which a Service carries a port: those whose EndpointSlice has it under the name that it has there. What
    /// is left of one that is gone does not count.
    pub(super) fn carried(
        &self,
        service: &Key,
        lbs: &BTreeMap<Key, Lb>,
    ) -> BTreeMap<Port, BTreeSet<Key>> {
        let mut carried: BTreeMap<Port, BTreeSet<Key>> = BTreeMap::new();
        let ports = self.services.get(service).map(|it| &it["spec"]["ports"]);
        for port in ports.and_then(Value::as_array).into_iter().flatten() {
            let slices = self.slices.iter().filter(|(key, slice)| {
                key.namespace == service.namespace
                    && lbs.get(key).is_some_and(|lb| is_of(slice, lb))
                    && service_of(slice) == Some(&*service.name)
                    && names(slice).any(|name| *name == port["name"])
            });
            let slices = slices.map(|(key, _)| key.clone());
            carried.entry(number(port)).or_default().extend(slices);
        }
        carried
    }
}

/// How far the watches of the operator had got when it made the plan of which its write is a part; `None`: it is no write of whoever
/// leads.
pub(super) fn decided(event: &Event) -> Option<Positions> {
    let seen = event.seen.filter(|_| event.by == By::Operator);
    seen.map(|seen| seen.at_begin)
}

pub(super) fn number(port: &Value) -> Port {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    (protocol.to_owned(), port["port"].as_u64().unwrap())
}

pub(super) fn names(slice: &Value) -> impl Iterator<Item = &Value> {
    let ports = slice["ports"].as_array().into_iter().flatten();
    ports.map(|port| &port["name"])
}

/// Whether an EndpointSlice is that of a load balancer, not of an earlier one of its name.
pub(super) fn is_of(slice: &Value, lb: &Lb) -> bool {
    slice["metadata"]["ownerReferences"][0]["uid"] == *lb.uid
}

/// The name of the Service of an EndpointSlice.
pub(super) fn service_of(slice: &Value) -> Option<&str> {
    slice["metadata"]["labels"][keys::LABEL_SERVICE_NAME].as_str()
}

/// The Services that a change is about.
pub(super) fn services_of(event: &Event) -> BTreeSet<Key> {
    if event.kind == Kind::Service {
        return [event.key.clone()].into();
    }
    let both = [&event.before, &event.after].into_iter().flatten();
    let names = both.filter_map(|slice| service_of(slice));
    names
        .map(|name| Key::new(&event.key.namespace, name))
        .collect()
}
