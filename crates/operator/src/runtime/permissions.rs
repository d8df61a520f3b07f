//! What the operator uses of the cluster: kinds and rights. `docs/examples/rbac.yaml` grants exactly these.

use harvester_lb_controller_kit::preflight::Need;

/// What the operator uses of the cluster.
pub const NEEDS: &[Need] = &[
    Need {
        plain_status: true,
        ..need(
            "loadbalancer.harvesterhci.io",
            "v1beta1",
            "loadbalancers",
            &["get", "list", "watch", "patch", "delete"],
        )
    },
    Need {
        plain_status: true,
        ..need(
            "loadbalancer.harvesterhci.io",
            "v1beta1",
            "ippools",
            &["get", "list", "watch", "patch"],
        )
    },
    need(
        "loadbalancer.harvesterhci.io",
        "v1beta1",
        "ipallocations",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    need(
        "",
        "v1",
        "services",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    need(
        "discovery.k8s.io",
        "v1",
        "endpointslices",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    need(
        "kubevirt.io",
        "v1",
        "virtualmachines",
        &["list", "watch", "patch"],
    ),
    need(
        "kubevirt.io",
        "v1",
        "virtualmachineinstances",
        &["list", "watch", "patch"],
    ),
    need("", "v1", "nodes", &["list", "watch"]),
    need("events.k8s.io", "v1", "events", &["create"]),
    Need {
        namespace: Some("kube-system"),
        ..need(
            "coordination.k8s.io",
            "v1",
            "leases",
            &["get", "create", "update"],
        )
    },
];

const fn need(
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
) -> Need {
    Need {
        group,
        version,
        resource,
        verbs,
        namespace: None,
        plain_status: false,
    }
}
