//! The steps of a plan and its requeue, by rule id.

use std::time::Duration;

use harvester_lb_api::{IPAllocation, keys};
use harvester_lb_fixtures as fixtures;
use harvester_lb_prober::{HealthCheck, ProbeResult, TargetView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::world::{
    ADDRESS, World, address, foreign_service, key, lb, machine, name, object, serve, service,
    slice, spec_of, wait,
};
use crate::cached::{Allocation, VmiState};
use crate::plan::{
    Address, CheckSource, DeletedLb, Goal, Guard, Keep, Kind, LeftBehind, Next, Plan, SeenPool,
    Step, cleanup, plan,
};
use crate::status::{Readiness, StatusUpdate};

/// The steps of a plan as text.
fn steps(plan: &Plan<'_>) -> Vec<String> {
    plan.steps.iter().map(|it| it.step.to_string()).collect()
}

/// The guards of each step.
fn guards(plan: &Plan<'_>) -> Vec<Vec<Guard>> {
    plan.steps.iter().map(|it| it.guards.clone()).collect()
}

/// A load balancer that is served at [`ADDRESS`] with one ready machine, and its goal.
fn served(is_checked: bool) -> (World, Goal) {
    let mut world = World::new(lb(&spec_of(is_checked)));
    let goal = serve(&world.lb);
    world
        .machines
        .extend([machine("vm1", "10.10.0.1", VmiState::Running)]);
    world.walk(&goal, usize::MAX);
    world.service = Some(service(ADDRESS, Some(ADDRESS)));
    world.slice = Some(slice(&[("vm1", "10.10.0.1")]));
    // Its readiness is that of the EndpointSlice.
    world.restart();
    world.walk(&goal, usize::MAX);
    (world, goal)
}

fn condition<'a>(world: &'a World, type_: &str) -> Option<&'a harvester_lb_api::Condition> {
    harvester_lb_api::condition::find(crate::status::conditions(&world.lb), type_)
}

#[test]
fn rec_3_ipa_6_a_new_one_commits_its_address_then_gets_endpoints_then_the_service() {
    let world = World::new(lb(&spec_of(false)));
    let (goal, key) = (serve(&world.lb), key());
    let plan = plan(&world.view(&key, &goal), &goal);
    assert_eq!(
        steps(&plan),
        [
            "commit the address",
            "end health checks",
            "create EndpointSlice",
            "create Service"
        ]
    );
    let caught_up = vec![Guard::CaughtUp];
    assert_eq!(
        guards(&plan),
        [vec![], vec![], caught_up.clone(), caught_up]
    );
}

#[test]
fn rec_2_it_waits_for_the_external_address_and_takes_it_as_it_is() {
    let mut world = World::new(lb(&spec_of(false)));
    world
        .machines
        .extend([machine("vm1", "10.10.0.1", VmiState::Running)]);
    let goal = serve(&world.lb);
    let mut with_interface = world.clone();
    let annotations = with_interface
        .lb
        .metadata
        .annotations
        .get_or_insert_default();
    annotations.insert(
        keys::ANNOTATION_KUBE_VIP_INTERFACE.to_owned(),
        "eth7".to_owned(),
    );
    // The commitment says already what the status says afterwards, of an interface that is not allowed too (KVA-2).
    for world in [&mut world.clone(), &mut with_interface] {
        let (written, _) = world.walk(&goal, usize::MAX);
        assert_eq!(written.len(), 3, "{written:?}");
    }
    let (_, next) = world.walk(&goal, usize::MAX);
    assert_eq!(next, Some(Next::Resync));
    assert_eq!(
        condition(&world, "Ready").unwrap().reason.as_deref(),
        Some("WaitingForExternalIP")
    );
    let other = "10.0.9.9";
    world.service = Some(service(ADDRESS, Some(other)));
    let (written, next) = world.walk(&goal, usize::MAX);
    assert_eq!(written, ["write status"]);
    assert_eq!(next, Some(Next::AwaitChange));
    let status = world.lb.status.unwrap();
    assert_eq!(status.address.as_deref(), Some(other));
}

#[test]
fn rec_4_what_was_altered_or_deleted_is_restored() {
    let (mut world, goal) = served(false);
    world.slice.as_mut().unwrap().ports = None;
    world.service = None;
    let (written, _) = world.walk(&goal, usize::MAX);
    assert_eq!(written[..2], ["patch EndpointSlice", "create Service"]);
}

