//! Load balancers that leave those with whom they shared an address, or join them, by rule id.

use std::collections::BTreeSet;

use harvester_lb_api::keys;
use harvester_lb_ipam::Owner;

use super::leases::held;
use super::world::{ADDRESS, World, address, lb, machine, serve, service, slice, spec_of};
use crate::cached::VmiState;
use crate::plan::{Address, Goal, Keep, Next, Secondary, Sharing};
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

/// The other load balancer may have moved, and a refused spec is no reason to go on naming an address that is to be released (REL-4).
#[test]
fn shr_3_a_refused_one_that_shares_an_address_says_what_becomes_of_it() {
    const MOVED: &str = "10.0.0.3";
    let refused = |world: &World| {
        let readiness = Readiness::not("InvalidListener", "why");
        let shared = Address {
            shared: Some(Shared::Secondary("web".to_owned())),
            ..address(MOVED)
        };
        Goal::Keep(Keep {
            shared: Some(Box::new(shared)),
            ..Keep::until(&world.lb, readiness, Next::AwaitChange)
        })
    };
    let carrying = |asks: &str, shows: Option<&str>| {
        let mut service = (*service(asks, shows)).clone();
        service.metadata.name = Some("web".to_owned());
        service
    };
    let mut world = World::new(lb(&spec_of(false)));
    world.walk(&secondary(&world), 1);
    let mut slice = slice(&[]);
    let labels = slice.metadata.labels.get_or_insert_default();
    labels.insert(keys::LABEL_SERVICE_NAME.to_owned(), "web".to_owned());
    for (service, has_slice, shown, announced) in [
        (
            Some(carrying(MOVED, Some(ADDRESS))),
            true,
            Some(ADDRESS),
            "still announces",
        ),
        (Some(carrying(MOVED, Some(MOVED))), true, Some(MOVED), MOVED),
        // It has no port of this load balancer, or there is none while it is made anew.
        (
            Some(carrying(MOVED, Some(MOVED))),
            false,
            None,
            "to announce",
        ),
        (None, true, None, "to announce"),
    ] {
        let mut world = world.clone();
        world.slice = has_slice.then(|| slice.clone());
        let goal = refused(&world);
        world.walk_as(&goal, Sharing::Alone, service.as_ref(), usize::MAX);
        assert_eq!(status::allocated(&world.lb), Some(MOVED));
        let status = world.lb.status.as_ref().unwrap();
        assert_eq!(status.address.as_deref(), shown, "{announced}");
        let ready = condition(&world, "Ready").unwrap();
        assert_eq!(ready.reason.as_deref(), Some("InvalidListener"));
        let message = |type_| condition(&world, type_).unwrap().message.clone().unwrap();
        assert!(message("Announced").contains(announced));
        assert!(message("AddressAllocated").contains(MOVED));
        assert!(
            telling::was_of(&world.lb, "web"),
            "{}",
            message("AddressShared")
        );
        // Said once.
        let (written, _) = world.walk_as(&goal, Sharing::Alone, service.as_ref(), usize::MAX);
        assert_eq!(written, [""; 0]);
    }
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
