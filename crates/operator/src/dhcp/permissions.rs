//! The kinds and permissions that the DHCP process requires. `docs/examples/rbac-dhcp.yaml` grants exactly these.

use harvester_lb_controller_kit::preflight::RequiredPermission;

/// The required kinds and permissions.
pub const REQUIRED: &[RequiredPermission<'static>] = &[
    required(
        "loadbalancer.harvesterhci.io",
        "v1beta1",
        "loadbalancers",
        &["get", "list", "watch"],
    ),
    required(
        "loadbalancer.harvesterhci.io",
        "v1beta1",
        "ipallocations",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    required("", "v1", "services", &["get", "list", "watch"]),
    required("events.k8s.io", "v1", "events", &["create"]),
    // An object that does not exist has no name yet.
    RequiredPermission {
        namespace: Some("kube-system"),
        ..required("coordination.k8s.io", "v1", "leases", &["create"])
    },
    RequiredPermission {
        namespace: Some("kube-system"),
        ..named(
            "coordination.k8s.io",
            "v1",
            "leases",
            "harvester-load-balancer-dhcp",
            &["get", "update"],
        )
    },
];

const fn required(
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

const fn named(
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
