//! The history checker can fail: violations are reported even if they were brief.

use harvester_lb_fixtures::{self as fixtures, cluster_spec, load_balancer, owned_by, with};
use serde_json::json;

use super::*;

fn lb(name: &str, ip: Option<&str>) -> LoadBalancer {
    let lb = load_balancer("n", name, name, &cluster_spec());
    let status = json!({"status": {"allocatedAddress": {"ip": ip}}});
    serde_json::from_value(with(lb, status)).unwrap()
}

fn service(name: &str, ip: &str) -> Service {
    serde_json::from_value(fixtures::service(&owned_by("n", name, name), ip)).unwrap()
}

fn record(phase: &str, owner: &str) -> IPAllocation {
    let record = fixtures::record("10.0.0.2", "p", phase, ("n", owner, owner));
    serde_json::from_value(record).unwrap()
}

#[test]
fn one_after_the_other_is_well() {
    let mut seen = Seen::default();
    seen.lb(&lb("a", None));
    seen.lb(&lb("a", Some("10.0.0.2")));
    seen.record(&record("Bound", "a"));
    seen.service(&service("a", "10.0.0.2"));
    seen.services.remove("n/a");
    seen.forget("a");
    seen.record(&record("Released", "a"));
    seen.record(&record("Bound", "b"));
    seen.lb(&lb("b", Some("10.0.0.2")));
    seen.service(&service("b", "10.0.0.2"));
    // LoadBalancers with DHCP all have the same placeholder address.
    seen.lb(&lb("c", Some(keys::DHCP_ADDRESS)));
    seen.lb(&lb("d", Some(keys::DHCP_ADDRESS)));
    seen.service(&service("c", keys::DHCP_ADDRESS));
    seen.service(&service("d", keys::DHCP_ADDRESS));
    assert_eq!(seen.shared_addresses, Vec::<String>::new());
    assert_eq!(seen.moved(), Vec::<String>::new());
    assert_eq!(seen.given.len(), 2);
}

#[test]
fn two_at_one_time_are_named() {
    let mut seen = Seen::default();
    seen.lb(&lb("a", Some("10.0.0.2")));
    seen.lb(&lb("b", Some("10.0.0.2")));
    assert_eq!(
        seen.shared_addresses.len(),
        1,
        "{:?}",
        seen.shared_addresses
    );
    seen.record(&record("Bound", "a"));
    seen.record(&record("Bound", "b"));
    assert_eq!(
        seen.shared_addresses.len(),
        2,
        "{:?}",
        seen.shared_addresses
    );
    seen.service(&service("a", "10.0.0.2"));
    seen.service(&service("b", "10.0.0.2"));
    assert_eq!(
        seen.shared_addresses.len(),
        3,
        "{:?}",
        seen.shared_addresses
    );
}

#[test]
fn an_address_that_changes_or_goes_is_named() {
    let mut seen = Seen::default();
    seen.lb(&lb("a", Some("10.0.0.2")));
    seen.lb(&lb("a", Some("10.0.0.3")));
    seen.lb(&lb("a", None));
    assert_eq!(seen.moved().len(), 2, "{:?}", seen.moved());
}

/// A LoadBalancer that names a group.
fn of_group(name: &str, group: &str, ip: Option<&str>) -> LoadBalancer {
    let mut lb = lb(name, ip);
    let annotation = (keys::ANNOTATION_PRIMARY.to_owned(), group.to_owned());
    lb.metadata.annotations = Some([annotation].into());
    lb
}

#[test]
fn those_of_a_group_have_one_address() {
    let mut seen = Seen::default();
    seen.lb(&lb("a", Some("10.0.0.2")));
    seen.record(&record("Bound", "a"));
    seen.lb(&lb("b", Some("10.0.0.3")));
    // It asks to join, and does.
    seen.lb(&of_group("b", "a", Some("10.0.0.3")));
    seen.lb(&of_group("b", "a", Some("10.0.0.2")));
    // The address is handed over.
    seen.forget("a");
    let mut of_b = record("Bound", "b");
    let annotation = (keys::ANNOTATION_PRIMARY.to_owned(), "a".to_owned());
    of_b.metadata.annotations = Some([annotation].into());
    seen.record(&of_b);
    assert_eq!(seen.shared_addresses, Vec::<String>::new());
    // It asks to leave, and has the address until it does.
    seen.lb(&of_group("c", "a", Some("10.0.0.2")));
    seen.lb(&lb("b", Some("10.0.0.2")));
    seen.lb(&lb("b", Some("10.0.0.4")));
    assert_eq!(seen.shared_addresses, Vec::<String>::new());
    assert_eq!(seen.moved(), Vec::<String>::new());
    // Without asking for it.
    seen.lb(&lb("b", Some("10.0.0.5")));
    assert_eq!(seen.moved().len(), 1, "{:?}", seen.moved());
    seen.lb(&lb("b", Some("10.0.0.2")));
    seen.record(&record("Bound", "c"));
    assert_eq!(
        seen.shared_addresses.len(),
        2,
        "{:?}",
        seen.shared_addresses
    );
}

#[test]
fn an_address_of_its_own_is_given_up_for_that_of_the_group_only() {
    // The other one is seen there before or after it.
    for primary_first in [true, false] {
        let mut seen = Seen::default();
        seen.lb(&of_group("b", "a", Some("10.0.0.3")));
        let primary = lb("a", Some("10.0.0.2"));
        if primary_first {
            seen.lb(&primary);
        }
        seen.lb(&of_group("b", "a", Some("10.0.0.2")));
        if !primary_first {
            seen.lb(&primary);
        }
        assert_eq!(seen.moved(), Vec::<String>::new());
    }
    let moves: [(&str, &[&str], Option<&str>); 5] = [
        ("to none", &["10.0.0.2"], None),
        (
            "to one that the group has not",
            &["10.0.0.2"],
            Some("10.0.0.4"),
        ),
        ("while the group has none", &[], Some("10.0.0.2")),
        ("from the group's to none", &["10.0.0.3"], None),
        (
            "from the group's",
            &["10.0.0.3", "10.0.0.2"],
            Some("10.0.0.2"),
        ),
    ];
    for (what, of_others, to) in moves {
        let mut seen = Seen::default();
        for (number, ip) in of_others.iter().enumerate() {
            seen.lb(&of_group(&format!("c{number}"), "a", Some(ip)));
        }
        seen.lb(&of_group("b", "a", Some("10.0.0.3")));
        seen.lb(&of_group("b", "a", to));
        assert_eq!(seen.moved().len(), 1, "{what}: {:?}", seen.moved());
    }
    // A group that moves without having asked.
    let mut seen = Seen::default();
    for ip in ["10.0.0.2", "10.0.0.3"] {
        seen.lb(&lb("a", Some(ip)));
        seen.lb(&of_group("b", "a", Some(ip)));
    }
    assert_eq!(seen.moved().len(), 2, "{:?}", seen.moved());
}
