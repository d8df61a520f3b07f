use harvester_lb_fixtures::{cluster_spec, listener, record, vm_spec, with};
use serde_json::{Value, json};

use crate::admission::facts::{Fact, Lookup};
use crate::admission::response::{Denial, Warning};
use crate::admission::tests::world::{World, refused_by, review, review_of, warnings};
use crate::admission::validate;

const KEY: &str = "loadbalancer.harvesterhci.io/primary-load-balancer";
const REQUESTED: &str = "loadbalancer.harvesterhci.io/requested-address";

/// A LoadBalancer of the namespace shop, which asks for the address of `primary`.
fn lb(name: &str, primary: Option<&str>, spec: &Value) -> Value {
    let annotations = primary.map(|primary| json!({ KEY: primary }));
    json!({
        "metadata": {"namespace": "shop", "name": name, "annotations": annotations},
        "spec": spec,
    })
}

/// The same with the address of its primary, or of its group.
fn sharing(name: &str, primary: &str, spec: &Value) -> Value {
    shared(lb(name, Some(primary), spec), "Secondary")
}

/// With the condition AddressShared for this reason.
fn shared(mut lb: Value, reason: &str) -> Value {
    let condition = json!({"type": "AddressShared", "status": "True", "reason": reason});
    lb["status"]["conditions"] = json!([condition]);
    lb
}

/// A spec with listeners on these ports.
fn on(ports: &[(&str, i64)]) -> Value {
    let listeners = ports.iter().enumerate().map(|(index, (protocol, port))| {
        let backend = 9000 + i64::try_from(index).unwrap();
        listener(&format!("l{index}"), protocol, *port, backend)
    });
    json!({"listeners": listeners.collect::<Vec<_>>()})
}

fn of_pool(pool: &str) -> Value {
    with(on(&[("TCP", 5432)]), json!({"ipPool": pool}))
}

fn world(neighbours: &[Value]) -> World {
    let mut world = World::default();
    world.neighbours(neighbours, true);
    world
}

/// A group that has outlived its primary: the record belongs to one of the others.
fn outlived(world: &mut World, group: &str, owner: &str) {
    let mut record = record("10.0.0.9", "p", "Bound", ("shop", owner, "u"));
    record["metadata"]["annotations"] = json!({ KEY: group });
    world.record(&record);
}

#[test]
fn shr_1_what_only_an_edit_of_the_load_balancer_cures_is_refused() {
    let plain = on(&[("TCP", 5432)]);
    let dhcp = with(plain.clone(), json!({"ipam": "dhcp"}));
    let both = json!({KEY: "web", REQUESTED: "10.0.0.9"});
    let annotated = |annotations: Value, spec: &Value| {
        let mut object = lb("db", None, spec);
        object["metadata"]["annotations"] = annotations;
        object
    };
    for (object, why) in [
        (lb("db", Some("web"), &plain), None),
        (lb("db", None, &dhcp), None),
        (
            lb("db", Some(""), &plain),
            Some(
                "\"\": it must be the name of a load balancer of the same namespace, without the namespace",
            ),
        ),
        (
            lb("db", Some("shop/web"), &plain),
            Some(
                "\"shop/web\": it must be the name of a load balancer of the same namespace, without the namespace",
            ),
        ),
        (
            lb("db", Some("db"), &plain),
            Some("\"db\", the load balancer itself: name another one, or remove the annotation"),
        ),
        (
            lb("db", Some("web"), &dhcp),
            Some("\"web\", and spec.ipam is dhcp: only addresses of pools can be shared"),
        ),
        (
            annotated(both, &plain),
            Some(
                "\"web\", and loadbalancer.harvesterhci.io/requested-address is set too: remove one of the two",
            ),
        ),
    ] {
        // Nothing else needs to be known for it.
        let world = if why.is_some() {
            World::unlisted()
        } else {
            World::default()
        };
        let unshared = lb("db", None, &object["spec"]);
        for request in [
            review("CREATE", &object),
            review_of("UPDATE", &object, &unshared),
        ] {
            let found = match validate(&request, &world) {
                Err(Denial::Refused(refusal)) => {
                    assert_eq!(refusal.rule(), "SHR-1");
                    Some(refusal.message().to_owned())
                }
                Ok(_) => None,
                Err(other) => panic!("{other}"),
            };
            let expected =
                why.map(|why| format!("LoadBalancer shop/db: annotation {KEY} is {why}"));
            assert_eq!(found, expected);
        }
        // An older object is still written.
        let mut written = object.clone();
        written["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(
            refused_by(&review_of("UPDATE", &written, &object), &world),
            None
        );
    }
}

