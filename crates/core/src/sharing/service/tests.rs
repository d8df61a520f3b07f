use harvester_lb_api::keys;
use harvester_lb_object::Key;
use serde_json::{Value, json};

use super::*;
use crate::cached::Lb;
use crate::sharing::snapshot::tests::{annotations, object, record};

/// One of VM type with listeners on these ports, made in this second.
pub(in crate::sharing) fn lb(name: &str, primary: Option<&str>, second: u8, ports: &[u16]) -> Lb {
    lb_to(name, primary, second, ports, 8080)
}

/// The same, with this port of the backends.
pub(in crate::sharing) fn lb_to(
    name: &str,
    primary: Option<&str>,
    second: u8,
    ports: &[u16],
    target: u16,
) -> Lb {
    let listeners: Vec<Value> = ports
        .iter()
        .map(|port| json!({"name": format!("own{port}"), "port": port, "protocol": "TCP", "backendPort": target}))
        .collect();
    Lb::valid(object(json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("u-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            "annotations": annotations(primary),
        },
        "spec": {"listeners": listeners, "backendServerSelector": {"app": ["web"]}},
    })))
}

pub(in crate::sharing) fn slice(of: &str, names: &[&str]) -> EndpointSlice {
    let ports: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    object(json!({
        "metadata": {"labels": { keys::LABEL_SERVICE_NAME: of }},
        "addressType": "IPv4", "endpoints": [], "ports": ports,
    }))
}

pub(in crate::sharing) fn service(owners: &[&str], ports: &[(u16, &str)]) -> Service {
    let owners: Vec<Value> = owners
        .iter()
        .map(|name| json!({"apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer", "name": name, "uid": format!("u-{name}")}))
        .collect();
    let ports: Vec<Value> = ports
        .iter()
        .map(|(port, name)| json!({"port": port, "name": name, "protocol": "TCP", "targetPort": 8080}))
        .collect();
    object(json!({
        "metadata": {"name": "web", "ownerReferences": owners}, "spec": {"ports": ports, "loadBalancerIP": "10.0.0.2"},
    }))
}

/// Owners and ports in a few words. `primary`: names of its ports.
fn say(
    service: Option<&Service>,
    parties: &[(&Lb, Option<&EndpointSlice>)],
    primary: Option<&[(u16, &str)]>,
) -> (String, String) {
    say_with(service, parties, &[], primary, "web")
}

/// The same, with these EndpointSlices of others, and this owner of the record.
fn say_with(
    service: Option<&Service>,
    parties: &[(&Lb, Option<&EndpointSlice>)],
    left: &[EndpointSlice],
    primary: Option<&[(u16, &str)]>,
    holder: &str,
) -> (String, String) {
    let key = Key::new("ns", "web");
    let parties = parties.iter().map(|(lb, slice)| Party {
        lb,
        slice: *slice,
        secondary: None,
        is_left_alone: false,
        names_others: false,
    });
    let records = [record(
        "10.0.0.2",
        holder,
        Some("web").filter(|it| *it != holder),
    )];
    let mut snapshot = Snapshot::of(&key, parties.collect(), service, &records);
    snapshot.left = left.iter().collect();
    let primary = primary.map(|ports| {
        let port = |(port, name): &(u16, &str)| DesiredPort {
            name: (*name).to_owned(),
            protocol: "TCP",
            port: *port,
            target: IntOrString::Int(8080),
        };
        let part = Part {
            name: "web".to_owned(),
            uid: "u-web".to_owned(),
            ..Part::default()
        };
        let ports: Vec<DesiredPort> = ports.iter().map(port).collect();
        (part, ports)
    });
    let primary = primary.as_ref().map(|(part, ports)| (part, &**ports));
    let (owners, ports) = assemble(primary, &Others::of(&snapshot, false), service, |_| true);
    let owners: Vec<String> = owners.into_iter().map(|(name, _)| name).collect();
    let ports: Vec<String> = ports
        .into_iter()
        .map(|port| format!("{}={}", port.port, port.name))
        .collect();
    (owners.join(" "), ports.join(" "))
}

