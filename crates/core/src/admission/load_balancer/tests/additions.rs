//! What is added to a load balancer: annotations (WM-1 to WM-3) and the defaults of its health check (WM-4).

use harvester_lb_fixtures::{cluster_spec, vm_spec, with};
use serde_json::{Value, json};

use super::{CREATOR, GUEST, NODE_DRIVER, lb};
use crate::admission::facts::Lookup;
use crate::admission::mutate;
use crate::admission::response::Denial;
use crate::admission::tests::world::{World, mutated, review};

const NAMESPACE: &str = "loadbalancer.harvesterhci.io/namespace";
const PROJECT: &str = "loadbalancer.harvesterhci.io/project";
const NETWORK: &str = "loadbalancer.harvesterhci.io/network";
const CLUSTER: &str = "loadbalancer.harvesterhci.io/cluster";
const MANAGEMENT_NETWORK: &str = "cloudprovider.harvesterhci.io/managementNetwork";

/// A LoadBalancer of cluster type with these annotations.
fn guest(annotations: &Value) -> Value {
    let mut guest = lb(&cluster_spec());
    guest["metadata"]["annotations"] = annotations.clone();
    guest
}

/// The annotations after the creation of a LoadBalancer.
fn annotated(object: &Value, world: &World) -> Value {
    mutated("CREATE", object, &Value::Null, world)["metadata"]["annotations"].clone()
}

/// The Namespace shop in a project.
fn shop() -> World {
    let mut world = World::default();
    world.project("shop", "c-1:p-2");
    world
}

#[test]
fn wm_1_vm_type_gets_its_namespace_and_nothing_else() {
    let world = World::unlisted();
    let own = json!({NAMESPACE: "shop"});
    let mut web = lb(&vm_spec("web"));
    assert_eq!(annotated(&web, &world), own, "no annotations");
    web["metadata"]["annotations"] = Value::Null;
    assert_eq!(annotated(&web, &world), own, "null");
    web["metadata"]["annotations"] = json!({});
    assert_eq!(annotated(&web, &world), own, "none");
    web["metadata"]["annotations"] = json!({NAMESPACE: "other", NETWORK: "net/v20", "a~/b": "c"});
    let kept = json!({NAMESPACE: "shop", NETWORK: "net/v20", "a~/b": "c"});
    assert_eq!(annotated(&web, &world), kept, "the others stay");
    let explicit = lb(&with(vm_spec("web"), json!({"workloadType": "vm"})));
    assert_eq!(annotated(&explicit, &world), own);
    // On an update too, and of an object that breaks a rule.
    let broken = lb(&json!({}));
    let after = mutated("UPDATE", &broken, &broken, &world);
    assert_eq!(after["metadata"]["annotations"], own);
}

#[test]
fn wm_1_only_additions() {
    let mut web = lb(&with(
        vm_spec("web"),
        json!({"healthCheck": {"port": 8080}}),
    ));
    web["metadata"]["annotations"] = json!({NAMESPACE: "other"});
    let patch = mutate(&review("CREATE", &web), &World::unlisted()).unwrap();
    let patch = serde_json::to_value(&patch).unwrap();
    let patch = patch.as_array().unwrap();
    assert_eq!(patch.len(), 5);
    assert!(
        patch.iter().all(|change| change["op"] == "add"),
        "{patch:?}"
    );
    assert_eq!(
        patch[0]["path"],
        "/metadata/annotations/loadbalancer.harvesterhci.io~1namespace"
    );
}

#[test]
fn wm_2_cluster_type_gets_all_three() {
    for (id, project) in [
        ("c-1:p-2", "c-1/p-2"),
        ("", ""),
        ("c:p:x", "c/p:x"),
        ("local", "local"),
    ] {
        let mut world = World::default();
        world.project("shop", id);
        let all = json!({NAMESPACE: "shop", PROJECT: project, NETWORK: ""});
        assert_eq!(annotated(&guest(&Value::Null), &world), all, "{id:?}");
        // What guests write is put right each time.
        let empty = json!({NAMESPACE: "", PROJECT: "", NETWORK: ""});
        assert_eq!(annotated(&guest(&empty), &world), all, "{id:?}");
        let wrong = guest(&json!({NAMESPACE: "x", PROJECT: "y"}));
        let after = mutated("UPDATE", &wrong, &guest(&all), &world);
        assert_eq!(after["metadata"]["annotations"], all, "{id:?}");
    }
}

#[test]
fn wm_2_a_namespace_that_cannot_be_read() {
    for (lookup, text) in [
        (
            Lookup::NotFound,
            "LoadBalancer shop/web: Namespace shop does not exist, so its project is not known",
        ),
        (
            Lookup::Failed("timed out".to_owned()),
            "LoadBalancer shop/web: Namespace shop cannot be read: timed out",
        ),
    ] {
        let mut world = World::default();
        world.namespaces.insert("shop".to_owned(), lookup);
        let request = review("CREATE", &guest(&Value::Null));
        let Err(Denial::Refused(refusal)) = mutate(&request, &world) else {
            panic!("{text}")
        };
        assert_eq!((refusal.rule(), refusal.message()), ("WM-2", text));
        // VM type needs no Namespace.
        assert!(mutate(&review("CREATE", &lb(&vm_spec("web"))), &world).is_ok());
    }
}

