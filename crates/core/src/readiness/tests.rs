use std::sync::Arc;

use harvester_lb_ipam::{OwnerId, Standing};
use harvester_lb_prober::HealthCheck;
use serde_json::json;

use super::*;
use crate::backend_addresses::Refusal;
use crate::backends::{Backend, RefusedBackend, Selector};

fn found(matched: usize, with_address: u8) -> DiscoveredBackends {
    let backend = |n: u8| Backend {
        name: Arc::from(format!("vm{n}")),
        uid: format!("uid{n}"),
        address: [10, 0, 0, n].into(),
        state: VmiState::Running,
    };
    DiscoveredBackends {
        matched,
        backends: (1..=with_address).map(backend).collect(),
        ..DiscoveredBackends::default()
    }
}

/// A spec with this health check.
fn vm(check: Option<HealthCheck>) -> VmSpec {
    VmSpec {
        ports: Vec::new(),
        selector: Selector::default(),
        check,
        mismatch: None,
        unusable_name: None,
    }
}

/// The health check of port 8080.
fn check() -> Option<HealthCheck> {
    HealthCheck::new(Some(8080), None, None, None, None).unwrap()
}

/// The input of a load balancer with an external address and without health check results.
fn input<'a>(key: &'a Key, vm: &'a VmSpec, found: &'a DiscoveredBackends) -> ReadinessInput<'a> {
    ReadinessInput {
        key,
        vm,
        found,
        wanted: "10.9.0.2",
        external: Some("10.9.0.2"),
        healthy: 0,
        probed: 0,
        before: &[],
    }
}

#[test]
fn section_9_reasons_in_their_order() {
    let (probing, plain) = (vm(check()), vm(None));
    let key = Key::new("shop", "web");
    let ip = Some("10.9.0.2");
    // The Service's address, discovered backends, whether the health check is on, healthy, probed.
    let cases = [
        (
            None,
            found(0, 0),
            &probing,
            0,
            0,
            "WaitingForExternalIP",
            "announce 10.9.0.2",
        ),
        (
            ip,
            found(0, 0),
            &probing,
            0,
            0,
            "NoBackend",
            "namespace shop",
        ),
        (
            ip,
            found(2, 0),
            &probing,
            0,
            0,
            "BackendsWithoutIP",
            "none of the 2",
        ),
        (
            ip,
            found(2, 2),
            &probing,
            0,
            0,
            "BackendsUnhealthy",
            "the first health checks of 2 backends on port 8080",
        ),
        (
            ip,
            found(2, 2),
            &probing,
            0,
            1,
            "BackendsUnhealthy",
            "none of 2 backends passes the health check on port 8080",
        ),
        (ip, found(2, 2), &probing, 1, 2, "Ready", ""),
        (ip, found(2, 2), &plain, 2, 0, "Ready", ""),
    ];
    for (external, found, vm, healthy, probed, reason, message) in cases {
        let readiness = readiness(&ReadinessInput {
            external,
            healthy,
            probed,
            ..input(&key, vm, &found)
        });
        assert_eq!(readiness.reason, reason);
        assert!(
            readiness.message.contains(message),
            "{reason}: {}",
            readiness.message
        );
    }
}

#[test]
fn hc_4_what_was_told_before_a_restart_is_not_told_anew() {
    let key = Key::new("shop", "web");
    let vm = vm(check());
    let found = found(2, 2);
    let says = |before: &[Condition], probed: usize| {
        readiness(&ReadinessInput {
            probed,
            before,
            ..input(&key, &vm, &found)
        })
    };
    let stored = |reason: &str, message: &str, marked: bool| {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| Condition {
            type_: type_.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            ..Condition::default()
        };
        let mut all = vec![condition(READY, "False", reason, message)];
        if marked {
            let type_ = status::FIRST_HEALTH_CHECKS;
            all.push(condition(type_, "True", type_, "x"));
        }
        all
    };
    let first = says(&[], 0);
    let failing = says(&[], 1);
    assert!(first.first_checks && !failing.first_checks);
    let unhealthy =
        |readiness: &Readiness, marked| stored("BackendsUnhealthy", &readiness.message, marked);
    // A new process has no result yet.
    assert_eq!(says(&unhealthy(&first, true), 0), first, "still the first");
    assert_eq!(
        says(&unhealthy(&failing, false), 0),
        failing,
        "judged before"
    );
    assert_eq!(
        says(&stored("BackendsUnhealthy", "other words", false), 0),
        failing
    );
    // A status of a version without FirstHealthChecks stays as it is, without that condition.
    let kept = says(&unhealthy(&first, false), 0);
    assert_eq!((&kept.message, kept.first_checks), (&first.message, false));
    assert_eq!(says(&unhealthy(&first, false), 1), failing);
    // After any other condition these are the first health checks.
    for reason in ["WaitingForExternalIP", "NoBackend", "Ready"] {
        assert_eq!(says(&stored(reason, "", false), 0), first, "{reason}");
    }
}

