//! Owns the status that is reported for a Pod: phase, addresses, conditions, states of containers. Pure.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{
    Container, ContainerState as Reported, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::state::{ContainerState, Ended, Now, PodState};

/// The status of a Pod. `previous` is the one reported last, whose transition times remain where nothing changed.
pub(crate) fn status(
    pod: &Pod,
    state: &PodState,
    host: Ipv4Addr,
    previous: Option<&PodStatus>,
    now: Timestamp,
) -> PodStatus {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    let spec = pod.spec.clone().unwrap_or_default();
    let phase = phase(pod, state);
    let over = matches!(phase, "Succeeded" | "Failed");
    let all_ready = !state.containers.is_empty() && state.containers.iter().all(|c| c.ready);
    let ready = all_ready && !deleting && state.initialized;
    let condition = |type_: &str, holds: bool, reason: &str| {
        let status = if holds { "True" } else { "False" };
        let known = previous.and_then(|p| p.conditions.as_ref());
        let known = known.and_then(|all| all.iter().find(|c| c.type_ == type_));
        let same = known.filter(|c| c.status == status);
        PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            // Empty and not absent: a patch would leave the reason of before.
            reason: Some(if holds { "" } else { reason }.to_owned()),
            last_transition_time: same
                .and_then(|c| c.last_transition_time.clone())
                .or(Some(Time(now))),
            ..PodCondition::default()
        }
    };
    let unready = if over {
        "PodCompleted"
    } else {
        "ContainersNotReady"
    };
    let gates = gates_open(pod, &spec.readiness_gates.unwrap_or_default());
    let conditions = vec![
        condition(
            "PodReadyToStartContainers",
            state.address.is_some() && !over,
            unready,
        ),
        condition("Initialized", state.initialized, "ContainersNotInitialized"),
        condition("ContainersReady", ready, unready),
        condition("Ready", ready && gates, unready),
    ];
    PodStatus {
        phase: Some(phase.to_owned()),
        start_time: state.since.map(Time),
        pod_ip: state.address.map(|ip| ip.to_string()),
        pod_ips: state.address.map(|ip| vec![PodIP { ip: ip.to_string() }]),
        host_ip: Some(host.to_string()),
        host_ips: Some(vec![HostIP {
            ip: host.to_string(),
        }]),
        conditions: Some(conditions),
        init_container_statuses: containers(&spec.init_containers.unwrap_or_default(), &state.init),
        container_statuses: containers(&spec.containers, &state.containers),
        ..PodStatus::default()
    }
}

/// Conditions that others set, which a Pod waits for.
fn gates_open(pod: &Pod, gates: &[k8s_openapi::api::core::v1::PodReadinessGate]) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    gates.iter().all(|gate| {
        let mut all = conditions.into_iter().flatten();
        all.any(|c| c.type_ == gate.condition_type && c.status == "True")
    })
}

fn phase(pod: &Pod, state: &PodState) -> &'static str {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    let policy = pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref());
    let once = deleting || policy.is_some_and(|p| p != "Always");
    let codes = |list: &[ContainerState]| list.iter().map(ContainerState::code).collect::<Vec<_>>();
    let (init, containers) = (codes(&state.init), codes(&state.containers));
    let failed = |codes: &[Option<i32>]| codes.iter().any(|code| code.is_some_and(|c| c != 0));
    if once && !state.initialized && failed(&init) {
        return "Failed";
    }
    if once && containers.iter().all(Option::is_some) && !containers.is_empty() {
        return if failed(&containers) {
            "Failed"
        } else {
            "Succeeded"
        };
    }
    if state.containers.iter().any(ContainerState::has_run) {
        "Running"
    } else {
        "Pending"
    }
}

fn containers(specs: &[Container], states: &[ContainerState]) -> Option<Vec<ContainerStatus>> {
    let all = specs.iter().zip(states);
    let all: Vec<ContainerStatus> = all.map(|(spec, state)| container(spec, state)).collect();
    (!all.is_empty()).then_some(all)
}

fn container(spec: &Container, state: &ContainerState) -> ContainerStatus {
    let image = spec.image.clone().unwrap_or_default();
    ContainerStatus {
        name: spec.name.clone(),
        image_id: if state.has_run() {
            image.clone()
        } else {
            String::new()
        },
        image,
        ready: state.ready,
        restart_count: state.restarts,
        started: Some(state.started),
        state: Some(match &state.now {
            Now::Waiting { reason, message } => Reported {
                waiting: Some(ContainerStateWaiting {
                    reason: Some(reason.clone()),
                    message: Some(message.clone()).filter(|m| !m.is_empty()),
                }),
                ..Reported::default()
            },
            Now::Running { since } => Reported {
                running: Some(ContainerStateRunning {
                    started_at: Some(Time(*since)),
                }),
                ..Reported::default()
            },
            Now::Ended(end) => ended(end),
        }),
        last_state: state.last.as_ref().map(ended),
        ..ContainerStatus::default()
    }
}

fn ended(end: &Ended) -> Reported {
    Reported {
        terminated: Some(ContainerStateTerminated {
            exit_code: end.code,
            reason: Some(end.reason.clone()),
            message: Some(end.message.clone()).filter(|m| !m.is_empty()),
            started_at: end.started.map(Time),
            finished_at: Some(Time(end.finished)),
            ..ContainerStateTerminated::default()
        }),
        ..Reported::default()
    }
}

#[cfg(test)]
mod tests;
