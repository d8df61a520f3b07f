use super::*;
use crate::cached::backend_address as address;
use harvester_lb_api::kubevirt::Interface;
use serde_json::json;

fn find(selector: &Selector, vmis: &[(Key, Arc<Vmi>)]) -> DiscoveredBackends {
    let mut found = DiscoveredBackends::default();
    for (key, vmi) in vmis {
        found.add_if_selected(selector, key, vmi);
    }
    found.apply_address_rules(|_| AddressVerdict::default());
    found
}

fn interface(name: Option<&str>, ip: Option<&str>, ips: &[&str]) -> Interface {
    Interface {
        name: name.map(Into::into),
        ip_address: ip.map(Into::into),
        ip_addresses: (!ips.is_empty()).then(|| ips.iter().map(|i| (*i).to_owned()).collect()),
    }
}

fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn selector(of: &[(&str, &[&str])]) -> Result<Selector, String> {
    let map = of
        .iter()
        .map(|(k, v)| ((*k).to_owned(), v.iter().map(|v| (*v).to_owned()).collect()))
        .collect();
    Selector::new(Some(&map))
}

fn vmi(name: &str, of: &[(&str, &str)], address: Option<&str>) -> (Key, Arc<Vmi>) {
    let vmi = Vmi {
        uid: format!("uid-{name}"),
        labels: labels(of),
        deleting: false,
        address: address.map(|a| a.parse().unwrap()),
        state: VmiState::Running,
        finalizers_to_keep: None,
    };
    (Key::new("shop", name), Arc::new(vmi))
}

