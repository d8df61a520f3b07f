use serde_json::{Value, json};

use super::*;

fn node(name: &str, spec: &Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "z"}}, "spec": spec,
    }))
    .unwrap()
}

fn two() -> Vec<Node> {
    vec![node("node1", &json!({})), node("node2", &json!({}))]
}

/// A Pod with label `app`; `on` is its node.
fn pod(app: &str, on: Option<&str>, spec: Value) -> Pod {
    let mut spec = spec;
    spec["containers"] = spec
        .get("containers")
        .cloned()
        .unwrap_or_else(|| json!([{"name": "c"}]));
    spec["nodeName"] = json!(on);
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "labels": {"app": app}}, "spec": spec,
    }))
    .unwrap()
}

fn apart(kind: &str, key: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
    let terms = match kind {
        "required" => json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]}),
        _ => {
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}]})
        }
    };
    json!({"affinity": {"podAntiAffinity": terms}})
}

#[test]
fn the_node_with_the_fewest_pods() {
    let busy = pod("x", Some("node1"), json!({}));
    assert_eq!(
        choose(&pod("a", None, json!({})), &two(), &[]).unwrap(),
        "node1"
    );
    assert_eq!(
        choose(&pod("a", None, json!({})), &two(), &[&busy]).unwrap(),
        "node2"
    );
}

#[test]
fn cordons_and_taints_need_a_toleration() {
    let taint = json!({"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]});
    let nodes = [
        node("node1", &json!({"unschedulable": true})),
        node("node2", &taint),
    ];
    let error = choose(&pod("a", None, json!({})), &nodes, &[]).unwrap_err();
    assert_eq!(
        error,
        "0/2 nodes are available: 2 node(s) had untolerated taint(s)."
    );
    let with = |toleration: Value| pod("a", None, json!({"tolerations": [toleration]}));
    let equal = with(json!({"key": "k", "value": "v"}));
    assert_eq!(choose(&equal, &nodes, &[]).unwrap(), "node2");
    assert!(choose(&with(json!({"key": "k", "value": "w"})), &nodes, &[]).is_err());
    assert!(
        choose(
            &with(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})),
            &nodes,
            &[]
        )
        .is_err()
    );
    let any = with(json!({"operator": "Exists"}));
    assert_eq!(choose(&any, &nodes, &[]).unwrap(), "node1");
    let cordon = with(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}));
    assert_eq!(choose(&cordon, &nodes, &[]).unwrap(), "node1");
}

#[test]
fn a_selector_and_an_affinity_restrict_the_nodes() {
    let selected = pod(
        "a",
        None,
        json!({"nodeSelector": {"kubernetes.io/hostname": "node2"}}),
    );
    assert_eq!(choose(&selected, &two(), &[]).unwrap(), "node2");
    // As the controller of DaemonSets sets it.
    let terms =
        json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node2"]}]}]);
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let named = pod("a", None, json!({"affinity": {"nodeAffinity": required}}));
    assert_eq!(choose(&named, &two(), &[]).unwrap(), "node2");
    let error = choose(&named, &two()[..1], &[]).unwrap_err();
    assert!(error.contains("affinity/selector"), "{error}");
    let preference = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node1"]}]});
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": preference}]});
    let preferring = pod("a", None, json!({"affinity": {"nodeAffinity": preferred}}));
    assert_eq!(choose(&preferring, &two(), &[]).unwrap(), "node2");
}

#[test]
fn required_anti_affinity_holds_both_ways() {
    let web = pod("web", Some("node1"), json!({}));
    let strict = |app: &str, on: Option<&str>, key: &str| pod(app, on, apart("required", key));
    let host = "kubernetes.io/hostname";
    assert_eq!(
        choose(&strict("web", None, host), &two(), &[&web]).unwrap(),
        "node2"
    );
    assert!(choose(&strict("web", None, "zone"), &two(), &[&web]).is_err());
    assert_eq!(
        choose(&strict("web", None, "no-such-label"), &two(), &[&web]).unwrap(),
        "node2"
    );
    // The Pod that is there already is the one that wants to be alone.
    let alone = strict("other", Some("node1"), host);
    let busy = pod("x", Some("node2"), json!({}));
    let also_busy = pod("x", Some("node2"), json!({}));
    let placed = [&alone, &busy, &also_busy];
    assert_eq!(
        choose(&pod("web", None, json!({})), &two(), &placed).unwrap(),
        "node2"
    );
    assert_eq!(
        choose(&pod("x", None, json!({})), &two(), &placed).unwrap(),
        "node1"
    );
}

#[test]
fn preferred_anti_affinity_yields_where_there_is_no_other_node() {
    let web = pod("web", Some("node2"), json!({}));
    let busy = pod("x", Some("node1"), json!({}));
    let also_busy = pod("x", Some("node1"), json!({}));
    let wish = pod("web", None, apart("preferred", "kubernetes.io/hostname"));
    assert_eq!(
        choose(&wish, &two(), &[&web, &busy, &also_busy]).unwrap(),
        "node1"
    );
    assert_eq!(choose(&wish, &two()[1..], &[&web]).unwrap(), "node2");
    let mut elsewhere = web.clone();
    elsewhere.metadata.namespace = Some("other".into());
    assert_eq!(
        choose(&wish, &two(), &[&elsewhere, &busy, &also_busy]).unwrap(),
        "node2"
    );
}

#[test]
fn a_host_port_is_used_once_on_a_node() {
    let spec =
        json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    let first = pod("a", Some("node1"), spec.clone());
    let second = pod("a", None, spec);
    assert_eq!(choose(&second, &two(), &[&first]).unwrap(), "node2");
    assert!(
        choose(&second, &two()[..1], &[&first])
            .unwrap_err()
            .contains("free ports")
    );
}
