//! Fuzzing with mutated objects of each kind, from the watch through all pure code: no panic, bounded time and memory, errors
//! that name the object and field, and no effect on other load balancers.
//!
//! `HLB_SEED` selects other objects than the default run, `HLB_OBJECTS` their number for each kind. `HLB_SOAK=1` runs the
//! number of the soak with a random seed.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "hostile/built.rs"]
mod built;
#[path = "hostile/effects.rs"]
mod effects;
#[path = "hostile/flood.rs"]
mod flood;
#[path = "hostile/groups.rs"]
mod groups;
#[path = "hostile/kube_vip.rs"]
mod kube_vip;
#[path = "hostile/reached.rs"]
mod reached;
#[path = "hostile/scene.rs"]
mod scene;
#[path = "hostile/told.rs"]
mod told;

use std::collections::HashMap;
use std::net::IpAddr;

use built::build_all;
use effects::{import_claims_nothing_of_others, is_lease_of_its_name};
use flood::{OBJECTS, SOAK, flood};
use groups::Groups;
use harvester_lb_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use harvester_lb_api::meta::Decoded;
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, keys, meta};
use harvester_lb_core::backends::DiscoveredBackends;
use harvester_lb_core::cached::{self, Allocation, Lb, Pool, Vm, Vmi};
use harvester_lb_core::pool_spec::{exclusions_of, pool_spec};
use harvester_lb_core::pool_status::{self, INVALID_EXCLUDE};
use harvester_lb_core::reasons::{
    INTERFACE_NOT_ALLOWED, INVALID_HARDWARE_ADDRESS, INVALID_PRIMARY, INVALID_REQUESTED_ADDRESS,
    PORT_CONFLICT, PRIMARY_NOT_FOUND, REQUESTED_ADDRESS_UNAVAILABLE,
};
use harvester_lb_core::status::{Readiness, StatusUpdate};
use harvester_lb_core::{backend_addresses, desired, spec, spec_annotations};
use harvester_lb_hostile::{Kind, amount};
use harvester_lb_ipam::{Micros, PoolName, addr, import, manual_release};
use harvester_lb_object::{Key, Version};
use scene::{CALM, LOUD, calm_lb, id};
use told::{NOW, Reasons, is_named, is_told};

fn vmi(name: &str) -> (Key, Vmi) {
    let object: VirtualMachineInstance = scene::object(serde_json::json!({
        "metadata": {"namespace": LOUD, "name": name, "uid": name, "labels": {"app": "web"}},
        "spec": {}, "status": {"interfaces": [{"name": "a", "ipAddress": "10.244.0.7"}]},
    }));
    (Key::new(LOUD, name), Vmi::from_watch(Ok(object)))
}

