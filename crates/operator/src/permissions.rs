//! The kinds and permissions that the operator requires. `docs/examples/rbac.yaml` grants exactly these.

use harvester_lb_controller_kit::preflight::{RequiredPermission, named, required};

/// The required kinds and permissions.
pub const REQUIRED: &[RequiredPermission<'static>] = &[
    RequiredPermission {
        plain_status: true,
        ..required(
            "loadbalancer.harvesterhci.io",
            "v1beta1",
            "loadbalancers",
            &["get", "list", "watch", "patch", "delete"],
        )
    },
    RequiredPermission {
        plain_status: true,
        ..required(
            "loadbalancer.harvesterhci.io",
            "v1beta1",
            "ippools",
            &["get", "list", "watch", "create", "patch"],
        )
    },
    required(
        "loadbalancer.harvesterhci.io",
        "v1beta1",
        "ipallocations",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    required(
        "",
        "v1",
        "services",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    required(
        "discovery.k8s.io",
        "v1",
        "endpointslices",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    required(
        "kubevirt.io",
        "v1",
        "virtualmachines",
        &["list", "watch", "patch"],
    ),
    required(
        "kubevirt.io",
        "v1",
        "virtualmachineinstances",
        &["list", "watch", "patch"],
    ),
    required("", "v1", "nodes", &["list", "watch"]),
    required("events.k8s.io", "v1", "events", &["create"]),
    // kube-vip's ConfigMaps, by their name (MIG-5).
    named("", "v1", "configmaps", "kubevip", &["list"]),
    RequiredPermission {
        namespace: Some("kube-system"),
        ..named("", "v1", "configmaps", "kubevip", &["get", "patch"])
    },
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
            "harvester-load-balancer",
            &["get", "update"],
        )
    },
];
