//! One user's requests in the API server's audit log.

use jiff::Timestamp;
use serde_json::Value;

use crate::world::World;

/// A request that was answered, or a watch that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The Kubernetes verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, ...
    pub verb: String,
    /// API group; empty for the core group, and for non-resource requests.
    pub group: String,
    /// Plural name of the resource; empty for non-resource requests.
    pub resource: String,
    /// The part of the object that it is about, `scale` or `status`; empty: the object.
    pub subresource: String,
    /// Namespace; empty if there is none.
    pub namespace: String,
    /// Name of the object; empty if there is none.
    pub name: String,
    /// HTTP status.
    pub code: i64,
    /// When the API server received it, to the microsecond.
    pub received: Timestamp,
    /// When the API server had answered it, to the microsecond.
    pub answered: Timestamp,
}

impl Request {
    fn read(event: &Value) -> Self {
        let text = |pointer: &str| {
            let value = event.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let time = |field: &str| {
            let time = event[field].as_str().and_then(|text| text.parse().ok());
            time.unwrap_or_default()
        };
        let code = event.pointer("/responseStatus/code");
        Self {
            verb: text("/verb"),
            group: text("/objectRef/apiGroup"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            code: code.and_then(Value::as_i64).unwrap_or(0),
            received: time("requestReceivedTimestamp"),
            answered: time("stageTimestamp"),
        }
    }

    /// Whether it was meant to change something. A SelfSubjectAccessReview is created too, but changes nothing.
    pub fn writes(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&&*self.verb)
            && self.group != "authorization.k8s.io"
    }
}

/// All requests of a user, in order. The world's test cluster must have an audit log.
pub fn of(world: &World, user: &str) -> anyhow::Result<Vec<Request>> {
    read(world, user, |event| event["user"]["username"] == user)
}

/// All requests that concern a resource, by its plural name, in order. The world's test cluster must have an audit log.
pub fn about(world: &World, resource: &str) -> anyhow::Result<Vec<Request>> {
    read(world, resource, |event| {
        event["objectRef"]["resource"] == resource
    })
}

/// The requests whose event contains the text and is wanted.
fn read(
    world: &World,
    text: &str,
    wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<Vec<Request>> {
    let log = std::fs::read_to_string(world.cluster.audit())?;
    Ok(log
        .lines()
        // Parsing each line as JSON takes its time.
        .filter(|line| line.contains(text))
        // The last line may be incomplete.
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(wanted)
        .map(|event| Request::read(&event))
        .collect())
}
