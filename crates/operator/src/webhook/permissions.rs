//! The kinds and permissions that the webhook uses. `docs/examples/rbac-webhook.yaml` grants exactly these, under the default
//! namespace and Service name.
//!
//! Nothing of it is required for the start: what is missing is reported, and only what depends on it does not work.

use harvester_lb_controller_kit::preflight::{RequiredPermission, named, required};

use crate::webhook_names::Names;

/// Replaced by the namespace of the webhook.
const NAMESPACE: &str = "harvester-system";
/// Replaced by the name of the authority's Secret.
const AUTHORITY: &str = "harvester-load-balancer-webhook-ca";
/// Replaced by the name of the serving certificate's Secret.
const LEAF: &str = "harvester-load-balancer-webhook-tls";

/// The kinds and permissions under the default names.
pub const REQUIRED: &[RequiredPermission<'static>] = &[
    required(
        "loadbalancer.harvesterhci.io",
        "v1beta1",
        "ippools",
        &["list", "watch"],
    ),
    required(
        "loadbalancer.harvesterhci.io",
        "v1beta1",
        "ipallocations",
        &["list", "watch"],
    ),
    required(
        "loadbalancer.harvesterhci.io",
        "v1beta1",
        "loadbalancers",
        &["list"],
    ),
    required(
        "kubevirt.io",
        "v1",
        "virtualmachineinstances",
        &["list", "watch"],
    ),
    required("kubevirt.io", "v1", "virtualmachines", &["list", "watch"]),
    required(
        "k8s.cni.cncf.io",
        "v1",
        "network-attachment-definitions",
        &["get", "list", "watch"],
    ),
    required("", "v1", "namespaces", &["get", "list", "watch"]),
    required("", "v1", "nodes", &["list", "watch"]),
    required("", "v1", "services", &["list", "watch"]),
    required("events.k8s.io", "v1", "events", &["create"]),
    RequiredPermission {
        namespace: Some(NAMESPACE),
        ..required("discovery.k8s.io", "v1", "endpointslices", &["list"])
    },
    // An object that does not exist has no name yet.
    required(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        &["create"],
    ),
    required(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        &["create"],
    ),
    named(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "harvester-load-balancer-webhook",
        &["get", "list", "watch", "patch"],
    ),
    named(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "harvester-load-balancer-webhook",
        &["get", "list", "watch", "patch"],
    ),
    named(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "loadbalancers.loadbalancer.harvesterhci.io",
        &["get", "list", "watch", "patch"],
    ),
    RequiredPermission {
        namespace: Some(NAMESPACE),
        ..required("", "v1", "secrets", &["create"])
    },
    RequiredPermission {
        namespace: Some(NAMESPACE),
        ..named(
            "",
            "v1",
            "secrets",
            "harvester-load-balancer-webhook-ca",
            &["get", "list", "watch", "patch"],
        )
    },
    RequiredPermission {
        namespace: Some(NAMESPACE),
        ..named(
            "",
            "v1",
            "secrets",
            "harvester-load-balancer-webhook-tls",
            &["get", "list", "watch", "patch"],
        )
    },
];

/// The names in the permissions, under the names of a webhook.
#[derive(Debug)]
pub struct Permissions {
    namespace: String,
    authority: String,
    leaf: String,
}

impl Permissions {
    /// For a webhook.
    pub fn new(names: &Names) -> Self {
        Self {
            namespace: names.namespace.clone(),
            authority: names.authority_secret(),
            leaf: names.leaf_secret(),
        }
    }

    /// The kinds and permissions.
    pub fn required(&self) -> Vec<RequiredPermission<'_>> {
        let replaced = |permission: &RequiredPermission<'static>| RequiredPermission {
            namespace: permission.namespace.map(|_| &*self.namespace),
            name: permission.name.map(|name| match name {
                AUTHORITY => &*self.authority,
                LEAF => &*self.leaf,
                other => other,
            }),
            ..*permission
        };
        REQUIRED.iter().map(replaced).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_1_names_of_secrets_follow_the_webhook() {
        let names = |namespace: &str, service: &str| Names {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
        };
        let permissions = Permissions::new(&names("ns", "svc"));
        let secrets: Vec<_> = permissions
            .required()
            .iter()
            .filter(|p| p.resource == "secrets")
            .map(|p| (p.namespace, p.name))
            .collect();
        assert_eq!(
            secrets,
            [
                (Some("ns"), None),
                (Some("ns"), Some("svc-ca")),
                (Some("ns"), Some("svc-tls"))
            ]
        );
        let default = Permissions::new(&names(NAMESPACE, "harvester-load-balancer-webhook"));
        for (required, constant) in default.required().iter().zip(REQUIRED) {
            assert_eq!(
                (required.namespace, required.name, required.resource),
                (constant.namespace, constant.name, constant.resource)
            );
        }
    }
}
