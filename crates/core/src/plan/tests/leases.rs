//! Addresses that a DHCP server leases (DHC-1, DHC-3, DHC-6).

use harvester_lb_ipam::dhcp::Identity;
use harvester_lb_ipam::{Micros, Owner, Phase, Record, RecordSpec, Uid};
use harvester_lb_object::Version;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::world::{World, key, lb, machine, object, service, spec_of};
use crate::cached::{self, CachedService, VmiState};
use crate::dhcp::serving::Handed;
use crate::plan::{Address, Goal, Guard, Keep, Next, SeenLease, Waiting, plan};
use crate::status::Readiness;
use crate::{spec, status};

const LEASED: &str = "192.168.100.210";
const OTHER: &str = "192.168.100.211";

fn seen(version: Option<u64>) -> SeenLease {
    SeenLease {
        name: "dhcp-u".to_owned(),
        version: version.map(Version),
    }
}

fn world() -> World {
    let mut spec = spec_of(false);
    spec["ipam"] = json!("dhcp");
    let mut world = World::new(lb(&spec));
    world
        .machines
        .extend([machine("vm1", "10.10.0.1", VmiState::Running)]);
    world
}

fn vm(world: &World) -> Box<spec::VmSpec> {
    Box::new(spec::check(&world.lb).unwrap().vm.unwrap())
}

/// To serve it with a leased address.
pub(super) fn leased(world: &World, address: &str) -> Goal {
    let address = Address::leased(address.parse().unwrap(), seen(Some(7)), Vec::new());
    Goal::Serve(vm(world), address)
}

/// To wait for a lease.
pub(super) fn without_lease(world: &World) -> Goal {
    let waiting = Waiting {
        lease: Some(seen(Some(8))),
        ..Waiting::because(status::WAITING_FOR_LEASE, "why".to_owned(), Vec::new())
    };
    Goal::Wait(Some(vm(world)), waiting)
}

fn allocated(world: &World) -> Option<String> {
    let status = world.lb.status.clone()?;
    status.allocated_address?.ip
}

fn asked(world: &World) -> Option<String> {
    let service = world.service.as_ref()?;
    service.spec.as_ref()?.load_balancer_ip.clone()
}

#[test]
fn dhc_1_the_service_has_the_leased_address_and_the_status_says_dhcp() {
    let mut world = world();
    let (goal, key) = (leased(&world, LEASED), key());
    let view = world.clone();
    let view = view.view(&key, &goal);
    let planned = plan(&view, &goal);
    let last = planned.steps.last().unwrap();
    assert_eq!(last.step.to_string(), "create Service");
    assert_eq!(
        last.guards,
        [Guard::CaughtUp, Guard::LeaseUnchanged(seen(Some(7)))]
    );
    world.walk(&goal, usize::MAX);
    assert_eq!(asked(&world).as_deref(), Some(LEASED));
    assert_eq!(allocated(&world).as_deref(), Some("0.0.0.0"));
    // Announced.
    world.service = Some(service(LEASED, Some(LEASED)));
    world.walk(&goal, usize::MAX);
    let status = world.lb.status.clone().unwrap();
    assert_eq!(status.address.as_deref(), Some(LEASED));
    let allocated = harvester_lb_api::condition::find(
        status.conditions.as_deref().unwrap(),
        "AddressAllocated",
    );
    assert_eq!(
        allocated.unwrap().message.as_deref(),
        Some("192.168.100.210 by DHCP")
    );
    assert_eq!(world.walk(&goal, usize::MAX).0, Vec::<String>::new());
}

#[test]
fn dhc_3_without_a_lease_the_service_goes_and_the_status_still_says_dhcp() {
    let mut world = world();
    let goal = leased(&world, LEASED);
    world.walk(&goal, usize::MAX);
    let goal = without_lease(&world);
    let (key, before) = (key(), world.clone());
    let view = before.view(&key, &goal);
    let planned = plan(&view, &goal);
    assert_eq!(
        planned.steps[0].guards,
        [Guard::Unchanged, Guard::LeaseUnchanged(seen(Some(8)))]
    );
    world.walk(&goal, usize::MAX);
    assert!(world.service.is_none() && world.slice.is_none());
    assert_eq!(allocated(&world).as_deref(), Some("0.0.0.0"));
    let status = world.lb.status.clone().unwrap();
    assert_eq!(status.address, None);
    let ready = harvester_lb_api::condition::find(status.conditions.as_deref().unwrap(), "Ready");
    assert_eq!(ready.unwrap().reason.as_deref(), Some("WaitingForLease"));
}

