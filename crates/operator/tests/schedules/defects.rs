//! Injected defects, which the oracle must find. An operator with one of them sends other requests, or does not see what it should.

use std::rc::Rc;

use harvester_lb_api::keys;
use harvester_lb_object::Key;
use serde_json::{Value, json};

use super::api::{Answer, By, Server};
use super::call::{Call, Verb};
use super::kind::Kind;
use super::leases;

/// An injected defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedDefect {
    /// Patches and deletions carry no resource version (IPA-5).
    NoVersions,
    /// An existing IPAllocation is overwritten (ALC-8).
    Overwrites,
    /// An object that a list lacks counts as deleted, and a live read returns 404 (IPA-3).
    Hasty,
    /// Changes of a kind update the store and queue nothing.
    Deaf(Kind),
    /// Writes of pool statuses are dropped and reported as done.
    Forgetful,
    /// Deletions of Services are dropped and reported as done (REL-3).
    Blind,
    /// Detail conditions are written as soon as they change.
    Hurried,
    /// A Service whose changed address kube-vip ignores is not recreated (REL-4).
    Patient,
    /// The lists of excluded addresses are not read (EXC-2).
    Generous,
    /// The requested addresses are not read (REQ-3).
    Headstrong,
    /// The address of a group is released instead of handed over to the next holder (SHR-5).
    Disowning,
    /// A patch of the ports of a Service has only the first one (SHR-4).
    Selfish,
    /// The port of a load balancer that joins a group gets the name of another one's (SHR-2).
    Usurping,
    /// The expiry of leases is not read (DHC-3).
    Timeless,
    /// A reconcile that failed is repeated after a minute.
    Sluggish,
}

impl InjectedDefect {
    pub(crate) const ALL: [Self; 20] = [
        Self::NoVersions,
        Self::Overwrites,
        Self::Hasty,
        Self::Deaf(Kind::Lb),
        Self::Deaf(Kind::Pool),
        Self::Deaf(Kind::Record),
        Self::Deaf(Kind::Service),
        Self::Deaf(Kind::Vmi),
        Self::Deaf(Kind::Node),
        Self::Forgetful,
        Self::Blind,
        Self::Hurried,
        Self::Patient,
        Self::Generous,
        Self::Headstrong,
        Self::Disowning,
        Self::Selfish,
        Self::Usurping,
        Self::Timeless,
        Self::Sluggish,
    ];

    /// The rule that it must be found to break, if not just any.
    pub(crate) const fn breaks(self) -> Option<&'static str> {
        match self {
            Self::Generous => Some("EXC-2"),
            Self::Headstrong => Some("REQ-3"),
            Self::Disowning => Some("SHR-5"),
            Self::Selfish => Some("SHR-4"),
            Self::Usurping => Some("SHR-2"),
            Self::Timeless => Some("DHC-3"),
            Self::Sluggish => Some("prompt"),
            _ => None,
        }
    }

    /// Hides from the operator what it does not read of an object.
    pub(crate) fn hides(self, kind: Kind, object: &mut Rc<Value>) {
        let annotation = match (self, kind) {
            (Self::Generous, Kind::Pool) => keys::ANNOTATION_EXCLUDE,
            (Self::Headstrong, Kind::Lb) => keys::ANNOTATION_REQUESTED_ADDRESS,
            (Self::Timeless, Kind::Record) if !object["spec"]["lease"]["expiresAt"].is_null() => {
                leases::make_endless(Rc::make_mut(object));
                return;
            }
            _ => return,
        };
        if object["metadata"]["annotations"][annotation].is_string() {
            let annotations = Rc::make_mut(object)["metadata"]["annotations"].as_object_mut();
            annotations.unwrap().remove(annotation);
        }
    }

    /// Answers a request as if the operator had sent what it sends with this defect.
    pub(crate) fn answers(self, server: &mut Server, call: &Call) -> Answer {
        let mut call = call.clone();
        match (self, call.kind, &mut call.verb) {
            (Self::NoVersions, _, Verb::Merge(patch)) => {
                patch["metadata"]["resourceVersion"] = Value::Null;
            }
            (Self::NoVersions, _, Verb::Delete(options)) => *options = json!({}),
            (Self::Overwrites, Kind::Record, Verb::Create(object))
                if server.get(Kind::Record, &call.key).is_some() =>
            {
                call.verb = Verb::Merge(json!({"spec": object["spec"]}));
            }
            (Self::Hasty, Kind::Lb, Verb::Get) => {
                return Answer::failure(404, "NotFound", "not found");
            }
            (Self::Blind, Kind::Service, Verb::Delete(_))
            | (Self::Forgetful, Kind::Pool, Verb::Json(_)) => call.verb = Verb::Get,
            (Self::Disowning, Kind::Record, Verb::Merge(patch)) => {
                let is_handed_over = |before: &Value| {
                    let owner = |object: &Value| object["spec"]["owner"]["name"].clone();
                    before["spec"]["phase"] == "Bound" && owner(before) != owner(patch)
                };
                let before = server.get(Kind::Record, &call.key);
                if before.is_some_and(|it| is_handed_over(it)) {
                    patch["spec"] = json!({"phase": "Released"});
                }
            }
            (Self::Selfish, Kind::Service, Verb::Merge(patch)) => {
                if let Some(ports) = patch["spec"]["ports"].as_array_mut() {
                    ports.truncate(1);
                }
            }
            (Self::Usurping, Kind::Slice, Verb::Create(object)) => {
                let of = &object["metadata"]["labels"][keys::LABEL_SERVICE_NAME];
                let of = of.as_str().unwrap_or_default();
                let service = server.get(Kind::Service, &Key::new(&call.key.namespace, of));
                let name = service.map(|it| it["spec"]["ports"][0]["name"].clone());
                if let Some(name) = name.filter(|_| of != &*call.key.name) {
                    object["ports"][0]["name"] = name;
                }
            }
            _ => {}
        }
        let mut answer = server.apply(&call, By::Operator);
        self.hides(call.kind, &mut answer.body);
        answer
    }
}
