use super::*;
use harvester_lb_api::LoadBalancer;
use serde_json::{Value, json};

fn lb(name: &str, annotations: &Value) -> LoadBalancer {
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("{name}-1"), "annotations": annotations},
        "spec": {},
    }))
    .unwrap()
}

#[test]
fn ipa_9_an_annotation_counts_whatever_its_value() {
    let index = Index::default();
    let of = |annotations: Value| {
        let found = index.of_lb(&lb("a", &annotations).metadata);
        found.map(|it| it.to_string())
    };
    for name in OF_LOAD_BALANCERS {
        for value in ["", "x", "10.0.0.5"] {
            let text = of(json!({ name: value })).unwrap();
            assert!(text.contains(name), "{text}");
            assert!(text.contains(&format!("{value:?}")), "{text}");
        }
    }
    // KVA-1: kube-vip's and foreign annotations change nothing.
    for name in [
        "kube-vip.io/serviceInterface",
        "kube-vip.io/requestedIP",
        "requested-address",
        "other.io/requested-address",
        keys::ANNOTATION_NETWORK,
        keys::ANNOTATION_EXCLUDE,
        keys::ANNOTATION_PRIMARY,
    ] {
        assert_eq!(of(json!({ name: "x" })), None, "{name}");
    }
}

#[test]
fn ipa_9_a_lease_is_known_by_its_load_balancers_uid() {
    let mut index = Index::default();
    let a = lb("a", &json!({}));
    assert_eq!(index.set_record("dhcp-a-1", true), Some("a-1"));
    assert_eq!(index.set_record("dhcp-a-1", true), None, "no news");
    assert_eq!(index.set_record("10.0.0.5", true), None);
    let found = index.of_lb(&a.metadata);
    assert_eq!(found, Some(Unsupported::Lease("dhcp-a-1".to_owned())));
    let other = lb("b", &json!({}));
    assert_eq!(index.of_lb(&other.metadata), None);
    assert_eq!(index.set_record("dhcp-a-1", false), Some("a-1"));
    assert_eq!(index.of_lb(&a.metadata), None);
}