/// The example of section 10.1.
#[test]
fn wm_3_the_machines_of_the_cluster_tell_its_network() {
    let mut world = shop();
    world.instance(
        "shop",
        "gc1-pool-x",
        &json!({CREATOR: NODE_DRIVER}),
        &["net/v20"],
    );
    assert_eq!(
        annotated(&guest(&json!({CLUSTER: "gc1"})), &world),
        json!({CLUSTER: "gc1", PROJECT: "c-1/p-2", NAMESPACE: "shop", NETWORK: "net/v20"})
    );
}

#[test]
fn wm_3_the_first_source_that_tells() {
    let mut world = shop();
    let created = json!({CREATOR: NODE_DRIVER});
    let both = json!({CREATOR: NODE_DRIVER, GUEST: "gc1"});
    let network =
        |world: &World, annotations: Value| annotated(&guest(&annotations), world)[NETWORK].clone();
    let of = |world: &World, cluster: &str| network(world, json!({CLUSTER: cluster}));

    assert_eq!(of(&world, "gc1"), "", "no machine");
    world.instance("other", "gc1-a", &both, &["net/other"]);
    assert_eq!(of(&world, "gc1"), "", "of another namespace");
    world.instance("shop", "gc1-z", &created, &["net/z"]);
    world.instance("shop", "gc1-y", &created, &["net/y", "net/x"]);
    world.instance("shop", "gc1-w", &json!({}), &["net/w"]);
    world.instance("shop", "gc1-v", &json!({CREATOR: "somebody"}), &["net/v"]);
    world.instance("shop", "gc1-u", &created, &[]);
    assert_eq!(
        of(&world, "gc1"),
        "net/y",
        "by name, with a network, by the node driver"
    );
    assert_eq!(of(&world, "gc2"), "", "of another cluster");
    world.instance("shop", "zz", &json!({GUEST: "gc1"}), &["", "net/label"]);
    assert_eq!(
        of(&world, "gc1"),
        "net/label",
        "the label comes before the name"
    );
    assert_eq!(
        of(&world, "zz"),
        "",
        "a label alone counts for its cluster only"
    );
    world.instance("shop", "aa", &json!({GUEST: "gc1"}), &["net/first"]);
    assert_eq!(of(&world, "gc1"), "net/first", "by name");
    world.instance("shop", "aa", &json!({GUEST: "gc1"}), &[]);
    assert_eq!(of(&world, "gc1"), "net/label", "its network is gone");

    let managed = json!({CLUSTER: "gc1", MANAGEMENT_NETWORK: "net/mgmt"});
    assert_eq!(network(&world, managed.clone()), "net/mgmt");
    assert_eq!(
        network(&world, with(managed, json!({NETWORK: "net/own"}))),
        "net/own"
    );
    let empty = json!({CLUSTER: "gc1", MANAGEMENT_NETWORK: "", NETWORK: ""});
    assert_eq!(network(&world, empty), "net/label");
    assert_eq!(network(&world, json!({CLUSTER: ""})), "");
}

#[test]
fn wm_4_defaults_of_the_health_check() {
    let world = shop();
    let check = |kind: &str, check: Value| {
        let spec = with(
            vm_spec("web"),
            json!({"workloadType": kind, "healthCheck": check}),
        );
        mutated("CREATE", &lb(&spec), &Value::Null, &world)["spec"]["healthCheck"].clone()
    };
    let all = |s: i64, f: i64, p: i64, t: i64| {
        json!({
            "port": 8080, "successThreshold": s, "failureThreshold": f, "periodSeconds": p, "timeoutSeconds": t,
        })
    };
    for kind in ["vm", "cluster"] {
        assert_eq!(check(kind, json!({"port": 8080})), all(1, 3, 5, 3));
        assert_eq!(check(kind, all(0, 0, 0, 0)), all(1, 3, 5, 3));
        assert_eq!(check(kind, all(2, 0, 7, 0)), all(2, 3, 7, 3));
        assert_eq!(check(kind, all(9, 9, 9, 9)), all(9, 9, 9, 9));
        assert_eq!(check(kind, all(-1, 3, 5, 3)), all(-1, 3, 5, 3), "not zero");
        let off = json!({"port": 0, "periodSeconds": 0});
        assert_eq!(check(kind, off.clone()), off);
        assert_eq!(
            check(kind, json!({"periodSeconds": 0})),
            json!({"periodSeconds": 0})
        );
        assert_eq!(check(kind, Value::Null), Value::Null);
    }
    let null = json!({"port": 8080, "successThreshold": null, "failureThreshold": 1});
    assert_eq!(check("vm", null), all(1, 1, 5, 3));
}
