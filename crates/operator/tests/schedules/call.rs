//! A request of the operator's client, and how far the watches of its sender had got.

use harvester_lb_object::Key;
use serde_json::Value;

use super::kind::Kind;

/// What a request asks for.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Get,
    /// All objects of the kind.
    List,
    Create(Value),
    Merge(Value),
    Json(Value),
    Delete(Value),
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    /// How far the sender's watches had got.
    pub(crate) seen: Seen,
}

/// For each kind: the resource version up to which a watch has brought all changes.
pub(crate) type Positions = [u64; 8];

/// How far the watches of the sender of a request had got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// When it began the work of which the request is a part.
    pub(crate) at_begin: Positions,
    /// When it sent the request.
    pub(crate) at_sending: Positions,
}

impl Call {
    /// Reads a request of a sender whose watches have got that far.
    pub(crate) fn parse(
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
        seen: Seen,
    ) -> Self {
        let mut parts = path.trim_matches('/').split('/');
        let rest: Vec<&str> = match parts.next() {
            Some("api") => parts.skip(1).collect(),
            Some("apis") => parts.skip(2).collect(),
            _ => panic!("no path of the API: {path}"),
        };
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let kind = Kind::of_plural(rest[0]).unwrap_or_else(|| panic!("unknown kind: {path}"));
        let json = || -> Value {
            if body.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(body).unwrap()
            }
        };
        let verb = match (method, content_type) {
            ("GET", _) if rest.len() == 1 => Verb::List,
            ("GET", _) => Verb::Get,
            ("POST", _) => Verb::Create(json()),
            ("DELETE", _) => Verb::Delete(json()),
            ("PATCH", "application/merge-patch+json") => Verb::Merge(json()),
            ("PATCH", "application/json-patch+json") => Verb::Json(json()),
            _ => panic!("not understood: {method} {path} {content_type}"),
        };
        let name = match &verb {
            Verb::Create(object) => object["metadata"]["name"].as_str().unwrap(),
            Verb::List => "",
            _ => rest[1],
        };
        let key = Key::new(namespace, name);
        Self {
            verb,
            kind,
            key,
            seen,
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List)
    }

    /// The request in a line of a trace.
    pub(crate) fn describe(&self) -> String {
        let (verb, body) = match &self.verb {
            Verb::Get => ("get", String::new()),
            Verb::List => ("list", String::new()),
            Verb::Create(object) => {
                let without = ["apiVersion", "kind"];
                let mut object = object.clone();
                if let Some(map) = object.as_object_mut() {
                    map.retain(|k, _| !without.contains(&k.as_str()));
                }
                ("create", object.to_string())
            }
            Verb::Merge(patch) | Verb::Json(patch) => ("patch", patch.to_string()),
            Verb::Delete(options) => ("delete", options["preconditions"].to_string()),
        };
        format!("{verb} {:?} {} {body}", self.kind, self.key)
    }
}
