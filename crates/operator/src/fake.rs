//! For tests: a context with a fake API server, which is a function.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use harvester_lb_controller_kit::events::Events;
use harvester_lb_controller_kit::lease::Leadership;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::{Fence, Writer};
use harvester_lb_core::dhcp::Mode;
use harvester_lb_object::Key;
use harvester_lb_prober::Prober;
use http::{Method, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::context::Context;
use crate::index::Index;
use crate::index::stores::Stores;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::timings::Timings;

/// A request as the API server receives it.
#[derive(Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Empty if there is none.
    pub(crate) query: String,
    /// Null if there is none.
    pub(crate) body: Value,
    /// Of the objects the metadata alone is asked for.
    pub(crate) of_metadata: bool,
}

/// Status code and body of a response.
pub(crate) type Answer = (u16, Value);

/// A failure response.
pub(crate) fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    });
    (code, status)
}

/// A client of an API server with these responses.
pub(crate) fn client<F>(answer: impl Fn(ReceivedRequest) -> F + Send + Sync + 'static) -> Client
where
    F: Future<Output = Answer> + Send + 'static,
{
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let accepts = head.headers.get(http::header::ACCEPT);
            let accepts = accepts.and_then(|it| it.to_str().ok());
            let (code, body) = answer(ReceivedRequest {
                method: head.method,
                path: head.uri.path().to_owned(),
                query: head
                    .uri
                    .query()
                    .unwrap_or_default()
                    .trim_start_matches('&')
                    .to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
                of_metadata: accepts.is_some_and(|it| it.contains("PartialObjectMetadata")),
            })
            .await;
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(body.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(answer?)
        }
    });
    Client::new(service, "default")
}

/// An API server that stores objects by path and records the requests.
#[derive(Clone, Default)]
pub(crate) struct FakeApiServer {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    writes: Arc<Mutex<Vec<(Method, String, Value)>>>,
    reads: Arc<Mutex<Vec<String>>>,
    events: Arc<Mutex<Vec<Value>>>,
    refused: Arc<Mutex<Vec<(Method, &'static str)>>>,
}

impl FakeApiServer {
    /// Stores an object at the path.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.objects.lock().insert(path.to_owned(), object);
    }

    /// Somebody deletes the object at the path.
    pub(crate) fn remove(&self, path: &str) {
        self.objects.lock().remove(path);
    }

    /// From now on answers requests of this method with 403 if their path contains this part.
    pub(crate) fn refuse(&self, method: Method, part: &'static str) {
        self.refused.lock().push((method, part));
    }

    /// Ends all refusals.
    pub(crate) fn admit(&self) {
        self.refused.lock().clear();
    }

    /// The object at the path.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().get(path).cloned()
    }

    /// The objects whose path is one part longer than this one.
    pub(crate) fn objects_below(&self, path: &str) -> Vec<(String, Value)> {
        let objects = self.objects.lock();
        let below = objects.iter().filter(|(at, _)| {
            let rest = at.strip_prefix(path).and_then(|at| at.strip_prefix('/'));
            rest.is_some_and(|name| !name.contains('/'))
        });
        below
            .map(|(at, object)| (at.clone(), object.clone()))
            .collect()
    }

    /// Takes the Events so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        std::mem::take(&mut *self.events.lock())
    }

    /// Takes the write requests so far, refused ones included, without Events: method, path, body.
    pub(crate) fn writes(&self) -> Vec<(Method, String, Value)> {
        std::mem::take(&mut *self.writes.lock())
    }

    /// Takes the paths of the live reads so far.
    pub(crate) fn reads(&self) -> Vec<String> {
        std::mem::take(&mut *self.reads.lock())
    }

    /// A client of this API server.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        client(move |request| std::future::ready(server.answer(request)))
    }

    /// The answer to a request.
    pub(crate) fn answer(&self, request: ReceivedRequest) -> Answer {
        let ReceivedRequest {
            method,
            path,
            body,
            of_metadata,
            ..
        } = request;
        if path.contains("/events") {
            self.events.lock().push(body.clone());
            return (201, body);
        }
        if method == Method::GET {
            self.reads.lock().push(path.clone());
        } else {
            let write = (method.clone(), path.clone(), body.clone());
            self.writes.lock().push(write);
        }
        let refused = self.refused.lock();
        if refused
            .iter()
            .any(|(m, part)| *m == method && path.contains(part))
        {
            return failure(403, "Forbidden");
        }
        let mut objects = self.objects.lock();
        if of_metadata && let Some(items) = listed(&objects, &path) {
            return (200, json!({"metadata": {}, "items": items}));
        }
        if method == Method::GET {
            let found = objects.get(&path).cloned();
            return found.map_or_else(|| failure(404, "NotFound"), |object| (200, object));
        }
        if method == Method::POST {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{path}/{name}");
            if objects.contains_key(&path) {
                return failure(409, "AlreadyExists");
            }
            let mut made = body;
            made["metadata"]["resourceVersion"] = "100".into();
            objects.insert(path, made.clone());
            return (201, made);
        }
        let Some(present) = objects.get(&path).cloned() else {
            return failure(404, "NotFound");
        };
        if !is_as_expected(&present, &body) {
            return failure(409, "Conflict");
        }
        let has_finalizers = present["metadata"]["finalizers"].is_array();
        if method == Method::DELETE && !has_finalizers {
            objects.remove(&path);
            return (200, present);
        }
        let mut changed = present;
        if method == Method::DELETE {
            if !changed["metadata"]["deletionTimestamp"].is_null() {
                return (200, changed);
            }
            changed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        } else if body.is_array() {
            let patch: json_patch::Patch = serde_json::from_value(body).unwrap();
            json_patch::patch(&mut changed, &patch).unwrap();
        } else {
            json_patch::merge(&mut changed, &body);
        }
        let version: u64 = changed["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        changed["metadata"]["resourceVersion"] = (version + 100).to_string().into();
        objects.insert(path, changed.clone());
        (200, changed)
    }
}

