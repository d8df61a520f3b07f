//! What a program needs from the cluster before it can work: served kinds, and permissions.
//!
//! Checked at start, and again until nothing is missing, so that an operator that starts before its CRDs reports what
//! is missing and continues by itself once they exist.

use std::fmt;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client};

use crate::writer::{WriteError, bounded};

/// Permissions on one kind.
#[derive(Clone, Copy, Debug)]
pub struct RequiredPermission<'a> {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Verbs that are used.
    pub verbs: &'static [&'static str],
    /// Namespace of the permissions; `None`: cluster-wide.
    pub namespace: Option<&'a str>,
    /// Name of the only object that they are for; `None`: all.
    pub name: Option<&'a str>,
    /// Whether the status is written together with the object: a status subresource would drop that part silently.
    pub plain_status: bool,
}

/// Verbs on all objects of a resource, in all namespaces if it has them.
pub const fn required(
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
) -> RequiredPermission<'static> {
    RequiredPermission {
        group,
        version,
        resource,
        verbs,
        namespace: None,
        name: None,
        plain_status: false,
    }
}

/// Verbs on the objects of one name.
pub const fn named(
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    name: &'static str,
    verbs: &'static [&'static str],
) -> RequiredPermission<'static> {
    RequiredPermission {
        name: Some(name),
        ..required(group, version, resource, verbs)
    }
}

/// A missing requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The API server does not serve the kind.
    Kind {
        /// `resource.group/version`.
        kind: String,
    },
    /// The kind has a status subresource and must not have one.
    PlainStatus {
        /// `resource.group/version`.
        kind: String,
    },
    /// The kind is served, but the verb is not permitted.
    Right(Right),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { kind } => {
                write!(
                    f,
                    "the API server does not serve {kind}: apply its CustomResourceDefinition"
                )
            }
            Self::PlainStatus { kind } => {
                write!(
                    f,
                    "{kind} has a status subresource, which drops the status that guests write: apply the CustomResourceDefinition of this program"
                )
            }
            Self::Right(right) => {
                write!(
                    f,
                    "no right to {right}: add it to the ClusterRole of this program's service account"
                )
            }
        }
    }
}

/// A verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb.
    pub verb: String,
    /// `resource.group`.
    pub resource: String,
    /// Namespace; `None`: cluster-wide.
    pub namespace: Option<String>,
    /// Name of the only object that is needed; `None`: all.
    pub name: Option<String>,
}

impl Right {
    fn of(permission: &RequiredPermission<'_>, verb: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            resource: resource_name(permission),
            namespace: permission.namespace.map(ToOwned::to_owned),
            name: permission.name.map(ToOwned::to_owned),
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(name) = &self.name {
            write!(f, " named {name}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        Ok(())
    }
}

/// Whether any of these rights to write is there, given all that is missing. A user without is a reader, and not the one that
/// the permissions are for.
pub fn may_write(required: &[RequiredPermission<'_>], missing: &[Missing]) -> bool {
    required.iter().any(|permission| {
        let kind = kind_name(permission);
        let is_served = !missing.contains(&Missing::Kind { kind });
        let mut verbs = permission.verbs.iter();
        is_served
            && verbs.any(|verb| {
                let is_read = ["get", "list", "watch"].contains(verb);
                !is_read && !missing.contains(&Missing::Right(Right::of(permission, verb)))
            })
    })
}

/// Checks every permission and returns what is missing, in the same order.
pub async fn check(
    client: &Client,
    required: &[RequiredPermission<'_>],
) -> Result<Vec<Missing>, WriteError> {
    let mut missing = Vec::new();
    for permission in required {
        let served = served(client, permission).await?;
        if !served.iter().any(|name| name == permission.resource) {
            missing.push(Missing::Kind {
                kind: kind_name(permission),
            });
            continue;
        }
        let status = format!("{}/status", permission.resource);
        if permission.plain_status && served.contains(&status) {
            missing.push(Missing::PlainStatus {
                kind: kind_name(permission),
            });
        }
        for verb in permission.verbs {
            if !is_allowed(client, permission, verb).await? {
                missing.push(Missing::Right(Right::of(permission, verb)));
            }
        }
    }
    Ok(missing)
}

fn resource_name(permission: &RequiredPermission<'_>) -> String {
    if permission.group.is_empty() {
        permission.resource.to_owned()
    } else {
        format!("{}.{}", permission.resource, permission.group)
    }
}

fn kind_name(permission: &RequiredPermission<'_>) -> String {
    format!("{}/{}", resource_name(permission), permission.version)
}

/// The names of the resources served in a group version, subresources included.
async fn served(
    client: &Client,
    permission: &RequiredPermission<'_>,
) -> Result<Vec<String>, WriteError> {
    let listed = if permission.group.is_empty() {
        bounded(client.list_core_api_resources(permission.version)).await
    } else {
        let group_version = format!("{}/{}", permission.group, permission.version);
        bounded(client.list_api_group_resources(&group_version)).await
    };
    match listed {
        Ok(list) => Ok(list.resources.into_iter().map(|r| r.name).collect()),
        Err(WriteError::NotFound(_)) => Ok(Vec::new()),
        // A group without any served version is answered with a page that is not an API response.
        Err(other) if other.is_refusal() => {
            let groups = bounded(client.list_api_groups()).await?;
            if groups.groups.iter().any(|g| g.name == permission.group) {
                Err(other)
            } else {
                Ok(Vec::new())
            }
        }
        Err(other) => Err(other),
    }
}

async fn is_allowed(
    client: &Client,
    permission: &RequiredPermission<'_>,
    verb: &str,
) -> Result<bool, WriteError> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(permission.group.to_owned()),
                resource: Some(permission.resource.to_owned()),
                verb: Some(verb.to_owned()),
                namespace: permission.namespace.map(ToOwned::to_owned),
                name: permission.name.map(ToOwned::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = bounded(api.create(&kube::api::PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|s| s.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_name_what_to_do() {
        let kind = Missing::Kind {
            kind: "ippools.loadbalancer.harvesterhci.io/v1beta1".into(),
        };
        assert!(
            kind.to_string()
                .contains("ippools.loadbalancer.harvesterhci.io/v1beta1")
        );
        let right = |name: Option<&str>| {
            Missing::Right(Right {
                verb: "patch".into(),
                resource: "services".into(),
                namespace: Some("kube-system".into()),
                name: name.map(ToOwned::to_owned),
            })
        };
        assert_eq!(
            right(None).to_string(),
            "no right to patch services in namespace kube-system: add it to the ClusterRole of this program's service account"
        );
        let named = right(Some("a")).to_string();
        assert!(named.starts_with("no right to patch services named a in namespace kube-system:"));
    }

    #[test]
    fn who_may_write_nothing_is_a_reader() {
        let permission = |resource, verbs| RequiredPermission {
            group: "",
            version: "v1",
            resource,
            verbs,
            namespace: None,
            name: None,
            plain_status: false,
        };
        let required = [
            permission("services", &["get", "create", "patch"]),
            permission("pods", &["list"]),
        ];
        let lacks = |verb: &str| Missing::Right(Right::of(&required[0], verb));
        assert!(may_write(&required, &[]));
        assert!(may_write(&required, &[lacks("get"), lacks("patch")]));
        assert!(!may_write(&required, &[lacks("create"), lacks("patch")]));
        let kind = "services/v1".to_owned();
        assert!(!may_write(&required, &[Missing::Kind { kind }]));
    }
}
