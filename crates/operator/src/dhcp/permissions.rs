//! The kinds and permissions that the DHCP process requires. `docs/examples/rbac-dhcp.yaml` grants exactly these.

use harvester_lb_controller_kit::preflight::{RequiredPermission, named, required};

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
