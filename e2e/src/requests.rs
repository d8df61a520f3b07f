//! What the API server's audit log says of one user's requests.

use serde_json::Value;

use crate::world::World;

/// A request that was answered, or a watch that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// As Kubernetes names it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, ...
    pub verb: String,
    /// API group; empty for the core group, and for what is no resource.
    pub group: String,
    /// Plural name of the kind; empty for what is no resource.
    pub resource: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Empty for what has none.
    pub name: String,
    /// HTTP status.
    pub code: i64,
}

impl Request {
    fn read(event: &Value) -> Self {
        let text = |pointer: &str| {
            let value = event.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let code = event.pointer("/responseStatus/code");
        Self {
            verb: text("/verb"),
            group: text("/objectRef/apiGroup"),
            resource: text("/objectRef/resource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            code: code.and_then(Value::as_i64).unwrap_or(0),
        }
    }

    /// Whether it was to change something. Questions about one's own rights are created too, and change nothing.
    pub fn writes(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&&*self.verb)
            && self.group != "authorization.k8s.io"
    }
}

/// All requests of a user, in order. The world's bed must have an audit log.
pub fn of(world: &World, user: &str) -> anyhow::Result<Vec<Request>> {
    let log = std::fs::read_to_string(world.cluster.audit())?;
    Ok(log
        .lines()
        // Reading each line as JSON takes its time.
        .filter(|line| line.contains(user))
        // The last line may be on its way.
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["user"]["username"] == user)
        .map(|event| Request::read(&event))
        .collect())
}
