use harvester_lb_api::{Ipam, keys};
use harvester_lb_ipam::Micros;
use serde_json::{Value, json};

use super::*;

fn candidate(name: &'static str, created: i64) -> Candidate<'static> {
    Candidate {
        name,
        uid: name,
        is_readable: true,
        created: Micros(created),
        workload: WorkloadType::Vm,
        ipam: Ipam::Pool,
        pool: None,
        requests_address: false,
        primary: (name != "p").then_some("p"),
        secondary: None,
        names_address: false,
    }
}

fn tcp(port: u16) -> Served {
    Served {
        port,
        protocol: "TCP",
    }
}

/// A Service of this name that these load balancers own, with ports: number and name.
fn service(name: &str, owners: &[&str], ports: &[(u16, &str)]) -> Service {
    let owners: Vec<Value> = owners
        .iter()
        .map(|name| json!({"apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer", "name": name, "uid": name}))
        .collect();
    let ports: Vec<Value> = ports
        .iter()
        .map(|(port, name)| json!({"port": port, "name": name, "protocol": "TCP"}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "ownerReferences": owners}, "spec": {"ports": ports},
    }))
    .unwrap()
}

/// The EndpointSlice of a load balancer for this Service, with these names of ports.
fn slice(of: &str, names: &[&str]) -> EndpointSlice {
    let ports: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    serde_json::from_value(json!({
        "metadata": {"labels": { keys::LABEL_SERVICE_NAME: of }},
        "addressType": "IPv4", "endpoints": [], "ports": ports,
    }))
    .unwrap()
}