fn are(said: (String, String), owners: &str, ports: &str) {
    let (its_owners, its_ports) = said;
    assert_eq!([its_owners, its_ports], [owners, ports]);
}

#[test]
fn shr_4_a_port_is_added_once_it_is_in_the_endpoint_slice_and_all_have_names_of_their_own() {
    let (web, b) = (
        lb("web", None, 1, &[80]),
        lb("b", Some("web"), 2, &[81, 82]),
    );
    let alone = service(&["web"], &[(80, "own80")]);
    let of = |slice: Option<&EndpointSlice>, name| {
        say(
            Some(&alone),
            &[(&web, None), (&b, slice)],
            Some(&[(80, name)]),
        )
    };
    are(of(None, "80-tcp"), "web", "80=80-tcp");
    // It still belongs to a Service of its own.
    are(
        of(Some(&slice("b", &["own81"])), "80-tcp"),
        "web",
        "80=80-tcp",
    );
    let half = slice("web", &["81-tcp"]);
    are(of(Some(&half), "80-tcp"), "web b", "80=80-tcp 81=81-tcp");
    let whole = slice("web", &["81-tcp", "82-tcp"]);
    are(of(Some(&whole), "own80"), "web", "80=own80");
    are(of(Some(&whole), ""), "web", "80=");
    are(
        of(Some(&whole), "80-tcp"),
        "web b",
        "80=80-tcp 81=81-tcp 82=82-tcp",
    );
}

#[test]
fn shr_2_a_port_is_added_once_no_other_endpoint_slice_has_it() {
    let (web, b, c) = (
        lb("web", None, 1, &[80]),
        lb("b", Some("web"), 2, &[81]),
        lb("c", Some("web"), 3, &[82]),
    );
    let named = |name: &str, of: &str, ports: &[&str]| {
        let mut slice = slice(of, ports);
        slice.metadata.name = Some(name.to_owned());
        slice
    };
    let (of_b, of_c) = (
        named("b", "web", &["81-tcp"]),
        named("c", "web", &["82-tcp"]),
    );
    let shared = service(&["web", "c"], &[(80, "80-tcp"), (82, "82-tcp")]);
    let free = "80=80-tcp 82=82-tcp 81=81-tcp";
    let taken = "80=80-tcp 82=82-tcp";
    for (left, ports) in [
        (vec![], free),
        // Of one that has left, or is gone.
        (vec![named("gone", "web", &["90-tcp", "81-tcp"])], taken),
        // Of another Service, or with another port.
        (vec![named("gone", "gone", &["81-tcp"])], free),
        (vec![named("gone", "web", &["90-tcp"])], free),
        // A port that is carried stays.
        (vec![named("gone", "web", &["82-tcp"])], free),
    ] {
        let parties = [(&web, None), (&b, Some(&of_b)), (&c, Some(&of_c))];
        let said = say_with(
            Some(&shared),
            &parties,
            &left,
            Some(&[(80, "80-tcp")]),
            "web",
        );
        assert_eq!(said.1, ports, "{left:?}");
    }
    // Of one that shares the address, and has not changed its own yet.
    let old = named("c", "web", &["82-tcp", "81-tcp"]);
    let parties = [(&web, None), (&b, Some(&of_b)), (&c, Some(&old))];
    assert_eq!(
        say(Some(&shared), &parties, Some(&[(80, "80-tcp")])).1,
        taken
    );
    // A port that the primary gets.
    let alone = service(&["web"], &[(80, "80-tcp")]);
    let of_web = named("web", "web", &["80-tcp", "81-tcp"]);
    for (left, ports) in [
        (vec![], "80=80-tcp 81=81-tcp"),
        (vec![named("gone", "web", &["81-tcp"])], "80=80-tcp"),
    ] {
        let primary = [(80, "80-tcp"), (81, "81-tcp")];
        let said = say_with(
            Some(&alone),
            &[(&web, Some(&of_web))],
            &left,
            Some(&primary),
            "web",
        );
        assert_eq!(said.1, ports, "{left:?}");
    }
}

