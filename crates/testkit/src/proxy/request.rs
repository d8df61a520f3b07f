//! Attributes of a request in Kubernetes' terms, and the selection of requests by a test.

use std::borrow::Cow;

use axum::http::{Method, Uri};

/// The verb of a request, as in RBAC. `deletecollection` counts as `delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "Kubernetes' own words")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    /// The verbs that change objects.
    pub const WRITES: [Self; 4] = [Self::Create, Self::Update, Self::Patch, Self::Delete];

    /// Whether it changes an object.
    pub fn is_write(self) -> bool {
        Self::WRITES.contains(&self)
    }
}

/// A request as received by the proxy.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The verb.
    pub verb: Verb,
    /// The resource, for instance `services`; `other` if the path is not one of a resource (`/version`, discovery).
    pub resource: String,
    /// The subresource, for instance `status`.
    pub subresource: Option<String>,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The object's name: from the path, for a create from the body.
    pub name: Option<String>,
    /// The query string.
    pub query: String,
    /// The body as text; empty if there is none.
    pub body: String,
}

impl Seen {
    /// Parses a request.
    pub(crate) fn of(method: &Method, uri: &Uri, body: &[u8]) -> Self {
        let query = uri.query().unwrap_or_default();
        let mut parts = uri.path().trim_matches('/').split('/');
        let rest: Vec<&str> = match parts.next() {
            Some("api") => parts.skip(1).collect(),
            Some("apis") => parts.skip(2).collect(),
            _ => Vec::new(),
        };
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, object @ ..]
                if !object.is_empty() && !matches!(object, ["status" | "finalize"]) =>
            {
                (Some(*namespace), object)
            }
            all => (None, all),
        };
        let (resource, name, subresource) = match rest {
            [] => ("other", None, None),
            [resource] => (*resource, None, None),
            [resource, name, sub @ ..] => (*resource, Some(*name), sub.first().copied()),
        };
        let watching = query
            .split('&')
            .any(|p| p == "watch=true" || p == "watch=1");
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ if watching => Verb::Watch,
            _ if name.is_none() && resource != "other" => Verb::List,
            _ => Verb::Get,
        };
        let body = String::from_utf8_lossy(body);
        let name = name.map(str::to_owned).or_else(|| match verb {
            Verb::Create => name_in(&body),
            _ => None,
        });
        Self {
            verb,
            resource: resource.to_owned(),
            subresource: subresource.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            name,
            query: query.to_owned(),
            body: body.into_owned(),
        }
    }
}

fn name_in(body: &str) -> Option<String> {
    let object: serde_json::Value = serde_json::from_str(body).ok()?;
    Some(object.pointer("/metadata/name")?.as_str()?.to_owned())
}

/// A selection of requests. The empty one selects all.
#[derive(Clone, Debug, Default)]
pub struct Match {
    verbs: Option<Vec<Verb>>,
    resource: Option<Cow<'static, str>>,
    not_resource: Option<Cow<'static, str>>,
    namespace: Option<String>,
    name: Option<String>,
    text: Option<String>,
    continued: Option<bool>,
}

impl Match {
    /// All requests.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests of one verb on one resource.
    pub fn of(verb: Verb, resource: &'static str) -> Self {
        Self::any().verbs(&[verb]).resource(resource)
    }

    /// All requests that change an object.
    pub fn writes() -> Self {
        Self::any().verbs(&Verb::WRITES)
    }