#[test]
fn dhc_3_a_service_with_another_address_than_the_lease_goes_first() {
    for before in [LEASED, "0.0.0.0"] {
        let mut world = world();
        world.service = Some(service(before, Some(LEASED)));
        let goal = leased(&world, OTHER);
        let (written, _) = world.walk(&goal, usize::MAX);
        assert!(
            written.iter().any(|it| it == "delete Service"),
            "{before}: {written:?}"
        );
        assert!(world.service.is_none(), "{before}");
        world.walk(&goal, usize::MAX);
        assert_eq!(asked(&world).as_deref(), Some(OTHER), "{before}");
    }
}

#[test]
fn dhc_3_while_a_finalizer_holds_the_service_its_endpoints_follow() {
    let mut world = world();
    world.walk(&leased(&world, LEASED), usize::MAX);
    world.service = Some(held(&service(LEASED, Some(LEASED))));
    let goal = leased(&world, OTHER);
    assert_eq!(world.walk(&goal, usize::MAX).0, Vec::<String>::new());
    world.machines.clear();
    assert_eq!(world.walk(&goal, usize::MAX).0, ["patch EndpointSlice"]);
    assert_eq!(asked(&world).as_deref(), Some(LEASED));
}

/// The next reconcile sees no address that could be lost.
#[test]
fn dhc_3_the_status_of_a_refused_one_says_the_same_after_its_lease_was_lost() {
    let mut world = world();
    world.walk(&leased(&world, LEASED), usize::MAX);
    world.service = Some(service(LEASED, Some(LEASED)));
    world.walk(&leased(&world, LEASED), usize::MAX);
    world.service = None;
    let readiness = Readiness::not("InvalidRequestedAddress", "why");
    let refused = Keep::until(&world.lb, readiness, Next::AwaitChange);
    let lost = Goal::Keep(refused.clone().without_lease());
    assert_eq!(world.walk(&lost, usize::MAX).0, ["write status"]);
    assert_eq!(world.lb.status.as_ref().unwrap().address, None);
    let again = world.walk(&Goal::Keep(refused), usize::MAX).0;
    assert_eq!(again, Vec::<String>::new());
}

/// A Service in deletion.
pub(super) fn held(service: &CachedService) -> CachedService {
    let mut service = Service::clone(service);
    let time = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    service.metadata.deletion_timestamp = object::<ObjectMeta>(time).deletion_timestamp;
    cached::service(Ok(service)).unwrap()
}

#[test]
fn dhc_6_kube_vip_asks_for_what_was_given_back() {
    let mut world = world();
    let hardware = Identity::new(&Uid::new("u"), None).hardware;
    let handed = Handed {
        address: LEASED.parse().unwrap(),
        hardware,
    };
    let address = Address::by_dhcp(Vec::new(), Some(seen(Some(7))), Some(handed));
    let goal = Goal::Serve(vm(&world), address);
    world.walk(&goal, usize::MAX);
    assert_eq!(asked(&world).as_deref(), Some("0.0.0.0"));
    let annotation = |world: &World, key: &str| {
        let service = world.service.as_ref().unwrap();
        let all = service.metadata.annotations.clone().unwrap();
        all.get(&format!("kube-vip.io/{key}")).cloned()
    };
    assert_eq!(annotation(&world, "requestedIP").as_deref(), Some(LEASED));
    assert_eq!(annotation(&world, "hwaddr"), Some(hardware.to_string()));
    // What kube-vip has written stays, and what was handed over stays when the record is gone.
    let mut edited = Service::clone(world.service.as_ref().unwrap());
    let all = edited.metadata.annotations.as_mut().unwrap();
    all.insert("kube-vip.io/requestedIP".to_owned(), OTHER.to_owned());
    world.service = cached::service(Ok(edited));
    world.walk(&goal, usize::MAX);
    assert_eq!(annotation(&world, "requestedIP").as_deref(), Some(OTHER));
    let goal = Goal::Serve(
        vm(&world),
        Address::by_dhcp(Vec::new(), Some(seen(None)), None),
    );
    world.walk(&goal, usize::MAX);
    assert_eq!(annotation(&world, "hwaddr"), Some(hardware.to_string()));
}

