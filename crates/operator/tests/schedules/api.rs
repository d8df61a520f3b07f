//! The API server of the simulation: objects as JSON in memory, with resource versions, preconditions, finalizers and
//! garbage collection. It implements only what the operator can observe.

use std::collections::BTreeMap;
use std::rc::Rc;

use harvester_lb_object::Key;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::call::{Call, Seen, Verb};
use super::kind::Kind;
use super::policy::Denied;

/// The resource version of an object.
pub(crate) fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.unwrap().parse().unwrap()
}

/// Who made a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The operator.
    Operator,
    /// The operator, by a late request: its sender had abandoned it or crashed.
    Late,
    /// A user.
    User,
    /// kube-vip, the garbage collector, other controllers that remove finalizers.
    Cluster,
}

/// A change of an object, as a watch reports it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) before: Option<Rc<Value>>,
    pub(crate) after: Option<Rc<Value>>,
    /// The last state of a deleted object, with the resource version of its deletion.
    pub(crate) last: Option<Rc<Value>>,
    pub(crate) by: By,
    /// If it was by the operator: how far its watches had got when it sent the request.
    pub(crate) seen: Option<Seen>,
}

/// An answer: status code and body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Rc<Value>,
}

impl Answer {
    pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        Self {
            code,
            body: Rc::new(body),
        }
    }

    fn object(code: u16, body: &Rc<Value>) -> Self {
        Self {
            code,
            body: Rc::clone(body),
        }
    }
}

/// Objects of each kind by namespace and name.
pub(crate) type Objects = [BTreeMap<Key, Rc<Value>>; 8];

/// What is stored.
pub(crate) struct Server {
    objects: Objects,
    pub(crate) revision: u64,
    /// Seconds since the epoch.
    pub(crate) clock: i64,
    uids: u64,
    /// Each Service gets a finalizer, as cloud controllers add one.
    pub(crate) service_finalizers: bool,
    /// A policy denies these Services, whatever is changed of them.
    pub(crate) denied: Option<Denied>,
    /// What has changed since it was taken last.
    pub(crate) events: Vec<Event>,
}

/// The ClusterIP of every Service.
pub(crate) const CLUSTER_IP: &str = "10.43.0.9";

/// The code by which a policy denies a write.
pub(crate) const DENIED: u16 = 422;

pub(crate) const FINALIZER: &str = "example.com/cleanup";