#[test]
fn rec_2_an_ingress_entry_without_an_address_is_none() {
    let service = |ingress| -> Service {
        serde_json::from_value(json!({"status": {"loadBalancer": {"ingress": ingress}}})).unwrap()
    };
    assert_eq!(external_ip(&Service::default()), None);
    assert_eq!(external_ip(&service(json!([]))), None);
    assert_eq!(external_ip(&service(json!([{"hostname": "h"}]))), None);
    assert_eq!(external_ip(&service(json!([{"ip": ""}]))), None);
    assert_eq!(
        external_ip(&service(json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]))),
        Some("10.0.0.1".into())
    );
}

/// A load balancer with this address.
fn present(address: &str, standing: Standing) -> Present<'_> {
    Present {
        address,
        standing,
        unserved: None,
        shared: None,
    }
}

#[test]
fn ipa_2_who_lost_an_address_is_told_to_whom() {
    let address_conflict = AddressConflict {
        addr: [10, 0, 0, 7].into(),
        holder: Some(OwnerId::new("shop", "web")),
    };
    let message = |address_conflict: &AddressConflict, instead: Option<&str>| {
        let all = extras(
            Some(address_conflict),
            instead.map(|address| present(address, Standing::InPool)),
            &DiscoveredBackends::default(),
        );
        all.into_iter()
            .find(|e| e.type_ == status::ADDRESS_LOST)
            .unwrap()
            .message
            .unwrap()
    };
    assert_eq!(
        message(&address_conflict, Some("10.0.0.9")),
        "10.0.0.7 belongs to LoadBalancer shop/web; 10.0.0.9 was allocated instead"
    );
    let address_conflict = AddressConflict {
        holder: None,
        ..address_conflict
    };
    assert!(message(&address_conflict, None).ends_with("may have"));
    assert!(
        extras(None, None, &DiscoveredBackends::default())
            .iter()
            .all(|e| e.message.is_none())
    );
    let all = DiscoveredBackends {
        left_out: 3,
        refused: vec![RefusedBackend {
            name: "a".into(),
            address: [10, 0, 0, 1].into(),
            why: Refusal::Allocated,
        }],
        shared: vec![("b".into(), [10, 0, 0, 2].into())],
        ..DiscoveredBackends::default()
    };
    for (standing, lacks) in [
        (Standing::InPool, 4),
        (Standing::OutOfPool, 3),
        (Standing::Excluded, 3),
    ] {
        let all = extras(None, Some(present("10.0.0.7", standing)), &all);
        let lacking = all.iter().filter(|e| e.message.is_none());
        assert_eq!(lacking.count(), lacks, "{standing:?}");
    }
}

#[test]
fn exc_3_the_condition_says_that_the_address_stays() {
    let none = DiscoveredBackends::default();
    let of = |standing, type_| {
        let all = extras(None, Some(present("10.0.0.7", standing)), &none);
        let found = all.into_iter().find(|e| e.type_ == type_);
        found.unwrap().message
    };
    let message = of(Standing::Excluded, status::ADDRESS_EXCLUDED).unwrap();
    assert_eq!(
        message,
        "10.0.0.7 is excluded by its pool; it stays allocated as long as a load balancer has it, and is not allocated again"
    );
    assert_eq!(of(Standing::Excluded, status::ADDRESS_OUT_OF_POOL), None);
    assert_eq!(of(Standing::OutOfPool, status::ADDRESS_EXCLUDED), None);
}