#[test]
fn dhc_3_kube_vip_follows_no_leased_address_in_place() {
    let to_kube_vip = |world: &World, records| {
        let address = Address::by_dhcp(records, Some(seen(Some(8))), None);
        Goal::Serve(vm(world), address)
    };
    let mut world = world();
    world.service = Some(service(LEASED, Some(LEASED)));
    let goal = to_kube_vip(&world, Vec::new());
    let (key, before) = (key(), world.clone());
    let planned_view = before.view(&key, &goal);
    let planned = plan(&planned_view, &goal);
    let last = planned.steps.last().unwrap();
    assert_eq!(last.step.to_string(), "delete Service");
    let lease = Guard::LeaseUnchanged(seen(Some(8)));
    assert_eq!(last.guards, [Guard::CaughtUp, lease.clone()]);
    world.walk(&goal, usize::MAX);
    assert!(world.service.is_none());
    let before = world.clone();
    let planned_view = before.view(&key, &goal);
    let planned = plan(&planned_view, &goal);
    let last = planned.steps.last().unwrap();
    assert_eq!(last.step.to_string(), "create Service");
    assert_eq!(last.guards, [Guard::CaughtUp, lease]);
    world.walk(&goal, usize::MAX);
    assert_eq!(asked(&world).as_deref(), Some("0.0.0.0"));
    // That of a pool is changed in place, as by upstream.
    let pool = |address: &str| {
        let mut world = self::world();
        world.service = Some(service(address, Some(address)));
        world
    };
    let mut of_pool = pool("10.0.0.2");
    let goal = to_kube_vip(&of_pool, vec![bound("10.0.0.2")]);
    let (written, _) = of_pool.walk(&goal, usize::MAX);
    assert!(
        written.iter().any(|it| it == "patch Service"),
        "{written:?}"
    );
    // What a pool has released reserves nothing: the address is a leased one.
    let mut once = pool("10.0.0.2");
    let mut released = bound("10.0.0.2");
    released.spec.phase = Phase::Released;
    let goal = to_kube_vip(&once, vec![released]);
    let (written, _) = once.walk(&goal, usize::MAX);
    assert!(
        written.iter().any(|it| it == "delete Service"),
        "{written:?}"
    );
}

/// Left from the mode `builtin`: the record of a lost lease is deleted without a look at the Service.
#[test]
fn dhc_6_kube_vip_follows_no_leased_address_in_place_without_a_record_either() {
    let to_kube_vip = |world: &World| {
        let address = Address::by_dhcp(Vec::new(), Some(seen(None)), None);
        Goal::Serve(vm(world), address)
    };
    let mut world = world();
    world.service = Some(service(LEASED, Some(LEASED)));
    let goal = to_kube_vip(&world);
    let (key, before) = (key(), world.clone());
    let planned_view = before.view(&key, &goal);
    let planned = plan(&planned_view, &goal);
    let last = planned.steps.last().unwrap();
    assert_eq!(last.step.to_string(), "delete Service");
    let lease = Guard::LeaseUnchanged(seen(None));
    assert_eq!(last.guards, [Guard::CaughtUp, lease]);
    world.walk(&goal, usize::MAX);
    world.walk(&goal, usize::MAX);
    assert_eq!(asked(&world).as_deref(), Some("0.0.0.0"));
    // kube-vip's own, which somebody has edited: its lease is in its annotations (OPS-3).
    let mut edited = Service::clone(world.service.as_ref().unwrap());
    edited.spec.as_mut().unwrap().load_balancer_ip = Some(OTHER.to_owned());
    let hardware = (
        "kube-vip.io/hwaddr".to_owned(),
        "02:00:00:00:00:01".to_owned(),
    );
    edited.metadata.annotations = Some([hardware].into());
    world.service = cached::service(Ok(edited));
    let (written, _) = world.walk(&goal, usize::MAX);
    assert!(
        written.iter().any(|it| it == "patch Service"),
        "{written:?}"
    );
}

#[test]
fn dhc_3_a_service_that_a_finalizer_holds_gets_no_other_address() {
    let mut world = world();
    let mut held = Service::clone(&service(LEASED, Some(LEASED)));
    held.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    held.metadata.finalizers = Some(vec!["a/b".to_owned()]);
    world.service = cached::service(Ok(held));
    let before = world.objects()["service"].clone();
    let to_kube_vip = Address::by_dhcp(Vec::new(), Some(seen(Some(8))), None);
    for goal in [leased(&world, OTHER), Goal::Serve(vm(&world), to_kube_vip)] {
        world.walk(&goal, usize::MAX);
        assert_eq!(world.objects()["service"], before);
    }
}

/// A record of a pool's address.
fn bound(address: &str) -> Record {
    Record {
        spec: RecordSpec {
            addr: address.parse().unwrap(),
            pool: "p".into(),
            owner: Owner::new("n", "lb", "u"),
            phase: Phase::Bound,
            bound_at: Micros(1),
            released_at: None,
            group: None,
        },
        version: Version(3),
    }
}