#[test]
fn shr_2_a_service_whose_last_port_has_been_left_keeps_it_without_its_owner() {
    // c has left with that port, which b wants now; its EndpointSlice goes once it owns the Service no longer, and b waits for that.
    let b = lb("b", Some("web"), 2, &[82]);
    let mut of_c = slice("web", &["82-tcp"]);
    of_c.metadata.name = Some("c".to_owned());
    let of_b = slice("web", &[]);
    // Whether b has the address only, or had another port.
    for owners in [&["c"][..], &["b", "c"]] {
        let shared = service(owners, &[(82, "82-tcp")]);
        for of_b in [None, Some(&of_b)] {
            let left = std::slice::from_ref(&of_c);
            let said = say_with(Some(&shared), &[(&b, of_b)], left, None, "b");
            are(said, "b", "82=82-tcp");
        }
        let has_it = slice("web", &["82-tcp"]);
        let said = say_with(Some(&shared), &[(&b, Some(&has_it))], &[], None, "b");
        are(said, "b", "82=82-tcp");
    }
    // The same with a primary.
    let web = lb("web", None, 1, &[82]);
    let shared = service(&["web", "c"], &[(82, "82-tcp")]);
    let left = std::slice::from_ref(&of_c);
    let said = say_with(
        Some(&shared),
        &[(&web, None)],
        left,
        Some(&[(82, "82-tcp")]),
        "web",
    );
    are(said, "web", "82=82-tcp");
}

#[test]
fn shr_2_a_port_that_another_one_had_is_free_once_its_endpoint_slice_is_gone() {
    let b = lb("b", Some("web"), 2, &[81, 82]);
    let checked = crate::spec::check(b.as_valid().unwrap()).unwrap();
    let ports = checked.vm.unwrap().ports;
    let named = |name: &str| BTreeMap::from([(name.to_owned(), ["c".to_owned()].into())]);
    let none = BTreeMap::new;
    let (half, whole) = (
        slice("web", &["82-tcp"]),
        slice("web", &["81-tcp", "82-tcp"]),
    );
    let of = |slice: Option<&EndpointSlice>, named: BTreeMap<String, BTreeSet<String>>| {
        may_add("web", slice, &ports, &named)
    };
    assert!(of(Some(&half), none()) && of(Some(&half), named("90-tcp")));
    assert!(!of(Some(&half), named("81-tcp")));
    assert!(!of(Some(&whole), none()));
    // It has not joined yet.
    assert!(!of(None, none()) && !of(Some(&slice("b", &[])), none()));
}

#[test]
fn shr_2_who_may_have_waited_for_ports_that_another_one_was_about_to_get() {
    let (web, b, c, d) = (
        lb("web", None, 1, &[80]),
        lb("b", Some("web"), 2, &[81]),
        lb("c", Some("web"), 3, &[81]),
        lb("d", Some("web"), 4, &[82]),
    );
    let (shared, of_d) = (
        service(&["web"], &[(80, "80-tcp")]),
        slice("web", &["82-tcp"]),
    );
    let key = Key::new("ns", "web");
    let record = record("10.0.0.2", "web", None);
    let party = |lb, slice| Party {
        lb,
        slice,
        secondary: None,
        is_left_alone: false,
        names_others: false,
    };
    let parties = vec![
        party(&web, None),
        party(&b, None),
        party(&c, None),
        party(&d, Some(&of_d)),
    ];
    let records = [record];
    let group = Snapshot::of(&key, parties, Some(&shared), &records);
    let of = |lb: &str, port: &str| -> Vec<&str> {
        let waiting = waiting(&group, lb, &[port.to_owned()]);
        waiting.into_iter().collect()
    };
    // The other one that wants it is refused, and waits for nothing.
    assert_eq!(of("c", "81-tcp"), ["b"]);
    assert!(of("b", "81-tcp").is_empty());
    // The Service is to get it from d, and has waited too.
    assert_eq!(of("b", "82-tcp"), ["d", "web"]);
    assert!(of("d", "82-tcp").is_empty());
    assert_eq!(of("b", "80-tcp"), ["web"]);
}

