//! Load balancers that leave those with whom they shared an address, or join them, by rule id.

use harvester_lb_fixtures as fixtures;
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::world::{ADDRESS, World, key, lb, object, serve, service, spec_of};
use crate::cached;
use crate::desired::DesiredPort;
use crate::kube_vip_annotations::{Interfaces, Source};
use crate::plan::{Goal, Keep, Next, Objects, Plan, share};
use crate::sharing::service::{Others, Part};
use crate::sharing::telling::{self, Shared};
use crate::spec::Port;
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
fn shr_7_the_service_of_a_primary_without_ports_goes_with_the_last_one_that_leaves() {
    let key = key();
    let owned_by = |names: &[&str]| {
        let service = service(ADDRESS, Some(ADDRESS));
        let owners = names.iter().map(|name| {
            let owner = fixtures::owned_by("n", name, &format!("u-{name}"));
            owner["ownerReferences"][0].clone()
        });
        let mut service: serde_json::Value = serde_json::to_value(&*service).unwrap();
        service["metadata"]["ownerReferences"] = owners.collect();
        cached::service(Ok(object(service))).unwrap()
    };
    let steps = |owners: &[&str], primary: Part, members: &[Key]| {
        let service = owned_by(owners);
        let objects = Objects {
            key: &key,
            service: Some(&service),
            slice: None,
        };
        let others = Others {
            primary: Some(primary),
            secondaries: Vec::new(),
        };
        let (none, allowed) = (ObjectMeta::default(), Interfaces::default());
        let source = Source::of_group("a", &none, &allowed, false);
        let plan: Plan<'_> =
            share::without_primary(&objects, &others, members, ADDRESS, &source, false);
        let steps = plan.steps.iter().map(|it| it.step.to_string());
        steps.collect::<Vec<_>>()
    };
    let (a, c) = (key.name.to_string(), Key::new("n", "c"));
    assert_eq!(steps(&[&a, "c"], Part::default(), &[]), ["delete Service"]);
    // Nobody leaves; one that joins is to replace the port; the primary has one.
    assert!(steps(&[&a], Part::default(), &[]).is_empty());
    assert!(steps(&[&a, "c"], Part::default(), &[c]).is_empty());
    let carried = Part {
        name: a.clone(),
        is_owner: true,
        carried: vec![DesiredPort::of_listener(&Port {
            name: "http".to_owned(),
            protocol: "TCP",
            port: 80,
            backend_port: 8080,
        })],
        ..Part::default()
    };
    assert_eq!(steps(&[&a, "c"], carried, &[]), ["patch Service"]);
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
fn ipa_6_the_write_that_commits_a_shared_address_says_whose_it_is() {
    let mut world = World::new(lb(&spec_of(false)));
    world.walk(&secondary(&world), 1);
    assert_eq!(status::allocated(&world.lb), Some(ADDRESS));
    assert!(telling::was_of(&world.lb, "web"));
}
