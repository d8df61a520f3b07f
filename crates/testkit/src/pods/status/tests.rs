use serde_json::{Value, json};

use super::*;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 251, 0, 11);

fn pod(policy: &str, init: usize) -> Pod {
    let init: Vec<Value> = (0..init)
        .map(|n| json!({"name": format!("i{n}")}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"restartPolicy": policy, "initContainers": init, "containers": [{"name": "c", "image": "img"}]},
    }))
    .unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn state(init: usize) -> PodState {
    PodState {
        initialized: init == 0,
        ..PodState::new(init, 1, at(0))
    }
}

fn phase_of(policy: &str, state: &PodState) -> String {
    let status = status(&pod(policy, state.init.len()), state, HOST, None, at(9));
    status.phase.unwrap()
}

fn holds(status: &PodStatus, type_: &str) -> bool {
    let mut all = status.conditions.iter().flatten();
    all.any(|c| c.type_ == type_ && c.status == "True")
}

#[test]
fn a_pod_is_ready_with_its_containers_and_not_while_it_is_deleted() {
    let mut state = state(0);
    state.address = Some(Ipv4Addr::new(10, 52, 1, 2));
    let mut pod = pod("Always", 0);
    assert_eq!(phase_of("Always", &state), "Pending");
    state.containers[0].runs(at(1));
    let starting = status(&pod, &state, HOST, None, at(1));
    assert_eq!(starting.phase.as_deref(), Some("Running"));
    assert!(!holds(&starting, "Ready") && holds(&starting, "Initialized"));

    state.containers[0].ready = true;
    let ready = status(&pod, &state, HOST, Some(&starting), at(5));
    assert!(holds(&ready, "Ready") && holds(&ready, "ContainersReady"));
    let time = |status: &PodStatus, index: usize| {
        let condition = status.conditions.as_ref().unwrap()[index].clone();
        condition.last_transition_time.unwrap().0
    };
    assert_eq!((time(&ready, 1), time(&ready, 3)), (at(1), at(5)));
    assert_eq!(ready.pod_ip.as_deref(), Some("10.52.1.2"));
    assert_eq!(ready.host_ip.as_deref(), Some("10.251.0.11"));

    pod.metadata.deletion_timestamp = Some(Time(at(6)));
    assert!(!holds(
        &status(&pod, &state, HOST, Some(&ready), at(6)),
        "Ready"
    ));
}

#[test]
fn a_readiness_gate_is_set_by_others() {
    let mut state = state(0);
    state.containers[0].runs(at(1));
    state.containers[0].ready = true;
    let mut pod = pod("Always", 0);
    pod.spec.as_mut().unwrap().readiness_gates =
        serde_json::from_value(json!([{"conditionType": "x"}])).unwrap();
    let closed = status(&pod, &state, HOST, None, at(2));
    assert!(holds(&closed, "ContainersReady") && !holds(&closed, "Ready"));
    pod.status =
        serde_json::from_value(json!({"conditions": [{"type": "x", "status": "True"}]})).unwrap();
    assert!(holds(&status(&pod, &state, HOST, None, at(2)), "Ready"));
}

#[test]
fn the_phase_follows_exit_codes_where_nothing_is_restarted() {
    for (code, expected) in [(0, "Succeeded"), (3, "Failed")] {
        let mut state = state(0);
        state.containers[0].runs(at(1));
        state.containers[0].ended(code, "x", "bye".into(), at(2));
        assert_eq!(phase_of("Never", &state), expected);
        assert_eq!(phase_of("Always", &state), "Running");
        let mut deleted = pod("Always", 0);
        deleted.metadata.deletion_timestamp = Some(Time(at(2)));
        let status = status(&deleted, &state, HOST, None, at(3));
        assert_eq!(status.phase.as_deref(), Some(expected));
        let container = &status.container_statuses.unwrap()[0];
        let end = container.state.clone().unwrap().terminated.unwrap();
        assert_eq!((end.exit_code, end.message.as_deref()), (code, Some("bye")));
        assert_eq!(end.started_at, Some(Time(at(1))));
    }
}

#[test]
fn a_failed_init_container_fails_a_pod_that_is_not_restarted() {
    let mut state = state(1);
    state.init[0].runs(at(1));
    assert_eq!(phase_of("Never", &state), "Pending");
    state.init[0].ended(1, "Error", String::new(), at(2));
    assert_eq!(phase_of("Never", &state), "Failed");
    assert_eq!(phase_of("Always", &state), "Pending");
}

#[test]
fn restarts_are_counted_when_they_happen() {
    let mut state = state(0);
    let pod = pod("Always", 0);
    state.containers[0].runs(at(1));
    state.containers[0].ended(137, "Error", String::new(), at(2));
    state.containers[0].waits();
    let report = |state: &PodState| {
        let status = status(&pod, state, HOST, None, at(3));
        status.container_statuses.unwrap().remove(0)
    };
    let waiting = report(&state);
    assert_eq!(waiting.restart_count, 0);
    assert_eq!(
        waiting.state.unwrap().waiting.unwrap().reason.as_deref(),
        Some("CrashLoopBackOff")
    );
    state.containers[0].runs(at(4));
    let running = report(&state);
    assert_eq!(running.restart_count, 1);
    let last = running.last_state.unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 137);
    assert!(running.state.unwrap().running.is_some());
}

#[test]
fn without_power_nothing_runs() {
    let mut state = state(0);
    state.containers[0].runs(at(1));
    let mut once = state.clone();
    state.power_lost(true, at(2));
    assert!(matches!(state.containers[0].now, Now::Waiting { .. }));
    assert_eq!(
        state.containers[0].last.as_ref().map(|end| end.code),
        Some(137)
    );
    once.power_lost(false, at(2));
    assert_eq!(phase_of("Never", &once), "Failed");
}
