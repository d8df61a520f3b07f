//! Owns the list of what a Pod can ask for that the runner does not do, so that no test passes because it was ignored.

use k8s_openapi::api::core::v1::{Container, PodSpec};

/// The first thing that the runner cannot do; `None` if it can run the Pod.
pub(crate) fn problem(spec: &PodSpec) -> Option<String> {
    let all = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    let mut problems = all.filter_map(|container| {
        container_problem(container)
            .map(|problem| format!("container {}: {problem}", container.name))
    });
    problems
        .next()
        .or_else(|| pod_problem(spec).map(ToOwned::to_owned))
}

fn pod_problem(spec: &PodSpec) -> Option<&'static str> {
    let affinity = spec.affinity.as_ref().and_then(|a| a.pod_affinity.as_ref());
    let required = affinity.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let mut spread = spec.topology_spread_constraints.iter().flatten();
    let host = [spec.host_pid, spec.host_ipc, spec.share_process_namespace];
    if spec.active_deadline_seconds.is_some() {
        Some("activeDeadlineSeconds of a Pod")
    } else if spec.ephemeral_containers.is_some() {
        Some("ephemeral containers")
    } else if host.contains(&Some(true)) {
        Some("namespaces of the node or shared ones, other than hostNetwork")
    } else if required.is_some_and(|terms| !terms.is_empty()) {
        Some("required pod affinity")
    } else if spread.any(|s| s.when_unsatisfiable == "DoNotSchedule") {
        Some("topologySpreadConstraints with DoNotSchedule")
    } else {
        None
    }
}

fn container_problem(container: &Container) -> Option<&'static str> {
    let lifecycle = container.lifecycle.as_ref();
    let probes = [
        &container.startup_probe,
        &container.readiness_probe,
        &container.liveness_probe,
    ];
    if container.restart_policy.is_some() {
        Some("restartPolicy of a container")
    } else if lifecycle.is_some_and(|l| l.post_start.is_some() || l.stop_signal.is_some()) {
        Some("postStart and stopSignal")
    } else if probes
        .iter()
        .any(|p| p.as_ref().is_some_and(|p| p.grpc.is_some()))
    {
        Some("gRPC probes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_supported_is_named() {
        let problem = |value: serde_json::Value| problem(&serde_json::from_value(value).unwrap());
        let ok = json!({"hostNetwork": true, "containers": [{"name": "c"}]});
        assert_eq!(problem(ok), None);
        let pid = problem(json!({"hostPID": true, "containers": [{"name": "c"}]})).unwrap();
        assert!(pid.contains("hostNetwork"), "{pid}");
        let hook = json!({"postStart": {"sleep": {"seconds": 1}}});
        let hook = problem(json!({"containers": [{"name": "c", "lifecycle": hook}]})).unwrap();
        assert!(hook.starts_with("container c: postStart"), "{hook}");
    }
}