/// The objects of all namespaces of a kind, if this is the path of the kind.
fn listed(objects: &BTreeMap<String, Value>, path: &str) -> Option<Vec<Value>> {
    let parts: Vec<&str> = path.split('/').collect();
    let (group, plural) = match parts.as_slice() {
        ["", "api", version, plural] => (format!("/api/{version}/"), plural),
        ["", "apis", group, version, plural] => (format!("/apis/{group}/{version}/"), plural),
        _ => return None,
    };
    let is_of_kind = |at: &&String| {
        let above = at.rsplit_once('/').map_or("", |(above, _)| above);
        at.starts_with(&group) && above.rsplit('/').next() == Some(plural)
    };
    let keys = objects.keys().filter(is_of_kind);
    Some(keys.map(|at| objects[at].clone()).collect())
}

/// Whether an object is the one that a patch or a deletion is for: it has the uid and the resource version that the request names.
fn is_as_expected(present: &Value, body: &Value) -> bool {
    let replaced = |path: &str| {
        let mut operations = body.as_array()?.iter();
        let of_path = operations.find(|it| it["path"] == format!("/metadata/{path}"))?;
        of_path.get("value")
    };
    ["uid", "resourceVersion"].into_iter().all(|name| {
        let expected = replaced(name).or_else(|| {
            let of_deletion = body.get("preconditions").and_then(|it| it.get(name));
            of_deletion.or_else(|| body.get("metadata")?.get(name))
        });
        expected.is_none_or(|it| it.is_null() || *it == present["metadata"][name])
    })
}

/// Takes the load balancers that are queued.
pub(crate) fn due(index: &Index) -> Vec<Key> {
    let next = || index.queues.lbs.next().now_or_never().flatten();
    let due: Vec<Key> = std::iter::from_fn(next).collect();
    for key in &due {
        index.queues.lbs.done(key, &Ok(Requeue::AwaitChange));
    }
    due
}

/// A fence that is always open or always closed.
struct Fixed(bool);

impl Fence for Fixed {
    fn is_open(&self) -> bool {
        self.0
    }
}

/// A context without leader state that may always write, or never.
pub(crate) fn context(client: Client, timings: &Timings, may_write: bool) -> Context {
    let leadership = Arc::new(Leadership::default());
    first(client, timings).successor(Arc::new(Fixed(may_write)), leadership)
}

/// As [`context`], under this way to lease.
pub(crate) fn in_mode(client: Client, mode: Mode) -> Context {
    let settings = Settings {
        dhcp_mode: mode,
        ..Settings::default()
    };
    let leadership = Arc::new(Leadership::default());
    with_settings(client, &Timings::default(), settings)
        .successor(Arc::new(Fixed(true)), leadership)
}

/// The context of a first term: it may write while it holds the Lease. Its Events are sent.
pub(crate) fn first(client: Client, timings: &Timings) -> Context {
    with_settings(client, timings, Settings::default())
}

fn with_settings(client: Client, timings: &Timings, settings: Settings) -> Context {
    let leadership = Arc::new(Leadership::default());
    let (events, task) = Events::new(client.clone(), "test", String::new());
    tokio::spawn(task);
    let (prober, _) = Prober::start(
        harvester_lb_prober::Settings::for_file_limit(64),
        Arc::new(()),
    );
    let index = Index::new(Stores::default(), prober.clone(), settings, timings);
    Context::new(
        index,
        Writer::new(client, Arc::clone(&leadership) as _),
        events.under(Arc::clone(&leadership) as _),
        prober,
        Arc::new(Metrics::new().unwrap()),
        leadership,
        *timings,
    )
}