#[test]
fn req_4_the_condition_says_what_is_served_and_why() {
    let present = Present {
        unserved: Some("pool p: does not exist"),
        ..present("10.0.0.7", Standing::InPool)
    };
    let all = extras(None, Some(present), &DiscoveredBackends::default());
    let mut told = all.iter().filter(|it| it.message.is_some());
    let told = told.next().unwrap();
    assert_eq!(told.type_, "RequestedAddress");
    assert!(!told.holds);
    assert_eq!(told.reason, "RequestedAddressUnavailable");
    let message = told.message.as_deref();
    assert_eq!(
        message,
        Some("10.0.0.7 is served meanwhile: pool p: does not exist")
    );
}

#[test]
fn be_8_the_conditions_name_machine_and_address() {
    let refused = |n: u8| RefusedBackend {
        name: format!("vm{n}").into(),
        address: [10, 0, 0, n].into(),
        why: Refusal::Allocated,
    };
    let messages = |found: &DiscoveredBackends| -> Vec<Option<String>> {
        let extras = backend_addresses(found).into_iter();
        extras.map(|extra| extra.message).collect()
    };
    assert_eq!(messages(&DiscoveredBackends::default()), [None, None]);
    let found = DiscoveredBackends {
        matched: 8,
        refused: (1..=7).map(refused).collect(),
        shared: vec![("vm9".into(), [10, 0, 0, 9].into())],
        ..DiscoveredBackends::default()
    };
    let [Some(left_out), Some(shared)] = &messages(&found)[..] else {
        panic!("both hold");
    };
    let first = "excluded from the backends: VirtualMachineInstance vm1 reports 10.0.0.1, an address with an IPAllocation; ";
    assert!(left_out.starts_with(first), "{left_out}");
    assert!(
        left_out.ends_with("10.0.0.5, an address with an IPAllocation; and 2 more"),
        "{left_out}"
    );
    assert!(
        shared.ends_with(": VirtualMachineInstance vm9 reports 10.0.0.9"),
        "{shared}"
    );
    let readiness = readiness(&input(&Key::new("shop", "web"), &vm(None), &found));
    assert_eq!(readiness.reason, "BackendsWithoutIP");
    assert!(
        readiness.message.contains("BackendAddressRefused"),
        "{}",
        readiness.message
    );
}

#[test]
fn be_5_the_message_names_the_states() {
    use VmiState::{Failed, Paused, Running, Succeeded};
    // The states, whether the health check is on, number of probed backends, end of the message.
    let cases: [(&[VmiState], bool, usize, &str); 6] = [
        (
            &[Succeeded, Failed, Succeeded],
            false,
            0,
            "none of 3 backends takes traffic; of these virtual machines 2 Succeeded, 1 Failed",
        ),
        (
            &[Succeeded],
            true,
            0,
            "none of 1 backends passes the health check on port 8080; of these virtual machines 1 Succeeded",
        ),
        (
            &[Paused, Failed],
            true,
            1,
            "none of 2 backends passes the health check on port 8080; of these virtual machines 1 paused, 1 Failed",
        ),
        (
            &[Paused, Running],
            true,
            2,
            "none of 2 backends passes the health check on port 8080; of these virtual machines 1 paused",
        ),
        (
            &[Running, Failed],
            true,
            0,
            "the first health checks of 2 backends on port 8080 are under way; of these virtual machines 1 Failed",
        ),
        (
            &[Running, Running],
            true,
            2,
            "none of 2 backends passes the health check on port 8080",
        ),
    ];
    for (states, checked, probed, message) in cases {
        let mut found = found(states.len(), u8::try_from(states.len()).unwrap());
        for (backend, state) in found.backends.iter_mut().zip(states) {
            backend.state = *state;
        }
        let vm = vm(check().filter(|_| checked));
        let readiness = readiness(&ReadinessInput {
            probed,
            ..input(&Key::new("shop", "web"), &vm, &found)
        });
        let told = (readiness.reason, &*readiness.message);
        assert_eq!(told, ("BackendsUnhealthy", message), "{states:?}");
    }
}