#[test]
fn shr_1_a_change_of_each_annotation_of_the_spec_is_checked() {
    let broken = lb("db", None, &json!({"listeners": []}));
    for (key, is_checked) in [
        (REQUESTED, true),
        (KEY, true),
        ("loadbalancer.harvesterhci.io/dhcp-hardware-address", true),
        ("kube-vip.io/serviceInterface", true),
        ("loadbalancer.harvesterhci.io/network", false),
        // Asked about too, because of pools.
        ("loadbalancer.harvesterhci.io/exclude", false),
    ] {
        let mut changed = broken.clone();
        changed["metadata"]["annotations"] = json!({ key: "10.0.0.9" });
        for (before, after) in [(&broken, &changed), (&changed, &broken)] {
            let rule = refused_by(&review_of("UPDATE", after, before), &World::default());
            assert_eq!(rule, is_checked.then_some("WV-1"), "{key}");
        }
    }
}

#[test]
fn shr_1_what_another_load_balancer_may_cure_is_warned_about() {
    let web = |spec: Value| lb("web", None, &with(on(&[("TCP", 8000)]), spec));
    let mut allocated = web(json!({}));
    allocated["status"] = json!({"allocatedAddress": {"ip": "10.0.0.9", "ipPool": "p"}});
    let db = on(&[("TCP", 5432)]);
    let of_others = sharing("api", "db", &on(&[("TCP", 7000)]));
    let undecodable = lb("web", None, &json!({"workloadType": 7}));
    let rows: Vec<(&str, Vec<Value>, Value, Option<&str>)> = vec![
        ("accepted", vec![web(json!({}))], db.clone(), None),
        (
            "no such load balancer",
            vec![],
            db.clone(),
            Some(": there is no such load balancer in this namespace, and this one waits for it"),
        ),
        (
            "another type",
            vec![lb("web", None, &cluster_spec())],
            db.clone(),
            Some(
                ", a load balancer of workload type cluster, and this one is of type vm: the types must be the same",
            ),
        ),
        (
            "DHCP",
            vec![web(json!({"ipam": "dhcp"}))],
            db.clone(),
            Some(
                ", and spec.ipam of that load balancer is dhcp: only addresses of pools can be shared",
            ),
        ),
        (
            "a chain",
            vec![lb("web", Some("first"), &on(&[("TCP", 8000)]))],
            db.clone(),
            Some(", which shares the address of \"first\" itself: name that one"),
        ),
        (
            "others share the address of one that names a primary in vain",
            vec![
                lb("web", Some("first"), &on(&[("TCP", 8000)])),
                sharing("api", "web", &on(&[("TCP", 7000)])),
            ],
            db.clone(),
            None,
        ),
        (
            "another pool",
            vec![web(json!({"ipPool": "p"}))],
            of_pool("q"),
            Some(
                ", whose address is of pool p, and spec.ipPool is q: leave spec.ipPool empty, or name that pool",
            ),
        ),
        (
            "the same pool",
            vec![web(json!({"ipPool": "p"}))],
            of_pool("p"),
            None,
        ),
        (
            "one names a pool",
            vec![web(json!({"ipPool": "p"}))],
            db.clone(),
            None,
        ),
        ("one names a pool", vec![web(json!({}))], of_pool("q"), None),
        (
            "another pool than that of its address",
            vec![allocated.clone()],
            of_pool("q"),
            Some(
                ", whose address is of pool p, and spec.ipPool is q: leave spec.ipPool empty, or name that pool",
            ),
        ),
        (
            "the pool of its address",
            vec![allocated],
            of_pool("p"),
            None,
        ),
        (
            "nothing is known of it",
            vec![undecodable],
            db.clone(),
            None,
        ),
        (
            "others ask for an address that it has not yet",
            vec![web(json!({})), lb("api", Some("db"), &on(&[("TCP", 7000)]))],
            db.clone(),
            None,
        ),
    ];
    for (what, neighbours, spec, why) in rows {
        let object = lb("db", Some("web"), &spec);
        let mut neighbours = neighbours;
        let expected: Vec<String> = why
            .map(|why| format!("annotation {KEY} is \"web\"{why}"))
            .into_iter()
            .collect();
        let created = review("CREATE", &object);
        assert_eq!(warnings(&created, &world(&neighbours)), expected, "{what}");
        // The list has the object as it is stored.
        neighbours.push(lb("db", None, &spec));
        let updated = review_of("UPDATE", &object, &lb("db", None, &spec));
        assert_eq!(warnings(&updated, &world(&neighbours)), expected, "{what}");
    }
    // One that others share with.
    let object = lb("db", Some("web"), &db);
    let all = [web(json!({})), lb("db", None, &db), of_others];
    let found = warnings(
        &review_of("UPDATE", &object, &lb("db", None, &db)),
        &world(&all),
    );
    let expected = format!(
        "annotation {KEY} is \"web\", but api shares the address of this load balancer, which goes on serving: remove the annotation here, or there first"
    );
    assert_eq!(found, [expected]);
}

