use harvester_lb_api::cni::NetworkAttachmentDefinition;
use harvester_lb_fixtures::{part, pool, record, subnet, with};
use serde_json::{Value, json};

use super::vlan_id;
use crate::admission::facts::Lookup;
use crate::admission::mutate;
use crate::admission::response::Denial;
use crate::admission::tests::world::{World, denied, mutated, refused_by, review, review_of};

mod addresses;
mod exclusions;

const VID: &str = "loadbalancer.harvesterhci.io/vid";
const GLOBAL: &str = "loadbalancer.harvesterhci.io/global-ip-pool";

/// A pool with this selector and the subnet 10.10.N.0/24.
fn selecting(name: &str, number: u8, selector: &Value) -> Value {
    let mut object = pool(name, &[subnet(&format!("10.10.{number}.0/24"))]);
    object["spec"]["selector"] = selector.clone();
    object
}

/// A scope.
fn scope(tuples: &[[&str; 3]]) -> Value {
    let tuples = tuples
        .iter()
        .map(|[p, n, c]| json!({"project": p, "namespace": n, "guestCluster": c}));
    json!({"scope": tuples.collect::<Vec<_>>()})
}

/// A selector.
fn selector(priority: u32, network: &str, tuples: &[[&str; 3]]) -> Value {
    with(
        scope(tuples),
        json!({"priority": priority, "network": network}),
    )
}

/// The rule that refuses the creation of a pool beside others.
fn created(object: &Value, others: &[Value]) -> Option<&'static str> {
    let mut world = World::default();
    for other in others {
        world.pool(other);
    }
    refused_by(&review("CREATE", object), &world)
}

/// The labels of a pool after its creation.
fn labelled(object: &Value, world: &World) -> Value {
    mutated("CREATE", object, &Value::Null, world)["metadata"]["labels"].clone()
}

#[test]
fn wm_5_labels_of_a_pool() {
    let mut world = World::unlisted();
    world.vlan("net/v20", Lookup::Found(Ok(20)));
    world.vlan("net/v0", Lookup::Found(Ok(0)));
    let everything = ["*", "*", "*"];
    for (selector, vid, global) in [
        (Value::Null, "0", "false"),
        (json!({}), "0", "false"),
        (json!({"network": ""}), "0", "false"),
        (json!({"network": "net/v20"}), "20", "false"),
        (json!({"network": "net/v0"}), "0", "false"),
        (scope(&[everything]), "0", "true"),
        (scope(&[everything, everything]), "0", "false"),
        (scope(&[["*", "*", ""]]), "0", "false"),
        (selector(5, "net/v20", &[everything]), "20", "true"),
    ] {
        let mut object = selecting("p", 5, &selector);
        let labels = json!({VID: vid, GLOBAL: global});
        assert_eq!(labelled(&object, &world), labels, "{selector}");
        object["metadata"]["labels"] = json!({VID: "7", "app": "x"});
        let kept = with(labels, json!({"app": "x"}));
        assert_eq!(labelled(&object, &world), kept, "{selector}");
    }
}

