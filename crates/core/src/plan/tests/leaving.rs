//! Load balancers that leave those with whom they shared an address, or join them, by rule id.

use std::collections::BTreeSet;

use harvester_lb_ipam::Owner;

use super::leases::held;
use super::world::{ADDRESS, World, lb, machine, serve, service, spec_of};
use crate::cached::VmiState;
use crate::plan::{Goal, Keep, Next, Secondary, Sharing};
use crate::sharing::telling::{self, Shared};
use crate::status::{self, Readiness};

fn condition<'a>(world: &'a World, type_: &str) -> Option<&'a harvester_lb_api::Condition> {
    harvester_lb_api::condition::find(status::conditions(&world.lb), type_)
}

/// The goal of one that shares the address of `web`.
fn secondary(world: &World) -> Goal {
    let mut goal = serve(&world.lb);
    if let Goal::Serve(_, address) = &mut goal {
        address.shared = Some(Shared::Secondary("web".to_owned()));
    }
    goal
}

#[test]
fn shr_7_the_status_of_a_refused_one_that_has_left_a_group_names_no_address() {
    let mut world = World::new(lb(&spec_of(false)));
    world.walk(&secondary(&world), 1);
    let readiness = Readiness::not("InvalidListener", "why");
    let keep = Keep::until(&world.lb, readiness, Next::AwaitChange);
    world.walk(&Goal::Keep(keep.clone()), usize::MAX);
    assert_eq!(status::allocated(&world.lb), Some(ADDRESS));
    assert!(condition(&world, "AddressShared").is_some());

    let keep = keep.without_address(&world.lb);
    world.walk(&Goal::Keep(keep), usize::MAX);
    assert_eq!(status::allocated(&world.lb), None);
    assert_eq!(world.lb.status.as_ref().unwrap().address, None);
    let shared = condition(&world, "AddressShared");
    assert!(shared.is_none_or(|it| it.status == "False"), "{shared:?}");
    let ready = condition(&world, "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("InvalidListener"));
}

#[test]
fn shr_7_while_a_finalizer_holds_the_service_of_one_that_joins_its_endpoints_follow() {
    let mut world = World::new(lb(&spec_of(false)));
    world
        .machines
        .extend([machine("vm1", "10.10.0.1", VmiState::Running)]);
    world.walk(&serve(&world.lb), usize::MAX);
    world.service = Some(held(&service(ADDRESS, Some(ADDRESS))));
    let goal = secondary(&world);
    let holder = Owner::new("n", "web", "u-web");
    let sharing = Sharing::Secondary(Secondary {
        group: "web",
        service: None,
        holder: &holder,
        is_name_taken: false,
        elsewhere: BTreeSet::new(),
        refused: None,
    });
    world.machines.clear();
    let (written, _) = world.walk_as(&goal, sharing, None, usize::MAX);
    assert!(
        written.contains(&"patch EndpointSlice".to_owned()),
        "{written:?}"
    );
    assert!(world.service.is_some());
}

#[test]
fn svc_1_a_holder_keeps_its_address_while_somebody_else_has_the_name_of_its_group() {
    let mut world = World::new(lb(&spec_of(false)));
    let holder = Owner::new("n", "a", "u");
    let walk = |world: &mut World, is_name_taken: bool| {
        let goal = secondary(world);
        let sharing = Sharing::Secondary(Secondary {
            group: "web",
            service: None,
            holder: &holder,
            is_name_taken,
            elsewhere: BTreeSet::new(),
            refused: None,
        });
        world.walk_as(&goal, sharing, None, usize::MAX).0
    };
    walk(&mut world, false);
    assert!(world.slice.is_some());
    // That Service would send its traffic to these endpoints.
    assert_eq!(
        walk(&mut world, true),
        ["delete EndpointSlice", "write status"]
    );
    assert_eq!(status::allocated(&world.lb), Some(ADDRESS));
    let ready = condition(&world, "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("NameConflict"));
    let why = ready.message.as_deref().unwrap_or_default();
    assert_eq!(why, telling::group_name_taken("web"));
    assert_eq!(walk(&mut world, true), Vec::<String>::new());
    // It is served again once the name is free.
    assert_eq!(walk(&mut world, false)[0], "create EndpointSlice");
}

#[test]
fn shr_2_a_port_is_no_part_of_its_endpoint_slice_while_another_one_has_it() {
    let mut world = World::new(lb(&spec_of(false)));
    let holder = Owner::new("n", "web", "u-web");
    let walk = |world: &mut World, elsewhere: &[&str]| {
        let goal = secondary(world);
        let sharing = Sharing::Secondary(Secondary {
            group: "web",
            service: None,
            holder: &holder,
            is_name_taken: false,
            elsewhere: elsewhere.iter().map(|name| (*name).to_owned()).collect(),
            refused: None,
        });
        world.walk_as(&goal, sharing, None, usize::MAX);
        let ports = world.slice.as_ref().and_then(|slice| slice.ports.clone());
        let ports = ports.into_iter().flatten().filter_map(|port| port.name);
        ports.collect::<Vec<_>>()
    };
    assert_eq!(walk(&mut world, &["80-tcp"]), Vec::<String>::new());
    assert_eq!(
        walk(&mut world, &["80-tcp", "81-tcp"]),
        Vec::<String>::new()
    );
    assert_eq!(walk(&mut world, &["81-tcp"]), ["80-tcp"]);
    // What it has stays.
    assert_eq!(walk(&mut world, &["80-tcp"]), ["80-tcp"]);
}

#[test]
fn ipa_6_the_write_that_commits_a_shared_address_says_whose_it_is() {
    let mut world = World::new(lb(&spec_of(false)));
    world.walk(&secondary(&world), 1);
    assert_eq!(status::allocated(&world.lb), Some(ADDRESS));
    assert!(telling::was_of(&world.lb, "web"));
}