#[test]
fn shr_1_what_is_not_known_is_not_warned_about() {
    let spec = on(&[("TCP", 80 + 8000)]);
    let request = review("CREATE", &lb("db", Some("web"), &spec));
    let without = review("CREATE", &lb("db", None, &spec));
    let mut unlisted = World::unlisted();
    // The list is read for those that ask for an address, and for no others.
    assert_eq!(
        validate(&request, &unlisted),
        Err(Denial::NotReady(Fact::LoadBalancers("shop".to_owned())))
    );
    assert_eq!(validate(&without, &unlisted), Ok(Vec::new()));
    for lookup in [Lookup::Failed("forbidden".to_owned()), Lookup::NotFound] {
        unlisted.neighbours = lookup;
        assert_eq!(validate(&request, &unlisted), Ok(Vec::new()));
    }
    // The primary may be beyond the end of the list.
    let mut cut = World::default();
    cut.neighbours(&[], false);
    assert!(warnings(&request, &cut).is_empty());
    // The group may have outlived it: the IPAllocations are not listed.
    unlisted.neighbours(&[], true);
    assert!(warnings(&request, &unlisted).is_empty());
    // It has.
    let mut known = world(&[]);
    assert_eq!(warnings(&request, &known).len(), 1);
    outlived(&mut known, "web", "api");
    assert!(warnings(&request, &known).is_empty());
    // A refusal comes before anything is read.
    let none = lb("db", Some("web"), &json!({"listeners": []}));
    assert_eq!(
        refused_by(&review("CREATE", &none), &World::unlisted()),
        Some("WV-1")
    );
}

#[test]
fn shr_2_ports_that_another_one_has_are_named() {
    let web = lb("web", None, &on(&[("TCP", 8000), ("UDP", 5353)]));
    let api = lb("api", Some("web"), &on(&[("TCP", 7000)]));
    let mut broken = lb("old", Some("web"), &on(&[("TCP", 6000)]));
    broken["spec"]["ipam"] = json!("dhcp");
    let mut gone = lb("gone", Some("web"), &on(&[("TCP", 6001)]));
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let other = lb("other", Some("first"), &on(&[("TCP", 6002)]));
    let stored = lb("db", Some("web"), &on(&[("TCP", 6003)]));
    let all = [web, api, broken, gone, other, stored.clone()];
    let told = |index: usize, port: &str, holder: &str| {
        format!(
            "spec.listeners[{index}].port is {port}, which load balancer {holder} has on the same address: the one that does not get it serves none of its ports"
        )
    };
    for (ports, expected) in [
        (vec![("TCP", 5432)], vec![]),
        (vec![("TCP", 8000)], vec![told(0, "TCP 8000", "web")]),
        (vec![("", 8000)], vec![told(0, "TCP 8000", "web")]),
        (vec![("UDP", 8000), ("TCP", 5353)], vec![]),
        (
            vec![("TCP", 5432), ("UDP", 5353), ("TCP", 7000)],
            vec![told(1, "UDP 5353", "web"), told(2, "TCP 7000", "api")],
        ),
        // Of one that cannot share, one that is going, one of another group, and its own.
        (
            vec![("TCP", 6000), ("TCP", 6001), ("TCP", 6002), ("TCP", 6003)],
            vec![],
        ),
    ] {
        let object = lb("db", Some("web"), &on(&ports));
        let found = warnings(&review_of("UPDATE", &object, &stored), &world(&all));
        assert_eq!(found, expected, "{ports:?}");
    }
    // Also while the primary does not exist; not if it may not share the address anyway.
    let object = lb("db", Some("web"), &on(&[("TCP", 7000)]));
    let found = warnings(&review("CREATE", &object), &world(&all[1..2]));
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[1], told(0, "TCP 7000", "api"));
    let of_type = |spec: &Value| world(&[lb("web", None, spec), all[1].clone()]);
    let found = warnings(&review("CREATE", &object), &of_type(&cluster_spec()));
    assert_eq!(found.len(), 1, "{found:?}");
    // Cluster type: the ports are up to the guest (SHR-8).
    let ported = with(cluster_spec(), on(&[("TCP", 7000)]));
    let guest = lb("db", Some("web"), &ported);
    assert!(warnings(&review("CREATE", &guest), &of_type(&ported)).is_empty());
}

