//! Permissions as roles grant them, which of them were used, and users with the operator's permissions, with all of them or
//! without some.
//!
//! The operator's permissions are those of `docs/examples/rbac.yaml`, which are exactly those that the operator requires: `make
//! check` compares the two (`crates/xtask/src/rbac.rs`).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_testkit::eventually;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::requests::Request;
use crate::world::{World, repository};

/// Namespace of the users.
const NAMESPACE: &str = "kube-system";
/// The API server applies a role within milliseconds; the rest is for busy machines.
const EFFECT: Duration = Duration::from_secs(30);

/// Permission for one verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// API group, empty for the core group.
    pub group: String,
    /// Plural name of the resource, and a subresource: `deployments/scale`.
    pub resource: String,
    /// The verb.
    pub verb: String,
    /// Namespace; cluster-wide if empty.
    pub namespace: String,
    /// Name of the only object that it is for; empty: all.
    pub name: String,
}

/// As the operator prints it.
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.name.is_empty() {
            write!(f, " named {}", self.name)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in namespace {}", self.namespace)?;
        }
        Ok(())
    }
}

impl Permission {
    /// Whether a request was allowed by this permission.
    pub fn allowed(&self, request: &Request) -> bool {
        let resource = match &*request.subresource {
            "" => request.resource.clone(),
            part => format!("{}/{part}", request.resource),
        };
        let is_of = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        request.code != 403
            && request.verb == self.verb
            && request.group == self.group
            && resource == self.resource
            && is_of(&self.namespace, &request.namespace)
            && is_of(&self.name, &request.name)
    }
}

/// The permissions that no request has needed.
pub fn unused<'a>(permissions: &'a [Permission], seen: &[Request]) -> Vec<&'a Permission> {
    let is_unused = |permission: &&Permission| !seen.iter().any(|it| permission.allowed(it));
    permissions.iter().filter(is_unused).collect()
}

/// The permissions of the roles among these objects, one for each verb, resource and name.
pub fn of<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Vec<Permission> {
    let strings = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(Value::as_str)
            .map(ToOwned::to_owned)
            .collect()
    };
    let mut permissions = Vec::new();
    for role in objects {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().into_iter().flatten() {
            let mut names = strings(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    for verb in strings(&rule["verbs"]) {
                        permissions.extend(names.iter().map(|name| Permission {
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            namespace: namespace.to_owned(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
    }
    permissions
}

/// All permissions of a file in `docs/examples`.
pub fn of_example(file: &str) -> anyhow::Result<Vec<Permission>> {
    let text = std::fs::read_to_string(repository().join("docs/examples").join(file))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let permissions = of(&documents);
    let count = permissions.len();
    ensure!(count > 10, "{file} has {count} permissions");
    Ok(permissions)
}

/// All permissions of the operator.
pub fn all() -> anyhow::Result<Vec<Permission>> {
    of_example("rbac.yaml")
}

/// The permission for this verb on this resource.
pub fn one(verb: &str, resource: &str) -> anyhow::Result<Permission> {
    let mut all = all()?.into_iter();
    all.find(|r| r.verb == verb && r.resource == resource)
        .with_context(|| format!("rbac.yaml has no {verb} {resource}"))
}

/// A separate user for an operator, so that its permissions can be changed and the audit log shows its requests.
pub struct User {
    /// Its name in the audit log.
    pub name: String,
    /// A kubeconfig with its token.
    pub kubeconfig: String,
    account: String,
}

impl User {
    /// Creates a user with these permissions, and waits until they are in effect.
    pub async fn create(
        world: &World,
        account: &str,
        permissions: &[Permission],
    ) -> anyhow::Result<Self> {
        world
            .cluster
            .apply(&json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": account, "namespace": NAMESPACE},
            }))
            .await?;
        let path: PathBuf = world
            .cluster
            .service_account_kubeconfig(NAMESPACE, account)
            .await?;
        let user = Self {
            name: format!("system:serviceaccount:{NAMESPACE}:{account}"),
            kubeconfig: path.to_str().context("the path is no text")?.to_owned(),
            account: account.to_owned(),
        };
        let subjects = json!([{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": account}]);
        for (kind, binding) in [
            ("ClusterRole", "ClusterRoleBinding"),
            ("Role", "RoleBinding"),
        ] {
            let mut object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding,
                "metadata": {"name": account},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": account},
                "subjects": subjects,
            });
            if kind == "Role" {
                object["metadata"]["namespace"] = NAMESPACE.into();
            }
            world.cluster.apply(&object).await?;
        }
        user.may(world, permissions).await?;
        Ok(user)
    }

    /// Replaces the permissions, and waits until that is in effect.
    pub async fn may(&self, world: &World, permissions: &[Permission]) -> anyhow::Result<()> {
        let rules = |namespaced: bool| -> Vec<Value> {
            permissions
                .iter()
                .filter(|r| r.namespace.is_empty() != namespaced)
                .map(|r| {
                    let mut rule = json!({
                        "apiGroups": [r.group], "resources": [r.resource], "verbs": [r.verb],
                    });
                    if !r.name.is_empty() {
                        rule["resourceNames"] = json!([r.name]);
                    }
                    rule
                })
                .collect()
        };
        let role = |kind: &str, metadata: Value, rules: Vec<Value>| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": metadata, "rules": rules,
            })
        };
        let metadata = json!({"name": self.account});
        world
            .cluster
            .apply(&role("ClusterRole", metadata, rules(false)))
            .await?;
        let metadata = json!({"name": self.account, "namespace": NAMESPACE});
        world
            .cluster
            .apply(&role("Role", metadata, rules(true)))
            .await?;
        let what = format!("the permissions of {}", self.account);
        eventually(&what, EFFECT, || async {
            for permission in all()? {
                let allowed = self.is_allowed(world, &permission).await?;
                ensure!(
                    allowed == permissions.contains(&permission),
                    "{permission}: allowed is {allowed}"
                );
            }
            Ok(Some(()))
        })
        .await
    }

    async fn is_allowed(&self, world: &World, permission: &Permission) -> anyhow::Result<bool> {
        let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
            "user": self.name,
            "resourceAttributes": {
                "group": permission.group, "resource": permission.resource, "verb": permission.verb,
                "namespace": permission.namespace, "name": permission.name,
            },
        }}))?;
        let answer = Api::<SubjectAccessReview>::all(world.client())
            .create(&PostParams::default(), &review)
            .await?;
        Ok(answer.status.is_some_and(|s| s.allowed))
    }
}
