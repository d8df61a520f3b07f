//! A plan is safe to interrupt: whatever was applied of it, the next plans write exactly the rest.

use harvester_lb_fixtures as fixtures;
use serde_json::json;

use super::world::{
    ADDRESS, World, address, foreign_service, lb, machine, serve, service, slice, spec_of, wait,
};
use crate::cached::VmiState;
use crate::plan::{Goal, Keep, Next};
use crate::status::Readiness;

const SEEDS: u64 = 4_000;

/// Writes until nothing is left to write. More walks than this would not come to rest.
fn run(world: &mut World, goal: &Goal) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..4 {
        let (written, next) = world.walk(goal, usize::MAX);
        assert!(next.is_some());
        if written.is_empty() {
            return all;
        }
        all.extend(written);
    }
    panic!("does not come to rest: {all:?}");
}

/// A load balancer in any state that its objects can be in, with a goal.
fn any(random: &mut fastrand::Rng) -> (World, Goal) {
    let is_cluster = random.u8(..8) == 0;
    let is_checked = random.bool();
    let spec = if is_cluster {
        fixtures::cluster_spec()
    } else {
        spec_of(is_checked)
    };
    let mut world = World::new(lb(&spec));
    let other = "10.0.1.7";
    let any_address = |random: &mut fastrand::Rng| *random.choice(&[ADDRESS, other]).unwrap();
    if random.bool() {
        let ip = any_address(random);
        let status = json!({
            "address": if random.bool() { ip } else { "" },
            "allocatedAddress": address(ip).allocated,
            "backendServers": ["10.10.0.1"],
        });
        world.lb.status = serde_json::from_value(status).unwrap();
    }
    world.service = match random.u8(..6) {
        0 | 1 => None,
        2 => Some(foreign_service()),
        3 => Some(service(any_address(random), None)),
        _ => {
            let shows = any_address(random);
            Some(service(any_address(random), Some(shows)))
        }
    };
    let endpoints = [
        ("vm1", "10.10.0.1"),
        ("vm2", "10.10.0.2"),
        ("gone", "10.10.0.9"),
    ];
    if random.u8(..3) > 0 {
        let count = random.usize(..=endpoints.len());
        let mut slice = slice(&endpoints[..count]);
        match random.u8(..8) {
            // With it goes the readiness of health checks, which no other object has.
            0 if !is_checked => "IPv6".clone_into(&mut slice.address_type),
            1 => slice.metadata.owner_references = None,
            2 => slice.ports = None,
            _ => {}
        }
        world.slice = Some(slice);
    } else {
        world.has_foreign_slice = random.u8(..6) == 0;
    }
    for (name, address) in &endpoints[..2] {
        if random.bool() {
            let states = [VmiState::Running, VmiState::Running, VmiState::Failed];
            let state = *random.choice(&states).unwrap();
            world.machines.extend([machine(name, address, state)]);
        }
    }
    let goal = match random.u8(..8) {
        _ if is_cluster && random.bool() => Goal::AddressOnly(address(ADDRESS)),
        _ if is_cluster => wait(&world.lb),
        0 | 1 => wait(&world.lb),
        2 => Goal::Keep(Keep::endpoints(&world.lb)),
        3 => {
            let readiness = Readiness::not("ApiError", "the IPAllocation cannot be written");
            Goal::Keep(Keep::until(&world.lb, readiness, Next::Backoff))
        }
        4 => Goal::AddressOnly(address(ADDRESS)),
        _ => serve(&world.lb),
    };
    (world, goal)
}

#[test]
fn a_plan_that_was_applied_up_to_any_step_and_is_planned_again_gives_the_rest() {
    let mut longest = 0;
    for seed in 0..SEEDS {
        let (start, goal) = any(&mut fastrand::Rng::with_seed(seed));
        let mut whole = start.clone();
        let all = run(&mut whole, &goal);
        longest = longest.max(all.len());
        for cut in 0..all.len() {
            let mut world = start.clone();
            let (mut written, _) = world.walk(&goal, cut);
            world.restart();
            written.extend(run(&mut world, &goal));
            assert_eq!(written, all, "seed {seed}, cut after {cut}: {goal:?}");
            assert_eq!(world.objects(), whole.objects(), "seed {seed}, {cut}");
        }
    }
    assert!(longest >= 4, "{longest}");
}

#[test]
fn rec_5_at_rest_nothing_is_written() {
    for seed in 0..SEEDS {
        let (mut world, goal) = any(&mut fastrand::Rng::with_seed(seed));
        run(&mut world, &goal);
        world.restart();
        let (written, _) = world.walk(&goal, usize::MAX);
        assert_eq!(written, Vec::<String>::new(), "seed {seed}");
    }
}
