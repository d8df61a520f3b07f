//! Which pool serves a load balancer that names none.

use super::*;

/// SEL-2 to SEL-6, the worked examples of section 5: the requirement, the type, the pools, and which serves.
#[test]
fn sel_5_the_worked_examples() {
    let pool = |name: &str| {
        let (network, priority, scope) = match name {
            "a" => ("net/v20", 0, ["p1", "shop", "gc1"]),
            "b" => ("net/v20", 5, ["*", "shop", "*"]),
            "c" => ("", 0, ["", "shop", ""]),
            "d" => ("net/v20", 0, ["", "data", ""]),
            _ => ("", 0, ["*"; 3]),
        };
        let [project, namespace, guest] = scope;
        let selector = json!({
            "network": network, "priority": priority,
            "scope": [{"project": project, "namespace": namespace, "guestCluster": guest}],
        });
        let pool = fixtures::pool(name, &[fixtures::subnet("10.0.0.0/24")]);
        let spec = with(pool["spec"].clone(), json!({"selector": selector}));
        made::<IPPool>(with(pool, json!({"spec": spec})))
    };
    for (requirement, kind, pools, selected) in [
        (
            ["net/v20", "p1", "shop", "gc1"],
            "cluster",
            "abg",
            Some("b"),
        ),
        (["net/v20", "p1", "shop", "gc1"], "cluster", "ag", Some("a")),
        (["", "", "shop", ""], "vm", "abcg", Some("c")),
        (["", "p1", "shop", ""], "vm", "c", None),
        (["net/v20", "p9", "data", "gc7"], "cluster", "d", Some("d")),
        (["net/v20", "p9", "data", "gc7"], "cluster", "dg", Some("g")),
        (["net/v20", "p9", "data", "gc7"], "vm", "d", None),
        (["net/v99", "*", "shop", "*"], "cluster", "ab", None),
        (["net/v20", "*", "shop", "*"], "cluster", "a", Some("a")),
    ] {
        let [network, project, namespace, guest] = requirement;
        let metadata = json!({"namespace": "n", "name": "a", "annotations": {
            keys::ANNOTATION_NETWORK: network, keys::ANNOTATION_PROJECT: project,
            keys::ANNOTATION_NAMESPACE: namespace, keys::ANNOTATION_CLUSTER: guest,
        }});
        let all = Snapshot {
            pools: pools.chars().map(|name| pool(&name.to_string())).collect(),
            load_balancers: vec![made(
                json!({"metadata": metadata, "spec": {"workloadType": kind}}),
            )],
            ..Snapshot::default()
        };
        let objects = crate::objects::Objects::sort(&all);
        let lb = &objects.lbs[&Key::new("n", "a")];
        assert_eq!(objects.selected(lb), selected, "{requirement:?} {pools}");
    }
}