#[test]
fn shr_4_ports_keep_their_places() {
    let web = lb("web", None, 1, &[80]);
    // Made in the same second, and joined in the other order of their names.
    let (b, a) = (
        lb("b", Some("web"), 2, &[81]),
        lb("a", Some("web"), 2, &[82]),
    );
    let slices = (slice("web", &["81-tcp"]), slice("web", &["82-tcp"]));
    let of = |service| {
        let parties = [(&web, None), (&b, Some(&slices.0)), (&a, Some(&slices.1))];
        say(Some(service), &parties, Some(&[(80, "80-tcp")]))
    };
    let before = service(&["web", "b"], &[(80, "80-tcp"), (81, "81-tcp")]);
    let ports = "80=80-tcp 81=81-tcp 82=82-tcp";
    are(of(&before), "web a b", ports);
    let joined = [(80, "80-tcp"), (81, "81-tcp"), (82, "82-tcp")];
    are(of(&service(&["web", "b", "a"], &joined)), "web a b", ports);
}

#[test]
fn shr_3_the_primary_is_first_and_then_the_older_one() {
    let parties = [
        (lb("c", Some("web"), 2, &[82]), slice("web", &["82-tcp"])),
        (lb("b", Some("web"), 3, &[81]), slice("web", &["81-tcp"])),
        (lb("web", None, 9, &[80]), slice("web", &["80-tcp"])),
    ];
    let parties: Vec<_> = parties
        .iter()
        .map(|(lb, slice)| (lb, Some(slice)))
        .collect();
    let said = say(None, &parties, Some(&[(80, "80-tcp")]));
    are(said, "web c b", "80=80-tcp 82=82-tcp 81=81-tcp");
}

#[test]
fn shr_5_without_the_primary_the_others_have_what_their_endpoint_slices_have() {
    let shared = service(
        &["web", "b", "gone"],
        &[(80, "80-tcp"), (81, "81-tcp"), (90, "90-tcp")],
    );
    let b = lb("b", Some("web"), 2, &[81]);
    let of_b = slice("web", &["81-tcp"]);
    are(
        say(Some(&shared), &[(&b, Some(&of_b))], None),
        "b",
        "81=81-tcp",
    );
}

#[test]
fn be_6_a_load_balancer_whose_spec_is_refused_keeps_what_the_service_has_of_it() {
    let shared = service(
        &["web", "b"],
        &[(80, "own80"), (81, "81-tcp"), (82, "82-tcp")],
    );
    // No listener, and no selector.
    let refused = |name: &str, primary: Option<&str>| {
        let meta = lb(name, primary, 1, &[]).meta().clone();
        Lb::valid(object(json!({"metadata": meta, "spec": {}})))
    };
    let (web, b) = (refused("web", None), refused("b", Some("web")));
    let (of_web, of_b) = (
        slice("web", &["own80"]),
        slice("web", &["81-tcp", "82-tcp"]),
    );
    let parties = [(&web, Some(&of_web)), (&b, Some(&of_b))];
    are(
        say(Some(&shared), &parties, None),
        "web b",
        "80=own80 81=81-tcp 82=82-tcp",
    );
    // The Service is made anew.
    let told = |refused: &Lb| {
        let lb = refused.as_valid().unwrap();
        let mut lb = serde_json::to_value(lb).unwrap();
        lb["status"] = json!({"allocatedAddress": {"ip": "10.0.0.2"}});
        Lb::valid(object(lb))
    };
    let (b_told, mut targets) = (told(&b), of_b.clone());
    for port in targets.ports.iter_mut().flatten() {
        port.port = Some(8080);
    }
    let serving = lb("web", None, 1, &[80]);
    let parties = [(&serving, Some(&of_web)), (&b_told, Some(&targets))];
    let anew = say(None, &parties, Some(&[(80, "80-tcp")]));
    are(anew, "web b", "80=80-tcp 81=81-tcp 82=82-tcp");
    // Not for those alone that stay as they are.
    let parties = [(&web, Some(&of_web)), (&b_told, Some(&targets))];
    are(say(None, &parties, None), "web", "");
    // But if the primary would be served, were not one of its ports theirs.
    let contested = lb("web", None, 1, &[81]);
    let parties = [(&contested, None), (&b_told, Some(&targets))];
    are(say(None, &parties, None), "web b", "81=81-tcp 82=82-tcp");
    let parties = [(&web, Some(&of_web)), (&b, Some(&of_b))];
    // Another one can still join.
    let c = lb("c", Some("web"), 3, &[83]);
    let of_c = slice("web", &["83-tcp"]);
    let parties = [parties[0], parties[1], (&c, Some(&of_c))];
    let expected = "80=own80 81=81-tcp 82=82-tcp 83=83-tcp";
    are(say(Some(&shared), &parties, None), "web b c", expected);
}