#[test]
fn svc_1_a_foreign_object_is_not_written_and_ours_beside_it_goes() {
    let (served, goal) = served(false);
    let key = key();
    let mut foreign = served.clone();
    foreign.service = Some(foreign_service());
    let made = plan(&foreign.view(&key, &goal), &goal);
    assert_eq!(steps(&made), ["end health checks", "delete EndpointSlice"]);
    assert_eq!(made.steps[0].guards, [Guard::Foreign(Kind::Service)]);
    let (_, next) = foreign.walk(&goal, usize::MAX);
    assert_eq!(next, Some(Next::Backoff));
    let ready = condition(&foreign, "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("NameConflict"));

    // The EndpointSlice of the name has another owner: the store does not have it.
    let mut taken = served;
    (taken.slice, taken.has_foreign_slice) = (None, true);
    let made = plan(&taken.view(&key, &goal), &goal);
    assert_eq!(steps(&made), ["end health checks", "delete Service"]);
    assert_eq!(made.steps[0].guards, [Guard::Foreign(Kind::EndpointSlice)]);
}

#[test]
fn rel_4_without_an_address_the_service_goes_first_and_only_by_a_current_copy() {
    let (world, _) = served(false);
    let mut goal = wait(&world.lb);
    let pool = SeenPool {
        name: name("p"),
        version: None,
        is_decodable: true,
    };
    if let Goal::Wait(_, waiting) = &mut goal {
        waiting.pool = Some(pool.clone());
    }
    let key = key();
    let made = plan(&world.view(&key, &goal), &goal);
    assert_eq!(
        steps(&made),
        [
            "end health checks",
            "delete Service",
            "delete EndpointSlice"
        ]
    );
    assert_eq!(
        made.steps[0].guards,
        [Guard::Unchanged, Guard::PoolUnchanged(pool.clone())]
    );
    // With nothing to delete, the pool is still read before the status loses its address (IPA-7); else nothing is read.
    let mut empty = World::new(world.lb);
    let verified = guards(&plan(&empty.view(&key, &goal), &goal));
    assert_eq!(verified, [vec![Guard::PoolUnchanged(pool)]]);
    empty.lb.status = None;
    assert_eq!(guards(&plan(&empty.view(&key, &goal), &goal)), [vec![]]);
}

#[test]
fn rec_1_cluster_type_has_an_address_and_nothing_else() {
    let mut world = World::new(lb(&fixtures::cluster_spec()));
    let goal = Goal::AddressOnly(address(ADDRESS));
    let (written, next) = world.walk(&goal, usize::MAX);
    assert_eq!(written, ["write status"]);
    assert_eq!(next, Some(Next::AwaitChange));
    let status = world.lb.status.clone().unwrap();
    assert_eq!(status.address.as_deref(), Some(ADDRESS));
    // The guest's own value stays.
    world.lb.status.as_mut().unwrap().address = Some("10.0.7.7".to_owned());
    assert_eq!(world.walk(&goal, usize::MAX).0, Vec::<String>::new());
}

#[test]
fn alc_9_an_edit_of_the_gateway_alone_is_one_write() {
    let (mut world, goal) = served(false);
    let Goal::Serve(vm, mut address) = goal else {
        unreachable!()
    };
    address.allocated.gateway = Some("10.0.0.254".to_owned());
    let goal = Goal::Serve(vm, address);
    assert_eq!(world.walk(&goal, usize::MAX).0, ["write status"]);
}

#[test]
fn be_6_of_one_that_cannot_be_served_only_the_endpoints_follow() {
    let (mut world, _) = served(false);
    let refusal = Readiness::not("InvalidListener", "why");
    let goal = Goal::Keep(Keep::until(&world.lb, refusal, Next::AwaitChange));
    world.machines.clear();
    world.service = None;
    let (written, _) = world.walk(&goal, usize::MAX);
    assert_eq!(written, ["patch EndpointSlice", "write status"]);
    // The stand-in alone is left.
    assert_eq!(world.slice.as_ref().unwrap().endpoints.len(), 1);
    // Nothing is created.
    world.slice = None;
    assert_eq!(world.walk(&goal, usize::MAX).0, Vec::<String>::new());
}

/// One that has no status of its own to write: its deletion waits for a foreign finalizer.
#[test]
fn be_6_without_a_status_none_is_written() {
    let (mut world, _) = served(false);
    let goal = Goal::Keep(Keep::endpoints(&world.lb));
    world.machines.clear();
    assert_eq!(world.walk(&goal, usize::MAX).0, ["patch EndpointSlice"]);
}

#[test]
fn be_5_a_terminated_machine_takes_no_traffic_and_is_not_probed() {
    let (mut world, goal) = served(true);
    let over = machine("vm1", "10.10.0.1", VmiState::Succeeded);
    world.machines.extend([over]);
    let key = key();
    // Even while changed verdicts have to wait.
    world.verdict_pause = Duration::from_millis(150);
    let made = plan(&world.view(&key, &goal), &goal);
    assert_eq!(
        steps(&made),
        ["check the health of 0", "patch EndpointSlice"]
    );
    assert_eq!(made.postponed, None);
}

/// The state of the health check of `vm1`, which failed.
fn failed(world: &mut World, goal: &Goal) {
    let Goal::Serve(vm, _) = goal else {
        unreachable!()
    };
    world.checks.check = vm.check;
    world.checks.targets = vec![TargetView {
        id: name("u-vm1"),
        addr: "10.10.0.1".parse().unwrap(),
        ready: false,
        last: Some(ProbeResult::Refused),
        failure: Some(ProbeResult::Refused),
        stale: false,
    }];
}

#[test]
fn hc_1_a_verdict_is_written_as_soon_as_the_last_one_is_old_enough() {
    let (mut world, goal) = served(true);
    failed(&mut world, &goal);
    let (key, pause) = (key(), Duration::from_millis(150));
    world.verdict_pause = pause;
    let made = plan(&world.view(&key, &goal), &goal);
    assert_eq!(steps(&made), ["check the health of 1"]);
    assert_eq!((made.postponed, made.verdicts.len()), (Some(pause), 0));
    world.verdict_pause = Duration::ZERO;
    let made = plan(&world.view(&key, &goal), &goal);
    assert_eq!(
        steps(&made),
        ["check the health of 1", "patch EndpointSlice"]
    );
    assert_eq!((made.postponed, made.verdicts.len()), (None, 1));
    assert!(!made.verdicts[0].is_ready);
}

#[test]
fn hc_2_a_changed_health_check_keeps_verdicts_and_forgets_results() {
    let (mut world, goal) = served(true);
    failed(&mut world, &goal);
    let other = HealthCheck::new(Some(8080), Some(1), Some(7), Some(1), Some(1)).unwrap();
    world.checks.check = other;
    world.walk(&goal, usize::MAX);
    let target = &world.checks.targets[0];
    assert_eq!((target.ready, target.last), (false, None));
}

#[test]
fn hc_3_after_a_restart_readiness_is_that_of_the_endpoint_slice() {
    let (mut world, goal) = served(true);
    world.restart();
    assert_eq!(world.walk(&goal, usize::MAX).0, Vec::<String>::new());
    assert!(world.checks.targets[0].ready);
}

/// Of those that share the address nobody is left.
#[test]
fn shr_3_a_load_balancer_alone_is_the_only_owner_of_its_service() {
    let (mut world, goal) = served(false);
    let mut shared = serde_json::to_value(&**world.service.as_ref().unwrap()).unwrap();
    let references = shared["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap();
    let mut second = references[0].clone();
    (second["name"], second["uid"]) = (json!("b"), json!("u-b"));
    references.push(second);
    let shared = super::world::object(shared);
    world.service = crate::cached::service(Ok(shared));
    let (written, _) = world.walk(&goal, usize::MAX);
    assert_eq!(written, ["patch Service"]);
    let owners = world.service.unwrap().metadata.owner_references.clone();
    assert_eq!(owners.unwrap().len(), 1);
}

/// The other fields of the Service are unknown, so that it is left alone; the EndpointSlice is not.
#[test]
fn run_1_a_service_that_cannot_be_decoded_is_reported_and_not_written() {
    let (mut world, goal) = served(false);
    world.service.as_mut().unwrap().undecodable = Some("spec.ports: not a list".to_owned());
    world.slice = None;
    let (written, next) = world.walk(&goal, usize::MAX);
    assert_eq!(written, ["create EndpointSlice", "write status"]);
    assert_eq!(next, Some(Next::Backoff));
    let ready = condition(&world, "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("ApiError"));
    assert!(
        ready
            .message
            .as_ref()
            .unwrap()
            .contains("spec.ports: not a list")
    );
}

#[test]
fn eps_3_a_slice_of_another_address_type_is_deleted_and_then_made_anew() {
    let (mut world, goal) = served(false);
    let wrong = world.slice.as_mut().unwrap();
    "IPv6".clone_into(&mut wrong.address_type);
    let (written, next) = world.walk(&goal, usize::MAX);
    assert_eq!(written, ["delete EndpointSlice"]);
    assert!(matches!(next, Some(Next::Again(_))), "{next:?}");
    let (written, _) = world.walk(&goal, usize::MAX);
    assert_eq!(written[0], "create EndpointSlice");
    assert_eq!(world.slice.as_ref().unwrap().address_type, "IPv4");
    // One that a finalizer holds in deletion is waited for.
    let held = world.slice.as_mut().unwrap();
    "IPv6".clone_into(&mut held.address_type);
    in_deletion(&mut held.metadata);
    assert_eq!(world.walk(&goal, usize::MAX).0, Vec::<String>::new());
}

fn in_deletion(meta: &mut ObjectMeta) {
    let time = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    meta.deletion_timestamp = object::<ObjectMeta>(time).deletion_timestamp;
}

#[test]
fn rel_3_what_is_in_deletion_is_not_deleted_again() {
    let (mut world, _) = served(false);
    let goal = wait(&world.lb);
    in_deletion(&mut world.slice.as_mut().unwrap().metadata);
    let key = key();
    let made = plan(&world.view(&key, &goal), &goal);
    assert_eq!(steps(&made), ["end health checks", "delete Service"]);
    // kube-proxy sends traffic to its endpoints until it is gone.
    let goal = Goal::Keep(Keep::endpoints(&world.lb));
    world.machines.clear();
    assert_eq!(world.walk(&goal, usize::MAX).0, ["patch EndpointSlice"]);
}

#[test]
fn be_6_without_endpoints_nothing_is_probed_and_no_health_is_told() {
    let (mut world, goal) = served(true);
    let Goal::Serve(vm, _) = &goal else {
        panic!("{goal:?}")
    };
    let refused = Keep::until(
        &world.lb,
        Readiness::not("InvalidListener", "why"),
        Next::AwaitChange,
    );
    let goal = Goal::Keep(Keep {
        check: CheckSource::from(vm.check),
        ..refused
    });
    world.walk(&goal, usize::MAX);
    assert!(condition(&world, "BackendsHealthy").is_some());
    let before = world.clone();
    // The last machine goes; or the EndpointSlice is deleted by hand, and is not made anew.
    world.machines.clear();
    world.walk(&goal, usize::MAX);
    assert_eq!(condition(&world, "BackendsHealthy"), None);
    let mut world = before;
    world.slice = None;
    let key = key();
    assert_eq!(
        steps(&plan(&world.view(&key, &goal), &goal)),
        ["end health checks"]
    );
    world.walk(&goal, usize::MAX);
    assert_eq!(condition(&world, "BackendsHealthy"), None);
    assert_eq!(world.walk(&goal, usize::MAX).0, Vec::<String>::new());
}

#[test]
fn hc_2_without_a_health_check_all_are_ready_at_once() {
    let (mut world, goal) = served(false);
    let key = key();
    world.verdict_pause = Duration::from_millis(150);
    let endpoints = &mut world.slice.as_mut().unwrap().endpoints;
    endpoints[0].conditions.as_mut().unwrap().ready = Some(false);
    let made = plan(&world.view(&key, &goal), &goal);
    assert_eq!(steps(&made), ["end health checks", "patch EndpointSlice"]);
}

#[test]
fn be_6_verdicts_wait_for_their_turn_also_while_the_spec_is_refused() {
    let (mut world, goal) = served(true);
    failed(&mut world, &goal);
    let pause = Duration::from_millis(150);
    world.verdict_pause = pause;
    let goal = Goal::Keep(Keep::endpoints(&world.lb));
    let key = key();
    let made = plan(&world.view(&key, &goal), &goal);
    assert_eq!(steps(&made), ["check the health of 1"]);
    assert_eq!(made.postponed, Some(pause));
}

/// The health check of a load balancer that cannot be decoded is unknown; the one that runs goes on (HC-4).
#[test]
fn hc_4_of_one_that_cannot_be_decoded_the_health_check_goes_on() {
    let (mut world, goal) = served(true);
    failed(&mut world, &goal);
    let goal = Goal::Keep(Keep::undecodable());
    let (written, _) = world.walk(&goal, usize::MAX);
    assert_eq!(written, ["patch EndpointSlice"]);
    let ready = |world: &World| {
        let endpoint = world.slice.as_ref().unwrap().endpoints[0].clone();
        endpoint.conditions.unwrap().ready
    };
    assert_eq!(ready(&world), Some(false));
    // After a restart no health check is known, and readiness stays.
    world.restart();
    assert_eq!(world.walk(&goal, usize::MAX).0, Vec::<String>::new());
}

#[test]
fn ops_3_the_guest_s_address_by_dhcp_is_left_to_it() {
    let mut world = World::new(lb(&fixtures::cluster_spec()));
    let goal = Goal::AddressOnly(Address::by_dhcp(Vec::new(), None, None));
    world.walk(&goal, usize::MAX);
    let status = world.lb.status.unwrap();
    assert_eq!(status.address, None);
    assert_eq!(
        status.allocated_address.unwrap().ip.as_deref(),
        Some("0.0.0.0")
    );
}

/// What is left of a deleted load balancer with this Bound record.
fn left(uid: &str) -> LeftBehind {
    let bound = fixtures::record(ADDRESS, "p", "Bound", ("n", "a", uid));
    let bound: IPAllocation = object(fixtures::stored(bound, "u-record", 7));
    let Allocation::Valid { record, .. } = Allocation::decoded(&bound) else {
        panic!("{bound:?}")
    };
    LeftBehind {
        deleted: Some(DeletedLb {
            uid: "u-a".to_owned(),
            had_service: true,
            final_state_unknown: false,
        }),
        bound: vec![record],
    }
}

#[test]
fn rel_3_a_deleted_one_loses_its_service_and_slice_before_its_address() {
    let (world, goal) = served(false);
    let key = key();
    let objects = world.view(&key, &goal).objects;
    let made = cleanup(left("u-a"), &objects, false).unwrap();
    assert_eq!(
        steps(&made.plan),
        [
            "end health checks",
            "delete Service",
            "delete EndpointSlice"
        ]
    );
    assert_eq!((made.verify_absence, made.verify_service), (false, true));
    assert_eq!(made.release.len(), 1);
    // IPA-3: a record of another uid may be that of a later load balancer of the name.
    assert!(
        cleanup(left("u-b"), &objects, false)
            .unwrap()
            .verify_absence
    );
    // Or of an earlier one, which may have had a Service although the deleted one, of cluster type, had none.
    for (uid, wanted) in [("u-a", false), ("u-b", true)] {
        let mut left = left(uid);
        left.deleted.as_mut().unwrap().had_service = false;
        let verifies = cleanup(left, &objects, false).unwrap().verify_service;
        assert_eq!(verifies, wanted, "{uid}");
    }
}

/// The last of those that shared it has left, and the record of the address was deleted by hand.
#[test]
fn shr_7_the_service_of_a_group_that_has_ended_goes_also_without_a_record() {
    let nothing = || LeftBehind {
        deleted: None,
        bound: Vec::new(),
    };
    let (world, goal) = served(false);
    let key = key();
    let objects = world.view(&key, &goal).objects;
    // Nobody waits for it: it may be a copy that somebody has made of another Service.
    assert!(cleanup(nothing(), &objects, false).is_none());
    let made = cleanup(nothing(), &objects, true).unwrap();
    assert!(made.verify_absence && made.release.is_empty());
    let expected = [
        "end health checks",
        "delete Service",
        "delete EndpointSlice",
    ];
    assert_eq!(steps(&made.plan), expected);
}

#[test]
fn a_step_says_what_it_does() {
    let readiness = Readiness::not("NoAvailableIP", "why");
    let commit = Step::Commit(Box::new(StatusUpdate::only(readiness)));
    assert_eq!(commit.to_string(), "commit the address");
}
