use super::*;
use harvester_lb_api::LoadBalancer;
use harvester_lb_ipam::{Micros, Owner, RecordSpec, Settings};
use harvester_lb_object::Version;
use serde_json::{Value, json};

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn lb(name: &str, annotations: &Value) -> Lb {
    let object: LoadBalancer = object(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("{name}-1"), "annotations": annotations},
        "spec": {},
        "status": {"allocatedAddress": {"ip": "10.0.0.9"}},
    }));
    Lb::valid(object)
}

fn service(name: &str, owners: &[&str], ip: &str) -> Service {
    let owner = |owner: &&str| {
        json!({
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
            "name": owner, "uid": format!("{owner}-1"),
        })
    };
    let owners: Vec<Value> = owners.iter().map(owner).collect();
    object(json!({
        "metadata": {
            "namespace": "ns", "name": name, "ownerReferences": owners,
            "labels": { keys::LABEL_SERVICELB: "true" },
        },
        "spec": {"loadBalancerIP": ip},
    }))
}

fn record(addr: &str, namespace: &str, name: &str, uid: &str) -> Record {
    Record {
        spec: RecordSpec {
            addr: addr.parse().unwrap(),
            pool: "p".into(),
            owner: Owner::new(namespace, name, uid),
            phase: Phase::Bound,
            bound_at: Micros(1),
            released_at: None,
        },
        version: Version(1),
    }
}

fn ledger(records: &[Record]) -> Ledger {
    let mut ledger = Ledger::new(Settings::default());
    for record in records {
        ledger.observe(record.clone());
    }
    ledger
}

#[test]
fn ipa_9_an_annotation_counts_whatever_its_value() {
    let (index, ledger) = (Index::default(), ledger(&[]));
    let of = |annotations: Value| {
        let lb = lb("a", &annotations);
        let found = index.of_lb(&ledger, &key("a"), lb.meta());
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
    ] {
        assert_eq!(of(json!({ name: "x" })), None, "{name}");
    }
}

#[test]
fn ipa_9_a_lease_is_known_by_its_load_balancers_uid() {
    let (mut index, ledger) = (Index::default(), ledger(&[]));
    let a = lb("a", &json!({}));
    assert_eq!(index.set_record("dhcp-a-1", true), Some("a-1"));
    assert_eq!(index.set_record("dhcp-a-1", true), None, "no news");
    assert_eq!(index.set_record("10.0.0.5", true), None);
    let found = index.of_lb(&ledger, &key("a"), a.meta());
    assert_eq!(found, Some(Unsupported::Lease("dhcp-a-1".to_owned())));
    let other = lb("b", &json!({}));
    assert_eq!(index.of_lb(&ledger, &key("b"), other.meta()), None);
    assert_eq!(index.set_record("dhcp-a-1", false), Some("a-1"));
    assert_eq!(index.of_lb(&ledger, &key("a"), a.meta()), None);
}

#[test]
fn ipa_9_all_that_have_a_part_in_a_shared_service() {
    let (mut index, ledger) = (Index::default(), ledger(&[]));
    let of = |index: &Index, name: &str| {
        let lb = lb(name, &json!({}));
        index.of_lb(&ledger, &key(name), lb.meta()).is_some()
    };
    let own = service("a", &["a"], "10.0.0.5");
    let affected = index.set_service(&key("a"), Some(&own));
    assert_eq!(affected, Affected::default());
    assert!(!of(&index, "a"));
    let shared = service("a", &["a", "b"], "10.0.0.5");
    let affected = index.set_service(&key("a"), Some(&shared));
    assert_eq!(affected.lbs, BTreeSet::from([key("a"), key("b")]));
    assert!(of(&index, "a") && of(&index, "b") && !of(&index, "c"));
    // The first is deleted; the others stay unsupported, and so does a new one of its name.
    let left = service("a", &["c"], "10.0.0.5");
    let affected = index.set_service(&key("a"), Some(&left));
    assert_eq!(affected.lbs, BTreeSet::from([key("a"), key("b"), key("c")]));
    assert!(of(&index, "a") && !of(&index, "b") && of(&index, "c"));
    index.set_service(&key("a"), None);
    assert!(!of(&index, "a") && !of(&index, "c"));
    assert!(index.services.to.is_empty() && index.services.from.is_empty());
    assert!(index.shown.by_addr.is_empty() && index.shown.by_key.is_empty());
}

#[test]
fn ipa_9_a_record_that_others_share_is_not_released() {
    let primary = json!({ keys::ANNOTATION_PRIMARY: "a" });
    let mut index = Index::default();
    let of = |addr, name| record(addr, "ns", name, "gone");
    assert!(!index.shares_record(&of("10.0.0.5", "a")));
    // By its owner's name, with any address.
    let affected = index.set_lb(&key("b"), Some(&lb("b", &primary)));
    assert_eq!(affected.lbs, BTreeSet::from([key("a")]));
    assert!(index.shares_record(&of("10.0.0.5", "a")));
    // By the address, with any name: the holder is a member, but not the one that the group is named after.
    assert!(index.shares_record(&of("10.0.0.9", "c")));
    assert!(!index.shares_record(&of("10.0.0.5", "c")));
    // Addresses are not shared between namespaces.
    assert!(!index.shares_record(&record("10.0.0.9", "other", "c", "gone")));
    let affected = index.set_lb(&key("b"), Some(&lb("b", &json!({}))));
    // The owner of the address may release it now.
    assert_eq!(
        affected.addrs,
        BTreeSet::from(["10.0.0.9".parse().unwrap()])
    );
    assert!(!index.shares_record(&of("10.0.0.9", "c")));
    // By the Service.
    index.set_service(&key("g"), Some(&service("g", &["c", "d"], "10.0.0.5")));
    assert!(index.shares_record(&of("10.0.0.7", "c")));
    assert!(index.shares_record(&of("10.0.0.5", "x")));
    assert!(!index.shares_record(&of("10.0.0.7", "x")));
    let affected = index.set_service(&key("g"), None);
    assert_eq!(
        affected.addrs,
        BTreeSet::from(["10.0.0.5".parse().unwrap()])
    );
    assert!(!index.shares_record(&of("10.0.0.5", "c")));
    assert!(index.named.by_addr.is_empty() && index.primaries.from.is_empty());
}

#[test]
fn ipa_9_the_name_of_a_group_takes_nothing_over() {
    let mut index = Index::default();
    index.set_lb(
        &key("b"),
        Some(&lb("b", &json!({ keys::ANNOTATION_PRIMARY: "a" }))),
    );
    let a = lb("a", &json!({}));
    let of = |index: &Index, records: &[Record]| index.of_lb(&ledger(records), &key("a"), a.meta());
    let (earlier, own) = (
        record("10.0.0.5", "ns", "a", "a-0"),
        record("10.0.0.6", "ns", "a", "a-1"),
    );
    // Named as a primary, with an unchanged uid: served.
    assert_eq!(of(&index, &[]), None);
    assert_eq!(of(&index, std::slice::from_ref(&own)), None);
    assert_eq!(of(&index, &[earlier.clone(), own]), None);
    let found = of(&index, std::slice::from_ref(&earlier));
    assert_eq!(found, Some(Unsupported::SharedName));
    index.set_lb(&key("b"), None);
    assert_eq!(of(&index, &[earlier]), None);
}