#[test]
fn shr_2_a_primary_without_its_ports_owns_the_service_and_has_none() {
    let shared = service(&["web", "b"], &[(80, "80-tcp"), (81, "81-tcp")]);
    let (web, b) = (
        lb("web", None, 1, &[80, 81]),
        lb("b", Some("web"), 2, &[81]),
    );
    let (of_web, of_b) = (slice("web", &["80-tcp"]), slice("web", &["81-tcp"]));
    let parties = [(&web, Some(&of_web)), (&b, Some(&of_b))];
    are(say(Some(&shared), &parties, None), "web b", "81=81-tcp");
}

#[test]
fn shr_4_the_names_that_service_and_endpoint_slice_have_of_the_primary() {
    let ports = [Port {
        name: "http".to_owned(),
        protocol: "TCP",
        port: 80,
        backend_port: 8080,
    }];
    let of = |service_name: &str, names: &[&str]| {
        let service = service(&["web"], &[(80, service_name), (81, "81-tcp")]);
        let stored = stored_names("web", &ports, Some(&service), Some(&slice("web", names)));
        let (key, is_shared) = (served(&ports[0]), are_shared(&ports, &stored));
        let slice: Vec<String> = stored.slice[&key].iter().cloned().collect();
        (stored.service[&key].clone(), slice.join(" "), is_shared)
    };
    let expect = |of: (String, String, bool), service: &str, slice: &str, is_shared| {
        assert_eq!(of, (service.to_owned(), slice.to_owned(), is_shared));
    };
    expect(of("http", &["http"]), "http", "http", false);
    expect(of("http", &["http", "80-tcp"]), "http", "80-tcp http", true);
    expect(of("80-tcp", &["http"]), "80-tcp", "http", true);
    // That of an earlier listener, and one that is nobody's.
    expect(of("before", &["before", "x"]), "before", "before", false);
    let none = stored_names("web", &ports, None, None);
    assert!(none.service.is_empty() && !are_shared(&ports, &none));
    let wanted = |is_shared| wanted_names(&ports, is_shared)[&served(&ports[0])].clone();
    assert_eq!(
        (wanted(true), wanted(false)),
        ("80-tcp".to_owned(), "http".to_owned())
    );
}

#[test]
fn shr_4_a_port_under_the_name_of_another_one_is_waited_for() {
    let port = |port| Port {
        name: "own".to_owned(),
        protocol: "TCP",
        port,
        backend_port: 8080,
    };
    let alone = service(&["web"], &[(80, "443-tcp"), (81, "own81")]);
    assert!(has_name_of(&alone, &[port(22), port(443)]));
    assert!(!has_name_of(&alone, &[port(22), port(80)]));
    let renamed = service(&["web"], &[(443, "443-tcp")]);
    assert!(!has_name_of(&renamed, &[port(443)]));
}