#[test]
fn input_mutated_load_balancers() {
    let machines: Vec<_> = (0..3).map(|n| vmi(&format!("vm{n}"))).collect();
    let name = |number: usize| format!("lb{}", number % 40);
    let mut groups = Groups::new();
    let mut reasons = Reasons::default();
    flood::<LoadBalancer>(Kind::LoadBalancer, name, |scene, key, version, decoded| {
        let (lb, role) = groups.set(key, Lb::from_watch(decoded));
        assert_eq!(lb.meta().managed_fields, None);
        if kube_vip::is_passed_on(lb.meta(), None) {
            reasons.add(INTERFACE_NOT_ALLOWED);
        }
        let lb = match lb {
            Lb::Invalid(meta, error) => {
                is_named("LoadBalancer", key, error);
                let owner = spec::owner(meta);
                scene.leader.ledger.dequeue(&owner);
                let existing = import::ExistingLb {
                    owner,
                    created: Micros(0),
                    status: None,
                    wants: true,
                };
                import_claims_nothing_of_others(scene, &[], &[existing]);
                return;
            }
            Lb::Valid(lb) => lb,
        };
        kube_vip::is_claim_sound(lb);
        let request = spec::request(lb);
        let existing = import::ExistingLb {
            owner: request.owner.clone(),
            created: request.created,
            status: request.status.clone(),
            wants: true,
        };
        import_claims_nothing_of_others(scene, &[], &[existing]);
        let checked = match spec::check(lb) {
            Ok(checked) => checked,
            Err(error) => {
                let message = format!("LoadBalancer {key}: {error}");
                let names = match error.reason() {
                    INVALID_REQUESTED_ADDRESS => keys::ANNOTATION_REQUESTED_ADDRESS,
                    INVALID_HARDWARE_ADDRESS => keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
                    _ => "spec.",
                };
                assert!(message.contains(names), "{message}");
                reasons.add(error.reason());
                let refused = Readiness::not(error.reason(), message);
                return is_told(lb, &StatusUpdate::only(refused));
            }
        };
        if let Some(update) = groups::refusal(lb, role.as_ref()) {
            reasons.add(update.readiness.reason);
            return is_told(lb, &update);
        }
        let report = match scene.allocate(&request, version) {
            Ok(_) => StatusUpdate::only(Readiness::ready()),
            Err((reason, why)) => {
                reasons.add(reason.as_str());
                let message = match request.requested {
                    Some(_) => spec_annotations::unavailable(&lb.metadata, &why),
                    None => why.to_string(),
                };
                StatusUpdate::only(Readiness::not(reason.as_str(), message))
            }
        };
        if let Some(vm) = &checked.vm {
            let mut found = DiscoveredBackends::default();
            for (key, vmi) in &machines {
                found.add_if_selected(&vm.selector, key, vmi);
            }
            is_told(lb, &build_all(lb, vm, &found, None, None));
        }
        is_told(lb, &report);
        // The next of this name is another object.
        scene.delete(&request, version);
    });
    let all = [
        INVALID_REQUESTED_ADDRESS,
        REQUESTED_ADDRESS_UNAVAILABLE,
        INVALID_HARDWARE_ADDRESS,
        INVALID_PRIMARY,
        PRIMARY_NOT_FOUND,
        PORT_CONFLICT,
        INTERFACE_NOT_ALLOWED,
    ];
    reasons.include(&all, amount(OBJECTS, SOAK));
}

#[test]
fn input_mutated_pools() {
    let name = |number: usize| format!("mutant{}", number % 4);
    let mut reasons = Reasons::default();
    flood::<IPPool>(Kind::IpPool, name, |scene, key, _, decoded| {
        let pool = Pool::from_watch(decoded);
        if let Err(error) = &pool.spec {
            is_named("IPPool", key, error);
        }
        let name = PoolName::from(&*key.name);
        scene.leader.set_pool(key, &pool);
        let dirty = scene.leader.take_dirty();
        assert!(dirty.iter().any(|(pool, _)| *pool == name));
        let ledger = &scene.leader.ledger;
        let sound = pool_spec(&name, &pool, Micros(0));
        for limit in [1_000_000, 100] {
            let projection = pool_status::project(ledger, &name, limit).unwrap();
            assert!(projection.total >= 0 && projection.available >= 0);
            assert!(projection.available <= projection.total);
            let all = pool_status::conditions(ledger, &name, &pool, &projection, NOW);
            let said = all.iter().find(|c| c.type_ == "Ready").unwrap();
            assert_eq!(
                said.status == "True",
                sound.ranges.is_ok() && sound.withheld.is_none()
            );
            if said.reason.as_deref() == Some(INVALID_EXCLUDE) {
                reasons.add(INVALID_EXCLUDE);
                let message = said.message.as_deref().unwrap_or_default();
                assert!(
                    message.contains(keys::ANNOTATION_EXCLUDE) && message.contains(&*key.name),
                    "{message}"
                );
            }
            assert!(
                all.iter().all(|c| c.type_ != "Ready"
                    || c.message.as_deref().unwrap_or_default().len() < 1_024)
            );
        }
        let wish = meta::annotation(&pool.meta, keys::ANNOTATION_MANUALLY_RELEASE_IP);
        if let Some(wish) = wish {
            let verdict = manual_release::verdict(ledger, &name, wish, |_| false, Micros(9));
            assert!(!matches!(verdict, manual_release::Verdict::Release(_)));
        }
        let maps = pool.foreign_maps.as_ref().map(|maps| import::PoolMaps {
            name: name.clone(),
            created: Micros(0),
            allocated: maps.allocated.clone().into_iter().collect(),
            history: maps.history.clone().into_iter().collect(),
        });
        let existing = spec::request(&calm_lb("holds", "u-holds", "calm"));
        let existing = import::ExistingLb {
            owner: existing.owner,
            created: existing.created,
            status: None,
            wants: true,
        };
        import_claims_nothing_of_others(scene, maps.as_slice(), &[existing]);
        // A load balancer that names the pool gets an address or a reason; then it is deleted.
        let request = spec::request(&calm_lb("guest", "u-guest", &key.name));
        match scene.allocate(&request, 7) {
            Ok(addr) => {
                // One with an invalid list allocates nothing.
                let excluded = exclusions_of(&pool.meta).unwrap();
                assert!(!excluded.contains(addr), "{addr} is excluded");
                reasons.add(if excluded.is_empty() {
                    "allocated"
                } else {
                    "allocated beside exclusions"
                });
            }
            Err((reason, why)) => {
                reasons.add(reason.as_str());
                assert!(why.to_string().contains(&*key.name), "{why}");
            }
        }
        scene.delete(&request, 8);
    });
    let all = [INVALID_EXCLUDE, "allocated", "allocated beside exclusions"];
    reasons.include(&all, amount(OBJECTS, SOAK));
}

