use harvester_lb_object::Key;
use serde_json::{Value, json};

use super::*;
use crate::cached::Lb;
use crate::sharing::snapshot::tests::{annotations, object, record};

/// One of VM type with listeners on these ports, made in this second.
fn lb(name: &str, primary: Option<&str>, second: u8, ports: &[u16]) -> Lb {
    let listeners: Vec<Value> = ports
        .iter()
        .map(|port| json!({"name": format!("own{port}"), "port": port, "protocol": "TCP", "backendPort": 8080}))
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

fn slice(of: &str, names: &[&str]) -> EndpointSlice {
    let ports: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    object(json!({
        "metadata": {"labels": { keys::LABEL_SERVICE_NAME: of }},
        "addressType": "IPv4", "endpoints": [], "ports": ports,
    }))
}

fn service(owners: &[&str], ports: &[(u16, &str)]) -> Service {
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
    let key = Key::new("ns", "web");
    let parties = parties.iter().map(|(lb, slice)| Party {
        lb,
        slice: *slice,
        secondary: None,
        is_left_alone: false,
    });
    let records = [record("10.0.0.2", "web", None)];
    let snapshot = Snapshot::of(&key, parties.collect(), service, &records);
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
        (part, ports.iter().map(port).collect())
    });
    let (owners, ports) = assemble(primary, &Others::of(&snapshot, false), service);
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