fn held(name: &'static str) -> Held<'static> {
    Held {
        by: HeldBy { name, uid: name },
        pool: "pool",
        is_ipv6: false,
    }
}

fn wish<'a>(lb: Candidate<'a>, port: u16, slice: Option<&'a EndpointSlice>) -> Wish<'a> {
    Wish {
        names_record: lb.names_address,
        candidate: lb,
        ports: Some([tcp(port)].into()),
        slice,
        is_told: false,
    }
}

/// The roles in a few words, by name.
fn say(stored: &Stored<'_>) -> Vec<String> {
    let all = roles(stored).into_iter();
    all.map(|(name, role)| match role {
        Role::Member { is_holder: true } => format!("{name} holds"),
        Role::Member { is_holder: false } => format!("{name} shares"),
        Role::NameTaken => format!("{name} has its name in vain"),
        Role::Refused(why) => format!("{name}: {why}"),
        Role::PortConflict(it) => format!("{name}: {} is {}'s", it.port.port, it.holder),
    })
    .collect()
}

#[test]
fn shr_3_a_load_balancer_alone_is_a_group_of_one() {
    let stored = Stored {
        name: "p",
        lbs: vec![wish(candidate("p", 1), 80, None)],
        ..Stored::default()
    };
    assert_eq!(say(&stored), ["p holds"]);
}

#[test]
fn shr_2_the_ports_that_the_service_carries_are_told_by_the_names_in_the_slices() {
    let shared = service("p", &["p", "b"], &[(80, "80-tcp"), (443, "443-tcp")]);
    let (of_p, of_b) = (slice("p", &["443-tcp"]), slice("p", &["80-tcp", "gone"]));
    assert_eq!(carried(Some(&shared), Some(&of_p)), [tcp(443)].into());
    assert_eq!(carried(Some(&shared), Some(&of_b)), [tcp(80)].into());
    // An EndpointSlice of its own Service, which it had before.
    assert!(carried(Some(&shared), Some(&slice("b", &["80-tcp"]))).is_empty());
    assert!(carried(None, Some(&of_p)).is_empty() && carried(Some(&shared), None).is_empty());
    // The primary asks for a port of the secondary, and the secondary keeps it.
    let stored = Stored {
        name: "p",
        lbs: vec![
            Wish {
                ports: Some([tcp(80), tcp(443)].into()),
                ..wish(candidate("p", 1), 443, Some(&of_p))
            },
            wish(candidate("b", 2), 80, Some(&of_b)),
            wish(candidate("c", 0), 443, None),
        ],
        service: Some(&shared),
        record: Some(held("p")),
    };
    assert_eq!(say(&stored), ["b shares", "c shares", "p: 80 is b's"]);
    assert_eq!(holder("p", &roles(&stored)), Some("p"));
}

#[test]
fn shr_2_a_port_is_of_who_has_it_in_its_endpoint_slice_before_the_service_carries_it() {
    let shared = service("p", &["p"], &[(443, "443-tcp")]);
    let of_p = slice("p", &["443-tcp"]);
    let stored = |of_c: &EndpointSlice| {
        let stored = Stored {
            name: "p",
            lbs: vec![
                wish(candidate("p", 1), 443, Some(&of_p)),
                wish(candidate("b", 2), 80, None),
                wish(candidate("c", 3), 80, Some(of_c)),
            ],
            service: Some(&shared),
            record: Some(held("p")),
        };
        say(&stored)
    };
    let older = ["b shares", "c: 80 is b's", "p holds"];
    assert_eq!(
        stored(&slice("p", &["80-tcp"])),
        ["b: 80 is c's", "c shares", "p holds"]
    );
    // Under another name, or for another Service.
    assert_eq!(stored(&slice("p", &["80", "22-tcp"])), older);
    assert_eq!(stored(&slice("c", &["80-tcp"])), older);
}

#[test]
fn shr_5_the_oldest_member_holds_the_address_of_a_deleted_primary() {
    let shared = service("p", &["p", "b", "c"], &[]);
    let lbs = || {
        vec![
            wish(candidate("b", 5), 80, None),
            wish(candidate("c", 4), 443, None),
            wish(candidate("new", 9), 22, None),
        ]
    };
    let stored = Stored {
        name: "p",
        lbs: lbs(),
        service: Some(&shared),
        record: Some(held("p")),
    };
    assert_eq!(say(&stored), ["b shares", "c holds", "new shares"]);
    // SHR-6: made anew, before or after the record was handed over.
    for holder in ["earlier", "c"] {
        let mut lbs = lbs();
        lbs.push(wish(candidate("p", 10), 8080, None));
        let record = Some(held(holder));
        let stored = Stored {
            lbs,
            record,
            ..stored.clone()
        };
        let expected = [
            "b shares",
            "c holds",
            "new shares",
            "p has its name in vain",
        ];
        assert_eq!(say(&stored), expected, "{holder}");
    }
    // All members are gone: the group has ended.
    let bare = service("p", &["p"], &[]);
    let stored = Stored {
        lbs: vec![
            wish(candidate("p", 10), 80, None),
            wish(candidate("new", 9), 22, None),
        ],
        service: Some(&bare),
        record: Some(held("earlier")),
        name: "p",
    };
    assert_eq!(say(&stored), ["new shares", "p holds"]);
}

#[test]
fn shr_1_one_that_names_a_group_that_has_ended_is_told() {
    let stored = Stored {
        name: "p",
        lbs: vec![wish(candidate("b", 1), 80, None)],
        ..Stored::default()
    };
    let expected = "b: annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"p\": there is no such load balancer in this namespace";
    assert_eq!(say(&stored), [expected]);
}

#[test]
fn shr_8_members_of_cluster_type_are_told_by_their_status() {
    let cluster = |name, names_address| Candidate {
        workload: WorkloadType::Cluster,
        names_address,
        ..candidate(name, 1)
    };
    let lb = |name, names| Wish {
        ports: Some(BTreeSet::new()),
        ..wish(cluster(name, names), 80, None)
    };
    let stored = |lbs| Stored {
        name: "p",
        lbs,
        service: None,
        record: Some(held("p")),
    };
    assert_eq!(
        say(&stored(vec![lb("b", true), lb("p", true)])),
        ["b shares", "p holds"]
    );
    // The primary is gone.
    assert_eq!(
        say(&stored(vec![lb("b", true), lb("c", false)])),
        ["b holds", "c shares"]
    );
    assert!(say(&stored(vec![lb("c", false)]))[0].contains("no such load balancer"));
}

#[test]
fn be_6_one_whose_spec_is_refused_stays_what_it_is_and_does_not_join() {
    let shared = service("p", &["p", "b"], &[(80, "80-tcp"), (443, "443-tcp")]);
    let of_b = slice("p", &["80-tcp"]);
    let kept = |lb, slice| Wish {
        ports: None,
        ..wish(lb, 0, slice)
    };
    let stored = Stored {
        name: "p",
        lbs: vec![
            kept(candidate("p", 1), None),
            kept(candidate("b", 2), Some(&of_b)),
            kept(candidate("c", 3), None),
            wish(candidate("d", 4), 80, None),
        ],
        service: Some(&shared),
        record: Some(held("p")),
    };
    assert_eq!(say(&stored), ["b shares", "d: 80 is b's", "p holds"]);
}

#[test]
fn ipa_7_without_the_record_the_owners_of_the_service_tell_whose_name_it_is() {
    let named = |name, created| Candidate {
        names_address: true,
        ..candidate(name, created)
    };
    let unreadable = Candidate {
        is_readable: false,
        ..candidate("c", 3)
    };
    let shared = service("p", &["b", "c"], &[]);
    let mut stored = Stored {
        name: "p",
        lbs: vec![
            wish(named("b", 2), 80, None),
            wish(named("c", 3), 443, None),
            wish(candidate("p", 9), 8080, None),
        ],
        service: Some(&shared),
        record: None,
    };
    let expected = ["b holds", "c shares", "p has its name in vain"];
    assert_eq!(say(&stored), expected);
    // The primary is one of them.
    let with_primary = service("p", &["p", "b"], &[]);
    let of_primary = Stored {
        service: Some(&with_primary),
        ..stored.clone()
    };
    assert_eq!(say(&of_primary), ["b shares", "c shares", "p holds"]);
    stored.lbs[1] = wish(unreadable, 443, None);
    assert_eq!(say(&stored), expected);
}

#[test]
fn svc_1_an_owner_reference_that_was_written_by_hand_makes_no_member() {
    let shared = service("p", &["b"], &[]);
    let primary = Candidate {
        workload: WorkloadType::Cluster,
        ..candidate("p", 9)
    };
    let stored = Stored {
        name: "p",
        lbs: vec![wish(candidate("b", 2), 80, None), wish(primary, 80, None)],
        service: Some(&shared),
        record: None,
    };
    let [b, p] = &say(&stored)[..] else {
        panic!("{stored:?}");
    };
    assert!(b.starts_with("b: ") && b.contains("type"), "{b}");
    assert_eq!(p, "p holds");
}

#[test]
fn rec_4_while_the_service_is_absent_status_and_endpoint_slice_tell_who_shares() {
    let named = |name, names_address| Candidate {
        names_address,
        ..candidate(name, 1)
    };
    let (of_p, of_c) = (slice("p", &["80-tcp"]), slice("c", &["own"]));
    let stored = Stored {
        name: "p",
        lbs: vec![
            wish(named("b", true), 80, Some(&of_p)),
            wish(named("c", true), 81, Some(&of_c)),
        ],
        service: None,
        record: Some(held("p")),
    };
    assert_eq!(say(&stored), ["b holds", "c shares"]);
    // Its status alone is nobody's word.
    let stored = Stored {
        lbs: vec![
            wish(named("b", false), 80, Some(&of_p)),
            wish(named("c", true), 81, Some(&of_c)),
        ],
        ..stored
    };
    assert!(say(&stored)[0].contains("no such load balancer"));
}

/// The status of one that joins says so before its EndpointSlice and the Service have its ports. It may name the address from which the
/// group has moved.
#[test]
fn shr_5_one_that_was_told_so_keeps_the_address_of_a_primary_that_is_gone() {
    let named = |name, names_address| Candidate {
        names_address,
        ..candidate(name, 2)
    };
    let of_primary = service("p", &["p"], &[(80, "80-tcp")]);
    for service in [Some(&of_primary), None] {
        for (names_address, is_told) in [(true, true), (false, true), (true, false), (false, false)]
        {
            let joins = Wish {
                is_told,
                ..wish(named("b", names_address), 81, None)
            };
            let stored = Stored {
                name: "p",
                lbs: vec![joins.clone()],
                service,
                record: Some(held("p")),
            };
            let case = format!("{names_address} {is_told} {}", service.is_some());
            if is_told {
                assert_eq!(say(&stored), ["b holds"], "{case}");
            } else {
                assert!(say(&stored)[0].contains("no such load balancer"), "{case}");
            }
            // One of the primary's name is created anew (SHR-6).
            let later = Candidate {
                uid: "later",
                ..candidate("p", 9)
            };
            let stored = Stored {
                lbs: vec![joins, wish(later, 80, None)],
                ..stored
            };
            let is_taken = say(&stored).contains(&"p has its name in vain".to_owned());
            assert_eq!(is_taken, is_told, "{case}");
        }
    }
}

#[test]
fn ipa_3_a_holder_that_was_restored_is_its_earlier_self() {
    let restored = Candidate {
        uid: "later",
        names_address: true,
        ..candidate("b", 9)
    };
    let stored = Stored {
        name: "p",
        lbs: vec![wish(restored, 80, None)],
        service: None,
        record: Some(held("b")),
    };
    assert_eq!(say(&stored), ["b holds"]);
}

#[test]
fn shr_5_one_that_can_be_decoded_holds_before_an_older_one_that_cannot() {
    let shared = service("p", &["b", "c"], &[]);
    let undecodable = Candidate {
        is_readable: false,
        ..candidate("b", 1)
    };
    let stored = Stored {
        name: "p",
        lbs: vec![
            Wish {
                ports: None,
                ..wish(undecodable, 0, None)
            },
            wish(candidate("c", 2), 443, None),
        ],
        service: Some(&shared),
        record: Some(held("p")),
    };
    assert_eq!(say(&stored), ["b shares", "c holds"]);
}

#[test]
fn shr_2_one_whose_endpoint_slice_was_deleted_by_hand_keeps_its_ports() {
    let shared = service("p", &["p", "b"], &[(22, "22-tcp"), (80, "80-tcp")]);
    let of_p = slice("p", &["22-tcp"]);
    let stored = Stored {
        name: "p",
        lbs: vec![
            wish(candidate("p", 1), 22, Some(&of_p)),
            wish(candidate("b", 5), 80, None),
            wish(candidate("older", 2), 80, None),
            wish(candidate("other", 3), 22, None),
        ],
        service: Some(&shared),
        record: Some(held("p")),
    };
    let expected = [
        "b shares",
        "older: 80 is b's",
        "other: 22 is p's",
        "p holds",
    ];
    assert_eq!(say(&stored), expected);
}

#[test]
fn ipa_6_nobody_joins_an_address_that_the_primary_has_not_named() {
    let is_unnamed = |primary: Candidate<'static>, b: Candidate<'static>| {
        let stored = Stored {
            name: "p",
            lbs: vec![wish(primary, 80, None), wish(b, 81, None)],
            service: None,
            record: Some(held("p")),
        };
        super::is_unnamed(&stored)
    };
    let (primary, asks) = (candidate("p", 1), candidate("b", 2));
    let (named, unreadable) = (
        Candidate {
            names_address: true,
            ..primary.clone()
        },
        Candidate {
            is_readable: false,
            ..primary.clone()
        },
    );
    assert!(is_unnamed(primary.clone(), asks.clone()));
    assert!(!is_unnamed(named, asks.clone()));
    // Whether it does is not known.
    assert!(!is_unnamed(unreadable, asks.clone()));
    // Another one shares the address already.
    let shares = Candidate {
        names_address: true,
        workload: WorkloadType::Cluster,
        ..asks
    };
    assert!(!is_unnamed(primary, shares));
}

/// Somebody has deleted the Service, or the primary moves and it is made anew.
#[test]
fn shr_2_without_a_service_a_port_is_of_who_has_it_in_its_endpoint_slice() {
    let (of_p, of_b) = (slice("p", &["80-tcp"]), slice("p", &["81-tcp"]));
    let b = Candidate {
        names_address: true,
        ..candidate("b", 2)
    };
    let with = |service: Option<&Service>, of_b: &EndpointSlice| {
        let stored = Stored {
            name: "p",
            lbs: vec![
                Wish {
                    ports: Some([tcp(80), tcp(81)].into()),
                    ..wish(candidate("p", 1), 80, Some(&of_p))
                },
                wish(b.clone(), 81, Some(of_b)),
            ],
            service,
            record: Some(held("p")),
        };
        say(&stored)
    };
    let shared = service("p", &["p", "b"], &[(80, "80-tcp"), (81, "81-tcp")]);
    let kept = ["b shares", "p: 81 is b's"];
    assert_eq!(with(Some(&shared), &of_b), kept);
    assert_eq!(with(None, &of_b), kept);
    // It has no port of the Service.
    let own = slice("b", &["81-tcp"]);
    assert_eq!(with(None, &own), ["b: 81 is p's", "p holds"]);
}

/// Of one whose spec is refused the Service carries what it had. The next Service is to carry the same.
#[test]
fn be_6_one_that_is_refused_shares_the_address_while_there_is_no_service() {
    let of_b = slice("p", &["81-tcp"]);
    let is_member = |names_record: bool, is_readable: bool, slice: &EndpointSlice| {
        let b = Wish {
            names_record,
            ports: None,
            ..wish(
                Candidate {
                    is_readable,
                    ..candidate("b", 2)
                },
                81,
                Some(slice),
            )
        };
        let stored = Stored {
            name: "p",
            lbs: vec![wish(candidate("p", 1), 80, None), b],
            service: None,
            record: Some(held("p")),
        };
        roles(&stored).contains_key("b")
    };
    assert!(is_member(true, true, &of_b), "perhaps that before a move");
    assert!(is_member(false, false, &of_b), "its status is not known");
    assert!(!is_member(false, true, &of_b));
    assert!(!is_member(true, true, &slice("b", &["81-tcp"])));
}

/// The Service was refused before it had the port, and then the spec: the EndpointSlice keeps the port, so that somebody else's traffic
/// would go there.
#[test]
fn shr_2_a_port_in_the_endpoint_slice_of_a_refused_one_is_nobody_elses() {
    let kept = slice("p", &["81-tcp"]);
    let refused = |name: &'static str| Wish {
        ports: None,
        ..wish(candidate(name, 1), 0, Some(&kept))
    };
    let of_a = slice("p", &["80-tcp"]);
    let shared = service("p", &["p", "a"], &[(80, "80-tcp")]);
    let roles = |owner: &'static str, lbs: Vec<Wish<'_>>| {
        say(&Stored {
            name: "p",
            lbs,
            service: Some(&shared),
            record: Some(held(owner)),
        })
    };
    let a = || wish(candidate("a", 2), 80, Some(&of_a));
    let newcomer = |port| wish(candidate("b", 3), port, None);
    assert_eq!(
        roles("p", vec![refused("p"), a(), newcomer(81)]),
        ["a shares", "b: 81 is p's", "p holds"]
    );
    assert_eq!(
        roles("p", vec![refused("p"), a(), newcomer(82)]),
        ["a shares", "b shares", "p holds"]
    );
    // What it would have had besides is free for others.
    let both = Wish {
        ports: Some([tcp(81), tcp(83)].into()),
        ..newcomer(81)
    };
    let younger = wish(candidate("c", 4), 83, None);
    assert_eq!(
        roles("p", vec![refused("p"), a(), both, younger]),
        ["a shares", "b: 81 is p's", "c shares", "p holds"]
    );
    // The primary too, which serves nothing yet: the address is its own all the same.
    let primary = || wish(candidate("p", 2), 81, None);
    assert_eq!(
        roles("p", vec![refused("a"), primary()]),
        ["a shares", "p: 81 is a's"]
    );
    // What is served already goes on: one that gets a further port waits for that alone.
    let more = Wish {
        ports: Some([tcp(80), tcp(81)].into()),
        ..a()
    };
    assert_eq!(
        roles("p", vec![refused("p"), more]),
        ["a shares", "p holds"]
    );
}

/// The primary has moved and is gone, and so is the holder that had followed it: who still names the former address goes on sharing.
#[test]
fn shr_8_who_names_the_address_before_a_move_is_present() {
    let lb = |names_record| Wish {
        ports: Some(BTreeSet::new()),
        names_record,
        ..wish(
            Candidate {
                workload: WorkloadType::Cluster,
                ..candidate("c", 1)
            },
            0,
            None,
        )
    };
    for (names_record, expected) in [
        (true, "c holds"),
        (
            false,
            "c: annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"p\": there is no such load balancer in this namespace",
        ),
    ] {
        let roles = say(&Stored {
            name: "p",
            lbs: vec![lb(names_record)],
            service: None,
            record: Some(held("gone")),
        });
        assert_eq!(roles, [expected]);
    }
}