#[test]
fn input_mutated_records() {
    // Names of valid IPAllocations, of none, names that are no address, and those of leases.
    let name = |number: usize| match number % 11 {
        6 => "fd66-0000-0000-0000-0000-0000-0000-0007".to_owned(),
        7 => "not-an-address".to_owned(),
        8..=10 => format!("dhcp-6f1c6f0a-3f0e-4b57-9d4e-00000000000{}", number % 5),
        n => format!("10.66.{}.{}", n / 4, 9 + number % 5),
    };
    let mut newest: HashMap<IpAddr, u64> = HashMap::new();
    let (mut leases, mut unreadable_leases, mut shared) = (0, 0, 0);
    flood::<IPAllocation>(Kind::IpAllocation, name, |scene, key, _, decoded| {
        let undecodable = decoded.as_ref().err().map(|e| e.error.clone());
        let allocation = Allocation::from_watch(decoded);
        let addr = addr::parse_record_name(&key.name);
        scene.leader.observe_allocation(&key.name, &allocation);
        let version = match &allocation {
            Allocation::Valid { record, .. } => {
                assert_eq!(addr, Some(record.spec.addr), "it speaks of another address");
                cached::allocation_spec(&record.spec);
                shared += usize::from(record.spec.group.is_some());
                record.version
            }
            Allocation::Lease(record) => {
                assert_eq!(addr, None, "it has the name of an address");
                leases += 1;
                is_lease_of_its_name(scene, key, record);
                return scene.nobody_is_harmed();
            }
            Allocation::UnreadableLease(why) => {
                assert_eq!(addr, None, "it has the name of an address");
                unreadable_leases += 1;
                match undecodable {
                    Some(error) => is_named("IPAllocation", key, &error),
                    None => assert!(why.starts_with("spec."), "{why}"),
                }
                return scene.nobody_is_harmed();
            }
            Allocation::Reserved => {
                assert_eq!(addr, None, "it has the name of an address");
                return scene.nobody_is_harmed();
            }
            Allocation::Unreadable { why, version } => {
                match undecodable {
                    Some(error) => is_named("IPAllocation", key, &error),
                    None => assert!(
                        why.contains("spec.address") || why.contains("spec.owner"),
                        "{why}"
                    ),
                }
                // A version older than the known one is ignored; an unparsable version may count or not.
                let is_news = |addr| newest.get(&addr).is_none_or(|n| *n < version.0);
                if let Some(addr) = addr.filter(|a| version.0 == 0 || is_news(*a)) {
                    assert!(!scene.is_free(addr), "its name is not blocked");
                }
                *version
            }
        };
        if let Some(addr) = addr {
            let known = newest.entry(addr).or_default();
            *known = version.0.max(*known);
        }
        scene.leader.take_dirty();
        scene.leader.ledger.take_wakes();
        scene.leader.ledger.history_excess(64);
        scene.nobody_is_harmed();
        // After its deletion the address is available once its owner is deleted or has another.
        scene.leader.forget(&key.name, version);
        if let Allocation::Valid { record, .. } = &allocation {
            for owner in [record.spec.owner.id.clone(), record.spec.address_of()] {
                if owner != id(CALM, "holds") {
                    scene.leader.ledger.withdraw(&owner);
                }
            }
        }
        scene.nobody_is_harmed();
        if let Some(addr) = addr {
            assert!(scene.is_free(addr), "{addr} is lost");
        }
    });
    let least = amount(OBJECTS, SOAK) / 50;
    assert!(
        leases >= least && unreadable_leases >= least && shared >= least,
        "{leases} leases, {unreadable_leases} unreadable, {shared} of groups"
    );
}