#[test]
fn shr_2_a_response_has_no_more_warnings_than_the_api_server_passes_on() {
    let ports: Vec<(&str, i64)> = (8000..8020).map(|port| ("TCP", port)).collect();
    let web = lb("web", None, &on(&ports));
    let object = lb("db", Some("web"), &on(&ports));
    let found = warnings(&review("CREATE", &object), &world(&[web]));
    assert_eq!(found.len(), Warning::MOST);
}

#[test]
fn shr_6_a_new_one_of_the_name_of_a_group_waits() {
    let spec = on(&[("TCP", 8000)]);
    let mut world = world(&[sharing("api", "web", &on(&[("TCP", 7000)]))]);
    let created = |name: &str, primary: Option<&str>| review("CREATE", &lb(name, primary, &spec));
    assert!(
        warnings(&created("web", None), &world).is_empty(),
        "no such group"
    );
    outlived(&mut world, "web", "api");
    let text = "other load balancers share the address of an earlier one of this name (their annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\"): create this load balancer under another name; it is served under this one once none of them does";
    assert_eq!(warnings(&created("web", None), &world), [text]);
    assert_eq!(warnings(&created("other", None), &world), [""; 0]);
    let mut elsewhere = lb("web", None, &spec);
    elsewhere["metadata"]["namespace"] = json!("other");
    assert_eq!(warnings(&review("CREATE", &elsewhere), &world), [""; 0]);
    // It says so itself, and that its own primary does not exist.
    let found = warnings(&created("web", Some("first")), &world);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0], text);
    // Not on an update: its condition says it.
    let edited = lb(
        "web",
        None,
        &with(spec.clone(), json!({"description": "x"})),
    );
    let updated = review_of("UPDATE", &edited, &lb("web", None, &spec));
    assert!(warnings(&updated, &world).is_empty());
    // What is not listed is not known, and nothing waits for it.
    assert!(warnings(&created("web", None), &World::unlisted()).is_empty());
    // The group has ended.
    let last = record("10.0.0.9", "p", "Released", ("shop", "api", "u"));
    world.record(&last);
    assert!(warnings(&created("web", None), &world).is_empty());
}

#[test]
fn shr_6_a_record_that_its_primary_owns_is_that_of_no_group() {
    let mut world = world(&[]);
    let created = review("CREATE", &lb("web", None, &on(&[("TCP", 8000)])));
    outlived(&mut world, "web", "web");
    assert!(warnings(&created, &world).is_empty());
    outlived(&mut world, "web", "api");
    assert_eq!(warnings(&created, &world).len(), 1);
    // It was handed over to another group's name, and is deleted.
    outlived(&mut world, "other", "api");
    assert!(warnings(&created, &world).is_empty());
    world.allocated.remove_record("10.0.0.9");
    let other = review("CREATE", &lb("other", None, &on(&[("TCP", 8000)])));
    assert!(warnings(&other, &world).is_empty());
}

#[test]
fn shr_9_the_deletion_of_a_primary_names_who_keeps_its_address() {
    let web = lb("web", None, &vm_spec("web"));
    let request = review_of("DELETE", &Value::Null, &web);
    let secondary = |name: &str| sharing(name, "web", &vm_spec("web"));
    let named = |count: usize| -> Vec<Value> {
        let names = (0..count).map(|number| secondary(&format!("lb{number}")));
        [web.clone()].into_iter().chain(names).collect()
    };
    let prefix = "LoadBalancer shop/web: those that share its address keep it: ";
    let five = "lb0, lb1, lb2, lb3, lb4";
    let twelve = "lb0, lb1, lb10, lb11, lb2, lb3, lb4, lb5, lb6, lb7, lb8, lb9".to_owned();
    let waits = lb("waits", Some("web"), &vm_spec("web"));
    let left = shared(lb("left", None, &vm_spec("web")), "Secondary");
    let primary = shared(lb("p", Some("web"), &vm_spec("web")), "Primary");
    for (neighbours, is_complete, expected) in [
        (named(0), true, None),
        (named(0), false, None),
        (named(1), true, Some("lb0".to_owned())),
        (named(2), true, Some("lb0, lb1".to_owned())),
        (named(2), false, Some("lb0, lb1 and maybe more".to_owned())),
        (named(5), true, Some(five.to_owned())),
        (named(12), true, Some(twelve)),
        // Those that ask for it and do not have it keep nothing.
        (vec![waits, left, primary], true, None),
        (
            vec![shared(lb("h", Some("web"), &vm_spec("web")), "Holder")],
            true,
            Some("h".to_owned()),
        ),
    ] {
        let mut world = World::default();
        world.neighbours(&neighbours, is_complete);
        let expected: Vec<String> = expected
            .map(|names| format!("{prefix}{names}"))
            .into_iter()
            .collect();
        assert_eq!(warnings(&request, &world), expected);
    }
}