/// Whether the operator watches the object: EndpointSlices only with its label.
pub(crate) fn is_watched(kind: Kind, object: Option<&Rc<Value>>) -> bool {
    object.is_some_and(|object| {
        kind != Kind::Slice
            || object["metadata"]["labels"][harvester_lb_api::keys::LABEL_SERVICELB] == "true"
    })
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            objects: Default::default(),
            revision: 100,
            clock: 1_767_225_600,
            uids: 0,
            service_finalizers: false,
            denied: None,
            events: Vec::new(),
        }
    }

    pub(crate) fn all(&self, kind: Kind) -> &BTreeMap<Key, Rc<Value>> {
        &self.objects[kind as usize]
    }

    /// All objects as they are now.
    pub(crate) fn copy(&self) -> Objects {
        self.objects.clone()
    }

    pub(crate) fn get(&self, kind: Kind, key: &Key) -> Option<&Rc<Value>> {
        self.objects[kind as usize].get(key)
    }

    /// Does what a request asks for.
    pub(crate) fn apply(&mut self, call: &Call, by: By) -> Answer {
        let earlier = self.events.len();
        let answer = self.answer(call, by);
        for event in &mut self.events[earlier..] {
            event.seen = Some(call.seen);
        }
        answer
    }

    fn answer(&mut self, call: &Call, by: By) -> Answer {
        let Call {
            verb, kind, key, ..
        } = call;
        let (kind, present) = (*kind, self.get(call.kind, key).cloned());
        if matches!(verb, Verb::List) {
            let all = self.all(kind).values();
            let items: Vec<Value> = all
                .filter(|object| is_watched(kind, Some(object)))
                .map(|object| json!({"metadata": object["metadata"]}))
                .collect();
            return Answer::object(200, &Rc::new(json!({"metadata": {}, "items": items})));
        }
        if let Verb::Create(object) = verb {
            return match present {
                None if self.denies(kind, object) => Self::denial(),
                Some(_) => Answer::failure(409, "AlreadyExists", "already exists"),
                None => Answer::object(201, &self.create(kind, key, object.clone(), by)),
            };
        }
        let Some(present) = present else {
            return Answer::failure(404, "NotFound", "not found");
        };
        let version = present["metadata"]["resourceVersion"].clone();
        let conflict = || Answer::failure(409, "Conflict", "the object has been modified");
        let mut wanted = match verb {
            Verb::Get => return Answer::object(200, &present),
            Verb::Create(_) | Verb::List => unreachable!(),
            Verb::Delete(options) => {
                let asked = &options["preconditions"];
                let differs =
                    |field: &str, is: &Value| !asked[field].is_null() && asked[field] != *is;
                if differs("resourceVersion", &version)
                    || differs("uid", &present["metadata"]["uid"])
                {
                    return conflict();
                }
                self.delete(kind, key, by);
                let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
                return Answer::object(200, &Rc::new(done));
            }
            Verb::Merge(patch) => merged((*present).clone(), patch),
            Verb::Json(patch) => {
                let mut object = (*present).clone();
                let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
                if json_patch::patch(&mut object, &patch).is_err() {
                    return Answer::failure(422, "Invalid", "the patch does not fit");
                }
                object
            }
        };
        if !wanted["metadata"]["resourceVersion"].is_null()
            && wanted["metadata"]["resourceVersion"] != version
        {
            return conflict();
        }
        for field in [
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "resourceVersion",
        ] {
            match present["metadata"].get(field) {
                Some(value) => wanted["metadata"][field] = value.clone(),
                None => drop(wanted["metadata"].as_object_mut().unwrap().remove(field)),
            }
        }
        if self.denies(kind, &wanted) {
            return Self::denial();
        }
        Answer::object(200, &self.store(kind, key, wanted, by))
    }

    fn denies(&self, kind: Kind, object: &Value) -> bool {
        let is_denied = |denied: Denied| denied.is_of(&object["spec"]);
        kind == Kind::Service
            && object["metadata"]["deletionTimestamp"].is_null()
            && self.denied.is_some_and(is_denied)
    }

    fn denial() -> Answer {
        Answer::failure(DENIED, "Invalid", "a policy denies this")
    }

    /// Makes an object.
    pub(crate) fn create(&mut self, kind: Kind, key: &Key, mut object: Value, by: By) -> Rc<Value> {
        self.uids += 1;
        let (api_version, name) = kind.type_meta();
        object["apiVersion"] = api_version.into();
        object["kind"] = name.into();
        let created = Timestamp::from_second(self.clock).unwrap().to_string();
        let metadata = &mut object["metadata"];
        if metadata.is_null() {
            *metadata = json!({});
        }
        metadata["name"] = (*key.name).into();
        if !key.namespace.is_empty() {
            metadata["namespace"] = (*key.namespace).into();
        }
        metadata["uid"] = format!("00000000-0000-4000-8000-{:012x}", self.uids).into();
        metadata["creationTimestamp"] = created.into();
        if kind == Kind::Service {
            if self.service_finalizers {
                metadata["finalizers"] = json!([FINALIZER]);
            }
            object["spec"]["clusterIP"] = CLUSTER_IP.into();
            object["status"] = json!({"loadBalancer": {}});
        }
        self.store(kind, key, object, by)
    }

    /// Changes an object without a precondition.
    pub(crate) fn alter(
        &mut self,
        kind: Kind,
        key: &Key,
        by: By,
        f: impl FnOnce(&mut Value),
    ) -> bool {
        let Some(present) = self.get(kind, key) else {
            return false;
        };
        let mut object = (**present).clone();
        f(&mut object);
        let before = self.revision;
        self.store(kind, key, object, by);
        self.revision > before
    }

    /// Deletes an object, or marks it as to be deleted if it has finalizers.
    pub(crate) fn delete(&mut self, kind: Kind, key: &Key, by: By) -> bool {
        let Some(present) = self.get(kind, key).cloned() else {
            return false;
        };
        if present["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|f| !f.is_empty())
        {
            if present["metadata"]["deletionTimestamp"].is_null() {
                let mut object = (*present).clone();
                let now = Timestamp::from_second(self.clock).unwrap().to_string();
                object["metadata"]["deletionTimestamp"] = now.into();
                self.store(kind, key, object, by);
            }
            return true;
        }
        self.objects[kind as usize].remove(key);
        self.revision += 1;
        let mut last = (*present).clone();
        last["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.events.push(Event {
            kind,
            key: key.clone(),
            before: Some(present),
            after: None,
            last: Some(Rc::new(last)),
            by,
            seen: None,
        });
        true
    }

    fn store(&mut self, kind: Kind, key: &Key, mut object: Value, by: By) -> Rc<Value> {
        let before = self.get(kind, key).cloned();
        if before.as_deref() == Some(&object) {
            // A patch that changes nothing does not change the resource version.
            return Rc::new(object);
        }
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let metadata = &object["metadata"];
        let finalized = !metadata["deletionTimestamp"].is_null()
            && metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
        let object = Rc::new(object);
        if finalized {
            self.objects[kind as usize].remove(key);
        } else {
            self.objects[kind as usize].insert(key.clone(), Rc::clone(&object));
        }
        self.events.push(Event {
            kind,
            key: key.clone(),
            before,
            after: (!finalized).then(|| Rc::clone(&object)),
            last: finalized.then(|| Rc::clone(&object)),
            by,
            seen: None,
        });
        object
    }

    /// Services and EndpointSlices whose owners are all deleted.
    pub(crate) fn garbage(&self) -> Vec<(Kind, Key)> {
        let mut garbage = Vec::new();
        for kind in [Kind::Service, Kind::Slice] {
            for (key, object) in self.all(kind) {
                let Some(owners) = object["metadata"]["ownerReferences"].as_array() else {
                    continue;
                };
                let lives = |owner: &Value| {
                    let name = Key::new(&key.namespace, owner["name"].as_str().unwrap_or_default());
                    self.get(Kind::Lb, &name)
                        .is_some_and(|lb| lb["metadata"]["uid"] == owner["uid"])
                };
                if object["metadata"]["deletionTimestamp"].is_null()
                    && !owners.is_empty()
                    && !owners.iter().any(lives)
                {
                    garbage.push((kind, key.clone()));
                }
            }
        }
        garbage
    }

    /// Objects whose deletion waits for a finalizer.
    pub(crate) fn held_up(&self) -> Vec<(Kind, Key)> {
        let mut held_up = Vec::new();
        for kind in [Kind::Service, Kind::Lb] {
            for (key, object) in self.all(kind) {
                if !object["metadata"]["deletionTimestamp"].is_null() {
                    held_up.push((kind, key.clone()));
                }
            }
        }
        held_up
    }
}

/// RFC 7386.
fn merged(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut target = match target {
        Value::Object(target) => target,
        _ => Map::new(),
    };
    for (field, change) in patch {
        if change.is_null() {
            target.remove(field);
        } else {
            let present = target.remove(field).unwrap_or(Value::Null);
            target.insert(field.clone(), merged(present, change));
        }
    }
    Value::Object(target)
}