#[test]
fn input_mutated_instances() {
    let lb: LoadBalancer = calm_lb("loud", "u-loud", "calm");
    let vm = spec::check(&lb).unwrap().vm.unwrap();
    let name = |number: usize| format!("vm{}", number % 100);
    flood(Kind::Vmi, name, |_, key, _, decoded| {
        let was_decoded = Decoded::<VirtualMachineInstance>::is_ok(&decoded);
        let machine = Vmi::from_watch(decoded);
        assert!(was_decoded || machine.address.is_none());
        if let Some(ip) = machine.address {
            let bad = ip.is_unspecified() || ip.is_loopback() || ip.is_link_local();
            assert!(!bad && !ip.is_multicast(), "{ip} is no backend");
        }
        let mut found = DiscoveredBackends::default();
        found.add_if_selected(&vm.selector, key, &machine);
        let (other, sound) = vmi("sound");
        found.add_if_selected(&vm.selector, &other, &sound);
        assert!(found.backends.iter().any(|b| b.uid == "sound"));
        is_told(&lb, &build_all(&lb, &vm, &found, None, None));
    });
}

#[test]
fn input_mutated_machines() {
    let name = |number: usize| format!("vm{}", number % 100);
    flood::<VirtualMachine>(Kind::Vm, name, |_, _, _, decoded| {
        let machine = Vm::from_watch(decoded);
        assert_ne!(machine.guest_cluster.as_deref(), Some(""));
    });
}

#[test]
fn input_mutated_services() {
    let of_kube_vip = kube_vip::asks_for_everything();
    let mut lb: LoadBalancer = calm_lb("web", "u-web", "calm");
    lb.metadata.namespace = Some(LOUD.to_owned());
    let vm = spec::check(&lb).unwrap().vm.unwrap();
    let name = |number: usize| format!("web{}", number % 10);
    flood(Kind::Service, name, |scene, key, _, decoded| {
        let Some(present) = cached::service(decoded) else {
            return;
        };
        backend_addresses::ServiceAddresses::of(&present);
        let shown = cached::shown_addresses(&present);
        scene.leader.ledger.set_shown(&id(LOUD, &key.name), &shown);
        scene.leader.ledger.take_wakes();
        desired::ownership(&present.metadata, "web");
        let report = build_all(
            &lb,
            &vm,
            &DiscoveredBackends::default(),
            Some(&present),
            None,
        );
        is_told(&lb, &report);
        kube_vip::is_passed_on(&of_kube_vip, Some(&present.metadata));
        kube_vip::is_read(&present);
        assert!(meta::version(&present.metadata) >= Version(0));
    });
}

#[test]
fn input_mutated_slices() {
    let lb: LoadBalancer = calm_lb("web", "u-web", "calm");
    let vm = spec::check(&lb).unwrap().vm.unwrap();
    let (key, machine) = vmi("vm7");
    assert_ne!(&*key.namespace, CALM);
    let name = |number: usize| format!("web{}", number % 10);
    flood(Kind::EndpointSlice, name, |_, _, _, decoded| {
        let Some(present) = cached::slice(decoded) else {
            return;
        };
        let mut found = DiscoveredBackends::default();
        found.add_if_selected(&vm.selector, &key, &machine);
        let report = build_all(&lb, &vm, &found, None, Some(&present));
        is_told(&lb, &report);
        let named = desired::backends(&present);
        let as_it_is: Vec<_> = named.into_iter().map(|b| (b, true)).collect();
        let as_it_is = desired::with_backends(&lb.metadata, &present, &as_it_is);
        assert!(as_it_is.endpoints.len() <= present.endpoints.len() + 1);
    });
}