#[test]
fn wm_5_a_network_that_cannot_be_used() {
    let refused = |network: &str, lookup: Lookup<Result<i64, String>>, text: &str| {
        let mut world = World::unlisted();
        world.vlan(network, lookup);
        let object = selecting("p", 5, &json!({"network": network}));
        let Err(Denial::Refused(refusal)) = mutate(&review("CREATE", &object), &world) else {
            panic!("{network}")
        };
        assert_eq!(refusal.rule(), "WM-5");
        let all = refusal.message();
        assert!(
            all.starts_with(&format!("IPPool p: spec.selector.network {network:?}")),
            "{all}"
        );
        assert!(all.ends_with(text), "{all}");
        // The network was there when it was chosen: the label stays, and no write of the pool is stopped.
        let mut stored = object.clone();
        stored["metadata"]["labels"] = json!({VID: "20", GLOBAL: "false"});
        let after = mutated("UPDATE", &stored, &stored, &world);
        assert_eq!(
            after["metadata"]["labels"],
            json!({VID: "20", GLOBAL: "false"})
        );
        let mut lost = object.clone();
        lost["metadata"]["labels"] = json!({VID: "x", "app": "x"});
        let after = mutated("UPDATE", &lost, &stored, &world);
        let labels = &after["metadata"]["labels"];
        assert_eq!(
            *labels,
            json!({VID: "20", GLOBAL: "false", "app": "x"}),
            "{network}"
        );
        // A change to it is refused.
        let other = selecting("p", 5, &json!({"network": "net/other"}));
        assert!(mutate(&review_of("UPDATE", &object, &other), &world).is_err());
    };
    refused("net/v20", Lookup::NotFound, "does not exist");
    refused(
        "net/v20",
        Lookup::Failed("timed out".into()),
        "cannot be read: timed out",
    );
    refused(
        "net/v20",
        Lookup::Found(Err("has no number".into())),
        "has no number",
    );
    for network in ["v20", "/", "a/b/c", "net/"] {
        let lookup = Lookup::NotFound;
        let is_pair = network.matches('/').count() == 1;
        let text = if is_pair {
            "does not exist"
        } else {
            "is not written as <namespace>/<name>"
        };
        refused(network, lookup, text);
    }
    let object = selecting("p", 5, &json!({"network": "net/v20"}));
    let missing = mutate(&review("CREATE", &object), &World::default()).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "NetworkAttachmentDefinition net/v20 is not read yet; try again"
    );
}

