//! A fake API server for reading.

use std::collections::BTreeMap;

use harvester_lb_fixtures::with;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::fake::{Answer, ReceivedRequest, failure};

/// Path of the operator's Lease.
pub(super) const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/harvester-load-balancer";

/// An API server for reading, page by page.
#[derive(Default)]
pub(super) struct ApiServer {
    /// The objects of a list, or the one object, by path.
    objects: Mutex<BTreeMap<String, Vec<Value>>>,
    /// Failures by path and a part of the query.
    failures: Mutex<Vec<(String, &'static str, Answer)>>,
    /// Paths and queries so far.
    pub(super) requests: Mutex<Vec<String>>,
    /// The changes of objects before the second read and later ones.
    pub(super) later: Mutex<Vec<(&'static str, Vec<Value>)>>,
    /// Verbs that the user may not use.
    pub(super) lacks: Mutex<Vec<&'static str>>,
}

impl ApiServer {
    pub(super) fn set(&self, path: &str, objects: Vec<Value>) {
        self.objects.lock().insert(path.to_owned(), objects);
    }

    pub(super) fn add(&self, path: &str, object: Value) {
        let mut objects = self.objects.lock();
        objects.entry(path.to_owned()).or_default().push(object);
    }

    /// From the next read of everything on.
    pub(super) fn then(&self, path: &'static str, objects: Vec<Value>) {
        self.later.lock().push((path, objects));
    }

    pub(super) fn fail(&self, path: &str, query: &'static str, answer: Answer) {
        let failures = &mut self.failures.lock();
        failures.push((path.to_owned(), query, answer));
    }

    pub(super) fn answer(&self, request: &ReceivedRequest) -> Answer {
        let ReceivedRequest {
            method,
            path,
            query,
            ..
        } = request;
        if path.ends_with("/selfsubjectaccessreviews") {
            let verb = &request.body["spec"]["resourceAttributes"]["verb"];
            let lacks = self.lacks.lock();
            let allowed = !lacks.iter().any(|it| verb == it);
            let status = json!({"status": {"allowed": allowed}});
            return (201, with(request.body.clone(), status));
        }
        assert_eq!(*method, Method::GET, "nothing is written");
        self.requests.lock().push(format!("{path}?{query}"));
        let mut failures = self.failures.lock();
        let failing = failures
            .iter()
            .position(|(at, part, _)| at == path && query.contains(part));
        if let Some(at) = failing {
            // A failure in the middle of a list happens once.
            let (_, part, answer) = failures[at].clone();
            if !part.is_empty() {
                failures.remove(at);
            }
            return answer;
        }
        if let Some(group_version) = path
            .strip_prefix("/apis/")
            .or_else(|| path.strip_prefix("/api/"))
            && group_version.split('/').count() <= 2
            && !group_version.ends_with('s')
        {
            return (200, served(group_version));
        }
        let objects = self.objects.lock();
        if path == LEASE || path.contains("/deployments/") {
            let object = objects.get(path).and_then(|all| all.first().cloned());
            return object.map_or_else(|| failure(404, "NotFound"), |object| (200, object));
        }
        let none = Vec::new();
        (200, page(objects.get(path).unwrap_or(&none), query))
    }
}

/// The resources of an API group version that the operator needs.
pub(super) fn served(group_version: &str) -> Value {
    let version = group_version.rsplit('/').next().unwrap_or_default();
    let group = group_version
        .strip_suffix(&format!("/{version}"))
        .unwrap_or_default();
    let needed = crate::permissions::REQUIRED
        .iter()
        .filter(|it| it.group == group);
    let resources: Vec<Value> = needed
        .map(|it| json!({"name": it.resource, "kind": "K", "namespaced": true, "singularName": "", "verbs": []}))
        .collect();
    json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources})
}

/// A page of a list.
fn page(objects: &[Value], query: &str) -> Value {
    let field = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse::<usize>().ok())
    };
    let (from, limit) = (
        field("continue").unwrap_or(0),
        field("limit").unwrap_or(usize::MAX),
    );
    let items: Vec<&Value> = objects.iter().skip(from).take(limit).collect();
    let next = from + items.len();
    let more = if next < objects.len() {
        next.to_string()
    } else {
        String::new()
    };
    json!({"metadata": {"resourceVersion": "7", "continue": more}, "items": items})
}
