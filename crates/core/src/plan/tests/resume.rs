//! A plan is safe to interrupt: whatever was applied of it, the next plans write exactly the rest.

use harvester_lb_api::keys::DHCP_ADDRESS;
use harvester_lb_fixtures as fixtures;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::leases::{leased, without_lease};
use super::world::{
    ADDRESS, World, address, foreign_service, lb, machine, object, serve, service, slice, spec_of,
    wait,
};
use crate::cached::{self, VmiState};
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
    let is_leased = !is_cluster && random.u8(..4) == 0;
    let mut spec = if is_cluster {
        fixtures::cluster_spec()
    } else {
        spec_of(is_checked)
    };
    if is_leased {
        spec["ipam"] = json!("dhcp");
    }
    let mut world = World::new(lb(&spec));
    let other = "10.0.1.7";
    // The last one has kube-vip lease an address.
    let addresses = [ADDRESS, other, DHCP_ADDRESS];
    let addresses = addresses.split_at(if is_leased { 3 } else { 2 }).0;
    let any_address = |random: &mut fastrand::Rng| *random.choice(addresses).unwrap();
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
        0..=2 if is_leased => without_lease(&world),
        3..=6 if is_leased => leased(&world, ADDRESS),
        0 | 1 => wait(&world.lb),
        2 => Goal::Keep(Keep::endpoints(&world.lb)),
        3 => {
            let readiness = Readiness::not("ApiError", "the IPAllocation cannot be written");
            Goal::Keep(Keep::until(&world.lb, readiness, Next::Backoff))
        }
        4 => Goal::AddressOnly(address(ADDRESS)),
        _ => serve(&world.lb),
    };
    for _ in 0..random.usize(..3) {
        make_odd(random, &mut world);
    }
    (world, goal)
}

/// A value that nobody but an attacker writes, where the API server admits it.
pub(super) fn make_odd(random: &mut fastrand::Rng, world: &mut World) {
    let long = "é".repeat(2_000);
    let text = *random
        .choice(&["", " ", "\n", "::ffff:10.0.0.2", "10.0.0.300", &long])
        .unwrap();
    let place = random.u8(..12);
    let metadata = |meta: &mut ObjectMeta| match place {
        0 => meta.labels = None,
        1 => meta.annotations = Some([(text.to_owned(), text.to_owned())].into()),
        // A finalizer holds it.
        _ => meta.deletion_timestamp = Some(object(json!("2026-01-01T00:00:00Z"))),
    };
    if let Some(service) = world.service.as_deref().filter(|_| place < 6) {
        let mut service = service.clone();
        let spec = service.spec.get_or_insert_default();
        match place {
            0..=2 => metadata(&mut service.metadata),
            3 => spec.load_balancer_ip = Some(text.to_owned()),
            4 => spec.ports = None,
            _ => {
                let ingress =
                    json!({"loadBalancer": {"ingress": [{"ip": text}, {"hostname": text}]}});
                service.status = object(ingress);
            }
        }
        world.service = cached::service(Ok(service));
    }
    if let Some(slice) = &mut world.slice {
        match place {
            0..=2 => metadata(&mut slice.metadata),
            6 => slice.endpoints.extend(slice.endpoints.clone()),
            7 => slice
                .endpoints
                .iter_mut()
                .for_each(|it| it.addresses = vec![text.to_owned()]),
            8 => slice
                .endpoints
                .iter_mut()
                .for_each(|it| it.target_ref = None),
            _ => {}
        }
    }
    match place {
        9 => {
            let condition = |type_: &str| json!({"type": type_, "status": text, "reason": text, "message": text});
            let all = ["Ready", "Ready", "AddressShared", "BackendsHealthy", text].map(condition);
            world.lb.status.get_or_insert_default().conditions = object(json!(all));
        }
        10 => {
            let status = world.lb.status.get_or_insert_default();
            status.address = Some(text.to_owned());
            status.allocated_address = object(json!({"ip": text, "ipPool": text, "mask": text}));
        }
        11 => {
            let keys = [
                "kube-vip.io/serviceInterface",
                "kube-vip.io/loadbalancerHostname",
            ];
            let annotations = keys.map(|key| (key.to_owned(), text.to_owned()));
            let present = world.lb.metadata.annotations.get_or_insert_default();
            present.extend(annotations);
        }
        _ => {}
    }
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