#[test]
fn shr_9_a_deletion_is_never_refused() {
    let web = lb("web", None, &json!({"listeners": 7}));
    let mut world = World::unlisted();
    for old in [Value::Null, web.clone()] {
        let request = super::super::tests::world::review_named(
            "DELETE",
            "LoadBalancer",
            "web",
            &Value::Null,
            &old,
        );
        world.neighbours = Lookup::Unread;
        assert!(matches!(
            validate(&request, &world),
            Err(Denial::NotReady(Fact::LoadBalancers(_)))
        ));
        for lookup in [Lookup::Failed("forbidden".to_owned()), Lookup::NotFound] {
            world.neighbours = lookup;
            assert_eq!(validate(&request, &world), Ok(Vec::new()));
        }
    }
}

#[test]
fn shr_9_all_of_many_are_named_as_far_as_there_is_room() {
    let web = lb("web", None, &vm_spec("web"));
    let request = review_of("DELETE", &Value::Null, &web);
    let told = |names: &[String], is_complete| {
        let all: Vec<Value> = names
            .iter()
            .map(|name| sharing(name, "web", &vm_spec("web")))
            .collect();
        let mut world = World::default();
        world.neighbours(&all, is_complete);
        let found = warnings(&request, &world);
        assert!(
            found.iter().all(|it| it.len() <= Warning::LIMIT),
            "{found:?}"
        );
        found
    };
    let prefix = "LoadBalancer shop/web: those that share its address keep it: ";
    for (count, length, is_complete, warned, named, rest) in [
        (60, 4, true, 3, 60, ""),
        (60, 4, false, 3, 60, " and maybe more"),
        (12, 63, true, 6, 12, ""),
        (500, 5, true, 8, 192, " and 308 more"),
        (40, 63, false, 8, 16, " and at least 24 more"),
    ] {
        let names: Vec<String> = (0..count).map(|i| format!("{i:0>length$}")).collect();
        let found = told(&names, is_complete);
        assert_eq!(found.len(), warned, "{found:?}");
        let lists = found.iter().map(|it| it.strip_prefix(prefix).unwrap());
        let all = lists.collect::<Vec<_>>().join(", ");
        let all = all.strip_suffix(rest).unwrap();
        let all: Vec<&str> = all.split(", ").collect();
        assert_eq!(all, names[..named], "{count} of {length}");
    }
    // Names that no warning has room for are counted.
    let (short, long) = ("a".to_owned(), |name: &str| name.repeat(250));
    for (names, is_complete, expected) in [
        (vec![short.clone(), long("b")], true, "a and 1 more"),
        (vec![long("b"), long("c")], true, "2 load balancers"),
        (vec![long("b")], false, "at least 1 load balancer"),
        (vec![long("b")], true, "1 load balancer"),
    ] {
        let wanted = vec![format!("{prefix}{expected}")];
        assert_eq!(told(&names, is_complete), wanted);
    }
    // Nothing is said after the last of all, so that it has all the room there is.
    let last = "b".repeat(Warning::LIMIT - prefix.len());
    assert_eq!(
        told(std::slice::from_ref(&last), true),
        [format!("{prefix}{last}")]
    );
    let two = [
        "a".to_owned(),
        "b".repeat(Warning::LIMIT - prefix.len() - "a, ".len()),
    ];
    assert_eq!(told(&two, true), [format!("{prefix}a, {}", two[1])]);
    assert_eq!(
        told(&two, false),
        [format!("{prefix}a and at least 1 more")]
    );
}

#[test]
fn shr_9_the_name_of_the_deleted_one_leaves_room_for_what_is_said() {
    let name = "n".repeat(253);
    let web = lb(&name, None, &vm_spec("web"));
    let request = super::super::tests::world::review_named(
        "DELETE",
        "LoadBalancer",
        &name,
        &Value::Null,
        &web,
    );
    let secondary = "s".repeat(63);
    let mut world = World::default();
    world.neighbours(&[sharing(&secondary, &name, &vm_spec("web"))], false);
    let shown = &name[..100 - "shop/".len()];
    let expected = format!(
        "LoadBalancer shop/{shown}...: those that share its address keep it: {secondary} and maybe more"
    );
    assert!(expected.len() <= Warning::LIMIT);
    assert_eq!(warnings(&request, &world), vec![expected]);
}