#[test]
fn be_1_every_key_with_one_of_its_values() {
    type Wanted<'a> = &'a [(&'a str, &'a [&'a str])];
    type Labels<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Wanted<'_>, Labels<'_>, bool); 7] = [
        (&[("app", &["web"])], &[("app", "web")], true),
        (
            &[("app", &["web", "api"])],
            &[("app", "api"), ("x", "y")],
            true,
        ),
        (&[("app", &["web"])], &[("app", "db")], false),
        (&[("app", &["web"])], &[], false),
        (
            &[("app", &["web"]), ("zone", &["a"])],
            &[("app", "web"), ("zone", "a")],
            true,
        ),
        (
            &[("app", &["web"]), ("zone", &["a"])],
            &[("app", "web")],
            false,
        ),
        (&[], &[("app", "web")], false),
    ];
    for (wanted, present, expected) in cases {
        assert_eq!(
            selector(wanted).unwrap().matches(&labels(present)),
            expected,
            "{wanted:?}"
        );
    }
    assert!(
        !Selector::new(None)
            .unwrap()
            .matches(&labels(&[("app", "web")]))
    );
}

#[test]
fn be_1_a_key_without_values_is_an_error() {
    assert_eq!(
        selector(&[("app", &["web"]), ("zone", &[])]),
        Err("zone".to_owned())
    );
}

#[test]
fn be_1_a_machine_on_its_way_out_is_none() {
    let wanted = selector(&[("app", &["web"])]).unwrap();
    let (key, leaving) = vmi("a", &[("app", "web")], Some("10.0.0.1"));
    let leaving = Arc::new(Vmi {
        deleting: true,
        ..Arc::into_inner(leaving).unwrap()
    });
    assert_eq!(
        find(&wanted, &[(key, leaving)]),
        DiscoveredBackends::default()
    );
}

#[test]
fn be_2_a_machine_without_address_matches_and_is_not_listed() {
    let wanted = selector(&[("app", &["web"])]).unwrap();
    let found = find(
        &wanted,
        &[
            vmi("a", &[("app", "web")], None),
            vmi("b", &[("app", "web")], Some("10.0.0.2")),
            vmi("c", &[("app", "db")], Some("10.0.0.3")),
        ],
    );
    assert_eq!(found.matched, 2);
    assert_eq!(found.backends.len(), 1);
    assert_eq!(&*found.backends[0].name, "b");
}

#[test]
fn be_2_the_first_usable_ipv4_of_a_named_interface() {
    let cases: [(&str, Vec<Interface>, Option<&str>); 8] = [
        (
            "plain",
            vec![interface(Some("n"), Some("10.1.1.7"), &[])],
            Some("10.1.1.7"),
        ),
        (
            "a named interface goes before an in-guest bridge",
            vec![
                interface(None, Some("10.42.0.1"), &[]),
                interface(Some("n"), Some("10.1.1.7"), &[]),
            ],
            Some("10.1.1.7"),
        ),
        (
            "IPv6 first",
            vec![interface(
                Some("n"),
                Some("fd00::7"),
                &["fd00::7", "10.1.1.7"],
            )],
            Some("10.1.1.7"),
        ),
        (
            "an unnamed one is better than none",
            vec![
                interface(Some("n"), Some("fd00::7"), &[]),
                interface(Some(""), Some("10.1.1.8"), &[]),
            ],
            Some("10.1.1.8"),
        ),
        (
            "unusable addresses are passed over",
            vec![interface(
                Some("n"),
                Some("0.0.0.0"),
                &["127.0.0.1", "169.254.1.1", "224.0.0.1", "10.1.1.7"],
            )],
            Some("10.1.1.7"),
        ),
        (
            "text is no address",
            vec![interface(Some("n"), Some("10.1.1.7/24"), &["x", ""])],
            None,
        ),
        ("no interface", vec![], None),
        (
            "in the order of the interfaces",
            vec![
                interface(Some("a"), Some("10.1.1.1"), &[]),
                interface(Some("b"), Some("10.1.1.2"), &[]),
            ],
            Some("10.1.1.1"),
        ),
    ];
    for (what, interfaces, expected) in cases {
        assert_eq!(
            address(Some(&interfaces)),
            expected.map(|e| e.parse().unwrap()),
            "{what}"
        );
    }
    assert_eq!(address(None), None);
}

#[test]
fn be_4_an_ipv6_address_is_no_backend() {
    for (ip, ips) in [
        (Some("fd00::7"), &["fd00::7", "fe80::7"][..]),
        (Some("::ffff:10.1.1.7"), &[]),
        // Without a guest agent.
        (None, &[]),
    ] {
        assert_eq!(address(Some(&[interface(Some("n"), ip, ips)])), None);
    }
}

#[test]
fn a_slice_is_never_overfilled() {
    let wanted = selector(&[("app", &["web"])]).unwrap();
    let all: Vec<_> = (0..1500_u32)
        .map(|n| {
            let ip = Ipv4Addr::from(0x0a00_0001 + n).to_string();
            vmi(&format!("vm-{n:04}"), &[("app", "web")], Some(&ip))
        })
        .collect();
    let found = find(&wanted, &all);
    assert_eq!(
        (found.matched, found.backends.len(), found.left_out),
        (1500, MAX_BACKENDS, 501)
    );
    assert_eq!(&*found.backends[0].name, "vm-0000");
}

#[test]
fn be_8_a_refused_address_leaves_its_machine_out_whatever_else_it_reports() {
    let wanted = selector(&[("app", &["web"])]).unwrap();
    let mut found = DiscoveredBackends::default();
    for n in 1..=1003 {
        let ip = Ipv4Addr::from(0x0a00_0000 + n).to_string();
        let (key, vmi) = vmi(&format!("vm-{n:04}"), &[("app", "web")], Some(&ip));
        found.add_if_selected(&wanted, &key, &vmi);
    }
    let (first, second, third) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
    found.apply_address_rules(|address| AddressVerdict {
        refusal: [first, third]
            .map(Ipv4Addr::from)
            .contains(&address)
            .then_some(Refusal::Allocated),
        shared: [first, second].map(Ipv4Addr::from).contains(&address),
    });
    // The two refused ones do not count towards the limit.
    assert_eq!(
        (found.matched, found.backends.len(), found.left_out),
        (1003, MAX_BACKENDS, 2)
    );
    let refused: Vec<&str> = found.refused.iter().map(|r| &*r.name).collect();
    assert_eq!(refused, ["vm-0001", "vm-0003"]);
    assert_eq!(found.shared, [("vm-0002".into(), second.into())]);
    assert_eq!(&*found.backends[0].name, "vm-0002");
}

#[test]
fn be_5_what_a_machine_is_at() {
    use VmiState::{Failed, Paused, Running, Succeeded};
    let paused = |status, reason| json!([{"type": "Ready"}, {"type": "Paused", "status": status, "reason": reason}]);
    let cases = [
        (json!({}), Running),
        (json!({"phase": "Running"}), Running),
        (json!({"phase": "Scheduling"}), Running),
        (json!({"phase": "Unknown"}), Running),
        (json!({"phase": "Succeeded"}), Succeeded),
        (json!({"phase": "Failed"}), Failed),
        (
            json!({"phase": "Running", "conditions": paused("True", "PausedByUser")}),
            Paused,
        ),
        (
            json!({"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]}),
            Paused,
        ),
        (
            json!({"phase": "Running", "conditions": paused("False", "PausedByUser")}),
            Running,
        ),
        (
            json!({"conditions": paused("True", "PausedByMigrationMonitor")}),
            Running,
        ),
        (
            json!({"phase": "Failed", "conditions": paused("True", "PausedIOError")}),
            Failed,
        ),
    ];
    for (status, expected) in cases {
        let read = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(VmiState::of(&read), expected, "{status}");
    }
}

#[test]
fn be_5_who_takes_traffic() {
    use VmiState::{Failed, Paused, Running, Succeeded};
    type Case<'a> = (&'a [(VmiState, bool)], &'a [bool]);
    let cases: [Case<'_>; 7] = [
        (&[], &[]),
        (
            &[(Succeeded, true), (Failed, true), (Running, true)],
            &[false, false, true],
        ),
        (&[(Succeeded, true)], &[false]),
        (&[(Paused, true), (Running, true)], &[false, true]),
        (&[(Paused, true), (Running, false)], &[true, false]),
        (
            &[(Paused, true), (Paused, false), (Failed, true)],
            &[true, false, false],
        ),
        (&[(Running, false), (Running, true)], &[false, true]),
    ];
    for (backends, expected) in cases {
        assert_eq!(ready(backends), expected, "{backends:?}");
    }
}

#[test]
fn be_5_one_that_does_not_run_leaves_its_address_to_another() {
    let wanted = selector(&[("app", &["web"])]).unwrap();
    let machine = |name, address, state| {
        let (key, machine) = vmi(name, &[("app", "web")], Some(address));
        let machine = Vmi {
            state,
            ..Arc::into_inner(machine).unwrap()
        };
        (key, Arc::new(machine))
    };
    let found = find(
        &wanted,
        &[
            machine("a", "10.0.0.1", VmiState::Succeeded),
            machine("b", "10.0.0.2", VmiState::Failed),
            machine("c", "10.0.0.3", VmiState::Failed),
            machine("d", "10.0.0.3", VmiState::Succeeded),
            machine("e", "10.0.0.1", VmiState::Paused),
            machine("f", "10.0.0.4", VmiState::Paused),
            machine("g", "10.0.0.4", VmiState::Running),
            machine("h", "10.0.0.4", VmiState::Failed),
            machine("i", "10.0.0.4", VmiState::Running),
        ],
    );
    let names: Vec<&str> = found.backends.iter().map(|b| &*b.name).collect();
    assert_eq!((found.matched, names), (9, vec!["b", "c", "e", "g", "i"]));
}

#[test]
fn be_6_an_endpoint_stays_as_long_as_its_machine_is_there() {
    let endpoint = Backend {
        name: "a".into(),
        uid: "uid-a".into(),
        address: [10, 0, 0, 1].into(),
        state: VmiState::Running,
    };
    let stays = |vmi: Option<&Vmi>| {
        let mut found = DiscoveredBackends::default();
        found.retain_endpoint(endpoint.clone(), vmi);
        found.backends.first().map(|b| b.state)
    };
    let machine = || {
        // With any labels: the selector itself may be refused.
        let (_, machine) = vmi("a", &[], Some("10.0.0.1"));
        Arc::into_inner(machine).unwrap()
    };
    assert_eq!(stays(Some(&machine())), Some(VmiState::Running));
    let paused = Vmi {
        state: VmiState::Paused,
        ..machine()
    };
    assert_eq!(stays(Some(&paused)), Some(VmiState::Paused));
    assert_eq!(stays(None), None);
    for gone in [
        Vmi {
            uid: "uid-later".into(),
            ..machine()
        },
        Vmi {
            deleting: true,
            ..machine()
        },
        Vmi {
            address: None,
            ..machine()
        },
        Vmi {
            address: Some([10, 0, 0, 2].into()),
            ..machine()
        },
    ] {
        assert_eq!(stays(Some(&gone)), None, "{gone:?}");
    }
}
