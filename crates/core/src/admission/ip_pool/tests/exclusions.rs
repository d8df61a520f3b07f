//! The annotation `exclude` (EXC-1 to EXC-3).

use harvester_lb_fixtures::{part, pool, record};
use serde_json::{Value, json};

use crate::admission::tests::world::{World, denied, refused_by, review, review_of, warnings};

const EXCLUDE: &str = "loadbalancer.harvesterhci.io/exclude";

/// A pool with this list, and one range of a hundred addresses.
fn excluding(list: &str) -> Value {
    let mut object = pool("p", &[part("10.0.0.0/24", "10.0.0.2", "10.0.0.101")]);
    object["metadata"]["annotations"] = json!({ EXCLUDE: list });
    object
}

#[test]
fn exc_1_a_list_is_accepted_or_refused() {
    let world = World::default();
    let many = |count: usize| vec!["10.0.0.5"; count].join(",");
    for accepted in [
        "",
        " , ",
        "10.0.0.5",
        "10.0.0.5, 10.0.0.8-10.0.0.12,10.0.1.0/28",
        &many(1024),
    ] {
        let request = review("CREATE", &excluding(accepted));
        assert_eq!(refused_by(&request, &world), None, "{accepted:?}");
    }
    for refused in [
        "x",
        "10.0.0.5-fd10::5",
        "10.0.0.12-10.0.0.8",
        "10.0.0.5/33",
        &many(1025),
    ] {
        let request = review("CREATE", &excluding(refused));
        assert_eq!(refused_by(&request, &world), Some("EXC-1"), "{refused:?}");
        let request = review_of("UPDATE", &excluding(refused), &excluding(""));
        assert_eq!(refused_by(&request, &world), Some("EXC-1"), "{refused:?}");
    }
    let refusal = denied(&review("CREATE", &excluding("10.0.0.5, x")), &world);
    assert_eq!(
        refusal.message(),
        "IPPool p: annotation loadbalancer.harvesterhci.io/exclude: the entry \"x\" is no address, range or subnet; write 10.0.0.5, 10.0.0.8-10.0.0.12 or 10.0.1.0/28"
    );
}

#[test]
fn exc_1_an_update_is_judged_if_spec_or_list_change() {
    let world = World::default();
    let stored = excluding("x");
    let update = |after: &Value| refused_by(&review_of("UPDATE", after, &stored), &world);
    // An invalid list that is stored stops no other write of the metadata.
    let mut labelled = stored.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(update(&labelled), None);
    assert_eq!(update(&excluding("y")), Some("EXC-1"));
    assert_eq!(update(&excluding("10.0.0.5")), None);
    let mut without = stored.clone();
    without["metadata"]["annotations"] = Value::Null;
    assert_eq!(update(&without), None);
    let mut wider = stored.clone();
    wider["spec"]["ranges"][0]["rangeEnd"] = json!("10.0.0.111");
    assert_eq!(update(&wider), Some("EXC-1"));
    // With other violations all are told.
    wider["spec"]["ranges"][0]["rangeEnd"] = json!("x");
    let refusal = denied(&review_of("UPDATE", &wider, &stored), &world);
    assert_eq!(refusal.rule(), "PV-1");
    assert!(refusal.message().contains("annotation"), "{refusal}");
}

#[test]
fn exc_1_entries_outside_of_the_ranges_are_legal_and_said() {
    let world = World::default();
    let warned = |list: &str| warnings(&review("CREATE", &excluding(list)), &world);
    assert_eq!(warned("10.0.0.2-10.0.0.9, 10.0.0.101"), [""; 0]);
    assert_eq!(
        warned("10.0.0.5, 10.0.0.99-10.0.0.102, 10.0.1.0/28"),
        [
            "annotation loadbalancer.harvesterhci.io/exclude: 10.0.0.99-10.0.0.102 is not, or not wholly, in spec.ranges, and 1 more entries like it: what lies outside is not allocated anyway"
        ]
    );
}

#[test]
fn exc_2_a_range_that_is_excluded_as_a_whole_has_nothing_to_allocate() {
    let all = warnings(
        &review("CREATE", &excluding("10.0.0.2-10.0.0.101")),
        &World::default(),
    );
    assert_eq!(
        all,
        ["spec.ranges[0] has no address to allocate: all of them are excluded"]
    );
}

#[test]
fn exc_2_the_address_of_a_node_that_is_excluded_is_no_danger() {
    let mut world = World::default();
    world.nodes.set("n1", ["10.0.0.7".parse().unwrap()].into());
    let warned = |list: &str| warnings(&review("CREATE", &excluding(list)), &world).len();
    assert_eq!((warned("10.0.0.6"), warned("10.0.0.7")), (1, 0));
}

#[test]
fn exc_3_an_excluded_address_in_use_is_said_to_stay() {
    let mut world = World::default();
    for address in ["10.0.0.9", "10.0.0.8", "10.0.0.20"] {
        world.record(&record(address, "p", "Bound", ("shop", "web", "u")));
    }
    world.record(&record("10.0.0.10", "p", "Released", ("shop", "b", "u")));
    world.record(&record("10.0.1.1", "q", "Bound", ("shop", "c", "u")));
    let request = review_of("UPDATE", &excluding("10.0.0.8-10.0.0.12"), &excluding(""));
    let all = warnings(&request, &world);
    assert_eq!(
        all,
        [
            "annotation loadbalancer.harvesterhci.io/exclude: 10.0.0.8 is allocated to LoadBalancer shop/web, and 1 more in use like it: it stays so until its release"
        ]
    );
}