#[test]
fn wm_5_the_vlan_of_a_network() {
    let vlan = |label: Option<&str>, config: Value| {
        let labels = label.map(|text| json!({"network.harvesterhci.io/vlan-id": text}));
        let network: NetworkAttachmentDefinition = serde_json::from_value(json!({
            "metadata": {"namespace": "net", "name": "v20", "labels": labels},
            "spec": {"config": config},
        }))
        .unwrap();
        vlan_id(&network)
    };
    let config = json!(r#"{"cniVersion":"0.3.1","type":"bridge","vlan":30}"#);
    assert_eq!(
        vlan(Some("20"), config.clone()),
        Ok(20),
        "the label comes first"
    );
    assert_eq!(vlan(None, config.clone()), Ok(30));
    assert_eq!(vlan(None, json!(r#"{"type":"bridge"}"#)), Ok(0));
    assert_eq!(vlan(None, json!(r#"{"vlan":null}"#)), Ok(0));
    assert_eq!(vlan(None, json!("")), Ok(0));
    assert_eq!(vlan(None, Value::Null), Ok(0));
    assert_eq!(vlan(Some("20"), json!("no json")), Ok(20));
    for label in ["", "x", "20 ", "9999999999999999999999"] {
        assert!(vlan(Some(label), config.clone()).is_err(), "{label:?}");
    }
    for config in ["{", r#"{"vlan":"20"}"#, r#"{"vlan":1.5}"#, "7"] {
        assert!(vlan(None, json!(config)).is_err(), "{config}");
    }
}

#[test]
fn pv_1_each_range_is_valid() {
    let rule = |ranges: &[Value]| created(&pool("p", ranges), &[]);
    assert_eq!(rule(&[]), Some("PV-1"));
    assert_eq!(rule(&[subnet("10.10.5.0/24")]), None);
    for bad in [
        "10.10.5.0",
        "10.10.5.0/33",
        "10.10.5.256/24",
        "::ffff:10.0.0.0/104",
        " 10.0.0.0/8",
        "",
    ] {
        assert_eq!(
            rule(&[subnet("10.9.0.0/24"), subnet(bad)]),
            Some("PV-1"),
            "{bad}"
        );
    }
    let edited = |field: &str, address: &str| {
        rule(&[with(subnet("10.10.5.0/24"), json!({ field: address }))])
    };
    assert_eq!(edited("rangeStart", "10.10.5.0"), Some("PV-1"));
    assert_eq!(edited("rangeEnd", "10.10.5.255"), Some("PV-1"));
    assert_eq!(edited("gateway", "10.10.6.1"), Some("PV-1"));
    assert_eq!(edited("gateway", "10.10.5.9"), None);
    assert_eq!(
        rule(&[part("10.10.5.0/24", "10.10.5.40", "10.10.5.31")]),
        None,
        "swapped"
    );
}

#[test]
fn pv_2_own_ranges_do_not_overlap() {
    let tens = |a: &str, b: &str| part("10.10.5.0/24", a, b);
    let touching = [
        tens("10.10.5.10", "10.10.5.20"),
        tens("10.10.5.21", "10.10.5.30"),
    ];
    assert_eq!(created(&pool("p", &touching), &[]), None);
    let inside = [subnet("10.10.5.0/24"), tens("10.10.5.10", "10.10.5.20")];
    assert_eq!(created(&pool("p", &inside), &[]), Some("PV-2"));
    let twice = [subnet("10.10.5.0/24"), subnet("10.10.5.0/24")];
    assert_eq!(created(&pool("p", &twice), &[]), Some("PV-2"));
    let families = [subnet("10.10.5.0/24"), subnet("fd10:5::/64")];
    assert_eq!(created(&pool("p", &families), &[]), None);
}

#[test]
fn pv_3_ranges_of_other_pools() {
    let half = |name: &str, n: u8| pool(name, &[subnet(&format!("10.10.5.{n}/25"))]);
    assert_eq!(created(&half("a", 0), &[half("b", 128)]), None);
    assert_eq!(created(&half("a", 0), &[half("b", 0)]), Some("PV-3"));
    let on = |name: &str, network: &str| selecting(name, 5, &json!({"network": network}));
    assert_eq!(
        created(&on("a", "net/v1"), &[on("b", "net/v2")]),
        Some("PV-3"),
        "whatever its network"
    );
    let mut world = World::default();
    world.pool(&half("a", 0));
    world.pool(&half("b", 128));
    let whole = pool("a", &[subnet("10.10.5.0/24")]);
    let grown = denied(&review_of("UPDATE", &whole, &half("a", 0)), &world);
    assert_eq!(
        grown.message(),
        "IPPool a: spec.ranges[0] is 10.10.5.1-10.10.5.254, which shares addresses with 10.10.5.129-10.10.5.254 of IPPool b: make them disjoint"
    );
    world.pools.remove("b");
    assert_eq!(
        refused_by(&review_of("UPDATE", &whole, &half("a", 0)), &world),
        None
    );
}

/// A pool of 10.10.5.0/24 in which the load balancer shop/web holds 10.10.5.9.
fn held() -> (Value, World) {
    let object = pool("p", &[subnet("10.10.5.0/24")]);
    let mut world = World::default();
    world.pool(&object);
    world.record(&record("10.10.5.9", "p", "Bound", ("shop", "web", "u")));
    world.record(&record(
        "10.10.5.200",
        "p",
        "Released",
        ("shop", "old", "u"),
    ));
    world.record(&record("10.10.6.7", "q", "Bound", ("shop", "other", "u")));
    (object, world)
}

/// A pool whose only range is this part of 10.10.5.0/24.
fn shrunk(start: u8, end: u8) -> Value {
    let address = |n: u8| format!("10.10.5.{n}");
    pool("p", &[part("10.10.5.0/24", &address(start), &address(end))])
}

#[test]
fn pv_5_at_most_one_global_pool() {
    let everything = scope(&[["*", "*", "*"]]);
    let global = |name: &str, n: u8| selecting(name, n, &everything);
    assert_eq!(created(&global("a", 1), &[]), None);
    assert_eq!(created(&global("b", 2), &[global("a", 1)]), Some("PV-5"));
    let mut world = World::default();
    world.pool(&global("a", 1));
    let mut edited = global("a", 1);
    edited["spec"]["ranges"] = json!([{"subnet": "10.10.9.0/24"}]);
    assert_eq!(
        refused_by(&review_of("UPDATE", &edited, &global("a", 1)), &world),
        None
    );
    // The label of a pool does not make it global, its spec does.
    let mut labelled = selecting("b", 2, &scope(&[["p", "n", "c"]]));
    labelled["metadata"]["labels"] = json!({GLOBAL: "true"});
    assert_eq!(created(&labelled, &[global("a", 1)]), None);
    // A global pool skips PV-6 to PV-8.
    let first = selecting("a", 1, &with(everything.clone(), json!({"priority": 3})));
    let other = selecting("b", 2, &selector(3, "", &[["p", "n", "c"]]));
    assert_eq!(created(&first, std::slice::from_ref(&other)), None);
    assert_eq!(created(&other, &[first]), None);
}

#[test]
fn pv_6_own_tuples_do_not_overlap() {
    let rule = |tuples: &[[&str; 3]]| created(&selecting("p", 1, &scope(tuples)), &[]);
    assert_eq!(rule(&[["p1", "a", "*"], ["p1", "b", "*"]]), None);
    assert_eq!(rule(&[["p1", "a", "*"], ["p1", "*", "gc"]]), Some("PV-6"));
    assert_eq!(rule(&[["", "a", ""], ["", "a", ""]]), Some("PV-6"));
    assert_eq!(rule(&[["*", "*", "*"], ["p", "n", "c"]]), Some("PV-6"));
    assert_eq!(
        rule(&[["", "a", ""], ["p", "a", ""]]),
        None,
        "\"\" equals only \"\""
    );
}

#[test]
fn pv_7_priorities_differ() {
    let (a, b) = (["p", "a", "c"], ["p", "b", "c"]);
    let beside =
        |own: &Value, other: &Value| created(&selecting("a", 1, own), &[selecting("b", 2, other)]);
    assert_eq!(beside(&selector(1, "", &[a]), &selector(2, "", &[a])), None);
    let same = beside(&selector(1, "net/v1", &[a]), &selector(1, "", &[b]));
    assert_eq!(same, Some("PV-7"), "also with another network or scope");
    assert_eq!(beside(&selector(0, "", &[a]), &selector(0, "", &[b])), None);
}

#[test]
fn pv_8_scopes_of_priority_0_on_one_network() {
    let (wide, narrow) = (["*", "a", "*"], ["p1", "a", "gc"]);
    let beside =
        |own: &Value, other: &Value| created(&selecting("a", 1, own), &[selecting("b", 2, other)]);
    let of = |network: &str, tuple| selector(0, network, &[tuple]);
    assert_eq!(
        beside(&of("net/v1", wide), &of("net/v2", wide)),
        None,
        "another network"
    );
    assert_eq!(beside(&of("", wide), &of("", narrow)), Some("PV-8"));
    assert_eq!(beside(&of("", narrow), &of("", wide)), Some("PV-8"));
    assert_eq!(
        beside(&selector(1, "", &[wide]), &of("", narrow)),
        None,
        "another priority"
    );
    assert_eq!(
        beside(&of("", ["p1", "a", "gc"]), &of("", ["p1", "a", "other"])),
        None
    );
}

#[test]
fn val_1_every_violation_of_a_pool_in_the_order_of_the_rules() {
    let (object, mut world) = held();
    world.pool(&selecting("q", 5, &scope(&[["p", "n", "c"]])));
    let mut after = shrunk(100, 110);
    after["spec"]["selector"] = scope(&[["p", "*", "c"], ["p", "n", "*"]]);
    let message = denied(&review_of("UPDATE", &after, &object), &world);
    let message = message.message();
    let at = |text: &str| {
        message
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {message}"))
    };
    let order = [
        at("of IPPool q: make"),
        at("leaves out"),
        at("scope[1]"),
        at("priority 0"),
    ];
    assert!(order.is_sorted(), "{message}");
}