    /// Only these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: &[Verb]) -> Self {
        self.verbs = Some(verbs.to_vec());
        self
    }

    /// Only this resource, for instance `services`; its subresources included.
    #[must_use]
    pub fn resource(mut self, resource: &'static str) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// All resources except this one, for instance `leases`.
    #[must_use]
    pub fn but(mut self, resource: &'static str) -> Self {
        self.not_resource = Some(resource.into());
        self
    }

    /// Only objects in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only objects of this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only requests whose body contains this text: distinguishes patches of different fields.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.text = Some(text.to_owned());
        self
    }

    /// Only lists that continue from an earlier page.
    #[must_use]
    pub fn continued(mut self) -> Self {
        self.continued = Some(true);
        self
    }

    /// Whether a request is selected.
    pub fn takes(&self, seen: &Seen) -> bool {
        let is = |wanted: &Option<String>, had: &Option<String>| wanted.is_none() || wanted == had;
        self.verbs.as_ref().is_none_or(|v| v.contains(&seen.verb))
            && self.resource.as_ref().is_none_or(|r| *r == seen.resource)
            && self
                .not_resource
                .as_ref()
                .is_none_or(|r| *r != seen.resource)
            && is(&self.namespace, &seen.namespace)
            && is(&self.name, &seen.name)
            && self.text.as_ref().is_none_or(|t| seen.body.contains(t))
            && self.continued.is_none_or(|wanted| {
                seen.query.split('&').any(|p| p.starts_with("continue=")) == wanted
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(method: &str, uri: &str, body: &str) -> Seen {
        Seen::of(
            &method.parse().unwrap(),
            &uri.parse().unwrap(),
            body.as_bytes(),
        )
    }

    #[test]
    fn requests_are_taken_apart() {
        let ours = "/apis/loadbalancer.harvesterhci.io/v1beta1";
        let cases = [
            ("GET", "/api/v1/services?limit=5", "List services - - -"),
            (
                "GET",
                "/api/v1/services?a=b&watch=true",
                "Watch services - - -",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/services/b",
                "Get services - a b",
            ),
            (
                "PUT",
                "/api/v1/namespaces/a/services/b/status",
                "Update services status a b",
            ),
            ("GET", "/api/v1/namespaces/a", "Get namespaces - - a"),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "Update namespaces finalize - a",
            ),
            (
                "POST",
                "/api/v1/namespaces/a/services",
                "Create services - a made",
            ),
            (
                "POST",
                &format!("{ours}/ippools"),
                "Create ippools - - made",
            ),
            (
                "PATCH",
                &format!("{ours}/ipallocations/10.0.0.1"),
                "Patch ipallocations - - 10.0.0.1",
            ),
            (
                "DELETE",
                &format!("{ours}/namespaces/a/loadbalancers/b"),
                "Delete loadbalancers - a b",
            ),
            ("GET", ours, "Get other - - -"),
            ("GET", "/version", "Get other - - -"),
        ];
        for (method, uri, expected) in cases {
            let seen = seen(method, uri, r#"{"metadata":{"name":"made"}}"#);
            let text = |o: &Option<String>| o.clone().unwrap_or_else(|| "-".into());
            let found = format!(
                "{:?} {} {} {} {}",
                seen.verb,
                seen.resource,
                text(&seen.subresource),
                text(&seen.namespace),
                text(&seen.name)
            );
            assert_eq!(found, expected, "{method} {uri}");
        }
    }

    #[test]
    fn each_part_of_a_match_counts() {
        let put = seen("PUT", "/api/v1/namespaces/a/services/b", r#"{"spec":1}"#);
        let page = seen("GET", "/api/v1/services?limit=5&continue=x", "");
        assert!(Match::any().takes(&put) && Match::any().takes(&page));
        assert!(Match::writes().takes(&put) && !Match::writes().takes(&page));
        assert!(Match::of(Verb::Update, "services").takes(&put));
        assert!(!Match::of(Verb::Update, "leases").takes(&put));
        assert!(!Match::of(Verb::Patch, "services").takes(&put));
        assert!(!Match::any().but("services").takes(&put));
        assert!(Match::any().namespace("a").name("b").takes(&put));
        assert!(!Match::any().namespace("b").takes(&put));
        assert!(!Match::any().name("a").takes(&put));
        assert!(Match::any().text("spec").takes(&put) && !Match::any().text("status").takes(&put));
        assert!(Match::any().continued().takes(&page) && !Match::any().continued().takes(&put));
    }
}
